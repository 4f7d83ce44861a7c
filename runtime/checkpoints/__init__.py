"""Checkpoints in safetensors files: quantize them, shard by shard, and read what was written."""

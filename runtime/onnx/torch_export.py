"""What `torch.onnx.export` needs to know of skuda's operators."""

"""What records of runs on GPUs say about the kernels of today."""

"""Every operation against the oracles, bit for bit, on the reference and (where there is a GPU) on CUDA."""

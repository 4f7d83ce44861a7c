"""The CPU backend: NumPy formulas to the bits of the kernels."""

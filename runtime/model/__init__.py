"""What an operation is: its operands, element types, kernels' identities and problem descriptors."""

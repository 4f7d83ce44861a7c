"""What the integrations of PyTorch and JAX share: rules that follow from an operation's named dimensions.

Nothing here imports a framework.
"""

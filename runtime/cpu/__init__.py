"""Kernels on the CPU: the programs of the catalog, compiled by the system's C++ compiler, to the reference's bits."""

"""The schedules of kernels, and the geometry of a launch of each."""

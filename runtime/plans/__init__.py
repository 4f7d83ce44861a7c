"""Plans of operations, and the functions that find one for a call."""

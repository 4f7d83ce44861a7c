"""Hand-written oracles: what each operation must give, from its definition, in exact integers and fractions.

Nothing here imports the library under test, and no floating-point operation decides a result.

floats, affine, lerp: one value at a time, in `fractions.Fraction`; written to be read.
floats_array, affine_array: the same definitions over whole arrays, in NumPy integers; written to be fast
enough for every 16-bit input. test_oracles.py holds the two against each other.
patterns: the inputs that they and the conformance tests are tried on.
"""

"""Hand-written oracles: what each operation must give, from its definition, in exact integers and fractions.

Nothing here imports the library under test, and no floating-point operation decides a result.

floats, affine, fp8, lerp: one value at a time, in `fractions.Fraction`; written to be read.
observers: one row at a time, exactly.
spans, rows, learned: one row at a time: the values that may be, where the definition leaves open the order of a sum or
the last bit of exp and log (which mpmath gives).
floats_array, affine_array, fp8_array: the same definitions over whole arrays, in NumPy integers; written to be fast
enough for every 16-bit input. test_oracles.py holds the two against each other.
patterns: the inputs that they and the conformance tests are tried on.

of_elements, of_rows: the oracle of each operation under its name. binding: how a name finds it and what it is given.
"""

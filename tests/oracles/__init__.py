"""Hand-written oracles: what each operation must give, from its definition, in exact integers and fractions.

Nothing here imports the library under test, and no floating-point operation decides a result.

floats, affine, fp8, lerp: one value at a time, in `fractions.Fraction`; written to be read.
observers: one row at a time, exactly.
spans, rows, learned: one row at a time: the values that may be, where the definition leaves open the order of a sum or
the last bit of exp and log (which mpmath gives).
floats_array, affine_array, fp8_array: the same definitions over whole arrays, in NumPy integers; written to be fast
enough for every 16-bit input. test_oracles.py holds the two against each other.
patterns: the inputs that they and the conformance tests are tried on.
"""

# Which operations each oracle is for: `skuda check` asks for every operation of ops.yaml, and for `<oracle>_backward`
# where one has a backward pass.
COVERED = {
    "affine.quantize": (
        "quantize_per_tensor",
        "quantize_per_channel",
        "quantize_per_token",
        "quantize_per_group",
    ),
    "affine.dequantize": (
        "dequantize_per_tensor",
        "dequantize_per_channel",
        "dequantize_per_token",
        "dequantize_per_group",
    ),
    "affine.fake_quantize": (
        "fake_quantize_per_tensor",
        "fake_quantize_per_channel",
        "fake_quantize_per_token",
        "fake_quantize_per_group",
    ),
    "learned.fake_quantize": ("learnable_fake_quantize_per_tensor", "learnable_fake_quantize_per_channel"),
    "observers.min_max": ("observe_min_max_per_tensor", "observe_min_max_per_channel"),
    "observers.absmax": ("observe_absmax_per_tensor", "observe_absmax_per_channel"),
    "observers.moving_average": ("observe_moving_average_per_tensor", "observe_moving_average_per_channel"),
    "fp8.quantize": (
        "quantize_fp8_per_tensor",
        "quantize_fp8_per_channel",
        "quantize_fp8_per_token",
        "quantize_fp8_per_group",
    ),
    "fp8.dequantize": (
        "dequantize_fp8_per_tensor",
        "dequantize_fp8_per_channel",
        "dequantize_fp8_per_token",
        "dequantize_fp8_per_group",
    ),
    "fp8.dynamic_quantize": (
        "dynamic_quantize_fp8_per_token",
        "dynamic_quantize_fp8_per_group",
        "dynamic_quantize_fp8_per_tensor",
        "dynamic_quantize_fp8_per_channel",
    ),
    "lerp.lerp": ("lerp", "lerp_tensor"),
    "rows.dynamic_quantize": (
        "dynamic_quantize_per_token",
        "dynamic_quantize_per_group",
        "dynamic_quantize_per_tensor",
        "dynamic_quantize_per_channel",
    ),
    "rows.dynamic_quantize_asymmetric": (
        "dynamic_quantize_asymmetric_per_token",
        "dynamic_quantize_asymmetric_per_group",
        "dynamic_quantize_asymmetric_per_tensor",
        "dynamic_quantize_asymmetric_per_channel",
    ),
    "rows.rms_norm": ("rms_norm",),
    "rows.rms_normalize": ("rms_normalize",),
    "rows.add_rms_norm": ("add_rms_norm",),
    "rows.layer_norm": ("layer_norm",),
    "rows.standardize": ("standardize",),
    "rows.l2_normalize": ("l2_normalize",),
    "rows.softmax": ("softmax",),
    "rows.log_softmax": ("log_softmax",),
    "rows.rms_norm_dynamic_quantize": ("rms_norm_dynamic_quantize",),
    "rows.silu_mul_dynamic_quantize": ("silu_mul_dynamic_quantize", "silu_mul_dynamic_quantize_per_group"),
    "rows.add_rms_norm_dynamic_quantize": ("add_rms_norm_dynamic_quantize",),
    "rows.layer_norm_dynamic_quantize": ("layer_norm_dynamic_quantize",),
    "rows.softmax_dynamic_quantize": ("softmax_dynamic_quantize",),
    "rows.gelu_dynamic_quantize": ("gelu_dynamic_quantize",),
    "rows.gelu_tanh_dynamic_quantize": ("gelu_tanh_dynamic_quantize",),
    "rows.gelu_quantize": ("gelu_quantize_per_tensor", "gelu_quantize_per_token"),
    "rows.gelu_tanh_quantize": ("gelu_tanh_quantize_per_tensor", "gelu_tanh_quantize_per_token"),
    "rows.gelu": ("gelu",),
    "rows.gelu_tanh": ("gelu_tanh",),
    "rows.silu_mul": ("silu_mul",),
    "rows.total": ("sum",),
    "rows.mean": ("mean",),
    "rows.product": ("prod",),
    "rows.largest": ("amax",),
    "rows.smallest": ("amin",),
    "rows.norm1": ("norm1",),
    "rows.norm2": ("norm2",),
    "rows.logsumexp": ("logsumexp",),
    "rows.variance": ("var",),
    "rows.deviation": ("std",),
    "rows.some": ("any",),
    "rows.each": ("all",),
    "rows.nonzero": ("count_nonzero",),
    "rows.first_largest": ("argmax",),
    "rows.first_smallest": ("argmin",),
}

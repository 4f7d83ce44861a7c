"""Where samples of torch's operator database are not taken, or give others: the reason, the operations, why it is so.

A reason is the text of `operator_database.Differs`, or the class of the error that the call raises.
"""

from __future__ import annotations

DIFFERENCES: dict[str, tuple[tuple[str, ...], str]] = {
    "no gradient": (
        ("remainder", "sign", "digamma", "nextafter"),
        "The row has none; torch has one. The outputs agree.",
    ),
    "gradient": (
        ("hardsigmoid", "layer_norm", "logcumsumexp"),
        "Torch rounds 1/6 to f32 in f64. Of `layer_norm`, gradients that cancel. That of `logcumsumexp` is made from "
        "the output as it is stored, and is inexact where elements are large.",
    ),
    "output": (
        ("rms_norm", "gaussian_nll_loss"),
        "The default of `eps` is 1e-6, not that of the type. A `var` of one axis less is not extended by a last axis.",
    ),
    "output of bool for uint8": (("any", "all"), "Torch has uint8 for uint8."),
    "output of int32 for int64": (("cumsum", "cumprod"), "The type of the elements is kept."),
    "InvalidProblem": (
        ("prelu", "kl_div", "binary_cross_entropy_with_logits", "batch_norm"),
        "`weight` has an element for each channel. There is no `batchmean`. `pos_weight` is not without `weight`. An "
        "array of one axis has no channels.",
    ),
    "Unsupported": (("ldexp", "cross_entropy"), "Exponents are integers. Targets are labels."),
    "a tensor for an attribute": (("clamp", "clamp_min", "clamp_max"), "`clamp_tensor` has tensors as bounds."),
    "a tensor for the number `weight`": (("lerp",), "`lerp_tensor` has a tensor."),
    "without `high`": (("clamp_tensor",), "Both bounds are needed."),
    "without `low`": (("clamp_tensor",), "Both bounds are needed."),
    "operands of several types": (("clamp_tensor",), "Types are not promoted."),
    "a number that the type does not hold": (
        ("lerp_tensor", "copysign"),
        "A number in place of an operand becomes an element of its type.",
    ),
    "`alpha`": (("add", "sub"), "The row has no factor."),
    "`num_classes`": (("one_hot",), "The output's `shape=` says it, and the type is one of floats."),
    "`unbiased`": (("var", "std"), "`correction=` says it."),
    "`dtype`": (("cumsum", "cumprod"), "The type of the elements is kept."),
    "`approximate` is another one": (("gelu_tanh",), "`gelu` has both."),
    "`p` is another one": (("l2_normalize", "norm1", "norm2"), "Norms other than these have no row."),
    "`training` is another one": (("batch_norm", "batch_norm_training"), "Each has a row."),
    "`swap` is another one": (("triplet_margin_loss",), "The row has no swap."),
}

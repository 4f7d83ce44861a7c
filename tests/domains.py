"""Where some operations take their operands from: outside, their formulas give NaN, have no slope, or cancel."""

from __future__ import annotations

from math import copysign, isinf

from skuda.model.operation import Operation

DOMAINS = {
    "acosh": {"input": (1, 9)},
    "cast_to_integers": {"input": (-40, 200)},
    "logit": {"input": (0.02, 0.98)},
    "poisson_nll_loss": {"input": (0.1, 2), "target": (0.1, 2)},
    "gaussian_nll_loss": {"var": (0.1, 2)},
    "batch_norm": {"running_var": (0.1, 2)},
    "kl_div": {"input": (-9, -5), "target": (0.1, 1)},
    "binary_cross_entropy": {"input": (0.1, 0.9), "target": (0.1, 0.9)},
    "binary_cross_entropy_with_logits": {"target": (0.1, 0.9), "weight": (0.5, 1.5), "pos_weight": (0.5, 1.5)},
    "cross_entropy_of_probabilities": {"target": (0.1, 0.9)},
    "multilabel_soft_margin_loss": {"target": (0.1, 0.9), "weight": (0.5, 1.5)},
    "cosine_embedding_loss": {"target": (1, 1)},
    "soft_margin_loss": {"input": (-2, 2), "target": (-1, 1)},
    "triplet_margin_loss": {"anchor": (0, 1), "positive": (1, 2), "negative": (0, 1)},
}

# Rows most of whose results may be one value whatever the operands are: gradients that are 0 everywhere, extremes
# that are soon met, triangles of narrow matrices, and integers that are cut to the ends of a type.
ALIKE = frozenset(
    ("floor", "ceil", "round", "round_decimals", "trunc", "step", "cummin", "cummax", "tril", "triu", "cast_saturate")
)


def domain(row: str, operand: str) -> tuple[float, float] | None:
    """The ends of an operand's domain; None where it may be any number."""
    return DOMAINS.get(row, {}).get(operand)


def bounds(operation: Operation) -> dict[str, float]:
    """Numbers for the attributes whose default is no bound: so that what is cut shows."""
    return {
        attribute.name: copysign(0.5, attribute.default)
        for attribute in operation.attributes
        if isinstance(attribute.default, float) and isinf(attribute.default)
    }


def turned(operation: Operation) -> dict[str, float | bool]:
    """Other values than their defaults for attributes of formulas, so that what they turn on and off is seen."""
    found: dict[str, float | bool] = {}
    for attribute in operation.attributes:
        default = attribute.default
        if attribute.type == "bool":
            found[attribute.name] = not default
        elif isinstance(default, float) and not isinf(default):
            found[attribute.name] = default + 0.25
        elif attribute.type == "i32" and isinstance(default, int):
            found[attribute.name] = default + 1
    return found

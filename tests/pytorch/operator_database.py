"""Torch's own operator database as calls of our functions: what each sample becomes, and how it compares.

`THEIRS`, `ORDERS` and `KEYWORDS` say what operations and arguments are called there; all else follows from the rows.
A sample is an input, arguments and keywords. What differs only in form is brought into ours: classes move to the last
axis. Operands of several shapes, and numbers in their place, are handed on as they are.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from dataclasses import dataclass, field

import torch
from operations import plans
from torch.testing._internal.common_methods_invocations import op_db

import skuda
from skuda.arrays.libraries import torch_dtypes
from skuda.errors import SkudaError
from skuda.model.dtypes import DTYPES
from skuda.model.operation import COMPUTE

SAMPLES = 8  # of an operation in one element type
STEPS = {torch.float64: 64, torch.float32: 8, torch.float16: 2, torch.bfloat16: 2}  # of what a result may differ by

# The database's name of a row, where that is neither the row's own nor `nn.functional.` and that; None where what has
# the name is something else.
THEIRS = {
    "batch_norm_training": "nn.functional.batch_norm",
    "bernoulli": None,  # other random numbers
    "dropout": None,
    "randn": None,
    "randint": None,
    "arange": None,  # from a start to an end
    "linspace": None,  # without tensors among its inputs
    "full": None,  # without tensors among its inputs
    "eye": None,
    "glu": None,  # of the halves of an array
    "clamp_tensor": "clamp",
    "gelu_tanh": "nn.functional.gelu",
    "l2_normalize": "nn.functional.normalize",
    "lerp_tensor": "lerp",
    "log_sigmoid": "nn.functional.logsigmoid",
    "norm1": "linalg.vector_norm",
    "norm2": "linalg.vector_norm",
    "prod_of_integers": "prod",
    "sum_of_integers": "sum",
}
VARIANTS = {"div": "no_rounding_mode"}  # of the several of a name; else the one without a name

# Our names of arguments by position, where these are not the row's inputs and then its attributes.
STATISTICS = ("input", "running_mean", "running_var", "weight", "bias")
LOGITS = ("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing")
ORDERS = {
    "where": ("a", "condition", "b"),
    "nan_to_num": ("input", "value", "posinf", "neginf"),
    "one_hot": ("target", "num_classes"),
    "l2_normalize": ("input", "p", "axis", "eps"),
    "norm1": ("input", "p", "axis", "keepdims"),
    "norm2": ("input", "p", "axis", "keepdims"),
    "rms_norm": ("input", "normalized_shape", "weight", "eps"),
    "layer_norm": ("input", "normalized_shape", "weight", "bias", "eps"),
    "group_norm": ("input", "num_groups", "weight", "bias", "eps"),
    "instance_norm": (*STATISTICS, "use_input_stats", "momentum", "eps"),
    "batch_norm": (*STATISTICS, "training", "momentum", "eps"),
    "batch_norm_training": (*STATISTICS, "training", "momentum", "eps"),
    "cross_entropy": LOGITS,
    "nll_loss": LOGITS[:-1],
}
KEYWORDS = {"dim": "axis", "keepdim": "keepdims", "min": "low", "max": "high", "nan": "value", "other": "b", "ord": "p"}
# What an argument must be for the row to be meant; it is then not handed on.
MEANT = {
    "gelu_tanh": {"approximate": "tanh"},
    "norm1": {"p": 1},
    "norm2": {"p": 2},
    "l2_normalize": {"p": 2},
    "triplet_margin_loss": {"p": 2, "swap": False},
    "instance_norm": {"use_input_stats": True},
    "batch_norm": {"training": False},
    "batch_norm_training": {"training": True},
}
UNUSED = {"instance_norm": ("running_mean", "running_var", "momentum"), "batch_norm": ("momentum",)}  # by the output
DEFAULTS = {"gelu_tanh": {"approximate": "none"}}
DEFAULTS |= {name: {"p": 2} for name in ("norm1", "norm2", "l2_normalize")}
DEFAULTS |= {"l2_normalize": {"p": 2, "axis": 1}}
DEFAULTS |= {name: {"training": False} for name in ("batch_norm", "batch_norm_training")}
CLASSES = ("cross_entropy", "nll_loss")  # whose classes are the second axis there, the last here


@dataclass
class Counted:
    """What became of an operation's samples.

    Attributes:
        agree: samples whose outputs and gradients are within the bound.
        gradients: of these, how many have gradients.
        differ: by reason, how many samples are not taken or do not agree.
        shown: by reason, the first such sample.
    """

    agree: int = 0
    gradients: int = 0
    differ: Counter = field(default_factory=Counter)
    shown: dict = field(default_factory=dict)


class Differs(Exception):
    """A sample that the row does not take, or a result that is another one; the text is the reason."""


def entries() -> dict[str, object]:
    """The database's entry of each row that has one."""
    found: dict[str, list] = {}
    for info in op_db:
        found.setdefault(info.name, []).append(info)
    chosen = {}
    for name, plan in plans().items():
        operation = plan.operation
        if operation.function != operation.row:
            continue
        own = (name, f"nn.functional.{name}", f"special.{name}")
        theirs = THEIRS[name] if name in THEIRS else next((each for each in own if each in found), None)
        if theirs is not None:
            variant = VARIANTS.get(name, "")
            chosen[name] = next(info for info in found[theirs] if info.variant_test_name == variant)
    return chosen


def element_types(name: str, info) -> list[torch.dtype]:
    """Those that both have."""
    operation = plans()[name].operation
    letters = {operand.element for operand in operation.inputs} & operation.types.keys()
    words = {word for letter in letters for word in operation.types[letter] if word in DTYPES}
    ours = [torch_dtypes()[DTYPES[word].storage] for word in words if not DTYPES[word].packed]
    known = info.supported_dtypes("cpu")
    return sorted({dtype for dtype in ours if dtype in known}, key=str)


def drawn(info, dtype: torch.dtype) -> list:
    """Samples from the whole of the database's list, each time the same."""
    torch.manual_seed(7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        every = [*info.sample_inputs("cpu", dtype, requires_grad=False)]
    return random.Random(7).sample(every, min(SAMPLES, len(every)))


def named(name: str, sample) -> dict:
    """A sample's arguments by our names."""
    operation = plans()[name].operation
    attributes = [attribute.name for attribute in operation.attributes]
    order = ORDERS.get(name, (*(operand.name for operand in operation.inputs), *attributes, "keepdims"))
    values = (sample.input, *sample.args)
    if len(values) > len(order):
        raise Differs("more arguments")
    found = DEFAULTS.get(name, {}) | dict(zip(order, values))
    return found | {KEYWORDS.get(key, key): value for key, value in sample.kwargs.items()}


def call(name: str, sample, theirs):
    """The sample as a call of ours and one of theirs; each takes the tensors that may have gradients.

    Returns:
        The tensors, which of them have a gradient in ours, ours and theirs: functions of the tensors.
    """
    operation = plans()[name].operation
    given = named(name, sample)
    for key, value in MEANT.get(name, {}).items():
        if given.pop(key, value) != value:
            raise Differs(f"`{key}` is another one")
    for key in [key for key, value in given.items() if value is None or key in UNUSED.get(name, ())]:
        del given[key]
    groups = given.pop("num_groups", None)
    if "normalized_shape" in given and tuple(given.pop("normalized_shape")) != shape_of_rows(given):
        raise Differs("rows of several axes without a weight")
    inputs = [operand.name for operand in operation.inputs]
    taken = {attribute.name for attribute in operation.attributes} | set(inputs) | set(operation.options)
    taken |= {operation.choice.name} if operation.choice else set()
    for key in given.keys() - taken:
        raise Differs(f"`{key}`")
    tensors = [each for each in (given.get(key) for key in inputs) if isinstance(each, torch.Tensor)]
    first = tensors[0]
    if any(isinstance(value, torch.Tensor) for key, value in given.items() if key not in inputs):
        raise Differs("a tensor for an attribute")
    missing = [each for each in inputs if each not in given and each not in operation.numbers]
    missing += [a.name for a in operation.attributes if a.default is None and a.name not in given]
    if missing:
        raise Differs(f"without `{missing[0]}`")
    if any(isinstance(value, complex) for value in given.values()):
        raise Differs("a complex number")
    elements = {}
    for operand in operation.inputs:
        value = given.get(operand.name)
        if isinstance(value, torch.Tensor):
            elements.setdefault(operand.element, set()).add(value.dtype)
    if any(len(each) > 1 for each in elements.values()):
        raise Differs("operands of several types")
    for operand in operation.inputs:
        value = given.get(operand.name)
        if operand.name in given and operand.scalar and isinstance(value, torch.Tensor) and value.numel() != 1:
            raise Differs(f"a tensor for the number `{operand.name}`")

    def ours(*values):
        given_now = dict(given)
        given_now.update(zip([key for key in inputs if isinstance(given.get(key), torch.Tensor)], values))
        arrays = {key: given_now.pop(key) for key in inputs if key in given_now}
        scalars = {operand.name for operand in operation.inputs if operand.scalar}
        for key, value in arrays.items():
            if key in scalars:
                continue
            if not first.is_floating_point() and isinstance(value, float):
                raise Differs("a number of another type")
            is_rounded = not isinstance(value, torch.Tensor) and first.new_tensor(value).item() != value
            if is_rounded and first.element_size() < 4:
                raise Differs("a number that the type does not hold")
        if name in CLASSES and first.ndim > 1:
            arrays["input"] = arrays["input"].movedim(1, -1)
        of_compute = {operand.name for operand in operation.inputs if operand.element == COMPUTE and operand.dims}
        wide = [key for key in of_compute & arrays.keys() if arrays[key].element_size() < 4]
        arrays |= {key: arrays[key].float() for key in wide}  # statistics are
        if groups is not None:
            arrays = {key: in_groups(value, int(key == "input"), groups) for key, value in arrays.items()}
        made = getattr(skuda, operation.function)(**arrays, **given_now)
        made = made[0] if isinstance(made, tuple) else made
        made = made if groups is None else made.flatten(1, 2)
        return made

    def reference(*values):
        left = iter(values)
        keys = named(name, sample)
        changed = [next(left) if isinstance(keys.get(key), torch.Tensor) else None for key in inputs]
        swapped = {id(keys[key]): value for key, value in zip(inputs, changed) if value is not None}

        def change(value):
            return swapped.get(id(value), value)

        args = [change(value) for value in (sample.input, *sample.args)]
        made = theirs(*args, **{key: change(value) for key, value in sample.kwargs.items()})
        return made if isinstance(made, torch.Tensor) else made[0]

    declared = gradients_of(operation)
    arrays = {key: given[key] for key in inputs if isinstance(given.get(key), torch.Tensor)}
    learned = [key in declared and value.is_floating_point() for key, value in arrays.items()]
    return tensors, learned, ours, reference


def in_groups(value, axis: int, groups: int):
    """Channels, the axis of an array that they are, in groups."""
    return value.unflatten(axis, (groups, value.shape[axis] // groups))


def gradients_of(operation) -> set[str]:
    """The inputs for which the row has a gradient."""
    backward = plans().get(f"{operation.name}_backward")
    found = {} if backward is None else backward.operation.gradients
    return {name[2:] for name, index in found.items() if index is not None}


def shape_of_rows(given) -> tuple:
    """What `normalized_shape` says of a call whose shapes say it."""
    weight = given.get("weight")
    shape = given["input"].shape[-1:] if weight is None else weight.shape
    return tuple(shape)


def compare(name: str, info, sample) -> bool:
    """Compares a sample: its output, and the gradients of the inputs for which the row has one.

    Returns:
        Whether there were gradients.

    Raises:
        Differs: it is not taken, or the results are others.
    """
    tensors, learned, ours, theirs = call(name, sample, info.op)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wide = [each.double() if each.is_floating_point() else each for each in tensors]
        made = [results(ours, tensors, learned), results(theirs, tensors, learned), results(theirs, wide, learned)]
    sizes = [each.double().abs().amax() for each in tensors if each.numel() and each.is_floating_point()]
    largest = torch.stack([*sizes, torch.zeros((), dtype=torch.float64)][: len(sizes) or 1]).amax()
    added = len(tensors) > 1
    near("output", *(each[0] for each in made), largest if added or plans()[name].operation.reduces else None)
    for each in zip(*(each[1:] for each in made), strict=True):
        near("gradient", *each, largest if added else 0 * largest)
    if not any(learned) and has_gradient(theirs, tensors):
        raise Differs("no gradient")
    return any(learned)


def results(function, tensors, learned) -> list[torch.Tensor]:
    """The output of a call, and the gradients of some of its tensors."""
    leaves = [each.detach().clone().requires_grad_(wanted) for each, wanted in zip(tensors, learned)]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    output = function(*leaves)
    if not wanted:
        return [output]
    torch.manual_seed(3)
    given = torch.randn(output.shape).bfloat16().to(output.dtype)
    return [output.detach(), *torch.autograd.grad(output, wanted, given, materialize_grads=True)]


def has_gradient(function, tensors) -> bool:
    """Whether torch differentiates a function by its first argument."""
    leaf = tensors[0].detach().clone()
    try:
        output = function(leaf.requires_grad_(), *tensors[1:])
        torch.autograd.grad(output, leaf, torch.ones_like(output))
    except RuntimeError:  # of integers, of an operation without a derivative
        return False
    return True


def near(what: str, mine, expected, exact, size):
    """Raises Differs where ours is neither near theirs nor near theirs of f64, as it would be stored."""
    if mine.dtype != expected.dtype:
        raise Differs(f"{what} of {str(mine.dtype)[6:]} for {str(expected.dtype)[6:]}")
    if mine.shape != expected.shape:
        raise Differs(f"{what} of another shape")
    if not mine.is_floating_point():
        if not torch.equal(mine, expected):
            raise Differs(f"{what} of integers")
        return
    exact = exact.to(mine.dtype)
    if not all_near(mine, expected, exact, size):
        raise Differs(what)


def all_near(mine, expected, exact, size) -> bool:
    """Whether each element is near theirs, or no farther from that of f64 than theirs is.

    Args:
        size: the largest operand, where terms of that size are added; None where each element has its own bound.
    """
    kind = torch.finfo(mine.dtype)
    allowed = STEPS[mine.dtype] * kind.eps
    mine, expected, exact = mine.double(), expected.double(), exact.double()
    good = (mine - exact).abs() <= (expected - exact).abs()
    for other in (expected, exact):
        bound = other.abs() + kind.tiny
        if size is not None and other.numel():
            bound = bound.clamp_min(torch.maximum(size, other.abs().where(other.isfinite(), 0).amax()))
        good |= (mine - other).abs() <= allowed * bound
        good |= (mine == other) | (mine.isnan() & other.isnan())
    return bool(good.all())


def counted(name: str) -> Counted:
    """All samples of an operation, compared."""
    made = Counted()
    info = entries()[name]
    for dtype in element_types(name, info):
        for sample in drawn(info, dtype):
            try:
                made.gradients += compare(name, info, sample)
                made.agree += 1
            except Differs as found:
                reason = str(found)
                made.differ[reason] += 1
                made.shown.setdefault(reason, (dtype, sample))
            except SkudaError as error:
                reason = type(error).__name__
                made.differ[reason] += 1
                made.shown.setdefault(reason, (dtype, sample))
    return made


def page(differences) -> str:
    """What docs/frameworks.md says: the number of operations compared, and a table of the differences."""
    rows = [
        f"| {reason} | {', '.join(f'`{name}`' for name in operations)} | {why} |"
        for reason, (operations, why) in differences.items()
    ]
    said = f"{len(entries())} operations have an entry in torch's operator database."
    return "\n".join([said, "", "| difference | operations | why |", "|---|---|---|", *rows]) + "\n"

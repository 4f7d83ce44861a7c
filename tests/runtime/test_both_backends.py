"""What the reference takes CUDA takes too: every operation at types, sizes, axes and layouts of each kind.

No GPU: which kernels serve a call follows from the operands' strides and addresses, which those of NumPy arrays are.
"""

from __future__ import annotations

from itertools import islice, product

import ml_dtypes
import numpy as np
import pytest
import test_launch
from problems import each_type
from test_launch import array
from test_workspace import INPUT, OUTPUT, kernels, workspace_of

import skuda
from skuda.errors import BufferTooSmall, InvalidProblem, Unsupported
from skuda.generated import DynamicQuantizePerGroupArgs, DynamicQuantizePerGroupDescriptor, DynamicQuantizePerGroupPlan
from skuda.launch import registry
from skuda.launch.arguments import check
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind
from skuda.plans.repacked import RepackedPlan
from skuda.schedules.variant import STAGES

driver = test_launch.driver
CATALOG = registry.catalogs()[0]
PLANS = [plan for name in CATALOG.modules for plan in CATALOG.plans(name) if plan.operation.is_whole]
REPACKED = [plan for plan in PLANS if issubclass(plan, RepackedPlan)]
MANY = ((), (3,), (2, 5), (2, 3, 2), (1, 4))
SINGLE = (8, 1, 7, 33)
BLOCKS = (2, 3, 4, 100)
MOST = 100  # sizes of an operation, spread over all that there are


def sizes_of(operation):
    """Sizes: axes before and after, of one element and of odd lengths; blocks that divide an axis and that do not."""
    blocks = [attribute.name for attribute in operation.attributes if attribute.type == "size"]
    names = [dim.name for dim in operation.dims] + blocks
    choices = [MANY if dim.many else SINGLE for dim in operation.dims] + [BLOCKS] * len(blocks)
    every = list(product(*choices))
    return [dict(zip(names, values, strict=True)) for values in every[:: max(1, len(every) // MOST)]]


def padded(shape, dtype):
    return np.zeros([2 * extent + 1 for extent in shape], dtype)[tuple(slice(1, extent + 1) for extent in shape)]


# How an array may lie; the outputs beside inputs that lie otherwise, too.
LAYOUTS = {
    "plain": lambda shape, dtype: np.zeros(shape, dtype),
    "one later": lambda shape, dtype: np.zeros(int(np.prod(shape)) + 1, dtype)[1:].reshape(shape),
    "reversed axes": lambda shape, dtype: np.zeros(shape[::-1], dtype).T,
    "backwards": lambda shape, dtype: np.zeros(shape, dtype)[(slice(None, None, -1),) * len(shape)],
    "every other": lambda shape, dtype: np.zeros((*shape[:-1], 2 * shape[-1]), dtype)[..., ::2] if shape else None,
    "padded": padded,
    "all one": lambda shape, dtype: np.broadcast_to(np.zeros((), dtype), shape),
}


def arrays_of(plan, inputs: str, outputs: str):
    """Operands that lie so; None where an array cannot."""
    many = len(plan.operation.inputs)
    return [
        LAYOUTS[inputs if index < many else outputs](shape, DTYPES[word].storage)
        for index, (shape, word) in enumerate(zip(plan.stored, plan.words, strict=True))
    ]


def refusals(plan_class):
    """The calls that the reference runs and that no kernel serves: by choices of types in which each letter is each of
    its types, so that elements of every size, packed ones too, are in every role."""
    operation = plan_class.operation
    for turn, (types, sizes) in enumerate(product(each_type(operation), sizes_of(operation))):
        fields = {field: types[letter] for letter, field in operation.element_fields.items()}
        try:
            plan = plan_class.select(
                plan_class.descriptor_type(**sizes, **fields), preference=BackendKind.REFERENCE
            )
        except InvalidProblem:
            continue
        layouts = list(product(LAYOUTS, LAYOUTS))
        for inputs, outputs in islice(layouts, turn % 25, None, 25):
            arrays = arrays_of(plan, inputs, outputs)
            if any(each is None for each in arrays):
                continue
            try:
                checked = check(plan, arrays)
            except skuda.SkudaError:
                continue
            try:
                plan._check_layout(checked)
            except Unsupported as error:
                yield f"{types} {sizes} {inputs} -> {outputs}: {error}"


@pytest.mark.turns(8)
@pytest.mark.parametrize("plan_class", PLANS, ids=lambda plan: plan.operation.function)
def test_no_call_is_served_by_the_reference_alone(plan_class):
    assert list(islice(refusals(plan_class), 5)) == []


def test_operations_on_groups_pack_their_codes_apart():
    assert {plan.operation.function for plan in REPACKED} >= {
        "dynamic_quantize_per_group", "dynamic_quantize_asymmetric_per_group", "silu_mul_dynamic_quantize_per_group",
    }  # fmt: skip


def plan_of(plan_class, word: str, outer, d: int, inner, group_size: int, scale: str = "f32"):
    types = {"T": "bf16", "Q": word, "S": scale}
    fields = {field: types[letter] for letter, field in plan_class.operation.element_fields.items()}
    sizes = {"outer": outer, "d": d, "inner": inner, "group_size": group_size}
    descriptor = plan_class.descriptor_type(**sizes, **fields)
    return plan_class.select(descriptor, preference=BackendKind.REFERENCE)


@pytest.mark.parametrize(
    ("word", "inner", "group_size", "apart"),
    [
        ("s4", (6,), 4, True),  # codes of two columns, and so of two groups, share bytes
        ("s4", (6, 1), 4, True),
        ("s4", (), 3, True),  # the last code of a group shares its byte with the first of the next
        ("s4", (), 4, False),
        ("s8", (6,), 4, False),
        ("s8", (), 3, False),
    ],
)
@pytest.mark.parametrize("plan_class", REPACKED, ids=lambda plan: plan.operation.function)
def test_codes_are_packed_apart_where_groups_share_bytes(plan_class, word, inner, group_size, apart):
    plan = plan_of(plan_class, word, (2,), 9, inner, group_size)
    variant = plan._geometry(check(plan, arrays_of(plan, "plain", "plain"))).variant
    assert (variant is STAGES) == apart == plan._may_repack


@pytest.mark.parametrize("plan_class", REPACKED, ids=lambda plan: plan.operation.function)
def test_the_alternative_gives_the_bits_of_the_one_formula(plan_class):
    """Rows of 8-bit codes with the limits of 4 bits, and then the elementwise operation that packs them."""
    rng = np.random.default_rng(3)
    words = dict.fromkeys(types["Q"] for types in plan_class.operation.combinations if DTYPES[types["Q"]].packed)
    for word, (inner, group_size), scale in product(words, [((5,), 4), ((3, 2), 3), ((), 5)], ("f32", "bf16")):
        plan = plan_of(plan_class, word, (2,), 11, inner, group_size, scale)
        inputs = [
            rng.normal(0, 3, shape).astype(ml_dtypes.bfloat16)
            for shape in plan.shapes[: len(plan.operation.inputs)]
        ]
        made, twice = ([np.zeros(*each) for each in plan.made] for _ in range(2))
        plan.execute((*inputs, *made))
        rows, packing = plan.alternative.plans
        codes = np.zeros(plan.shapes[-1], np.int8)
        rows.execute((*inputs, *twice[:-1], codes))
        packing.execute((codes, twice[-1]))
        assert len(np.unique(codes)) > 7
        for one, other in zip(made, twice, strict=True):
            assert one.tobytes() == other.tobytes()


def test_both_steps_are_launched_with_a_workspace_for_the_codes(driver):
    plan = DynamicQuantizePerGroupPlan.select(
        DynamicQuantizePerGroupDescriptor(outer=(), d=8, inner=(6,), group_size=4, output_element="s4")
    )
    assert plan.workspace_size == 256  # 48 codes, to the next boundary
    operands = [array(INPUT, (8, 6), np.float32), array(OUTPUT, (2, 6), np.float32), array(INPUT * 3, (8, 3), np.uint8)]
    args = DynamicQuantizePerGroupArgs(*operands)
    with pytest.raises(BufferTooSmall, match="there is no workspace"):
        plan.run(args)
    assert driver.launches == []
    for times in (1, 2, 3):
        plan.run(args, workspace=workspace_of(plan))
        names = ["dynamic_quantize_per_group_row", "dynamic_quantize_per_group_stage1_vec"]
        assert kernels(driver) == names * times


def test_more_axes_than_kernels_walk_over_are_refused_by_the_reference_too():
    x = np.zeros((4,) * 10, np.float32)[(slice(None, None, 2),) * 10]
    with pytest.raises(Unsupported, match="axes after merging, at most 8 are served"):
        skuda.gelu(x)
    with pytest.raises(Unsupported, match="at most 4 are served"):
        skuda.softmax(x[0, 0, 0], axis=(0, 1, 2, 3, 4))
    with pytest.raises(Unsupported, match="are served"):
        skuda.dynamic_quantize_per_tensor(x)
    assert skuda.gelu(np.zeros((2,) * 10, np.float32)).shape == (2,) * 10

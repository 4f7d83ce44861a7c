"""Which rows the bench measures, and how many bytes each must move."""

from __future__ import annotations

import pytest
from bench_rows import CASES, case
from catalogs import made_catalog

import skuda
from skuda.bench import drawn, shapes, suite
from skuda.bench.shapes import SizeClass
from skuda.errors import InvalidProblem
from skuda.generated import CATALOG
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind
from skuda.verification import coverage


@pytest.mark.parametrize("quick", [False, True])
def test_every_operation_that_is_named_at_every_element_type(quick):
    every = [each for each in CATALOG.operations if each.is_whole and each.name == each.row]
    every += [each for each in CATALOG.operations if each.function.endswith("_as_fast")]
    expected = {(each.function, word) for each in every for word in each.types["T"]}
    assert {word for _, word in expected} >= {"f64", "f32", "f16", "bf16", "i32", "bool"}
    assert {(c.operation.function, c.element) for c in suite.cases(CATALOG, ["*"], quick=quick)} == expected


def test_every_operation_is_measured_and_each_structure_in_full():
    cases = suite.cases(CATALOG)
    assert {each.operation.function for each in cases} == {each.operation.function for each in CASES}
    measured = {(coverage.structure(each.operation), each.element) for each in cases}
    floats = {"f64", "f32", "f16", "bf16"}
    assert {each for each in measured if each[1] in floats} == {
        (coverage.structure(each.operation), each.element) for each in CASES if each.element in floats
    }
    of_softmax = {str(each) for each in cases if each.operation.function == "softmax"}  # the first of its structure
    assert {"softmax f32 65536x127", "softmax f16 16x4096", "softmax f64 16384x4096"} <= of_softmax
    of_exp = [str(each) for each in cases if each.operation.function == "exp"]  # one of many maps
    assert of_exp == ["exp f32 16384x4096", "exp f16 16384x4096"]


def test_the_record_is_a_thousand_rows_for_each_hundred_operations():
    """So that two GPUs measure it in minutes."""
    functions = {each.operation.function for each in CASES}
    assert len(suite.cases(CATALOG)) < 10 * len(functions)


def test_every_integer_type_axis_and_group():
    codes = {each.types["Q"] for each in CASES if "Q" in each.types and DTYPES[each.types["Q"]].code}
    assert codes == {"s8", "u8", "s4", "u4", "e4m3", "e5m2"}
    assert {each.variant for each in CASES} == {"", "axis 0", "axis 1", "group 32", "group 64", "group 128"}


def test_reductions_are_measured_where_their_kernels_differ():
    cases = suite.cases(CATALOG, ["*"])

    def found(function, element):
        return {
            str(each).split(" ", 1)[1]: each.size_class
            for each in cases
            if (each.operation.function, each.element) == (function, element)
        }

    rms_norm = found("rms_norm", "f16")
    assert rms_norm["f16 262144x64"] is rms_norm["f16 16384x4096 misaligned"] is SizeClass.ROWS
    assert rms_norm["f16 1024x65536"] is rms_norm["f16 256x262144"] is SizeClass.WIDE_ROWS
    assert rms_norm["f16 1x4096"] is rms_norm["f16 256x4096"] is SizeClass.FEW_ROWS
    assert found("rms_norm", "f64").keys() == {"f64 16384x4095", "f64 16384x4096"}
    total = found("sum", "f32")
    assert total["f32 16384x4095"] is SizeClass.VALUES
    assert total["f32 16384x4096 axis 0"] is SizeClass.COLUMNS
    assert total["f32 33554432"] is SizeClass.WHOLE
    assert set(found("dynamic_quantize_per_group", "f32").values()) == {SizeClass.ROWS, SizeClass.FEW_ROWS}
    assert found("silu_mul_dynamic_quantize", "bf16") == dict.fromkeys(
        ("bf16 s8 16384x4095", "bf16 s8 16384x4096"), SizeClass.FUSED
    )


@pytest.fixture(scope="module")
def unusual(tmp_path_factory):
    """Operations whose reductions the catalog may not have: gradients of columns, whole tensors, two axes of three."""
    spec = (
        "ops:\n"
        "  column_sum:\n    inputs: {x: 'T[*n, d]'}\n    outputs: {y: 'T[d] = sum(x, over=n)'}\n    backward: none\n"
        "  fit_tensor:\n    inputs: {x: 'T[*shape]'}\n    outputs: {y: 'T[*shape] = x / max(x, over=shape)'}\n"
        "    backward: none\n"
        "  middle:\n    inputs: {x: 'T[*n, h, w]'}\n    outputs: {y: 'T[*n, w] = sum(x, over=h)'}\n    backward: none\n"
    )
    with made_catalog(tmp_path_factory.mktemp("unusual"), "unusual_reductions", spec) as module:
        yield module.CATALOG


def test_what_operations_reduce_over_decides_their_shapes(unusual):
    found = {}
    for each in suite.cases(unusual, elements=["f32"]):
        found.setdefault(each.operation.name, {})[str(each.shape)] = (each.size_class, each.bytes)
    large = 16384 * 4096 * 4
    assert found["column_sum"] == {
        "16384x4095": (SizeClass.COLUMNS, 16384 * 4095 * 4 + 4095 * 4),
        "16384x4096": (SizeClass.COLUMNS, large + 4096 * 4),
    }
    assert found["fit_tensor"]["16384x4096"] == (SizeClass.PER_TENSOR, 3 * large)  # read twice
    assert found["fit_tensor"]["16x4096"] == (SizeClass.FEW_ROWS, 2 * 16 * 4096 * 4)
    assert found["middle"]["16384x64x64"] == (SizeClass.COLUMNS, large + large // 64)


def test_no_row_twice():
    assert len({str(each) for each in CASES}) == len(CASES)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (("quantize_per_tensor", "f16", "4096x4096"), 4096 * 4096 * (2 + 1) + 2 + 4),
        (("quantize_per_token", "f32", "16384x4095"), 16384 * 4095 * (4 + 1) + 16384 * (4 + 4)),
        (("quantize_per_channel", "f64", "16x4096", "axis 1"), 16 * 4096 * (8 + 1) + 4096 * (8 + 4)),
        # two codes a byte; the last group of 127 is short
        (("dequantize_per_group", "f16", "4097x127", "group 32"), 4097 * (64 + 127 * 2 + 4 * (2 + 4))),
        (("quantize_per_token_backward", "f16", "256x4096"), 256 * 4096 * 3 * 2 + 256 * (2 + 4)),
        (("lerp_backward", "f32", "1000003"), 1000003 * 3 * 4 + 4),
        (("lerp_tensor", "bf16", "16384x4096 row-strided"), 16384 * 4096 * 4 * 2),
        (("dynamic_quantize_per_token", "f16", "16384x4095"), 16384 * (4095 * (2 + 1) + 4)),
        (("rms_norm", "f32", "16x4096"), 4096 * 4 * (16 + 16 + 1)),
        (("amax", "f16", "16384x4096", "axis 0"), 4096 * 2 * (16384 + 1)),
    ],
)
def test_bytes_are_what_a_kernel_must_move(row, expected):
    assert case(*row).bytes == expected


def test_layouts():
    def layouts(row):
        return {each.operand.name: (each.shape, each.strides, each.start, each.size) for each in row.operands}

    strided = layouts(case("quantize_per_token", "f16", "16384x4096 row-strided"))
    assert strided["input"] == ((16384, 4096), (8192, 1), 0, 16384 * 8192)
    assert strided["output"] == ((16384, 4096), (4096, 1), 0, 16384 * 4096)
    shifted = layouts(case("quantize_per_token", "f16", "16384x4096 misaligned"))
    assert shifted["input"] == shifted["output"] == ((16384, 4096), (4096, 1), 1, 16384 * 4096 + 1)
    assert shifted["scale"] == ((16384,), (1,), 0, 16384)
    transposed = layouts(case("quantize_per_group", "f16", "16384x4096 transposed", "group 64"))
    assert transposed["input"] == ((16384, 4096), (1, 16384), 0, 16384 * 4096)
    assert transposed["output"] == ((16384, 2048), (2048, 1), 0, 16384 * 2048)
    heads = layouts(case("lerp_tensor", "f16", "4x32x1024x128 heads"))
    assert heads["a"] == ((4, 32, 1024, 128), (1 << 22, 128, 4096, 1), 0, 1 << 24)
    assert heads["weight"][1] == heads["output"][1] == (1 << 22, 1 << 17, 128, 1)
    alone = layouts(case("quantize_per_tensor", "f16", "4x32x1024x128 heads"))  # the output as a call makes it
    assert alone["input"][1] == alone["output"][1] == heads["a"][1]
    heads = layouts(case("sum", "f16", "4x32x1024x128 heads", "axis 0"))  # the axis that is summed comes last
    assert heads["input"][:2] == ((32, 1024, 128, 4), (128, 4096, 1, 1 << 22))
    assert heads["output"][1] == (1 << 17, 128, 1)
    for name in ("lerp_tensor", "quantize_per_tensor", "quantize_per_token"):
        transposed = layouts(case(name, "f16", "16384x4096 transposed"))  # as a call makes it
        assert transposed["output"] == ((16384, 4096), (1, 16384), 0, 16384 * 4096)


def test_size_classes():
    assert case("quantize_per_tensor", "f16", "4096x4096").size_class is SizeClass.MIDDLE
    assert case("quantize_per_tensor", "f64", "4096x4096").size_class is SizeClass.LARGE
    assert case("lerp", "f64", "16x4096").size_class is SizeClass.SMALL
    assert case("lerp", "f16", "16384x4096 transposed").size_class is SizeClass.TRANSPOSED


def test_every_case_is_a_plan():
    for each in CASES:
        plan = each.plan_class.select(each.descriptor(), preference=BackendKind.REFERENCE)
        assert plan.stored == tuple(placed.shape for placed in each.operands)
        assert plan.words == tuple(placed.word for placed in each.operands)


def test_filters():
    def functions(*patterns):
        return {each.operation.function for each in suite.cases(CATALOG, patterns)}

    assert functions("lerp") == {"lerp", "lerp_backward"}
    assert functions("lerp_backward", "quantize_per_token") == {
        "lerp_backward", "quantize_per_token", "quantize_per_token_backward",
    }  # fmt: skip
    assert len(functions("fake_*")) == 8
    assert {each.element for each in suite.cases(CATALOG, ["lerp"], ["bf16", "f64"])} == {"bf16", "f64"}
    with pytest.raises(InvalidProblem, match="--op lirp: no such operation in the suite; there are quantize"):
        suite.cases(CATALOG, ["lerp", "lirp"])
    with pytest.raises(InvalidProblem, match="--dtype s8: expected one of f32 f64 f16 bf16"):
        suite.cases(CATALOG, ["lerp"], ["s8"])


def test_an_operation_whose_gradient_needs_two_axes():
    text = "total: {inputs: {input: 'T[n, d]'}, outputs: {output: 'T[n] = sum(input, over=d)'}}"
    cases = suite.cases(skuda.define(text).catalog)
    shapes = {each.shape.extents for each in cases if each.operation.function == "total_backward"}
    assert len(shapes) > 3 and {len(extents) for extents in shapes} == {2}
    assert all(each.bytes for each in cases)


def test_rows_of_models():
    """Each is as wide as a model, of two types, and none is scaled to another width."""
    cases = suite.cases(CATALOG, ["rms_norm", "silu_mul", "sum"], models=True)
    assert {each.element for each in cases} == {"bf16", "f32"}
    assert {each.shape for each in cases} == {*shapes.MODELS, shapes.CLASSES}
    assert {each.operation.function for each in cases} >= {"rms_norm_backward", "silu_mul", "sum"}
    assert [each.element for each in suite.cases(CATALOG, ["silu_mul"], ["f16"], models=True)][0] == "f16"
    assert not suite.cases(CATALOG, ["dynamic_quantize_per_group"], models=True)


def test_images_of_models():
    """Channels are an axis in the middle, which a call names, or which an operation says."""
    of = {
        name: suite.cases(CATALOG, [name], ["bf16"], models=True)
        for name in ("batch_norm_training", "prelu", "instance_norm", "group_norm")
    }
    named = [each for name in ("batch_norm_training", "prelu") for each in of[name]]
    assert {(each.shape, each.variant) for each in named} == {(shape, "axis 1") for shape in shapes.IMAGES}
    assert {each.shape for each in of["instance_norm"]} == {*shapes.IMAGES}
    assert {each.shape for each in of["group_norm"]} == {*shapes.GROUPS_OF_CHANNELS}
    assert all(each.bytes for cases in of.values() for each in cases)


def test_rows_drawn_at_random():
    """The seed says which; extents are the drawn ones, and every row can be placed."""
    cases = drawn.cases(CATALOG, 60, 20261123)
    assert cases == drawn.cases(CATALOG, 60, 20261123) != drawn.cases(CATALOG, 60, 20261124)
    assert len({each.operation.function for each in cases}) > 40 and {each.element for each in cases} == {"bf16", "f32"}
    assert len({each.shape.extents for each in cases}) > 55
    assert all(each.bytes and each.size_class and each.descriptor() for each in cases)
    named = drawn.cases(CATALOG, 5, 1, ["softmax"], ["f16"])
    assert {each.operation.name for each in named} == {"softmax"} and {each.element for each in named} == {"f16"}
    with pytest.raises(InvalidProblem, match="--op lirp: no such operation"):
        drawn.cases(CATALOG, 5, 1, ["lirp"])


def test_forms_without_optional_inputs_are_measured_where_they_are_named():
    named = {plan.operation.function for plan in suite.plans_of(CATALOG, ["cross_entropy_without_*"])}
    assert named == {"cross_entropy_without_weight", "cross_entropy_without_weight_backward"}
    assert not any("_without_" in plan.operation.name for plan in suite.plans_of(CATALOG, ["cross_entropy*"]))

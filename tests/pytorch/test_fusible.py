"""Formulas in torch's operators beside the operations themselves, and what a compiler makes of them."""

from __future__ import annotations

import importlib
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from frameworks.drawn_calls import DrawnCall, draw, types_of
from operations import call_of, plans
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._inductor.utils import run_and_get_code
from torch.utils.checkpoint import checkpoint

import skuda
import skuda.torch
from skuda.arrays.libraries import torch_dtypes
from skuda.codegen import cli
from skuda.codegen.intrinsics import CONVERSIONS, HALF_BOUNDS, INTRINSICS
from skuda.codegen.onnx_printer import same_bits
from skuda.codegen.operators import OPERATORS
from skuda.errors import InvalidProblem
from skuda.frameworks.programs import program_of
from skuda.launch import registry
from skuda.model.dtypes import DTYPES
from skuda.model.operation import COMPUTE
from skuda.model.sku import Direction
from skuda.plans.functions import Call
from skuda.torch import formula_functions, formulas, operator_of
from skuda.torch.formula_functions import FUNCTIONS, LACKING
from skuda.torch.random_functions import OF_C

BOUND = {False: 2.0**-19, True: 2.0**-48}  # of the largest element, by whether the compute type is f64
STEP = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7, torch.float32: 2.0**-23}
ENDS = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 0.5, -2.5)


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """A tensor with the elements of an array."""
    array = np.ascontiguousarray(array)
    shape, dtype = array.shape, torch_dtypes()[array.dtype]
    return torch.frombuffer(bytearray(array.tobytes()), dtype=dtype).reshape(shape)


def drawn_calls(plan, ends: bool):
    """A call for each element type, with tensors; floats have the ends of their range among them, if asked."""
    for types in types_of(plan.operation, without=()):
        drawn = draw(plan, types)
        if ends:
            drawn = replace(drawn, inputs={name: with_ends(array) for name, array in drawn.inputs.items()})
        yield drawn, call_with_tensors(with_outputs(drawn))


def with_ends(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "i" or array.dtype.kind == "u" or array.dtype == bool or array.size < 2 * len(ENDS):
        return array
    array = array.copy()
    array.reshape(-1)[: len(ENDS)] = np.array(ENDS, np.float64).astype(array.dtype)
    return array


def with_outputs(drawn: DrawnCall) -> DrawnCall:
    """A gradient's call, with the outputs that the forward pass gives where it reads them and all inputs are there."""
    operation = drawn.operation
    forward = plans()[operation.function.removesuffix("_backward")]
    read = {operand.name for operand in forward.operation.outputs} & drawn.inputs.keys()
    needed = [operand.name for operand in forward.operation.inputs]
    if operation.direction is Direction.FORWARD or not read or not drawn.inputs.keys() >= {*needed}:
        return drawn
    attributes = {each.name: drawn.attributes[each.name] for each in forward.operation.attributes}
    inputs = {name: drawn.inputs[name] for name in needed}
    made = replace(drawn, plan_class=forward, inputs=inputs, attributes=attributes, options={}).run()
    known = {o.name: array for o, array in zip(forward.operation.outputs, made, strict=True) if o.name in read}
    return replace(drawn, inputs=drawn.inputs | known)


def call_with_tensors(drawn: DrawnCall) -> Call:
    options = drawn.options
    dtypes = (options.get("dtype"), *options.get("output_dtypes", ()))
    inputs = tuple(map(tensor_of, drawn.inputs.values()))
    given = options.get("input_dtype"), options.get("shape"), options.get("keepdims", False)
    return Call(drawn.plan_class, inputs, None, tuple(drawn.attributes.values()), None, dtypes, *given)


def compare(found, expected, exact: bool, wide: bool, what, signs: bool = True, part: float = 0) -> None:
    """Raises where a result is not the other one: to the bit, or within the bound.

    Args:
        exact: whether bits are compared; a NaN is one whatever its bits.
        signs: whether of zeros too.
        part: how far off each may be, relative to it.
    """
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), what
    x, y = found.double(), expected.double()
    same = (x == y) | (x.isnan() & y.isnan())
    if exact:
        assert (same & ((x.signbit() == y.signbit()) | x.isnan() | (not signs))).all(), what
    elif not found.dtype.is_floating_point:
        assert ((x - y).abs() <= 1).all(), what  # codes beside a tie
    else:
        largest = y[y.isfinite()].abs().max().item() if y.isfinite().any() else 0.0
        step = STEP.get(found.dtype, 0.0) if found.element_size() > 1 else 0.25
        assert (same | ((x - y).abs() <= BOUND[wide] * largest + max(step, part) * y.abs())).all(), what


def part_of(drawn: DrawnCall) -> float:
    """How far off an operation is whose functions are as precise as a half type, which torch's are not."""
    letter = drawn.operation.analysis.precise_as
    power = HALF_BOUNDS.get(drawn.types[letter]) if letter else None
    return 0 if power is None else 2.0 ** (power + 1)


def lacks(name: str) -> bool:
    """Whether a formula calls what torch has no function for, or scans what it has no scan for."""
    formulas_of = program_of(plans()[name]).formulas.values()
    scans = {scan.op.split()[2] for node in formulas_of for scan in node.scans()}
    return "linear_recurrence" in scans or any(node.intrinsics() & LACKING.keys() for node in formulas_of)


FUSIBLE = [name for name in plans() if not lacks(name)]


def test_what_torch_lacks_is_little():
    recurrences = {f"{name}_backward" for name in ("cumprod", "cummax", "cummin", "logcumsumexp", "linear_recurrence")}
    assert {*plans()} - {*FUSIBLE} == {"cbrt", "fma", "logaddexp2", "linear_recurrence"} | recurrences


@pytest.mark.turns(3)
@pytest.mark.parametrize("ends", [False, True], ids=["usual", "ends"])
@pytest.mark.parametrize("name", FUSIBLE)
def test_the_formula_is_the_operation(name, ends):
    """Eager, for each element type; to the bit where each step is exact. Of extremes the sign of zeros is torch's."""
    program = program_of(plans()[name])
    roots = any("sqrt" in node.intrinsics() for node in program.formulas.values())
    exact = same_bits(program) and not roots  # torch's vectors of roots are not rounded correctly on all processors
    signs = not any(each.op in ("reduce max", "reduce min") for each in program.reductions)
    for drawn, call in drawn_calls(plans()[name], ends):
        found, expected = formulas.evaluated(call, program), call.run()
        expected = expected if isinstance(expected, tuple) else (expected,)
        expected = [tensor_of(each) if isinstance(each, np.ndarray) else each for each in expected]
        for ours, theirs in zip(found, expected, strict=True):
            compare(ours, theirs, exact, drawn.types["C"] == "f64", (name, drawn.types), signs, part_of(drawn))


def computes_data(plan) -> bool:
    """Whether some choice of types makes an operation one of integers or booleans alone."""
    operation = plan.operation
    return any(all(DTYPES[operation.word(each, types)].kind != "float" for each in operation.operands)
               for types in operation.combinations)  # fmt: skip


DATA = [name for name, plan in plans().items() if computes_data(plan) and not plan.operation.positions]


def with_all_pairs(drawn: DrawnCall) -> DrawnCall:
    """A call whose operands of integers meet in all pairs of the ends of their types and of numbers of bits."""
    inputs, found = {}, 0
    for operand in drawn.operation.inputs:
        array = drawn.inputs[operand.name]
        if operand.dims == drawn.operation.space and array.dtype.kind in "iu":
            dtype = DTYPES[drawn.words[operand.name]]
            ends = (0, 1, 2, 3, dtype.highest, dtype.highest - 1, dtype.lowest, dtype.lowest + 1,
                    dtype.highest if not dtype.signed else -1, dtype.bits - 1, dtype.bits, 63, 64)  # fmt: skip
            column = np.array(ends, array.dtype).reshape((-1, 1) if found % 2 else (1, -1))
            array, found = np.broadcast_to(column, array.shape), found + 1
        inputs[operand.name] = array
    return replace(drawn, inputs=inputs)


@pytest.mark.parametrize("name", DATA)
def test_all_pairs_of_integers(name):
    """To the bit, for each element type: division by 0, the least integer, shifts by too many bits."""
    plan = plans()[name]
    for types in plan.operation.combinations:
        drawn = with_all_pairs(draw(plan, types, many=(13, 13)))
        call = call_with_tensors(drawn)
        found, expected = formulas.evaluated(call, program_of(plan)), results(call.run())
        for ours, theirs in zip(found, expected, strict=True):
            compare(ours, theirs, types[COMPUTE] not in ("f32", "f64"), False, (name, types))
            assert theirs.dtype.is_floating_point or torch.equal(ours, theirs), (name, types)


def defined(name: str):
    """An operation that calls an intrinsic on inputs, as reals."""
    row = {**INTRINSICS, **CONVERSIONS}[name]
    kinds = {"r": "{}", "n": "{}", "x": "{}", "i": "round_to_int({})", "b": "({} > 0)"}
    arguments = [kinds[kind].format("abc"[index]) for index, kind in enumerate(row.arguments)]
    called, output = f"{name}({', '.join(arguments)})", "u8" if name in CONVERSIONS and row.result == "i" else "T"
    if row.result == "b":
        called = f"where({called}, 1.0, 2.0)"
    elif row.result == "i" and name not in CONVERSIONS:
        called = f"to_real({called})"
    inputs = {each: "T[*n]" for each in "abc"[: len(arguments)]}
    return skuda.define(
        name=f"calls_{name}", types={"T": ["f32", "f64"]}, inputs=inputs, outputs={"y": f"{output}[*n] = {called}"}
    )


@pytest.mark.parametrize("name", sorted({*INTRINSICS, *CONVERSIONS}))
def test_every_intrinsic(name):
    operation = defined(name)
    program = program_of(operation.plan_class)
    if name in LACKING:
        assert LACKING[name] in skuda.torch.not_fusible()[f"calls_{name}"]
        return
    count, random = len({**INTRINSICS, **CONVERSIONS}[name].arguments), np.random.default_rng(3)
    ends = [*ENDS, 1.0, -1.0, 1.5, 2.5, 3e38, -3e38, 2.0**53, 7.0]
    pairs = np.array([[x, y, z] for x in ends for y in ends for z in (0.0, 1.0, np.nan)]).T
    for dtype in (np.float32, np.float64):
        values = [np.concatenate([random.normal(0, 3, 400), pairs[at]]).astype(dtype) for at in range(count)]
        inputs = tuple(map(tensor_of, values))
        expected = tensor_of(operation(*values))
        (found,) = formulas.evaluated(Call(operation.plan_class, inputs, None, (), None, (None,), None, None, False),
                                      program)  # fmt: skip
        if name in ("fmod", "remainder"):  # torch's gives NaN where the quotient leaves the range
            with np.errstate(all="ignore"):
                kept = tensor_of(~np.isinf(values[0] / values[1]) | np.isinf(values[0]) | (values[1] == 0))
            found, expected = found[kept], expected[kept]
        if same_bits(program) and name != "sqrt":  # torch's is not rounded to nearest on the CPU
            compare(found, expected, True, False, name)
            continue
        bound = 2.0**-20 if dtype == np.float32 else 2.0**-49
        x, y = found.double(), expected.double()
        if name == "ndtr":  # e^(-x^2 / 2), of which torch has the rounded exponent
            y_bound = bound * (1 + inputs[0].double().square()) * y.abs()
        else:  # terms cancel, and torch's digamma has lost digits next to poles too
            cancels = name in ("gelu_slope", "lgamma", "digamma")
            y_bound = bound * (y.abs() + cancels) * (2.0**4 if name == "digamma" else 1.0)
        near = (x - y).abs() <= y_bound + torch.finfo(found.dtype).smallest_normal
        assert ((x == y) | (x.isnan() & y.isnan()) | near).all(), name


def test_each_operator_of_the_language_has_a_function():
    own = {"to_real", *OF_C}  # which the evaluator calls with the compute type
    assert INTRINSICS.keys() | OPERATORS.keys() == (FUNCTIONS.keys() & {*INTRINSICS, *OPERATORS}) | own | LACKING.keys()
    assert formula_functions.CONVERSIONS.keys() == CONVERSIONS.keys()


class Captured:
    """A backend that keeps what it is given to compile, forward and backward, and runs it as it stands."""

    def __init__(self):
        self.graphs: list[torch.fx.GraphModule] = []
        self.compile = aot_autograd(fw_compiler=self._keep)

    def _keep(self, graph, inputs):
        self.graphs.append(graph)
        return make_boxed_func(graph.forward)

    def __call__(self, graph, inputs):
        return self.compile(graph, inputs)

    def called(self) -> set[str]:
        """The operators of skuda that are left."""
        targets = {str(node.target) for graph in self.graphs for node in graph.graph.nodes}
        return {each for each in targets if each.startswith("skuda.")}


GROUP = 12  # operations in one graph


def groups():
    lacking = {name.removesuffix("_backward") for name in plans().keys() - {*FUSIBLE}}
    names = iter(name for name in FUSIBLE if not name.endswith("_backward") and name not in lacking)
    return [*iter(lambda: tuple(islice(names, GROUP)), ())]


def results(made) -> tuple:
    return made if isinstance(made, tuple) else (made,)


@pytest.mark.turns(16)
@pytest.mark.parametrize("names", groups(), ids=lambda names: names[0])
def test_compiled_passes_have_no_call_of_a_kernel(names):
    """Forward and backward passes of all operations, with dynamic shapes: nothing but operators of torch is left."""
    torch._dynamo.reset()
    calls = [call_of(plans()[name]) for name in names]
    leaves: list[torch.Tensor] = []
    for call in calls:
        operator = operator_of(call.plan_class)
        declared = set() if operator.backward is None else operator.backward.operation.gradients.keys()
        for operand, value in zip(operator.operation.inputs, call.inputs, strict=True):
            if f"d_{operand.name}" in declared and value.is_floating_point() and value.element_size() > 1:
                leaves.append(value.requires_grad_())

    def run(calls_inputs):
        made = []
        for call, inputs in zip(calls, calls_inputs, strict=True):
            rest = (getattr(call, name) for name in call._fields[2:])
            made += results(operator_of(call.plan_class).apply(Call(call.plan_class, inputs, *rest)))
        return made

    backend = Captured()
    compiled = skuda.torch.compile(run, fusible=True, backend=backend, fullgraph=True, dynamic=True)
    passes = []
    for function in (compiled, run):
        made = function([call.inputs for call in calls])
        kept = [each for each in made if each.requires_grad]
        # far apart along every axis: the gradient of a softmax of a row that hardly changes is what cancels
        given = [torch.arange(each.numel()).mul(1.7).cos().reshape(each.shape).to(each.dtype) for each in kept]
        found = torch.autograd.grad(kept, leaves, given, allow_unused=True) if kept else []
        passes.append([*(each.detach() for each in made), *found])
    for ours, theirs in zip(*passes, strict=True):
        if theirs is None:
            assert ours is None
        else:
            compare(ours, theirs, False, False, names)
    assert backend.graphs and backend.called() == set()


@pytest.mark.turns(3)
def test_inductor_makes_one_program_of_a_chain():
    """For inputs of several lengths, with its gradients; no call of a kernel is in its code."""

    def chain(x, weight, scale):
        y = skuda.gelu(skuda.rms_norm(x, weight))
        return skuda.fake_quantize_per_tensor(y, scale), skuda.quantize_per_tensor(y.detach(), scale, dtype="s8")

    torch._dynamo.reset()
    compiled = skuda.torch.compile(chain, fusible=True, fullgraph=True, dynamic=True)
    weight, scale = torch.linspace(0.5, 2, 64), torch.tensor(0.05)
    with torch._inductor.config.patch(fx_graph_cache=False):
        (first, *_), codes = run_and_get_code(compiled, rows(8), weight.requires_grad_(), scale)
    assert len(codes) == 2 and not any("skuda" in code for code in codes)  # forward and backward
    first.sum().backward()
    for count in (8, 3, 17):
        passes = []
        for function in (compiled, chain):
            x = rows(count)
            made, codes = function(x, weight, scale)
            passes.append((made.detach(), codes, *torch.autograd.grad(made, (x, weight), torch.ones_like(made) / 2)))
        for ours, theirs in zip(*passes, strict=True):
            compare(ours, theirs, False, False, count)
    assert len(torch._dynamo.utils.counters["graph_break"]) == 0


INTEGERS = [word for word in plans()["add"].operation.words_of("T") if DTYPES[word].kind == "int"]


@pytest.mark.turns(4 * len(INTEGERS))
@pytest.mark.parametrize("word", INTEGERS)
def test_inductor_makes_one_program_of_integers(word):
    """With the bits of the kernels, at the ends of the type."""

    def chain(a, b):
        quotient, rest = skuda.floor_divide(a, b), skuda.remainder(a, b)
        bits = skuda.bitwise_xor(skuda.bitwise_left_shift(a, b), skuda.bitwise_right_shift(a, b))
        counts = skuda.add(skuda.popcount(a), skuda.clz(b))
        return (quotient, rest, bits, counts, skuda.abs(a), skuda.mul(a, b), skuda.lt(a, b),
                skuda.sum_of_integers(skuda.where(skuda.ge(a, b), a, b)))  # fmt: skip

    torch._dynamo.reset()
    types = next(types for types in plans()["add"].operation.combinations if types["T"] == word)
    inputs = call_with_tensors(with_all_pairs(draw(plans()["add"], types, many=(13, 13)))).inputs
    compiled = skuda.torch.compile(chain, fusible=True, fullgraph=True)
    with torch._inductor.config.patch(fx_graph_cache=False):
        found, codes = run_and_get_code(compiled, *inputs)
    assert len(codes) == 1 and "skuda" not in codes[0]
    for index, (ours, theirs) in enumerate(zip(found, chain(*inputs), strict=True)):
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs), index


def rows(count: int) -> torch.Tensor:
    return torch.randn(count, 64, generator=torch.Generator().manual_seed(count)).requires_grad_()


def fused(function, *inputs, **options):
    """What a function gives that is compiled with formulas, and the operators of skuda that are left in its graphs."""
    torch._dynamo.reset()
    backend = Captured()
    made = skuda.torch.compile(function, fusible=True, backend=backend, fullgraph=True, **options)(*inputs)
    return made, backend.called()


def test_without_the_flag_kernels_are_called():
    torch._dynamo.reset()
    backend, x = Captured(), rows(3)
    found = skuda.torch.compile(skuda.softmax, backend=backend, fullgraph=True)(x)
    assert torch.equal(found, skuda.softmax(x)) and backend.called() == {"skuda.softmax.default"}


def test_numbers_axes_and_inputs_that_are_left_out():
    x = rows(6).detach()

    def many(x):
        codes = skuda.dynamic_quantize_per_token(x[:, :5], dtype="s4")
        return (skuda.lerp(x, -x, 0.3), skuda.amax(x, axis=0, keepdims=True), skuda.rms_norm(x, eps=1e-5),
                skuda.sum(x.reshape(2, 3, 64), axis=(0, 2)), codes)  # fmt: skip

    found, called = fused(many, x)
    assert called == set()
    for ours, theirs in zip(found, many(x), strict=True):
        for each, expected in zip(results(ours), results(theirs), strict=True):
            compare(each, expected, False, False, "many")


def test_autocast_and_checkpoints():
    x, weight = rows(4), torch.linspace(1, 2, 64, dtype=torch.bfloat16)

    def layer(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = skuda.lerp_tensor(x, weight.expand(4, 64), 0 * x)
            return checkpoint(lambda each: skuda.softmax(skuda.gelu(each)), y, use_reentrant=False)

    found, called = fused(layer, x)
    compare(found, layer(x), False, False, "autocast")
    assert called == set() and found.requires_grad


def test_a_transform_of_torch_func_calls_kernels():
    x = rows(4).detach()
    found, called = fused(lambda x: torch.vmap(skuda.softmax)(x), x)
    assert torch.equal(found, skuda.softmax(x)) and called == {"skuda.softmax.default"}


def test_what_torch_cannot_say_stays_a_call():
    root = skuda.define(name="cube_root", inputs={"x": "T[*n]"}, outputs={"y": "T[*n] = cbrt(x)"})
    double = skuda.define(name="twice", inputs={"x": "T[*n]"}, outputs={"y": "T[*n] = x * 2"})
    x = rows(4).detach()
    found, called = fused(lambda x: double(root(x)), x)
    assert torch.equal(found, double(root(x))) and called == {"skuda.cube_root.default"}
    reasons = skuda.torch.not_fusible()
    assert reasons["cube_root"].startswith("`cbrt`: torch has no cube root") and "twice" not in reasons


def test_a_catalog_of_ones_own_names_its_file(tmp_path, monkeypatch):
    spec = tmp_path / "own.yaml"
    spec.write_text("ops:\n  thrice:\n    kind: test.own\n    doc: Three times.\n    inputs:\n      x: T[*n]\n"
                    "    outputs:\n      y: T[*n] = x * 3\n")  # fmt: skip
    assert cli.main(["generate", "--spec", str(spec), "--out", str(tmp_path / "of_one_row")]) == 0
    monkeypatch.syspath_prepend(tmp_path)
    thrice, x = importlib.import_module("of_one_row").thrice, rows(2).detach()
    try:
        assert "specs={'of_one_row': ...} names it" in skuda.torch.not_fusible()["thrice"]
        assert skuda.torch.not_fusible({"of_one_row": spec}).keys() & {"thrice"} == set()
        for specs, left in (({}, {"skuda.thrice.default"}), ({"of_one_row": spec}, set())):
            found, called = fused(thrice, x, specs=specs)
            assert torch.equal(found, 3 * x) and called == left
    finally:
        registry.forget(registry.catalog_of("of_one_row"))


def test_a_package_that_is_no_catalog_is_refused():
    with pytest.raises(InvalidProblem, match="specs names no_such, expected packages of catalogs that are imported"):
        skuda.torch.compile(lambda x: x, fusible=True, specs={"no_such": "no_such.yaml"})


def test_equal_options_are_one_backend():
    from skuda.torch.fusible import Fusing

    one, other = (Fusing("inductor", None, {"max_autotune": flag}, None, {}) for flag in (False, True))
    assert one == Fusing("inductor", None, {"max_autotune": False}, None, {}) and one != other

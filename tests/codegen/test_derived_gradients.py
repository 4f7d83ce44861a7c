"""Gradients that are derived: as gradcheck of torch finds them, at kinks as torch has them, as a person would write."""

from __future__ import annotations

import pytest
import torch
from catalogs import forget_defined, own_spec
from host import emulator
from quick_compiler import compile_quickly

import skuda
import skuda.torch
from skuda.codegen import intrinsics, reductions
from skuda.codegen.derived_text import FormulaPrinter
from skuda.codegen.diagnostics import Diagnostics, Place
from skuda.codegen.expr import parse
from skuda.codegen.intrinsics import CONVERSIONS, DERIVATIVES, INTRINSICS, STEPS, UNDERIVED
from skuda.codegen.nodes import DIM, Node, Scope
from skuda.codegen.yaml_tree import Text
from skuda.errors import SpecError, Unsupported
from skuda.launch import registry
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind
from skuda.schedules import table
from skuda.schedules.row_variants import split_variants


@pytest.fixture(autouse=True)
def no_catalogs_stay():
    before = registry.catalogs()
    yield
    forget_defined(before)


def formulas(operation) -> dict[str, str]:
    """The gradients of an operation, as its row would say them."""
    described = operation.backward._described
    return {operand.name: described.formulas[operand.name] for operand in described.operation.outputs}


# ---- whole rows ----

X, R = "T[*n, d]", "T[*n]"
ROWS = {
    "product_chain": ({"a": X, "b": "T[d]", "c": R, "s": "C[]"}, {}, {"y": f"{X} = a * b * c * s"}),
    "norm_with_weight": (
        {"x": X, "weight": "T[d]", "bias": "T[d]"},
        {"centered": "x - mean(x, over=d)"},
        {"y": f"{X} = centered / sqrt(mean(centered * centered, over=d) + 1e-5) * weight + bias"},
    ),
    "catalog_norm": ({"x": X, "w": "T[d]"}, {}, {"y": f"{X} = standardized(x, 1e-5, d) * w"}),
    "warm_softmax": (
        {"x": X, "temperature": "C[]"},
        {"warm": "x / temperature", "raised": "exp(warm - max(warm, over=d))"},
        {"y": f"{X} = raised / sum(raised, over=d)"},
    ),
    "log_sum_exp": ({"x": X}, {}, {"y": f"{R} = max(x, over=d) + log(sum(exp(x - max(x, over=d)), over=d))"}),
    "clamp_chain": ({"x": X, "low": "T[d]"}, {}, {"y": f"{X} = clamp(3 * clamp(x, low, 2), -1, 4) * abs(x)"}),
    "gated": ({"gate": X, "up": X}, {}, {"y": f"{X} = gelu(gate) * silu(up) + tanh(gate * up)"}),
    "mean_loss": ({"x": X, "target": X}, {}, {"y": "T[] = mean((x - target) * (x - target), over=(n, d))"}),
    "huber_loss": (
        {"x": X, "target": X},
        {"e": "abs(x - target)"},
        {"y": "T[] = mean(where(e < 0.5, 0.5 * e * e, 0.5 * (e - 0.25)), over=(n, d))"},
    ),
    "two_outputs": (
        {"x": X, "r": X, "w": "T[d]"},
        {},
        {"total": f"{X} = x + r", "y": f"{X} = rms_norm(total, w, 1e-6, d)"},
    ),
    "moments": ({"x": X}, {}, {"m": f"{R} = mean(x, over=d)", "v": f"{R} = sqrt(variance(x, 1, d))"}),
    "extremes": ({"x": X}, {}, {"y": f"{R} = prod(x, over=d) + max(x, over=d) * min(x, over=d)"}),
    "outer_sum": ({"x": X, "b": R}, {}, {"y": f"{X} = x * x * exp(b) - b"}),
    "counted": ({"x": X, "b": R}, {}, {"y": f"{R} = sum(x * b + 3 * b, over=d)"}),
    "grouped": ({"x": X, "s": "T[*n, d/size]"}, {}, {"y": f"{X} = x * s * s"}),
}
SHAPES = {X: (3, 4), R: (3,), "T[d]": (4,), "C[]": (), "T[*n, d/size]": (3, 2)}


@pytest.mark.parametrize("said", ["derived", None], ids=["derived", "by default"])
@pytest.mark.parametrize("name", ROWS)
def test_a_row_passes_gradcheck(name, said):
    inputs, let, outputs = ROWS[name]
    grouped = "size" if "/size" in str(inputs) else None
    operation = skuda.define(
        name=f"{name}_row", inputs=inputs, let=let or None, outputs=outputs, backward=said,
        attrs={"size": "size"} if grouped else None,
    )  # fmt: skip
    torch.manual_seed(7)
    arrays = [torch.randn(SHAPES[each], dtype=torch.float64).add(0.1).requires_grad_() for each in inputs.values()]
    options = {"size": 2} if grouped else {}
    assert len(operation.backward.plan_class.operation.gradients) == len(inputs)
    assert torch.autograd.gradcheck(lambda *arrays: operation(*arrays, **options), arrays)


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", ROWS)
def test_the_kernels_of_a_gradient_compile(name):
    """The preferred schedule of each kernel, for f32."""
    inputs, let, outputs = ROWS[name]
    attrs = {"size": "size"} if "/size" in str(inputs) else None
    row = skuda.define(name=f"{name}_row", inputs=inputs, let=let or None, outputs=outputs, attrs=attrs)
    compiled = 0
    for operation in row.catalog.operations:
        if operation.direction.value != "backward" or operation.analysis.stages:
            continue
        types = next(operation.kernel_combinations())
        split = bool(operation.analysis.split)
        variant = (split_variants if split else table.variants)(operation, types)[0]
        entries = [*table.entries(operation, types, variant)]
        assert compile_quickly(row.catalog.source(operation.source), operation.source, entries, "sm_90").log == ""
        compiled += 1
    assert compiled


@pytest.mark.turns(12)
@pytest.mark.parametrize("name", ["norm_with_weight", "clamp_chain", "grouped"])
def test_the_kernels_of_a_gradient_give_the_references_bits(name, tmp_path):
    inputs, let, outputs = ROWS[name]
    attrs = {"size": "size"} if "/size" in str(inputs) else None
    row = skuda.define(name=f"{name}_row", inputs=inputs, let=let or None, outputs=outputs, attrs=attrs)
    found = {}
    for sku in registry.skus():
        entry = registry.entry_of(sku)
        if entry.catalog is row.catalog and sku.backend is BackendKind.CUDA and "backward" in sku.symbol:
            found.setdefault(entry.variant, sku)
    assert found
    host = emulator.Host([*found.values()], tmp_path)
    assert [fault for sku in found.values() for fault in host.faults(sku)] == []


def test_a_form_without_an_optional_input_has_its_own_gradient():
    operation = skuda.define(
        name="with_bias", inputs={"x": X, "w": "T[d] = 1", "b": "T[d] = 0"}, outputs={"y": f"{X} = x * x * w + b"}
    )
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    w = torch.randn(4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(operation, (x,))
    assert torch.autograd.gradcheck(operation, (x, w))
    assert torch.autograd.gradcheck(operation, (x, w, torch.zeros(4, dtype=torch.float64, requires_grad=True)))


# ---- rules ----

# Where the arguments of each function are drawn from: away from its kinks, and where it is a number.
DOMAINS = {
    "sqrt": (0.2, 3), "log": (0.2, 3), "log2": (0.2, 3), "log10": (0.2, 3), "rsqrt": (0.2, 3), "pow": (0.2, 3),
    "acosh": (1.2, 4), "atanh": (-0.8, 0.8), "asin": (-0.8, 0.8), "acos": (-0.8, 0.8), "log1p": (-0.7, 3),
    "fmod": (0.6, 1.9), "remainder": (0.6, 1.9), "cbrt": (0.2, 3), "erfinv": (-0.8, 0.8), "lgamma": (0.2, 3),
    "logit": (0.1, 0.9),
}  # fmt: skip
REALS = [name for name, row in INTRINSICS.items() if row.result in "rnx" and set(row.arguments) & set("rnx") and
         name not in UNDERIVED]


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", REALS)
def test_the_rule_of_a_function(name):
    row = INTRINSICS[name]
    arguments = "abc"[: len(row.arguments)]
    taken = {"b": "{} > 0.1", "i": "round_to_int({})"}
    called = [taken.get(kind, "{}").format(each) for each, kind in zip(arguments, row.arguments, strict=True)]
    operation = skuda.define(
        name=f"rule_{name}", inputs=dict.fromkeys(arguments, R), outputs={"y": f"{R} = {name}({', '.join(called)})"},
        backward="derived" if any(DERIVATIVES[name]) else None,
    )  # fmt: skip
    if not any(DERIVATIVES[name]):
        assert operation.backward is None
        return
    low, high = DOMAINS.get(name, (-2, 2))
    torch.manual_seed(3)
    arrays = [(torch.rand(40, dtype=torch.float64) * (high - low) + low).requires_grad_() for _ in arguments]
    assert torch.autograd.gradcheck(operation, arrays)


def test_each_function_and_reduction_of_reals_has_a_rule():
    assert set(DERIVATIVES) == set(REALS)
    assert all(len(rules) == len(INTRINSICS[name].arguments) for name, rules in DERIVATIVES.items())
    rows = {name: row for name, row in reductions.REDUCTIONS.items() if not isinstance(row, reductions.Scan)}
    real = {name for name, row in rows.items() if "real" in row.kinds and not row.gives_index}
    assert intrinsics.OF_SCANS.keys() <= reductions.REDUCTIONS.keys() - rows.keys()
    assert set(intrinsics.OF_REDUCTIONS) == real
    assert {name for name, row in reductions.REDUCTIONS.items() if row.gives_index} < STEPS


# At kinks, the gradients of these are those of torch's own functions: (formula of x and w, the same in torch).
KINKS = {
    "abs(x)": torch.abs,
    "max(x, 0)": torch.relu,
    "clamp(x, 0, 6)": lambda x: torch.clamp(x, 0, 6),
    "min(max(x, 0), 6)": torch.nn.functional.relu6,
    "min(max(x, -1), 1)": torch.nn.functional.hardtanh,
    "floor(x) + ceil(x) + trunc(x) + round_even(x) + sign(x) + x": lambda x: (
        x.floor() + x.ceil() + x.trunc() + x.round() + x.sign() + x
    ),
    "where(x > 0, x, 0.5 * x)": lambda x: torch.nn.functional.leaky_relu(x, 0.5),
    "sqrt(abs(x) + 1)": lambda x: torch.sqrt(x.abs() + 1),
    "pow(x, 2)": lambda x: torch.pow(x, 2),
}
OF_TWO = {
    "max(x, w)": torch.maximum,
    "min(x, w)": torch.minimum,
    "fmax(x, w)": torch.fmax,
    "fmin(x, w)": torch.fmin,
    "clamp(x, w, w + 1)": lambda x, w: torch.clamp(x, w, w + 1),
    "clamp(x, 1, w)": lambda x, w: torch.clamp(x, torch.ones_like(w), w),
    "fmod(x, w + 3)": lambda x, w: torch.fmod(x, w + 3),
    "remainder(x, w + 3)": lambda x, w: torch.remainder(x, w + 3),
    "copysign(x, w)": torch.copysign,
}
VALUES = torch.tensor([-6.0, -1, -0.5, 0, 0.5, 1, 1.5, 2, 6, 7], dtype=torch.float64)


@pytest.mark.parametrize("formula", [*KINKS, *OF_TWO])
def test_kinks_are_torchs(formula):
    inputs = {"x": R, "w": R} if formula in OF_TWO else {"x": R}
    operation = skuda.define(inputs=inputs, outputs={"y": f"{R} = {formula}"}, backward="derived")
    points = torch.cartesian_prod(VALUES, VALUES).T if formula in OF_TWO else VALUES[None]
    ours, theirs = ([each.clone().requires_grad_() for each in points] for _ in range(2))
    gradient = torch.linspace(1, 2, points.shape[1], dtype=torch.float64)
    operation(*ours).backward(gradient)
    (KINKS | OF_TWO)[formula](*theirs).backward(gradient)
    for one, other in zip(ours, theirs, strict=True):
        zeros = torch.zeros_like(gradient)
        torch.testing.assert_close(one.grad if one.grad is not None else zeros, other.grad, rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", ["max", "min", "prod"])
def test_ties_of_a_reduction_are_torchs(name):
    operation = skuda.define(inputs={"x": X}, outputs={"y": f"{R} = {name}(x, over=d)"}, backward="derived")
    rows = torch.tensor([[1.0, 3, 3, 2], [0, 0, 0, 0], [0, 2, 3, 4], [0, 0, 1, 2]], dtype=torch.float64)
    ours, theirs = (rows.clone().requires_grad_() for _ in range(2))
    operation(ours).sum().backward()
    {"max": torch.amax, "min": torch.amin, "prod": torch.prod}[name](theirs, -1).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-15, atol=0)


# ---- text ----

WRITTEN = {
    "tanh(x)": "d_y * (1 - y * y)",
    "exp(2 * x)": "2 * d_y * y",
    "sqrt(x)": "0.5 * d_y / y",
    "x * x * x": "3 * d_y * x * x",
    "x / 4 + 0 * w": "0.25 * d_y",
    "x + x": "2 * d_y",
    "x - x + w * x": "d_y * w",
    "where(w > 0, x, 0)": "where(w > 0, d_y, 0)",
    "where(w > 0, x, 0) / w": "where(w > 0, d_y / w, 0)",
    "silu(x) * w": "d_y * w * sigmoid_value * (1 + x * (1 - sigmoid_value)), where sigmoid_value = sigmoid(x)",
    "ndtr(x)": "0.3989422804014327 * d_y * exp(-0.5 * (x * x))",
}


@pytest.mark.parametrize("formula", WRITTEN)
def test_a_gradient_is_simplified(formula):
    operation = skuda.define(
        inputs={"x": R, "w": R}, outputs={"y": f"{R} = {formula}", "other": f"{R} = w"}, backward={"d_x": "derived"}
    )
    assert formulas(operation) == {"d_x": WRITTEN[formula]}


def test_an_output_is_read_where_that_saves_an_array_or_a_reduction():
    softmax = {"raised": "exp(x - max(x, over=d))"}
    row = {"inputs": {"x": X}, "let": softmax, "outputs": {"y": f"{X} = raised * (1 / sum(raised, over=d))"}}
    assert formulas(skuda.define(**row)) == {"d_x": "y * (d_y - sum(d_y * y, over=d))"}
    lse = skuda.define(inputs={"x": X}, outputs={"y": f"{R} = logsumexp(x, over=d)"})
    assert formulas(lse) == {"d_x": "d_y * exp(x - y)"}
    norm = skuda.define(inputs={"x": X, "w": "T[d]"}, outputs={"y": f"{X} = x / sqrt(sum(x * x, over=d)) * w"})
    assert all("y *" not in text.replace("d_y *", "") for text in formulas(norm).values())


def test_a_derived_gradient_is_the_text_of_a_row():
    """What is printed, put into the row, is the same operation."""
    inputs, let, outputs = ROWS["norm_with_weight"]
    row = {"inputs": inputs, "let": let, "outputs": outputs}
    derived = skuda.define(**row, backward="derived")
    program = derived.backward._program
    signatures = {operand.name: operand.signature for operand in program.operation.outputs}
    lets, texts = {}, {}
    for name, text in formulas(derived).items():
        texts[name], _, said = text.partition(", where ")
        lets |= dict(each.split(" = ", 1) for each in said.split(", and ") if said)
    own = {name: text for name, text in lets.items() if name not in let}
    again = skuda.define(**row, backward={"let": own} | {n: f"{signatures[n]} = {texts[n]}" for n in texts})
    assert again.backward._program.formulas == program.formulas
    assert again.backward._program.operation.analysis == program.operation.analysis


def test_what_is_printed_is_read_as_the_same_formula():
    spec = own_spec()
    count = 0
    for row in spec.rows:
        for program in row.programs:
            operands = {o.name: o for o in (*program.operation.operands, *row.forward.operation.operands)}
            nodes = {part for node in program.formulas.values() for part in node.parts()}
            values = {part.text: part for part in nodes if part.op == "name"}
            names = {dim.name for operand in operands.values() for dim in operand.dims}
            values |= {name: Node("name", (), DIM, frozenset({name}), text=name) for name in names - values.keys()}
            sizes = {part.text.partition("/")[2] for part in nodes if "/" in part.text and part.args} - {""}
            values |= {name: Node("name", (), DIM, text=name) for name in sizes}
            order = [dim.name for operand in operands.values() for dim in operand.dims]
            for node in program.formulas.values():
                if CONVERSIONS.keys() & node.intrinsics() or program.operation.creates:
                    continue  # of which no gradient is printed
                text = FormulaPrinter().text(node)
                diagnostics = Diagnostics("printed", text)
                kinds = dict.fromkeys((*program.operation.types, "C"), "real")
                words = {word for letter in program.operation.types for word in program.operation.words_of(letter)}
                mixed = any(map(program.operation.is_mixed, program.operation.types))
                computes = frozenset({DTYPES[word].kind for word in words} if mixed else {"float"})
                scope = Scope(values, {}, dims=[*dict.fromkeys(order)], types=kinds, computes=computes)
                assert parse(Text(text, Place(1, 1)), scope, diagnostics) == node, (text, diagnostics.render())
                count += 1
    assert count > 100


# ---- what a row says ----


def test_a_row_may_say_that_it_has_no_gradient():
    operation = skuda.define(inputs={"x": R}, outputs={"y": f"{R} = x * x"}, backward="none")
    assert operation.backward is None
    with pytest.raises(Unsupported, match="no gradient is declared for x"):
        operation(torch.ones(2, requires_grad=True)).sum().backward()


def test_what_rounds_has_no_gradient_by_default():
    assert skuda.define(inputs={"x": R}, outputs={"y": f"{R} = 0.5 * round_to_int(x)"}).backward is None
    codes = skuda.define(inputs={"x": R}, outputs={"y": "i32[*n] = clamp(round_to_int(x), 0, 7)"})
    assert codes.backward is None


def test_conditions_on_integers_do_not_keep_a_gradient():
    operation = skuda.define(
        inputs={"x": R, "w": R}, outputs={"y": f"{R} = where(round_to_int(x) == argmax_free, w, x)"},
        let={"argmax_free": "round_to_int(w)"}, backward="derived",
    )  # fmt: skip
    assert formulas(operation)["d_x"].startswith("where(round_to_int(x) == argmax_free, 0, d_y)")


def test_an_input_without_influence_is_constant():
    operation = skuda.define(inputs={"x": R, "w": R}, outputs={"y": f"{R} = x * floor(w)"}, backward="derived")
    assert operation.backward.plan_class.operation.same == (("d_w", ""),)
    assert formulas(operation) == {"d_x": "d_y * floor(w)"}


def test_equal_gradients_are_made_once():
    operation = skuda.define(inputs={"x": R, "w": R}, outputs={"y": f"{R} = exp(x + w)"}, backward="derived")
    assert operation.backward.plan_class.operation.same == (("d_w", "d_x"),)


def test_one_gradient_may_be_derived_beside_declared_ones():
    operation = skuda.define(
        inputs={"x": R, "w": R, "k": R}, outputs={"y": f"{R} = x * w * k"},
        backward={"let": {"both": "d_y * k"}, "d_x": "derived", "d_w": f"{R} = 2 * both * x", "d_k": "constant"},
    )  # fmt: skip
    assert formulas(operation) == {"d_x": "d_y * k * w", "d_w": "2 * both * x, where both = d_y * k"}


def test_by_default_what_the_language_cannot_say_is_left_out():
    """The gradient of w would scan along one dimension and reduce over the other."""
    row_bias = skuda.define(inputs={"x": X, "b": R}, outputs={"y": f"{R} = sum(x * x, over=d) + b"})
    assert formulas(row_bias) == {"d_x": "2 * d_y * x"}  # without a reduction, outputs have the same dimensions
    operation = skuda.define(inputs={"x": X, "w": "T[d]"}, outputs={"y": f"{X} = cumsum(w * x, along=d)"})
    assert [*operation.backward.plan_class.operation.gradients] == ["d_x"]
    x, w = torch.randn(3, 4, dtype=torch.float64, requires_grad=True), torch.ones(4, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: operation(x, w), (x,))
    with pytest.raises(Unsupported, match="no gradient is declared for w"):
        operation(x, w.requires_grad_()).sum().backward()


def test_a_long_formula_is_refused_quickly_or_derived():
    """A hostile spec costs no more than others of its length."""
    chain = "x"
    for _ in range(60):
        chain = f"sin({chain})"
    deep = skuda.define(inputs={"x": R}, outputs={"y": f"{R} = {chain}"})
    assert formulas(deep)["d_x"].count("cos(") + formulas(deep)["d_x"].count("sin(") > 60
    lets = {"p0": "x"} | {f"p{i}": f"sin(p{i - 1}) + 1" for i in range(1, 80)}
    deeper = {"inputs": {"x": R}, "let": lets, "outputs": {"y": f"{R} = p79"}}
    assert skuda.define(**deeper).backward is None  # its gradient would be too long to be read
    with pytest.raises(SpecError, match="the gradient that is derived cannot be made: .* too long") as raised:
        skuda.define(**deeper, backward="derived")
    assert str(raised.value).count("error:") == 1
    numbers = skuda.define(inputs={"x": R}, outputs={"y": f"{R} = 1e300 * x * 1e300 * x"})
    assert formulas(numbers) == {"d_x": "inf * d_y * x"}
    power = skuda.define(inputs={"x": X}, outputs={"y": f"{R} = sum(exp(50000000 * log(1 + x)), over=d)"})
    assert power.backward is not None
    doubled = {"p0": "x + w"} | {f"p{i}": f"p{i - 1} * p{i - 1} + w" for i in range(1, 9)}
    assert skuda.define(inputs={"x": R, "w": R}, let=doubled, outputs={"y": f"{R} = p8"}) is not None


def test_a_name_of_backward_is_used():
    with pytest.raises(SpecError, match="never uses `p`"):
        skuda.define(
            inputs={"x": R}, outputs={"y": f"{R} = x"}, backward={"let": {"p": "d_y * x"}, "d_x": f"{R} = d_y"}
        )


def test_an_attribute_of_no_formula_is_reported_where_there_is_no_gradient():
    row = {"inputs": {"x": R}, "attrs": {"alpha": "C = 1"}, "outputs": {"y": f"{R} = x"}}
    for said in ("none", "derived", None):
        with pytest.raises(SpecError, match="never uses `alpha`"):
            skuda.define(**row, backward=said)


def test_a_row_has_no_gradient_by_default_where_a_form_cannot_have_it():
    """Without w, the gradient of x would have to be told how long x is."""
    operation = skuda.define(
        name="weighted_total", inputs={"x": X, "w": "T[d] = 1"}, outputs={"y": f"{R} = sum(x * w, over=d)"}
    )
    assert operation.backward is None
    for values in ((), (torch.ones(4),)):
        with pytest.raises(Unsupported, match="no gradient is declared for x"):
            operation(torch.randn(3, 4, requires_grad=True), *values).sum().backward()

"""Every intrinsic of the formula language as operators of ONNX, by a catalog with an operation for each."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from calls import NOT_IN_F64, NoKernel, near, run, same
from catalogs import made_catalog

from skuda.codegen.intrinsics import CONVERSIONS, INTRINSICS
from skuda.codegen.onnx_intrinsics import LACKING, SAME, Intrinsics
from skuda.errors import InvalidProblem, Unsupported
from skuda.frameworks.programs import plans
from skuda.onnx import function, model, refused

DOCS = Path(__file__).parents[3] / "docs" / "frameworks.md"
ENDS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3e38, -3e38, 1e-40, np.inf, -np.inf, np.nan, 2.0**53, 7.0]
NARROW = {"tan": 1.5, "pow": 3, "sinh": 5, "cosh": 5, "exp": 5, "exp2": 5}  # where values stay moderate


def formula(name: str) -> str:
    """A formula that calls an intrinsic on inputs, as reals."""
    row = {**INTRINSICS, **CONVERSIONS}[name]
    kinds = {"r": "{}", "n": "{}", "x": "{}", "i": "round_to_int({})", "b": "({} > 0)"}
    arguments = [kinds[kind].format("abc"[index]) for index, kind in enumerate(row.arguments)]
    call = f"{name}({', '.join(arguments)})"
    if row.result == "b":
        return f"where({call}, 1.0, 2.0)"
    return f"to_real({call})" if row.result == "i" and name not in CONVERSIONS else call


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    """A package with an operation `of_NAME` for each, and the file of its rows."""
    folder = tmp_path_factory.mktemp("intrinsics")
    lines = ["ops:"]
    for name, row in {**INTRINSICS, **CONVERSIONS}.items():
        output = "u8" if name in CONVERSIONS and row.result == "i" else "T"
        lines += [f"  of_{name}:", "    kind: test.intrinsic", f"    doc: Calls {name}.", "    types: {T: [f32, f64]}"]
        lines += ["    inputs:", *(f"      {'abc'[index]}: T[*n]" for index in range(len(row.arguments)))]
        lines += ["    outputs:", f"      output: {output}[*n] = {formula(name)}"]
    with made_catalog(folder, "of_intrinsics", "\n".join(lines) + "\n") as package:
        yield package, folder / "ops.yaml"


def arguments(name: str, dtype) -> list[np.ndarray]:
    random, count = np.random.default_rng(3), len({**INTRINSICS, **CONVERSIONS}[name].arguments)
    values = [random.normal(0, 3, 400).astype(dtype) for _ in range(count)]
    with np.errstate(over="ignore"):
        ends = np.array(ENDS, np.float64).astype(dtype)
    pairs = [np.tile(ends, len(ends)), np.repeat(ends, len(ends)), np.roll(np.tile(ends, len(ends)), 5)][:count]
    return [np.concatenate([a, b]) for a, b in zip(values, pairs if count > 1 else [ends], strict=True)]


def test_every_intrinsic_is_said_or_refused():
    known = {*SAME, *LACKING, *(name for name in dir(Intrinsics) if not name.startswith("_"))}
    assert {*INTRINSICS, *CONVERSIONS} <= known
    assert not SAME.keys() & LACKING.keys()


@pytest.mark.parametrize("name", sorted({*INTRINSICS, *CONVERSIONS} - LACKING.keys()))
def test_an_intrinsic(catalog, name):
    package, spec = catalog
    exact = name in CONVERSIONS or INTRINSICS[name].exact
    for dtype in (np.float32, np.float64):
        values = arguments(name, dtype)
        if not exact:  # between the ends; what a function is there is its own rule in ONNX
            values = [np.clip(each[:400], -NARROW.get(name, 20), NARROW.get(name, 20)) for each in values]
        if name in ("log", "log2", "log10", "rsqrt", "acosh", "pow"):
            values = [np.abs(values[0]) + (1 if name == "acosh" else 0.01), *values[1:]]
        if name in ("asin", "acos", "atanh"):
            values = [np.tanh(values[0]) * 0.99]
        if name == "logit":
            values = [0.5 + 0.49 * np.tanh(values[0])]
        values = [each.astype(dtype) for each in values]
        made = model(f"of_{name}", *values, spec=spec)
        if dtype is np.float64 and name in NOT_IN_F64:
            with pytest.raises(NoKernel):
                run(made, values)
            continue
        with np.errstate(all="ignore"):
            ours, (theirs,) = getattr(package, f"of_{name}")(*values), run(made, values)
        assert (same(ours, theirs) if exact else near(ours, theirs, dtype is np.float64)).all()


def test_small_values_of_erfc_keep_their_digits(catalog):
    x = np.linspace(-5, 26, 1000)
    package, spec = catalog
    (found,) = run(model("of_erfc", x, spec=spec), [x])
    ours = package.of_erfc(x)
    assert np.abs(found / ours - 1)[ours > 0].max() < 1e-12
    (single,) = run(model("of_erfc", x.astype(np.float32), spec=spec), [x.astype(np.float32)])
    assert np.abs(single / package.of_erfc(x.astype(np.float32)) - 1)[ours > 1e-37].max() < 2.0**-22


@pytest.mark.parametrize("name", sorted(LACKING))
def test_what_cannot_be_said_is_refused_with_the_reason(catalog, name):
    package, spec = catalog
    count = len({**INTRINSICS, **CONVERSIONS}[name].arguments)
    with pytest.raises(Unsupported, match=re.escape(f"of_{name}: ONNX's standard operators cannot say it: `{name}`: ")):
        function(f"of_{name}", *["f32[4]"] * count, spec=spec)


def test_the_refused_are_listed(catalog):
    package, spec = catalog
    found = refused(spec, package.__name__)
    of_forward = {name: reason for name, reason in found.items() if not name.endswith("_backward")}
    assert of_forward == {f"of_{name}": f"`{name}`: {reason}" for name, reason in LACKING.items()}


def test_a_derived_gradient_is_refused_for_what_it_calls_itself(catalog):
    """Not for what its operation calls: that of `cbrt` reads the output, that of `asinh` calls `hypot`."""
    package, spec = catalog
    found = refused(spec, package.__name__)
    gradients = {f"of_{name}_backward" for name in INTRINSICS} & {*dir(package)}
    formulas = {name: plans()[name].__doc__ for name in gradients}
    called = {name: [part for part in LACKING if f"{part}(" in text] for name, text in formulas.items()}
    expected = {name: f"`{parts[0]}`: {LACKING[parts[0]]}" for name, parts in called.items() if parts}
    assert {name: found[name] for name in found.keys() & gradients} == expected
    assert "of_asinh_backward" in expected and "of_cbrt_backward" in gradients - expected.keys()


def test_the_page_lists_them():
    page = DOCS.read_text(encoding="utf-8")
    for name, reason in LACKING.items():
        assert f"| `{name}` | {reason} |" in page
    assert len(re.findall(r"^\| `\w+` \| (?:no|ONNX)", page, re.MULTILINE)) == len(LACKING)


def test_an_operation_of_a_catalog_of_ones_own_needs_its_file(catalog):
    with pytest.raises(InvalidProblem, match="of_exp is of of_intrinsics: name the file of its row, spec="):
        function("of_exp", "f32[4]")


def test_operators_of_a_catalog_of_ones_own_are_exported(catalog):
    import torch

    from skuda.onnx import translation_table

    package, spec = catalog

    class Model(torch.nn.Module):
        def forward(self, x):
            return package.of_exp(x), package.of_round_even(x)

    x = np.linspace(-3, 3, 40, dtype=np.float32).reshape(5, 8)
    table = translation_table(specs={package.__name__: spec})
    made = torch.onnx.export(
        Model().eval(), (torch.from_numpy(x),), dynamo=True, custom_translation_table=table, verbose=False
    )
    exponential, rounded = run(made.model_proto, [x])
    assert near(package.of_exp(x), exponential, False).all()
    assert same(package.of_round_even(x), rounded).all()

"""Operations that a session defines: run, differentiated, replaced, shown, and refused with carets in their text."""

from __future__ import annotations

import inspect
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from host import emulator
from trees import REPOSITORY

import skuda
from skuda.codegen.define import DefinedOperation
from skuda.errors import InvalidProblem, SpecError, Unsupported
from skuda.launch import registry
from skuda.model.operation import class_stem
from skuda.model.sku import BackendKind

LEAKY = """
    leaky_defined:
      doc: A slope below zero.
      inputs: {x: "T[*shape]"}
      attrs: {alpha: C = 0.01}
      outputs:
        y: T[*shape] = where(x > 0, x, alpha * x)
      backward:
        d_x: T[*shape] = where(x > 0, d_y, alpha * d_y)
"""
SCALED = {
    "name": "scaled_defined",
    "types": {"T": ["f32", "f16"], "Q": ["s8", "u8"]},
    "inputs": {"x": "T[*n, d]"},
    "attrs": {"low": "Q = lowest(Q)", "high": "Q = highest(Q)"},
    "requires": "low < high",
    "let": {"top": "max(abs(x), over=d)"},
    "outputs": {"scale": "f32[*n] = top", "codes": "Q[*n, d] = clamp(round_to_int(x / scale), low, high)"},
}
X = np.array([-1.0, 0.0, 2.0, -8.0], np.float32)


@pytest.fixture(autouse=True)
def no_catalogs_stay():
    """Takes away what a test defines, so that tests that count kernels do not depend on it."""
    before = registry.catalogs()
    yield
    for catalog in registry.catalogs():
        if catalog not in before:
            registry.forget(catalog)
            _forgotten(catalog)


def _forgotten(catalog) -> None:
    from skuda.codegen import define

    for name, operation in [*define._by_name.items()]:
        if operation.catalog is catalog:
            del define._by_name[name]


def said(*row, **keywords) -> str:
    with pytest.raises(SpecError) as raised:
        skuda.define(*row, **keywords)
    return str(raised.value)


# ---- what it makes ----


def test_a_text_is_an_operation(backend):
    leaky = skuda.define(LEAKY)
    np.testing.assert_array_equal(backend.numpy(leaky(backend.array(X))), np.where(X > 0, X, np.float32(0.01) * X))
    np.testing.assert_array_equal(backend.numpy(leaky(backend.array(X), alpha=0.5)), np.where(X > 0, X, X / 2))
    d_x = leaky.backward(backend.array(X), backend.array(X), alpha=0.5)
    np.testing.assert_array_equal(backend.numpy(d_x), np.where(X > 0, X, X / 2))
    assert leaky.backward.backward is None


def test_keywords_are_an_operation_too(backend):
    scaled = skuda.define(**SCALED)
    x = np.arange(-6, 6, dtype=np.float32).reshape(3, 4)
    made = scaled(backend.array(x), dtype="s8")
    assert made._fields == ("scale", "codes")
    np.testing.assert_array_equal(backend.numpy(made.scale), [6, 2, 5])
    np.testing.assert_array_equal(backend.numpy(made.codes), np.round(x / [[6], [2], [5]]).astype(np.int8))
    with pytest.raises(InvalidProblem, match="requires low < high"):
        scaled(backend.array(x), dtype="s8", low=3, high=3)


def test_sections_may_be_texts():
    made = skuda.define(name="plus_defined", inputs="a: T[*n]\nb: T[*n]", outputs="y: T[*n] = twice(a) + b",
                        functions={"twice(v)": "v + v"})  # fmt: skip
    np.testing.assert_array_equal(made(X, X), 3 * X)


def test_a_text_without_a_name_gets_one():
    text = "inputs: {x: 'T[*n]'}\noutputs: {y: 'T[*n] = -x'}"
    made = skuda.define(text)
    assert re.fullmatch(r"op_[0-9a-f]{8}", made.__name__)
    assert skuda.define(text, name="minus_defined").__name__ == "minus_defined"
    np.testing.assert_array_equal(made(X), -X)


@pytest.mark.parametrize("value", ["-x", "x + (1 - x)", "where(x > 0, 1, 0) # not a comment: in a formula"])
def test_what_yaml_would_read_otherwise_is_quoted(value):
    keywords = {"name": "quoted_defined", "inputs": {"x": "T[*n]"}, "outputs": {"y": f"T[*n] = {value}"}}
    if "#" in value:
        assert "in a formula" in said(**keywords)
    else:
        assert skuda.define(**keywords)(X).shape == X.shape


def test_the_same_text_is_the_same_object():
    leaky = skuda.define(LEAKY)
    assert skuda.define(LEAKY) is leaky
    assert pickle.loads(pickle.dumps(leaky)) is leaky
    assert skuda.define(LEAKY + "\n") is not leaky


def test_another_text_replaces_an_operation_of_its_name():
    first = skuda.define(LEAKY)
    other = skuda.define(LEAKY.replace("0.01", "0.5"))
    assert other(X)[0] == -0.5
    assert [c.package for c in registry.catalogs()].count(first.catalog.package) == 0
    for stale in (lambda: first(X), lambda: first.backward(X, X)):
        with pytest.raises(Unsupported, match="leaky_defined.* was defined anew"):
            stale()
    assert skuda.define(LEAKY) is first
    assert first(X)[0] == np.float32(-0.01)
    with pytest.raises(Unsupported, match="defined anew"):
        other(X)


def test_the_catalogs_own_name_may_be_used():
    own = skuda.define(name="softmax", inputs="x: T[*n]", outputs="y: T[*n] = 2 * x")
    np.testing.assert_array_equal(own(X), 2 * X)
    assert skuda.softmax(X).sum() == pytest.approx(1)


def test_it_is_defined_in_a_session_that_has_loaded_nothing():
    """And the generator is imported by the first definition alone."""
    program = (
        "import sys, skuda\n"
        "assert not {'jinja2', 'yaml', 'skuda.codegen', 'torch'} & sys.modules.keys()\n"
        f"leaky = skuda.define({LEAKY!r})\n"
        "assert 'torch' not in sys.modules\n"
        "import numpy as np\n"
        "print(leaky(np.float32([-2, 4]), alpha=0.5).tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split("\n")[0] == "[-1.0, 4.0]", done.stderr


def test_no_file_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    skuda.define(LEAKY.replace("A slope", "Another slope"))(X)
    assert [*tmp_path.iterdir()] == []


def test_the_lines_of_the_page_run():
    page = (REPOSITORY / "docs" / "notebook.md").read_text(encoding="utf-8")
    found: dict = {}
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], found)
    assert found["y"].tolist() == [-0.5, -0.25, 0, 0.5, 1]
    assert found["d_x"].tolist() == [-0.25, -0.125, 0, 0.5, 1]


# ---- torch ----


def test_a_gradient_goes_through_torch():
    leaky = skuda.define(LEAKY)
    x = torch.tensor(X, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: leaky(x + 0.3, alpha=0.25), (x,))
    torch.compiler.reset()
    compiled = torch.compile(lambda x: leaky(x, alpha=0.25) * 2, fullgraph=True, backend="aot_eager")
    compiled(x).sum().backward()
    assert x.grad.tolist() == [0.5, 0.5, 2, 0.5]
    assert torch.func.vmap(leaky)(x.detach()).tolist() == leaky(x.detach()).tolist()


def test_torchs_operator_is_that_of_the_last_definition():
    x = torch.tensor(X)
    for alpha in ("0.01", "0.5", "0.01"):
        leaky = skuda.define(LEAKY.replace("0.01", alpha))
        assert torch.equal(torch.ops.skuda.leaky_defined(x), leaky(x))
        leaf = x.clone().requires_grad_()
        leaky(leaf).sum().backward()
        assert leaf.grad[0].item() == pytest.approx(float(alpha))


# ---- kernels ----


@pytest.mark.turns(4)
def test_its_kernels_give_the_references_bits(tmp_path):
    catalog = skuda.define(**SCALED).catalog
    found = {}
    for sku in registry.skus():
        entry = registry.entry_of(sku)
        if entry.catalog is catalog and sku.backend is BackendKind.CUDA:
            found.setdefault(entry.variant, sku)
    skus = [*found.values()]
    assert len(skus) > 3
    host = emulator.Host(skus, tmp_path)
    assert [fault for sku in skus for fault in host.faults(sku)] == []


# ---- how it is shown ----


def test_it_shows_its_signature_and_its_formulas():
    leaky = skuda.define(LEAKY)
    assert repr(leaky) == (
        "leaky_defined(x, *, alpha=0.01, out=None, stream=None)\n"
        "    y: T[*shape] = where(x > 0, x, alpha * x)\n\n"
        "leaky_defined_backward(d_y, x, *, alpha=0.01, out=None, stream=None)\n"
        "    d_x: T[*shape] = where(x > 0, d_y, alpha * d_y)"
    )
    scaled = repr(skuda.define(**SCALED))
    assert "low=lowest(Q), high=highest(Q)" in scaled and "top = max(abs(x), over=d)" in scaled


def test_it_is_a_function_to_python():
    leaky = skuda.define(LEAKY)
    assert callable(leaky) and isinstance(leaky, DefinedOperation)
    assert [*inspect.signature(leaky).parameters] == ["x", "alpha", "out", "stream"]
    assert leaky.__name__ == "leaky_defined" and leaky.__doc__.startswith("A slope below zero.")
    with pytest.raises(TypeError, match="unexpected keyword argument 'beta'"):
        leaky(X, beta=1)


def test_a_notebook_has_mathematics():
    scaled = skuda.define(**SCALED)
    latex, markdown = scaled._repr_latex_(), scaled._repr_markdown_()
    for formula in (r"\max_{\mathit{d}}", r"\mathit{scale} ="):
        assert formula in latex and formula in markdown
    assert all(re.fullmatch(r"\$\$.+\$\$", part) for part in latex.split("\n\n"))
    assert latex.count("{") == latex.count("}")
    assert markdown.startswith("`scaled_defined(x, ")
    assert r"\begin{cases}" in skuda.define(LEAKY)._repr_latex_()


@pytest.mark.turns(5)
@pytest.mark.parametrize("name", registry.catalogs()[0].functions())
def test_a_notebook_shows_the_formulas_of_the_catalog(name):
    operation = getattr(skuda, f"{class_stem(name)}Plan").operation
    head, *formulas = getattr(skuda, name)._repr_markdown_().split("\n\n")
    first = "shape" if operation.creates else operation.inputs[0].name
    assert head.startswith(f"`{name}({first}")
    assert all(re.fullmatch(r"\$\$.+\$\$", formula) for formula in formulas)
    page = (REPOSITORY / "generated" / "docs" / f"{operation.row}.md").read_text(encoding="utf-8")
    for formula in formulas:
        assert formula[2:-2] in page
    assert len(formulas) >= len(operation.outputs)


# ---- mistakes ----


def test_a_mistake_has_carets_in_the_text():
    assert said(LEAKY.replace("alpha * x)", "alfa * x)")) == (
        "define:7:40: error: `alfa` is neither an argument nor an intrinsic\n"
        " 7 |         y: T[*shape] = where(x > 0, x, alfa * x)\n"
        "   |                                        ^^^^\n"
        "   = help: did you mean `alpha`?\n"
        "1 error in define; nothing was defined"
    )


def test_all_mistakes_come_together():
    text = said("inputs: {x: 'T[*n]'}\nattr: {a: C}\noutputs:\n  y: T[*m] = x\nbackwards: {}")
    assert "no key `attr`" in text and "did you mean `attrs`?" in text and "no key `backwards`" in text
    assert text.endswith("errors in define; nothing was defined")


def test_a_mistake_in_keywords_has_carets_in_the_text_that_they_make():
    text = said(name="wrong_defined", inputs={"x": "T[*n]"}, outputs={"y": "T[*n] = x +"})
    assert "   y: T[*n] = x +\n" in text and "define:4:" in text and "^" in text


@pytest.mark.parametrize(
    "row, keywords, message",
    [
        ((), {}, "define: got no row"),
        ((3,), {}, "define: the row is 3, expected a text"),
        ((LEAKY,), {"inputs": "x: T[*n]"}, "define: got a text and inputs=, expected one of both"),
        ((LEAKY,), {"name": "other"}, "the text names the operation 'leaky_defined', but name is 'other'"),
        ((LEAKY,), {"name": "Other"}, "the operation's name `Other` is not a name"),
        ((LEAKY,), {"name": 3}, "define: name is 3, expected a text"),
        ((), {"inputs": {"x": object}, "outputs": "y: T[*n] = x"}, "define: inputs x is <class 'object'>"),
        (("define:\n  inputs: {x: 'T[*n]'}\n  outputs: {y: 'T[*n] = x'}",), {}, "`define` is a public name"),
        (("",), {}, "the file is empty"),
        (("x",), {}, "must be a mapping"),
        (("ops: {a: {}}",), {}, "no `outputs:`"),
    ],
)
def test_what_is_no_row_is_refused(row, keywords, message):
    assert message in said(*row, **keywords)


@pytest.mark.parametrize("formula", ["__import__('os').getcwd()", "x.__class__", "(lambda: x)()", "[x for x in x]"])
def test_a_text_runs_no_code(formula):
    assert "nothing was defined" in said(f"inputs: {{x: 'T[*n]'}}\noutputs:\n  y: T[*n] = {formula}")


@pytest.mark.parametrize("word", ['"""', "\\", "*/", "\u202e", "'''\nimport os"])
def test_a_sentence_cannot_leave_its_quotes(word):
    """It stands in the docstring of a Python module and in a comment of a CUDA source."""
    keywords = {"inputs": {"x": "T[*n]"}, "outputs": {"y": "T[*n] = x + 1"}, "doc": f"A {word} b."}
    try:
        made = skuda.define(name="quoted_doc_defined", **keywords)
    except SpecError as error:
        assert "nothing was defined" in str(error)
    else:
        np.testing.assert_array_equal(made(X), X + 1)
        assert " ".join(made.__doc__.split()).startswith(f"A {word} b.".replace("\n", " "))

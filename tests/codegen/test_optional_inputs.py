"""Optional inputs of a spec: the forms of a row, what their formulas lose, and what a catalog makes of them."""

from __future__ import annotations

import numpy as np
import pytest
from catalogs import catalog_fixture

from skuda.codegen import spec as specs
from skuda.codegen.cli import main
from skuda.codegen.commands import build
from skuda.codegen.render import render
from skuda.errors import InvalidProblem
from skuda.launch import registry
from skuda.model.operation import SECTION, class_stem, section_of
from skuda.model.sku import KernelSku

SPEC = """\
ops:
  shifted:
    doc: Scaled and shifted.
    types: {T: [f32, f16]}
    inputs:
      x: T[*n, d]
      gain: T[d] = 1
      offset: i32[d] = 0
      share: C[] = 0.25
    attrs: {low: i32 = -9, high: i32 = 9, factor: C = 2}
    requires: low < high
    let:
      scaled: x * gain
    outputs:
      y: T[*n, d] = clamp(round_to_int(scaled / share) + offset, low - offset, high - offset) * share + 0
    backward:
      d_x: T[*n, d] = d_y * gain
      d_gain: T[d] = sum(d_y * x, over=n) * factor
      d_share: C[] = sum(d_y * scaled, over=(n, d))
  weighed:
    inputs: {x: "T[*n]", w: "T[*n] = 1", b: "T[*n] = 0"}
    outputs: {y: "T[*n] = where(x > b, 0 + x * w + b, b - x / w)"}
    backward: {d_x: "T[*n] = d_y * w", d_b: "T[*n] = d_y"}
  unweighed:
    inputs: {x: "T[*n]"}
    outputs: {y: "T[*n] = where(x > 0, 0 + x, 0 - x)"}
    backward: {d_x: "T[*n] = d_y"}
"""

catalog = catalog_fixture("optional_catalog", SPEC)


def row_of(name: str):
    return next(row for row in specs.loads(SPEC).rows if row.name == name)


def test_an_input_is_left_out_with_those_behind_it():
    row = row_of("shifted")
    assert {first: form.name for first, form in row.forms.items()} == {
        "gain": "shifted_without_gain_and_offset_and_share",
        "offset": "shifted_without_offset_and_share",
        "share": "shifted_without_share",
    }
    lacking = row.forms["offset"].forward.operation
    assert [operand.name for operand in lacking.inputs] == ["x", "gain"]
    assert (lacking.row, lacking.doc) == ("shifted", "Scaled and shifted. Without offset and share.")
    assert not lacking.optional and not lacking.forms


def test_what_a_number_does_not_change_is_not_computed():
    """`* 1`, `+ 0` and `- 0` of what is absent leave nothing; what a row itself spells stays."""
    files = render(specs.loads(SPEC))
    for absent, clamped in {
        "gain_and_offset_and_share": "round_to_int(x / C(0.25)), low, high",
        "offset_and_share": "round_to_int(x * gain / C(0.25)), low, high",
        "share": "round_to_int(x * gain / C(0.25)) + offset, low - offset, high - offset",
    }.items():
        form = f"class {class_stem(f'shifted_without_{absent}')}Plan(Plan):"
        text = files["plans/shifted.py"].partition(form)[2].partition("\n\n\n")[0]
        assert f'"y": to_real(clamp({clamped}), C) * C(0.25) + C(0)' in text


def test_the_rules_for_cuda_still_apply():
    """Codes without a zero point are those of `Steps`, with nothing around them."""
    source = registry.catalogs()[0].source("quantize_per_token_without_zero_point.cu")
    assert "return {steps.template value<FAST>(element.input)};" in source
    assert ": steps(shared.scale, shared.q_min, shared.q_max) {}" in source
    assert "steps.template inside<FAST>(element.input)" in source


def test_a_form_has_no_gradient_of_what_it_lacks():
    row = row_of("shifted")
    passes = {first: form.backward.operation for first, form in row.forms.items() if form.backward is not None}
    outputs = {first: [operand.name for operand in each.outputs] for first, each in passes.items()}
    assert outputs == {"gain": ["d_x"], "share": ["d_x", "d_gain"]}
    # The backward pass neither reads the offset nor has a gradient of it.
    assert [name for name, _ in row.backward.operation.optional] == ["gain", "share"]
    assert dict(row.backward.operation.forms) == {
        "gain": "shifted_without_gain_and_offset_and_share",
        "share": "shifted_without_share",
    }
    assert [a.name for a in row.forms["gain"].backward.operation.attributes] == []  # `factor` is of d_gain alone


def test_a_form_that_is_another_row_has_no_kernels_of_its_own(catalog):
    row = row_of("weighed")
    assert list(row.forms) == ["b"]
    assert dict(row.forward.operation.forms) == {"w": "unweighed", "b": "weighed_without_b"}
    assert catalog.WeighedPlan.without("w") is catalog.UnweighedPlan
    changed = SPEC.replace("where(x > 0, 0 + x, 0 - x)", "where(x > 0, x, 0 - x)")  # 0 + x makes 0 of -0
    assert list(next(row for row in specs.loads(changed).rows if row.name == "weighed").forms) == ["w", "b"]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_calls(catalog, dtype):
    rng = np.random.default_rng(4)
    x, gain = rng.normal(0, 3, (5, 12)).astype(dtype), rng.uniform(1, 2, 12).astype(dtype)
    offset, ones, zeros = rng.integers(-3, 3, 12).astype(np.int32), np.ones(12, dtype), np.zeros(12, np.int32)
    whole = catalog.shifted
    for short, full in (
        (whole(x), whole(x, ones, zeros, 0.25)),
        (whole(x, gain, high=5), whole(x, gain, zeros, 0.25, high=5)),
        (whole(x, gain, offset), whole(x, gain, offset, 0.25)),
        (whole(x, 1, 0, low=0), whole(x, ones, zeros, 0.25, low=0)),
    ):
        assert short.tobytes() == full.tobytes()
    d_x, d_gain = catalog.shifted_backward(x, x, gain, factor=3.0, without="share")
    expected = catalog.shifted_backward(x, x, gain, factor=3.0)
    assert [d_x.tobytes(), d_gain.tobytes()] == [each.tobytes() for each in expected[:2]]
    assert catalog.shifted_backward(x, x).tobytes() == x.tobytes()
    assert [each.tobytes() for each in catalog.weighed_backward(x, np.ones_like(x))] == [x.tobytes()] * 2
    assert catalog.weighed_backward(x, np.ones_like(x), without="b").tobytes() == x.tobytes()
    with pytest.raises(InvalidProblem, match="requires low < high"):
        whole(x, low=9)


def test_symbols(catalog):
    names = {sku.op for sku in registry.skus() if registry.entry_of(sku).catalog is catalog.CATALOG}
    assert {"shifted_without_share", "shifted_without_offset_and_share", "weighed_without_b"} <= names
    for sku in registry.skus():
        if "_without_" in sku.symbol:
            assert KernelSku.parse(sku.symbol) == sku
            entry = registry.entry_of(sku)
            assert entry.operation.row in entry.catalog.modules
            source = entry.operation.source
            assert entry.catalog.source(source).startswith(f"{SECTION}{source.removesuffix('.cu')}\n#include")


def test_a_form_has_a_part_of_its_rows_source():
    """It is compiled alone: neither reads the other's programs."""
    catalog = registry.catalogs()[0]
    row, form = (catalog.source(f"quantize_per_token{end}.cu") for end in ("", "_without_zero_point"))
    assert "_without_" not in row and "struct quantize_per_token_program" in row
    assert "struct quantize_per_token_program" not in form and form.count("_program {") == 2
    assert row.endswith("};\n") and form.endswith("};\n")
    for name in ("quantize_per_token_without_scale.cu", "lerp_without_weight.cu", "no_such_row.cu"):
        with pytest.raises(FileNotFoundError):
            catalog.source(name)


def test_one_page_and_one_row():
    files = render(specs.loads(SPEC))
    assert sorted(path for path in files if path.startswith("docs/")) == [
        "docs/shifted.md", "docs/unweighed.md", "docs/weighed.md",
    ]  # fmt: skip
    page = files["docs/shifted.md"]
    call = "x, gain=None, offset=None, share=None, *, low=None, high=None, factor=None, out=None, stream=None"
    assert f"skuda.shifted({call})" in page
    offset = next(line for line in page.splitlines() if line.startswith("| `offset` | `i32[d]` | array, any strides"))
    assert offset.endswith("; None is 0, by a kernel that reads none. |")
    assert "| `without` | `str` | \"b\" where the forward pass went without" in files["docs/weighed.md"]


def test_a_row_s_own_files_do_not_change_for_its_forms():
    """The kernels of the row itself, and so their evidence, are those of a row without optional inputs."""
    plain = SPEC.replace("gain: T[d] = 1", "gain: T[d]").replace("offset: i32[d] = 0", "offset: i32[d]")
    plain = plain.replace("share: C[] = 0.25", "share: C[]")
    files = (render(specs.loads(text))["cuda/shifted.cu"] for text in (plain, SPEC))
    before, after = (section_of(text, "shifted.cu").split("\n", 3)[3] for text in files)
    assert before == after


@pytest.mark.parametrize(
    ("chosen", "sources", "direction"),
    [
        ("layer_norm", {"layer_norm", "layer_norm_without_bias", "standardize"}, None),
        ("quantize_per_token", {"quantize_per_token", "quantize_per_token_without_zero_point"}, None),
        ("rms_norm_backward", {"rms_norm", "rms_normalize"}, "backward"),
        ("layer_norm_without_bias", {"layer_norm_without_bias"}, None),
    ],
)
def test_what_is_built_of_a_row_is_all_that_its_calls_reach(chosen, sources, direction):
    jobs = build.jobs_of(registry.catalogs(), [chosen], ["sm_90"])
    assert {job.source for job in jobs} == {f"{source}.cu" for source in sources}
    assert direction is None or all("_backward_" in job.entry for job in jobs)


def test_the_command_line_shows_forms_with_their_row(capsys):
    assert main(["list", "layer_norm"]) == 0
    heads, *rows = (line for line in capsys.readouterr().out.splitlines() if not line.startswith(" "))
    fused = ["layer_norm_dynamic_quantize", "layer_norm_dynamic_quantize_fp8"]
    assert [row.split()[0] for row in rows] == ["layer_norm", *fused]
    assert rows[0].split()[2] == "forward+backward"
    assert main(["list", "layer_norm", "--skus"]) == 0
    assert "\nlayer_norm_without_bias_bf16_weight_f32__row64x4\n" in capsys.readouterr().out
    assert main(["show", "layer_norm"]) == 0
    shown = capsys.readouterr().out
    assert "  weight = 1, bias = 0: standardize\n  bias = 0: layer_norm_without_bias\n" in shown
    assert main(["show", "layer_norm_without_bias", "--types", "f16,f32"]) == 0
    shown = capsys.readouterr().out
    assert "  layer_norm(input, weight=None, bias=None, *, eps=None, out=None, stream=None)\n" in shown
    assert "  layer_norm_without_bias_f16_weight_f32__row64x4 (cuda, contiguous)\n" in shown

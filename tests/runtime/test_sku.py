"""KernelSku: every kernel of the catalog has a name of its own, which reads back to the same kernel."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from problems import kernel_of

import skuda
from skuda.errors import UnknownSymbol, Unsupported
from skuda.launch import registry
from skuda.launch.compiler import headers, included
from skuda.model.dtypes import DTYPES
from skuda.model.operation import COMPUTE
from skuda.model.sku import BackendKind, Direction, KernelSku, Layout, PrecisionGuarantee, split_symbol
from skuda.schedules import table

SKUS = list(registry.skus())


def sku(symbol: str) -> KernelSku:
    return next(sku for sku in SKUS if sku.symbol == symbol)


def test_symbols_are_distinct():
    assert len({each.symbol for each in SKUS}) == len(SKUS) == len(set(SKUS))
    assert len(SKUS) > 1_000


def test_every_symbol_reads_back():
    for each in SKUS:
        assert KernelSku.parse(each.symbol) == each
        assert str(each) == each.symbol


def test_the_text_alone_says_what_the_kernel_is():
    for each in SKUS:
        parts = split_symbol(each.symbol)
        assert (parts.op, parts.direction, parts.element) == (each.op, each.direction, each.element)
        assert parts.aux_element == each.aux_element
        assert parts.scale_element == (None if each.scale_element == each.element else each.scale_element)
        assert parts.weight_element == (None if each.weight_element == each.element else each.weight_element)
        assert parts.variant == each.variant


def test_every_operation_type_and_variant_has_a_sku():
    """Counted from the operations, not from the table that `skus` reads."""
    count = 0
    for operation in registry.catalogs()[0].operations:
        elements = {operand.element for operand in operation.operands}
        follows = next(iter(operation.types)) if operation.analysis.stage and COMPUTE in elements else None
        shown = [letter for letter in operation.types if letter in elements or letter == follows]
        kinds = {tuple(types[letter] for letter in shown): types for types in operation.combinations}
        count += sum(len(table.variants(operation, types)) + 2 for types in kinds.values())
    assert len(SKUS) == count


def test_every_field():
    found = sku("quantize_per_token_f16_s4_scale_f32__strided")
    assert dataclasses.asdict(found) == {
        "category": "quantization",
        "op": "quantize_per_token",
        "direction": Direction.FORWARD,
        "element": "f16",
        "aux_element": "s4",
        "scale_element": "f32",
        "weight_element": None,
        "layout": Layout.STRIDED_PACKED4,
        "epilogue": None,
        "variant": "strided",
        "arch": "any",
        "backend": BackendKind.CUDA,
        "precision_guarantee": {
            "math_precision": "f32",
            "accumulator": None,
            "rounding": "exact integers",
            "exact": True,
            "max_ulp": 0.0,
            "deterministic": True,
            "bit_stable_on_same_hardware": True,
        },
    }


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(KernelSku)])
def test_each_field_is_part_of_the_identity(field):
    one = sku("lerp_f32__strided")
    others = {
        "direction": Direction.BACKWARD,
        "layout": Layout.CONTIGUOUS,
        "backend": BackendKind.REFERENCE,
        "precision_guarantee": PrecisionGuarantee("f64", None, "nearest", True, 0.0),
    }
    other = dataclasses.replace(one, **{field: others.get(field, "other")})
    assert other != one and hash(other) != hash(one)
    if field == "direction":  # lerp has a backward pass of this type, with the same promise
        assert registry.entry_of(other).operation.direction is Direction.BACKWARD
        return
    with pytest.raises(Unsupported, match=f"no kernel {other.symbol.split('__')[0]}.*; the nearest is "):
        registry.entry_of(other)


# What C is where T may be floats and integers, for integers and booleans.
INTEGERS = {**dict.fromkeys(("s8", "u8", "i16", "i32", "u32", "i64"), "i64"), "bool": "bool"}


def test_fields_agree_with_each_other():
    for each in SKUS:
        words = [word for word in (each.element, each.aux_element, each.scale_element, each.weight_element) if word]
        assert all(word in DTYPES for word in words)
        packed = each.layout in (Layout.CONTIGUOUS_PACKED4, Layout.STRIDED_PACKED4)
        operation = registry.entry_of(each).operation
        assert packed == any(word in ("s4", "u4") for word in words)
        on_host = {"reference": BackendKind.REFERENCE, "cpu": BackendKind.CPU}
        assert each.backend is on_host.get(each.variant, BackendKind.CUDA)
        flat = each.variant.startswith(("vec", "tabulate")) and not re.search("_single|_shifted|_pitched", each.variant)
        rows = r"row(\d+x\d|\d+_reread)|few_rows\d+x\d|along|across[248]|cluster\d+|scan\d+(x\d)?|scan_parts"
        rows += r"|(narrow_)?slab\d+x\d"
        flat = flat or re.fullmatch(rows, each.variant) is not None
        assert (each.layout in (Layout.CONTIGUOUS, Layout.CONTIGUOUS_PACKED4)) == flat
        wide = {"f64": "f64"} | (INTEGERS if any(map(operation.is_mixed, operation.types)) else {})
        types = registry.entry_of(each).types
        found = [wide[word] for word in ([types["T"]] if "T" in types else words) if word in wide]
        assert each.precision_guarantee.math_precision == (found[0] if found else "f32")
        assert each.precision_guarantee.exact == operation.analysis.exact
        assert each.category == operation.category


def test_siblings_promise_the_same():
    """Variants of one operation swap silently, so whatever a symbol says before `__` decides the numbers."""
    guarantees: dict[str, set] = {}
    for each in SKUS:
        guarantees.setdefault(each.symbol.split("__")[0], set()).add(each.precision_guarantee)
    assert all(len(each) == 1 for each in guarantees.values())


@pytest.mark.parametrize(
    "symbol, nearest",
    [
        ("quantize_per_tokn_f16_s8__vec16", "quantize_per_token_f16_s8__vec16"),
        ("lerp_f32__stridde", "lerp_f32__strided"),
        ("quantize_per_token_f16_i32__strided", "quantize_per_token_f16_"),
    ],
)
def test_an_unknown_symbol_names_the_nearest(symbol, nearest):
    with pytest.raises(UnknownSymbol, match=f"no kernel {symbol} .*; the nearest is {nearest}"):
        KernelSku.parse(symbol)


@pytest.mark.parametrize(
    "text",
    ["", "lerp", "lerp_f32", "lerp__vec16", "Lerp_f32__vec16", "lerp_f32__", "a b__c", "lerp_f32__vec16\n"],
)
def test_what_is_no_symbol(text):
    for each in (text, [text], None):
        with pytest.raises(UnknownSymbol, match="is not a kernel symbol: expected"):
            KernelSku.parse(each)


def test_an_entry_leads_to_its_source():
    found, catalogs = set(), {}  # (source, function, kernel): each once, of many element types
    for each in SKUS:
        entry = registry.entry_of(each)
        if each.backend is BackendKind.CUDA:
            for expression in table.entries(entry.operation, entry.types, entry.variant):
                found.add((entry.operation.source, *kernel_of(expression)))
                catalogs[entry.operation.source] = entry.catalog
    texts = {name: catalog.source(name) for name, catalog in catalogs.items()}
    includes = {name: included(text) for name, text in texts.items()}
    for name, function, kernel in found:
        header = table.SCHEDULES[kernel].header
        assert f" struct {function}_program " in texts[name]
        assert f" {kernel}(const __grid_constant__" in headers()[header]
        assert header in includes[name]


def test_a_plan_tells_its_sku():
    from skuda.generated import QuantizePerTokenDescriptor, QuantizePerTokenPlan

    descriptor = QuantizePerTokenDescriptor(n=4, d=64, input_element="bf16", output_element="u8")
    plan = QuantizePerTokenPlan.select(descriptor, preference=BackendKind.REFERENCE)
    assert plan.sku == sku("quantize_per_token_bf16_u8__reference")
    assert plan.precision_guarantee is plan.sku.precision_guarantee
    assert skuda.quantize_per_token(
        np.ones((4, 64), np.float32), np.ones(4, np.float32), np.ones(4, np.int32)
    ).shape == (4, 64)

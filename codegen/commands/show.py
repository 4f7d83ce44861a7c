"""`skuda show`: one operation, from its formula to its CUDA."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterator

from skuda.codegen.commands import formulas, loaded, probe, verified
from skuda.codegen.diagnostics import closest
from skuda.errors import InvalidProblem
from skuda.launch import registry
from skuda.model import documentation
from skuda.model.dtypes import DTYPES
from skuda.model.operation import COMPUTE, SCALE, WEIGHT, Operation
from skuda.model.sku import BackendKind
from skuda.plans.plan import Plan
from skuda.schedules import table
from skuda.verification.evidence import Records, kernels, package_of


def add_parser(subparsers) -> None:
    """Adds `show`."""
    parser = subparsers.add_parser(
        "show",
        help="everything about one operation, its CUDA included",
        description="Show an operation's signature, formula, types, guarantee, what it gives at NaN, "
        "infinities and ties, its descriptor and args, its backward pass, the CUDA that is made of it, and what was "
        "verified and measured on which GPU.",
    )
    parser.add_argument(
        "operation", metavar="OP",
        help="its name; NAME_backward shows the backward pass alone, the symbol of a kernel that kernel",
    )
    parser.add_argument("--cuda", action="store_true", help="print the whole CUDA source, and nothing else")
    parser.add_argument(
        "--types",
        metavar="WORD,...",
        help="element types in the order of the list, such as f16,s8: the kernels for them",
    )
    loaded.add_argument(parser)
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Runs `skuda show`."""
    if "__" in args.operation:
        print("\n".join(_kernel(args)))
        return 0
    catalog, plans = _find(args)
    if args.cuda:
        print(catalog.source(plans[0].operation.source), end="")
        return 0
    row = plans[0].operation
    row = next(plan for plan in loaded.plans(catalog, row.row) if plan.operation.name == row.name).operation
    given = _given(row, args.types)
    forms = dict.fromkeys(plan.without(name) for plan in plans for name, _ in plan.operation.forms)
    forms |= dict.fromkeys(form for plan in plans for _, form in _chosen(plan))
    records, every = Records(package_of(catalog)), kernels(plan.operation for plan in (*plans, *forms))
    report = [f"{row.name} ({row.category}): {row.doc}", f"evidence: {verified.summary(records, every)}"]
    for plan in plans:
        report += ["", f"== {plan.operation.function} =="]
        for title, lines in _sections(catalog, plan, given, records):
            if lines:
                report += ["", title, *(f"  {line}".rstrip() for line in lines)]
    print("\n".join(report))
    return 0


def _kernel(args: argparse.Namespace) -> Iterator[str]:
    """What `show` says of one kernel.

    Raises:
        UnknownSymbol: no catalog that is loaded has it; names the nearest.
    """
    loaded.catalogs(args)
    sku = registry.sku_of_symbol(args.operation)
    entry = registry.entry_of(sku)
    operation = entry.operation
    yield f"{sku.symbol}: {operation.doc}"
    yield f"{sku.backend.value}, {sku.layout.value}; {', '.join(f'{k} = {v}' for k, v in entry.types.items())}"
    guarantee = sku.precision_guarantee
    yield from (f"{name}: {getattr(guarantee, name)}" for name in guarantee.__match_args__)
    if sku.backend is BackendKind.CUDA:
        entries = table.entries(operation, entry.types, entry.variant)
        stages = f"{operation.analysis.stages or operation.analysis.alternative} stages, whose kernels are their own"
        yield f"source: {operation.source}, {', '.join(entries) or stages}"
        yield from verified.of_kernel(Records(package_of(entry.catalog)), operation.source, sku.symbol)


def _given(row: Operation, words: str | None) -> dict[str, str] | None:
    """The element types of --types by letter.

    Raises:
        InvalidProblem: too many words.
        Unsupported: no kernel has these types; names the nearest.
    """
    if words is None:
        return None
    last = (WEIGHT, SCALE)  # these are asked for last, as in a symbol
    letters = sorted(row.types, key=lambda letter: last.index(letter) if letter in last else -1)
    split = [word.strip() for word in words.split(",")]
    if len(split) > len(letters):
        raise InvalidProblem(f"--types {words}: expected at most {len(letters)}, for {', '.join(letters)}")
    given = dict(zip(letters, split, strict=False))
    row.resolve(given, row.function)
    return given


def _find(args: argparse.Namespace) -> tuple[registry.Catalog, tuple[type[Plan], ...]]:
    found = {}
    for catalog in loaded.catalogs(args):
        for name in catalog.modules:
            plans = tuple(plan for plan in loaded.plans(catalog, name) if plan.operation.is_whole)
            found[name] = (catalog, tuple(plan for plan in plans if plan.operation.name == name))
            found |= {plan.operation.function: (catalog, (plan,)) for plan in plans[1:]}
    if args.operation not in found:
        near = closest(args.operation, found)
        help = f"; did you mean {near}?" if near else "; `skuda list` shows what there is"
        raise InvalidProblem(f"no operation {args.operation!r} in the catalogs that are loaded{help}")
    return found[args.operation]


def _sections(
    catalog: registry.Catalog, plan: type[Plan], given: dict[str, str] | None, records: Records
) -> Iterator[tuple[str, list[str]]]:
    operation = plan.operation
    called = operation.function.replace(operation.name, operation.row, 1)  # a form is called as its row
    function = getattr(catalog.module(operation.row), called)
    yield "function", [f"{called}{inspect.signature(function)}"]
    yield "without optional inputs", _forms(plan)
    if operation.choice is not None:
        yield f"forms by {operation.choice.name}", [f"{word}: {form.operation.name}" for word, form in _chosen(plan)]
    stages = plan.stages if operation.analysis.stages else (plan,)
    written, rules = {}, {}
    for stage in stages:
        written |= formulas.expanded(stage.formula, str(stage.operation.analysis.over or ""))
        rules |= formulas.rules(stage.formula)
    yield "formula, as in the row", inspect.getdoc(plan).split("\n\n", 1)[1].splitlines()
    yield "formula, written out", [f"{name} = {text}" for name, text in written.items()]
    yield "types", _types(operation)
    yield "precision guarantee", _guarantee(operation)
    measured = {name: f" ({said})" if (said := verified.bound(records, name)) else "" for name in rules}
    yield "rules", [f"{name}: {rule}{measured[name]}" for name, rule in rules.items()]
    special = probe.special_values(plan, function) if called == operation.function else None
    if special is not None:
        yield f"at special values ({special.setting})", list(special.lines)
    yield f"{plan.descriptor_type.__name__}", _fields(plan.descriptor_type)
    yield f"{plan.args_type.__name__}", _fields(plan.args_type)
    every = [form for each in (plan, *plan.stages) for form in (each, each.of_one) if form is not None]
    own = [each.operation for each in every]
    if given is not None:
        yield "kernels", [line for each in own for line in _kernels(each, given)]
    if records.verified:
        yield "evidence, by types", [line for each in own for line in verified.by_types(records, kernels([each]))]
    structs = [line for each in own for line in _struct(catalog, each)]
    yield "cuda: its program (--cuda shows the whole source)", structs


def _forms(plan: type[Plan]) -> list[str]:
    """What runs where optional inputs are left out: each is an operation with kernels of its own."""
    numbers = plan.operation.numbers
    lines = []
    for name, _ in plan.operation.forms:
        later = [*numbers][[*numbers].index(name) :]
        given = ", ".join(f"{each} = {numbers[each]}" for each in later)
        lines.append(f"{given}: {plan.without(name).operation.function}")
    return lines


def _chosen(plan: type[Plan]) -> list[tuple[str, type[Plan]]]:
    """What runs for each word of its choice."""
    choice = plan.operation.choice
    return [(word, plan.chosen(word)) for word in choice.words] if choice is not None else []


def _types(operation: Operation) -> list[str]:
    lines = []
    for letter, options in operation.types.items():
        takers = [operand.name for operand in operation.operands if operand.element == letter]
        takers += [attribute.name for attribute in operation.attributes if attribute.type == letter]
        lines.append(f"{letter}: {' '.join(options)}" + (f"  ({', '.join(takers)})" if takers else ""))
    return [*lines, f"{COMPUTE}, the type of every step: {documentation.compute_types(operation)}"]


def _guarantee(operation: Operation) -> list[str]:
    """The guarantee's fields; what depends on the types, for each value."""
    found: dict[str, dict] = {}
    for types in operation.combinations:
        for name, value in vars(operation.guarantee(types)).items():
            found.setdefault(name, {})[value] = None
    return [f"{name}: {' or '.join(map(str, values))}" for name, values in found.items()]


def _fields(cls: type) -> list[str]:
    """A generated dataclass's fields, from its docstring."""
    return inspect.getdoc(cls).partition("Attributes:\n")[2].replace("    ", "").splitlines()


def _kernels(operation: Operation, given: dict[str, str]) -> list[str]:
    """Element types, storage and symbols of the kernels for some element types."""
    known = {letter: word for letter, word in given.items() if letter in operation.types}
    types = operation.resolve(known, operation.function)
    lines = [", ".join(f"{letter} = {types[letter]}" for letter in (*operation.types, COMPUTE))]
    for operand in operation.operands:
        word = operation.word(operand, types)
        packed = ", two to a byte, low nibble first" if DTYPES[word].packed else ""
        lines.append(f"{operand.name}: {word}, travels as {DTYPES[word].storage}{packed}")
    for own in operation.kernel_combinations():
        if all(types[letter] == word for letter, word in own.items()):
            for variant in (*table.variants(operation, own), *registry.ON_HOST):
                sku = registry.make_sku(operation, own, variant)
                lines.append(f"{sku.symbol} ({sku.backend.value}, {sku.layout.value})")
    return lines


def _struct(catalog: registry.Catalog, operation: Operation) -> list[str]:
    """The operation's program in the generated source."""
    source = catalog.source(operation.source)
    found = re.search(rf"^template <[^\n]*>\s+?struct {operation.function}_program\b.*?^\}};$", source, re.M | re.S)
    return found[0].splitlines() if found else []

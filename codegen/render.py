"""Renders a spec into a package: what each file says. The same spec gives the same bytes on every machine."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import groupby
from math import isinf
from pathlib import Path

import jinja2

from skuda.codegen import inputs, output
from skuda.codegen import spec as specs
from skuda.codegen.cpp_layout import laid_out
from skuda.codegen.cuda import ElementwiseProgram
from skuda.codegen.describe import Described, DescribedProgram, imports_of
from skuda.codegen.one_element import parts
from skuda.codegen.program import Program, Row, Spec
from skuda.codegen.row_program import RowProgram, SlabProgram
from skuda.codegen.schema import schema_text
from skuda.codegen.stubs import Stub
from skuda.codegen.two_processes import in_halves, interleaved
from skuda.model.operation import SECTION, Analysis, Attribute, Choice, Operand, Operation, Over, Reduced
from skuda.model.records import Record
from skuda.model.sku import Direction
from skuda.schedules import table
from skuda.schedules.row_variants import FEW_ROWS, cluster_variants, takes_few_rows
from skuda.schedules.scan_variants import SCAN_KERNELS


@dataclass(frozen=True)
class Template:
    """One template and where its files go."""

    name: str
    path: str
    statement: str


# Of a row and of its forms.
SOURCE = Template("source.cu.jinja", "cuda/{name}.cu", "//%")
PLANS = Template("plan.py.jinja", "plans/{name}.py", "#%")
PAGE = Template("doc.md.jinja", "docs/{name}.md", "%%")
CATALOG_TEMPLATE = Template("catalog.py.jinja", "__init__.py", "#%")
STUB = Template("catalog.pyi.jinja", "__init__.pyi", "#%")
DECLARATIONS = Template("declarations.pyi.jinja", STUB.path, "#%")  # of a row and of its forms, in the stub


@dataclass(frozen=True)
class RenderedRow:
    """The files of a row by their paths, and what stands of it in the stub."""

    files: dict[str, str]
    declarations: str


def render(spec: Spec) -> dict[str, str]:
    """Every file of the package, by its path below it."""
    halves = in_halves(len(spec.rows), lambda part: _rows_of(spec, part))
    rows = interleaved(*halves) if halves else _rows_of(spec)
    files = {path: text for row in rows for path, text in row.files.items()}
    names = tuple(row.name for row in spec.rows)
    forms = {row.name: tuple(form.name for form in row.every[1:]) for row in spec.rows if row.every[1:]}
    gradients = gradients_of(spec)
    context = {"rows": names, "forms": forms, "gradients": gradients, "origin": spec.file_name}
    listed = "\n".join((*names, *map(str, forms.values()), *gradients))
    files[CATALOG_TEMPLATE.path] = _rendered(CATALOG_TEMPLATE, context, listed)
    context = {"declarations": "".join(row.declarations for row in rows), "origin": spec.file_name}
    files[STUB.path] = _rendered(STUB, context, _whole_source(DECLARATIONS.name) + listed)
    files["plans/__init__.py"] = ""
    files["ops.schema.json"] = schema_text()
    return dict(sorted(files.items()))


def _rows_of(spec: Spec, part: slice = slice(None)) -> list[RenderedRow]:
    return [_rendered_row(row, spec) for row in spec.rows[part]]


def _rendered_row(row: Row, spec: Spec) -> RenderedRow:
    every = [Described(each) for each in row.every]
    files: dict[str, str] = {}
    inputs = _row_inputs(row, spec)
    context = {"row": every[0].heading(spec.file_name), "programs": every[0].programs}
    files[PAGE.path.format(name=row.name)] = _rendered(PAGE, context, inputs)
    context["sections"] = [_section(each.row) for each in every]
    files[SOURCE.path.format(name=row.name)] = _rendered(SOURCE, context, inputs)
    programs = [program for each in every for program in each.in_plans]
    whole = next(each for each in programs if each.operation.is_whole)
    context |= {"programs": programs, "whole": whole, "imports": imports_of(programs)}
    files[PLANS.path.format(name=row.name)] = _rendered(PLANS, context, inputs)
    of_row = {program.backward: program for program in every[0].programs}
    stubs = [Stub(program, of_row[program.backward]) for each in every for program in each.programs]
    return RenderedRow(files, _filled(DECLARATIONS, {"stubs": stubs}))


def gradients_of(spec: Spec) -> tuple[str, ...]:
    """The rows and forms that have a backward pass."""
    every = [each for row in spec.rows for each in row.every]
    return tuple(row.name for row in every if row.backward is not None)


@dataclass(frozen=True)
class Section:
    """The part of a source that one row or form has: what it includes, and its programs."""

    name: str
    headers: tuple[str, ...]
    programs: tuple[ElementwiseProgram | RowProgram, ...]
    slabs: tuple[SlabProgram, ...]


def _section(row: Row) -> Section:
    every = [p for program in row.programs for p in (*parts(program), program)]
    in_kernels = [program for program in every if not program.operation.analysis.stages]
    in_kernels += [program for program in row.programs if _held_beside_stages(program)]
    programs = [(RowProgram if p.operation.analysis.over else ElementwiseProgram)(p) for p in in_kernels]
    found = {header for program in row.programs for header in program.headers}
    for program in programs:
        if not program.operation.analysis.over:
            found.add("elementwise.cuh")
            continue
        if program.operation.analysis.scans:
            found |= {table.SCHEDULES[kernel].header for kernel in SCAN_KERNELS}
            continue
        if program.operation.analysis.stripes:
            found.add(table.SCHEDULES["stripe"].header)
        if program.operation.analysis.stages:
            if program.operation.analysis.pieces:
                found |= {table.SCHEDULES[kernel].header for kernel in ("row", "cluster")}
            continue
        kernels = ["row"] if program.passes or program.empty_pass else []
        kernels += [FEW_ROWS] if takes_few_rows(program.operation) else []
        kernels += ["cluster"] if cluster_variants(program.operation) else []
        kernels += ["along", "across", "finish"] if program.split_pass else []
        found |= {table.SCHEDULES[kernel].header for kernel in kernels}
    slabs = tuple(SlabProgram(each) for each in row.programs if each.operation.analysis.slabs)
    found |= {table.SCHEDULES[kernel].header for _ in slabs for kernel in ("slab", "narrow_slab")}
    return Section(row.name, tuple(sorted(found)), tuple(programs), slabs)


def _held_beside_stages(program: Program) -> bool:
    """Whether there are kernels of a whole program in stages, which hold rows."""
    analysis = program.operation.analysis
    return bool(analysis.stages and (analysis.stripes or analysis.pieces))


def _row_inputs(row: Row, spec: Spec) -> str:
    """The text of the spec that decides a row's files: the row, and the functions that it uses."""
    wanted, seen = [(row.source, spec.functions)], []
    for text, functions in wanted:  # one of the catalog calls others of the catalog
        words = {*re.findall(r"\w+", text)}
        for name, function in functions.items():
            if name in words and function not in seen:
                seen.append(function)
                wanted.append((function.body.value, function.library or spec.functions))
    return "\n".join([*(text for text, _ in wanted), *sorted(function.name for function in seen)])


def _filled(template: Template, context: dict) -> str:
    environment = _environment(template.statement)
    return environment.get_template(template.name).render(**context, hashes=output.HASHES)


def _rendered(template: Template, context: dict, inputs: str) -> str:
    text = "\n".join([line.rstrip(" \t") for line in _filled(template, context).split("\n")])
    text = laid_out(text) if template.name.endswith(".cu.jinja") else text
    return output.stamped(text, _whole_source(template.name) + inputs)


@cache
def _template_source(name: str) -> str:
    return (resources.files("skuda.templates") / name).read_text(encoding="utf-8")


def _whole_source(name: str) -> str:
    """A template with those that it includes."""
    source = _template_source(name)
    return "".join([source, *map(_whole_source, re.findall(r'% (?:include|from) "([^"]+)"', source))])


def _block_tags(source: str, statement: str) -> str:
    """A template's statement lines (`//% for ...`) as Jinja's block tags, and its `//#` lines as comments.

    Jinja's own line statements also eat the blank lines after them.
    """
    comment = statement.replace("%", "#") if statement != "%%" else "%#"
    source = re.sub(rf"^[ \t]*{statement}(.*)$", r"{%\1 %}", source, flags=re.MULTILINE)
    return re.sub(rf"^[ \t]*{comment}(.*)$", r"{#\1 #}", source, flags=re.MULTILINE)


@cache
def _environment(statement: str) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: _block_tags(_template_source(name), statement)),
        undefined=jinja2.StrictUndefined,
        variable_start_string="${",
        variable_end_string="}",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters.update(
        declared=_declared,
        typename=lambda letter: f"typename {letter}",
        of_type=lambda fields: [f"{field.type} {field.name}" for field in fields],
        roles_of_outputs=lambda outputs: ", ".join(f"PerElement<{output.operand.element}>" for output in outputs),
        initializers=lambda members: ", ".join(f"{m.name}({m.value})" for m in members),
        all_fast=lambda members: " && ".join(f"{m.name}.fast" for m in members if m.prepared) or "true",
        plan_base=_plan_base,
        differs=_differs,
        model_names=_model_names,
        section_mark=lambda section: SECTION + section.name,
        plan_names=lambda operations: f"({', '.join(f'{each.class_name}Plan' for each in operations)},)",
        keyword=lambda name: f"{name}={name}",
        spelled=lambda operands: [_python(f"{operand.name}: {operand.signature}") for operand in operands],
        python=_python,
    )
    return environment


def _differs(program: DescribedProgram, whole: DescribedProgram) -> list[str]:
    """A program's operation as the arguments that make it: of all but the row's forward pass, those that differ."""
    operation = program.operation
    own = {name: getattr(operation, name) for name in Operation._fields}
    if program is whole:
        known = Operation._defaults
    else:
        known = {name: getattr(whole.operation, name) for name in Operation._fields}
    spelled = {"requirements": [_requirement(*each) for each in program.requirements]}
    return [
        f"{name}={_listed(spelled[name]) if name in spelled else _python(value)}"
        for name, value in own.items()
        if name not in known or value != known[name]
    ]


def _requirement(text: str, names: tuple[str, ...], condition: str) -> str:
    return f"Requirement({_python(text)}, {_python(names)}, lambda {', '.join(names)}: {condition})"


def _listed(values: Sequence[str]) -> str:
    """Some values in Python as the source of a tuple."""
    return "(" + ", ".join(values) + ("," if len(values) == 1 else "") + ")"


def _model_names(programs: Sequence[DescribedProgram]) -> list[str]:
    """What a plan module imports of skuda.model.operation."""
    operations = [program.operation for program in programs]
    names = {"Analysis", "Operand", "Operation"}
    names |= {"Attribute" for op in operations if op.attributes}
    names |= {"Choice" for op in operations if op.choice}
    names |= {"Over" for op in operations if op.analysis.over}
    names |= {"Reduced" for op in operations if op.analysis.split}
    names |= {"Requirement" for op in operations if op.requirements}
    return sorted(names)


def _plan_base(program: DescribedProgram) -> str:
    """The class that a program's plan derives from."""
    staged = "Staged" if program.operation.analysis.stages else ""
    if program.of_one or staged:
        return f"{staged}Plan{'OfOneElement' if program.of_one else ''}"
    if program.operation.analysis.stage or not program.operation.analysis.alternative:
        return "Plan"
    return "RepackedPlan" if program.operation.repacked else "PlanWithAlternative"


_DECLARED = re.compile(r"(.+?(?:<.*>)?) (\w+(?: = .*)?)")


def _declared(members: Sequence[str]) -> list[str]:
    """Declarations, those of one type together: `C eps, sum`, `bool all_finite`."""
    split = (_DECLARED.fullmatch(member).groups() for member in members)
    grouped = groupby(split, key=lambda each: each[0])
    return [f"{type} {', '.join(name for _, name in names)}" for type, names in grouped]


def _python(value) -> str:
    """A value as Python source with double quotes, one-element tuples included."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, tuple) and value and all(isinstance(each, Operand) for each in value):
        return f"Operand.each({', '.join(_python(f'{each.name}: {each.signature}') for each in value)})"
    if isinstance(value, tuple):
        return _listed([_python(each) for each in value])
    if isinstance(value, (Attribute, Analysis, Choice)):
        return f"{type(value).__name__}({', '.join(_arguments(value))})"
    if isinstance(value, Direction):
        return str(value)
    if isinstance(value, Over):
        return f"Over.of({_python(str(value))})"
    if isinstance(value, Reduced):
        return f"Reduced({_python(value.how)}, {_python(value.element)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_python(key)}: {_python(item)}" for key, item in value.items()) + "}"
    return f'float("{value}")' if isinstance(value, float) and isinf(value) else repr(value)


def _arguments(record: Record) -> Iterator[str]:
    """What makes a record, without what has its default."""
    for name in record._fields:
        value = getattr(record, name)
        if name not in record._defaults:
            yield _python(value)
        elif value != record._defaults[name]:
            yield f"{name}={_python(value)}"


@dataclass(frozen=True)
class Outcome:
    """What a run of the generator did."""

    rows: int
    files: int
    changed: tuple[output.Change, ...]
    notes: tuple[str, ...] = ()


@contextmanager
def _uncollected() -> Iterator[None]:
    """Leaves the memory of cycles alone: what a spec becomes is needed to the end, and each collection looks through
    all of it. So would the next one; what has been made is of the oldest generation afterwards, unlooked at."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not gc.get_freeze_count():  # nobody else's objects are thawed
                gc.freeze()
                gc.unfreeze()
            gc.enable()


@_uncollected()
def rendered_files(spec_path: Path) -> tuple[Spec, dict[str, str]]:
    """The checked spec, and every file of its package with MANIFEST as the last.

    Raises:
        SpecError: the spec has mistakes; all of them are in the message.
        RenderError: the spec's name cannot stand in the files.
    """
    if not re.fullmatch(r"[\w.+-]+", spec_path.name, re.ASCII):
        raise output.RenderError(
            f"the name of the spec is {spec_path.name!r}, expected letters, digits and . _ + - only"
        )
    spec = specs.load(spec_path)
    files = render(spec)
    digest = inputs.digest(spec_path)
    return spec, {**files, output.MANIFEST: output.manifest(files, spec_path.name, digest)}


def generate(spec_path: Path, folder: Path) -> Outcome:
    """Checks a spec and brings the folder to it; nothing is written where the spec has a mistake.

    Raises:
        SpecError: the spec has mistakes; all of them are in the message.
        RenderError: the folder is not one that may be written into.
    """
    spec, files = rendered_files(spec_path)
    changed = output.write(folder, files)
    return Outcome(len(spec.rows), len(files), tuple(changed), tuple(spec.notes))

"""Reads one operation of a spec, forward and backward, and its forms."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from skuda.codegen import derived
from skuda.codegen.attributes import FAST
from skuda.codegen.declarations import CONSTANT
from skuda.codegen.diagnostics import Diagnostics, suggestion
from skuda.codegen.forms import chosen_name, form_name, of_backward, spelled, suffixes
from skuda.codegen.formulas import Formulas
from skuda.codegen.half_precision import as_stored, by_instructions
from skuda.codegen.intrinsics import CONVERSIONS, QUICKENED
from skuda.codegen.nodes import CHOOSE, REDUCE, Node
from skuda.codegen.operators import FUNCTIONS
from skuda.codegen.program import Program, Row, analysed, copies, is_repeated, partial_results, whole_dims
from skuda.codegen.reductions import MEAN
from skuda.codegen.row_analysis import in_pieces, saved_of, stripes_of
from skuda.codegen.stages import alternative_stages, in_slabs, is_staged, stages
from skuda.codegen.syntax import said_by
from skuda.codegen.tabled import with_tables
from skuda.codegen.yaml_tree import Text
from skuda.model.dtypes import DTYPES
from skuda.model.operation import Analysis, Choice, Operand, Operation, Over, Requirement
from skuda.model.sku import Direction


class RowReader(Formulas):
    """Reads one operation; its arguments are those of Formulas."""

    def row(self) -> Row | None:
        """The operation, or None where it has mistakes, each of which has been reported."""
        before = len(self.diagnostics)
        if "let" in self.fields:
            self.let_entries = self.mapping(self.fields["let"], "`let:`")
        kind = self.kind()
        doc = self.doc()
        self.types = self.shown = self.read_types()
        inputs = self.operands()
        if "inputs" in self.fields and not self.places and not self.absent:
            self.entries("outputs")
            return None
        for dim in (dim for operand in inputs for dim in operand.dims if dim.block is None):
            self.dims.setdefault(dim.name, dim)
            self.meanings.setdefault(dim.name, "a dimension")
        attributes = self.last_axis(inputs, self.attributes())
        doc += f" {self.choice.name.capitalize()}: {self.word}." if self.word and self.choice is not None else ""
        doc += f" Without {self.lacking}." if self.absent else ""
        self.check_dims(inputs, attributes)
        self.lets = self.read_lets(inputs, attributes, self.let_entries)
        outputs, formulas = self.outputs("outputs", inputs, attributes)
        numbers = {a.name: a.type for a in attributes if a.type != "size" and not a.names_axes}
        self.check_mixed({operand.name: operand.element for operand in (*inputs, *outputs)} | numbers)
        wrong = len(self.diagnostics)
        requirements = self.requirements(attributes)
        if len(self.diagnostics) == wrong:
            self.check_fit((*inputs, *outputs), attributes, outputs, formulas, requirements)
        if len(self.diagnostics) > before or len(outputs) < len(self.entries("outputs")):
            return None
        if self.absent:
            letters = {o.element for o in (*inputs, *outputs)} | {attribute.type for attribute in attributes}
            self.shown = {letter: self.types[letter] for letter in self.types if letter in self.needed(letters)}
        forward = self.program(
            Direction.FORWARD, kind, doc, inputs, outputs, attributes, requirements, formulas
        )
        self.check_read(forward, "outputs")
        used = set().union(*(node.names() for _, node in (*formulas.values(), *requirements)))
        used |= {forward.operation.block}
        used |= {dim.block for operand in inputs for dim in operand.dims}
        chooses = self.said_choice and any(CHOOSE in text.value for text in self.texts.values())
        used |= {self.choice.name} if self.choice is not None and (chooses or not self.choice.of_formulas) else set()
        placed = {_between(operand) for operand in inputs}
        used |= {a.name for a in attributes if a.names_axes and a.axis_of in placed}
        backward, said = None, "backward" in self.fields
        of_backward = set()  # the attributes that the backward pass alone has
        if not said:
            backward = derived.by_default(self, kind, doc, forward)
        elif asks := derived.is_asked(self):
            backward = derived.as_said(self, kind, doc, forward)
        if backward is not None or (said and asks):
            named = {name for node in backward.formulas.values() for name in node.names()} if backward else None
            of_backward = {a.name for a in attributes if a.name not in used and (named is None or a.name in named)}
        for name, place in self.places.items() if not self.absent else ():
            if name not in used | of_backward:
                message = f"`{self.name.value}` never uses `{name}`"
                self.error(place, message, "remove it, or use it in an output")
        for name in self.lets.keys() - self.lets_used if not self.absent else ():
            message = f"`{self.name.value}` never uses `{name}`"
            self.error(self.texts[name].place, message, "remove it, or use it in an output")
        if len(self.diagnostics) > before:
            return None
        # What the gradient alone reads is said in the call that is recorded; a form lacks what its row alone uses.
        own = tuple(a for a in forward.operation.attributes if a.name in used | of_backward)
        forward = replace(forward, operation=replace(forward.operation, attributes=own))
        row = Row(self.name.value, kind, doc, forward, backward, self.place.line, "", self.optional)
        row = replace(row, by_default=backward is not None and not said)
        if self.absent:
            return row
        row = replace(row, forms=self.forms(row))
        if self.choice is not None and not self.word:
            row = self.with_choice(row)
        row = derived.in_all_forms(row)
        if self.word:
            return row  # the row of all words decides for each
        row = with_tables(as_stored(row))
        return by_instructions(row, FAST) if self.choice is not None and self.choice.computes else row

    def with_choice(self, row: Row) -> Row:
        """The row with the operations that it is for the other words of its choice."""
        found: dict[str, Row] = {}
        for word in self.choice.words:
            if word == self.choice.default:
                continue
            diagnostics = Diagnostics(self.diagnostics.file_name, "")
            name = Text(chosen_name(row.name, word), self.name.place, self.name.spots)
            form = RowReader(
                diagnostics, name, self.fields, self.functions, self.broken_functions, word=word
            ).row()
            mistake = diagnostics.first or (self.differs(row, form) if form is not None else None)
            if mistake is not None:
                called = f"{self.choice.name} = {word}"
                self.error(self.places[self.choice.name], f"with `{called}`, {mistake[0]}", mistake[1])
            elif form is not None:
                found[word] = form
        forms = tuple((word, found[word].name if word in found else row.name) for word in self.choice.words)
        doc = "all elements of the output, or their mean or sum" if self.choice.reduces else "which formula is meant"
        if self.choice.computes:
            doc = "functions in steps that CPU and GPU have in common, or by instructions of the GPU"
            if not any(node.intrinsics() & QUICKENED for node in row.forward.formulas.values()):
                message = f"no function in the outputs of `{row.name}` is an instruction of a GPU"
                self.error(self.places[self.choice.name], message, f"{', '.join(sorted(QUICKENED))} are")
        return replace(row, choice=Choice(self.choice.name, self.choice.default, forms, doc), chosen=found)

    def differs(self, row: Row, form: Row) -> tuple[str, str] | None:
        """What a call says of a form and not of the row, or of the row alone: message and help."""
        pairs = [(row.forward, form.forward)]
        if row.backward is not None and form.backward is not None:
            pairs.append((row.backward, form.backward))
        for whole, other in pairs:
            names = [[each.name for each in (*p.operation.inputs, *p.operation.attributes)] for p in (whole, other)]
            if names[0] != names[1] or whole.operation.options != other.operation.options:
                said = [", ".join((*own, *p.operation.options)) for own, p in zip(names, (whole, other), strict=True)]
                message = f"{whole.operation.function} reads {said[1]}, and {said[0]} otherwise"
                return message, "forms of a choice are called alike: name the same inputs in their formulas"
        return None

    def forms(self, row: Row) -> dict[str, Row]:
        """The operations that the row is without an optional input and those after it, by the first of them."""
        inputs = row.forward.operation.inputs
        found: dict[str, Row] = {}
        for absent in suffixes([*self.optional]):
            diagnostics = Diagnostics(self.diagnostics.file_name, "")
            name = Text(form_name(row.name, absent), self.name.place, self.name.spots)
            numbers = {each: self.optional[each.name] for each in inputs if each.name in absent}
            reader = RowReader(
                diagnostics, name, self.fields, self.functions, self.broken_functions, numbers, inputs, self.word
            )
            if row.backward is not None:
                reader.readable = frozenset(operand.name for operand in row.backward.operation.inputs)
            form = reader.row()
            if form is not None and form.by_default and self.lost(row, form) is not None:
                form = replace(form, backward=None)  # which the row does not ask for
            mistake = diagnostics.first or (self.lost(row, form) if form is not None else None)
            if mistake is not None:
                names = " and ".join(f"`{each}`" for each in absent)
                self.error(self.defaults[absent[0]], f"without {names}, {mistake[0]}", mistake[1])
            elif form is not None:
                # Elsewhere the backward pass is that of another form, or of the row itself.
                backward = form.backward if absent[0] in of_backward(row) else None
                found[absent[0]] = replace(form, backward=backward, optional={})
        return found

    @property
    def lacking(self) -> str:
        """What a form lacks, in words."""
        return " and ".join(operand.name for operand in self.absent)

    def lost(self, row: Row, form: Row) -> tuple[str, str] | None:
        """What a call would have to say of a form that it need not say of the row: message and help."""
        for program in (form.forward, form.backward):
            whole = row.forward if program is form.forward else row.backward
            if program is None or whole is None:
                continue
            asked = program.operation.asked.items() - whole.operation.asked.items()
            if asked:
                return f"no input shows the type {min(asked)[0]}", "an input that must be there shows it"
            linked = replace(whole.operation, optional=tuple(self.optional.items()))
            if (program.operation.shaped is None) != (linked.shaped is None):
                return "no input shows how long an output is", "an input that must be there shows it"
        return None

    def check_counts(self, found: Sequence[Program]) -> None:
        """Whether each stage of a program knows how many elements it counts: those of what it reduces over, and of one
        other thing whose dimensions it has."""
        for stage in found:
            own = {dim.name for operand in stage.operation.operands for dim in operand.dims}
            counts = {count.text: count for node in stage.formulas.values() for count in node.counts()}
            counts.pop(str(stage.operation.analysis.over), None)
            lacking = [count for count in counts.values() if not {*Over.of(count.text).dims} <= own]
            for count in lacking or [counts[text] for text in sorted(counts)[1:]]:
                message = "a count that no sum over the same is divided by, where several kernels reduce"
                self.error(count.place or self.place, message, "use `mean`, or divide the sum by the count")

    def check_positions(self, found: Sequence[Program]) -> None:
        """Whether each stage of a program has an operand that shows how long a dimension is along which it counts."""
        for stage in found:
            own = {dim.name for operand in stage.operation.operands for dim in operand.dims}
            for node in (part for formula in stage.formulas.values() for part in formula.positions()):
                if not {*node.dims} <= own:
                    lacking = ", ".join(sorted({*node.dims} - own))
                    message = f"a kernel of its own reduces `position({lacking})`, and no operand of it has "
                    message += "that dimension"
                    help = "multiply it by an element of such an input in the same reduction"
                    self.error(node.place or self.place, message, help)

    def check_repeats(self, found: Sequence[Program]) -> None:
        """Whether blocks hold the rows for which a stage of a program repeats passes: parts of a row know no end."""
        for stage in found:
            if not stage.operation.analysis.repeats or not is_staged(stage):
                continue
            node = next(each for each in stage.reductions if is_repeated(each))
            name = node.op.removeprefix(REDUCE)
            message = f"`{name}` is over `{node.text}`, which is not the last of several dimensions"
            self.error(node.place or self.place, message, "write it over the last dimension: `x: T[*n, d]`, `over=d`")

    def backward(self, kind: str, doc: str, forward: Program) -> Program | None:
        op = forward.operation
        gradients = []
        names = {f"d_{operand.name}" for operand in op.inputs}
        node = self.fields["backward"]
        if not self.entries("backward"):
            if self.lets_of_backward():
                help = "write a gradient that uses its names, or remove it"
                self.error(node.place, "`backward:` has a `let:` and no formula", help)
            return None
        written = {name.value for name, _ in self.entries("backward")}
        for name, _ in self.entries("backward"):
            if name.value not in names:
                left = sorted(names - written) or sorted(names)
                otherwise = f"gradients: {', '.join(left)}" if len(left) > 1 else f"did you mean `{left[0]}`?"
                help = suggestion(name.value, left, otherwise)
                self.error(name.place, f"`{name.value}` is the gradient of no input", help)
        floats = next((o.element for o in self.declared or op.inputs if not self.of_codes(o.element)), "T")
        for operand in op.outputs:  # the gradient of codes flows in the type of the values they came from
            element = floats if self.of_codes(operand.element) else operand.element
            gradients.append(Operand(f"d_{operand.name}", element, operand.dims))
            name, what = f"d_{operand.name}", f"the gradient of `{operand.name}`"
            if self.meanings.setdefault(name, what) != what:
                place = self.texts[name].place if name in self.texts else self.place
                message = f"`{name}` is the name of {what}"
                self.error(self.places.get(name, place), message, "choose another name")
        if self.how == MEAN:
            self.spreads = {f"d_{output.name}": self.divisor(output) for output in self.elements}
        every = (*op.inputs, *op.outputs, *gradients)
        self.lets |= self.read_lets(every, op.attributes, self.lets_of_backward())
        before = len(self.diagnostics)
        outputs, formulas = self.outputs("backward", (*op.inputs, *op.outputs), op.attributes, gradients)
        if len(outputs) < len(self.entries("backward")) or len(self.diagnostics) > before:
            return None
        operands = (*gradients, *op.inputs, *op.outputs, *outputs)
        self.check_fit(operands, op.attributes, outputs, formulas, forward.requirements)
        inputs_by_name = {f"d_{operand.name}": operand for operand in op.inputs}
        for operand in outputs:
            of = inputs_by_name.get(operand.name, operand)
            declared = self.of_codes(of.element)  # the gradient of codes is of the type declared
            if operand.dims != of.dims or (not declared and operand.element != of.element):
                message = f"`{operand.name}` is the gradient of `{of.name}`, which is `{of.signature}`"
                self.error(self.texts[operand.name].place, message, "declare it so")
        used = set().union(*(value.names() for _, value in formulas.values()))
        inputs = tuple(o for o in (*gradients, *op.inputs, *op.outputs) if o.name in used)
        if not inputs or inputs[0] not in gradients:
            message = f"`backward` never uses {' or '.join(f'`{g.name}`' for g in gradients)}"
            self.error(node.place, message, "a gradient is a multiple of the outputs' gradients")
            return None
        whole = {dim.name for operand in inputs for dim in operand.dims if dim.block is None}
        said = self.said(inputs, outputs)
        unknown = {dim.name: self.place_of(o, dim) for o in outputs for dim in o.dims if dim.size is None}
        for count in (each for _, value in formulas.values() for each in value.counts()):
            unknown |= dict.fromkeys(Over.of(count.text).dims, count.place or self.place)
        for name, place in unknown.items():
            if name not in whole | said | op.fixed.keys():
                message = f"no input of the backward pass has the dimension `{name}`"
                help = "use an input that has it: the shapes of what a formula uses give its output's"
                self.error(place, message, help)
                return None
        dims = {dim.name for operand in (*inputs, *outputs) for dim in operand.dims}
        blocks = {dim.block for operand in (*inputs, *outputs) for dim in operand.dims}
        checks = tuple(r for r in forward.requirements if r[1].names() & used)
        wanted = used | blocks | {name for r in checks for name in r[1].names()}
        attributes = tuple(a for a in op.attributes if a.name in wanted or (a.axis_of in dims))
        program = self.program(Direction.BACKWARD, kind, doc, inputs, outputs, attributes, checks, formulas)
        self.check_read(program, "backward")
        made = {operand.name for operand in (*gradients, *op.outputs)}
        letters = {a.type for a in attributes} | {o.element for o in (*inputs, *outputs)}
        needed = self.needed(letters | {*program.operation.analysis.asks_of})
        operation = replace(
            program.operation,
            same=self.same(op, outputs),
            types={letter: words for letter, words in program.operation.types.items() if letter in needed},
            element_fields={letter: f for letter, f in op.element_fields.items() if letter in needed},
        )
        return replace(program, operation=analysed(operation, keeps=_keeping(operation, made)))

    def check_read(self, program: Program, section: str) -> None:
        """Whether inputs show how long rows are and how many there are, where something is reduced: one by all of its
        dimensions, or several together. Blocks and scans are of what one has."""
        for each in stages(program) if program.operation.analysis.stages else (program,):
            operation = each.operation
            spaces = [{dim.name for dim in operand.dims} for operand in operation.inputs]
            every = set().union(*spaces, *({dim.name for dim in operand.dims} for operand in operation.outputs))
            apart = operation.analysis.over and not (operation.block or operation.analysis.scans)
            if operation.analysis.over and every not in spaces and not (apart and every == set().union(*spaces)):
                shown = ", ".join(sorted(every))
                message = f"`{section}:` reduces over `{operation.analysis.over}`, and no input has all of `{shown}`"
                help = f"name such an input in that {'gradient' if section == 'backward' else 'output'}'s formula"
                self.error(self.fields[section].place, message, help)
                return

    def same(self, op: Operation, outputs: tuple[Operand, ...]) -> tuple[tuple[str, str], ...]:
        """The gradients that are others, and those of inputs that are declared constant."""
        made = {operand.name: operand for operand in outputs}
        inputs = {f"d_{operand.name}": operand for operand in op.inputs}
        found = []
        for name, text in self.same_gradients():
            other = text.value.strip()
            if name.value not in inputs:
                help = suggestion(name.value, sorted(inputs.keys() - made), f"gradients: {', '.join(sorted(inputs))}")
                self.error(name.place, f"`{name.value}` is the gradient of no input", help)
            elif other == CONSTANT:
                found.append((name.value, ""))
            elif other not in made:
                help = suggestion(other, sorted(made), f"gradients with a formula: {', '.join(sorted(made))}")
                self.error(text.place, f"`{other}` is no gradient that a formula makes", help)
            elif (inputs[other].element, inputs[other].dims) != (inputs[name.value].element, inputs[name.value].dims):
                message = f"`{name.value}` is the gradient of `{inputs[name.value].signature}`, `{other}` of "
                self.error(text.place, f"{message}`{inputs[other].signature}`", "give it a formula of its own")
            else:
                found.append((name.value, other))
        return tuple(found)

    def said(self, inputs: tuple[Operand, ...], outputs: tuple[Operand, ...]) -> set[str]:
        """The dimensions of which a call says how long they are (`shape=`): those of an output that has all that there
        are. Of inputs that may be packed, `shape=` is another shape."""
        widest = max((*outputs, *inputs), key=lambda operand: sum(not dim.block for dim in operand.dims))
        packed = any(DTYPES[word].packed for operand in inputs for word in self.words(operand.element))
        return {dim.name for dim in widest.dims} if widest in outputs and not packed else set()

    def program(self, direction, kind, doc, inputs, outputs, attributes, requirements, formulas) -> Program:
        called = {FUNCTIONS[name] for _, node in formulas.values() for name in node.intrinsics()}
        exact = all(intrinsic.exact or intrinsic.common for intrinsic in called)
        names = [attribute.name for attribute in attributes]
        used = set().union(*(node.names() for _, node in formulas.values()))
        reductions = [reduction for _, node in formulas.values() for reduction in node.reductions()]
        over = {reduction.text for reduction in reductions}
        counted = {count.text for _, node in formulas.values() for count in node.counts()} - over
        operation = Operation(
            name=self.name.value,
            category=kind.partition(".")[0],
            direction=direction,
            doc=doc,
            types=self.shown if direction is Direction.FORWARD else self.differentiable(),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            attributes=tuple(attributes),
            requirements=tuple(
                Requirement(text, tuple(name for name in names if name in node.names()), _never)
                for text, node in requirements
            ),
            element_fields=self.element_fields((*inputs, *outputs)),
            source=f"{self.name.value}.cu",
            halves=self.halves_of(direction, inputs, outputs),
            positions=self.positions([node for _, node in formulas.values()]),
            analysis=Analysis(
                exact=exact,
                attributes=tuple(name for name in names if name in used),
                over=Over.of(*over) if len(over) == 1 else None,
                whole=whole_dims([node for _, node in formulas.values()]),
                partial=partial_results(outputs, {name: node for name, (_, node) in formulas.items()}),
                counted=Over.of(counted.pop()).dims if len(counted) == 1 and len(over) < 2 else (),
                chained=bool(used & formulas.keys()),
                asks_of=tuple(sorted(set().union(*(node.types() for _, node in formulas.values())))),
                converts=any(node.op in CONVERSIONS for _, node in formulas.values()),
                copies=copies(inputs, outputs, {name: node for name, (_, node) in formulas.items()}),
            ),
        )
        if direction is Direction.FORWARD:
            self.check_letters(operation)
            self.check_packed(operation)
            operation = analysed(operation, keeps=_keeping(operation, {operand.name for operand in outputs}))
        program = Program(
            operation,
            {name: node for name, (_, node) in formulas.items()},
            {name: self.with_lets(text) for name, (text, _) in formulas.items()},
            tuple(requirements),
            self.called | {node: name for name, node in self.lets.items() if node.args},
        )
        operation = analysed(operation, of_some=program.of_some)
        split, scans = program.split_reductions, len(program.scans)
        program = replace(program, operation=analysed(operation, split=split, updated=program.updated, scans=scans))
        whole = analysed(
            program.operation,
            repeats=program.repeats,
            draws=program.draws,
            exponentials=program.exponentials,
        )
        program = replace(program, operation=whole)
        whole = analysed(whole, reductions=program.passed_over)
        program = replace(program, operation=whole)
        if not is_staged(program):
            found = analysed(whole, stack=saved_of(program), alternative=alternative_stages(program))
            program = replace(program, operation=found)
            return replace(program, operation=analysed(found, stripes=stripes_of(program)))
        program = replace(program, operation=analysed(operation, stages=1))
        found = stages(program)
        self.check_counts(found)
        self.check_positions(found)
        self.check_repeats(found)
        slabs = found[0].operation.analysis.reductions if in_slabs(found) else 0
        program = replace(program, operation=analysed(operation, stages=len(found), slabs=slabs))
        program = replace(program, operation=analysed(program.operation, stripes=stripes_of(program)))
        if in_pieces(program):
            reductions = program.passed_over
            program = replace(program, operation=analysed(program.operation, pieces=True, reductions=reductions))
            program = replace(program, operation=analysed(program.operation, stack=saved_of(program)))
        return program

    def halves_of(self, direction: Direction, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> tuple[str, ...]:
        """The two inputs that may come as one array. A backward pass then makes one array of gradients, so it makes
        both, and no others."""
        reads = {*self.halves} <= {operand.name for operand in inputs}
        makes = tuple(operand.name for operand in outputs) == tuple(f"d_{name}" for name in self.halves)
        return self.halves if reads and (makes or direction is Direction.FORWARD) else ()

    def positions(self, formulas: Collection[Node]) -> tuple[Operand, ...]:
        """The operands that positions in formulas are."""
        found = {part.text: part for node in formulas for part in node.positions()}
        dims = {name: tuple(dim for dim in self.dims.values() if dim.name in found[name].dims) for name in found}
        return tuple(Operand(name, "i64", dims[name]) for name in sorted(found))

    def with_lets(self, formula: str) -> str:
        """A formula's text with the lines of `let:` that it needs."""
        absent = self.replaced()
        formula = spelled(formula, absent)
        needed: list[str] = []
        for name in reversed(self.lets):
            text = spelled(said_by(" ".join(self.texts[name].value.split()), self.said_choice), absent)
            if any(re.search(rf"\b{name}\b", each) for each in (formula, *needed)):
                needed.insert(0, f"{name} = {text}")
        return formula + "".join(f", {'where' if not i else 'and'} {line}" for i, line in enumerate(needed))

    def replaced(self) -> dict[str, int | float | str]:
        """What stands in a formula's text in place of a name: the numbers of what is absent, shares of a mean."""
        found: dict[str, int | float | str] = {operand.name: value for operand, value in self.absent.items()}
        return found | {name: f"({name} / {divisor})" for name, (_, divisor) in self.spreads.items()}

    def check_letters(self, operation: Operation) -> None:
        shown = {operand.element for operand in operation.inputs}
        hidden = [letter for letter in self.shown if letter not in shown]
        unnamed = [letter for letter in hidden if letter not in operation.asked]
        if unnamed:
            self.error(
                self.place,
                f"no input shows the types {' and '.join(hidden)}; `dtype=` can name only one of them",
                "another may be that of an output: `scale_dtype=` names the type of an output `scale`",
            )
        for letter, keyword in operation.asked.items():
            if keyword in self.meanings:
                message = f"`{keyword}` is {self.meanings[keyword]}, and would name the type {letter}"
                self.error(self.place, message, "choose another name")

    def check_packed(self, operation: Operation) -> None:
        """Whether an input has the dimensions of the output, where two codes may share a byte, and whether a kernel
        finds those that do beside each other."""
        decided = [dim for dim in operation.space if dim.size is None]
        arrays = [operand for operand in operation.inputs if not operand.scalar]
        whole = decided in ([dim for dim in operand.dims if dim.size is None] for operand in arrays)
        if not whole and any(operation.may_be_packed(operand.element) for operand in operation.operands):
            message, help = "no input has the dimensions of the output", "two codes of 4 bits share a byte"
            self.error(self.place, message, help)
        for operand in operation.operands:
            own = [dim.name for dim in operand.dims if dim.name is not None]
            ordered = own == [dim.name for dim in operation.space if dim.name in own]
            apart = operation.analysis.over and operand.dims[-1:] != operation.space[-1:]
            if whole and own and operation.may_be_packed(operand.element) and (apart or not ordered):
                message = f"codes of 4 bits need the order of the formula's dimensions, not `{operand.signature}`"
                if ordered:
                    message = f"codes of 4 bits need the last dimension, which `{operand.signature}` lacks"
                self.error(self.texts[operand.name].place, message, "two such codes share a byte: use 8 bits")

    def element_fields(self, operands: tuple[Operand, ...]) -> dict[str, str]:
        first = {}
        for operand in operands:
            if operand.element in self.types:
                first.setdefault(operand.element, f"{operand.name}_element")
        for letter in self.shown:
            first.setdefault(letter, f"{letter.lower()}_element")
        if len(first) == 1:
            return {letter: "element" for letter in first}
        return first


def _between(operand: Operand) -> str | None:
    """The dimension between an operand's two `*names`, or the second of these where there is none."""
    stars = [index for index, dim in enumerate(operand.dims) if dim.many]
    return operand.dims[stars[0] + 1].name if len(stars) == 2 else None


def _keeping(op: Operation, names: Collection[str]) -> tuple[str, ...]:
    """Those of some operands that lack the axes which a call names, and have all others."""
    if not op.chooses_axes:
        return ()
    return tuple(operand.name for operand in op.operands if operand.name in names and operand.dims == op.space[:-1])


def _never(**_) -> bool:
    raise AssertionError("a requirement is evaluated by the generated plan")

"""The text of fast paths: Python functions without a loop, made for a pattern of operands and launches.

A text is put together from the numbers of operands, their kinds and the launches alone: no name, type or value of a
caller is in it. It is compiled once for each such pattern. What a plan expects are the variables of its closure, which
`fast_path` gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

# Kinds of operands: an array in the output's shape, another array, a number for an integer or for a float.
FULL, ARRAY, INTEGER, REAL = "full", "array", "integer", "real"
_SEES = "dispatch_modes()", "function_modes()", "levels._current_level >= 0"  # of torch, calls with any tensors
_WATCHERS = "gradients", "levels", "dispatch_modes", "function_modes", "alike_of", "unknown"
SHAPE = 3  # where a call's options have `shape`


@cache
def factory(text: Callable[..., str], said: tuple, *pattern) -> Callable[..., Callable]:
    """What makes a function from what `_Maker` collects, for a pattern as `Text` takes it.

    Args:
        text: makes the function's text: a method of `Text`.
        said: what else that takes.
        pattern: as of `Text`.
    """
    space: dict[str, Any] = {}
    exec(compile(text(Text(*pattern), *said), "<a fast path>", "exec"), space)
    return space["make"]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _alike(indices: Sequence[int]) -> str:
    """The name of what tells whether operands are like those of an earlier call."""
    return f"alike{indices[0]}"


class Text:
    """The text of functions for one pattern of operands."""

    def __init__(
        self,
        library: str,
        kinds: tuple[str, ...],
        inputs: int,
        pairs: tuple[tuple[int, int, bool], ...],
        contiguous: str,
        handle: str,
        steps: tuple[tuple, ...],
        has_workspace: bool,
        on_cpu: bool,
    ):
        self.is_torch, self.is_numpy, self.on_cpu = library == "torch", library == "numpy", on_cpu
        self.inputs, self.all = range(inputs), range(len(kinds))
        self.outputs = self.all[inputs:]
        self.pairs, self.contiguous, self.handle = pairs, contiguous, handle
        self.arrays = [index for index in self.all if kinds[index] in (FULL, ARRAY)]
        self.steps, self.has_workspace = steps, has_workspace
        self.full = [index for index in self.arrays if kinds[index] == FULL]
        # Each of several launches may take another array by vectors; those of the CPU take elements.
        self.aligned = [] if on_cpu else self.full if len(steps) == 1 else self.arrays
        self.reals = [index for index in self.all if kinds[index] == REAL]
        self.integers = [index for index in self.all if kinds[index] == INTEGER]

    def of_plan(self) -> str:
        """A function of a plan's operands: whether it has launched."""
        everything = ", ".join(f"v{index}" for index in self.all)
        body = [
            *(self._refused(["not may_allocate"], "False") if self.has_workspace else []),
            f"{everything}, = values",
            *self._refused(self._types(self.all), "False"),
            *self._read(self.arrays, "device", "False"),
            *self._apart("False"),
            *self._numbers("False"),
            *([] if self.on_cpu else ["if device != home:", "    return elsewhere(values, stream)"]),
            *self._launch(),
            "return True",
        ]
        return self._made("def made(values, stream, may_allocate=True):", body, ["elsewhere"])

    def of_call(self, attributes: int, shaped: bool) -> str:
        """A function of a call that repeats one: what the call returns, None or a `Repeated`."""
        outputs = ", ".join(f"v{index}" for index in self.outputs)
        several = len(self.outputs) > 1
        inputs = [index for index in self.arrays if index in self.inputs]
        other = []
        for index in range(attributes):  # the same object, or the same float: -0.0 == 0.0, 1 == 1.0, (True,) == (1,)
            given, known = f"attributes[{index}]", f"attribute{index}"
            differs = f"type({given}) is not float or type({known}) is not float or {given} != {known} or not {known}"
            other.append(f"{given} is not {known} and ({differs})")
        gradients = " or ".join(f"v{index}.requires_grad" for index in inputs)
        given = [f"{outputs} = out"]
        if several:
            is_tuple = "type(out) is tuple or type(out) is results"
            given = [*self._refused([f"not ({is_tuple})", f"len(out) != {len(self.outputs)}"]), *given]
        given += self._refused(self._types(self.outputs))
        given += [*self._read(self.outputs, "home", recorded="gradients() and ", before=[]), *self._apart()]
        new = self._new()
        watched, followed = [], []
        if self.is_torch:
            # Transforms give tensors without memory, which are refused below. Autocast changes nothing where element
            # types are those that served before. What is recorded is looked at once more, by `of_recorded`.
            recorded = f"gradients() and ({gradients})"
            served = "    return repeated if out is None and stream is None and not transforms() else None"
            first = f"{_alike(inputs)} is unknown"  # after a recorded call: then the next is one too, most often
            watched = [*self._refused(_SEES), f"if {first} and {recorded}:", served]
            followed = [f"if {recorded}:", f"    {_alike(inputs)} = unknown", served]
        if shaped:  # True == 1
            other.append(f"[*map(type, options[{SHAPE}])] != whole")
        body = [
            f"{''.join(f'v{index}, ' for index in self.inputs)}out = values",
            *self._refused(self._types(self.inputs)),
            "try:",  # an option may be anything
            *_indented(self._refused([*other, "options != asked"])),
            "except Exception:",
            "    return None",
            *watched,
            *self._read(inputs, "home", before=followed),
            *self._elsewhere(),
            *self._numbers(),
            "if out is None:",
            *_indented(new),
            "else:",
            *_indented(given),
            *self._launch(there=True),
            "if out is not None:",
            *([f"    wrote(({outputs},))"] if self.is_torch else []),
            "    return out",
            self._made_of_outputs(),
        ]
        names = ["asked", "repeated", "named", "results", "empty", "wrote"]
        names += ["whole"] * shaped + [f"attribute{index}" for index in range(attributes)]
        names += [f"strides{index}" for index in self.outputs]
        lasting = [inputs, self.outputs] if self.is_torch else []
        names += [*_WATCHERS, "transforms"] if self.is_torch else []
        return self._made("def made(values, attributes, options, stream):", body, names, lasting)

    def of_recorded(self, alone: bool) -> str:
        """A function of the inputs of a call that autograd records: as `of_call`, of the same attributes and options.

        Args:
            alone: whether it asks what `of_call` asks first. Else that has been asked.
        """
        inputs = [index for index in self.arrays if index in self.inputs]
        body = [
            *(self._refused([*_SEES, "gradients()", *self._types(self.inputs)]) if alone else []),
            *self._read(inputs, "home", before=[], below=True),
            *self._elsewhere(),
            *self._numbers(),
            "stream = None",
            *self._new(),
            *self._launch(there=True),
            self._made_of_outputs(),
        ]
        head = f"def made({', '.join(f'v{index}' for index in self.inputs)}):"
        names = ["named", "results", "empty", *[f"strides{index}" for index in self.outputs]]
        return self._made(head, body, [*names, *_WATCHERS], [inputs])

    def _elsewhere(self) -> list[str]:
        """A call on another device than the current one is refused."""
        return [] if self.on_cpu else self._refused(["current_context() != context"])

    def _new(self) -> list[str]:
        lines = []
        for index in self.outputs:
            lines += [f"v{index} = empty(shape{index}, strides{index}, element{index})", *self._pointer(index)]
        return lines

    def _made_of_outputs(self) -> str:
        outputs = ", ".join(f"v{index}" for index in self.outputs)
        return f"return named(results, ({outputs}))" if len(self.outputs) > 1 else f"return {outputs}"

    def _made(self, head: str, body: list[str], more: list[str], told: Sequence[Sequence[int]] = ()) -> str:
        """What makes the function; `told`: the groups of tensors of which it remembers what told them alike."""
        names = "block pool stream_handle current home context current_context launch_kernel".split()
        names += ["room", "flat", "one", "byte", "scratch_of", "pointer_of", *more]
        names += [f"type{index}" for index in self.all]
        for index in self.arrays:
            names += [f"{name}{index}" for name in ("element", "shape", "below", "above", "mask", "single", "spread")]
        names += [f"{name}{index}" for index in self.integers for name in ("lowest", "highest")]
        names += [f"{name}{index}" for index in self.reals for name in ("narrow", "last")]
        for which, (sources, _, finished, shifted) in enumerate(self.steps):
            names += [f"function{which}", f"shared{which}"]
            for kernel in range(1 + finished):
                names += [f"{name}{which}_{kernel}" for name in ("start", "grid", "threads")]
            for place, index in enumerate(sources, 1):
                of_number = index in self.reals or index in self.integers
                offset = index is None or place in shifted
                kept = ("real", "integer") if of_number else ("word", "offset") if offset else ("word",)
                names += [f"{name}{which}_{place}" for name in kept]
        remembered = [kind + _alike(each) for each in told for kind in ("", "first_")]
        lasting = [f"last{index}" for index in self.reals] + remembered
        first = [f"nonlocal {', '.join(lasting)}"] if lasting else []
        lines = [*[f"{name} = unknown" for name in remembered], head, *_indented([*first, *body]), "return made"]
        return "\n".join([f"def make({', '.join(names)}, **_):", *_indented(lines), ""])

    def _refused(self, conditions: Sequence[str], result: str = "None") -> list[str]:
        return [f"if {' or '.join(conditions)}:", f"    return {result}"]

    def _types(self, indices: Sequence[int]) -> list[str]:
        return [f"type(v{index}) is not type{index}" for index in indices]

    def _pointer(self, index: int) -> list[str]:
        if self.is_torch:
            return [f"p{index} = v{index}.data_ptr()"]
        if self.is_numpy:
            return [f"p{index} = pointer_of(v{index})"]
        return [f"m{index} = v{index}.data", f"p{index} = m{index}.ptr"]

    def _read(
        self,
        indices: Sequence[int],
        device: str,
        result: str = "None",
        recorded: str = "",
        before: Sequence[str] | None = None,
        below: bool = False,
    ) -> list[str]:
        """Their pointers, after checks of what they are.

        Args:
            device: the name of the device that they are on, "home"; "device" finds it, that of the last.
            result: what is returned of arrays that are refused.
            recorded: what else makes an output that requires a gradient one that is refused.
            before: what is asked in front of what they are. Torch tells tensors that are like those of an earlier call
                in one step, and then neither is asked. None: both are asked in every call.
            below: as of `_unless_alike`.
        """
        on = "v{}.get_device()" if self.is_torch else "m{}.device_id"
        pointers = [line for index in indices for line in self._pointer(index)]
        found = [f"device = {on.format(indices[-1])}"] if device == "device" and not self.on_cpu else []
        others = [] if self.on_cpu else indices[:-1] if found else indices
        what = [f"v{index}.dtype is not element{index}" for index in indices]
        for index in indices:
            spread = "" if index in self.full else f" and v{index}.shape != spread{index}"
            what.append(f"v{index}.shape != shape{index}{spread}")
        what += [f"not v{index}.{self.contiguous}" for index in indices]
        if self.is_torch:
            # What is lazily negated is every second number of a complex tensor: contiguous if it is one element alone.
            what += [f"not v{index}.{'is_cpu' if self.on_cpu else 'is_cuda'}" for index in indices]
            what += [f"single{index} and v{index}.is_neg()" for index in indices]
            what += [f"{recorded}v{index}.requires_grad" for index in indices if index in self.outputs]
        if self.is_numpy:
            what += [f"not v{index}.flags.writeable" for index in indices if index in self.outputs]
        what += [f"{on.format(index)} != {device}" for index in others]
        places = []
        aligned = [f"p{index}" for index in indices if index in self.aligned]
        if aligned:
            places.append(f"({' | '.join(aligned)}) & 15")
        places += [f"p{index} & mask{index}" for index in indices if index not in self.aligned]
        if not self.is_torch:
            return [*pointers, *found, *self._refused([*what, *places], result)]
        pointers += self._refused([*[f"not p{index}" for index in indices], *places], result)
        looked = [*found, *self._refused(what, result)]
        if before is not None:
            looked = self._unless_alike(indices, [*before, *looked], below)
        return ["try:", *_indented([*pointers, *looked]), "except RuntimeError:", f"    return {result}"]

    def _unless_alike(self, indices: Sequence[int], lines: Sequence[str], below: bool) -> list[str]:
        """What is asked of tensors, unless torch tells that they are like those that it was last asked of.

        Args:
            below: whether autograd has seen the call already. Else what is alike may require a gradient, which counts
                where gradients are recorded.
        """
        alike, tensors = _alike(indices), ", ".join(f"v{index}" for index in indices)
        first, required = f"first_{alike}", "False"
        # Nested tensors have no strides, and the C++ that asks for them would end the process. What else has none
        # (sparse, MKL-DNN's) has no pointer either, and has been refused.
        nested = " or ".join(f"v{index}.is_nested" for index in indices)
        differ = f"same is None or {nested} or not same({tensors})"
        if not below:
            differ += " or required and gradients()"
            required = " or ".join(f"v{index}.requires_grad" for index in indices)
        learned = [f"if {first}[0] is None:", f"    {first} = alike_of(({tensors},)), {required}", f"{alike} = {first}"]
        return [f"same, required = {alike}", f"if {differ}:", *_indented([*lines, *learned])]

    def _apart(self, result: str = "None") -> list[str]:
        lines = []
        for other, output, same in self.pairs:
            apart = f"below{other} < p{other} - p{output} < above{output}"
            lines += self._refused([f"{apart}{f' and p{other} != p{output}' if same else ''}"], result)
        return lines

    def _numbers(self, result: str = "None") -> list[str]:
        lines = []
        for index in self.integers:
            lines += self._refused([f"not lowest{index} <= v{index} <= highest{index}"], result)
        for index in self.reals:  # most calls have the number of the call before: the same object, so not -0.0 for 0.0
            lines += [
                f"before, r{index} = last{index}",
                f"if v{index} is not before:",
                "    try:",
                f"        r{index} = float(narrow{index}(v{index}))",
                "    except OverflowError:",
                f"        return {result}",
                f"    if type(v{index}) is int and r{index} - r{index} != 0:",  # beyond the largest value
                f"        return {result}",
                f"    last{index} = v{index}, r{index}",
            ]
        return lines

    def _launch(self, there: bool = False) -> list[str]:
        """What launches; `there` where the context is known to be the current one."""
        words, fill, launches, elsewhere = [], [], [], []
        for which, (sources, (dependent, of_few), finished, shifted) in enumerate(self.steps):
            parameters = f"parameters{which}"
            words += [f"words{which}", f"reals{which}", parameters]
            for place, index in enumerate(sources, 1):
                name = f"{which}_{place}"
                if index in self.integers:
                    fill += [f"reals{which}[real{name}] = v{index}", f"words{which}[integer{name}] = v{index}"]
                elif index in self.reals:
                    fill.append(f"reals{which}[real{name}] = r{index}")
                else:
                    address = "base" if index is None else f"p{index}"
                    address += f" + offset{name}" if index is None or place in shifted else ""
                    fill.append(f"words{which}[word{name}] = {address}")
            for kernel in range(1 + finished):
                name = f"{which}_{kernel}"
                through = f"start{name}(grid{name}, threads{name}, handle, {parameters})"
                blocks = f"grid{name}, 1, 1, threads{name}, 1, 1, shared{which}"
                direct = f"function{which}, {blocks}, handle, {parameters}, 0"
                elsewhere.append(through)
                if self.on_cpu:
                    launches.append(f"start{name}(function{which}, {parameters}, grid{name})")
                    continue
                at_once = f"launch_kernel({direct})"
                first = f"{through} if handle else {at_once}" if of_few else through if dependent else at_once
                launches.append(through if kernel else first)
        if not there and not self.on_cpu:
            launches = ["if current_context() == context:", *_indented(launches), "else:", *_indented(elsewhere)]
        scratch = []
        if self.has_workspace:
            on_another = "scratch_of(room, home, handle)"
            made = f"empty(flat, one, byte) if stream is None else {on_another}" if there else on_another
            of = "{}.data_ptr()" if self.is_torch else "pointer_of({})" if self.is_numpy else "{}.data.ptr"
            scratch = [f"scratch = {made}", f"base = {of.format('scratch')}"]
        return [
            f"handle = {self.handle} if stream is None else stream_handle(stream)",
            *scratch,
            "try:",
            "    used = pool.pop()",
            "except IndexError:",
            "    used = block()",
            f"{', '.join(words)} = used",
            *fill,
            *launches,
            "pool.append(used)",
        ]

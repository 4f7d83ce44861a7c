"""An operation as a function of ONNX."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from skuda.errors import InvalidProblem, shown
from skuda.frameworks.programs import OWN, plans, program_of
from skuda.model.dtypes import DTYPES
from skuda.onnx.call import Meaning, meaning
from skuda.onnx.programs import import_onnx, plan_of

if TYPE_CHECKING:
    from onnx import FunctionProto, ModelProto

OPSET = 21  # of the operators that functions are made of, if none is asked for
OLDEST, OLDEST_OF_FP8 = 18, 19  # where reductions take axes as an input; where there are 8-bit floats
DOMAIN = "skuda"
_IR_OF_FUNCTIONS = 8
_INPUT = re.compile(r"\s*(\w+)\s*\[([\d\s,]*)\]\s*")


class Nodes:
    """Collects the nodes of a function. Makes nothing twice."""

    def __init__(self, onnx: Any):
        self._onnx = onnx
        self.nodes: list[Any] = []
        self._made: dict[tuple, str] = {}

    def emit(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """The name of the output of a node."""
        key = operator, inputs, repr(sorted(attributes.items()))
        if key not in self._made:
            self._made[key] = f"v{len(self.nodes)}"
            node = self._onnx.helper.make_node(operator, list(inputs), [self._made[key]], **attributes)
            self.nodes.append(node)
        return self._made[key]

    def constant(self, array: np.ndarray) -> str:
        """The name of a constant."""
        name = f"v{len(self.nodes)}"
        tensor = self._onnx.numpy_helper.from_array(array)
        self.nodes.append(self._onnx.helper.make_node("Constant", [], [name], value=tensor))
        return name


def function(
    operation: str | Callable,
    *inputs: Any,
    spec: str | Path | None = None,
    name: str | None = None,
    opset: int = OPSET,
    **options: Any,
) -> FunctionProto:
    """The formula of an operation as a function of standard operators, for inputs of certain types and axes.

    The function takes the inputs that are given, under their names in the row, and gives the outputs in the row's
    order. A function cannot say that a dimension must have a size, as in `T[n, 4]`; the inputs of a `model` do.
    Attributes are constants in it. It takes arrays of any extents that fit each other, with elements in each row that
    is reduced; they broadcast along the axes along which the given ones do. Codes of 4 bits are uint8, two to a byte,
    as everywhere.

    Args:
        operation: its name (`"rms_norm"`, `"rms_norm_backward"`), or its function (`skuda.rms_norm`).
        inputs: for each input an array, of which type and number of axes count; or their text, such as `"f16[8, 512]"`,
            whose lengths are an example; or None for an optional input that is left out, and for one that another one
            holds as its second half.
        spec: the file that the catalog was generated from, for an operation of a catalog of one's own.
        name: of the function; the operation's if None.
        opset: of the operators, 18 or newer; 8-bit floats need 19.
        options: attributes, `dtype`, `scale_dtype`, `input_dtype`, `shape`, `keepdims` and `without`, as the function
            form takes them.

    Raises:
        Unsupported: standard operators cannot say the formula; the message says why. Or no kernel has these types.
        InvalidProblem: arguments that do not fit, as the function form would refuse them.
        MissingDependency: onnx is not installed.
    """
    onnx = import_onnx()
    call = _selected(operation, inputs, options)
    _check_opset(call, opset, onnx)
    nodes = Nodes(onnx)
    inputs, outputs = {each: each for each in call.given}, [operand.name for operand in call.operation.outputs]
    if call.halves:
        inputs |= {each: f"half_{each}" for each in call.halves}
        node = onnx.helper.make_node("Split", [call.halves[0]], [f"half_{each}" for each in call.halves],
                                     axis=-1, num_outputs=2)  # fmt: skip
        nodes.nodes.append(node)
    made = printed(call, nodes, spec, inputs)
    if call.joins:
        parts = [made[outputs.index(f"d_{each}")] for each in call.halves]
        outputs, made = [f"d_{call.halves[0]}"], [nodes.emit("Concat", *parts, axis=-1)]
    outputs = [f"new_{each}" if each in call.given else each for each in outputs]
    for value, output in zip(made, outputs, strict=True):
        nodes.nodes.append(onnx.helper.make_node("Identity", [value], [output]))
    opsets = [onnx.helper.make_opsetid("", opset)]
    named = name or call.asked.function
    return onnx.helper.make_function(
        DOMAIN, named, list(call.given), outputs, nodes.nodes, opsets, doc_string=call.operation.doc
    )


def model(
    operation: str | Callable,
    *inputs: Any,
    spec: str | Path | None = None,
    name: str | None = None,
    opset: int = OPSET,
    **options: Any,
) -> ModelProto:
    """A model that calls the function of an operation once. Arguments and errors as `function`."""
    onnx = import_onnx()
    helper = onnx.helper
    made = function(operation, *inputs, spec=spec, name=name, opset=opset, **options)
    call = _selected(operation, inputs, options)

    def info(tensor: str, operand: str, word: str) -> Any:
        given = call.placing.given.get(operand) if operand in call.given else None
        rank = call.placing.ranks[operand] if given is None else len(given)
        own = next(each for each in call.operation.operands if each.name == operand)
        alone = given is None and rank == len(call.operation.shape_of(own, call.placing.sizes))
        known = call.operation.sizes_by_axis(own, call.placing.sizes) if alone else {}  # of axes of the operand alone
        extents = [known.get(axis, f"{tensor}_{axis}") for axis in range(rank)]
        return helper.make_tensor_value_info(tensor, helper.np_dtype_to_tensor_dtype(DTYPES[word].storage), extents)

    words = {operand.name: call.operation.word(operand, call.placing.words) for operand in call.operation.operands}
    taken = [info(each, each, words[each]) for each in made.input]
    outputs = [operand.name for operand in call.operation.outputs]
    outputs = [f"d_{call.halves[0]}"] if call.joins else outputs
    given = [info(each, name, words[name]) for each, name in zip(made.output, outputs, strict=True)]
    node = helper.make_node(made.name, list(made.input), list(made.output), domain=DOMAIN)
    graph = helper.make_graph([node], made.name, taken, given)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    version = max(_IR_OF_FUNCTIONS, helper.find_min_ir_version_for(opsets[:1]))
    return helper.make_model(graph, functions=[made], opset_imports=opsets, ir_version=version)


def _check_opset(call: Meaning, opset: int, onnx: Any) -> None:
    words = [call.operation.word(operand, call.placing.words) for operand in call.operation.operands]
    least = OLDEST_OF_FP8 if any(DTYPES[word].narrow_float for word in words) else OLDEST
    newest = onnx.defs.onnx_opset_version()
    if not least <= opset <= newest:
        raise InvalidProblem(f"{call.asked.function}: opset is {shown(opset)}, expected {least} to {newest}")


def same_bits(operation: str | Callable, spec: str | Path | None = None) -> bool:
    """Whether the function of an operation gives skuda's bits where operators of ONNX are rounded once.

    It does where every step is exact or rounded once; it does not where reals are summed, whose order ONNX leaves open,
    and where there are exponentials, logarithms and the like.
    """
    decide = importlib.import_module("skuda.codegen.onnx_printer").same_bits
    return decide(program_of(plan_of(operation), spec))


def refused(spec: str | Path | None = None, package: str = OWN) -> dict[str, str]:
    """The operations of a catalog that standard operators cannot say, each with the reason.

    Args:
        spec: the file that it was generated from; None for skuda's own.
        package: the catalog.
    """
    lacking = importlib.import_module("skuda.codegen.onnx_printer").lacking
    found = {}
    for name, plan in plans().items():
        if plan.package == package and (reason := lacking(program_of(plan, spec))) is not None:
            found[name] = reason
    return found


def _selected(operation: str | Callable, inputs: Sequence[Any], options: dict[str, Any]) -> Meaning:
    plan = plan_of(operation)
    arrays, words = [], dict(options)
    for value in inputs:
        if isinstance(value, str):
            value, packed = _example(value)
            if packed is not None:
                words.setdefault("input_dtype", packed)
        arrays.append(value)
    return meaning(plan, arrays, words)


def _example(text: str) -> tuple[np.ndarray, str | None]:
    """An array of a type and shape, of one element in memory; and the word of the type if bytes hold two of it."""
    found = _INPUT.fullmatch(text)
    if found is None or found[1] not in DTYPES:
        raise InvalidProblem(f"expected an array or a text such as 'f16[8, 512]', got {text!r}")
    dtype = DTYPES[found[1]]
    shape = tuple(int(each) for each in found[2].split(",") if each.strip())
    if dtype.packed and shape:
        shape = (*shape[:-1], -(-shape[-1] // 2))
    return np.broadcast_to(np.zeros((), dtype.storage), shape), found[1] if dtype.packed else None


def printed(call: Meaning, emitter: Any, spec: str | Path | None, inputs: dict[str, Any]) -> list[Any]:
    """The outputs of an operation whose nodes an emitter takes."""
    printer = importlib.import_module("skuda.codegen.onnx_printer").Printer
    return printer(program_of(call.plan, spec), call.placing, emitter, inputs).outputs()

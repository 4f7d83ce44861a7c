"""For each operation a call that runs, made from the declaration alone: small arrays, and what the call has to say.

Docstrings show the shapes of what comes back; where NumPy is imported and how the function is found is added at run
time. The site's pages make the same call with other values, and show these.
"""

from __future__ import annotations

from collections.abc import Iterator

from skuda.model.dtypes import DTYPES
from skuda.model.operation import ALL, COMPUTE, Operand, Operation, may_be_bytes, packed_shape

_OUTER, _LENGTH, _BLOCK = (2,), 4, 2  # extents of what lies outside, and of what lies along the axis in question
_GRADIENT = "d_"  # before the name of what an operand is the gradient of


def example(operation: Operation) -> list[str]:
    """The lines of a session in which NumPy is `np`; none where attributes have no value that surely fits."""
    said_by_name = {attribute.name for attribute in operation.attributes if attribute.default is None}
    if any(said_by_name.intersection(requirement.names) for requirement in operation.requirements):
        return []
    sizes = small_sizes(operation)
    said = [_said(operation, operand, sizes) for operand in _given(operation)]
    named = dict(keywords(operation, sizes))
    if operation.creates:  # the shape comes first
        shape = named.pop("shape")
        said.insert(0, str(shape[0] if len(shape) == 1 else shape))
    said += [f"{name}={value}" for name, value in named.items()]
    told = next((operand for operand in operation.inputs if operand.element == operation.told), None)
    if told is not None and may_be_bytes(word := _told(operation, told)):
        said.append(f'input_dtype="{word}"')
    call = f"{operation.function}({', '.join(said)})"
    shapes = [_shape(operation, each, sizes, operation.word(each, _first(operation))) for each in operation.outputs]
    if len(shapes) == 1:
        return [f">>> {call}.shape", str(shapes[0])]
    names = ", ".join(f"made.{operand.name}.shape" for operand in operation.outputs)
    return [f">>> made = {call}", f">>> {names}", f"({', '.join(map(str, shapes))})"]


def _given(operation: Operation) -> list[Operand]:
    """The inputs of the call: optional ones where it makes their gradients."""
    made = {operand.name for operand in operation.outputs}
    with_optional = any(_GRADIENT + name in made for name in operation.numbers)
    return [operand for operand in operation.inputs if with_optional or operand.name not in operation.numbers]


def small_sizes(operation: Operation) -> dict[str, int | tuple[int, ...]]:
    """An extent of each dimension and each block. An axis that the call has to name is the last one."""
    axis = operation.axis
    sizes = operation.fixed | {dim.name: _OUTER if dim.many else _LENGTH for dim in operation.dims}
    sizes |= {attribute.name: _BLOCK for attribute in operation.attributes if attribute.type == "size"}
    many = [dim.name for dim in operation.space if dim.many]
    if axis is not None and axis.type == "axes":
        whole = axis.default == ALL
        sizes |= {many[0]: () if whole else _OUTER, many[-1]: (*_OUTER, _LENGTH) if whole else (_LENGTH,)}
    elif axis is not None and len(many) > 1:  # it is the last one
        sizes[many[-1]] = ()
    elif len(operation.space) == 1 and many:
        sizes[many[0]] = (*_OUTER, _LENGTH)
    elif len(many) > 1:
        sizes[many[-1]] = (_LENGTH,)
    return sizes


def _said(operation: Operation, operand: Operand, sizes) -> str:
    """An input as NumPy makes it."""
    word = next((w for w in operation.words_of(operand.element) if w == "f32" or not may_be_bytes(w)), None)
    word = word or _told(operation, operand) or operation.types.get(operand.element, (operand.element,))[0]
    if operand.element == COMPUTE or word == COMPUTE:
        word = "f32"
    if operand.scalar:
        return "0.5" if DTYPES[word].kind == "float" else "3"
    storage = "uint8" if may_be_bytes(word) else DTYPES[word].storage.name
    shape = _shape(operation, operand, sizes, word)
    extents = shape[0] if len(shape) == 1 else shape
    return f"np.ones({extents}, np.{'bool_' if storage == 'bool' else storage})"


def _first(operation: Operation) -> dict[str, str]:
    """The types of a call that says none."""
    return operation.combinations[0]


def _told(operation: Operation, operand: Operand) -> str | None:
    """The word that `input_dtype=` says of an input."""
    return operation.words_of(operand.element)[0] if operand.element == operation.told else None


def keywords(operation: Operation, sizes) -> Iterator[tuple[str, object]]:
    """What a call has to say by name, whatever its arrays are, under the sizes of `small_sizes`."""
    if operation.shaped is not None:
        yield "shape", operation.shape_of(operation.shaped, sizes)
    for attribute in operation.attributes:
        if attribute.default is None:
            yield attribute.name, -1 if attribute.names_axes else sizes.get(attribute.name, 1)


def _shape(operation: Operation, operand: Operand, sizes, word: str) -> tuple[int, ...]:
    """The shape of an array as it travels."""
    return packed_shape(operation.shape_of(operand, sizes), word)

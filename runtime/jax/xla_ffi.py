"""The structs of XLA's foreign function interface, as ctypes, checked against the headers of the installed jaxlib.

Only what a handler needs is here. Names are those of the header `xla/ffi/api/c_api.h`.
"""

from __future__ import annotations

import ctypes
import re
from ctypes import POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from pathlib import Path

from skuda.errors import Unsupported

HEADER = "xla/ffi/api/c_api.h"

# Values of the header's enumerations, by name.
VALUES = {
    "XLA_FFI_Extension_Metadata": 1,
    "XLA_FFI_ArgType_BUFFER": 1,
    "XLA_FFI_RetType_BUFFER": 1,
    "XLA_FFI_AttrType_STRING": 4,
    "XLA_FFI_Error_Code_INTERNAL": 13,
    "XLA_FFI_ExecutionStage_INITIALIZE": 2,
    "XLA_FFI_ExecutionStage_EXECUTE": 3,
}
COMMAND_BUFFER_COMPATIBLE = 1  # XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE, 1u << 0
_MAJOR = 0  # XLA_FFI_API_MAJOR; the minor version is the header's, as the layouts are compared


class ByteSpan(Structure):
    _fields_ = [("ptr", c_void_p), ("len", c_size_t)]


class ExtensionBase(Structure):
    pass


ExtensionBase._fields_ = [("struct_size", c_size_t), ("type", c_int), ("next", POINTER(ExtensionBase))]
_HEAD = [("struct_size", c_size_t), ("extension_start", POINTER(ExtensionBase))]


class ApiVersion(Structure):
    _fields_ = [*_HEAD, ("major_version", c_int), ("minor_version", c_int)]


class Api(Structure):
    """Pointers to XLA's functions, up to the last that is used; others are counted alone, for versions rename them."""

    _fields_ = [
        *_HEAD, ("api_version", ApiVersion), ("internal_api", c_void_p), ("XLA_FFI_Error_Create", c_void_p),
        *((f"_{index}", c_void_p) for index in range(3)), ("XLA_FFI_Stream_Get", c_void_p),
        *((f"_{index}", c_void_p) for index in range(3, 15)), ("XLA_FFI_DeviceOrdinal_Get", c_void_p),
    ]  # fmt: skip


class Buffer(Structure):
    _fields_ = [*_HEAD, ("dtype", c_int), ("data", c_void_p), ("rank", c_int64), ("dims", POINTER(c_int64))]


class Args(Structure):
    _fields_ = [*_HEAD, ("size", c_int64), ("types", POINTER(c_int)), ("args", POINTER(c_void_p))]


class Rets(Structure):
    _fields_ = [*_HEAD, ("size", c_int64), ("types", POINTER(c_int)), ("rets", POINTER(c_void_p))]


class Attrs(Structure):
    _fields_ = [
        *_HEAD, ("size", c_int64), ("types", POINTER(c_int)), ("names", POINTER(c_void_p)), ("attrs", POINTER(c_void_p))
    ]  # fmt: skip


class CallFrame(Structure):
    _fields_ = [
        *_HEAD, ("api", POINTER(Api)), ("ctx", c_void_p), ("stage", c_int), ("args", Args), ("rets", Rets),
        ("attrs", Attrs), ("future", c_void_p),
    ]  # fmt: skip


class TypeId(Structure):
    _fields_ = [("type_id", c_int64)]


class Metadata(Structure):
    _fields_ = [("struct_size", c_size_t), ("api_version", ApiVersion), ("traits", c_uint32), ("state_type_id", TypeId)]


class MetadataExtension(Structure):
    _fields_ = [("extension_base", ExtensionBase), ("metadata", POINTER(Metadata))]


class ErrorCreateArgs(Structure):
    _fields_ = [*_HEAD, ("message", c_char_p), ("errc", c_int)]


class StreamGetArgs(Structure):
    _fields_ = [*_HEAD, ("ctx", c_void_p), ("stream", c_void_p)]


class DeviceOrdinalGetArgs(Structure):
    _fields_ = [*_HEAD, ("ctx", c_void_p), ("device_ordinal", c_int32)]


_STRUCTS = {
    "XLA_FFI_ByteSpan": ByteSpan,
    "XLA_FFI_Extension_Base": ExtensionBase,
    "XLA_FFI_Api_Version": ApiVersion,
    "XLA_FFI_Api": Api,
    "XLA_FFI_Buffer": Buffer,
    "XLA_FFI_Args": Args,
    "XLA_FFI_Rets": Rets,
    "XLA_FFI_Attrs": Attrs,
    "XLA_FFI_CallFrame": CallFrame,
    "XLA_FFI_TypeId": TypeId,
    "XLA_FFI_Metadata": Metadata,
    "XLA_FFI_Metadata_Extension": MetadataExtension,
    "XLA_FFI_Error_Create_Args": ErrorCreateArgs,
    "XLA_FFI_Stream_Get_Args": StreamGetArgs,
    "XLA_FFI_DeviceOrdinal_Get_Args": DeviceOrdinalGetArgs,
}
_RENAMED = {"XLA_FFI_InternalExtension": "XLA_FFI_Extension_Base"}  # later names of structs, and the earlier ones
_GROWS = ("XLA_FFI_Api",)  # to which later versions add members that no handler here reads
_PLAIN = {"size_t": c_size_t, "int64_t": c_int64, "int32_t": c_int32, "int": c_int, "XLA_FFI_Handler_Traits": c_uint32}


def check_header(folder: str | Path, version: str) -> tuple[int, int]:
    """The version of the interface that a jaxlib has, whose structs are those of this module.

    Args:
        folder: of its headers, `jax.ffi.include_dir()`.
        version: of jaxlib, for messages.

    Raises:
        Unsupported: its headers are not there, or say something else of a struct or value; names what.
    """
    path = Path(folder) / HEADER
    problem = f"skuda.jax does not know the foreign function interface of jaxlib {version}"
    try:
        text = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
    except OSError as cause:
        raise Unsupported(f"{problem}: its header is not at {path}") from cause
    for name, value in VALUES.items():
        found = re.search(rf"\b{name}\s*=\s*(\d+)", text)
        if found is None or int(found[1]) != value:
            raise Unsupported(f"{problem}: {name} is {found[1] if found else 'missing'}, expected {value}")
    for later, earlier in _RENAMED.items():
        text = re.sub(rf"\b{later}\b", earlier, text)
    for name, struct in _STRUCTS.items():
        _check_struct(text, name, struct, problem)
    major, minor = (re.search(rf"#define XLA_FFI_API_{part} (\d+)", text) for part in ("MAJOR", "MINOR"))
    if major is None or minor is None or int(major[1]) != _MAJOR:
        raise Unsupported(f"{problem}: its major version is {major[1] if major else 'missing'}, expected {_MAJOR}")
    return int(major[1]), int(minor[1])


def _check_struct(text: str, name: str, struct: type[Structure], problem: str) -> None:
    """Raises Unsupported where the header declares other members of a struct, or other types of them."""
    body = re.search(rf"\bstruct {name} {{(.*?)}}", text, re.DOTALL)
    members = [" ".join(each.split()) for each in body[1].split(";") if each.strip()] if body else []
    declared = [_member(member, text) for member in members]
    expected = [(field, _kind(type_)) for field, type_ in struct._fields_]
    for position, (field, kind) in enumerate(expected):
        came = declared[position] if position < len(declared) else ("nothing", "")
        if came[1] != kind or (came[0] != field and not field.startswith("_")):
            found = " ".join(filter(None, came))
            raise Unsupported(f"{problem}: member {position} of {name} is {found}, expected {field} {kind}")
    if len(declared) > len(expected) and name not in _GROWS:
        raise Unsupported(f"{problem}: {name} has a member {declared[len(expected)][0]} that is not known")


def _member(text: str, header: str) -> tuple[str, str]:
    """The name and the kind of a struct's member."""
    function = re.fullmatch(r"_XLA_FFI_API_STRUCT_FIELD\((\w+)\)", text)
    if function:
        return function[1], "pointer"
    type_, star, name = re.fullmatch(r"(?:const )?(?:struct )?(\w+)\s*(\**)\s*(\w+)", text).groups()
    if star:
        return name, "pointer"
    if type_ in _PLAIN:
        return name, _kind(_PLAIN[type_])
    if type_ in _STRUCTS:
        return name, _STRUCTS[type_].__name__
    is_enum = re.search(rf"}} {type_};", header) is not None
    return name, _kind(c_int) if is_enum else type_


def _kind(type_: type) -> str:
    if issubclass(type_, Structure):
        return type_.__name__
    pointer = type_ in (c_void_p, c_char_p) or issubclass(type_, ctypes._Pointer)
    return "pointer" if pointer else f"{'int' if type_(-1).value < 0 else 'uint'}{8 * ctypes.sizeof(type_)}"

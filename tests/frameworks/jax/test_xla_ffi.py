"""The structs of XLA's interface beside the header of the installed jaxlib, and beside others."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import pytest

from skuda.errors import Unsupported
from skuda.jax import xla_ffi

TEXT = (Path(jax.ffi.include_dir()) / xla_ffi.HEADER).read_text(encoding="utf-8")


def check(folder: Path, text: str) -> tuple[int, int]:
    path = folder / xla_ffi.HEADER
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return xla_ffi.check_header(folder, "9.9")


def changed(pattern: str, by: str) -> str:
    text, count = re.subn(pattern, by, TEXT, count=1, flags=re.DOTALL)
    assert count == 1
    return text


def test_the_installed_header_is_known():
    assert xla_ffi.check_header(jax.ffi.include_dir(), jax.lib.__version__)[0] == 0


def test_later_names_of_the_same_structs_are_known(tmp_path):
    text = re.sub(r"\bXLA_FFI_Extension_Base\b", "XLA_FFI_InternalExtension", TEXT)
    text = re.sub(r"\bXLA_FFI_Error_GetMessage\b", "XLA_FFI_Error_GetDetails", text)
    text = text.replace("#define XLA_FFI_API_MINOR", "#define XLA_FFI_API_MINOR 77 //")
    assert check(tmp_path, text) == (0, 77)


@pytest.mark.parametrize(
    ("pattern", "by", "said"),
    [
        (r"void\* data;\s+int64_t rank;", "int64_t rank; void* data;",
         "member 3 of XLA_FFI_Buffer is rank int64, expected data pointer"),
        (r"int64_t rank;", "int32_t rank;", "member 4 of XLA_FFI_Buffer is rank int32, expected rank int64"),
        (r"int32_t device_ordinal;", "int32_t device_ordinal; int32_t host;",
         "XLA_FFI_DeviceOrdinal_Get_Args has a member host"),
        (r"void\* stream;", "", "member 3 of XLA_FFI_Stream_Get_Args is nothing, expected stream pointer"),
        (r"_XLA_FFI_API_STRUCT_FIELD\(XLA_FFI_State_Set\);", "", "of XLA_FFI_Api is"),
        (r"struct XLA_FFI_CallFrame {", "struct XLA_FFI_Frame {", "member 0 of XLA_FFI_CallFrame is nothing"),
        (r"AttrType_STRING = 4", "AttrType_STRING = 5", "XLA_FFI_AttrType_STRING is 5, expected 4"),
        (r"Extension_Metadata = 1,", "", "XLA_FFI_Extension_Metadata is missing"),
        (r"API_MAJOR 0", "API_MAJOR 1", "its major version is 1, expected 0"),
    ],
)  # fmt: skip
def test_another_layout_is_refused(tmp_path, pattern, by, said):
    with pytest.raises(Unsupported, match="does not know the foreign function interface of jaxlib 9.9") as raised:
        check(tmp_path, changed(pattern, by))
    assert said in str(raised.value)


def test_a_jaxlib_without_headers_is_refused(tmp_path):
    with pytest.raises(Unsupported, match="its header is not at"):
        xla_ffi.check_header(tmp_path, "9.9")

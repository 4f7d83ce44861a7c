"""Products of matrices of 8-bit integers, exact in 32 bits: `torch.ops.skuda.int8_product`.

On NVIDIA GPUs cuBLASLt computes them by the algorithm that it recommends. `torch._int_mm` calls the same library and
asks it for no algorithm, for which it takes kernels of an older architecture on Hopper. Whichever algorithm runs, sums
of integers have no rounding, so the result is the same.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

import torch

from skuda.arrays.libraries import library_of_plain
from skuda.errors import InvalidProblem

_T, _N = 1, 0  # CUBLAS_OP_T, CUBLAS_OP_N
_I8, _I32 = 3, 10  # CUDA_R_8I, CUDA_R_32I
_COMPUTE_I32 = 72  # CUBLAS_COMPUTE_32I
_TRANSPOSE_FIRST = 3  # CUBLASLT_MATMUL_DESC_TRANSA
_MOST_WORKSPACE = 1  # CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
_WORKSPACE = 32 << 20  # bytes: what cuBLAS recommends on Hopper
_MULTIPLE = 4  # of the extents that lie along memory, which its kernels of integers take
_MOST_KNOWN = 1024  # sizes

_TORCH = library_of_plain(torch.Tensor)
_contiguous = _TORCH.contiguous  # on the current device
_factors = (ctypes.c_int32 * 2)(1, 0)
_ONE, _ZERO = ctypes.addressof(_factors), ctypes.addressof(_factors) + 4


class _Recommended(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@cache
def _library() -> ctypes.CDLL | None:
    """cuBLASLt, as torch has loaded it; None where it has not."""
    if torch.version.cuda is None:
        return None
    try:
        library = ctypes.CDLL(f"libcublasLt.so.{torch.version.cuda.partition('.')[0]}")
    except OSError:
        return None
    pointer = ctypes.c_void_p
    library.cublasLtMatmul.argtypes = [pointer] * 14 + [ctypes.c_size_t, pointer]
    return library


class _Refused(Exception):
    """cuBLASLt does not compute such a product."""


def _check(status: int) -> None:
    if status:
        raise _Refused(status)


@cache
def _handle(device: int) -> ctypes.c_void_p:
    """cuBLASLt on a device, which is the current one."""
    handle = ctypes.c_void_p()
    _check(_library().cublasLtCreate(ctypes.byref(handle)))
    return handle


class _Product:
    """A product of some sizes on a device, which is the current one: [rows, depth] by [columns, depth].

    cuBLASLt's matrices lie along their columns, so it computes the transposed product of the second and the first.

    Raises:
        _Refused: cuBLASLt recommends nothing.
    """

    def __init__(self, device: int, rows: int, columns: int, depth: int):
        library, made = _library(), ctypes.c_void_p
        self._call, self._handle = library.cublasLtMatmul, _handle(device)
        self._product, transpose = made(), ctypes.c_int32(_T)
        _check(library.cublasLtMatmulDescCreate(ctypes.byref(self._product), _COMPUTE_I32, _I32))
        _check(
            library.cublasLtMatmulDescSetAttribute(
                self._product, _TRANSPOSE_FIRST, ctypes.byref(transpose), ctypes.c_size_t(4)
            )
        )
        self._right = _layout(_I8, depth, columns)
        self._left = _layout(_I8, depth, rows)
        self._made = _layout(_I32, columns, rows)
        preference, most = made(), ctypes.c_uint64(_WORKSPACE)
        _check(library.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)))
        try:
            _check(
                library.cublasLtMatmulPreferenceSetAttribute(
                    preference, _MOST_WORKSPACE, ctypes.byref(most), ctypes.c_size_t(8)
                )
            )
            self._found, count = _Recommended(), ctypes.c_int()
            layouts = self._right, self._left, self._made, self._made
            _check(
                library.cublasLtMatmulAlgoGetHeuristic(
                    self._handle, self._product, *layouts, preference, 1, ctypes.byref(self._found),
                    ctypes.byref(count),
                )
            )  # fmt: skip
        finally:
            library.cublasLtMatmulPreferenceDestroy(preference)
        if not count.value:
            raise _Refused
        self._algorithm, self._workspace = ctypes.addressof(self._found), self._found.workspace

    def __call__(self, left: torch.Tensor, right: torch.Tensor, device: int, made: torch.Tensor) -> bool:
        """Whether cuBLASLt took it."""
        room = self._workspace
        scratch = _contiguous((room,), (1,), torch.uint8) if room else None
        result = made.data_ptr()
        return not self._call(
            self._handle, self._product, _ONE, right.data_ptr(), self._right, left.data_ptr(), self._left, _ZERO,
            result, self._made, result, self._made, self._algorithm, None if scratch is None else scratch.data_ptr(),
            room, torch._C._cuda_getCurrentRawStream(device),
        )  # fmt: skip

    def __del__(self, ends=sys.is_finalizing):
        if ends():
            return
        library = _library()
        for name in ("_right", "_left", "_made"):
            if hasattr(self, name):
                library.cublasLtMatrixLayoutDestroy(getattr(self, name))
        if getattr(self, "_product", None):
            library.cublasLtMatmulDescDestroy(self._product)


def _layout(kind: int, extent: int, lines: int) -> ctypes.c_void_p:
    """Of a matrix whose lines lie one after the other."""
    made = ctypes.c_void_p()
    sizes = ctypes.c_uint64(extent), ctypes.c_uint64(lines), ctypes.c_int64(extent)
    _check(_library().cublasLtMatrixLayoutCreate(ctypes.byref(made), kind, *sizes))
    return made


_PRODUCTS: dict[tuple[int, int, int, int], _Product | None] = {}  # by device and sizes; None where there is none


def _product(device: int, rows: int, columns: int, depth: int) -> _Product | None:
    key = device, rows, columns, depth
    try:
        return _PRODUCTS[key]
    except KeyError:
        pass
    found = None
    if _library() is not None and not (columns % _MULTIPLE or depth % _MULTIPLE):
        try:
            found = _Product(*key)
        except _Refused:
            pass
    if len(_PRODUCTS) >= _MOST_KNOWN:
        _PRODUCTS.clear()
    _PRODUCTS[key] = found
    return found


def on_cuda(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    device = left.get_device()
    if torch._C._cuda_getDevice() != device:
        with torch.cuda.device(device):
            return on_cuda(left, right)
    shape = _shape(left, right)
    made = _contiguous(shape, (shape[1], 1), torch.int32)
    if not made.numel():
        return made
    if not left.shape[1]:
        return made.zero_()
    left, right = left.contiguous(), right.contiguous()
    product = _product(device, left.shape[0], right.shape[0], left.shape[1])
    if product is None or (left.data_ptr() | right.data_ptr()) % 16 or not product(left, right, device, made):
        return _padded(left, right)
    return made


def _padded(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """By `torch._int_mm`, whose kernels on a GPU take 17 rows and more, and multiples of 8 of the other extents."""
    pad = torch.nn.functional.pad
    (rows, depth), columns = left.shape, right.shape[0]
    left = pad(left, (0, -depth % 8, 0, max(0, 17 - rows)))
    right = pad(right, (0, -depth % 8, 0, -columns % 8))
    return torch._int_mm(left, right.t())[:rows, :columns].contiguous()


def on_cpu(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    _shape(left, right)
    return torch._int_mm(left, right.t())


def _on_meta(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return left.new_empty(_shape(left, right), dtype=torch.int32)


def _shape(left: torch.Tensor, right: torch.Tensor) -> tuple[int, int]:
    """The result's.

    Raises:
        InvalidProblem: these are no matrices of int8 with rows of one length.
    """
    if left.dtype != torch.int8 or right.dtype != torch.int8 or left.ndim != 2 or right.ndim != 2:
        raise InvalidProblem(
            f"int8_product: expected two matrices of int8, got {left.dtype} of shape {tuple(left.shape)} and "
            f"{right.dtype} of shape {tuple(right.shape)}"
        )
    if left.shape[1] != right.shape[1]:
        raise InvalidProblem(
            f"int8_product: rows of left have {left.shape[1]} elements, those of right {right.shape[1]}"
        )
    if left.device != right.device:
        raise InvalidProblem(f"int8_product: left is on {left.device}, right on {right.device}")
    return left.shape[0], right.shape[0]


_operators = torch.library.Library("skuda", "FRAGMENT")
_operators.define("int8_product(Tensor left, Tensor right) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
_operators.impl("int8_product", on_cpu, "CPU")
_operators.impl("int8_product", on_cuda, "CUDA")
_operators.impl("int8_product", _on_meta, "Meta")
_operator = torch.ops.skuda.int8_product.default


def int8_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The first matrix times the second one transposed.

    Args:
        left: [rows, depth], int8.
        right: [columns, depth], int8.

    Returns:
        [rows, columns], int32: sums of products, which wrap beyond 32 bits.

    Raises:
        InvalidProblem: these are no matrices of int8 with rows of one length.
    """
    if not torch.compiler.is_compiling() and type(left) is torch.Tensor and left.is_cuda and not _TORCH.watched():
        return on_cuda(left, right)  # past the dispatcher, which takes as long as the call
    return _operator(left, right)

"""Types of arguments and plans, for type checkers: what generated stubs are written in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar, dataclass_transform

from skuda.model.records import Args
from skuda.plans.plan import Plan

if TYPE_CHECKING:
    from typing import Self

    from skuda.model.records import Record
    from skuda.model.sku import BackendKind


class Array(Protocol):
    """An array of any library: NumPy, CuPy, torch, JAX."""

    @property
    def shape(self) -> Any: ...
    @property
    def dtype(self) -> Any: ...


class Tensor(Array, Protocol):
    """An array whose class says nothing of its elements, such as `torch.Tensor`."""

    @property
    def requires_grad(self) -> Any: ...


class _ElementType(Protocol):
    """`numpy.dtype` or `torch.dtype`."""

    @property
    def itemsize(self) -> int: ...


Axes: TypeAlias = int | Sequence[int] | None
Element: TypeAlias = str | type[Any] | _ElementType
Sizes: TypeAlias = int | Sequence[int]
Number: TypeAlias = float | Array

ArrayT = TypeVar("ArrayT", bound=Array)
TensorT = TypeVar("TensorT", bound=Tensor)
OutT = TypeVar("OutT", bound=Sequence[Array])
_DescriptorT = TypeVar("_DescriptorT", bound="Record")
_ArgsT = TypeVar("_ArgsT", bound=Args)


@dataclass_transform(frozen_default=True)
class TypedArgs(Args):
    """The operands of one run."""


class TypedPlan(Plan, Generic[_DescriptorT, _ArgsT]):
    """A plan whose descriptors and arguments are of some classes."""

    descriptor_type: ClassVar[type[Record]]
    args_type: ClassVar[type[Args]]

    if TYPE_CHECKING:

        @classmethod
        def select(
            cls, descriptor: _DescriptorT, stream: Any = None, preference: BackendKind | None = None
        ) -> Self: ...
        def can_implement(self, args: _ArgsT) -> None: ...
        def run(self, args: _ArgsT, stream: Any = None, workspace: Array | None = None) -> None: ...

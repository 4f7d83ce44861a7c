"""What type checkers and editors know of `skuda`: the catalog, and the names that no catalog has."""

from skuda.codegen.define import define as define
from skuda.errors import SkudaError as SkudaError
from skuda.generated import *  # noqa: F403
from skuda.model.sku import BackendKind as BackendKind
from skuda.model.sku import KernelSku as KernelSku
from skuda.model.sku import PrecisionGuarantee as PrecisionGuarantee

__version__: str

"""Operations as functions of ONNX, made of standard operators. Needs the extra `onnx`.

`function` gives an `onnx.FunctionProto`, `model` a model that calls it once, `translation_table` what
`torch.onnx.export` takes as `custom_translation_table`. docs/frameworks.md says what is the same to the bit.
"""

from __future__ import annotations

from skuda.onnx.functions import OPSET, function, model, refused, same_bits
from skuda.onnx.torch_export import translation_table

__all__ = ["OPSET", "function", "model", "refused", "same_bits", "translation_table"]

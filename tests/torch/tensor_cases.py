"""Tensors of every type: which torch has, and what they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from format.dtype_cases import PLAIN
from format.field_cases import EXTENSIONS, little_endian_bytes

TORCH_TYPES = {
    "bool": torch.bool,
    **{f"int{8 * n}": getattr(torch, f"int{8 * n}") for n in (1, 2, 4, 8)},
    **{f"uint{8 * n}": getattr(torch, f"uint{8 * n}") for n in (1, 2, 4, 8)},
    **{f"float{8 * n}": getattr(torch, f"float{8 * n}") for n in (2, 4, 8)},
    "complex64": torch.complex64,
    "complex128": torch.complex128,
    "bfloat16": torch.bfloat16,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e4m3fnuz": torch.float8_e4m3fnuz,
    "float8_e5m2": torch.float8_e5m2,
    "float8_e5m2fnuz": torch.float8_e5m2fnuz,
    "float8_e8m0fnu": torch.float8_e8m0fnu,
}
"""What torch can compute with. Its int4 and such are names without operations."""

TYPES: list[np.dtype[Any]] = [*map(np.dtype, PLAIN), *EXTENSIONS]
KNOWN = [dtype for dtype in TYPES if dtype.name in TORCH_TYPES]
UNKNOWN = [dtype for dtype in TYPES if dtype.name not in TORCH_TYPES]


def memory_of(tensor: torch.Tensor) -> NDArray[Any]:
    """The tensor as an array of the same memory; floats that NumPy lacks as their bits."""
    if tensor.dtype.is_floating_point and tensor.dtype not in (
        torch.float16,
        torch.float32,
        torch.float64,
    ):
        tensor = tensor.view(torch.uint8 if tensor.element_size() == 1 else torch.uint16)
    array: NDArray[Any] = tensor.numpy()
    return array


def check(tensor: Any, expected: NDArray[Any]) -> None:
    """A tensor of its own, or a mapping of tensors, with the values of an array."""
    if expected.dtype.names is not None:
        assert list(tensor) == list(expected.dtype.names)
        for name in expected.dtype.names:
            check(tensor[name], expected[name])
        return
    assert type(tensor) is torch.Tensor
    assert tensor.dtype == TORCH_TYPES[expected.dtype.name]
    assert tuple(tensor.shape) == expected.shape
    assert tensor.is_contiguous()
    memory = memory_of(tensor)
    assert memory.flags.carray  # aligned, writable
    assert little_endian_bytes(memory) == little_endian_bytes(expected)

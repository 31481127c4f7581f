"""From what a reader returns to tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


def to_tensors(batch: Any, name: str = "the batch") -> Any:
    """Arrays as tensors that share their memory, inside mappings, lists and tuples; else as is.

    uint16 and uint32 arrays become tensors of `torch.uint16` and `torch.uint32`, which carry few
    operations: convert them where they are used, for example with ``.long()``.

    Raises:
        TypeError: an array of a dtype that torch does not have; the message names the field.
    """
    if isinstance(batch, np.ndarray):
        return _tensor(batch, name)
    if isinstance(batch, Mapping):
        return {key: to_tensors(value, f"field {key!r}") for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_tensors(value, name) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(to_tensors(value, name) for value in batch)
    return batch


def _tensor(array: NDArray[Any], name: str) -> torch.Tensor:
    foreign = not array.dtype.isnative or not array.flags.writeable
    if foreign or any(stride < 0 or stride % array.itemsize for stride in array.strides):
        array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    try:
        return torch.from_numpy(array)
    except TypeError as error:
        raise TypeError(
            f"{name} has dtype {array.dtype}, which torch {torch.__version__} does not have; "
            "pass a collate_fn that converts it, or store the field as integers or floats"
        ) from error

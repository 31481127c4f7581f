"""From sample ids to a batch of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Number
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import default_collate

from guideloom_format._bit_views import is_extension, stored_bits
from guideloom_format._integers import as_index, shown
from guideloom_format._masked import is_masked
from guideloom_read import DocumentDataset, SpanBatch
from guideloom_read._padding import padding
from guideloom_torch._span_tensors import TensorSpanBatch

Load = Callable[[NDArray[np.int64]], Any]
LONGEST = "longest"
# torch also has names such as int4, whose tensors can do nothing, not even be printed.
_FLOATS_OF_ML_DTYPES = (
    "bfloat16",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
)


class LoadOf:
    """How the sample ids of a step become a batch, as a function of the opened reader.

    Attributes:
        padding: `pad_to` and `pad_value` as plain numbers; empty where nothing is padded.

    Raises:
        TypeError, ValueError: `pad_to` with what cannot be padded, or of another value.
    """

    def __init__(
        self,
        dataset: Any,
        collate_fn: Callable[[list[Any]], Any] | None,
        pad_to: int | str | None,
        pad_value: Any,
    ) -> None:
        self.padding: dict[str, Any] = {}
        if pad_to is not None:
            self.padding = _checked_padding(dataset, collate_fn, pad_to, pad_value)
        elif not (isinstance(pad_value, Number | np.bool_) and pad_value == 0):
            raise TypeError(
                f"pad_value is {shown(pad_value)} and pad_to is not given, so that nothing is "
                'padded; give pad_to, a number of values or "longest"'
            )
        self._arguments = (dataset, collate_fn, *(self.padding.values() or (None, 0)))
        self._load_of = _load_function(dataset, collate_fn, self.padding)

    def __call__(self, reader: Any) -> Load:
        """The function that loads from this reader."""
        return self._load_of(reader)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments


def _checked_padding(
    dataset: Any, collate_fn: Callable[[list[Any]], Any] | None, pad_to: Any, pad_value: Any
) -> dict[str, Any]:
    width = _checked_width(pad_to)
    if collate_fn is not None:
        raise TypeError("pad_to pads in place of a collate_fn; give one of them")
    if not isinstance(dataset, DocumentDataset) or not hasattr(
        dataset.storage.storage_format, "document_dtype"
    ):
        raise TypeError(
            f"pad_to is given for {dataset!r}; it pads documents that are arrays of numbers, "
            "as DocumentNumpyFormat has them. Pass a collate_fn for others"
        )
    padding(pad_value, dataset.storage.element_type)
    return {"pad_to": width, "pad_value": np.asarray(pad_value).item()}


def _load_function(
    dataset: Any, collate_fn: Callable[[list[Any]], Any] | None, pad: Mapping[str, Any]
) -> Callable[[Any], Load]:
    if pad:
        width = None if pad["pad_to"] == LONGEST else pad["pad_to"]
        value = pad["pad_value"]
        return lambda reader: lambda ids: to_tensors(reader.gather_padded(ids, width, value))
    if collate_fn is not None:
        return lambda reader: lambda ids: collate_fn(reader[ids])
    if isinstance(dataset, DocumentDataset):
        return lambda reader: lambda ids: to_tensors(reader.read_many(ids))
    return _stacked


def _stacked(reader: Any) -> Load:
    if reader.gathers:
        return lambda ids: to_tensors(reader.gather(ids))
    return lambda ids: _collated(reader, ids)


def _collated(reader: Any, ids: NDArray[np.int64]) -> Any:
    """The samples of a custom format, by torch's rules for what it knows."""
    try:
        return default_collate(reader[ids]) if ids.size else []
    except (TypeError, RuntimeError, ValueError) as error:
        form = type(reader.dataset.storage.storage_format).__name__
        error.add_note(
            f"{form} has no unpack_batch, so its samples go through torch's default_collate. "
            "Define unpack_batch(stream) in the format, or pass a collate_fn"
        )
        raise


def _checked_width(pad_to: Any) -> int | str:
    if isinstance(pad_to, str):
        if pad_to == LONGEST:
            return LONGEST
        raise ValueError(f'pad_to is {shown(pad_to)}; expected a number of values, or "longest"')
    return as_index("pad_to", pad_to, 1, 1 << 40)


def to_tensors(batch: Any, name: str = "the batch") -> Any:
    """Arrays as tensors that share their memory, inside mappings, lists and tuples; else as is.

    Mappings become dicts; subclasses of list and tuple, but for named tuples, stay as they are.

    =====================  ======================================================================
    array                  tensor
    =====================  ======================================================================
    bool, int8 … int64,    the same type
    float16 … complex128
    uint16, uint32,        the same type, which carries few operations: convert it where it is
    uint64                 used, for example with ``.long()``
    of ml_dtypes           ``torch.bfloat16``, ``torch.float8_e4m3fn`` and so on, the same bits
    with named fields      a mapping of field to tensor, each a copy
    text, raw bytes        none: an error
    =====================  ======================================================================

    Raises:
        TypeError: an array of a dtype that torch does not have; the message names the field.
    """
    if isinstance(batch, np.ndarray):
        return _tensor(batch, name)
    if isinstance(batch, Mapping):
        return {key: to_tensors(value, f"field {key!r}") for key, value in batch.items()}
    if isinstance(batch, SpanBatch):
        return TensorSpanBatch(*(to_tensors(value, name) for value in batch))
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_tensors(value, name) for value in batch))
    if type(batch) in (list, tuple):
        return type(batch)(to_tensors(value, name) for value in batch)
    return batch


def _tensor(array: NDArray[Any], name: str) -> Any:
    if array.dtype.names is not None:
        return {
            field: _tensor(array[field].copy(), f"field {field!r}") for field in array.dtype.names
        }
    if is_masked(array):
        raise TypeError(f"{name} is a masked array, which torch does not have; use .filled(value)")
    usual = array.flags.carray and array.dtype.isnative and array.size and 1 not in array.shape
    if not usual:
        array = _for_torch(array)
    try:
        if is_extension(array.dtype):
            return _of_bits(array)
        return torch.from_numpy(array)
    except (TypeError, AttributeError) as error:
        raise TypeError(
            f"{name} has dtype {array.dtype}, which torch {torch.__version__} does not have; "
            "pass a collate_fn that converts it, or store the field as integers or floats"
        ) from error


def _for_torch(array: NDArray[Any]) -> NDArray[Any]:
    """An array that torch takes without a copy or a warning: itself, if it is one."""
    foreign = not array.dtype.isnative or not array.flags.writeable or not array.flags.aligned
    if foreign or any(stride < 0 or stride % array.itemsize for stride in array.strides):
        return np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    return array


def _of_bits(array: NDArray[Any]) -> torch.Tensor:
    if array.dtype.name not in _FLOATS_OF_ML_DTYPES:
        raise AttributeError(array.dtype.name)
    of_torch: torch.dtype = getattr(torch, array.dtype.name)
    return torch.from_numpy(array.view(stored_bits(array.dtype))).view(of_torch)

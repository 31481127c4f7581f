"""`StreamNumpyFormat`: a mapping of equal-length arrays, stored as one array of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from guideloom_format._dtypes import storable_dtype
from guideloom_format._errors import DataError


class StreamNumpyFormat:
    """Streams of records with one value per field, for example tokens with a loss mask.

    ::

        StreamNumpyFormat(np.dtype([("tokens", "<u2"), ("loss", "?")]))
        append  {"tokens": (n,) integers, "loss": (n,) booleans}
        sample  {"tokens": (sequence_length,) uint16, "loss": (sequence_length,) bool}
        batch   {"tokens": (batch, sequence_length) uint16, "loss": …}

    Values are stored little-endian and packed as the dtype says. A field may have a shape of its
    own, which comes after the dimensions shown.

    Args:
        dtype: a structured dtype without Python objects.

    Raises:
        TypeError: not a structured dtype, or a field that is not stored.
    """

    name = "stream-numpy"

    def __init__(self, dtype: DTypeLike) -> None:
        self.stream_dtype = storable_dtype(dtype)
        if not self.stream_dtype.names or self.stream_dtype.fields is None:
            raise TypeError(
                f"StreamNumpyFormat got the dtype {self.stream_dtype}; expected named fields, for "
                f'example np.dtype([("tokens", "{self.stream_dtype.str}")])'
            )
        self._fields = {name: self.stream_dtype.fields[name][0] for name in self.stream_dtype.names}
        names = self.stream_dtype.names
        self._only_dtype = self._fields[names[0]]
        # A record that is one plain value: packing is a change of view.
        plain = self._only_dtype.names is None and self._only_dtype.subdtype is None
        whole = self._only_dtype.itemsize == self.stream_dtype.itemsize
        self._only = names[0] if plain and whole else None

    def parameters(self) -> dict[str, Any]:
        """What the header says of the format besides its name: nothing, the dtype is all."""
        return {}

    def fields(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """For each field the dtype of its values, and the field's own shape."""
        return {name: _base(dtype) for name, dtype in self._fields.items()}

    def pack(self, data: Mapping[str, Any]) -> NDArray[Any]:
        """One record per position.

        Args:
            data: an equally long 1-d array for each field; a field with a shape has it behind the
                first dimension. Integers of another width are converted if every value fits.

        Returns:
            1-d, of `stream_dtype`. May share memory with `data`.

        Raises:
            DataError: fields missing or unknown, unequal lengths, values that do not fit.
        """
        if self._only is not None and type(data) is dict and len(data) == 1:
            value = data.get(self._only)
            if type(value) is np.ndarray and value.dtype == self._only_dtype and value.ndim == 1:
                return np.ascontiguousarray(value).view(self.stream_dtype)
        if not isinstance(data, Mapping) or set(data) != set(self._fields):
            given = sorted(data, key=repr) if isinstance(data, Mapping) else type(data).__name__
            raise DataError(
                f"StreamNumpyFormat got {given}; expected a mapping with the fields "
                f"{sorted(self._fields)}"
            )
        columns = {name: _column(name, data[name], dtype) for name, dtype in self._fields.items()}
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise DataError(f"the fields have the lengths {lengths}; expected one length")
        out = np.zeros(next(iter(lengths.values())), dtype=self.stream_dtype)
        for name, column in columns.items():
            out[name] = column
        return out

    def unpack(
        self, stream: NDArray[Any], shard_lengths: Sequence[int], shards: Sequence[int]
    ) -> dict[str, NDArray[Any]]:
        """A contiguous array for each field; without a copy when there is one field."""
        del shard_lengths, shards  # part of the interface; this format does not need them
        return self.unpack_batch(stream)

    def unpack_batch(self, stream: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """The same for windows of any shape, for example (batch, sequence_length)."""
        return {name: np.ascontiguousarray(stream[name]) for name in self._fields}

    def __repr__(self) -> str:
        return f"StreamNumpyFormat({self.stream_dtype!r})"


def _column(name: str, value: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """`value` with the base type of the field, checked."""
    base, shape = _base(dtype)
    if isinstance(value, np.ma.MaskedArray):
        raise DataError(f"field {name!r} is a masked array; give values to all with .filled(value)")
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise DataError(f"field {name!r} is not an array: {error}") from error
    if array.ndim != 1 + len(shape) or array.shape[1:] != shape:
        raise DataError(
            f"field {name!r} has shape {array.shape}; expected (n,{' ' if shape else ''}"
            f"{', '.join(map(str, shape))}), n positions with the field's own shape behind"
        )
    if array.dtype == base or (array.size == 0 and not isinstance(value, np.ndarray)):
        return array.astype(base, copy=False)
    if array.dtype.kind in "iu" and base.kind in "iu":
        info = np.iinfo(base)
        if array.size and not (info.min <= int(array.min()) and int(array.max()) <= info.max):
            bad = (array < info.min) | (array > info.max)
            where = tuple(int(k) for k in np.argwhere(bad)[0])
            raise DataError(
                f"field {name!r} holds {array[where]} at position {where[0]}; {base} holds "
                f"{info.min} to {info.max}. Choose a wider dtype for the field"
            )
        return array.astype(base)
    if not _keeps_every_value(array.dtype, base):
        raise DataError(
            f"field {name!r} has dtype {array.dtype}; expected {base}. Convert it with "
            f".astype({str(base)!r}) if no value is lost"
        )
    return array.astype(base)


def _base(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    return dtype.subdtype if dtype.subdtype is not None else (dtype, ())


def _keeps_every_value(given: np.dtype[Any], stored: np.dtype[Any]) -> bool:
    """Whether no value changes: numbers stay numbers, text text, and no integer is rounded."""
    if given.kind in "iu" and stored.kind in "fc":
        return 8 * given.itemsize <= np.finfo(stored).nmant + 1
    if given.names is not None or stored.names is not None:
        return given.names == stored.names and all(
            _keeps_every_value(given[name].base, stored[name].base)
            and given[name].shape == stored[name].shape
            for name in given.names or ()
        )
    numbers = "biufc"
    alike = given.kind == stored.kind or (given.kind in numbers and stored.kind in numbers)
    return alike and np.can_cast(given, stored, "safe")

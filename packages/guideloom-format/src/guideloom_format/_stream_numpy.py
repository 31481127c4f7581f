"""`StreamNumpyFormat`: a mapping of equal-length arrays, stored as one array of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from guideloom_format._bit_views import with_extensions, without_extensions
from guideloom_format._columns import base_and_shape, column
from guideloom_format._dtypes import storable_dtype
from guideloom_format._errors import DataError
from guideloom_format._parts import STREAM


class StreamNumpyFormat:
    """Streams of records with one value per field, for example tokens with a loss mask.

    ::

        StreamNumpyFormat(np.dtype([("tokens", "<u2"), ("loss", "?")]))
        append  {"tokens": (n,) integers, "loss": (n,) booleans}
        sample  {"tokens": (sequence_length,) uint16, "loss": (sequence_length,) bool}
        batch   {"tokens": (batch, sequence_length) uint16, "loss": …}

    Values are stored little-endian and packed as the dtype says. A field may have a shape of its
    own, which comes after the dimensions shown. Types of the package ml_dtypes, such as bfloat16,
    are stored as unsigned integers with the same bits and come back as what they were.

    Args:
        dtype: a structured dtype without Python objects.

    Raises:
        TypeError: not a structured dtype, or a field that is not stored.
    """

    name = "stream-numpy"
    storage_kind = STREAM

    def __init__(self, dtype: DTypeLike) -> None:
        if dtype is None:
            raise TypeError("the dtype is None; expected one with named fields")
        self.dtype = np.dtype(dtype)
        stored, self._views = without_extensions(self.dtype)
        self.stream_dtype = storable_dtype(stored)
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
        self._whole = self._only_dtype.itemsize == self.stream_dtype.itemsize
        self._only = names[0] if plain and self._whole and not self._views else None

    @classmethod
    def from_header(
        cls, parameters: Mapping[str, Any], element_type: np.dtype[Any], where: str
    ) -> StreamNumpyFormat:
        """The format that a header describes.

        Raises:
            MissingPackageError: it holds types of ml_dtypes, which is not installed.
            UnsupportedFormatError: it holds types that ml_dtypes does not have.
        """
        return cls(with_extensions(element_type, parameters.get("views", {}), where))

    def parameters(self) -> dict[str, Any]:
        """What the header says of the format besides its name and the stored dtype."""
        if not self._views:
            return {}
        return {"views": {name: dtype.name for name, dtype in self._views.items()}}

    def fields(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """For each field the dtype of its values, and the field's own shape."""
        return {
            name: (self._views.get(name, base), shape)
            for name, dtype in self._fields.items()
            for base, shape in [base_and_shape(dtype)]
        }

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
        columns = {name: self._column(name, data[name]) for name in self._fields}
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise DataError(f"the fields have the lengths {lengths}; expected one length")
        out = np.zeros(next(iter(lengths.values())), dtype=self.stream_dtype)
        for name, values in columns.items():
            out[name] = values
        return out

    def unpack(
        self, stream: NDArray[Any], shard_lengths: Sequence[int], shards: Sequence[int]
    ) -> dict[str, NDArray[Any]]:
        """A contiguous array for each field; without a copy when there is one field."""
        del shard_lengths, shards  # part of the interface; this format does not need them
        return self.unpack_batch(stream)

    def unpack_batch(self, stream: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """The same for windows of any shape, for example (batch, sequence_length)."""
        if self._whole:
            batch = {name: np.ascontiguousarray(stream[name]) for name in self._fields}
        else:  # also arrays of one entry, which count as contiguous in any case, get a copy
            batch = {name: stream[name].copy() for name in self._fields}
        for name, dtype in self._views.items():
            batch[name] = batch[name].view(dtype)
        return batch

    def _column(self, name: str, value: Any) -> NDArray[Any]:
        """The values of a field, checked; the bits of an extension type."""
        stored = self._fields[name]
        if name not in self._views:
            return column(f"field {name!r}", value, stored)
        base, shape = base_and_shape(stored)
        given = np.dtype((self._views[name], shape))
        return column(f"field {name!r}", value, given).view(base)

    def __repr__(self) -> str:
        return f"StreamNumpyFormat({self.dtype!r})"

"""`ElementBatch`: from the stored elements of many windows to a batch, or into arrays given."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from guideloom_format import StreamNumpyFormat, StreamSpansFormat
from guideloom_format._masked import is_masked


class ElementBatch:
    """How elements of shape (batch, sequence_length) become what `gather` returns.

    Args:
        storage_format: of the stream.
        sequence_length: elements per window.
    """

    def __init__(self, storage_format: Any, sequence_length: int) -> None:
        self._format = storage_format
        self._length = sequence_length
        self.unpack_batch = getattr(storage_format, "unpack_batch", None)
        fields_of = storage_format
        if isinstance(storage_format, StreamSpansFormat):
            fields_of = storage_format.stream_format
        self._fields: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
        # One field that is the whole element: a batch is read straight into its array.
        self._only: str | None = None
        self._only_dtype: np.dtype[Any] | None = None
        self._only_shape: tuple[int, ...] = ()
        if isinstance(fields_of, StreamNumpyFormat):
            self._fields = fields_of.fields()
            self._find_only(fields_of)

    def _find_only(self, form: StreamNumpyFormat) -> None:
        if len(self._fields) == 1 and not form.parameters():
            name, (base, shape) = next(iter(self._fields.items()))
            if base.itemsize * math.prod(shape) == form.stream_dtype.itemsize:
                self._only, self._only_dtype = name, np.empty(0, base.str).dtype
                self._only_shape = (self._length, *shape)

    def target(self, out: Mapping[str, NDArray[Any]] | None, count: int) -> NDArray[Any] | None:
        """The array to read the elements into; None for a new one.

        Raises:
            TypeError: `out` does not fit `count` windows.
        """
        if out is None:
            return None
        if not self._fits(out, count):
            self._check_out(out, count)
        return out[self._only] if self._only is not None else None

    def batch(self, elements: NDArray[Any], out: Mapping[str, NDArray[Any]] | None = None) -> Any:
        """The batch of these elements; in `out`, if that was given."""
        if self._only is not None:
            return {self._only: elements[self._only]} if out is None else out
        if self.unpack_batch is None:
            raise TypeError(
                f"{type(self._format).__name__} has no unpack_batch, which gather needs; define "
                "it, or read samples with reader[ids]. unpack_batch(stream) takes the elements of "
                "all windows, (batch, sequence_length), and returns the batch"
            )
        batch = self.unpack_batch(elements)
        if out is None:
            return batch
        for name, values in batch.items():
            np.copyto(out[name], values)
        return out

    def _fits(self, out: Mapping[str, NDArray[Any]], count: int) -> bool:
        """Whether `out` is what is usually given; if not, `_check_out` looks at all of it."""
        if self._only is None or type(out) is not dict or len(out) != 1:
            return False
        array = out.get(self._only)
        return (
            type(array) is np.ndarray
            and array.dtype is self._only_dtype
            and array.shape == (count, *self._only_shape)
            and array.flags.carray
        )

    def _check_out(self, out: Mapping[str, NDArray[Any]], count: int) -> None:
        if not self._fields:
            raise TypeError(
                "gather takes `out` only for elements with fields, as StreamNumpyFormat has them"
            )
        if not isinstance(out, Mapping):
            raise TypeError(f"out is {type(out).__name__}; expected a mapping of field to array")
        if len(out) != len(self._fields):
            raise TypeError(f"out has the fields {sorted(out)}; expected {sorted(self._fields)}")
        for name, (base, shape) in self._fields.items():
            array = out.get(name)
            if (
                not isinstance(array, np.ndarray)
                or is_masked(array)
                or array.shape != (count, self._length, *shape)
                or array.dtype != base
                or not array.flags.carray
            ):
                raise TypeError(
                    f"out[{name!r}] is {_describe(array)}; expected a writable C-contiguous array "
                    f"of shape {(count, self._length, *shape)} and dtype {base}"
                )


def _describe(array: object) -> str:
    if not isinstance(array, np.ndarray):
        return type(array).__name__
    text = f"an array of shape {array.shape} and dtype {array.dtype}"
    if is_masked(array):
        text += ", masked"
    if not array.flags.writeable:
        text += ", read-only"
    return text if array.flags.c_contiguous else text + ", not C-contiguous"

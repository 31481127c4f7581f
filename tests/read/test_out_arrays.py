"""Arrays given to `gather` to fill: each field has one that fits exactly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from format.field_cases import EXTENSIONS, big_endian
from guideloom import StreamDataset, StreamNumpyFormat
from read.field_streams import ALIGNED, CONCEPTS, each_kind, empty_out, storage_of, write


def misfits(array: NDArray[Any]) -> Iterator[Any]:
    """Arrays that cannot take the values as they are, most of them of the same size in bytes."""
    bits = np.uint8 if array.dtype.itemsize == 1 else np.dtype(f"V{array.dtype.itemsize}")
    yield np.empty(array.shape, bits if array.dtype != bits else np.int8)
    if array.dtype.itemsize > 1:
        yield np.empty(array.shape, big_endian(array.dtype))
    for dtype in EXTENSIONS:
        if dtype.itemsize == array.dtype.itemsize and dtype != array.dtype:
            yield np.empty(array.shape, dtype)
    for shape in (array.shape[1:], (*array.shape, 1), (array.shape[0] + 1, *array.shape[1:])):
        yield np.empty(shape, array.dtype)
    yield np.empty((2, *array.shape), array.dtype).swapaxes(0, -1)[..., 0]
    frozen = array.copy()
    frozen.flags.writeable = False
    yield frozen
    yield np.ma.masked_array(array)
    yield array.tolist()
    yield None


@each_kind
@pytest.mark.parametrize(
    "dtype",
    [ALIGNED, CONCEPTS, *(np.dtype([("x", dtype)]) for dtype in ["<u2", *EXTENSIONS])],
    ids=str,
)
def test_out_must_fit_every_field(kind: str, dtype: np.dtype[Any], tmp_path: Path) -> None:
    storage = storage_of(kind, tmp_path, dtype)
    fields = StreamNumpyFormat(dtype).fields()
    write(storage, [{name: np.zeros((9, *shape), base) for name, (base, shape) in fields.items()}])
    with StreamDataset(storage, 3).sync_reader() as samples:
        for name in fields:
            out = empty_out(fields, 2, 3)
            for other in out.values():
                other.view(np.uint8)[...] = 1
            for misfit in misfits(out[name]):
                with pytest.raises(
                    TypeError, match=rf"^out\['{name}'\] is .*; expected a writable "
                ):
                    samples.gather([0, 1], out={**out, name: misfit})
            assert all((other.view(np.uint8) == 1).all() for other in out.values())
        with pytest.raises(TypeError, match="out has the fields"):
            samples.gather([0, 1], out={**empty_out(fields, 2, 3), "more": np.empty(1)})

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=False
"""Which bytes of which parts a window covers; described for callers in the stub `_index.pyi`."""

from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from libc.stdint cimport int64_t

import numpy as np

from guideloom_format._integers import as_index, index_array
from guideloom_format._search cimport first_part_after

MAX_ELEMENTS = 1 << 62
cdef int64_t LIMIT = <int64_t>1 << 62
_empty = np.empty
_ndarray = np.ndarray
_int64 = np.dtype(np.int64)


cdef struct Windows:
    const int64_t* ids
    int64_t windows
    int64_t count      # ids lie in [0, count)
    int64_t length
    int64_t stride
    int64_t itemsize


cdef int64_t plan_windows(
    const int64_t[::1] ends, const Windows* asked, int64_t* rows, int64_t capacity
) noexcept nogil:
    """Write one row per segment, as many as fit; the number of rows that all windows need.

    Each id is read once and checked then, since another thread may change it: a negative result
    -1 - k says that id k is outside.
    """
    cdef int64_t needed = 0, out = 0
    cdef int64_t part, element, left, taken, begin, k, window
    for k in range(asked.windows):
        window = asked.ids[k]
        if window < 0 or window >= asked.count:
            return -1 - k
        if asked.length == 0:
            continue
        element = window * asked.stride
        left = asked.length
        part = first_part_after(&ends[0], ends.shape[0], element)
        while left > 0:
            taken = min(left, ends[part] - element)
            if taken > 0:
                if needed < capacity:
                    begin = 0 if part == 0 else ends[part - 1]
                    rows[4 * needed] = part
                    rows[4 * needed + 1] = (element - begin) * asked.itemsize
                    rows[4 * needed + 2] = taken * asked.itemsize
                    rows[4 * needed + 3] = out
                needed += 1
                out += taken * asked.itemsize
                element += taken
                left -= taken
            part += 1
    return needed


cdef object id_array(object ids):
    """Any 1-d integers as a contiguous int64 array."""
    array = index_array("ids", ids)
    if array.ndim != 1:
        raise ValueError(f"ids has {array.ndim} dimensions; expected 1")
    return array


cdef bint is_int64_vector(const Py_buffer* view) noexcept nogil:
    return (
        view.ndim == 1 and view.itemsize == 8
        and (view.format[0] == b"l" or view.format[0] == b"q") and view.format[1] == 0
    )


cdef class StreamIndex:
    cdef const int64_t[::1] _ends
    cdef readonly object ends
    cdef readonly int64_t total

    def __init__(self, lengths):
        lengths = index_array("lengths", lengths)
        if lengths.ndim != 1:
            raise ValueError(f"lengths has {lengths.ndim} dimensions; expected 1")
        if lengths.size and int(lengths.min()) < 0:
            raise ValueError(f"lengths holds {int(lengths.min())}; expected 0 or more")
        ends = np.cumsum(lengths, dtype=np.int64)
        # A sum beyond int64 comes back smaller than the sum before it.
        wrapped = ends.size and bool(np.any(ends[1:] < ends[:-1]))
        if wrapped or (ends.size and (int(ends[-1]) > MAX_ELEMENTS or int(ends[-1]) < 0)):
            raise ValueError("the parts hold more than 2**62 elements together")
        ends.flags.writeable = False
        self.ends = ends
        self._ends = ends
        self.total = int(ends[-1]) if ends.size else 0

    def __len__(self):
        return self.total

    def __reduce__(self):
        return (StreamIndex, (np.diff(self.ends, prepend=0),))

    def count(self, length, stride):
        length = as_index("length", length, 0, MAX_ELEMENTS)
        stride = as_index("stride", stride, 1, MAX_ELEMENTS)
        return (self.total - length) // stride + 1 if length <= self.total else 0

    def plan(self, ids, length, itemsize, stride=1):
        cdef Windows asked
        cdef Py_buffer view
        if type(ids) is not _ndarray or ids.dtype is not _int64:
            ids = id_array(ids)
        flags = ids.flags
        if not flags.c_contiguous or not flags.aligned:
            ids = id_array(ids)
        if type(length) is not int or type(itemsize) is not int or type(stride) is not int:
            length = as_index("length", length, 0, MAX_ELEMENTS)
            itemsize = as_index("itemsize", itemsize, 1, MAX_ELEMENTS)
            stride = as_index("stride", stride, 1, MAX_ELEMENTS)
        asked.length, asked.itemsize, asked.stride = length, itemsize, stride
        PyObject_GetBuffer(ids, &view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS)
        try:
            if not is_int64_vector(&view):
                raise ValueError(f"ids has {view.ndim} dimensions; expected 1")
            asked.ids = <const int64_t*>view.buf
            asked.windows = view.shape[0]
            self._check(&asked)
            return self._rows(&asked)
        finally:
            PyBuffer_Release(&view)

    cdef int _check(self, Windows* asked) except -1:
        """Set the number of windows there are, and refuse sizes that cannot be."""
        cdef int64_t most
        if asked.length < 0 or asked.stride < 1 or max(asked.length, asked.stride) > LIMIT:
            self.count(asked.length, asked.stride)
        most = LIMIT // asked.itemsize if asked.itemsize > 0 else -1
        if self.total > most or (asked.windows and asked.length > most // asked.windows):
            raise ValueError(
                f"{asked.windows} windows of {asked.length} elements of {asked.itemsize} bytes, "
                f"from a stream of {self.total} elements: more than 2**62 bytes, or a size below 1"
            )
        asked.count = 0
        if asked.length <= self.total:
            asked.count = (self.total - asked.length) // asked.stride + 1
        return 0

    cdef object _rows(self, const Windows* asked):
        """The rows; planned a second time if windows cross parts and need more than one each."""
        cdef Py_buffer view
        cdef int64_t capacity = -1, needed = asked.windows if asked.length else 0
        while capacity != needed:
            capacity = needed
            rows = _empty((capacity, 4), _int64)
            PyObject_GetBuffer(rows, &view, PyBUF_WRITABLE)
            with nogil:
                needed = plan_windows(self._ends, asked, <int64_t*>view.buf, capacity)
            PyBuffer_Release(&view)
            if needed < 0:
                bad = -1 - needed
                raise IndexError(
                    f"window {asked.ids[bad]} at position {bad} is outside [0, {asked.count}): the "
                    f"stream has {self.total} elements, a window {asked.length}, with stride "
                    f"{asked.stride}"
                )
        return rows

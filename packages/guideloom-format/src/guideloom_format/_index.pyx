# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=False
"""Which bytes of which parts a window covers; described for callers in the stub `_index.pyi`."""

from libc.stdint cimport int64_t

import numpy as np

from guideloom_format._integers import as_index, index_array

MAX_ELEMENTS = 1 << 62


cdef int64_t first_part_after(const int64_t[::1] ends, int64_t element) noexcept nogil:
    """The part that holds `element`: the first whose end is greater. Empty parts are passed over."""
    cdef int64_t low = 0, high = ends.shape[0] - 1, middle
    while low < high:
        middle = (low + high) >> 1
        if ends[middle] > element:
            high = middle
        else:
            low = middle + 1
    return low


cdef int64_t plan_windows(
    const int64_t[::1] ends,
    const int64_t[::1] ids,
    int64_t stride,
    int64_t length,
    int64_t itemsize,
    int64_t[:, ::1] rows,
) noexcept nogil:
    """Write one row per segment, as many as fit; the number of rows that all windows need."""
    cdef int64_t needed = 0, out = 0, capacity = rows.shape[0]
    cdef int64_t part, element, left, taken, begin
    cdef Py_ssize_t k
    if length == 0:
        return 0
    for k in range(ids.shape[0]):
        element = ids[k] * stride
        left = length
        part = first_part_after(ends, element)
        while left > 0:
            taken = min(left, ends[part] - element)
            if taken > 0:
                if needed < capacity:
                    begin = 0 if part == 0 else ends[part - 1]
                    rows[needed, 0] = part
                    rows[needed, 1] = (element - begin) * itemsize
                    rows[needed, 2] = taken * itemsize
                    rows[needed, 3] = out
                needed += 1
                out += taken * itemsize
                element += taken
                left -= taken
            part += 1
    return needed


cdef int64_t first_outside(const int64_t[::1] ids, int64_t count) noexcept nogil:
    cdef Py_ssize_t k
    for k in range(ids.shape[0]):
        if ids[k] < 0 or ids[k] >= count:
            return k
    return -1


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
        cdef const int64_t[::1] windows
        cdef int64_t[:, ::1] rows
        cdef int64_t needed, bad
        cdef int64_t c_length, c_stride, c_itemsize, c_count
        array = ids if type(ids) is np.ndarray else index_array("ids", ids)
        if array.dtype != np.int64 or array.ndim != 1 or not array.flags.c_contiguous:
            array = index_array("ids", array)
            if array.ndim != 1:
                raise ValueError(f"ids has {array.ndim} dimensions; expected 1")
        count = self.count(length, stride)
        c_length, c_stride, c_itemsize, c_count = length, stride, itemsize, count
        if c_itemsize < 0 or max(self.total, array.size * length) * itemsize > MAX_ELEMENTS:
            raise ValueError(
                f"{array.size} windows of {length} elements of {itemsize} bytes, from a stream of "
                f"{self.total} elements: more than 2**62 bytes, or a negative size"
            )
        windows = array
        bad = first_outside(windows, c_count)
        if bad >= 0:
            raise IndexError(
                f"window {windows[bad]} at position {bad} is outside [0, {count}): the stream has "
                f"{self.total} elements, a window {length}, with stride {stride}"
            )
        plan = np.empty((array.size + (array.size >> 2) + 8, 4), dtype=np.int64)
        rows = plan
        with nogil:
            needed = plan_windows(self._ends, windows, c_stride, c_length, c_itemsize, rows)
        if needed > plan.shape[0]:
            plan = np.empty((needed, 4), dtype=np.int64)
            rows = plan
            with nogil:
                plan_windows(self._ends, windows, c_stride, c_length, c_itemsize, rows)
        return plan[:needed]

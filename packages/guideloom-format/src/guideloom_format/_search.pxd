# cython: language_level=3
"""The one search that index and planner share."""

from libc.stdint cimport int64_t


cdef inline int64_t first_part_after(
    const int64_t* ends, int64_t parts, int64_t element
) noexcept nogil:
    """The part that holds `element`: the first whose end is greater. Empty parts are passed over.

    The element must lie before the last end.
    """
    cdef int64_t low = 0, high = parts - 1, middle
    while low < high:
        middle = (low + high) >> 1
        if ends[middle] > element:
            high = middle
        else:
            low = middle + 1
    return low

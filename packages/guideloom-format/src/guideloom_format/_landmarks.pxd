# cython: language_level=3
"""Landmarks: the ends of every so many rows of spans, remembered when they were read anyway.

They narrow a search before anything is read. There are few, however many spans there are. Threads
share them without a lock: what they write is the same, and a search checks what it finds.
"""

from libc.stdint cimport int64_t

from guideloom_format._spans cimport Segment

cdef enum:
    BY_INTERPOLATION = 6


cdef inline int64_t guessed_row(const Segment* s) noexcept nogil:
    """Where the first span would be if the spans between low and high were equally long."""
    cdef double share = 0.5
    if s.high_end > s.low_end:
        share = <double>(s.begin - s.low_end) / <double>(s.high_end - s.low_end)
        share = min(max(share, 0.0), 1.0)
    return s.low + <int64_t>(share * <double>(s.high - s.low))


cdef inline void follow_landmarks(Segment* s, const int64_t* known, int64_t step) noexcept nogil:
    """Narrow a search by the landmarks of its part, as far as they are known."""
    cdef int64_t low = 0, high = s.rows // step, tries = 0, middle, end
    while low < high:
        middle = (low + high) >> 1
        if tries < BY_INTERPOLATION:
            middle = min(max(guessed_row(s) // step, low), high - 1)
        tries += 1
        end = known[middle]
        if end == 0:
            return
        s.guided = True
        if end > s.begin:
            high = middle
            s.high = (middle + 1) * step - 1
            s.high_end = end
        else:
            low = middle + 1
            s.low = low * step
            s.low_end = end
        if s.low > s.high:  # the last row ends before the segment does: the search will say so
            s.low = s.high
            return


cdef inline void forget_landmarks(const Segment* s, int64_t* known, int64_t step) noexcept nogil:
    """Forget those of a segment's part: they led to rows that cannot be."""
    cdef int64_t k
    for k in range(s.rows // step):
        known[k] = 0


cdef inline void learn_landmarks(
    int64_t* known, int64_t step, const int64_t* chunk, int64_t first, int64_t count
) noexcept nogil:
    """Remember the landmarks among the rows that were read."""
    cdef int64_t number = first // step
    cdef int64_t row = (number + 1) * step - 1
    while row < first + count:
        known[number] = chunk[2 * (row - first)]
        row += step
        number += 1

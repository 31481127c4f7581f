# cython: language_level=3
"""What the search for spans hands to the module that makes pieces of them."""

from libc.stdint cimport int64_t


cdef struct Segment:
    int64_t part
    int64_t window
    int64_t begin       # elements of the part
    int64_t end
    int64_t column      # of `begin` in its window
    int64_t rows        # spans of the part
    int64_t low         # the first span is one of the rows low to high
    int64_t high
    int64_t low_end     # elements before row `low`
    int64_t high_end    # elements up to the end of row `high`
    int64_t probes
    bint guided         # by landmarks
    int64_t first       # the rows of the present probe
    int64_t count
    int64_t expected    # rows that the segment's spans will take, roughly
    int64_t wanted      # rows to read once the first is known
    int64_t found_first
    int64_t found_count
    const int64_t* found  # rows from the one before the first span to the last span


cdef class SpanIndex:
    cdef readonly object counts
    cdef readonly object bases
    cdef readonly object lengths
    cdef readonly object payload_sizes
    cdef readonly int64_t total
    cdef const int64_t[::1] _counts
    cdef const int64_t[::1] _bases
    cdef const int64_t[::1] _lengths
    cdef const int64_t[::1] _payload_sizes
    cdef readonly int64_t step        # rows from one landmark of a part to the next
    cdef int64_t[::1] _landmarks      # ends of those rows, as far as they were read; 0 if not
    cdef const int64_t[::1] _landmark_bases


cdef class SpanSearch:
    cdef Segment* _segments
    cdef int64_t* _waiting            # numbers of the segments whose spans are not found yet
    cdef int64_t _parts
    cdef int64_t _count
    cdef int64_t _open                # how many are waiting
    cdef SpanIndex _index
    cdef object _chunks               # the arrays that `found` points into
    cdef readonly int64_t windows
    cdef readonly int64_t asked       # rows that the latest probes ask for
    cdef bint _void                   # damaged rows were met
    cdef bint _begin(self, Segment* s) noexcept

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=False
"""Which spans windows touch: a search over span ends; described for callers in `_spans.pyi`.

A segment is what a window has of one part: elements a to b. Its first span is the first row whose
end is greater than a. The search guesses the row by interpolation, reads rows around it, and
narrows the rows that come into question; when guesses have not helped, it halves.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

import numpy as np

from guideloom_format._index import StreamIndex
from guideloom_format._spans cimport Segment, SpanSearch

cdef enum:
    GUESSES = 4         # by interpolation; halving from then on
    MOST_PROBES = 200   # more than any search needs: 60 halvings, then rows by the fourfold
    PROBE = 96          # rows read at once
    FOUND = 1
    GO_ON = 0
    WRONG = -1

_empty = np.empty
_int64 = np.dtype(np.int64)


cdef void choose_probe(Segment* s) noexcept nogil:
    """Set the rows to read next: always some that can narrow the search."""
    cdef int64_t guess, before
    cdef double share
    before = s.low - 1 if s.low else 0
    s.probes += 1
    if s.low == s.high:
        s.first = before
        s.count = min(s.wanted, s.rows - before)
        s.wanted = min(4 * s.wanted, s.rows + 1)
        return
    if s.high - before < PROBE:
        s.first = before
    else:
        if s.probes <= GUESSES and s.high_end > s.low_end:
            share = <double>(s.begin - s.low_end) / <double>(s.high_end - s.low_end)
            share = min(max(share, 0.0), 1.0)
            guess = s.low + <int64_t>(share * <double>(s.high - s.low))
        else:
            guess = s.low + (s.high - s.low) // 2
        s.first = max(min(guess, s.high) - PROBE // 2, before)
    s.count = min(PROBE, s.rows - s.first)


cdef int take_probe(Segment* s, const int64_t* chunk) noexcept nogil:
    """Narrow the search by the rows that were read: FOUND, GO_ON, or WRONG."""
    cdef int64_t low = 0, high = s.count, middle, last
    while low < high:
        middle = (low + high) >> 1
        if chunk[2 * middle] > s.begin:
            high = middle
        else:
            low = middle + 1
    if low == s.count:
        s.low = s.first + s.count
        s.low_end = chunk[2 * (s.count - 1)]
        return GO_ON if s.low <= s.high else WRONG
    if low == 0 and s.first > 0:
        s.high = s.first
        s.high_end = chunk[0]
        return GO_ON if s.low <= s.high else WRONG
    s.low = s.high = s.first + low
    last = low
    while last < s.count and chunk[2 * last] < s.end:
        last += 1
    if last == s.count:
        return GO_ON if s.first + s.count < s.rows else WRONG
    if low:
        low -= 1
    s.found = chunk + 2 * low
    s.found_first = s.first + low
    s.found_count = last + 1 - low
    return FOUND


cdef bint is_damaged(const Segment* s, int64_t elements, int64_t payload_bytes) noexcept nogil:
    """Whether the rows that were found cannot be."""
    cdef int64_t k, end = 0, payload = 0
    cdef const int64_t* row
    for k in range(s.found_count):
        row = s.found + 2 * k
        if row[0] < end or row[1] < payload or row[0] > elements or row[1] > payload_bytes:
            return True
        end = row[0]
        payload = row[1]
        if k == 0 and s.found_first != s.low and end > s.begin:
            return True
    if s.found_first + s.found_count == s.rows:
        return end != elements or payload != payload_bytes
    return False


cdef class SpanIndex:
    cdef readonly object counts, bases, lengths, payload_sizes
    cdef readonly int64_t total

    def __init__(self, counts, lengths, payload_sizes):
        ends = StreamIndex(counts).ends
        self.counts = np.diff(ends, prepend=0)
        self.bases = ends - self.counts
        self.total = int(ends[-1]) if ends.size else 0
        self.lengths = np.ascontiguousarray(lengths, dtype=np.int64)
        self.payload_sizes = np.ascontiguousarray(payload_sizes, dtype=np.int64)
        if not self.lengths.size == self.payload_sizes.size == ends.size:
            raise ValueError("counts, lengths and payload_sizes differ in length")

    def __len__(self):
        return self.total


class WrongSpansError(Exception):
    """The rows that were read for a window's spans cannot be: part, first and last row."""

    def __init__(self, part, first, last):
        super().__init__(f"rows {first} to {last} of part {part} are damaged")
        self.part = part
        self.first = first
        self.last = last


cdef class SpanSearch:
    def __init__(self, index, plan, itemsize, window_bytes, windows):
        cdef const int64_t[:, ::1] rows = plan
        cdef const int64_t[::1] counts = index.counts, lengths = index.lengths
        cdef int64_t k, size = itemsize, window = window_bytes, before = 0
        cdef Segment* s
        if rows.shape[1] != 4 or size < 1 or window < 1 or windows < 0:
            raise ValueError(
                f"a plan of {rows.shape[1]} columns, itemsize {size}, window_bytes {window}, "
                f"{windows} windows; expected 4 columns, and numbers of at least 1, 1 and 0"
            )
        self._index = index
        self._chunks = []
        self._parts = counts.shape[0]
        self._count = self._open = rows.shape[0]
        self.windows = windows
        self._waiting = np.arange(self._count, dtype=np.int64)
        self._segments = <Segment*>calloc(max(self._count, 1), sizeof(Segment))
        if self._segments == NULL:
            raise MemoryError
        for k in range(self._count):
            s = &self._segments[k]
            s.part = rows[k, 0]
            if s.part < 0 or s.part >= counts.shape[0]:
                raise IndexError(f"row {k} names part {s.part} of {counts.shape[0]}")
            s.begin = rows[k, 1] // size
            s.end = s.begin + rows[k, 2] // size
            s.window = rows[k, 3] // window
            s.column = (rows[k, 3] - s.window * window) // size
            s.rows = counts[s.part]
            if s.rows < 1 or s.begin < 0 or s.end > lengths[s.part] or s.begin >= s.end:
                raise IndexError(f"row {k} lies outside part {s.part}")
            if s.window < before or s.window >= windows or rows[k, 3] < 0:
                raise IndexError(
                    f"row {k} belongs to window {s.window}; expected {before} to {windows - 1}"
                )
            before = s.window
            s.high = s.rows - 1
            s.high_end = lengths[s.part]
            s.wanted = PROBE

    def __dealloc__(self):
        free(self._segments)

    def probes(self):
        cdef int64_t[:, ::1] rows
        cdef int64_t k, at = 0, parts = self._parts
        cdef Segment* s
        if self._void:
            raise ValueError("the search met damaged rows and has ended")
        if self._open == 0:
            return None
        self._asked = True
        out = _empty((self._open, 4), _int64)
        rows = out
        with nogil:
            for k in range(self._open):
                s = &self._segments[self._waiting[k]]
                choose_probe(s)
                rows[k, 0] = parts + s.part
                rows[k, 1] = 16 * s.first
                rows[k, 2] = 16 * s.count
                rows[k, 3] = at
                at += 16 * s.count
        return out

    def take(self, chunk):
        cdef const int64_t[:, ::1] read = chunk
        cdef const int64_t[::1] lengths = self._index.lengths
        cdef const int64_t[::1] payload_sizes = self._index.payload_sizes
        cdef int64_t k, at = 0, left = 0, wrong = -1, number
        cdef int outcome
        cdef Segment* s
        if not self._asked or self._void:
            raise ValueError("take follows probes, once")
        for k in range(self._open):
            at += self._segments[self._waiting[k]].count
        if at != read.shape[0] or read.shape[1] != 2:
            raise ValueError(f"{read.shape[0]} rows were read; {at} were asked for")
        at = 0
        with nogil:
            for k in range(self._open):
                number = self._waiting[k]
                s = &self._segments[number]
                outcome = take_probe(s, &read[at, 0])
                if outcome == FOUND and is_damaged(s, lengths[s.part], payload_sizes[s.part]):
                    outcome = WRONG
                if outcome == WRONG or s.probes > MOST_PROBES:
                    wrong = number
                    break
                if outcome == GO_ON:
                    self._waiting[left] = number
                    left += 1
                at += s.count
        self._asked = False
        if wrong >= 0:
            self._void = True
            s = &self._segments[wrong]
            raise WrongSpansError(s.part, s.first, s.first + s.count - 1)
        self._open = left
        self._chunks.append(chunk)

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=False
"""Which spans windows touch: a search over span ends; described for callers in `_spans.pyi`.

A segment is what a window has of one part: elements a to b. Its first span is the first row whose
end is greater than a. The search guesses the row by interpolation, reads rows around it, and
narrows the rows that come into question; when guesses have not helped, it halves.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc

import numpy as np

from guideloom_format._index import StreamIndex
from guideloom_format._integers import index_array
from guideloom_format._landmarks cimport (
    follow_landmarks, forget_landmarks, guessed_row, learn_landmarks,
)
from guideloom_format._spans cimport Segment, SpanIndex, SpanSearch

cdef enum:
    GUESSES = 4         # by interpolation; halving from then on
    MOST_PROBES = 200   # more than any search needs: 60 halvings, then rows by the fourfold
    PROBE = 96          # rows read at once while the first span is not known
    MOST_LANDMARKS = 1 << 16
    SMALLEST_STEP = 16
    FOUND = 1
    GO_ON = 0
    WRONG = -1

_empty = np.empty
_int64 = np.dtype(np.int64)


cdef void search_all(Segment* s, int64_t elements) noexcept nogil:
    """Begin with all rows of the part."""
    s.low = s.low_end = s.probes = 0
    s.high = s.rows - 1
    s.high_end = elements
    s.wanted = s.expected + 2
    s.guided = False


cdef void choose_probe(Segment* s) noexcept nogil:
    """Set the rows to read next: always some that can narrow the search."""
    cdef int64_t guess, before = s.low - 1 if s.low else 0
    s.probes += 1
    if s.low == s.high:
        s.first = before
        s.count = s.wanted
        s.wanted = min(4 * s.wanted, s.rows + 1)
    elif s.high - before < PROBE:
        s.first = before
        s.count = s.high - before + s.expected
    else:
        guess = guessed_row(s) if s.probes <= GUESSES else s.low + (s.high - s.low) // 2
        s.first = max(min(guess, s.high) - PROBE // 2, before)
        s.count = PROBE + min(s.expected, PROBE)
    s.count = min(s.count, s.rows - s.first)


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
        if last < s.count and chunk[2 * last] < chunk[2 * last - 2]:
            return WRONG  # and not the reason to read on and on
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
    if s.found_first + s.found_count == s.rows:
        return end != elements or payload != payload_bytes
    return False


cdef class SpanIndex:
    def __init__(self, counts, lengths, payload_sizes):
        ends = StreamIndex(counts).ends
        self.counts = np.diff(ends, prepend=0)
        self.bases = ends - self.counts
        self.total = int(self.counts.sum())
        self.lengths = index_array("lengths", lengths)
        self.payload_sizes = index_array("payload_sizes", payload_sizes)
        if not self.lengths.size == self.payload_sizes.size == ends.size:
            raise ValueError("counts, lengths and payload_sizes differ in length")
        self._counts, self._bases = self.counts, self.bases
        self._lengths, self._payload_sizes = self.lengths, self.payload_sizes
        self.step = SMALLEST_STEP
        while int((self.counts // self.step).sum()) > MOST_LANDMARKS:
            self.step *= 2
        landmarks = np.cumsum(self.counts // self.step, dtype=np.int64)
        self._landmark_bases = landmarks - self.counts // self.step
        self._landmarks = np.zeros(int((self.counts // self.step).sum()) + 1, dtype=np.int64)

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
    def __init__(self, SpanIndex index not None, plan, itemsize, window_bytes, windows):
        cdef const int64_t[:, ::1] rows = plan
        cdef int64_t k, size = itemsize, window = window_bytes, before = 0
        cdef Segment* s
        if rows.shape[1] != 4 or size < 1 or window < 1 or windows < 0:
            raise ValueError(
                f"a plan of {rows.shape[1]} columns, itemsize {size}, window_bytes {window}, "
                f"{windows} windows; expected 4 columns, and numbers of at least 1, 1 and 0"
            )
        free(self._segments)
        free(self._waiting)
        self._index = index
        self._parts = index._counts.shape[0]
        self._chunks = []
        self._count = self._open = rows.shape[0]
        self.asked = 0
        self.windows = windows
        self._segments = <Segment*>calloc(self._count + 1, sizeof(Segment))
        self._waiting = <int64_t*>malloc((self._count + 1) * sizeof(int64_t))
        if self._segments == NULL or self._waiting == NULL:
            raise MemoryError
        for k in range(self._count):
            s = &self._segments[k]
            self._waiting[k] = k
            s.part = rows[k, 0]
            if s.part < 0 or s.part >= self._parts:
                raise IndexError(f"row {k} names part {s.part} of {self._parts}")
            s.begin = rows[k, 1] // size
            s.end = s.begin + rows[k, 2] // size
            s.window = rows[k, 3] // window
            s.column = (rows[k, 3] - s.window * window) // size
            if not self._begin(s):
                raise IndexError(f"row {k} lies outside part {s.part}")
            if s.window < before or s.window >= windows or rows[k, 3] < 0:
                raise IndexError(
                    f"row {k} belongs to window {s.window}; expected {before} to {windows - 1}"
                )
            before = s.window

    cdef bint _begin(self, Segment* s) noexcept:
        """Set what the search for a segment begins with; whether the segment lies in its part."""
        cdef SpanIndex index = self._index
        cdef int64_t elements = index._lengths[s.part]
        cdef double share
        s.rows = index._counts[s.part]
        if s.rows < 1 or s.begin < 0 or s.end > elements or s.begin >= s.end:
            return False
        share = <double>(s.end - s.begin) / <double>elements
        s.expected = min(<int64_t>(1.25 * share * <double>s.rows), s.end - s.begin) + 8
        search_all(s, elements)
        follow_landmarks(s, &index._landmarks[index._landmark_bases[s.part]], index.step)
        return True

    def __dealloc__(self):
        free(self._segments)
        free(self._waiting)

    def probes(self):
        cdef int64_t[:, ::1] rows
        cdef int64_t k
        cdef Segment* s
        if self._void:
            raise ValueError("the search met damaged rows and has ended")
        if self._open == 0:
            return None
        out = _empty((self._open, 4), _int64)
        rows = out
        self.asked = 0
        with nogil:
            for k in range(self._open):
                s = &self._segments[self._waiting[k]]
                choose_probe(s)
                rows[k, 0] = self._parts + s.part
                rows[k, 1] = 16 * s.first
                rows[k, 2] = 16 * s.count
                rows[k, 3] = 16 * self.asked
                self.asked += s.count
        return out

    def take(self, chunk):
        cdef const int64_t[:, ::1] read = chunk
        cdef SpanIndex index = self._index
        cdef int64_t k, at = 0, left = 0, wrong = -1, number
        cdef int outcome
        cdef int64_t* known
        cdef Segment* s
        if self.asked == 0:
            raise ValueError("take follows probes, once")
        if read.shape[0] != self.asked or read.shape[1] != 2:
            raise ValueError(f"{read.shape[0]} rows were read; {self.asked} were asked for")
        with nogil:
            for k in range(self._open):
                number = self._waiting[k]
                s = &self._segments[number]
                outcome = take_probe(s, &read[at, 0])
                if outcome == FOUND and is_damaged(
                    s, index._lengths[s.part], index._payload_sizes[s.part]
                ):
                    outcome = WRONG
                known = &index._landmarks[index._landmark_bases[s.part]]
                at += s.count
                if outcome == WRONG and s.guided:
                    forget_landmarks(s, known, index.step)
                    search_all(s, index._lengths[s.part])
                    outcome = GO_ON
                elif outcome == WRONG or s.probes > MOST_PROBES:
                    wrong = number
                    break
                else:
                    learn_landmarks(known, index.step, &read[at - s.count, 0], s.first, s.count)
                if outcome == GO_ON:
                    self._waiting[left] = number
                    left += 1
        self.asked = 0
        if wrong >= 0:
            self._void = True
            s = &self._segments[wrong]
            raise WrongSpansError(s.part, s.first, s.first + s.count - 1)
        self._open = left
        self._chunks.append(chunk)

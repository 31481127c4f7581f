# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=False
"""The pieces of spans in windows, and their payloads; described for callers in `_span_pieces.pyi`.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free

import numpy as np

from guideloom_format._spans cimport Segment, SpanIndex, SpanSearch

cdef int64_t LIMIT = <int64_t>1 << 62
_empty = np.empty
_int64 = np.dtype(np.int64)


cdef struct Pieces:
    int64_t* offsets      # of the pieces of each window
    int64_t* starts
    int64_t* lengths
    int64_t* spans        # global numbers
    int64_t* payload      # numbers in the list of payloads
    int64_t count
    int64_t parts
    int64_t* payload_offsets
    int64_t* payload_parts
    int64_t payloads
    int64_t* rows         # what to read of the files of payloads
    int64_t used          # rows written
    int64_t* table        # pairs (span + 1, number of its payload): open addressing
    uint64_t mask
    bint overflows


cdef int64_t count_pieces(const Segment* segments, int64_t count) noexcept nogil:
    """An upper bound of the pieces: spans without elements are counted as well."""
    cdef int64_t k, total = 0
    for k in range(count):
        total += segments[k].found_count
    return total


cdef int64_t known_payload(Pieces* out, int64_t span) noexcept nogil:
    """The number of a span's payload, or -1 if it comes for the first time and is now the next."""
    cdef uint64_t slot
    if out.table == NULL:
        return -1
    slot = (<uint64_t>span * <uint64_t>0x9E3779B97F4A7C15) >> 32 & out.mask
    while out.table[2 * slot]:
        if out.table[2 * slot] == span + 1:
            return out.table[2 * slot + 1]
        slot = (slot + 1) & out.mask
    out.table[2 * slot] = span + 1
    out.table[2 * slot + 1] = out.payloads
    return -1


cdef void add_payload(Pieces* out, int64_t part, int64_t start, int64_t nbytes) noexcept nogil:
    """Put a payload behind the others; one read for those that are neighbours in their file."""
    cdef int64_t at = out.payload_offsets[out.payloads]
    if nbytes > LIMIT - at:
        out.overflows = True
        nbytes = 0
    cdef int64_t file = 2 * out.parts + part
    cdef int64_t* row
    if nbytes:
        row = out.rows + 4 * (out.used - 1)
        if out.used and row[0] == file and row[1] + row[2] == start:
            row[2] += nbytes
        else:
            row += 4
            row[0] = file
            row[1] = start
            row[2] = nbytes
            row[3] = at
            out.used += 1
    out.payload_parts[out.payloads] = part
    out.payloads += 1
    out.payload_offsets[out.payloads] = at + nbytes


cdef void add_segment(Pieces* out, const Segment* s, int64_t base) noexcept nogil:
    """The pieces of one segment, each clipped to it."""
    cdef int64_t k, start, stop, number
    cdef int64_t end = 0, payload = 0
    cdef const int64_t* row
    for k in range(s.found_count):
        row = s.found + 2 * k
        start = max(end, s.begin)
        stop = min(row[0], s.end)
        if stop > start and s.found_first + k >= s.low:
            number = known_payload(out, base + s.found_first + k)
            if number < 0:
                number = out.payloads
                add_payload(out, s.part, payload, row[1] - payload)
            out.starts[out.count] = s.column + start - s.begin
            out.lengths[out.count] = stop - start
            out.spans[out.count] = base + s.found_first + k
            out.payload[out.count] = number
            out.count += 1
        end = row[0]
        payload = row[1]


def pieces(SpanSearch search not None, bint unique):
    cdef Pieces out
    cdef int64_t k, window = 0, most
    cdef SpanIndex index = search._index
    cdef int64_t[::1] block
    if search._open or search._void:
        raise ValueError(f"the spans of {search._open} segments are not found yet")
    most = count_pieces(search._segments, search._count)
    # One block of memory for all that is returned.
    memory = _empty(search.windows + 2 + 10 * most, _int64)
    block = memory
    out.offsets = &block[0]
    out.payload_offsets = out.offsets + search.windows + 1
    out.payload_parts = out.payload_offsets + most + 1
    out.starts = out.payload_parts + most
    out.lengths = out.starts + most
    out.spans = out.lengths + most
    out.payload = out.spans + most
    out.rows = out.payload + most
    out.count = out.payloads = out.used = 0
    out.offsets[0] = out.payload_offsets[0] = 0
    out.table = NULL
    out.overflows = False
    out.parts = search._parts
    if unique and most:
        out.mask = 1
        while out.mask < <uint64_t>(2 * most):
            out.mask *= 2
        out.table = <int64_t*>calloc(2 * out.mask, sizeof(int64_t))
        if out.table == NULL:
            raise MemoryError
        out.mask -= 1
    with nogil:
        for k in range(search._count):
            while window < search._segments[k].window:
                window += 1
                out.offsets[window] = out.count
            add_segment(&out, &search._segments[k], index._bases[search._segments[k].part])
        while window < search.windows:
            window += 1
            out.offsets[window] = out.count
        free(out.table)
    if out.overflows:
        raise ValueError("the payloads of these windows have more than 2**62 bytes together")
    at = search.windows + 1
    columns = memory[at + 2 * most + 1 : at + 6 * most + 1].reshape(4, most)
    return (
        memory[:at],
        columns[:, : out.count],
        memory[at : at + out.payloads + 1],
        memory[at + most + 1 : at + most + 1 + out.payloads],
        memory[at + 6 * most + 1 :].reshape(most, 4)[: out.used],
    )

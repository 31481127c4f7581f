# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=False
"""Which bytes of which parts documents cover; described for callers in `_documents.pyi`."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t

import numpy as np

from guideloom_format._integers import index_array
from guideloom_format._index import StreamIndex
from guideloom_format._search cimport first_part_after

_empty = np.empty
_int64 = np.dtype(np.int64)
cdef int64_t LIMIT = <int64_t>1 << 62
cdef int64_t END = 8


cdef int64_t plan_ends(
    const int64_t* ends, int64_t parts, const int64_t[::1] ids, int64_t* rows
) noexcept nogil:
    """One row per document: its end and, unless it is the first of its part, the end before it.

    A negative result -1 - k says that id k is outside. Each id is read once and checked then,
    since another thread may change it.
    """
    cdef int64_t k, part, within, document
    cdef int64_t total = ends[parts - 1] if parts else 0
    for k in range(ids.shape[0]):
        document = ids[k]
        if document < 0 or document >= total:
            return -1 - k
        part = first_part_after(ends, parts, document)
        within = document - (ends[part - 1] if part else 0)
        rows[4 * k] = parts + part
        rows[4 * k + 1] = 8 * (within - 1) if within else 0
        rows[4 * k + 2] = 16 if within else 8
        rows[4 * k + 3] = 16 * k if within else 16 * k + 8
    return ids.shape[0]


cdef struct Documents:
    const int64_t* end_rows   # what plan_ends wrote
    const int64_t* bounds     # the ends that were read for them: two for each document
    int64_t count
    const int64_t* sizes      # of the files of documents, by part
    const int64_t* end_sizes  # of the files of ends
    int64_t parts
    int64_t itemsize
    int64_t width             # bytes from one document to the next in the output; -1: no gaps
    int64_t* rows
    int64_t* offsets
    int64_t used              # rows written


cdef int64_t plan_bytes(Documents* asked) noexcept nogil:
    """One row for each document that has bytes, and where each begins in the output, in items.

    A negative result -1 - k says that the ends of document k cannot be.
    """
    cdef int64_t k, part, start, end, size, target = 0, packed = 0
    cdef const int64_t* from_ends
    cdef int64_t* row
    asked.used = 0
    asked.offsets[0] = 0
    for k in range(asked.count):
        from_ends = asked.end_rows + 4 * k
        part = from_ends[0] - asked.parts
        start = asked.bounds[2 * k] if from_ends[2] == 16 else 0
        end = asked.bounds[2 * k + 1]
        size = asked.sizes[part]
        if start < 0 or end < start or end > size or (end - start) % asked.itemsize:
            return -1 - k
        if from_ends[1] + from_ends[2] == asked.end_sizes[part] and end != size:
            return -1 - k
        if end - start > LIMIT - packed:
            return -1 - k
        if end > start:
            row = asked.rows + 4 * asked.used
            row[0] = part
            row[1] = start
            row[2] = end - start
            row[3] = packed if asked.width < 0 else k * asked.width
            asked.used += 1
        packed += end - start
        asked.offsets[k + 1] = packed // asked.itemsize
    return asked.count


cdef class DocumentIndex:
    cdef const int64_t[::1] _ends
    cdef const int64_t[::1] _sizes
    cdef const int64_t[::1] _end_sizes
    cdef readonly int64_t total
    cdef readonly int64_t itemsize

    def __init__(self, lengths, sizes, itemsize):
        index = StreamIndex(lengths)
        self._ends = index.ends
        self._sizes = index_array("sizes", sizes)
        self._end_sizes = END * np.diff(index.ends, prepend=0)
        if self._sizes.shape[0] != self._ends.shape[0]:
            raise ValueError(
                f"{self._sizes.shape[0]} sizes for {self._ends.shape[0]} parts; expected as many"
            )
        if index.total > LIMIT // END:
            raise ValueError(f"the parts hold {index.total} documents; expected at most 2**59")
        if self._sizes.shape[0] and int(np.min(self._sizes)) < 0:
            raise ValueError(f"sizes holds {int(np.min(self._sizes))}; expected 0 or more")
        if itemsize < 1:
            raise ValueError(f"itemsize is {itemsize}; expected at least 1")
        self.itemsize = itemsize
        self.total = index.total

    def __len__(self):
        return self.total

    def plan_ends(self, ids):
        cdef int64_t[:, ::1] rows
        cdef int64_t done
        cdef const int64_t* ends = NULL
        array = index_array("ids", ids)
        if array.ndim != 1:
            raise ValueError(f"ids has {array.ndim} dimensions; expected 1")
        cdef const int64_t[::1] asked = array
        out = _empty((asked.shape[0], 4), _int64)
        if asked.shape[0]:
            rows = out
            if self._ends.shape[0]:
                ends = &self._ends[0]
            with nogil:
                done = plan_ends(ends, self._ends.shape[0], asked, &rows[0, 0])
            if done < 0:
                bad = -1 - done
                raise IndexError(
                    f"document {asked[bad]} at position {bad} is outside [0, {self.total}), the "
                    "documents of this dataset"
                )
        return out

    def plan(self, end_rows, bounds, width=-1):
        cdef Documents asked
        cdef const int64_t[:, ::1] given = end_rows
        cdef const int64_t[:, ::1] read = bounds
        cdef int64_t[:, ::1] rows
        cdef int64_t[::1] offsets
        cdef int64_t done, k
        asked.count = given.shape[0]
        asked.parts = self._sizes.shape[0]
        if read.shape[0] != asked.count or read.shape[1] != 2 or given.shape[1] != 4:
            raise ValueError("as many bounds as rows are needed")
        for k in range(asked.count):
            if not asked.parts <= given[k, 0] < 2 * asked.parts:
                raise IndexError(f"row {k} names file {given[k, 0]}, which has no ends")
        out_offsets = _empty(asked.count + 1, _int64)
        out_rows = _empty((asked.count, 4), _int64)
        offsets = out_offsets
        rows = out_rows
        if asked.count:
            asked.end_rows = &given[0, 0]
            asked.bounds = &read[0, 0]
            asked.rows = &rows[0, 0]
            asked.sizes = &self._sizes[0]
            asked.end_sizes = &self._end_sizes[0]
        asked.offsets = &offsets[0]
        asked.itemsize = self.itemsize
        asked.width = width
        with nogil:
            done = plan_bytes(&asked)
        if done < 0:
            raise WrongEndsError(-1 - done)
        return (out_rows if asked.used == asked.count else out_rows[: asked.used]), out_offsets


class WrongEndsError(Exception):
    """The ends that were read for a document cannot be; its number in the batch."""

    def __init__(self, position):
        super().__init__(f"the ends of document {position} of the batch are damaged")
        self.position = position


def split(values, offsets):
    cdef const unsigned char[::1] data = values
    cdef const int64_t[::1] at = offsets
    cdef Py_ssize_t k
    cdef list out = []
    for k in range(at.shape[0] - 1):
        if at[k] < 0 or at[k] > at[k + 1] or at[k + 1] > data.shape[0]:
            raise IndexError(f"document {k} lies outside the buffer")
        if at[k] == at[k + 1]:
            out.append(b"")
        else:
            out.append(
                PyBytes_FromStringAndSize(<const char*>&data[at[k]], at[k + 1] - at[k])
            )
    return out

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=False
"""Many byte ranges into one buffer, without the GIL; described for callers in `_gather.pyi`.

Rows are those of a plan: file, byte offset, number of bytes, byte offset in the output. Each row
is checked against the sizes of file and output before a pointer is formed.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EINTR, errno
from libc.stdint cimport int32_t, int64_t, uintptr_t
from libc.string cimport memcpy
from posix.types cimport off_t

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void* buffer, size_t count, off_t offset)

cdef enum:
    CLOSED = -1     # the row's file is not open
    OUTSIDE = -2    # the row does not lie within its file or within the output
    SHORT = -3      # the file ended before the range did

cdef struct Request:
    const int64_t* sizes
    int64_t files
    const int64_t* rows
    int64_t count
    char* out
    int64_t out_bytes
    int64_t done     # rows before this one are filled
    int64_t status   # 0, one of the above, or the errno of a failed read


class RangeReadError(Exception):
    """A row that could not be filled: its number, and the errno or 0 for a short file."""

    def __init__(self, row, error_number):
        super().__init__(f"row {row}, errno {error_number}")
        self.row = row
        self.error_number = error_number


cdef inline bint fits(const Request* request, const int64_t* row) noexcept nogil:
    """Whether a row is inside its file and inside the output; no sum here can overflow."""
    cdef int64_t size
    if row[0] < 0 or row[0] >= request.files or row[1] < 0 or row[2] < 0 or row[3] < 0:
        return False
    size = request.sizes[row[0]]
    return (
        row[2] <= size and row[1] <= size - row[2]
        and row[2] <= request.out_bytes and row[3] <= request.out_bytes - row[2]
    )


cdef int64_t read_fully(int fd, char* target, int64_t nbytes, int64_t offset) noexcept nogil:
    """0, SHORT, or the errno."""
    cdef ssize_t got
    while nbytes > 0:
        got = pread(fd, target, <size_t>min(nbytes, <int64_t>1 << 30), <off_t>offset)
        if got > 0:
            target += got
            nbytes -= got
            offset += got
        elif got == 0:
            return SHORT
        elif errno != EINTR:
            return errno
    return 0


cdef void fill_preads(Request* request, const int32_t* fds) noexcept nogil:
    cdef const int64_t* row
    cdef int fd
    while request.done < request.count:
        row = request.rows + 4 * request.done
        if not fits(request, row):
            request.status = OUTSIDE
            return
        fd = fds[row[0]]
        if fd < 0:
            request.status = CLOSED
            return
        request.status = read_fully(fd, request.out + row[3], row[2], row[1])
        if request.status != 0:
            return
        request.done += 1


cdef void fill_copies(Request* request, const int64_t* addresses) noexcept nogil:
    cdef const int64_t* row
    cdef int64_t address
    while request.done < request.count:
        row = request.rows + 4 * request.done
        if not fits(request, row):
            request.status = OUTSIDE
            return
        address = addresses[row[0]]
        if address == 0:
            request.status = CLOSED
            return
        memcpy(request.out + row[3], <const void*><uintptr_t>(address + row[1]), <size_t>row[2])
        request.done += 1


cdef int64_t fill(handles, sizes, rows, int64_t begin, out, bint mapped) except -1:
    cdef Py_buffer handles_view, sizes_view, rows_view, out_view
    cdef Request request
    cdef int64_t handle_bytes = 8 if mapped else 4
    PyObject_GetBuffer(handles, &handles_view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(sizes, &sizes_view, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(rows, &rows_view, PyBUF_SIMPLE)
            try:
                PyObject_GetBuffer(out, &out_view, PyBUF_WRITABLE)
                try:
                    request.sizes = <const int64_t*>sizes_view.buf
                    request.files = sizes_view.len // 8
                    request.rows = <const int64_t*>rows_view.buf
                    request.count = rows_view.len // 32
                    request.out = <char*>out_view.buf
                    request.out_bytes = out_view.len
                    request.done = begin
                    request.status = 0
                    if handles_view.len != request.files * handle_bytes:
                        raise ValueError("as many handles as sizes are needed")
                    if begin < 0 or begin > request.count or rows_view.len % 32:
                        raise ValueError(f"begin is {begin} of {request.count} rows of 32 bytes")
                    with nogil:
                        if mapped:
                            fill_copies(&request, <const int64_t*>handles_view.buf)
                        else:
                            fill_preads(&request, <const int32_t*>handles_view.buf)
                finally:
                    PyBuffer_Release(&out_view)
            finally:
                PyBuffer_Release(&rows_view)
        finally:
            PyBuffer_Release(&sizes_view)
    finally:
        PyBuffer_Release(&handles_view)
    if request.status == OUTSIDE:
        raise IndexError(f"row {request.done} lies outside its file or outside the output")
    if request.status == SHORT or request.status > 0:
        raise RangeReadError(request.done, max(request.status, 0))
    return request.done


def fill_from_descriptors(descriptors, sizes, rows, begin, out):
    return fill(descriptors, sizes, rows, begin, out, False)


def fill_from_memory(addresses, sizes, rows, begin, out):
    return fill(addresses, sizes, rows, begin, out, True)

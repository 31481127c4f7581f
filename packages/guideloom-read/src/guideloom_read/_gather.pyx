# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=False
"""Many byte ranges into one buffer, without the GIL; described for callers in `_gather.pyi`.

Rows are those of a plan: file, byte offset, number of bytes, byte offset in the output. Each row
is checked against the sizes of file and output before a pointer is formed.

The same ranges can be announced: the kernel is told that they will be read soon.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EINTR, errno
from libc.stdint cimport int32_t, int64_t, uintptr_t
from libc.string cimport memcpy
from posix.time cimport clock_gettime, timespec
from posix.types cimport off_t

from mmap import PAGESIZE

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void* buffer, size_t count, off_t offset)

cdef extern from "<fcntl.h>" nogil:
    int POSIX_FADV_WILLNEED
    int posix_fadvise(int fd, off_t offset, off_t nbytes, int advice)

cdef extern from "<sys/mman.h>" nogil:
    int MADV_WILLNEED
    int madvise(void* address, size_t nbytes, int advice)

cdef extern from "<time.h>" nogil:
    int CLOCK_MONOTONIC_COARSE

cdef enum:
    CLOSED = -1     # the row's file is not open
    OUTSIDE = -2    # the row does not lie within its file or within the output
    SHORT = -3      # the file ended before the range did

cdef enum Work:
    PREAD
    COPY
    ADVISE_FILES
    ADVISE_MAPS

cdef enum:
    # What a watched fill says of itself, while others look on.
    FILLED = 0      # rows filled
    LONGEST = 1     # the row that took longest
    TICKS = 2       # how long that was, in ns
    LOOKED = 3      # when the clock was last looked at; 0 before the first time
    WATCHED = 4

# The kernel cuts what it is told at the size of its read-ahead, 128 KiB where nobody has changed it.
cdef int64_t STEP = 1 << 17
cdef int64_t PAGE = PAGESIZE

cdef struct Request:
    const int64_t* sizes
    int64_t files
    const int64_t* rows
    int64_t count
    char* out
    int64_t out_bytes
    int64_t done     # rows before this one are filled
    int64_t status   # 0, one of the above, or the errno of a failed read
    volatile int64_t* watch  # WATCHED integers, or NULL


class RangeReadError(Exception):
    """A row that could not be filled: its number, and the errno or 0 for a short file."""

    def __init__(self, row, error_number):
        super().__init__(f"row {row}, errno {error_number}")
        self.row = row
        self.error_number = error_number


cdef inline bint within_file(const Request* request, const int64_t* row) noexcept nogil:
    """Whether a row is inside its file; no sum here can overflow."""
    cdef int64_t size
    if row[0] < 0 or row[0] >= request.files or row[1] < 0 or row[2] < 0:
        return False
    size = request.sizes[row[0]]
    return row[2] <= size and row[1] <= size - row[2]


cdef inline bint fits(const Request* request, const int64_t* row) noexcept nogil:
    """Whether a row is inside its file and inside the output."""
    return (
        within_file(request, row) and row[3] >= 0
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


cdef inline void look(const Request* request) noexcept nogil:
    """Another row is filled, or the first one begins; the time since the last look was its time.

    The coarse clock costs a fifth of a copied page and ticks every few milliseconds: it finds the
    row that everything waited for, and no other.
    """
    cdef volatile int64_t* watch = request.watch
    cdef timespec time
    cdef int64_t now
    if watch == NULL:
        return
    clock_gettime(CLOCK_MONOTONIC_COARSE, &time)
    now = <int64_t>time.tv_sec * 1000000000 + time.tv_nsec
    if watch[LOOKED] and now - watch[LOOKED] > watch[TICKS]:
        watch[LONGEST] = watch[FILLED]
        watch[TICKS] = now - watch[LOOKED]
    watch[LOOKED] = now
    watch[FILLED] = request.done


cdef void fill_preads(Request* request, const int32_t* fds) noexcept nogil:
    cdef const int64_t* row
    cdef int fd
    look(request)
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
        look(request)


cdef void fill_copies(Request* request, const int64_t* addresses) noexcept nogil:
    cdef const int64_t* row
    cdef int64_t address
    look(request)
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
        look(request)


cdef void tell(int64_t handle, bint mapped, int64_t begin, int64_t end) noexcept nogil:
    """Tell the kernel of one range. Whatever it answers: the data will be read, then or now."""
    cdef int64_t stop, start
    while begin < end:
        stop = min(end, begin + STEP)
        if mapped:
            start = begin - (handle + begin) % PAGE
            madvise(<void*><uintptr_t>(handle + start), <size_t>(stop - start), MADV_WILLNEED)
        else:
            posix_fadvise(<int>handle, begin, stop - begin, POSIX_FADV_WILLNEED)
        begin = stop


cdef int64_t tell_all(Request* request, const void* handles, bint mapped) noexcept nogil:
    """Tell the kernel of all rows whose file is open. The others are counted.

    A row that touches the one before it is one range with it.
    """
    cdef int64_t closed = 0, file = -1, begin = 0, end = 0, handle = 0
    cdef const int64_t* row
    while request.done < request.count:
        row = request.rows + 4 * request.done
        if not within_file(request, row):
            request.status = OUTSIDE
            return closed
        request.done += 1
        if row[2] == 0:  # to the kernel, that is all that follows
            continue
        if row[0] == file and row[1] <= end and row[1] + row[2] >= begin:
            begin = min(begin, row[1])
            end = max(end, row[1] + row[2])
            continue
        if file >= 0:
            tell(handle, mapped, begin, end)
            file = -1
        if mapped:
            handle = (<const int64_t*>handles)[row[0]]
        else:
            handle = (<const int32_t*>handles)[row[0]]
        if handle == (0 if mapped else -1):
            closed += 1
            continue
        file, begin, end = row[0], row[1], row[1] + row[2]
    if file >= 0:
        tell(handle, mapped, begin, end)
    return closed


cdef int64_t run(Work work, handles, sizes, rows, int64_t begin, out, watch) except -1:
    """Check what was given, and do the work without the GIL."""
    cdef Py_buffer views[5]
    cdef Request request
    cdef int held = 0
    cdef bint mapped = work == COPY or work == ADVISE_MAPS
    cdef int needed = 3
    cdef int64_t closed = 0
    if work == PREAD or work == COPY:
        needed = 4 if watch is None else 5
    try:
        for given in (handles, sizes, rows, out, watch):
            if held == needed:
                break
            PyObject_GetBuffer(given, &views[held], PyBUF_WRITABLE if held > 2 else PyBUF_SIMPLE)
            held += 1
        request.sizes = <const int64_t*>views[1].buf
        request.files = views[1].len // 8
        request.rows = <const int64_t*>views[2].buf
        request.count = views[2].len // 32
        request.out = <char*>views[3].buf if needed > 3 else NULL
        request.out_bytes = views[3].len if needed > 3 else 0
        request.watch = <volatile int64_t*>views[4].buf if needed > 4 else NULL
        request.done = begin
        request.status = 0
        if views[0].len != request.files * (8 if mapped else 4):
            raise ValueError("as many handles as sizes are needed")
        if begin < 0 or begin > request.count or views[2].len % 32:
            raise ValueError(f"begin is {begin} of {request.count} rows of 32 bytes")
        if needed > 4 and views[4].len != 8 * WATCHED:
            raise ValueError(f"watch has {views[4].len} bytes; expected {8 * WATCHED}")
        with nogil:
            if work == PREAD:
                fill_preads(&request, <const int32_t*>views[0].buf)
            elif work == COPY:
                fill_copies(&request, <const int64_t*>views[0].buf)
            else:
                closed = tell_all(&request, views[0].buf, mapped)
    finally:
        while held:
            held -= 1
            PyBuffer_Release(&views[held])
    if request.status == OUTSIDE:
        raise IndexError(f"row {request.done} lies outside its file or outside the output")
    if request.status == SHORT or request.status > 0:
        raise RangeReadError(request.done, max(request.status, 0))
    return closed if needed == 3 else request.done


def fill_from_descriptors(descriptors, sizes, rows, begin, out, watch=None):
    return run(PREAD, descriptors, sizes, rows, begin, out, watch)


def fill_from_memory(addresses, sizes, rows, begin, out, watch=None):
    return run(COPY, addresses, sizes, rows, begin, out, watch)


def announce_to_descriptors(descriptors, sizes, rows):
    return run(ADVISE_FILES, descriptors, sizes, rows, 0, None, None)


def announce_to_memory(addresses, sizes, rows):
    return run(ADVISE_MAPS, addresses, sizes, rows, 0, None, None)


def count_read(totals, rows, double seconds, bint failed):
    cdef Py_buffer view
    cdef int64_t ranges, k, nbytes = 0
    cdef int64_t* sums
    PyObject_GetBuffer(rows, &view, PyBUF_SIMPLE)
    ranges = view.len // 32
    if not failed:
        for k in range(ranges):
            nbytes += (<const int64_t*>view.buf)[4 * k + 2]
    PyBuffer_Release(&view)
    PyObject_GetBuffer(totals, &view, PyBUF_WRITABLE)
    if view.len == 40:
        sums = <int64_t*>view.buf
        sums[0] += 1
        sums[1] += ranges
        sums[2] += nbytes
        sums[3] += <int64_t>(seconds * 1e9)
        sums[4] += failed
    PyBuffer_Release(&view)
    if view.len != 40:
        raise ValueError(f"totals has {view.len} bytes; expected 40")

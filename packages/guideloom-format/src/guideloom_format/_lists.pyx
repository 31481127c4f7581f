# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=False
"""Lists from JSON as arrays, each value checked; described for callers in the stub `_lists.pyi`."""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, memset

import numpy as np

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    bint PyUnicode_CheckExact(object value)
    bint PyLong_CheckExact(object value)
    int64_t PyLong_AsLongLongAndOverflow(object value, int* overflow) except? -1

cdef int TOKEN = 16


cdef inline int hex_digit(char c) noexcept nogil:
    """The value of a lower-case hexadecimal digit, -1 for anything else."""
    if c'0' <= c <= c'9':
        return c - c'0'
    if c'a' <= c <= c'f':
        return c - c'a' + 10
    return -1


cdef inline bint in_name(char c) noexcept nogil:
    """Whether a component of a name may have this character."""
    return (
        c'a' <= c <= c'z' or c'A' <= c <= c'Z' or c'0' <= c <= c'9' or c == c'_' or c == c'-'
        or c == c'.'
    )


cdef bint is_stem(const char* text, Py_ssize_t size, int most_components) noexcept nogil:
    """Whether it is components of such characters, parted by slashes, none with a leading dot."""
    cdef Py_ssize_t k
    cdef int components = 1
    cdef bint begins = True
    for k in range(size):
        if text[k] == c'/':
            if begins or components == most_components:
                return False
            components += 1
            begins = True
        elif not in_name(text[k]) or (begins and text[k] == c'.'):
            return False
        else:
            begins = False
    return not begins


def integers(list values not None, int64_t high):
    out = np.empty(len(values), dtype=np.int64)
    cdef int64_t[::1] filled = out
    cdef int overflow
    cdef Py_ssize_t k
    cdef int64_t number
    for k in range(len(values)):
        value = values[k]
        if not PyLong_CheckExact(value):
            return out, k
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow or number < 0 or number > high:
            return out, k
        filled[k] = number
    return out, -1


def tokens(list values not None):
    out = np.empty(len(values), dtype=np.uint64)
    cdef uint64_t[::1] filled = out
    cdef Py_ssize_t k, size
    cdef const char* text
    cdef uint64_t number
    cdef int i, digit
    for k in range(len(values)):
        value = values[k]
        if not PyUnicode_CheckExact(value):
            return out, k
        try:
            text = PyUnicode_AsUTF8AndSize(value, &size)
        except UnicodeEncodeError:
            return out, k
        if size != TOKEN:
            return out, k
        number = 0
        for i in range(TOKEN):
            digit = hex_digit(text[i])
            if digit < 0:
                return out, k
            number = number << 4 | <uint64_t>digit
        filled[k] = number
    return out, -1


def stems(list values not None, Py_ssize_t most_bytes, int most_components):
    cdef Py_ssize_t k, size, width = 1
    cdef const char* text
    for k in range(len(values)):
        value = values[k]
        if not PyUnicode_CheckExact(value):
            return None, k
        try:
            text = PyUnicode_AsUTF8AndSize(value, &size)
        except UnicodeEncodeError:
            return None, k
        if size > most_bytes or not is_stem(text, size, most_components):
            return None, k
        width = max(width, size)
    out = np.zeros(len(values), dtype=f"S{width}")
    if not len(values):
        return out, -1
    cdef char[::1] filled = out.view(np.int8)
    for k in range(len(values)):
        text = PyUnicode_AsUTF8AndSize(values[k], &size)
        memcpy(&filled[k * width], text, size)
    return out, -1


def commit_places(list names not None, int64_t most_shards, int64_t most_parts):
    out = np.empty(len(names), dtype=np.int64)
    cdef int64_t[::1] filled = out
    cdef Py_ssize_t k, size, at, found = 0
    cdef const char* text
    cdef int64_t shard, part
    cdef Py_ssize_t shard_digits, part_digits
    for k in range(len(names)):
        value = names[k]
        if not PyUnicode_CheckExact(value):
            continue
        try:
            text = PyUnicode_AsUTF8AndSize(value, &size)
        except UnicodeEncodeError:
            continue
        at = 0
        shard = digits(text, size, &at, 10)
        shard_digits = at
        if shard < 0 or at >= size or text[at] != c'-':
            continue
        at += 1
        part = digits(text, size, &at, 7)
        part_digits = at - shard_digits - 1
        if size - at == 6 and text[size - 1] == c'/':
            size -= 1  # a folder of this name is not the file that it should be
        if part < 0 or size - at != 5 or text[at:at + 5] != b".json":
            continue
        if not padded(shard_digits, 7, text[0]) or not padded(part_digits, 4, text[shard_digits + 1]):
            continue
        if shard >= most_shards or part >= most_parts:
            continue
        filled[found] = shard * most_parts + part
        found += 1
    return out[:found]


cdef int64_t digits(const char* text, Py_ssize_t size, Py_ssize_t* at, int most) noexcept nogil:
    """The number that begins at a place, which moves behind it; -1 without a digit or too long."""
    cdef int64_t number = 0
    cdef Py_ssize_t begin = at[0]
    while at[0] < size and c'0' <= text[at[0]] <= c'9' and at[0] - begin < most:
        number = number * 10 + (text[at[0]] - c'0')
        at[0] += 1
    return number if at[0] > begin else -1


cdef inline bint padded(Py_ssize_t digits, Py_ssize_t width, char first) noexcept nogil:
    """Whether a number has as many digits as it is padded to, or more and no zero before it."""
    return digits == width or (digits > width and first != c'0')

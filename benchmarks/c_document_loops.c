/* The yardsticks for documents. Compiled by c_document_loops.py.

   `documents` is (count, 2): file, and number within the file. `ranges` is (count, 3): file, byte
   offset and number of bytes. Every `batch` of them fill `out` anew, one behind the other;
   `offsets`, batch + 1 numbers, says where each ends. The functions return the number of documents
   read; less than count if one could not be read whole. */

#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* Two preads for each document: where it begins and ends, and its bytes. */
int64_t pread_documents(const int32_t *ends_files, const int32_t *files, const int64_t *documents,
                        int64_t count, int64_t batch, int64_t capacity, int64_t *offsets, char *out)
{
    int64_t used = 0;
    for (int64_t k = 0; k < count; k++) {
        int64_t file = documents[2 * k], number = documents[2 * k + 1];
        int64_t ends[2] = {0, 0};
        int64_t first = number > 0 ? number - 1 : 0;
        char *into = (char *)(number > 0 ? ends : ends + 1);
        ssize_t wanted = number > 0 ? 16 : 8;
        if (k % batch == 0)
            used = 0;
        if (pread(ends_files[file], into, (size_t)wanted, (off_t)(8 * first)) != wanted)
            return k;
        int64_t nbytes = ends[1] - ends[0];
        if (nbytes < 0 || nbytes > capacity - used)
            return k;
        if (pread(files[file], out + used, (size_t)nbytes, (off_t)ends[0]) != nbytes)
            return k;
        used += nbytes;
        offsets[k % batch + 1] = used;
    }
    return count;
}

/* One pread for each: where they lie is known. */
int64_t pread_ranges(const int32_t *files, const int64_t *ranges, int64_t count, int64_t batch,
                     int64_t capacity, int64_t *offsets, char *out)
{
    int64_t used = 0;
    for (int64_t k = 0; k < count; k++) {
        const int64_t *range = ranges + 3 * k;
        if (k % batch == 0)
            used = 0;
        if (range[2] > capacity - used)
            return k;
        if (pread(files[range[0]], out + used, (size_t)range[2], (off_t)range[1]) != range[2])
            return k;
        used += range[2];
        offsets[k % batch + 1] = used;
    }
    return count;
}

/* The same two from mapped files. */
int64_t copy_documents(const int64_t *const *ends_files, const char *const *files,
                       const int64_t *documents, int64_t count, int64_t batch, int64_t capacity,
                       int64_t *offsets, char *out)
{
    int64_t used = 0;
    for (int64_t k = 0; k < count; k++) {
        int64_t file = documents[2 * k], number = documents[2 * k + 1];
        int64_t begin = number > 0 ? ends_files[file][number - 1] : 0;
        int64_t nbytes = ends_files[file][number] - begin;
        if (k % batch == 0)
            used = 0;
        if (nbytes < 0 || nbytes > capacity - used)
            return k;
        memcpy(out + used, files[file] + begin, (size_t)nbytes);
        used += nbytes;
        offsets[k % batch + 1] = used;
    }
    return count;
}

int64_t copy_ranges(const char *const *files, const int64_t *ranges, int64_t count, int64_t batch,
                    int64_t capacity, int64_t *offsets, char *out)
{
    int64_t used = 0;
    for (int64_t k = 0; k < count; k++) {
        const int64_t *range = ranges + 3 * k;
        if (k % batch == 0)
            used = 0;
        if (range[2] > capacity - used)
            return k;
        memcpy(out + used, files[range[0]] + range[1], (size_t)range[2]);
        used += range[2];
        offsets[k % batch + 1] = used;
    }
    return count;
}

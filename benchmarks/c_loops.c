/* The yardsticks: what a loop in C needs for the same work. Compiled by c_loops.py. */

#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* `windows` is (count, 2): file and byte offset. Every `batch` windows fill `out` anew.
   Returns the number of windows read; less than count if one could not be read whole. */
int64_t pread_windows(const int32_t *descriptors, const int64_t *windows, int64_t count,
                      int64_t nbytes, int64_t batch, char *out)
{
    for (int64_t k = 0; k < count; k++) {
        const int64_t *window = windows + 2 * k;
        char *target = out + k % batch * nbytes;
        if (pread(descriptors[window[0]], target, (size_t)nbytes, (off_t)window[1]) != nbytes)
            return k;
    }
    return count;
}

/* The same from mapped files. */
int64_t copy_windows(const char *const *addresses, const int64_t *windows, int64_t count,
                     int64_t nbytes, int64_t batch, char *out)
{
    for (int64_t k = 0; k < count; k++) {
        const int64_t *window = windows + 2 * k;
        memcpy(out + k % batch * nbytes, addresses[window[0]] + window[1], (size_t)nbytes);
    }
    return count;
}

/* The permutation feistel-1 of docs/reference/format.md, for begin, begin + 1, … */

enum { ROUNDS = 10 };

static inline uint64_t round_value(uint64_t half, uint64_t key, uint64_t size)
{
    uint64_t z = (half ^ key) * UINT64_C(0xBF58476D1CE4E5B9);
    z ^= z >> 32;
    z *= UINT64_C(0x94D049BB133111EB);
    return (uint64_t)(((unsigned __int128)z * size) >> 64);
}

int64_t feistel(const uint64_t *keys, uint64_t length, uint64_t left_size, uint64_t right_size,
                uint64_t begin, int64_t count, int64_t *out)
{
    for (int64_t k = 0; k < count; k++) {
        uint64_t x = begin + (uint64_t)k;
        do {
            uint64_t left = x / right_size, right = x % right_size;
            for (int i = 0; i < ROUNDS; i += 2) {
                left += round_value(right, keys[i], left_size);
                if (left >= left_size)
                    left -= left_size;
                right += round_value(left, keys[i + 1], right_size);
                if (right >= right_size)
                    right -= right_size;
            }
            x = left * right_size + right;
        } while (x >= length);
        out[k] = (int64_t)x;
    }
    return count;
}

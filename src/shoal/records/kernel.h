/* The kernel: loops over single records, in C. Find batches and check them, turn them into columns
 * (kernel.c), and the way back (kernel_write.c). Built as a plain shared object and called through
 * ctypes: no Python.h, no allocation, no global state but the tables of the checksum, so that any
 * number of threads may be inside at once. The structures stand in kernel.py a second time.
 *
 * Rules that keep it small:
 * - Every length is checked against what encloses it before a byte behind it is read.
 * - Only "batch i is bad" comes out, never why: the caller asks the Python code, which words it.
 * The layout of a batch is at the top of batch.py, that of a record at the top of record.py.
 */
#ifndef SHOAL_KERNEL_H
#define SHOAL_KERNEL_H

#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define LIKELY(x) __builtin_expect(!!(x), 1)

#define KERNEL_VERSION 10
#define HEADER_SIZE 61
#define LENGTH_FROM 12 /* what a batch's length counts begins here */
#define CRC_FROM 21

EXPORT uint32_t shoal_crc32c(const uint8_t *p, int64_t n);

/* Big-endian numbers, byte by byte: compilers turn these into one load and a swap. */

static inline uint32_t get32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline int64_t get64(const uint8_t *p)
{
    return (int64_t)((uint64_t)get32(p) << 32 | get32(p + 4));
}

static inline void put16(uint8_t *p, int64_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static inline void put32(uint8_t *p, int64_t v)
{
    put16(p, v >> 16);
    put16(p + 2, v);
}

static inline void put64(uint8_t *p, int64_t v)
{
    put32(p, v >> 32);
    put32(p + 4, v);
}

#endif

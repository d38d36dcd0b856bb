/* What reading knows of batches, for kernel.c and for objects.c, which follows its index.
 * Numbers, bytes and headers of a record; a batch, and what was measured of several.
 */
#ifndef SHOAL_KERNEL_READ_H
#define SHOAL_KERNEL_READ_H

#include "kernel.h"

enum { CODEC = 0x07, LOG_APPEND_TIME = 0x08, TRANSACTIONAL = 0x10, CONTROL = 0x20 };

/* An unsigned number of at most `bits` bits; NULL if it runs past the end or does not fit. */
static const uint8_t *read_long(const uint8_t *p, const uint8_t *end, int bits, uint64_t *out)
{
    uint64_t value = 0;
    for (int shift = 0; p < end && shift < bits; shift += 7) {
        uint64_t byte = *p++;
        if (shift == 63 && byte > 1) return NULL;
        value |= (byte & 127) << shift;
        if (byte < 128) {
            if (bits == 32 && value > UINT32_MAX) return NULL;
            *out = value;
            return p;
        }
    }
    return NULL;
}

/* A zigzag number. One and two bytes, nearly all there are, without a call. */
static inline const uint8_t *read_number(const uint8_t *p, const uint8_t *end, int bits,
                                         int64_t *out)
{
    uint64_t value;
    if (LIKELY(p < end && p[0] < 128)) {
        value = *p++;
    } else if (LIKELY(end - p >= 2 && p[1] < 128)) {
        value = (p[0] & 127u) | (uint64_t)p[1] << 7;
        p += 2;
    } else {
        p = read_long(p, end, bits, &value);
        if (!p) return NULL;
    }
    *out = (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
    return p;
}

/* Bytes behind their length; -1 is null. `end` encloses them. */
static inline const uint8_t *read_bytes(const uint8_t *p, const uint8_t *end,
                                        const uint8_t **bytes, int64_t *length)
{
    p = read_number(p, end, 32, length);
    if (!p || *length < -1 || *length > end - p) return NULL;
    *bytes = p;
    return *length > 0 ? p + *length : p;
}

typedef struct {
    const uint8_t *key, *value;
    int64_t key_length, value_length;
} Header;

static inline const uint8_t *read_header(const uint8_t *p, const uint8_t *end, Header *h)
{
    p = read_bytes(p, end, &h->key, &h->key_length);
    if (!p || h->key_length < 0) return NULL;
    return read_bytes(p, end, &h->value, &h->value_length);
}

typedef struct {
    int64_t chunk, position, size;
    const uint8_t *body; /* inflated records; NULL: skip this batch */
    int64_t body_size, base_offset, last_delta, attributes, base_timestamp, max_timestamp;
    int64_t producer_id, record_count, leader_epoch;
    int64_t start_offset, end_offset, partition; /* of its chunk */
    int64_t rows;                                /* how many are wanted, once measured */
} Batch;

typedef struct { /* one wanted record; positions count from its batch's body */
    int64_t offset, timestamp;
    uint32_t key, value, headers;
    int32_t key_length, value_length, header_count;
} Row;

typedef struct {
    Row *index; /* given by the caller, with room for so many rows */
    int64_t index_size;
    int64_t rows, key_bytes, key_nulls, value_bytes, value_nulls;
    int64_t headed_rows, headers, header_key_bytes, header_value_bytes, header_value_nulls;
    int64_t header_keys_beyond_ascii; /* those may be malformed UTF-8: the caller looks */
    int64_t timestamp_min, timestamp_max;
} Sizes;

#endif

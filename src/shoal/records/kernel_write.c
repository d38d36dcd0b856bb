/* Writing: columns in Arrow's memory layout to batches. Whoever calls vouches for the columns:
 * their offsets are not checked.
 */
#include "kernel.h"

static inline uint64_t zigzag(int64_t v) { return (uint64_t)v << 1 ^ (uint64_t)(v >> 63); }

static inline int64_t number_size(int64_t v)
{
    int top_bit = 63 - __builtin_clzll(zigzag(v) | 1);
    return (top_bit * 9 + 73) / 64; /* top_bit / 7 + 1 without a division */
}

static inline uint8_t *put_number(uint8_t *p, int64_t v)
{
    uint64_t z = zigzag(v);
    for (; z > 127; z >>= 7) *p++ = (uint8_t)(z | 128);
    *p++ = (uint8_t)z;
    return p;
}

typedef struct { /* Arrow's layout; offsets == NULL: every value is null */
    const int32_t *offsets;
    const uint8_t *data, *validity; /* validity == NULL: no value is null */
    int64_t first_bit;              /* of validity, for arrays which are slices */
} BinaryIn;

/* The lengths of a list's values, -1 for null, to offsets (one more than there are rows) and
 * validity (zeroed). Returns how many bytes there are in all. */
EXPORT int64_t shoal_offsets(const int32_t *lengths, int64_t rows, int32_t *offsets,
                             uint8_t *validity)
{
    int64_t end = 0;
    for (int64_t i = 0; i < rows; i++) {
        offsets[i] = (int32_t)end;
        if (lengths[i] < 0) continue;
        end += lengths[i];
        validity[i >> 3] |= (uint8_t)(1u << (i & 7));
        if (end > INT32_MAX) return end;
    }
    offsets[rows] = (int32_t)end;
    return end;
}

static inline int is_null(const BinaryIn *column, int64_t i)
{
    int64_t bit = column->first_bit + i;
    return !column->offsets ||
           (column->validity && !(column->validity[bit >> 3] >> (bit & 7) & 1));
}

typedef struct {
    const uint8_t *bytes;
    int64_t length;
} Bytes;

static inline Bytes value_at(const BinaryIn *column, int64_t i)
{
    if (is_null(column, i)) return (Bytes){NULL, -1};
    int32_t start = column->offsets[i];
    return (Bytes){column->data + start, column->offsets[i + 1] - start};
}

/* The processor does not foresee in which order rows are read; so they are asked for in advance,
 * which halves the time of rows that go to a dozen partitions. */
#define AHEAD 8

static inline void call_for(const BinaryIn *column, int64_t i)
{
    if (!column->offsets) return;
    const uint8_t *p = column->data + column->offsets[i];
    __builtin_prefetch(p);
    __builtin_prefetch(p + 64);
}

static inline int64_t bytes_size(Bytes v)
{
    return number_size(v.length) + (v.length > 0 ? v.length : 0);
}

static inline uint8_t *put_value(uint8_t *p, Bytes v)
{
    p = put_number(p, v.length);
    if (v.length <= 0) return p;
    memcpy(p, v.bytes, (size_t)v.length);
    return p + v.length;
}

typedef struct {
    int64_t rows;
    const int64_t *timestamps; /* NULL: all are fixed_timestamp */
    int64_t fixed_timestamp;
    BinaryIn key, value;
    BinaryIn headers; /* data is not used: offsets count in the two columns which follow */
    BinaryIn header_key, header_value;
    /* A batch ends before it would pass one of these; a batch of one record may be larger. */
    int64_t limit_bytes, limit_rows;
    /* What the batch headers say. Without `seal` room is left and the caller writes them. */
    int64_t seal, attributes, leader_epoch, producer_id, producer_epoch;
    int64_t base_offset, base_sequence; /* both move on from batch to batch */
    /* Which row comes when (NULL: as they lie), and before which places, in ascending order and
     * the last of them `rows`, a batch ends whatever room it has: groups of rows, in one call. */
    const int64_t *order, *ends;
} TableIn;

typedef struct {
    int64_t position, size, rows, base_timestamp, max_timestamp;
} Cut;

static void put_header(uint8_t *p, const TableIn *t, int64_t row, const Cut *cut)
{
    int64_t sequence = t->base_sequence < 0 ? -1 : (t->base_sequence + row) & 0x7fffffff;
    put64(p, t->base_offset + row);
    put32(p + 8, cut->size - LENGTH_FROM);
    put32(p + 12, t->leader_epoch);
    p[16] = 2;
    put16(p + 21, t->attributes);
    put32(p + 23, cut->rows - 1);
    put64(p + 27, cut->base_timestamp);
    put64(p + 35, cut->max_timestamp);
    put64(p + 43, t->producer_id);
    put16(p + 51, t->producer_epoch);
    put32(p + 53, sequence);
    put32(p + 57, cut->rows);
    put32(p + 17, shoal_crc32c(p + CRC_FROM, cut->size - CRC_FROM));
}

/* Fills `out` with whole batches from *next_row on, which moves behind the last one written, and
 * lists them in cuts. Returns their number; 0 with cuts[0].size set if the next batch needs more
 * room than there is; -1 if a timestamp lies too far from its batch's first. */
EXPORT int64_t shoal_encode(const TableIn *t, int64_t *next_row, uint8_t *out, int64_t capacity,
                            Cut *cuts, int64_t cut_limit)
{
    int64_t count = 0, position = 0, row = *next_row;
    const int64_t *end = t->ends;
    while (row < t->rows && count < cut_limit) {
        const int64_t first = row;
        int64_t stop = t->rows;
        if (end) {
            while (*end <= first) end++;
            stop = *end;
        }
        if (stop - first > t->limit_rows) stop = first + t->limit_rows;
        uint8_t *p = out + position + HEADER_SIZE;
        int64_t size = HEADER_SIZE;
        int64_t base = t->fixed_timestamp;
        if (t->timestamps) base = t->timestamps[t->order ? t->order[row] : row];
        int64_t max = base;
        for (; row < stop; row++) {
            const int64_t at = t->order ? t->order[row] : row;
            if (t->order && row + AHEAD < t->rows) call_for(&t->value, t->order[row + AHEAD]);
            int64_t timestamp = t->timestamps ? t->timestamps[at] : base, delta;
            if (__builtin_sub_overflow(timestamp, base, &delta)) return -1;
            Bytes key = value_at(&t->key, at), value = value_at(&t->value, at);
            int64_t header = 0, header_end = 0;
            if (!is_null(&t->headers, at)) {
                header = t->headers.offsets[at];
                header_end = t->headers.offsets[at + 1];
            }
            int64_t length = 1 + number_size(delta) + number_size(row - first) + bytes_size(key) +
                             bytes_size(value) + number_size(header_end - header);
            for (int64_t h = header; h < header_end; h++)
                length += bytes_size(value_at(&t->header_key, h)) +
                          bytes_size(value_at(&t->header_value, h));
            int64_t record_size = number_size(length) + length;
            if (row > first && size + record_size > t->limit_bytes) break;
            size += record_size;
            if (size > capacity - position) { /* this batch has to wait for more room */
                cuts[count].size = size;
                return count;
            }
            p = put_number(p, length);
            *p++ = 0;
            p = put_number(p, delta);
            p = put_number(p, row - first);
            p = put_value(p, key);
            p = put_value(p, value);
            p = put_number(p, header_end - header);
            for (; header < header_end; header++) {
                p = put_value(p, value_at(&t->header_key, header));
                p = put_value(p, value_at(&t->header_value, header));
            }
            if (timestamp > max) max = timestamp;
        }
        Cut *cut = &cuts[count++];
        *cut = (Cut){position, size, row - first, base, max};
        if (t->seal) put_header(out + position, t, first, cut);
        position += size;
        *next_row = row;
    }
    return count;
}

static inline uint32_t little_endian(const uint8_t *p, int64_t n)
{
    uint32_t word = 0;
    while (n--) word = word << 8 | p[n];
    return word;
}

/* Kafka's hash of each value, as partitioner.py computes it; of null, whatever. */
EXPORT void shoal_murmur2(const BinaryIn *column, int64_t rows, uint32_t *out)
{
    const uint32_t m = 0x5bd1e995;
    for (int64_t i = 0; i < rows; i++) {
        const uint8_t *p = column->data + column->offsets[i];
        int64_t left = column->offsets[i + 1] - column->offsets[i];
        uint32_t h = 0x9747b28cu ^ (uint32_t)left;
        for (; left >= 4; p += 4, left -= 4) {
            uint32_t k = little_endian(p, 4) * m;
            h = h * m ^ (k ^ k >> 24) * m;
        }
        if (left) h = (h ^ little_endian(p, left)) * m;
        h = (h ^ h >> 13) * m;
        out[i] = h ^ h >> 15;
    }
}

/* The loops over single records, in C: find batches, check them, turn them into columns, and the
 * way back. Built as a plain shared object and called through ctypes: no Python.h, no allocation,
 * no global state but constant tables, so that any number of threads may be inside at once.
 *
 * Rules that keep it small:
 * - Every length is checked against what encloses it before a byte behind it is read. A record
 *   is parsed by one function, read_record(), which measure(), decode() and cut() share.
 * - Only "batch i is bad" comes out, never why: the caller asks the Python code, which words it.
 * - Reading takes two passes. measure() validates and counts, the caller allocates exactly that
 *   much, decode() writes. The layout of a batch is at the top of batch.py.
 */
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define LIKELY(x) __builtin_expect(!!(x), 1)

#define KERNEL_VERSION 1
#define HEADER_SIZE 61
#define LENGTH_FROM 12
#define CRC_FROM 21
#define RECORD_SIZE_MIN 7
#define MESSAGE_SIZE_MIN 26 /* of formats 0 and 1 */
enum { CODEC = 0x07, LOG_APPEND_TIME = 0x08, CONTROL = 0x20 };

EXPORT int64_t shoal_kernel_version(void) { return KERNEL_VERSION; }

/* Big-endian numbers, byte by byte: compilers turn these into one load and a swap. */

static uint32_t get32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static int64_t get64(const uint8_t *p) { return (int64_t)((uint64_t)get32(p) << 32 | get32(p + 4)); }

static void put16(uint8_t *p, int64_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, int64_t v)
{
    put16(p, v >> 16);
    put16(p + 2, v);
}

static void put64(uint8_t *p, int64_t v)
{
    put32(p, v >> 32);
    put32(p + 4, v);
}

/* CRC-32C ------------------------------------------------------------------------------------
 * With the instruction: three runs of BLOCK bytes at a time, as it has a latency of three cycles
 * but starts one per cycle; the runs are joined by a table which moves a checksum over BLOCK
 * zero bytes. Without it: eight bytes at a time by tables. */

#define POLYNOMIAL 0x82f63b78u
#define BLOCK 512

static uint32_t by_eight[8][256];
static uint32_t over_block[4][256];

#if defined(__x86_64__)
#define HARDWARE __attribute__((target("sse4.2")))
#define STEP64(crc, p) __builtin_ia32_crc32di((crc), load64(p))
#define STEP8(crc, p) __builtin_ia32_crc32qi((uint32_t)(crc), *(p))
static int has_instruction(void) { return __builtin_cpu_supports("sse4.2"); }
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define HARDWARE
#define STEP64(crc, p) __crc32cd((uint32_t)(crc), load64(p))
#define STEP8(crc, p) __crc32cb((uint32_t)(crc), *(p))
static int has_instruction(void) { return 1; }
#else
static int has_instruction(void) { return 0; }
#endif

static uint32_t crc_by_table(uint32_t crc, const uint8_t *p, int64_t n)
{
    for (; n >= 8; p += 8, n -= 8) {
        crc ^= (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        crc = by_eight[7][crc & 255] ^ by_eight[6][crc >> 8 & 255] ^ by_eight[5][crc >> 16 & 255] ^
              by_eight[4][crc >> 24] ^ by_eight[3][p[4]] ^ by_eight[2][p[5]] ^ by_eight[1][p[6]] ^
              by_eight[0][p[7]];
    }
    for (; n > 0; n--) crc = crc >> 8 ^ by_eight[0][(crc ^ *p++) & 255];
    return crc;
}

#ifdef HARDWARE
static inline uint64_t load64(const uint8_t *p)
{
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

static uint32_t move_over_block(uint64_t crc)
{
    return over_block[0][crc & 255] ^ over_block[1][crc >> 8 & 255] ^
           over_block[2][crc >> 16 & 255] ^ over_block[3][crc >> 24 & 255];
}

HARDWARE static uint32_t crc_by_instruction(uint32_t start, const uint8_t *p, int64_t n)
{
    uint64_t crc = start;
    for (; n >= 3 * BLOCK; p += 3 * BLOCK, n -= 3 * BLOCK) {
        uint64_t second = 0, third = 0;
        for (int i = 0; i < BLOCK; i += 8) {
            crc = STEP64(crc, p + i);
            second = STEP64(second, p + i + BLOCK);
            third = STEP64(third, p + i + 2 * BLOCK);
        }
        crc = move_over_block(move_over_block(crc) ^ second) ^ third;
    }
    for (; n >= 8; p += 8, n -= 8) crc = STEP64(crc, p);
    for (; n > 0; n--) crc = STEP8(crc, p++);
    return (uint32_t)crc;
}
#endif

static int use_instruction;

/* Called once, by the loader, before anything else. */
EXPORT void shoal_prepare(int64_t allow_instruction)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (POLYNOMIAL & (0u - (crc & 1)));
        by_eight[0][i] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (int i = 0; i < 256; i++)
            by_eight[k][i] = by_eight[k - 1][i] >> 8 ^ by_eight[0][by_eight[k - 1][i] & 255];
    for (int bit = 0; bit < 32; bit++) {
        uint32_t crc = 1u << bit;
        for (int i = 0; i < BLOCK; i++) crc = crc >> 8 ^ by_eight[0][crc & 255];
        uint32_t *row = over_block[bit / 8];
        int lowest = 1 << bit % 8; /* numbers with this bit on top build on those without it */
        for (int i = lowest; i < 2 * lowest; i++) row[i] = row[i - lowest] ^ crc;
    }
    use_instruction = allow_instruction && has_instruction();
}

EXPORT uint32_t shoal_crc32c(const uint8_t *p, int64_t n)
{
#ifdef HARDWARE
    if (use_instruction) return ~crc_by_instruction(0xffffffffu, p, n);
#endif
    return ~crc_by_table(0xffffffffu, p, n);
}

/* Finding batches --------------------------------------------------------------------------- */

typedef struct { /* a run of batches, such as one partition's part of a fetch response */
    const uint8_t *data;
    int64_t size, start_offset, end_offset, partition;
} Chunk;

typedef struct {
    int64_t chunk, position, size;
    const uint8_t *body; /* inflated records; NULL: skip this batch */
    int64_t body_size, base_offset, last_delta, attributes, base_timestamp, max_timestamp;
    int64_t producer_id, record_count, leader_epoch;
    int64_t start_offset, end_offset, partition; /* of its chunk */
    int64_t rows;                                /* how many are wanted; set by measure() */
} Batch;

static int read_batch(const Chunk *chunk, int64_t position, int64_t size, Batch *b)
{
    const uint8_t *p = chunk->data + position;
    *b = (Batch){.position = position, .size = size,
                 .body = p + HEADER_SIZE, .body_size = size - HEADER_SIZE,
                 .base_offset = get64(p), .last_delta = (int32_t)get32(p + 23),
                 .attributes = p[21] << 8 | p[22],
                 .base_timestamp = get64(p + 27), .max_timestamp = get64(p + 35),
                 .producer_id = get64(p + 43), .record_count = (int32_t)get32(p + 57),
                 .leader_epoch = (int32_t)get32(p + 12),
                 .start_offset = chunk->start_offset, .end_offset = chunk->end_offset,
                 .partition = chunk->partition};
    if (b->base_offset < 0 || b->last_delta < 0 || b->base_offset > INT64_MAX - b->last_delta ||
        b->record_count < 0 || b->record_count > b->last_delta + 1)
        return 0;
    if (b->attributes & CONTROL || b->base_offset >= b->end_offset ||
        b->base_offset + b->last_delta < b->start_offset)
        b->body = NULL;
    return 1;
}

/* Lists the whole batches of all chunks, up to the first bad one; a cut last one is left out.
 * With batches == NULL it only counts. Returns how many there are, and in seen[] all their
 * attributes or'ed together, then chunk and position of the bad one (-1 if there is none). */
EXPORT int64_t shoal_scan(const Chunk *chunks, int64_t chunk_count, Batch *batches,
                          int64_t check_crc, int64_t *seen)
{
    int64_t found = 0;
    seen[0] = 0;
    for (int64_t c = 0; c < chunk_count; c++) {
        const Chunk *chunk = &chunks[c];
        for (int64_t position = 0; chunk->size - position >= LENGTH_FROM;) {
            const uint8_t *p = chunk->data + position;
            int64_t size = (int64_t)(int32_t)get32(p + 8) + LENGTH_FROM;
            seen[1] = c;
            seen[2] = position;
            if (size < MESSAGE_SIZE_MIN) return found;
            if (size > chunk->size - position) break;
            if (size < HEADER_SIZE || p[16] != 2) return found;
            if (batches) {
                Batch *b = &batches[found];
                if (!read_batch(chunk, position, size, b)) return found;
                if (check_crc && shoal_crc32c(p + CRC_FROM, size - CRC_FROM) != get32(p + 17))
                    return found;
                b->chunk = c;
                seen[0] |= b->attributes;
            }
            found++;
            position += size;
        }
    }
    seen[1] = seen[2] = -1;
    return found;
}

/* Reading records --------------------------------------------------------------------------- */

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
    int64_t offset, timestamp, key_length, value_length, header_count;
    const uint8_t *key, *value, *headers, *end;
} Record;

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

/* Everything up to the headers. `last` is the offset before this one and moves on. */
static inline const uint8_t *read_record(const uint8_t *p, const Batch *b, int64_t *last,
                                         Record *r)
{
    int64_t length, number;
    p = read_number(p, b->body + b->body_size, 32, &length);
    if (!p || length < 1 || length > b->body + b->body_size - p) return NULL;
    const uint8_t *end = r->end = p + length;
    p = read_number(p + 1, end, 64, &number);
    if (!p) return NULL;
    if (b->attributes & LOG_APPEND_TIME)
        r->timestamp = b->max_timestamp;
    else if (__builtin_add_overflow(b->base_timestamp, number, &r->timestamp))
        return NULL;
    p = read_number(p, end, 32, &number);
    if (!p || number < 0 || number > b->last_delta) return NULL;
    r->offset = b->base_offset + number;
    if (r->offset <= *last) return NULL;
    *last = r->offset;
    p = read_bytes(p, end, &r->key, &r->key_length);
    if (!p) return NULL;
    p = read_bytes(p, end, &r->value, &r->value_length);
    if (!p) return NULL;
    p = read_number(p, end, 32, &r->header_count);
    if (!p || r->header_count < 0 || r->header_count > (end - p) / 2) return NULL;
    return r->headers = p;
}

static inline int wanted(const Batch *b, int64_t offset)
{
    return offset >= b->start_offset && offset < b->end_offset;
}

typedef struct {
    int64_t rows, key_bytes, key_nulls, value_bytes, value_nulls;
    int64_t headed_rows, headers, header_key_bytes, header_value_bytes, header_value_nulls;
    int64_t header_keys_beyond_ascii; /* those may be malformed UTF-8: the caller looks */
    int64_t timestamp_min, timestamp_max;
} Sizes;

static int has_high_bit(const uint8_t *p, int64_t n)
{
    uint8_t all = 0;
    for (int64_t i = 0; i < n; i++) all |= p[i];
    return all >> 7;
}

static int measure_headers(const Record *r, int counted, Sizes *s)
{
    const uint8_t *p = r->headers;
    for (int64_t i = 0; i < r->header_count; i++) {
        Header h;
        p = read_header(p, r->end, &h);
        if (!p) return 0;
        if (!counted) continue;
        s->header_key_bytes += h.key_length;
        s->header_keys_beyond_ascii |= has_high_bit(h.key, h.key_length);
        if (h.value_length < 0)
            s->header_value_nulls++;
        else
            s->header_value_bytes += h.value_length;
    }
    if (counted) s->headers += r->header_count, s->headed_rows++;
    return p == r->end;
}

/* Validates every record and counts what decode() will write. Returns -1, or the number of the
 * first bad batch. */
EXPORT int64_t shoal_measure(Batch *batches, int64_t batch_count, Sizes *out)
{
    Sizes s = {.timestamp_min = INT64_MAX, .timestamp_max = INT64_MIN};
    for (int64_t i = 0; i < batch_count; i++) {
        Batch *b = &batches[i];
        int64_t rows_before = s.rows;
        if (!b->body) continue;
        const uint8_t *p = b->body;
        int64_t last = b->base_offset - 1;
        if (b->record_count > b->body_size / RECORD_SIZE_MIN) return i;
        for (int64_t n = 0; n < b->record_count; n++) {
            Record r;
            p = read_record(p, b, &last, &r);
            if (!p) return i;
            int counted = wanted(b, r.offset);
            if (r.header_count) {
                if (!measure_headers(&r, counted, &s)) return i;
                p = r.end;
            }
            if (p != r.end) return i;
            if (!counted) continue;
            s.rows++;
            if (r.key_length < 0) s.key_nulls++; else s.key_bytes += r.key_length;
            if (r.value_length < 0) s.value_nulls++; else s.value_bytes += r.value_length;
            if (r.timestamp < s.timestamp_min) s.timestamp_min = r.timestamp;
            if (r.timestamp > s.timestamp_max) s.timestamp_max = r.timestamp;
        }
        if (p != b->body + b->body_size) return i;
        b->rows = s.rows - rows_before;
    }
    *out = s;
    return -1;
}

/* Arrow's layout of variable bytes: value i is data[offsets[i]:offsets[i+1]], null if bit i of
 * validity is 0. Without nulls validity is NULL; without offsets the column is not wanted. */
typedef struct {
    int32_t *offsets;
    uint8_t *data, *validity;
    int64_t data_size;
} BinaryOut;

typedef struct {
    int64_t *offset, *timestamp;
    int32_t *partition, *timestamp_type;
    BinaryOut key, value;
    int32_t *header_offsets;
    uint8_t *header_validity; /* a row without headers is null */
    BinaryOut header_key, header_value;
    int64_t timestamp_factor; /* 1 for milliseconds, 1000 for microseconds */
} ColumnsOut;

static inline void set_bit(uint8_t *bits, int64_t i) { bits[i >> 3] |= (uint8_t)(1u << (i & 7)); }

/* Appends a value behind those that end at `end`; 0 if it does not fit. */
static inline int put_bytes(const BinaryOut *column, int64_t row, int64_t *end,
                            const uint8_t *bytes, int64_t length)
{
    if (length > 0) {
        if (length > column->data_size - *end) return 0;
        memcpy(column->data + *end, bytes, (size_t)length);
        *end += length;
    }
    if (column->validity && length >= 0) set_bit(column->validity, row);
    column->offsets[row + 1] = (int32_t)*end;
    return 1;
}

typedef struct {
    int64_t row, key, value, header, header_key, header_value;
} Ends;

static int put_headers(const ColumnsOut *c, const Sizes *sizes, const Record *r, Ends *end)
{
    const uint8_t *p = r->headers;
    if (r->header_count > sizes->headers - end->header) return 0;
    for (int64_t i = 0; i < r->header_count; i++, end->header++) {
        Header h;
        p = read_header(p, r->end, &h);
        if (!p ||
            !put_bytes(&c->header_key, end->header, &end->header_key, h.key, h.key_length) ||
            !put_bytes(&c->header_value, end->header, &end->header_value, h.value, h.value_length))
            return 0;
    }
    if (r->header_count) set_bit(c->header_validity, end->row);
    c->header_offsets[end->row + 1] = (int32_t)end->header;
    return 1;
}

static void begin(const BinaryOut *column, int64_t rows)
{
    if (column->offsets) column->offsets[0] = 0;
    if (column->validity) memset(column->validity, 0, (size_t)(rows + 7) / 8);
}

/* Writes the columns of batches which measure() passed; the buffers are as large as it said.
 * Returns the number of rows, or -1 if the batches changed in the meantime. */
EXPORT int64_t shoal_decode(const Batch *batches, int64_t batch_count, const Sizes *sizes,
                            const ColumnsOut *out)
{
    const ColumnsOut c = *out;
    Ends end = {0};
    begin(&c.key, sizes->rows);
    begin(&c.value, sizes->rows);
    begin(&c.header_key, sizes->headers);
    begin(&c.header_value, sizes->headers);
    if (c.header_offsets) {
        c.header_offsets[0] = 0;
        memset(c.header_validity, 0, (size_t)(sizes->rows + 7) / 8);
    }
    for (int64_t i = 0; i < batch_count; i++) {
        const Batch *b = &batches[i];
        if (!b->body) continue;
        const uint8_t *p = b->body;
        int64_t last = b->base_offset - 1;
        for (int64_t n = 0; n < b->record_count; n++) {
            Record r;
            p = read_record(p, b, &last, &r);
            if (!p) return -1;
            p = r.end;
            if (!wanted(b, r.offset)) continue;
            int64_t row = end.row;
            if (row >= sizes->rows) return -1;
            if (c.offset) c.offset[row] = r.offset;
            if (c.timestamp) c.timestamp[row] = r.timestamp * c.timestamp_factor;
            if (c.partition) c.partition[row] = (int32_t)b->partition;
            if (c.timestamp_type) c.timestamp_type[row] = (b->attributes & LOG_APPEND_TIME) != 0;
            if (c.key.offsets && !put_bytes(&c.key, row, &end.key, r.key, r.key_length)) return -1;
            if (c.value.offsets && !put_bytes(&c.value, row, &end.value, r.value, r.value_length))
                return -1;
            if (c.header_offsets && !put_headers(&c, sizes, &r, &end)) return -1;
            end.row++;
        }
    }
    return end.row;
}

/* Cutting ------------------------------------------------------------------------------------
 * C without Python.h cannot make Python objects, but Python's struct module makes thousands in
 * one call. This writes the format for it: unpacking the bytes from `origin` on yields the key
 * and the value of each wanted record in turn. A null comes out as a bool: it has no bytes, so
 * the format points at the last byte of its length. All bodies lie behind `origin`, in order.
 * With header_counts it is the keys and values of headers instead, and each row's number of
 * them goes there. Returns the length of the format, or -1 if it needs more than `capacity`. */

#define CUT_SIZE_MAX 44 /* two times a skip and a field, ten digits and a letter each */

static char *put_count(char *out, int64_t n, char letter)
{
    char digits[20];
    int length = 0;
    do digits[length++] = (char)('0' + n % 10); while (n /= 10);
    while (length) *out++ = digits[--length];
    *out++ = letter;
    return out;
}

static char *put_field(char *out, const uint8_t **at, const uint8_t *bytes, int64_t length)
{
    int is_null = length < 0;
    if (is_null) bytes--, length = 1;
    if (bytes > *at) out = put_count(out, bytes - *at, 'x');
    *at = bytes + length;
    return put_count(out, length, is_null ? '?' : 's');
}

EXPORT int64_t shoal_cut(const Batch *batches, int64_t batch_count, const uint8_t *origin,
                         int32_t *header_counts, char *format, int64_t capacity)
{
    char *out = format;
    for (int64_t i = 0; i < batch_count; i++) {
        const Batch *b = &batches[i];
        if (!b->body) continue;
        const uint8_t *p = b->body;
        int64_t last = b->base_offset - 1;
        for (int64_t n = 0; n < b->record_count; n++) {
            Record r;
            p = read_record(p, b, &last, &r);
            if (!p) return -1;
            p = r.end;
            if (!wanted(b, r.offset)) continue;
            Header pair = {r.key, r.value, r.key_length, r.value_length};
            const uint8_t *h = r.headers;
            int64_t pairs = header_counts ? r.header_count : 1;
            if (header_counts) *header_counts++ = (int32_t)r.header_count;
            if (pairs > (capacity - (out - format)) / CUT_SIZE_MAX) return -1;
            for (; pairs > 0; pairs--) {
                if (header_counts && !(h = read_header(h, r.end, &pair))) return -1;
                out = put_field(out, &origin, pair.key, pair.key_length);
                out = put_field(out, &origin, pair.value, pair.value_length);
            }
        }
    }
    return out - format;
}

/* Writing ----------------------------------------------------------------------------------- */

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

typedef struct {
    const uint8_t *bytes;
    int64_t length;
} Bytes;

static inline Bytes value_at(const BinaryIn *column, int64_t i)
{
    int64_t bit = column->first_bit + i;
    if (!column->offsets || (column->validity && !(column->validity[bit >> 3] >> (bit & 7) & 1)))
        return (Bytes){NULL, -1};
    int32_t start = column->offsets[i];
    return (Bytes){column->data + start, column->offsets[i + 1] - start};
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
    const int32_t *header_counts; /* per row; NULL: no headers */
    BinaryIn header_key, header_value;
    /* A batch ends before it would pass one of these; a batch of one record may be larger. */
    int64_t limit_bytes, limit_rows;
    /* What the batch headers say. Without `seal` room is left and the caller writes them. */
    int64_t seal, attributes, leader_epoch, producer_id, producer_epoch;
    int64_t base_offset, base_sequence; /* both move on from batch to batch */
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

/* Fills `out` with whole batches from cursor = {row, header} on, which moves behind the last one
 * written, and lists them in cuts. Returns their number; 0 with cuts[0].size set if the next
 * batch needs more room than there is; -1 if a timestamp lies too far from its batch's first. */
EXPORT int64_t shoal_encode(const TableIn *t, int64_t *cursor, uint8_t *out, int64_t capacity,
                            Cut *cuts, int64_t cut_limit)
{
    int64_t count = 0, position = 0, row = cursor[0], header = cursor[1];
    while (row < t->rows && count < cut_limit) {
        const int64_t first = row;
        uint8_t *p = out + position + HEADER_SIZE;
        int64_t size = HEADER_SIZE;
        int64_t base = t->timestamps ? t->timestamps[row] : t->fixed_timestamp, max = base;
        for (; row < t->rows && row - first < t->limit_rows; row++) {
            int64_t timestamp = t->timestamps ? t->timestamps[row] : base, delta;
            if (__builtin_sub_overflow(timestamp, base, &delta)) return -1;
            Bytes key = value_at(&t->key, row), value = value_at(&t->value, row);
            int64_t headers = t->header_counts ? t->header_counts[row] : 0;
            int64_t length = 1 + number_size(delta) + number_size(row - first) + bytes_size(key) +
                             bytes_size(value) + number_size(headers);
            for (int64_t h = header; h < header + headers; h++)
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
            p = put_number(p, headers);
            for (; headers > 0; headers--, header++) {
                p = put_value(p, value_at(&t->header_key, header));
                p = put_value(p, value_at(&t->header_value, header));
            }
            if (timestamp > max) max = timestamp;
        }
        Cut *cut = &cuts[count++];
        *cut = (Cut){position, size, row - first, base, max};
        if (t->seal) put_header(out + position, t, first, cut);
        position += size;
        cursor[0] = row;
        cursor[1] = header;
    }
    return count;
}

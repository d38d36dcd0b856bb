/* Reading, in two passes. Measuring a batch parses and validates its records, adds up how large
 * the columns will be and notes in an index where everything lies. The caller allocates exactly
 * that much; decode() and cut() only follow the index. Should the bytes have changed in between,
 * what comes out is wrong but stays within the buffers.
 */
#include "kernel.h"
#include "kernel_read.h"

#define RECORD_SIZE_MIN 7
#define MESSAGE_SIZE_MIN 26 /* of formats 0 and 1 */

EXPORT int64_t shoal_kernel_version(void) { return KERNEL_VERSION; }

/* Finding batches --------------------------------------------------------------------------- */

typedef struct {
    int64_t producer_id, first_offset;
} Aborted;

typedef struct { /* a run of batches, such as one partition's part of a fetch response */
    const uint8_t *data;
    int64_t size, start_offset, end_offset, partition;
    Aborted *aborted; /* transactions whose records are left out, by first_offset */
    int64_t aborted_count;
} Chunk;

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
    if (b->base_offset < 0 || b->last_delta < 0 || b->base_offset >= INT64_MAX - b->last_delta ||
        b->record_count < 0 || b->record_count > b->last_delta + 1)
        return 0;
    if (b->attributes & CONTROL || b->base_offset >= b->end_offset ||
        b->base_offset + b->last_delta < b->start_offset)
        b->body = NULL;
    return 1;
}

/* Reading records --------------------------------------------------------------------------- */

typedef struct {
    int64_t offset, timestamp, key_length, value_length, header_count;
    const uint8_t *key, *value, *headers, *end;
} Record;

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

static Sizes nothing(const Sizes *s)
{
    return (Sizes){.index = s->index, .index_size = s->index_size,
                   .timestamp_min = INT64_MAX, .timestamp_max = INT64_MIN};
}

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

/* Validates every record of a batch, lists those wanted and adds up what decode() will write; 0
 * if one is bad (or if there are more than the caller counted). */
static int measure_batch(Batch *b, Sizes *sizes)
{
    Sizes s = *sizes;
    const uint8_t *p = b->body;
    int64_t last = b->base_offset - 1;
    if (b->record_count > b->body_size / RECORD_SIZE_MIN ||
        b->record_count > s.index_size - s.rows)
        return 0;
    for (int64_t n = 0; n < b->record_count; n++) {
        Record r;
        p = read_record(p, b, &last, &r);
        if (!p) return 0;
        int counted = wanted(b, r.offset);
        if (r.header_count) {
            if (!measure_headers(&r, counted, &s)) return 0;
            p = r.end;
        }
        if (p != r.end) return 0;
        if (!counted) continue;
        s.index[s.rows++] = (Row){
            r.offset, r.timestamp,
            (uint32_t)(r.key - b->body), (uint32_t)(r.value - b->body),
            (uint32_t)(r.headers - b->body),
            (int32_t)r.key_length, (int32_t)r.value_length, (int32_t)r.header_count};
        if (r.key_length < 0) s.key_nulls++; else s.key_bytes += r.key_length;
        if (r.value_length < 0) s.value_nulls++; else s.value_bytes += r.value_length;
        if (r.timestamp < s.timestamp_min) s.timestamp_min = r.timestamp;
        if (r.timestamp > s.timestamp_max) s.timestamp_max = r.timestamp;
    }
    if (p != b->body + b->body_size) return 0;
    b->rows = s.rows - sizes->rows;
    *sizes = s;
    return 1;
}

/* Measures batches up to the first bad one; returns how many are good. */
EXPORT int64_t shoal_measure(Batch *batches, int64_t batch_count, Sizes *sizes)
{
    *sizes = nothing(sizes);
    for (int64_t i = 0; i < batch_count; i++)
        if (batches[i].body && !measure_batch(&batches[i], sizes)) return i;
    return batch_count;
}

/* Aborted transactions ---------------------------------------------------------------------- */

/* Which producers are inside an aborted transaction at one point of a chunk. Those are the first
 * `open` of its list, in no order; entries from `next` on begin later. An entry moves down from
 * the second part to the first, so no memory is needed but the list itself. */
typedef struct {
    int64_t open, next;
} Hiding;

static int64_t open_at(const Chunk *chunk, const Hiding *h, int64_t producer_id)
{
    for (int64_t i = 0; i < h->open; i++)
        if (chunk->aborted[i].producer_id == producer_id) return i;
    return -1;
}

/* 1 for an abort, 0 for anything else that ends a transaction or for what compaction left of it,
 * -1 if it does not say. */
static int is_abort_marker(const Batch *b)
{
    Record r;
    int64_t last = b->base_offset - 1;
    if (!b->record_count) return 0;
    if (b->attributes & CODEC || !read_record(b->body, b, &last, &r)) return -1;
    return r.key_length < 4 ? -1 : r.key[2] == 0 && r.key[3] == 0;
}

/* Marks a batch of an aborted transaction as one to skip. Call it with every batch of a chunk, in
 * order; 0 if an abort cannot be told from a commit. */
static int hide(const Chunk *chunk, Hiding *h, const uint8_t *data, Batch *b)
{
    Aborted *aborted = chunk->aborted;
    for (; h->next < chunk->aborted_count &&
           aborted[h->next].first_offset <= b->base_offset + b->last_delta; h->next++)
        if (open_at(chunk, h, aborted[h->next].producer_id) < 0)
            aborted[h->open++] = aborted[h->next];
    if (!h->open || !(b->attributes & TRANSACTIONAL)) return 1;
    int64_t at = open_at(chunk, h, b->producer_id);
    if (at < 0) return 1;
    if (b->attributes & CONTROL) {
        Batch marker = *b;
        marker.body = data + HEADER_SIZE;
        int is_abort = is_abort_marker(&marker);
        if (is_abort < 0) return 0;
        if (is_abort) aborted[at] = aborted[--h->open];
    }
    b->body = NULL;
    return 1;
}

/* What a broker wants to know of a producer's batch before it stores it. */
typedef struct {
    int64_t null_keys, timestamp_min, timestamp_max;
} Facts;

/* Validates the records of one whole batch, of which `body` are the inflated ones if it is
 * compressed (else NULL); 0 if a record or a field of the header is wrong or bytes are left over.
 * The checksum is the caller's. A batch that has as many records as offsets has each of them. */
EXPORT int64_t shoal_vet(const uint8_t *data, int64_t size, const uint8_t *body, int64_t body_size,
                         Facts *facts)
{
    const Chunk chunk = {.data = data, .size = size, .end_offset = INT64_MAX};
    Batch b;
    if (size < HEADER_SIZE || !read_batch(&chunk, 0, size, &b) || !b.body) return 0;
    if (body) b.body = body, b.body_size = body_size;
    if (b.record_count > b.body_size / RECORD_SIZE_MIN) return 0;
    Facts f = {.timestamp_min = INT64_MAX, .timestamp_max = INT64_MIN};
    const uint8_t *p = b.body;
    int64_t last = b.base_offset - 1;
    for (int64_t n = 0; n < b.record_count; n++) {
        Record r;
        p = read_record(p, &b, &last, &r);
        if (!p) return 0;
        if (r.header_count) {
            if (!measure_headers(&r, 0, NULL)) return 0;
            p = r.end;
        }
        if (p != r.end) return 0;
        f.null_keys += r.key_length < 0;
        if (r.timestamp < f.timestamp_min) f.timestamp_min = r.timestamp;
        if (r.timestamp > f.timestamp_max) f.timestamp_max = r.timestamp;
    }
    *facts = f;
    return p == b.body + b.body_size;
}

/* Lists the whole batches of all chunks, up to the first bad one; a cut last one is left out, and
 * those of aborted transactions are marked as to be skipped (which uses their lists up). Those
 * which are not compressed are measured on the way, while they are in the cache. Returns how many
 * there are, and in seen[] all their attributes or'ed together, then chunk and position of the
 * bad one (-1 if there is none). With batches == NULL it only counts, and seen[0] is how many
 * records they can have at most. Should the bytes have changed since they were counted, what is
 * beyond `batch_limit` counts as bad. */
EXPORT int64_t shoal_scan(const Chunk *chunks, int64_t chunk_count, Batch *batches,
                          int64_t batch_limit, int64_t check_crc, Sizes *sizes, int64_t *seen)
{
    int64_t found = 0;
    seen[0] = 0;
    if (sizes) *sizes = nothing(sizes);
    for (int64_t c = 0; c < chunk_count; c++) {
        const Chunk *chunk = &chunks[c];
        Hiding hiding = {0, 0};
        for (int64_t position = 0; chunk->size - position >= LENGTH_FROM;) {
            const uint8_t *p = chunk->data + position;
            int64_t size = (int64_t)(int32_t)get32(p + 8) + LENGTH_FROM;
            seen[1] = c;
            seen[2] = position;
            if (size < MESSAGE_SIZE_MIN) return found;
            if (size > chunk->size - position) break;
            if (size < HEADER_SIZE || p[16] != 2) return found;
            if (batches) {
                if (found == batch_limit) return found;
                Batch *b = &batches[found];
                if (!read_batch(chunk, position, size, b)) return found;
                if (check_crc && shoal_crc32c(p + CRC_FROM, size - CRC_FROM) != get32(p + 17))
                    return found;
                if (chunk->aborted_count && !hide(chunk, &hiding, p, b)) return found;
                if (sizes && b->body && !(b->attributes & CODEC) && !measure_batch(b, sizes))
                    return found;
                b->chunk = c;
                seen[0] |= b->attributes;
            } else {
                int64_t records = (int32_t)get32(p + 57), most = size / RECORD_SIZE_MIN;
                seen[0] += records < 0 ? 0 : records < most ? records : most;
            }
            found++;
            position += size;
        }
    }
    seen[1] = seen[2] = -1;
    return found;
}

/* Where the columns go: parts of one arena, each beginning at a multiple of 64 bytes as Arrow
 * likes it. Variable bytes are in Arrow's layout: value i is data[offsets[i]:offsets[i+1]], null
 * if bit i of validity is 0; without nulls there is no validity. A row without headers is null. */
typedef struct {
    int64_t start, size; /* start is -1 if the part is not there */
} Part;

typedef struct {
    Part offset, timestamp, partition, timestamp_type;
    Part key_offsets, key_data, key_validity, value_offsets, value_data, value_validity;
    Part header_offsets, header_validity, header_key_offsets, header_key_data;
    Part header_value_offsets, header_value_data, header_value_validity;
} Layout;

enum { OFFSET = 1, TIMESTAMP = 2, PARTITION = 4, TIMESTAMP_TYPE = 8, KEY = 16, VALUE = 32,
       HEADERS = 64 };

static int64_t place(Part *part, int64_t is_there, int64_t size, int64_t end)
{
    *part = is_there ? (Part){end, size} : (Part){-1, 0};
    return is_there ? (end + size + 63) & ~(int64_t)63 : end;
}

/* Lays out the wanted columns for what was measured; returns the size of the arena. */
EXPORT int64_t shoal_layout(const Sizes *s, int64_t wanted, Layout *l)
{
    int64_t rows = s->rows, bits = (rows + 7) / 8, end = 0;
    int64_t key = wanted & KEY, value = wanted & VALUE, headers = wanted & HEADERS && s->headers;
    end = place(&l->offset, wanted & OFFSET, 8 * rows, end);
    end = place(&l->timestamp, wanted & TIMESTAMP, 8 * rows, end);
    end = place(&l->partition, wanted & PARTITION, 4 * rows, end);
    end = place(&l->timestamp_type, wanted & TIMESTAMP_TYPE, 4 * rows, end);
    end = place(&l->key_offsets, key, 4 * (rows + 1), end);
    end = place(&l->key_data, key, s->key_bytes, end);
    end = place(&l->key_validity, key && s->key_nulls, bits, end);
    end = place(&l->value_offsets, value, 4 * (rows + 1), end);
    end = place(&l->value_data, value, s->value_bytes, end);
    end = place(&l->value_validity, value && s->value_nulls, bits, end);
    end = place(&l->header_offsets, headers, 4 * (rows + 1), end);
    end = place(&l->header_validity, headers, bits, end);
    end = place(&l->header_key_offsets, headers, 4 * (s->headers + 1), end);
    end = place(&l->header_key_data, headers, s->header_key_bytes, end);
    end = place(&l->header_value_offsets, headers, 4 * (s->headers + 1), end);
    end = place(&l->header_value_data, headers, s->header_value_bytes, end);
    return place(&l->header_value_validity, headers && s->header_value_nulls,
                 (s->headers + 7) / 8, end);
}

typedef struct {
    int32_t *offsets;
    uint8_t *data, *validity;
    int64_t data_size;
} BinaryOut;

static void *at(uint8_t *arena, Part part) { return part.start < 0 ? NULL : arena + part.start; }

static BinaryOut binary_at(uint8_t *arena, Part offsets, Part data, Part validity)
{
    BinaryOut column = {at(arena, offsets), at(arena, data), at(arena, validity), data.size};
    if (column.offsets) column.offsets[0] = 0;
    if (column.validity) memset(column.validity, 0, (size_t)validity.size);
    return column;
}

typedef struct {
    int64_t *offset, *timestamp;
    int32_t *partition, *timestamp_type;
    BinaryOut key, value, header_key, header_value;
    int32_t *header_offsets;
    uint8_t *header_validity;
} Columns;

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

static int put_headers(const Columns *c, const Sizes *sizes, const Batch *b, const Row *r,
                       Ends *end)
{
    const uint8_t *p = b->body + r->headers;
    if (r->header_count > sizes->headers - end->header) return 0;
    for (int32_t i = 0; i < r->header_count; i++, end->header++) {
        Header h;
        p = read_header(p, b->body + b->body_size, &h);
        if (!p ||
            !put_bytes(&c->header_key, end->header, &end->header_key, h.key, h.key_length) ||
            !put_bytes(&c->header_value, end->header, &end->header_value, h.value, h.value_length))
            return 0;
    }
    if (r->header_count) set_bit(c->header_validity, end->row);
    c->header_offsets[end->row + 1] = (int32_t)end->header;
    return 1;
}

/* Writes the columns of all measured batches into an arena laid out for them. Returns the number
 * of rows, or -1 if headers changed in the meantime. */
EXPORT int64_t shoal_decode(const Batch *batches, int64_t batch_count, const Sizes *sizes,
                            const Layout *l, uint8_t *arena, int64_t timestamp_factor)
{
    static const Part NO_PART = {-1, 0};
    const Columns c = {
        at(arena, l->offset), at(arena, l->timestamp),
        at(arena, l->partition), at(arena, l->timestamp_type),
        binary_at(arena, l->key_offsets, l->key_data, l->key_validity),
        binary_at(arena, l->value_offsets, l->value_data, l->value_validity),
        binary_at(arena, l->header_key_offsets, l->header_key_data, NO_PART),
        binary_at(arena, l->header_value_offsets, l->header_value_data, l->header_value_validity),
        at(arena, l->header_offsets), at(arena, l->header_validity)};
    Ends end = {0};
    if (c.header_offsets) {
        c.header_offsets[0] = 0;
        memset(c.header_validity, 0, (size_t)l->header_validity.size);
    }
    for (int64_t i = 0; i < batch_count; i++) {
        const Batch *b = &batches[i];
        if (!b->body) continue;
        for (int64_t n = 0; n < b->rows; n++) {
            int64_t row = end.row;
            const Row *r = &sizes->index[row];
            if (c.offset) c.offset[row] = r->offset;
            if (c.timestamp) c.timestamp[row] = r->timestamp * timestamp_factor;
            if (c.partition) c.partition[row] = (int32_t)b->partition;
            if (c.timestamp_type) c.timestamp_type[row] = (b->attributes & LOG_APPEND_TIME) != 0;
            if (c.key.offsets &&
                !put_bytes(&c.key, row, &end.key, b->body + r->key, r->key_length))
                return -1;
            if (c.value.offsets &&
                !put_bytes(&c.value, row, &end.value, b->body + r->value, r->value_length))
                return -1;
            if (c.header_offsets && !put_headers(&c, sizes, b, r, &end)) return -1;
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
 * them goes there. Returns the length of the format; -1 if it needs more than `capacity` or if
 * headers changed in the meantime. */

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

EXPORT int64_t shoal_cut(const Batch *batches, int64_t batch_count, const Sizes *sizes,
                         const uint8_t *origin, int32_t *header_counts, char *format,
                         int64_t capacity)
{
    char *out = format;
    const Row *r = sizes->index;
    for (int64_t i = 0; i < batch_count; i++) {
        const Batch *b = &batches[i];
        if (!b->body) continue;
        for (int64_t n = 0; n < b->rows; n++, r++) {
            Header pair = {b->body + r->key, b->body + r->value, r->key_length, r->value_length};
            const uint8_t *h = b->body + r->headers;
            int32_t pairs = header_counts ? r->header_count : 1;
            if (header_counts) *header_counts++ = r->header_count;
            if (pairs > (capacity - (out - format)) / CUT_SIZE_MAX) return -1;
            for (; pairs > 0; pairs--) {
                if (header_counts && !(h = read_header(h, b->body + b->body_size, &pair)))
                    return -1;
                out = put_field(out, &origin, pair.key, pair.key_length);
                out = put_field(out, &origin, pair.value, pair.value_length);
            }
        }
    }
    return out - format;
}

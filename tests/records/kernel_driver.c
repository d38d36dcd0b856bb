/* Runs the kernel over a file of chunks, each behind its 32-bit little-endian size: reads each
 * one as decode_columns and decode_records do, into buffers of exactly the measured size, and
 * encodes the columns again. Built with sanitizers, which end it at the first step aside. */
#include "kernel.c"
#include "kernel_crc32c.c"
#include "kernel_write.c"

#include <stdio.h>
#include <stdlib.h>

static void *exactly(int64_t size)
{
    return malloc(size ? (size_t)size : 1);
}

static BinaryOut binary_out(int64_t rows, int64_t bytes)
{
    return (BinaryOut){exactly(4 * (rows + 1)), exactly(bytes), exactly((rows + 7) / 8), bytes};
}

static BinaryIn binary_in(BinaryOut out) { return (BinaryIn){out.offsets, out.data, out.validity, 0}; }

static void release(BinaryOut column)
{
    free(column.offsets);
    free(column.data);
    free(column.validity);
}

static void encode(const ColumnsOut *c, int64_t rows, int64_t limit)
{
    TableIn t = {.rows = rows, .timestamps = c->timestamp, .key = binary_in(c->key),
                 .value = binary_in(c->value),
                 .headers = {.offsets = c->header_offsets, .validity = c->header_validity},
                 .header_key = binary_in(c->header_key), .header_value = binary_in(c->header_value),
                 .limit_bytes = limit, .limit_rows = INT32_MAX, .seal = 1};
    int64_t next_row = 0, capacity = 64, seen[3];
    while (next_row < rows) {
        uint8_t *out = exactly(capacity);
        Cut cuts[4];
        int64_t count = shoal_encode(&t, &next_row, out, capacity, cuts, 4);
        if (count == 0) capacity = cuts[0].size;
        if (count > 0) { /* what was written must read */
            int64_t size = cuts[count - 1].position + cuts[count - 1].size;
            Chunk chunk = {out, size, 0, INT64_MAX, 0};
            if (shoal_scan(&chunk, 1, NULL, 0, NULL, seen) != count) abort();
        }
        free(out);
        if (count < 0) break; /* timestamps too far apart */
    }
}

static void run(const uint8_t *data, int64_t size, int64_t check_crc)
{
    Chunk chunk = {data, size, 0, INT64_MAX, 7};
    int64_t seen[3];
    int64_t count = shoal_scan(&chunk, 1, NULL, 0, NULL, seen), bound = seen[0];
    Batch *batches = exactly(count * (int64_t)sizeof(Batch));
    Sizes sizes = {.index = exactly(bound * (int64_t)sizeof(Row)), .index_size = bound};
    count = shoal_scan(&chunk, 1, batches, check_crc, &sizes, seen);
    int64_t good = shoal_measure(batches, count, &sizes);
    if (!(seen[0] & CODEC) && good != count) abort(); /* it was measured before */
    count = good;
    if (count > 0) {
        int64_t rows = sizes.rows;
        ColumnsOut c = {.offset = exactly(8 * rows), .timestamp = exactly(8 * rows),
                        .partition = exactly(4 * rows), .timestamp_type = exactly(4 * rows),
                        .key = binary_out(rows, sizes.key_bytes),
                        .value = binary_out(rows, sizes.value_bytes),
                        .header_offsets = exactly(4 * (rows + 1)),
                        .header_validity = exactly((rows + 7) / 8),
                        .header_key = binary_out(sizes.headers, sizes.header_key_bytes),
                        .header_value = binary_out(sizes.headers, sizes.header_value_bytes),
                        .timestamp_factor = 1};
        if (shoal_decode(batches, count, &sizes, &c) != rows) abort();
        char *format = exactly(CUT_SIZE_MAX * rows);
        if (shoal_cut(batches, count, &sizes, data, NULL, format, CUT_SIZE_MAX * rows) < 0) abort();
        free(format);
        int32_t *header_counts = exactly(4 * rows);
        format = exactly(CUT_SIZE_MAX * sizes.headers);
        if (shoal_cut(batches, count, &sizes, data, header_counts, format,
                      CUT_SIZE_MAX * sizes.headers) < 0)
            abort();
        free(format);
        encode(&c, rows, 1000);
        encode(&c, rows, INT32_MAX);
        free(c.offset);
        free(c.timestamp);
        free(c.partition);
        free(c.timestamp_type);
        free(c.header_offsets);
        free(c.header_validity);
        release(c.key);
        release(c.value);
        release(c.header_key);
        release(c.header_value);
        free(header_counts);
    }
    free(sizes.index);
    free(batches);
}

int main(int argc, char **argv)
{
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    uint32_t size;
    long chunks = 0;
    if (!file) return 2;
    for (; fread(&size, 4, 1, file) == 1; chunks++) {
        uint8_t *data = exactly(size); /* exactly: a read behind the end is seen */
        if (fread(data, 1, size, file) != size) return 2;
        shoal_prepare(chunks % 2);
        run(data, size, 0);
        run(data, size, 1);
        free(data);
    }
    fclose(file);
    printf("%ld chunks\n", chunks);
    return 0;
}

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

static BinaryIn binary_in(const uint8_t *arena, Part offsets, Part data, Part validity)
{
    return (BinaryIn){at((uint8_t *)arena, offsets), at((uint8_t *)arena, data),
                      at((uint8_t *)arena, validity), 0};
}

static void encode(const uint8_t *arena, const Layout *l, int64_t rows, int64_t limit)
{
    TableIn t = {
        .rows = rows, .timestamps = at((uint8_t *)arena, l->timestamp),
        .key = binary_in(arena, l->key_offsets, l->key_data, l->key_validity),
        .value = binary_in(arena, l->value_offsets, l->value_data, l->value_validity),
        .headers = binary_in(arena, l->header_offsets, l->header_validity, l->header_validity),
        .header_key = binary_in(arena, l->header_key_offsets, l->header_key_data, (Part){-1, 0}),
        .header_value = binary_in(arena, l->header_value_offsets, l->header_value_data,
                                  l->header_value_validity),
        .limit_bytes = limit, .limit_rows = INT32_MAX, .seal = 1};
    int64_t next_row = 0, capacity = 64, seen[3];
    while (next_row < rows) {
        uint8_t *out = exactly(capacity);
        Cut cuts[4];
        int64_t count = shoal_encode(&t, &next_row, out, capacity, cuts, 4);
        if (count == 0) capacity = cuts[0].size;
        if (count > 0) { /* what was written must read */
            int64_t size = cuts[count - 1].position + cuts[count - 1].size;
            Chunk chunk = {.data = out, .size = size, .end_offset = INT64_MAX};
            if (shoal_scan(&chunk, 1, NULL, 0, 0, NULL, seen) != count) abort();
        }
        free(out);
        if (count < 0) break; /* timestamps too far apart */
    }
}

/* Keys as a list has them: lengths, from which offsets and validity are made. */
static void lengths(const Sizes *sizes)
{
    int64_t rows = sizes->rows, bits = (rows + 7) / 8;
    int32_t *given = exactly(4 * rows), *offsets = exactly(4 * (rows + 1));
    uint8_t *validity = exactly(bits);
    memset(validity, 0, (size_t)bits);
    for (int64_t i = 0; i < rows; i++) given[i] = sizes->index[i].key_length;
    if (shoal_offsets(given, rows, offsets, validity) != sizes->key_bytes) abort();
    free(given);
    free(offsets);
    free(validity);
}

static void run(const uint8_t *data, int64_t size, int64_t check_crc)
{
    Chunk chunk = {.data = data, .size = size, .end_offset = INT64_MAX, .partition = 7};
    Aborted *aborted = exactly(3 * (int64_t)sizeof(Aborted));
    int64_t first = size < HEADER_SIZE ? 0 : get64(data + 43);
    aborted[0] = (Aborted){first, INT64_MIN}; /* its producer twice, and nobody */
    aborted[1] = (Aborted){first, 1};
    aborted[2] = (Aborted){-2, INT64_MAX};
    int64_t seen[3];
    Facts facts;
    shoal_vet(data, size, NULL, 0, &facts); /* as one batch, and as an inflated body */
    if (size >= HEADER_SIZE) {
        shoal_vet(data, HEADER_SIZE, data + HEADER_SIZE, size - HEADER_SIZE, &facts);
    }
    int64_t count = shoal_scan(&chunk, 1, NULL, 0, 0, NULL, seen), bound = seen[0];
    Batch *batches = exactly(count * (int64_t)sizeof(Batch));
    Sizes sizes = {.index = exactly(bound * (int64_t)sizeof(Row)), .index_size = bound};
    if (!check_crc) chunk.aborted = aborted, chunk.aborted_count = 3;
    count = shoal_scan(&chunk, 1, batches, count, check_crc, &sizes, seen);
    int64_t good = shoal_measure(batches, count, &sizes);
    if (!(seen[0] & CODEC) && good != count) abort(); /* it was measured before */
    count = good;
    if (count > 0) {
        int64_t rows = sizes.rows;
        Layout layout;
        int64_t arena_size = shoal_layout(&sizes, 127, &layout);
        uint8_t *arena = exactly(arena_size);
        if (shoal_decode(batches, count, &sizes, &layout, arena, 1) != rows) abort();
        char *format = exactly(CUT_SIZE_MAX * rows);
        if (shoal_cut(batches, count, &sizes, data, NULL, format, CUT_SIZE_MAX * rows) < 0) abort();
        free(format);
        int32_t *header_counts = exactly(4 * rows);
        format = exactly(CUT_SIZE_MAX * sizes.headers);
        if (shoal_cut(batches, count, &sizes, data, header_counts, format,
                      CUT_SIZE_MAX * sizes.headers) < 0)
            abort();
        free(format);
        encode(arena, &layout, rows, 1000);
        encode(arena, &layout, rows, INT32_MAX);
        lengths(&sizes);
        free(arena);
        free(header_counts);
    }
    free(sizes.index);
    free(batches);
    free(aborted);
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

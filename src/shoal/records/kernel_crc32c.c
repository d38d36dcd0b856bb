/* CRC-32C, as every batch carries it.
 *
 * With the processor's instruction: three runs of BLOCK bytes at a time, as it takes three cycles
 * but can start in each; the runs are joined by a table which moves a checksum over BLOCK zero
 * bytes. The processor does not foresee reading in three places, so the next three runs are asked
 * for in advance: on bytes fresh from a socket that halves the time. Without the instruction:
 * eight bytes at a time by tables.
 */
#include "kernel.h"

#define POLYNOMIAL 0x82f63b78u
#define BLOCK 256

static uint32_t by_eight[8][256];
static uint32_t over_block[4][256];

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__clang__) && __clang_major__ >= 14
#define HARDWARE __attribute__((target("sse4.2,crc32"))) /* a feature of its own since then */
#else
#define HARDWARE __attribute__((target("sse4.2")))
#endif
#define STEP64(crc, p) __builtin_ia32_crc32di((crc), load64(p))
#define STEP8(crc, p) __builtin_ia32_crc32qi((uint32_t)(crc), *(p))
static int has_instruction(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_2);
}
#elif defined(__aarch64__) && (defined(__ARM_FEATURE_CRC32) || defined(__linux__))
#include <arm_acle.h>
#define STEP64(crc, p) __crc32cd((uint32_t)(crc), load64(p))
#define STEP8(crc, p) __crc32cb((uint32_t)(crc), *(p))
#if defined(__ARM_FEATURE_CRC32)
#define HARDWARE
static int has_instruction(void) { return 1; }
#else /* compiled for every ARMv8, on which it is an option: ask the system */
#include <sys/auxv.h>
#define HARDWARE __attribute__((target("+crc")))
static int has_instruction(void) { return (getauxval(AT_HWCAP) & 1 << 7) != 0; }
#endif
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
        for (int i = 0; i < 3 * BLOCK; i += 64) __builtin_prefetch(p + 3 * BLOCK + i);
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

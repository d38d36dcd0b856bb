/* JSON documents to columns: one document a value, read into arrays that Arrow takes as they are.
 * A plain shared object called through ctypes, as records/kernel.c is: no Python.h, no allocation,
 * no global state. The structures stand in json_kernel.py a second time.
 *
 * Rules that keep it small:
 * - Only what every reader of JSON agrees on is read: RFC 8259, each name once, each value of the
 *   type its column has. Whatever else Spark's from_json would take (other quotes, words for
 *   numbers, numbers as text) or half take is left, and its row is named to the caller.
 * - A row that is left leaves nothing behind: its columns are taken back to where it began.
 * - Nothing is read at or behind the end of a document, and nothing written without room.
 * The caller has made sure that the bytes are UTF-8.
 */
#include <float.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define VERSION 1

enum { STRUCT, LIST, WHOLE, DOUBLE, SINGLE, DECIMAL, FLAG, TEXT };
enum { DEPTH_MAX = 64, NUMBER_MAX = 300, EXPONENT_MAX = 4000 };

typedef struct { /* one column; those of a struct's fields and of a list's values are its children */
    int64_t kind;
    int64_t first, children; /* where its children begin in the table, and how many there are */
    const uint8_t *name;
    int64_t name_size;
    int64_t width;            /* WHOLE: bytes of a number */
    int64_t precision, scale; /* DECIMAL */
    int64_t room, count;      /* values there is room for, and values there are */
    uint8_t *valid;           /* a byte for each */
    void *values;             /* LIST: offsets, one more than there are values */
} Column;

typedef struct { /* where a text stands in its document, and how long it is without escapes */
    const uint8_t *start;
    int32_t size, is_plain;
} Text;

typedef struct { /* Arrow's layout; validity == NULL: no value is null */
    const int32_t *offsets;
    const uint8_t *data, *validity;
    int64_t first_bit;
} BinaryIn;

typedef struct {
    Column *columns;
    const uint8_t *p, *end;
    int lacks_room;
} Reader;

EXPORT int64_t shoal_json_version(void) { return VERSION; }

/* --- tokens: each moves p behind itself, or answers 0 --- */

/* Whether there is something more behind white space. */
static inline int more(Reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\r' || *r->p == '\t'))
        r->p++;
    return r->p < r->end;
}

static inline int take(Reader *r, uint8_t wanted)
{
    if (!more(r) || *r->p != wanted) return 0;
    r->p++;
    return 1;
}

static int take_word(Reader *r, const char *word, int64_t size)
{
    if (r->end - r->p < size || memcmp(r->p, word, (size_t)size) != 0) return 0;
    r->p += size;
    return 1;
}

/* Four digits of base 16; -1 if they are not. */
static int32_t code_unit(const uint8_t *p, const uint8_t *end)
{
    int32_t unit = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int32_t c = p[i] | 32, digit = c >= '0' && c <= '9' ? c - '0' : c - 'a' + 10;
        if (p[i] < '0' || (p[i] > '9' && (c < 'a' || c > 'f'))) return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

static int is_high(int32_t unit) { return unit >= 0xD800 && unit < 0xDC00; }
static int is_low(int32_t unit) { return unit >= 0xDC00 && unit < 0xE000; }

/* The character behind \u, p at its first digit; how many bytes were read, 0 if it is half a one. */
static int escaped(const uint8_t *p, const uint8_t *end, int32_t *character)
{
    int32_t unit = code_unit(p, end);
    *character = unit;
    if (unit < 0 || is_low(unit)) return 0;
    if (!is_high(unit)) return 4;
    if (end - p < 10 || p[4] != '\\' || p[5] != 'u') return 0;
    int32_t low = code_unit(p + 6, end);
    if (low < 0 || !is_low(low)) return 0;
    *character = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
    return 10;
}

static int utf8_size(int32_t c) { return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4; }

/* A text from behind its first quote to behind its last one. */
static int take_text(Reader *r, Text *text)
{
    const uint64_t each = ~UINT64_C(0) / 255, high = each << 7;
    const uint8_t *p = r->p;
    int64_t shorter = 0;
    text->start = p;
    text->is_plain = 1;
    for (;;) {
        uint64_t eight; /* eight bytes without quote, backslash or control character at once */
        while (r->end - p >= 8) {
            memcpy(&eight, p, 8);
            uint64_t quote = eight ^ (each * '"'), backslash = eight ^ (each * '\\');
            if ((((eight - each * 32) & ~eight) | ((quote - each) & ~quote) |
                 ((backslash - each) & ~backslash)) & high)
                break;
            p += 8;
        }
        while (p < r->end && *p >= 32 && *p != '"' && *p != '\\') p++;
        if (p == r->end || *p < 32) return 0;
        if (*p == '"') break;
        if (r->end - p < 2) return 0;
        text->is_plain = 0;
        if (p[1] == 'u') {
            int32_t character;
            int read = escaped(p + 2, r->end, &character);
            if (!read) return 0;
            p += 2 + read;
            shorter += 2 + read - utf8_size(character);
        } else {
            if (!memchr("\"\\/bfnrt", p[1], 8)) return 0;
            p += 2;
            shorter++;
        }
    }
    if (p - text->start > INT32_MAX) return 0;
    text->size = (int32_t)(p - text->start - shorter);
    r->p = p + 1;
    return 1;
}

typedef struct {
    const uint8_t *start;
    uint64_t digits;   /* without the point; of the first nineteen that count */
    int64_t counted;   /* how many count */
    int64_t behind;    /* how many stand behind the point */
    int64_t exponent;
    int is_negative, is_whole, has_exponent;
} Number;

static void take_digits(Reader *r, Number *n, int64_t *taken)
{
    for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++, ++*taken) {
        if (n->counted || *r->p != '0') n->counted++;
        if (n->counted <= 19) n->digits = n->digits * 10 + (*r->p - '0');
    }
}

static int take_number(Reader *r, Number *n)
{
    int64_t before = 0;
    *n = (Number){.start = r->p, .is_whole = 1};
    if (*r->p == '-') {
        n->is_negative = 1;
        r->p++;
    }
    const uint8_t *first = r->p;
    take_digits(r, n, &before);
    if (!before || (before > 1 && *first == '0')) return 0;
    if (r->p < r->end && *r->p == '.') {
        r->p++;
        n->is_whole = 0;
        take_digits(r, n, &n->behind);
        if (!n->behind) return 0;
    }
    if (r->p < r->end && (*r->p | 32) == 'e') {
        int is_small = 0, digits = 0;
        r->p++;
        n->is_whole = 0;
        n->has_exponent = 1;
        if (r->p < r->end && (*r->p == '-' || *r->p == '+')) is_small = *r->p++ == '-';
        for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++, digits++) {
            n->exponent = n->exponent * 10 + (*r->p - '0');
            if (n->exponent > EXPONENT_MAX) return 0;
        }
        if (!digits) return 0;
        if (is_small) n->exponent = -n->exponent;
    }
    /* Something follows in every document: strtod below stops there, and not behind the end. */
    return r->p < r->end && r->p - n->start <= NUMBER_MAX;
}

/* --- values of one column --- */

static int has_room(Reader *r, const Column *c)
{
    if (c->count < c->room) return 1;
    r->lacks_room = 1;
    return 0;
}

static int put_whole(Column *c, const Number *n)
{
    uint64_t most = (UINT64_C(1) << (8 * c->width - 1)) - 1 + (uint64_t)n->is_negative;
    if (!n->is_whole || n->counted > 19 || n->digits > most) return 0;
    int64_t value = n->is_negative ? (int64_t)(0 - n->digits) : (int64_t)n->digits;
    switch (c->width) {
    case 1: ((int8_t *)c->values)[c->count] = (int8_t)value; break;
    case 2: ((int16_t *)c->values)[c->count] = (int16_t)value; break;
    case 4: ((int32_t *)c->values)[c->count] = (int32_t)value; break;
    default: ((int64_t *)c->values)[c->count] = value;
    }
    return 1;
}

static const double POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static int put_double(Reader *r, Column *c, const Number *n)
{
    double value;
    int64_t power = n->exponent - n->behind;
    char *end;
    if (n->is_whole && !n->counted) {
        value = 0; /* a whole zero has no sign */
    } else if (FLT_EVAL_METHOD == 0 && n->counted <= 19 && n->digits <= UINT64_C(1) << 53 &&
               power >= -22 && power <= 22) {
        /* Both are exact, so the one operation rounds as it should. */
        value = power < 0 ? (double)n->digits / POWERS[-power] : (double)n->digits * POWERS[power];
        if (n->is_negative) value = -value;
    } else {
        value = strtod((const char *)n->start, &end);
        /* Elsewhere: another locale's point, or a number in another base. */
        if ((const uint8_t *)end != r->p || value - value != 0) return 0;
    }
    ((double *)c->values)[c->count] = value;
    return 1;
}

static int put_single(Reader *r, Column *c, const Number *n)
{
    char *end;
    float value = strtof((const char *)n->start, &end);
    if ((const uint8_t *)end != r->p || value - value != 0) return 0;
    ((float *)c->values)[c->count] = n->is_whole && !n->counted ? 0 : value;
    return 1;
}

static int put_decimal(Reader *r, Column *c, const Number *n)
{
    unsigned __int128 value = 0, bound = 1;
    if (n->has_exponent || n->behind > c->scale || n->counted > c->precision) return 0;
    for (int64_t i = 0; i < c->precision; i++) bound *= 10;
    for (const uint8_t *p = n->start; p < r->p; p++)
        if (*p >= '0' && *p <= '9') value = value * 10 + (*p - '0');
    for (int64_t i = n->behind; i < c->scale; i++) {
        if (value >= bound) return 0;
        value *= 10;
    }
    if (value >= bound) return 0;
    if (n->is_negative) value = -value;
    memcpy((uint8_t *)c->values + 16 * c->count, &value, 16);
    return 1;
}

/* --- columns --- */

static int put_null(Reader *r, Column *c)
{
    if (!has_room(r, c)) return 0;
    for (int64_t i = 0; c->kind == STRUCT && i < c->children; i++)
        if (!put_null(r, r->columns + c->first + i)) return 0;
    switch (c->kind) {
    case LIST: ((int32_t *)c->values)[c->count + 1] = ((int32_t *)c->values)[c->count]; break;
    case WHOLE: memset((uint8_t *)c->values + c->width * c->count, 0, (size_t)c->width); break;
    case DOUBLE: ((double *)c->values)[c->count] = 0; break;
    case SINGLE: ((float *)c->values)[c->count] = 0; break;
    case DECIMAL: memset((uint8_t *)c->values + 16 * c->count, 0, 16); break;
    case FLAG: ((uint8_t *)c->values)[c->count] = 0; break;
    case TEXT: ((Text *)c->values)[c->count] = (Text){NULL, 0, 1}; break;
    }
    c->valid[c->count++] = 0;
    return 1;
}

/* Leave so many values, and of its children what belongs to them. */
static void take_back(Column *columns, Column *c, int64_t count)
{
    int64_t inside = c->kind == LIST ? ((int32_t *)c->values)[count] : count;
    c->count = count;
    for (int64_t i = 0; i < c->children; i++) take_back(columns, columns + c->first + i, inside);
}

static int skip_value(Reader *r, int depth)
{
    Text text;
    Number number;
    if (!more(r) || depth > DEPTH_MAX) return 0;
    switch (*r->p) {
    case '"': r->p++; return take_text(r, &text);
    case 't': return take_word(r, "true", 4);
    case 'f': return take_word(r, "false", 5);
    case 'n': return take_word(r, "null", 4);
    case '{':
    case '[': break;
    default: return take_number(r, &number);
    }
    uint8_t last = *r->p++ == '{' ? '}' : ']';
    if (take(r, last)) return 1;
    do {
        if (last == '}' && !(take(r, '"') && take_text(r, &text) && take(r, ':'))) return 0;
        if (!skip_value(r, depth + 1)) return 0;
    } while (take(r, ','));
    return take(r, last);
}

static int read_value(Reader *r, Column *c);

/* The field of this name; documents mostly have them in one order, so the next one comes first. */
static Column *field(Reader *r, const Column *c, const Text *name, int64_t *next)
{
    for (int64_t tried = 0; tried < c->children; tried++) {
        Column *one = r->columns + c->first + (*next < c->children ? *next : (*next = 0));
        ++*next;
        if (one->name_size == name->size &&
            memcmp(one->name, name->start, (size_t)name->size) == 0)
            return one;
    }
    return NULL;
}

static int read_struct(Reader *r, Column *c)
{
    int64_t at = c->count, next = 0;
    Text name;
    if (!take(r, '{')) return 0;
    if (!take(r, '}')) {
        do {
            if (!take(r, '"') || !take_text(r, &name) || !name.is_plain || !take(r, ':')) return 0;
            Column *one = field(r, c, &name, &next);
            if (one && one->count != at) return 0; /* named twice */
            if (!(one ? read_value(r, one) : skip_value(r, 0))) return 0;
        } while (take(r, ','));
        if (!take(r, '}')) return 0;
    }
    for (int64_t i = 0; i < c->children; i++) {
        Column *one = r->columns + c->first + i;
        if (one->count == at && !put_null(r, one)) return 0;
    }
    return 1;
}

static int read_list(Reader *r, Column *c)
{
    Column *values = r->columns + c->first;
    if (!take(r, '[')) return 0;
    if (!take(r, ']')) {
        do {
            if (!read_value(r, values)) return 0;
        } while (take(r, ','));
        if (!take(r, ']')) return 0;
    }
    ((int32_t *)c->values)[c->count + 1] = (int32_t)values->count;
    return 1;
}

static int read_flag(Reader *r, Column *c)
{
    int is_true = take_word(r, "true", 4);
    if (!is_true && !take_word(r, "false", 5)) return 0;
    ((uint8_t *)c->values)[c->count] = (uint8_t)is_true;
    return 1;
}

static int read_number(Reader *r, Column *c)
{
    Number number;
    if (!take_number(r, &number)) return 0;
    switch (c->kind) {
    case WHOLE: return put_whole(c, &number);
    case DOUBLE: return put_double(r, c, &number);
    case SINGLE: return put_single(r, c, &number);
    default: return put_decimal(r, c, &number);
    }
}

static int read_present(Reader *r, Column *c)
{
    switch (c->kind) {
    case STRUCT: return read_struct(r, c);
    case LIST: return read_list(r, c);
    case FLAG: return read_flag(r, c);
    case TEXT: return take(r, '"') && take_text(r, (Text *)c->values + c->count);
    default: return read_number(r, c);
    }
}

static int read_value(Reader *r, Column *c)
{
    if (!more(r)) return 0;
    if (*r->p == 'n') return take_word(r, "null", 4) && put_null(r, c);
    if (!has_room(r, c) || !read_present(r, c)) return 0;
    c->valid[c->count++] = 1;
    return 1;
}

/* Read every value into the columns, of which the first is the document. Writes the numbers of the
 * rows that are left, whose values are null, and returns how many; -1 if there was no room. */
EXPORT int64_t shoal_json_read(Column *columns, int64_t column_count, const BinaryIn *values,
                               int64_t rows, int64_t *left)
{
    int64_t left_count = 0;
    Reader r = {.columns = columns};
    for (int64_t i = 0; i < column_count; i++) {
        columns[i].count = 0;
        if (columns[i].kind == LIST) ((int32_t *)columns[i].values)[0] = 0;
    }
    for (int64_t row = 0; row < rows; row++) {
        int64_t bit = values->first_bit + row;
        int is_null = values->validity && !(values->validity[bit >> 3] >> (bit & 7) & 1);
        r.p = values->data + values->offsets[row];
        r.end = values->data + values->offsets[row + 1];
        /* A document of null is a row of null for some, and none for others. */
        if (!is_null && more(&r) && *r.p == '{' && read_value(&r, columns) && !more(&r)) continue;
        if (!r.lacks_room) {
            take_back(columns, columns, row);
            if (!is_null) left[left_count++] = row;
            put_null(&r, columns);
        }
        if (r.lacks_room) return -1;
    }
    return left_count;
}

/* How many bytes the texts of a column have in all. */
EXPORT int64_t shoal_json_text_size(const Column *c)
{
    int64_t size = 0;
    for (int64_t i = 0; i < c->count; i++) size += ((const Text *)c->values)[i].size;
    return size;
}

static uint8_t *put_utf8(uint8_t *out, int32_t c)
{
    int size = utf8_size(c);
    if (size == 1) {
        *out = (uint8_t)c;
        return out + 1;
    }
    for (int i = size - 1; i > 0; i--, c >>= 6) out[i] = (uint8_t)(0x80 | (c & 0x3F));
    out[0] = (uint8_t)(0xF0 << (4 - size) | c);
    return out + size;
}

/* A text that was read before, so its escapes are whole. */
static uint8_t *without_escapes(uint8_t *out, const uint8_t *p)
{
    static const char letters[] = "bfnrt", meant[] = "\b\f\n\r\t";
    while (*p != '"') {
        if (*p != '\\') {
            *out++ = *p++;
        } else if (p[1] == 'u') {
            int32_t character;
            p += 2 + escaped(p + 2, p + 12, &character);
            out = put_utf8(out, character);
        } else {
            const char *letter = memchr(letters, p[1], 5);
            *out++ = letter ? (uint8_t)meant[letter - letters] : p[1];
            p += 2;
        }
    }
    return out;
}

/* The texts of a column, one behind the other; there is room for as many bytes as they have. */
EXPORT void shoal_json_texts(const Column *c, int32_t *offsets, uint8_t *data)
{
    uint8_t *out = data;
    offsets[0] = 0;
    for (int64_t i = 0; i < c->count; i++) {
        const Text *text = (const Text *)c->values + i;
        if (!text->is_plain) {
            out = without_escapes(out, text->start);
        } else if (text->size) {
            memcpy(out, text->start, (size_t)text->size);
            out += text->size;
        }
        offsets[i + 1] = (int32_t)(out - data);
    }
}

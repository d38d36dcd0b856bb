/* Records as Python objects, made from what the kernel found (kernel.c), as a CPython extension.
 *
 * The kernel has parsed and checked the batches and noted in an index where each record's parts
 * lie. Here every row of the index becomes an object: space for it, and its fields put where
 * the setters of its slots put them, which is what its class would do, without Python in between.
 *
 * Every length is checked once more against the body it points into: should the bytes, or the
 * index, have changed in between, what comes out is wrong but nothing else is read.
 *
 * Only the limited API is used, so that one file serves every version from 3.11 on.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernel.h"
#include "kernel_read.h"

enum { TOPIC, PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, KEY, VALUE, HEADERS, LEADER_EPOCH,
       FIELDS };

typedef struct { /* set by ``prepare`` */
    PyObject *record_type, *create_time, *log_append_time, *no_headers, *changed_error;
    PyObject *fields[FIELDS];
    Py_ssize_t places[FIELDS]; /* where in a record each field is; 0 if that is not known */
    descrsetfunc set_field;
    descrgetfunc get_field;
} State;

static State *state_of(PyObject *module) { return PyModule_GetState(module); }

/* The garbage collector --------------------------------------------------------------------- */

/* Looking at records again and again was a third of what a poll costs, and in vain: a circle needs
 * something that can refer back, and bytes, text and numbers cannot. So a record is made unknown to
 * the collector, and becomes known when it is given anything else. */

static int is_plain(PyObject *object)
{
    return object == Py_None || PyBytes_CheckExact(object) || PyUnicode_CheckExact(object) ||
           PyLong_CheckExact(object) || PyFloat_CheckExact(object) || PyBool_Check(object);
}

static void was_given(PyObject *record, PyObject *object)
{
    if (!is_plain(object) && !PyObject_GC_IsTracked(record)) PyObject_GC_Track(record);
}

/* Record.__setattr__(name, value) */
static PyObject *set_attribute(PyObject *record, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2)
        return PyErr_Format(PyExc_TypeError, "expected 2 arguments, got %zd", count);
    if (PyObject_GenericSetAttr(record, args[0], args[1])) return NULL;
    was_given(record, args[1]);
    Py_RETURN_NONE;
}

static PyMethodDef set_attribute_method = {
    "__setattr__", (PyCFunction)(void (*)(void))set_attribute, METH_FASTCALL,
    "__setattr__($self, name, value, /)\n--\n\nImplement setattr(self, name, value)."};

static int watch_attributes(PyObject *record_type)
{
    PyObject *method = PyDescr_NewMethod((PyTypeObject *)record_type, &set_attribute_method);
    int is_set = method && !PyObject_SetAttrString(record_type, "__setattr__", method);
    Py_XDECREF(method);
    return is_set;
}

/* Making records ---------------------------------------------------------------------------- */

typedef struct { /* a body, and whether something was found to lie outside of it */
    const uint8_t *bytes;
    int64_t size;
} Body;

static PyObject *changed(const State *state)
{
    PyErr_SetString(state->changed_error, "the batches changed while they were being decoded");
    return NULL;
}

static PyObject *bytes_at(const State *state, Body body, int64_t position, int64_t length)
{
    if (length < 0) Py_RETURN_NONE;
    if (position > body.size || length > body.size - position) return changed(state);
    return PyBytes_FromStringAndSize((const char *)body.bytes + position, length);
}

/* Names of headers repeat: each is decoded once, as long as no other takes its place. */
#define NAMES 64

typedef struct {
    const uint8_t *bytes;
    int64_t length;
    PyObject *text;
} Name;

static PyObject *name_of(Name *names, const uint8_t *bytes, int64_t length)
{
    uint64_t place = (uint64_t)length;
    if (length) place += 7u * bytes[0] + 31u * bytes[length - 1];
    Name *name = &names[place % NAMES];
    if (!name->text || name->length != length || memcmp(name->bytes, bytes, (size_t)length)) {
        /* Java's reader replaces what is not UTF-8; a consumer must not get stuck on it. */
        PyObject *text = PyUnicode_DecodeUTF8((const char *)bytes, length, "replace");
        if (!text) return NULL;
        Py_XDECREF(name->text);
        *name = (Name){bytes, length, text};
    }
    Py_INCREF(name->text);
    return name->text;
}

static PyObject *pair_of(const State *state, Name *names, const Header *header)
{
    PyObject *name, *content, *pair = NULL;
    name = name_of(names, header->key, header->key_length);
    Body value = {header->value, header->value_length};
    content = bytes_at(state, value, 0, header->value_length);
    if (name && content && (pair = PyTuple_Pack(2, name, content))) PyObject_GC_UnTrack(pair);
    Py_XDECREF(name);
    Py_XDECREF(content);
    return pair;
}

static PyObject *headers_of(const State *state, Name *names, Body body, const Row *row)
{
    if (!row->header_count) {
        Py_INCREF(state->no_headers);
        return state->no_headers;
    }
    if (row->headers > body.size || row->header_count < 0 ||
        row->header_count > (body.size - row->headers) / 2)
        return changed(state);
    const uint8_t *p = body.bytes + row->headers;
    PyObject *made = PyTuple_New(row->header_count);
    for (int32_t i = 0; made && i < row->header_count; i++) {
        Header header;
        PyObject *pair = NULL;
        p = read_header(p, body.bytes + body.size, &header);
        if (p)
            pair = pair_of(state, names, &header);
        else
            changed(state);
        if (!pair || PyTuple_SetItem(made, i, pair)) Py_CLEAR(made);
    }
    if (made) PyObject_GC_UnTrack(made);
    return made;
}

static int set_fields(const State *state, PyObject *record, PyObject **fields)
{
    for (int i = 0; i < FIELDS; i++) {
        if (LIKELY(state->places[i])) {
            Py_INCREF(fields[i]);
            *(PyObject **)((char *)record + state->places[i]) = fields[i]; /* nothing was there */
        } else if (state->set_field(state->fields[i], record, fields[i])) {
            return 0;
        }
    }
    return 1;
}

/* Of all that is in `fields`, what differs from record to record is made here; of one that has the
 * same time as the one before, which many have, that is in `fields` already. */
static PyObject *record_of(const State *state, Name *names, Body body, const Row *row,
                           PyObject **fields)
{
    PyObject *made = NULL;
    fields[OFFSET] = PyLong_FromLongLong(row->offset);
    fields[KEY] = bytes_at(state, body, row->key, row->key_length);
    fields[VALUE] = bytes_at(state, body, row->value, row->value_length);
    fields[HEADERS] = headers_of(state, names, body, row);
    if (fields[OFFSET] && fields[TIMESTAMP] && fields[KEY] && fields[VALUE] && fields[HEADERS])
        made = PyType_GenericAlloc((PyTypeObject *)state->record_type, 0);
    if (made && !set_fields(state, made, fields)) Py_CLEAR(made);
    if (made && is_plain(fields[TOPIC]) && is_plain(fields[PARTITION])) PyObject_GC_UnTrack(made);
    Py_XDECREF(fields[OFFSET]);
    Py_XDECREF(fields[KEY]);
    Py_XDECREF(fields[VALUE]);
    Py_XDECREF(fields[HEADERS]);
    return made;
}

static int put_records(const State *state, Name *names, const Batch *batches,
                       int64_t batch_count, const Sizes *sizes, PyObject *topic,
                       PyObject *partition, PyObject *list)
{
    PyObject *fields[FIELDS] = {[TOPIC] = topic, [PARTITION] = partition};
    int64_t at = 0, timestamp = 0;
    for (int64_t i = 0; i < batch_count; i++) {
        const Batch *b = &batches[i];
        if (!b->body) continue;
        Body body = {b->body, b->body_size};
        PyObject *epoch = NULL;
        if (b->leader_epoch >= 0 && !(epoch = PyLong_FromLongLong(b->leader_epoch))) {
            Py_XDECREF(fields[TIMESTAMP]);
            return 0;
        }
        fields[LEADER_EPOCH] = epoch ? epoch : Py_None;
        fields[TIMESTAMP_TYPE] =
            b->attributes & LOG_APPEND_TIME ? state->log_append_time : state->create_time;
        int is_good = 1;
        for (int64_t n = 0; n < b->rows && is_good; n++, at++) {
            is_good = at < sizes->rows ? 1 : (changed(state), 0);
            if (is_good && (!fields[TIMESTAMP] || sizes->index[at].timestamp != timestamp)) {
                Py_XDECREF(fields[TIMESTAMP]);
                timestamp = sizes->index[at].timestamp;
                fields[TIMESTAMP] = PyLong_FromLongLong(timestamp);
            }
            PyObject *record = NULL;
            if (is_good) record = record_of(state, names, body, &sizes->index[at], fields);
            is_good = record && !PyList_SetItem(list, at, record);
        }
        Py_XDECREF(epoch);
        if (!is_good) {
            Py_XDECREF(fields[TIMESTAMP]);
            return 0;
        }
    }
    Py_XDECREF(fields[TIMESTAMP]);
    if (at == sizes->rows) return 1;
    changed(state);
    return 0;
}

/* make(batches, first, count, sizes, topic, partition): the records of a group, in a list. */
static PyObject *make(PyObject *module, PyObject *args)
{
    const State *state = state_of(module);
    Py_buffer batches, sizes_view;
    Py_ssize_t first, count;
    PyObject *topic, *partition, *list = NULL;
    Name names[NAMES] = {{NULL, 0, NULL}};
    /* The garbage collector would look at thousands of new records again and again, of which none
     * can be garbage: once when they are all there is enough. Nobody else runs meanwhile. */
    int collects;
    if (!PyArg_ParseTuple(args, "y*nny*OO", &batches, &first, &count, &sizes_view, &topic,
                          &partition))
        return NULL;
    Py_ssize_t there = batches.len / (Py_ssize_t)sizeof(Batch);
    const Sizes *sizes = sizes_view.buf;
    collects = PyGC_Disable();
    if (!state->record_type)
        PyErr_SetString(PyExc_RuntimeError, "prepare() was not called");
    else if (sizes_view.len != sizeof(Sizes) || first < 0 || count < 0 || first > there ||
             count > there - first || sizes->rows < 0 || sizes->rows > sizes->index_size)
        PyErr_SetString(PyExc_ValueError, "make() takes batches, which of them, and their sizes");
    else if ((list = PyList_New(sizes->rows)) &&
             !put_records(state, names, (const Batch *)batches.buf + first, count, sizes, topic,
                          partition, list))
        Py_CLEAR(list);
    if (collects) PyGC_Enable();
    for (int i = 0; i < NAMES; i++) Py_XDECREF(names[i].text);
    PyBuffer_Release(&batches);
    PyBuffer_Release(&sizes_view);
    return list;
}

/* Other contents ---------------------------------------------------------------------------- */

/* put(record, key, value): as both assignments, by a shorter way. */
static PyObject *put(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    const State *state = state_of(module);
    if (count != 3 || Py_TYPE(args[0]) != (PyTypeObject *)state->record_type) {
        PyErr_SetString(PyExc_TypeError, "put() takes a record, its key and its value");
        return NULL;
    }
    if (state->set_field(state->fields[KEY], args[0], args[1])) return NULL;
    was_given(args[0], args[1]);
    if (state->set_field(state->fields[VALUE], args[0], args[2])) return NULL;
    was_given(args[0], args[2]);
    Py_RETURN_NONE;
}

/* The text of one field, or what it is now if that is null; NULL if it is not UTF-8. */
static PyObject *text_of(const State *state, PyObject *record, int field)
{
    PyObject *now =
        state->get_field(state->fields[field], record, (PyObject *)Py_TYPE(record));
    if (!now || !PyBytes_CheckExact(now)) return now;
    PyObject *text = PyUnicode_DecodeUTF8(PyBytes_AsString(now), PyBytes_Size(now), NULL);
    Py_DECREF(now);
    return text;
}

/* decode(records, start, end, keys, values): bytes to text, in place, from `start` on; how far
 * it came: to `end`, or to the first record that is not UTF-8, which is left as it is. */
static PyObject *decode(PyObject *module, PyObject *args)
{
    const State *state = state_of(module);
    PyObject *records;
    Py_ssize_t at, end;
    int wanted[2];
    static const int places[2] = {KEY, VALUE};
    if (!PyArg_ParseTuple(args, "O!nnpp", &PyList_Type, &records, &at, &end, &wanted[0],
                          &wanted[1]))
        return NULL;
    if (!state->record_type) {
        PyErr_SetString(PyExc_RuntimeError, "prepare() was not called");
        return NULL;
    }
    if (at < 0) at = 0;
    for (; at < end && at < PyList_Size(records); at++) {
        PyObject *record = PyList_GetItem(records, at);
        if (Py_TYPE(record) != (PyTypeObject *)state->record_type) break;
        PyObject *texts[2] = {NULL, NULL};
        int is_good = 1;
        Py_INCREF(record);
        for (int i = 0; i < 2 && is_good; i++)
            if (wanted[i] && !(texts[i] = text_of(state, record, places[i]))) is_good = 0;
        for (int i = 0; i < 2 && is_good; i++)
            if (texts[i] && state->set_field(state->fields[places[i]], record, texts[i]))
                is_good = 0;
        Py_XDECREF(texts[0]);
        Py_XDECREF(texts[1]);
        Py_DECREF(record);
        if (!is_good) {
            if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) return NULL;
            PyErr_Clear(); /* Python meets it again, and words it */
            break;
        }
    }
    return PyLong_FromSsize_t(at);
}

/* The module -------------------------------------------------------------------------------- */

static void replace(PyObject **place, PyObject *object)
{
    PyObject *old = *place;
    Py_XINCREF(object);
    *place = object;
    Py_XDECREF(old);
}

/* Where in a record a slot's setter puts what it is given: the one place that has changed. */
static int find_places(PyObject *record_type, descrsetfunc set_field, PyObject **fields,
                       Py_ssize_t *places)
{
    PyObject *number = PyObject_GetAttrString(record_type, "__basicsize__");
    Py_ssize_t size = number ? PyLong_AsSsize_t(number) : -1;
    PyObject *record = NULL;
    if (size >= 0) record = PyType_GenericAlloc((PyTypeObject *)record_type, 0);
    int is_good = record != NULL;
    for (int i = 0; i < FIELDS && is_good; i++) {
        PyObject *mark = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
        is_good = mark && !set_field(fields[i], record, mark);
        int found = 0;
        Py_ssize_t at = sizeof(PyObject);
        for (; is_good && at + (Py_ssize_t)sizeof(mark) <= size; at += sizeof(mark))
            if (*(PyObject **)((char *)record + at) == mark && !found++) places[i] = at;
        if (found != 1) places[i] = 0;
        Py_XDECREF(mark);
    }
    Py_XDECREF(record);
    Py_XDECREF(number);
    return is_good;
}

static PyObject *prepare(PyObject *module, PyObject *args)
{
    State *state = state_of(module);
    PyObject *record_type, *names, *create_time, *log_append_time, *changed_error;
    if (!PyArg_ParseTuple(args, "OO!OOO", &record_type, &PyTuple_Type, &names, &create_time,
                          &log_append_time, &changed_error))
        return NULL;
    if (!PyType_Check(record_type) || PyTuple_Size(names) != FIELDS) {
        PyErr_SetString(PyExc_TypeError, "prepare() takes a type and the names of its nine slots");
        return NULL;
    }
    /* All or nothing: what was prepared before stays good if this is not. */
    PyObject *fields[FIELDS] = {NULL};
    descrsetfunc set_field = NULL;
    descrgetfunc get_field = NULL;
    int count = 0;
    for (; count < FIELDS; count++) {
        PyObject *field = PyObject_GetAttr(record_type, PyTuple_GetItem(names, count));
        if (!(fields[count] = field)) break;
        set_field = (descrsetfunc)PyType_GetSlot(Py_TYPE(field), Py_tp_descr_set);
        get_field = (descrgetfunc)PyType_GetSlot(Py_TYPE(field), Py_tp_descr_get);
        if (!set_field || !get_field || Py_TYPE(field) != Py_TYPE(fields[0])) {
            PyErr_SetString(PyExc_TypeError, "prepare() takes a type with slots");
            break;
        }
    }
    Py_ssize_t places[FIELDS] = {0};
    int is_good = count == FIELDS && find_places(record_type, set_field, fields, places) &&
                  watch_attributes(record_type);
    if (is_good) {
        memcpy(state->places, places, sizeof places);
        state->set_field = set_field;
        state->get_field = get_field;
        for (int i = 0; i < FIELDS; i++) replace(&state->fields[i], fields[i]);
    }
    for (int i = 0; i < FIELDS; i++) Py_XDECREF(fields[i]);
    if (!is_good) return NULL;
    replace(&state->create_time, create_time);
    replace(&state->log_append_time, log_append_time);
    replace(&state->changed_error, changed_error);
    if (!state->no_headers && !(state->no_headers = PyTuple_New(0))) return NULL;
    replace(&state->record_type, record_type);
    Py_RETURN_NONE;
}

static PyMethodDef module_methods[] = {
    {"prepare", prepare, METH_VARARGS,
     "prepare(record_type, names, create_time, log_append_time, changed_error, /)\n--\n\n"
     "Say what records are."},
    {"make", make, METH_VARARGS,
     "make(batches, first, count, sizes, topic, partition, /)\n--\n\n"
     "The records of a group of batches that the kernel measured."},
    {"put", (PyCFunction)(void (*)(void))put, METH_FASTCALL,
     "put(record, key, value, /)\n--\n\nGive a record another key and value."},
    {"decode", decode, METH_VARARGS,
     "decode(records, start, end, keys, values, /)\n--\n\n"
     "Keys and values to text, in place; how far that went."},
    {NULL, NULL, 0, NULL},
};

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = state_of(module);
    if (!state) return 0;
    Py_VISIT(state->record_type);
    Py_VISIT(state->create_time);
    Py_VISIT(state->log_append_time);
    Py_VISIT(state->no_headers);
    Py_VISIT(state->changed_error);
    for (int i = 0; i < FIELDS; i++) Py_VISIT(state->fields[i]);
    return 0;
}

static int module_clear(PyObject *module)
{
    State *state = state_of(module);
    if (!state) return 0;
    Py_CLEAR(state->record_type);
    Py_CLEAR(state->create_time);
    Py_CLEAR(state->log_append_time);
    Py_CLEAR(state->no_headers);
    Py_CLEAR(state->changed_error);
    for (int i = 0; i < FIELDS; i++) Py_CLEAR(state->fields[i]);
    return 0;
}

static void module_free(void *module) { module_clear(module); }

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "shoal.records._objects",
    .m_doc = "Records as Python objects; see objects.c.",
    .m_size = sizeof(State),
    .m_methods = module_methods,
    .m_slots = (PyModuleDef_Slot[]){{0, NULL}},
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__objects(void) { return PyModuleDef_Init(&module_definition); }

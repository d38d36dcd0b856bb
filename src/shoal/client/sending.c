/* What ``Producer.send`` does for every record, as a CPython extension: take the record's bytes,
 * choose its partition, write it into the open batch and make its future.
 *
 * Rule: the usual record is handled here, whole, and for anything else nothing is done and None
 * returned: then producer.py and accumulator.py do it, and word its errors. So both ways give the
 * same bytes and the same exceptions, and this file knows no message but those of Python itself.
 *
 * Threads: one call is one step, because Python's lock is held from its begin to its end. No call
 * here runs anybody's Python between looking at a batch and writing to it: everything that
 * allocates Python objects (which may run the garbage collector, and so finalizers) comes first.
 *
 * Only the limited API is used, so that one file serves every version from 3.11 on.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <time.h>

#include "../records/kernel.h"

void shoal_prepare(int64_t use_instruction);

#define RECORD_OVERHEAD (5 + 1 + 10 + 5 + 5 + 5 + 5) /* as Builder in producer_batch.py */
#define HEADER_OVERHEAD 10
#define PARTITIONS_MAX (1 << 20) /* of a topic with open batches known here */
#define FIRST_CAPACITY 4096
#define METADATA_FIELDS 4
enum { TRANSACTIONAL = 0x10 };

typedef struct {
    PyObject *future_type, *batch_type, *builder_type, *intake_type, *slots_type;
    /* Set by ``prepare``: Python's own SendFuture, whose methods do the unusual; and the type and
     * fields of what ``result`` returns. */
    PyObject *plain_future, *metadata_type, *metadata_fields[METADATA_FIELDS];
    descrsetfunc set_field;
} State;

static State *state_of(PyObject *module) { return PyModule_GetState(module); }

/* At the end of an interpreter the module may be cleared while a finalizer still uses its objects:
 * they stay what they are, but no new ones can be made. */
static int is_cleared(const State *state)
{
    if (state->future_type && state->batch_type && state->builder_type && state->slots_type)
        return 0;
    PyErr_SetString(PyExc_RuntimeError, "the interpreter is shutting down");
    return 1;
}

static struct PyModuleDef module_definition;
static State *state_of_type(PyTypeObject *type);

/* Batches ----------------------------------------------------------------------------------- */

typedef struct { /* the part of a ProducerBatch that futures and ``send`` look at */
    PyObject_HEAD
    PyObject *tp, *error, *base_offset, *log_append_time_ms, *parts, *callbacks;
    Py_ssize_t record_count, size_bytes;
    char is_done;
} BatchState;

static int batch_traverse(BatchState *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->tp);
    Py_VISIT(self->error);
    Py_VISIT(self->base_offset);
    Py_VISIT(self->log_append_time_ms);
    Py_VISIT(self->parts);
    Py_VISIT(self->callbacks);
    return 0;
}

static int batch_clear(BatchState *self)
{
    Py_CLEAR(self->tp);
    Py_CLEAR(self->error);
    Py_CLEAR(self->base_offset);
    Py_CLEAR(self->log_append_time_ms);
    Py_CLEAR(self->parts);
    Py_CLEAR(self->callbacks);
    return 0;
}

static void free_object(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static void batch_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    batch_clear((BatchState *)self);
    free_object(self);
}

static PyMemberDef batch_members[] = {
    {"tp", T_OBJECT_EX, offsetof(BatchState, tp), 0, NULL},
    {"error", T_OBJECT_EX, offsetof(BatchState, error), 0, NULL},
    {"base_offset", T_OBJECT_EX, offsetof(BatchState, base_offset), 0, NULL},
    {"log_append_time_ms", T_OBJECT_EX, offsetof(BatchState, log_append_time_ms), 0, NULL},
    {"parts", T_OBJECT_EX, offsetof(BatchState, parts), 0, NULL},
    {"_callbacks", T_OBJECT_EX, offsetof(BatchState, callbacks), 0, NULL},
    {"record_count", T_PYSSIZET, offsetof(BatchState, record_count), 0, NULL},
    {"size_bytes", T_PYSSIZET, offsetof(BatchState, size_bytes), 0, NULL},
    {"is_done", T_BOOL, offsetof(BatchState, is_done), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot batch_slots[] = {
    {Py_tp_doc, "The part of a ProducerBatch that C looks at."},
    {Py_tp_traverse, batch_traverse},
    {Py_tp_clear, batch_clear},
    {Py_tp_dealloc, batch_dealloc},
    {Py_tp_members, batch_members},
    {0, NULL},
};

static PyType_Spec batch_spec = {
    .name = "shoal.client._sending.BatchState",
    .basicsize = sizeof(BatchState),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = batch_slots,
};

/* Its fate is known, and here: a batch that was split tells of its records in its parts. */
static int is_settled(const BatchState *batch)
{
    return batch->is_done && batch->parts && PyList_CheckExact(batch->parts) &&
           PyList_Size(batch->parts) == 0;
}

/* Futures ----------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    BatchState *batch;
    Py_ssize_t index;
    long long timestamp_ms;
} SendFuture;

static SendFuture *new_future(const State *state)
{
    SendFuture *self = PyObject_GC_New(SendFuture, (PyTypeObject *)state->future_type);
    if (self) {
        self->batch = NULL;
        self->index = 0;
        self->timestamp_ms = 0;
    }
    return self; /* not tracked yet: it has no batch */
}

static PyObject *future_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"batch", "index", "timestamp_ms", NULL};
    State *state = state_of_type(type);
    PyObject *batch;
    Py_ssize_t index;
    long long timestamp_ms;
    if (!state || is_cleared(state) ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "O!nL", names, state->batch_type, &batch,
                                     &index, &timestamp_ms))
        return NULL;
    SendFuture *self = new_future(state);
    if (!self) return NULL;
    Py_INCREF(batch);
    self->batch = (BatchState *)batch;
    self->index = index;
    self->timestamp_ms = timestamp_ms;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static int future_traverse(SendFuture *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT((PyObject *)self->batch);
    return 0;
}

/* No tp_clear: whatever circle a future is in goes through its batch, which has one; and so a
 * future always has its batch. */

static void future_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF((PyObject *)((SendFuture *)self)->batch);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* Python's own method, with this future for its self. */
static PyObject *ask_python(PyObject *self, const char *name, PyObject *const *args,
                            Py_ssize_t count, PyObject *names)
{
    State *state = state_of_type(Py_TYPE(self));
    if (!state) return NULL;
    if (!state->plain_future) {
        PyErr_SetString(PyExc_RuntimeError, "prepare() was not called");
        return NULL;
    }
    PyObject *method = PyObject_GetAttrString(state->plain_future, name);
    PyObject *given = NULL, *named = NULL, *result = NULL;
    if (!method || !(given = PyTuple_New(count + 1))) goto done;
    Py_INCREF(self);
    PyTuple_SetItem(given, 0, self);
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_INCREF(args[i]);
        PyTuple_SetItem(given, i + 1, args[i]);
    }
    if (names) {
        if (!(named = PyDict_New())) goto done;
        for (Py_ssize_t i = 0; i < PyTuple_Size(names); i++)
            if (PyDict_SetItem(named, PyTuple_GetItem(names, i), args[count + i])) goto done;
    }
    result = PyObject_Call(method, given, named);
done:
    Py_XDECREF(method);
    Py_XDECREF(given);
    Py_XDECREF(named);
    return result;
}

/* Whether a timeout needs no looking at: none, or a number as they usually are. */
static int is_plain_wait(PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (names && PyTuple_Size(names)) return 0;
    return count == 0 || (count == 1 && (args[0] == Py_None || PyFloat_CheckExact(args[0]) ||
                                         PyLong_CheckExact(args[0])));
}

static PyObject *future_done(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    if (is_settled(((SendFuture *)self)->batch)) Py_RETURN_TRUE;
    return ask_python(self, "done", NULL, 0, NULL);
}

static PyObject *future_exception(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                  PyObject *names)
{
    BatchState *batch = ((SendFuture *)self)->batch;
    if (is_settled(batch) && batch->error && is_plain_wait(args, count, names)) {
        Py_INCREF(batch->error);
        return batch->error;
    }
    return ask_python(self, "exception", args, count, names);
}

static PyObject *offset_in(const BatchState *batch, Py_ssize_t index)
{
    if (batch->base_offset == Py_None) Py_RETURN_NONE;
    long long base = PyLong_AsLongLong(batch->base_offset);
    if (base == -1 && PyErr_Occurred()) return NULL;
    return PyLong_FromLongLong(base + index); /* the broker's, and fewer than 2^31 records */
}

static PyObject *future_result(PyObject *self, PyObject *const *args, Py_ssize_t count,
                               PyObject *names)
{
    SendFuture *future = (SendFuture *)self;
    BatchState *batch = future->batch;
    State *state = state_of_type(Py_TYPE(self));
    if (!state) return NULL;
    if (!is_settled(batch) || batch->error != Py_None || !is_plain_wait(args, count, names) ||
        !state->metadata_type || !batch->base_offset || !batch->log_append_time_ms ||
        !batch->tp || !PyTuple_Check(batch->tp) || PyTuple_Size(batch->tp) != 2 ||
        !(batch->base_offset == Py_None || PyLong_CheckExact(batch->base_offset)))
        return ask_python(self, "result", args, count, names);
    PyObject *fields[METADATA_FIELDS] = {PyTuple_GetItem(batch->tp, 0),
                                         PyTuple_GetItem(batch->tp, 1), NULL, NULL};
    PyObject *made = NULL;
    Py_INCREF(fields[0]);
    Py_INCREF(fields[1]);
    fields[2] = offset_in(batch, future->index);
    fields[3] = batch->log_append_time_ms;
    if (fields[3] == Py_None)
        fields[3] = PyLong_FromLongLong(future->timestamp_ms);
    else
        Py_INCREF(fields[3]);
    if (fields[2] && fields[3])
        made = PyType_GenericAlloc((PyTypeObject *)state->metadata_type, 0);
    for (int i = 0; made && i < METADATA_FIELDS; i++)
        if (state->set_field(state->metadata_fields[i], made, fields[i])) Py_CLEAR(made);
    for (int i = 0; i < METADATA_FIELDS; i++) Py_XDECREF(fields[i]);
    return made;
}

/* A future and whom to tell, one behind the other: a pair of them would be one more object for the
 * garbage collector to look at, per record. Both or none. */
static int add_callback(BatchState *batch, PyObject *future, PyObject *function)
{
    PyObject *list = batch->callbacks;
    if (PyList_Append(list, future)) return 0;
    if (!PyList_Append(list, function)) return 1;
    Py_ssize_t count = PyList_Size(list);
    PyList_SetSlice(list, count - 1, count, NULL);
    return 0;
}

static int takes_callbacks(const BatchState *batch)
{
    return !batch->is_done && batch->parts && PyList_CheckExact(batch->parts) &&
           PyList_Size(batch->parts) == 0 && batch->callbacks &&
           PyList_CheckExact(batch->callbacks);
}

static PyObject *future_add_done_callback(PyObject *self, PyObject *function)
{
    BatchState *batch = ((SendFuture *)self)->batch;
    if (!takes_callbacks(batch)) return ask_python(self, "add_done_callback", &function, 1, NULL);
    if (!add_callback(batch, self, function)) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef future_methods[] = {
    {"done", future_done, METH_NOARGS, "done($self)\n--\n\n"},
    {"exception", (PyCFunction)(void (*)(void))future_exception, METH_FASTCALL | METH_KEYWORDS,
     "exception($self, timeout=None)\n--\n\n"
     "Why it failed, or ``None`` if it did not; waits like ``result``."},
    {"result", (PyCFunction)(void (*)(void))future_result, METH_FASTCALL | METH_KEYWORDS,
     "result($self, timeout=None)\n--\n\n"
     "Where the record went. Waits up to ``timeout`` seconds (forever if ``None``)."},
    {"add_done_callback", future_add_done_callback, METH_O,
     "add_done_callback($self, function)\n--\n\n"
     "Call ``function(future)`` when it is known: on the producer's thread, or here at once."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef future_members[] = {
    {"_batch", T_OBJECT_EX, offsetof(SendFuture, batch), READONLY, NULL},
    {"_index", T_PYSSIZET, offsetof(SendFuture, index), READONLY, NULL},
    {"_timestamp_ms", T_LONGLONG, offsetof(SendFuture, timestamp_ms), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot future_slots[] = {
    {Py_tp_doc, "What became of one record. Thread-safe; cheap, because there is one per record."},
    {Py_tp_new, future_new},
    {Py_tp_traverse, future_traverse},
    {Py_tp_dealloc, future_dealloc},
    {Py_tp_methods, future_methods},
    {Py_tp_members, future_members},
    {0, NULL},
};

static PyType_Spec future_spec = {
    .name = "shoal.client.producer_batch.SendFuture", /* where users find it */
    .basicsize = sizeof(SendFuture),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = future_slots,
};

/* Fields of a record ------------------------------------------------------------------------ */

typedef struct { /* borrowed: whoever made it keeps the objects alive */
    const char *bytes;
    Py_ssize_t length; /* -1: null */
} Bytes;

/* Whether Python has looked at a record before: then its parts are bytes, or of a class made of
 * bytes. If not, only what is bytes or text and nothing more is for us. */
typedef enum { GIVEN, CHECKED } Source;

static int read_text(PyObject *given, Source source, Bytes *out)
{
    if (!(source == CHECKED ? PyUnicode_Check(given) : PyUnicode_CheckExact(given))) return 0;
    out->bytes = PyUnicode_AsUTF8AndSize(given, &out->length);
    return out->bytes != NULL; /* if not: half a surrogate pair, or no memory */
}

/* 1 if `given` is None or bytes; 0 if Python has to look at it. */
static int read_bytes(PyObject *given, Source source, Bytes *out)
{
    if (given == Py_None) {
        *out = (Bytes){NULL, -1};
        return 1;
    }
    if (!(source == CHECKED ? PyBytes_Check(given) : PyBytes_CheckExact(given))) return 0;
    *out = (Bytes){PyBytes_AsString(given), PyBytes_Size(given)};
    return 1;
}

static int read_field(PyObject *given, Source source, Bytes *out)
{
    return read_bytes(given, source, out) || (source == GIVEN && read_text(given, source, out));
}

static int size_of_varint(int64_t value)
{
    uint64_t rest = (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
    int size = 1;
    while (rest > 127) rest >>= 7, size++;
    return size;
}

static char *put_varint(char *out, int64_t value)
{
    uint64_t rest = (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
    while (rest > 127) *out++ = (char)(rest | 128), rest >>= 7;
    *out++ = (char)rest;
    return out;
}

static int64_t size_of_bytes(Bytes field)
{
    return size_of_varint(field.length) + (field.length > 0 ? field.length : 0);
}

static char *put_bytes(char *out, Bytes field)
{
    out = put_varint(out, field.length);
    if (field.length <= 0) return out;
    memcpy(out, field.bytes, (size_t)field.length);
    return out + field.length;
}

typedef struct {
    Bytes key, value;
    Source source;
    PyObject *headers; /* a tuple, list or dict, of which every pair was looked at; or NULL */
    Py_ssize_t header_count;
    int64_t timestamp_ms;
    Py_ssize_t plain_bytes;     /* as ``send`` counts for max_request_size */
    Py_ssize_t estimated_bytes; /* as Builder counts */
} NewRecord;

/* One pair after the other; `at` is 0 at first. -1: not a pair as they usually are, 0: no more. */
static int next_header(const NewRecord *record, Py_ssize_t *at, PyObject **name_object,
                       Bytes *name, Bytes *content)
{
    PyObject *headers = record->headers, *value;
    if (PyDict_CheckExact(headers)) {
        if (!PyDict_Next(headers, at, name_object, &value)) return 0;
    } else {
        int is_list = PyList_CheckExact(headers);
        Py_ssize_t count = is_list ? PyList_Size(headers) : PyTuple_Size(headers);
        if (*at >= count) return 0;
        PyObject *pair = is_list ? PyList_GetItem(headers, *at) : PyTuple_GetItem(headers, *at);
        if (!PyTuple_CheckExact(pair) || PyTuple_Size(pair) != 2) return -1;
        *name_object = PyTuple_GetItem(pair, 0);
        value = PyTuple_GetItem(pair, 1);
        ++*at;
    }
    return read_text(*name_object, record->source, name) &&
                   read_bytes(value, record->source, content)
               ? 1
               : -1;
}

static int measure_headers(NewRecord *record)
{
    PyObject *headers = record->headers, *name_object;
    Bytes name, content;
    Py_ssize_t at = 0;
    int found;
    if (headers == Py_None) {
        record->headers = NULL;
        return 1;
    }
    if (!PyTuple_CheckExact(headers) && !PyList_CheckExact(headers) && !PyDict_CheckExact(headers))
        return 0;
    while ((found = next_header(record, &at, &name_object, &name, &content)) > 0) {
        Py_ssize_t characters = PyUnicode_GetLength(name_object);
        Py_ssize_t length = content.length > 0 ? content.length : 0;
        record->header_count++;
        record->plain_bytes += characters + length;
        record->estimated_bytes += 4 * characters + length + HEADER_OVERHEAD;
    }
    return found == 0;
}

/* Looks at the parts of a record and adds up their sizes; 0 if Python has to: with an error set if
 * one of them is text that cannot be written as UTF-8. */
static int measure(PyObject *key, PyObject *value, PyObject *headers, Source source,
                   NewRecord *out)
{
    *out = (NewRecord){.source = source, .headers = headers, .estimated_bytes = RECORD_OVERHEAD};
    if (!read_field(key, source, &out->key) || !read_field(value, source, &out->value)) return 0;
    out->plain_bytes = (out->key.length > 0 ? out->key.length : 0) +
                       (out->value.length > 0 ? out->value.length : 0);
    out->estimated_bytes += out->plain_bytes;
    return measure_headers(out);
}

/* Builders ---------------------------------------------------------------------------------- */

typedef struct { /* the records of one batch, as they will be sent */
    PyObject_HEAD
    char *body;
    Py_ssize_t used, capacity;
    Py_ssize_t limit_bytes, size_bytes, record_count;
    long long base_timestamp_ms, max_timestamp_ms;
} Builder;

static PyObject *builder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"limit_bytes", NULL};
    Py_ssize_t limit_bytes;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "n", names, &limit_bytes)) return NULL;
    Builder *self = (Builder *)PyType_GenericAlloc(type, 0);
    if (!self) return NULL;
    self->limit_bytes = limit_bytes;
    self->size_bytes = HEADER_SIZE;
    self->base_timestamp_ms = self->max_timestamp_ms = -1;
    return (PyObject *)self;
}

static void builder_dealloc(PyObject *self)
{
    PyMem_Free(((Builder *)self)->body);
    free_object(self);
}

static int make_room(Builder *b, int64_t size)
{
    if (size <= b->capacity - b->used) return 1;
    int64_t capacity = b->capacity ? b->capacity : FIRST_CAPACITY;
    while (capacity - b->used < size) capacity *= 2;
    char *body = PyMem_Realloc(b->body, (size_t)capacity);
    if (!body) return 0;
    b->body = body;
    b->capacity = (Py_ssize_t)capacity;
    return 1;
}

/* Whether the record goes into this batch: the first always does. */
static int fits(const Builder *b, const NewRecord *record)
{
    return !b->record_count || record->estimated_bytes <= b->limit_bytes - b->size_bytes;
}

/* The size of the record behind its own length; and room for all of it, or -1. */
static int64_t prepare_record(Builder *b, const NewRecord *record)
{
    int64_t base = b->record_count ? b->base_timestamp_ms : record->timestamp_ms;
    int64_t size = 1 + size_of_varint(record->timestamp_ms - base) +
                   size_of_varint(b->record_count) + size_of_bytes(record->key) +
                   size_of_bytes(record->value) + size_of_varint(record->header_count);
    PyObject *name_object;
    Bytes name, content;
    for (Py_ssize_t at = 0; record->headers;) {
        if (next_header(record, &at, &name_object, &name, &content) <= 0) break;
        size += size_of_bytes(name) + size_of_bytes(content);
    }
    return make_room(b, size + 10) ? size : -1;
}

/* Cannot fail: `size` is what prepare_record() said of this record, just before. */
static void write_record(Builder *b, const NewRecord *record, int64_t size)
{
    char *out = b->body + b->used;
    PyObject *name_object;
    Bytes name, content;
    if (!b->record_count) b->base_timestamp_ms = b->max_timestamp_ms = record->timestamp_ms;
    if (record->timestamp_ms > b->max_timestamp_ms) b->max_timestamp_ms = record->timestamp_ms;
    out = put_varint(out, size);
    *out++ = 0; /* attributes */
    out = put_varint(out, record->timestamp_ms - b->base_timestamp_ms);
    out = put_varint(out, b->record_count);
    out = put_bytes(out, record->key);
    out = put_bytes(out, record->value);
    out = put_varint(out, record->header_count);
    for (Py_ssize_t at = 0; record->headers;) {
        if (next_header(record, &at, &name_object, &name, &content) <= 0) break;
        out = put_bytes(out, name);
        out = put_bytes(out, content);
    }
    b->used = out - b->body;
    b->size_bytes += record->estimated_bytes;
    b->record_count++;
}

static int refuse_fields(void)
{
    PyErr_SetString(PyExc_TypeError, "a record is bytes, bytes, pairs of str and bytes, int");
    return 0;
}

/* (key, value, headers, timestamp_ms), serialized and checked by Python before. */
static int record_of(PyObject *const *args, NewRecord *record)
{
    long long timestamp_ms = PyLong_AsLongLong(args[3]); /* first: it may run Python */
    if (timestamp_ms == -1 && PyErr_Occurred()) return 0;
    if (timestamp_ms < 0) return refuse_fields(); /* so that differences fit */
    if (!measure(args[0], args[1], args[2], CHECKED, record))
        return PyErr_Occurred() ? 0 : refuse_fields();
    record->timestamp_ms = timestamp_ms;
    return 1;
}

static PyObject *builder_append(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Builder *b = (Builder *)self;
    NewRecord record;
    if (count != 4) {
        PyErr_Format(PyExc_TypeError, "append() takes 4 arguments, not %zd", count);
        return NULL;
    }
    if (!record_of(args, &record)) return NULL;
    if (!fits(b, &record)) return PyLong_FromLong(0);
    int64_t size = prepare_record(b, &record);
    if (size < 0) return PyErr_NoMemory();
    write_record(b, &record, size);
    return PyLong_FromSsize_t(record.estimated_bytes);
}

/* The whole batch, uncompressed, with its header and checksum. */
static PyObject *builder_sealed(PyObject *self, PyObject *args)
{
    Builder *b = (Builder *)self;
    long long producer_id;
    int producer_epoch, base_sequence, is_transactional;
    if (!PyArg_ParseTuple(args, "Liip", &producer_id, &producer_epoch, &base_sequence,
                          &is_transactional))
        return NULL;
    if (b->used > INT32_MAX - HEADER_SIZE || b->record_count > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a batch of more than 2 GiB cannot be sent");
        return NULL;
    }
    PyObject *made = PyBytes_FromStringAndSize(NULL, HEADER_SIZE + b->used);
    if (!made) return NULL;
    uint8_t *p = (uint8_t *)PyBytes_AsString(made);
    put64(p, 0);
    put32(p + 8, HEADER_SIZE - LENGTH_FROM + b->used);
    put32(p + 12, -1); /* leader epoch */
    p[16] = 2;
    put16(p + 21, is_transactional ? TRANSACTIONAL : 0);
    put32(p + 23, b->record_count - 1);
    put64(p + 27, b->base_timestamp_ms);
    put64(p + 35, b->max_timestamp_ms);
    put64(p + 43, producer_id);
    put16(p + 51, producer_epoch);
    put32(p + 53, base_sequence);
    put32(p + 57, b->record_count);
    if (b->used) memcpy(p + HEADER_SIZE, b->body, (size_t)b->used);
    put32(p + 17, shoal_crc32c(p + CRC_FROM, HEADER_SIZE + b->used - CRC_FROM));
    return made;
}

static PyObject *builder_body(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    Builder *b = (Builder *)self;
    return PyBytes_FromStringAndSize(b->body, b->used);
}

static Py_ssize_t builder_length(PyObject *self) { return ((Builder *)self)->record_count; }

static PyMethodDef builder_methods[] = {
    {"append", (PyCFunction)(void (*)(void))builder_append, METH_FASTCALL,
     "append($self, key, value, headers, timestamp_ms, /)\n--\n\n"
     "The bytes added, or 0 if the record does not fit; the first always fits."},
    {"sealed", builder_sealed, METH_VARARGS,
     "sealed($self, producer_id, producer_epoch, base_sequence, is_transactional, /)\n--\n\n"
     "The batch as it is sent, not compressed."},
    {"body", builder_body, METH_NOARGS, "body($self)\n--\n\nThe records as they are sent."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef builder_members[] = {
    {"limit_bytes", T_PYSSIZET, offsetof(Builder, limit_bytes), 0, NULL},
    {"size_bytes", T_PYSSIZET, offsetof(Builder, size_bytes), READONLY, NULL},
    {"base_timestamp_ms", T_LONGLONG, offsetof(Builder, base_timestamp_ms), READONLY, NULL},
    {"max_timestamp_ms", T_LONGLONG, offsetof(Builder, max_timestamp_ms), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot builder_slots[] = {
    {Py_tp_doc, "Records, encoded one by one as they come."},
    {Py_tp_new, builder_new},
    {Py_tp_dealloc, builder_dealloc},
    {Py_tp_methods, builder_methods},
    {Py_tp_members, builder_members},
    {Py_sq_length, builder_length},
    {0, NULL},
};

static PyType_Spec builder_spec = {
    .name = "shoal.client._sending.Builder",
    .basicsize = sizeof(Builder),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = builder_slots,
};

/* Open batches of one topic ----------------------------------------------------------------- */

typedef struct {
    BatchState *batch;
    Builder *builder;
} Slot;

typedef struct {
    PyObject_HEAD
    Py_ssize_t count;
    Slot *slots; /* by partition; empty ones are NULL */
} Slots;

static int slots_traverse(Slots *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    for (Py_ssize_t i = 0; i < self->count; i++) {
        Py_VISIT((PyObject *)self->slots[i].batch);
        Py_VISIT((PyObject *)self->slots[i].builder);
    }
    return 0;
}

/* Empties a slot first and lets go of its objects then: that may run Python, which may look. */
static void empty_slot(Slot *slot)
{
    Slot old = *slot;
    *slot = (Slot){NULL, NULL};
    Py_XDECREF((PyObject *)old.batch);
    Py_XDECREF((PyObject *)old.builder);
}

static int slots_clear(Slots *self)
{
    Slot *slots = self->slots;
    Py_ssize_t count = self->count;
    self->slots = NULL;
    self->count = 0;
    for (Py_ssize_t i = 0; i < count; i++) empty_slot(&slots[i]);
    PyMem_Free(slots);
    return 0;
}

static void slots_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    slots_clear((Slots *)self);
    free_object(self);
}

static PyType_Slot slots_slots[] = {
    {Py_tp_doc, "The open batches of one topic."},
    {Py_tp_traverse, slots_traverse},
    {Py_tp_clear, slots_clear},
    {Py_tp_dealloc, slots_dealloc},
    {0, NULL},
};

static PyType_Spec slots_spec = {
    .name = "shoal.client._sending.Slots",
    .basicsize = sizeof(Slots),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots_slots,
};

static int grow(Slots *self, Py_ssize_t count)
{
    if (count <= self->count) return 1;
    Slot *slots = PyMem_Realloc(self->slots, (size_t)count * sizeof(Slot));
    if (!slots) return 0;
    memset(slots + self->count, 0, (size_t)(count - self->count) * sizeof(Slot));
    self->slots = slots;
    self->count = count;
    return 1;
}

/* Intakes ----------------------------------------------------------------------------------- */

typedef struct { /* the way of usual records into an Accumulator's open batches */
    PyObject_HEAD
    State *state;
    PyObject *topics;  /* name: Slots */
    PyObject *counts;  /* name: number of partitions; the producer's own dict */
    PyObject *current; /* name: where records without a key go; the partitioner's own dict */
    long long used_bytes, limit_bytes;
    Py_ssize_t max_record_bytes;
    char is_refusing, has_callbacks;
} Intake;

static PyObject *intake_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"limit_bytes", NULL};
    long long limit_bytes;
    State *state = state_of_type(type);
    if (!state || !PyArg_ParseTupleAndKeywords(args, kwargs, "L", names, &limit_bytes))
        return NULL;
    Intake *self = (Intake *)PyType_GenericAlloc(type, 0);
    if (!self) return NULL;
    self->state = state;
    self->limit_bytes = limit_bytes;
    self->topics = PyDict_New();
    if (!self->topics) Py_CLEAR(self);
    return (PyObject *)self;
}

static int intake_traverse(Intake *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->topics);
    Py_VISIT(self->counts);
    Py_VISIT(self->current);
    return 0;
}

static int intake_clear(Intake *self)
{
    Py_CLEAR(self->topics);
    Py_CLEAR(self->counts);
    Py_CLEAR(self->current);
    return 0;
}

static void intake_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    intake_clear((Intake *)self);
    free_object(self);
}

static PyObject *intake_serve(PyObject *self, PyObject *args)
{
    Intake *intake = (Intake *)self;
    PyObject *counts, *current;
    Py_ssize_t max_record_bytes;
    if (!PyArg_ParseTuple(args, "O!O!n", &PyDict_Type, &counts, &PyDict_Type, &current,
                          &max_record_bytes))
        return NULL;
    PyObject *old_counts = intake->counts, *old_current = intake->current;
    Py_INCREF(counts);
    Py_INCREF(current);
    intake->counts = counts;
    intake->current = current;
    intake->max_record_bytes = max_record_bytes;
    Py_XDECREF(old_counts);
    Py_XDECREF(old_current);
    Py_RETURN_NONE;
}

static PyObject *intake_change(PyObject *self, PyObject *difference)
{
    long long bytes = PyLong_AsLongLong(difference);
    if (bytes == -1 && PyErr_Occurred()) return NULL;
    ((Intake *)self)->used_bytes += bytes;
    Py_RETURN_NONE;
}

/* Borrowed; NULL without an error if nothing is open, with one if `is_made` and that failed. */
static Slots *slots_of(Intake *intake, PyObject *topic, int is_made)
{
    if (!intake->topics) return NULL;
    PyObject *found = PyDict_GetItemWithError(intake->topics, topic);
    if (found || PyErr_Occurred() || !is_made) return (Slots *)found;
    PyObject *made = PyType_GenericAlloc((PyTypeObject *)intake->state->slots_type, 0);
    if (!made) return NULL;
    int failed = PyDict_SetItem(intake->topics, topic, made);
    Py_DECREF(made); /* the dict has it */
    return failed ? NULL : (Slots *)made;
}

static PyObject *intake_open(PyObject *self, PyObject *args)
{
    Intake *intake = (Intake *)self;
    PyObject *topic, *batch, *builder;
    Py_ssize_t partition;
    if (is_cleared(intake->state)) return NULL;
    if (!PyArg_ParseTuple(args, "OnO!O!", &topic, &partition, intake->state->batch_type, &batch,
                          intake->state->builder_type, &builder))
        return NULL;
    if (!PyUnicode_CheckExact(topic) || partition < 0 || partition >= PARTITIONS_MAX)
        Py_RETURN_NONE; /* what is not open here goes the other way */
    Slots *slots = slots_of(intake, topic, 1);
    if (!slots) return NULL;
    if (!grow(slots, partition + 1)) return PyErr_NoMemory();
    Slot old = slots->slots[partition];
    Py_INCREF(batch);
    Py_INCREF(builder);
    slots->slots[partition] = (Slot){(BatchState *)batch, (Builder *)builder};
    Py_XDECREF((PyObject *)old.batch);
    Py_XDECREF((PyObject *)old.builder);
    Py_RETURN_NONE;
}

static PyObject *intake_close(PyObject *self, PyObject *args)
{
    PyObject *topic;
    Py_ssize_t partition;
    if (!PyArg_ParseTuple(args, "On", &topic, &partition)) return NULL;
    if (!PyUnicode_CheckExact(topic)) Py_RETURN_NONE;
    Slots *slots = slots_of((Intake *)self, topic, 0);
    if (!slots && PyErr_Occurred()) return NULL;
    if (slots && partition >= 0 && partition < slots->count) empty_slot(&slots->slots[partition]);
    Py_RETURN_NONE;
}

/* One record into a batch, and everything that counts it, in one step. */
static void enter(Intake *intake, BatchState *batch, Builder *builder, const NewRecord *record,
                  int64_t size)
{
    write_record(builder, record, size);
    batch->size_bytes += record->estimated_bytes;
    batch->record_count++;
    intake->used_bytes += record->estimated_bytes;
}

/* add(batch, builder, key, value, headers, timestamp_ms): its number, or -1: it does not fit. */
static PyObject *intake_add(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Intake *intake = (Intake *)self;
    NewRecord record;
    if (count != 6 || !PyObject_TypeCheck(args[0], (PyTypeObject *)intake->state->batch_type) ||
        !PyObject_TypeCheck(args[1], (PyTypeObject *)intake->state->builder_type)) {
        PyErr_SetString(PyExc_TypeError, "add() takes a batch, its builder and a record");
        return NULL;
    }
    BatchState *batch = (BatchState *)args[0];
    Builder *builder = (Builder *)args[1];
    if (!record_of(args + 2, &record)) return NULL;
    if (!fits(builder, &record)) return PyLong_FromLong(-1);
    int64_t size = prepare_record(builder, &record);
    if (size < 0) return PyErr_NoMemory();
    Py_ssize_t index = batch->record_count;
    enter(intake, batch, builder, &record, size);
    return PyLong_FromSsize_t(index);
}

static uint32_t murmur2(const char *bytes, Py_ssize_t length)
{
    const uint32_t m = 0x5bd1e995;
    const uint8_t *p = (const uint8_t *)bytes;
    uint32_t h = 0x9747b28cu ^ (uint32_t)length;
    for (; length >= 4; p += 4, length -= 4) {
        uint32_t k = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                     (uint32_t)p[3] << 24;
        k *= m;
        k ^= k >> 24;
        h = h * m ^ k * m;
    }
    if (length > 2) h ^= (uint32_t)p[2] << 16;
    if (length > 1) h ^= (uint32_t)p[1] << 8;
    if (length > 0) h = (h ^ p[0]) * m;
    h ^= h >> 13;
    h *= m;
    return h ^ h >> 15;
}

static int64_t now_ms(void)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A whole number of usual kind, or -1. */
static long long number_of(PyObject *given)
{
    if (!given || !PyLong_CheckExact(given)) return -1;
    int is_beyond;
    return PyLong_AsLongLongAndOverflow(given, &is_beyond);
}

static long long number_in(PyObject *dict, PyObject *topic)
{
    long long number = number_of(PyDict_GetItemWithError(dict, topic));
    PyErr_Clear(); /* whatever it was, Python meets it again */
    return number;
}

enum { TOPIC, VALUE, KEY, PARTITION, TIMESTAMP, HEADERS, ON_DELIVERY, ARGUMENTS };

/* The open batch a record goes to, and the record; 0 if it goes the other way. */
static int find_place(Intake *intake, PyObject *const *args, NewRecord *record, Slot *slot)
{
    PyObject *topic = args[TOPIC];
    long long count = number_in(intake->counts, topic), partition;
    if (args[PARTITION] == Py_None && args[KEY] == Py_None)
        partition = number_in(intake->current, topic);
    else
        partition = number_of(args[PARTITION]);
    /* From here to the end nobody's Python runs. */
    if (!measure(args[KEY], args[VALUE], args[HEADERS], GIVEN, record)) {
        PyErr_Clear(); /* Python meets it again, and words it */
        return 0;
    }
    if (record->plain_bytes > intake->max_record_bytes || count <= 0) return 0;
    if (args[PARTITION] == Py_None && args[KEY] != Py_None)
        partition = (murmur2(record->key.bytes, record->key.length) & 0x7fffffff) % count;
    if (partition < 0 || partition >= count) return 0;
    record->timestamp_ms = args[TIMESTAMP] == Py_None ? now_ms() : number_of(args[TIMESTAMP]);
    if (record->timestamp_ms < 0) return 0;
    if (intake->is_refusing || intake->used_bytes >= intake->limit_bytes) return 0;
    Slots *slots = slots_of(intake, topic, 0);
    if (!slots || partition >= slots->count) return 0;
    *slot = slots->slots[partition];
    return slot->batch && fits(slot->builder, record);
}

/* take(topic, value, key, partition, timestamp_ms, headers, on_delivery): the future, or None. */
static PyObject *intake_take(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Intake *intake = (Intake *)self;
    if (count != ARGUMENTS) {
        PyErr_Format(PyExc_TypeError, "take() takes %d arguments, not %zd", ARGUMENTS, count);
        return NULL;
    }
    PyObject *on_delivery = args[ON_DELIVERY];
    if (is_cleared(intake->state)) return NULL;
    if (!intake->counts || !PyUnicode_CheckExact(args[TOPIC])) Py_RETURN_NONE;
    if (on_delivery != Py_None && !(intake->has_callbacks && PyCallable_Check(on_delivery)))
        Py_RETURN_NONE;
    SendFuture *future = new_future(intake->state);
    if (!future) return NULL;
    NewRecord record;
    Slot slot;
    if (!find_place(intake, args, &record, &slot)) goto python;
    int64_t size = prepare_record(slot.builder, &record);
    if (size < 0) goto python;
    /* Whole before anybody else can see it: also if what follows fails. */
    Py_INCREF((PyObject *)slot.batch);
    future->batch = slot.batch;
    future->index = slot.batch->record_count;
    future->timestamp_ms = record.timestamp_ms;
    PyObject_GC_Track(future);
    if (on_delivery != Py_None) {
        if (!takes_callbacks(slot.batch)) goto python;
        if (!add_callback(slot.batch, (PyObject *)future, on_delivery)) goto failed;
    }
    enter(intake, slot.batch, slot.builder, &record, size);
    return (PyObject *)future;
python:
    Py_DECREF(future);
    Py_RETURN_NONE;
failed:
    Py_DECREF(future);
    return NULL;
}

static PyMethodDef intake_methods[] = {
    {"serve", intake_serve, METH_VARARGS,
     "serve($self, counts, current, max_record_bytes, /)\n--\n\n"
     "Let ``take`` know how many partitions there are, and where records without keys go."},
    {"take", (PyCFunction)(void (*)(void))intake_take, METH_FASTCALL,
     "take($self, topic, value, key, partition, timestamp_ms, headers, on_delivery, /)\n--\n\n"
     "A record into its open batch; None if that takes more than this can do."},
    {"add", (PyCFunction)(void (*)(void))intake_add, METH_FASTCALL,
     "add($self, batch, builder, key, value, headers, timestamp_ms, /)\n--\n\n"
     "A record into this batch: its number there, or -1 if it does not fit."},
    {"open", intake_open, METH_VARARGS,
     "open($self, topic, partition, batch, builder, /)\n--\n\n"
     "From now on ``take`` puts records of this partition into ``batch``."},
    {"close", intake_close, METH_VARARGS,
     "close($self, topic, partition, /)\n--\n\nNothing more goes into its open batch."},
    {"change", intake_change, METH_O,
     "change($self, difference, /)\n--\n\nSo many bytes more are used, or less."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef intake_members[] = {
    {"used_bytes", T_LONGLONG, offsetof(Intake, used_bytes), READONLY, NULL},
    {"is_refusing", T_BOOL, offsetof(Intake, is_refusing), 0, NULL},
    {"has_callbacks", T_BOOL, offsetof(Intake, has_callbacks), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot intake_slots[] = {
    {Py_tp_doc, "The way of usual records into open batches."},
    {Py_tp_new, intake_new},
    {Py_tp_traverse, intake_traverse},
    {Py_tp_clear, intake_clear},
    {Py_tp_dealloc, intake_dealloc},
    {Py_tp_methods, intake_methods},
    {Py_tp_members, intake_members},
    {0, NULL},
};

static PyType_Spec intake_spec = {
    .name = "shoal.client._sending.Intake",
    .basicsize = sizeof(Intake),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = intake_slots,
};

/* The module -------------------------------------------------------------------------------- */

static PyObject *prepare(PyObject *module, PyObject *args)
{
    State *state = state_of(module);
    PyObject *plain_future, *metadata_type, *names;
    if (!PyArg_ParseTuple(args, "OOO!", &plain_future, &metadata_type, &PyTuple_Type, &names))
        return NULL;
    if (!PyType_Check(metadata_type) || PyTuple_Size(names) != METADATA_FIELDS) {
        PyErr_SetString(PyExc_TypeError, "prepare() takes a type and the names of its four slots");
        return NULL;
    }
    /* All or nothing: what was prepared before stays good if this is not. */
    PyObject *fields[METADATA_FIELDS] = {NULL};
    descrsetfunc set_field = NULL;
    int count = 0;
    for (; count < METADATA_FIELDS; count++) {
        PyObject *field = PyObject_GetAttr(metadata_type, PyTuple_GetItem(names, count));
        if (!(fields[count] = field)) break;
        set_field = (descrsetfunc)PyType_GetSlot(Py_TYPE(field), Py_tp_descr_set);
        if (!set_field || Py_TYPE(field) != Py_TYPE(fields[0])) {
            PyErr_SetString(PyExc_TypeError, "prepare() takes a type with slots");
            break;
        }
    }
    if (count < METADATA_FIELDS) {
        for (int i = 0; i < METADATA_FIELDS; i++) Py_XDECREF(fields[i]);
        return NULL;
    }
    state->set_field = set_field;
    for (int i = 0; i < METADATA_FIELDS; i++) {
        PyObject *old = state->metadata_fields[i];
        state->metadata_fields[i] = fields[i];
        Py_XDECREF(old);
    }
    PyObject *old_future = state->plain_future, *old_type = state->metadata_type;
    Py_INCREF(plain_future);
    Py_INCREF(metadata_type);
    state->plain_future = plain_future;
    state->metadata_type = metadata_type;
    Py_XDECREF(old_future);
    Py_XDECREF(old_type);
    Py_RETURN_NONE;
}

static PyMethodDef module_methods[] = {
    {"prepare", prepare, METH_VARARGS,
     "prepare(plain_future, metadata_type, names, /)\n--\n\n"
     "Say who does the unusual, and what ``result`` returns."},
    {NULL, NULL, 0, NULL},
};

static int add_type(PyObject *module, PyType_Spec *spec, PyObject **place, const char *name)
{
    *place = PyType_FromModuleAndSpec(module, spec, NULL);
    if (!*place) return -1;
    return name ? PyModule_AddObjectRef(module, name, *place) : 0;
}

static int module_exec(PyObject *module)
{
    State *state = state_of(module);
    shoal_prepare(1);
    if (add_type(module, &batch_spec, &state->batch_type, "BatchState") ||
        add_type(module, &future_spec, &state->future_type, "SendFuture") ||
        add_type(module, &builder_spec, &state->builder_type, "Builder") ||
        add_type(module, &slots_spec, &state->slots_type, NULL) ||
        add_type(module, &intake_spec, &state->intake_type, "Intake"))
        return -1;
    return 0;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = state_of(module);
    if (!state) return 0;
    Py_VISIT(state->future_type);
    Py_VISIT(state->batch_type);
    Py_VISIT(state->builder_type);
    Py_VISIT(state->intake_type);
    Py_VISIT(state->slots_type);
    Py_VISIT(state->plain_future);
    Py_VISIT(state->metadata_type);
    for (int i = 0; i < METADATA_FIELDS; i++) Py_VISIT(state->metadata_fields[i]);
    return 0;
}

static int module_clear(PyObject *module)
{
    State *state = state_of(module);
    if (!state) return 0;
    Py_CLEAR(state->future_type);
    Py_CLEAR(state->batch_type);
    Py_CLEAR(state->builder_type);
    Py_CLEAR(state->intake_type);
    Py_CLEAR(state->slots_type);
    Py_CLEAR(state->plain_future);
    Py_CLEAR(state->metadata_type);
    for (int i = 0; i < METADATA_FIELDS; i++) Py_CLEAR(state->metadata_fields[i]);
    return 0;
}

static void module_free(void *module) { module_clear(module); }

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "shoal.client._sending",
    .m_doc = "What sending does for every record; see sending.c.",
    .m_size = sizeof(State),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

static State *state_of_type(PyTypeObject *type)
{
    return PyType_GetModuleState(type); /* none of the types that ask can be subclassed */
}

PyMODINIT_FUNC PyInit__sending(void) { return PyModuleDef_Init(&module_definition); }

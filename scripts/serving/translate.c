/* Translates lines of standard input through an exported model, without Python.

       make -C scripts/serving
       scripts/serving/translate EXPORT_DIR/VERSION LIBRARY... < in.en > out.de

   The libraries are those of TF Text, with the operations that TensorFlow lacks.
   `make -C scripts/serving run EXPORT=EXPORT_DIR/VERSION` gives their paths.
   TensorFlow's loader of SavedModels loads the model, as in TensorFlow Serving. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"
#include "tensorflow/c/tf_tstring.h"

enum { LINES_AT_ONCE = 32, NAME_SIZE = 256 };

static _Noreturn void fail(const char *what, const char *why) {
  fprintf(stderr, "translate: %s: %s\n", what, why);
  exit(1);
}

static void check(const TF_Status *status, const char *what) {
  if (TF_GetCode(status) != TF_OK) fail(what, TF_Message(status));
}

/* A message in the wire format of Protocol Buffers, or a part of one. */
typedef struct {
  const uint8_t *data, *end;
} Bytes;

static uint64_t read_varint(Bytes *from) {
  uint64_t value = 0;
  for (int shift = 0; from->data < from->end && shift < 64; shift += 7) {
    uint8_t byte = *from->data++;
    value |= (uint64_t)(byte & 127) << shift;
    if (byte < 128) return value;
  }
  fail("MetaGraphDef", "cut short");
}

/* Removes `size` bytes from the front. */
static Bytes read_bytes(Bytes *from, uint64_t size) {
  if (size > (uint64_t)(from->end - from->data)) {
    fail("MetaGraphDef", "cut short");
  }
  Bytes front = {from->data, from->data + size};
  from->data = front.end;
  return front;
}

/* Finds the next field of bytes with this number; returns 0 if there is none. */
static int next_field(Bytes *message, uint64_t number, Bytes *found) {
  while (message->data < message->end) {
    uint64_t key = read_varint(message);
    switch (key & 7) {
      case 0:
        read_varint(message);
        break;
      case 1:
        read_bytes(message, 8);
        break;
      case 2:
        *found = read_bytes(message, read_varint(message));
        if (key >> 3 == number) return 1;
        break;
      case 5:
        read_bytes(message, 4);
        break;
      default:
        fail("MetaGraphDef", "a field of an unknown kind");
    }
  }
  return 0;
}

/* Returns the value of `key` in a map, a field of entries {1: key, 2: value}. */
static Bytes at_key(Bytes message, uint64_t map, const char *key) {
  Bytes entry, name, value;
  while (next_field(&message, map, &entry)) {
    Bytes rest = entry;
    if (next_field(&rest, 1, &name) &&
        (size_t)(name.end - name.data) == strlen(key) &&
        !memcmp(name.data, key, strlen(key)) && next_field(&entry, 2, &value)) {
      return value;
    }
  }
  fail(key, "the model has no such signature, input or output");
}

/* Returns the tensor of an input (map 1) or an output (map 2) in `graph`. Field 1
   of its TensorInfo is its name, "OPERATION:INDEX". */
static TF_Output find(Bytes signature, uint64_t map, const char *key,
                      TF_Graph *graph) {
  Bytes info = at_key(signature, map, key), name;
  char text[NAME_SIZE];
  if (!next_field(&info, 1, &name)) fail(key, "it has no name");
  snprintf(text, sizeof text, "%.*s", (int)(name.end - name.data), name.data);
  char *colon = strrchr(text, ':');
  if (!colon) fail(text, "the name of a tensor has a colon");
  *colon = 0;
  TF_Output found = {TF_GraphOperationByName(graph, text), atoi(colon + 1)};
  if (!found.oper) fail(text, "the graph has no such operation");
  return found;
}

/* Reads up to LINES_AT_ONCE lines, without their ends, into a vector. */
static TF_Tensor *read_lines(void) {
  static char *line = NULL;
  static size_t room = 0;
  TF_TString strings[LINES_AT_ONCE];
  int64_t count = 0;
  ssize_t size;
  while (count < LINES_AT_ONCE && (size = getline(&line, &room, stdin)) >= 0) {
    if (size && line[size - 1] == '\n') --size;
    TF_StringInit(&strings[count]);
    TF_StringCopy(&strings[count++], line, size);
  }
  if (ferror(stdin)) fail("standard input", "cannot be read");
  if (!count) return NULL;
  TF_Tensor *tensor =
      TF_AllocateTensor(TF_STRING, &count, 1, count * sizeof(TF_TString));
  memcpy(TF_TensorData(tensor), strings, count * sizeof(TF_TString));
  return tensor; /* which now owns the strings */
}

static void write_lines(const TF_Tensor *tensor) {
  const TF_TString *strings = TF_TensorData(tensor);
  for (int64_t i = 0; i < TF_Dim(tensor, 0); ++i) {
    fwrite(TF_StringGetDataPointer(&strings[i]), 1,
           TF_StringGetSize(&strings[i]), stdout);
    putchar('\n');
  }
  if (fflush(stdout)) fail("standard output", "cannot be written");
}

int main(int argc, char **argv) {
  if (argc < 3) fail("usage", "translate EXPORT_DIR/VERSION LIBRARY...");
  TF_Status *status = TF_NewStatus();
  for (int i = 2; i < argc; ++i) {
    TF_LoadLibrary(argv[i], status);
    check(status, argv[i]);
  }
  const char *tags[] = {"serve"};
  TF_Graph *graph = TF_NewGraph();
  TF_Buffer *meta = TF_NewBuffer(); /* MetaGraphDef: signatures in field 5 */
  TF_SessionOptions *options = TF_NewSessionOptions();
  TF_Session *session = TF_LoadSessionFromSavedModel(
      options, NULL, argv[1], tags, 1, graph, meta, status);
  check(status, argv[1]);
  Bytes all = {meta->data, (const uint8_t *)meta->data + meta->length};
  Bytes signature = at_key(all, 5, "serving_default");
  TF_Output input = find(signature, 1, "inputs", graph);
  TF_Output output = find(signature, 2, "outputs", graph);

  TF_Tensor *lines, *found;
  while ((lines = read_lines())) {
    TF_SessionRun(session, NULL, &input, &lines, 1, &output, &found, 1, NULL, 0,
                  NULL, status);
    check(status, "the model");
    write_lines(found);
    TF_DeleteTensor(lines);
    TF_DeleteTensor(found);
  }

  TF_CloseSession(session, status);
  TF_DeleteSession(session, status);
  TF_DeleteSessionOptions(options);
  TF_DeleteBuffer(meta);
  TF_DeleteGraph(graph);
  TF_DeleteStatus(status);
  return 0;
}

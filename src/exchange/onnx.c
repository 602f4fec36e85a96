/* ONNX files: packs the graph with protobuf-c. */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "onnx.h"

#include <string.h>

#include "core/atomic_file.h"
#include "core/memory.h"
#include "core/status.h"
#include "nn/graph.h"

#ifdef TRM_ONNX

#define ONNX_IR 8                       /* version of the file format with operator set 17 */
#define ONNX_LIMIT ((size_t)2000 << 20) /* weights, bytes: below protobuf's limit of 2 GiB per message */

/* A protobuf-c buffer that writes to a stream. */
struct sink {
  ProtobufCBuffer base;
  FILE *stream;
  bool failed;
};

static void onnx_sink_append(ProtobufCBuffer *buffer, size_t bytes, const uint8_t *data)
{
  struct sink *sink = (struct sink *)buffer;
  sink->failed = sink->failed || fwrite(data, 1, bytes, sink->stream) != bytes;
}

static Onnx__StringStringEntryProto *onnx_make_entry(struct onnx_graph *g, const char *key, char *value)
{
  Onnx__StringStringEntryProto *entry = onnx_graph_alloc(g, sizeof *entry);
  onnx__string_string_entry_proto__init(entry);
  entry->key = onnx_graph_format(g, "%s", key);
  entry->value = value;
  return entry;
}

/* -- weights in a separate file */

static bool onnx_move_tensor(struct onnx_graph *g, Onnx__TensorProto *tensor, const char *location, FILE *to)
{
  const size_t bytes = tensor->raw_data.len, begin = (size_t)ftello(to);
  if (fwrite(tensor->raw_data.data, 1, bytes, to) != bytes)
    return false;
  tensor->raw_data = (ProtobufCBinaryData){0};
  tensor->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
  tensor->n_external_data = 3;
  tensor->external_data = onnx_graph_alloc(g, 3 * sizeof *tensor->external_data);
  tensor->external_data[0] = onnx_make_entry(g, "location", onnx_graph_format(g, "%s", location));
  tensor->external_data[1] = onnx_make_entry(g, "offset", onnx_graph_format(g, "%zu", begin));
  tensor->external_data[2] = onnx_make_entry(g, "length", onnx_graph_format(g, "%zu", bytes));
  for (size_t n = bytes; n % TRM_ALIGNMENT; n++)
    fputc(0, to);
  return !ferror(to);
}

/* Moves all floats of the graph to PATH.data. */
static int onnx_move_weights(struct onnx_graph *g, const char *path)
{
  char *data_path = trm_format("%s.data", path);
  const char *slash = strrchr(data_path, '/');
  struct atomic_file file;
  int status = atomic_file_open_secret(&file, data_path);
  if (status == TRM_OK) {
    const Onnx__GraphProto *graph = onnx_graph_message(g);
    bool complete = true;
    for (size_t i = 0; complete && i < graph->n_initializer; i++)
      if (graph->initializer[i]->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT)
        complete = onnx_move_tensor(g, graph->initializer[i], slash ? slash + 1 : data_path, file.stream);
    status = atomic_file_close(&file, complete);
  }
  trm_free(data_path);
  return status;
}

/* -- the file */

static int onnx_pack_model(struct onnx_graph *g, const char *path, char *text)
{
  Onnx__OperatorSetIdProto operators, *operators_at = &operators;
  onnx__operator_set_id_proto__init(&operators);
  operators.version = TRM_ONNX_OPSET;
  Onnx__StringStringEntryProto *note = onnx_make_entry(g, "trireme.model", text);
  Onnx__ModelProto model;
  onnx__model_proto__init(&model);
  model.ir_version = ONNX_IR;
  model.producer_name = (char *)"trireme";
  model.producer_version = (char *)PACKAGE_VERSION;
  model.graph = onnx_graph_message(g);
  model.n_opset_import = 1;
  model.opset_import = &operators_at;
  model.n_metadata_props = 1;
  model.metadata_props = &note;

  struct atomic_file file;
  TRM_CHECK(atomic_file_open_secret(&file, path));
  struct sink sink = {.base.append = onnx_sink_append, .stream = file.stream};
  protobuf_c_message_pack_to_buffer(&model.base, &sink.base);
  return atomic_file_close(&file, !sink.failed);
}

int onnx_write_limited(const char *path, const struct trm_model *model, const float *host_w, size_t limit)
{
  struct onnx_graph *g = onnx_graph_create(model, host_w);
  int status = onnx_graph_build(g);
  if (status == TRM_OK && model->parameters * sizeof *host_w > limit)
    status = onnx_move_weights(g, path);
  if (status == TRM_OK)
    status = onnx_pack_model(g, path, model->text);
  onnx_graph_free(g);
  return status;
}

int onnx_write(const char *path, const struct trm_model *model, const float *host_w)
{
  return onnx_write_limited(path, model, host_w, ONNX_LIMIT);
}

#else

int onnx_write(const char *path, const struct trm_model *model, const float *host_w)
{
  (void)model, (void)host_w;
  return trm_error(TRM_USAGE, "%s: this build cannot write ONNX (it has no protobuf-c)", path);
}

#endif

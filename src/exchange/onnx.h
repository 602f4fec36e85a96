/* Models as ONNX files (private to src/exchange). */
#pragma once

#include "nn/model.h"

/* Writes the model as an ONNX file. Input: the samples (batch, ...), "tokens" int64 or "samples" float. Output: float
 * "scores". Any batch size. A message is limited to 2 GiB: larger weights go to a second file, PATH.data, which must
 * stay beside the first. */
int onnx_write(const char *path, const struct trm_model *model, const float *host_w);

#ifdef TRM_ONNX
#include "exchange/onnx.pb-c.h"

/* onnx_write with a given limit: bytes of weights above which they go to the second file. */
int onnx_write_limited(const char *path, const struct trm_model *model, const float *host_w, size_t limit);

/* -- the graph under construction (onnx_graph.c) */
struct onnx_graph;
/* host_w is read when the graph is packed. Release with onnx_graph_free. */
struct onnx_graph *onnx_graph_create(const struct trm_model *model, const float *host_w);
void onnx_graph_free(struct onnx_graph *graph);
/* Adds the operators of all layers. TRM_USAGE if a layer cannot be exported. */
int onnx_graph_build(struct onnx_graph *graph);
/* Returns the message, which is valid as long as the graph. Its initializers are the parameters, as raw views of
 * host_w, and the constants. */
Onnx__GraphProto *onnx_graph_message(struct onnx_graph *graph);
/* Returns zeroed memory that is valid as long as the graph. */
void *onnx_graph_alloc(struct onnx_graph *graph, size_t bytes);
char *onnx_graph_format(struct onnx_graph *graph, const char *format, ...) __attribute__((format(printf, 2, 3)));
#endif

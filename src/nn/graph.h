/* A model as a graph of operators, for other programs: built by the layers' export_graph functions through the contract
 * trm_graph_ops.
 *
 * A value is a number assigned by the graph; its first dimension is the batch. Operators, their inputs and attributes
 * are those of ONNX, operator set 17 (onnx.ai/onnx/operators). The implementation of the contract decides on the file
 * format. Errors are reported when the graph is written. The graph is in the order of the calls; since C does not
 * define the order in which arguments are evaluated, at most one argument of a call may add to the graph. */
#pragma once

#include "nn/model.h"

TRM_BEGIN_DECLS

#define TRM_ONNX_OPSET 17 /* the operator set */

struct trm_graph;

/* The slots of a graph, by which layers add to it. */
struct trm_graph_ops {
  /* Returns the value of a parameter, always the same one. */
  int (*parameter)(struct trm_graph *graph, const struct trm_parameter *parameter);
  /* Add constants, which are copied; equal ones share a value. floats (shape), integers (count). */
  int (*floats)(struct trm_graph *graph, const struct trm_shape *shape, const float *values);
  int (*integers)(struct trm_graph *graph, const int64_t *values, int count);
  /* Adds an operator with `count` inputs. Returns the value of its first output; further ones follow. */
  int (*node)(struct trm_graph *graph, const char *op, const int *inputs, int count, int outputs);
  /* Attributes of the newest operator. */
  void (*set_integer)(struct trm_graph *graph, const char *name, int64_t value);
  void (*set_integers)(struct trm_graph *graph, const char *name, const int64_t *values, int count);
  void (*set_real)(struct trm_graph *graph, const char *name, float value);
};

/* A graph that is being built. */
struct trm_graph {
  const struct trm_graph_ops *ops;
  const struct trm_layer *layer; /* current layer: names its operators */
};

/* Adds the whole model to the graph, from the value of its samples: floats (B, shape), sparse rows as if dense, or
 * tokens as whole numbers (B, T). *scores: the value of the scores. TRM_USAGE names a layer that cannot be exported. */
int trm_model_graph(const struct trm_model *model, struct trm_graph *graph, int samples, int *scores);

/* -- for export_graph slots. Each returns a value. */
int trm_graph_unary(struct trm_graph *graph, const char *op, int x);          /* an operator of one input */
int trm_graph_binary(struct trm_graph *graph, const char *op, int x, int y);   /* of two */
int trm_graph_scalar(struct trm_graph *graph, const char *op, int x, double y); /* of x and a constant */
int trm_graph_transpose(struct trm_graph *graph, int x, const int64_t *order, int dims);
int trm_graph_reshape(struct trm_graph *graph, int x, const struct trm_shape *shape); /* to (B, shape) */
/* Splits the last dimension into equal parts: value, value + 1, ..; and concatenates such parts. */
int trm_graph_split(struct trm_graph *graph, int x, int count);
int trm_graph_concat(struct trm_graph *graph, const int *x, int count);

/* kernel_shape, strides and pads of the newest operator. */
void trm_graph_window(struct trm_graph *graph, const struct trm_window2d *window);

/* Returns x (B, in) flattened to the vectors (B, F) that the layer reads, unless it is a sequence. */
int trm_graph_vectors(struct trm_graph *graph, const struct trm_layer *layer, int x);

TRM_END_DECLS

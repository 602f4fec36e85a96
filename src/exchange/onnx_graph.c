/* A model's graph (nn/graph.h) as an ONNX message, whose memory is released as a whole. */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "onnx.h"

#ifdef TRM_ONNX

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "nn/graph.h"

/* A list that doubles when it is full. */
struct list {
  void **item;
  size_t count, capacity;
};

struct onnx_graph {
  struct trm_graph graph; /* first member: the layers' view */
  const struct trm_model *model;
  const float *host_w;
  struct list blocks;
  struct list names;        /* of the values, by number */
  struct list nodes, initializers;
  struct list constant;     /* per value: its tensor if it is a constant, else NULL */
  int *parameter;           /* per parameter: its value + 1; 0: not added yet */
  Onnx__GraphProto message;
};

static void onnx_graph_list_add(struct list *list, void *item)
{
  list->item = trm_grow(list->item, &list->capacity, list->count, list->count + 1, sizeof *list->item, "a graph");
  list->item[list->count++] = item;
}

void *onnx_graph_alloc(struct onnx_graph *g, size_t bytes)
{
  void *block = trm_alloc(bytes, "a graph");
  onnx_graph_list_add(&g->blocks, block);
  return block;
}

char *onnx_graph_format(struct onnx_graph *g, const char *format, ...)
{
  char text[160];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return strcpy(onnx_graph_alloc(g, strlen(text) + 1), text);
}

static int onnx_graph_add_value(struct onnx_graph *g, char *name)
{
  onnx_graph_list_add(&g->names, name);
  return (int)g->names.count - 1;
}

/* -- tensors */

static int onnx_graph_add_tensor(struct onnx_graph *g, char *name, Onnx__TensorProto__DataType type,
                                 const struct trm_shape *shape, void *data, size_t bytes)
{
  Onnx__TensorProto *tensor = onnx_graph_alloc(g, sizeof *tensor);
  onnx__tensor_proto__init(tensor);
  tensor->name = name;
  tensor->data_type = type;
  tensor->n_dims = (size_t)shape->dims;
  tensor->dims = onnx_graph_alloc(g, tensor->n_dims * sizeof *tensor->dims);
  for (int d = 0; d < shape->dims; d++)
    tensor->dims[d] = (int64_t)shape->size[d];
  tensor->raw_data = (ProtobufCBinaryData){.len = bytes, .data = data};
  onnx_graph_list_add(&g->initializers, tensor);
  return onnx_graph_add_value(g, name);
}

static int onnx_graph_parameter(struct trm_graph *graph, const struct trm_parameter *parameter)
{
  struct onnx_graph *g = (struct onnx_graph *)graph;
  int number = 0;
  while (trm_model_parameter(g->model, number) != parameter)
    number++;
  if (!g->parameter[number]) {
    char *name = onnx_graph_format(g, "%s", parameter->name);
    void *values = (void *)(g->host_w + parameter->offset); /* read only */
    g->parameter[number] = 1 + onnx_graph_add_tensor(g, name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, &parameter->shape,
                                                     values, parameter->count * sizeof(float));
  }
  return g->parameter[number] - 1;
}

static int onnx_graph_add_constant(struct onnx_graph *g, Onnx__TensorProto__DataType type,
                                   const struct trm_shape *shape, const void *data, size_t bytes)
{
  for (size_t v = 0; v < g->constant.count; v++) {
    const Onnx__TensorProto *old = g->constant.item[v];
    bool same = old && old->data_type == type && old->n_dims == (size_t)shape->dims && old->raw_data.len == bytes;
    for (int d = 0; same && d < shape->dims; d++)
      same = old->dims[d] == (int64_t)shape->size[d];
    if (same && memcmp(old->raw_data.data, data, bytes) == 0)
      return (int)v;
  }
  char *name = onnx_graph_format(g, "constant_%zu", g->initializers.count);
  const int value = onnx_graph_add_tensor(g, name, type, shape, memcpy(onnx_graph_alloc(g, bytes), data, bytes), bytes);
  while (g->constant.count < (size_t)value)
    onnx_graph_list_add(&g->constant, NULL);
  onnx_graph_list_add(&g->constant, g->initializers.item[g->initializers.count - 1]);
  return value;
}

static int onnx_graph_floats(struct trm_graph *graph, const struct trm_shape *shape, const float *values)
{
  return onnx_graph_add_constant((struct onnx_graph *)graph, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, shape, values,
                                 trm_shape_count(shape) * sizeof *values);
}

static int onnx_graph_integers(struct trm_graph *graph, const int64_t *values, int count)
{
  const struct trm_shape shape = {.dims = 1, .size = {(size_t)count}};
  return onnx_graph_add_constant((struct onnx_graph *)graph, ONNX__TENSOR_PROTO__DATA_TYPE__INT64, &shape, values,
                                 (size_t)count * sizeof *values);
}

/* -- operators */

static int onnx_graph_node(struct trm_graph *graph, const char *op, const int *inputs, int count, int outputs)
{
  struct onnx_graph *g = (struct onnx_graph *)graph;
  Onnx__NodeProto *node = onnx_graph_alloc(g, sizeof *node);
  onnx__node_proto__init(node);
  node->op_type = onnx_graph_format(g, "%s", op);
  node->name = onnx_graph_format(g, "layer%d/%s_%zu", graph->layer->number, op, g->nodes.count);
  node->n_input = (size_t)count;
  node->input = onnx_graph_alloc(g, node->n_input * sizeof *node->input);
  for (int i = 0; i < count; i++)
    node->input[i] = g->names.item[inputs[i]];
  node->n_output = (size_t)outputs;
  node->output = onnx_graph_alloc(g, node->n_output * sizeof *node->output);
  const int first = (int)g->names.count;
  for (int i = 0; i < outputs; i++) {
    node->output[i] = outputs == 1 ? node->name : onnx_graph_format(g, "%s:%d", node->name, i);
    onnx_graph_add_value(g, node->output[i]);
  }
  onnx_graph_list_add(&g->nodes, node);
  return first;
}

static Onnx__AttributeProto *onnx_graph_add_attribute(struct trm_graph *graph, const char *name)
{
  enum { MAX_ATTRIBUTES = 8 };
  struct onnx_graph *g = (struct onnx_graph *)graph;
  Onnx__NodeProto *node = g->nodes.item[g->nodes.count - 1];
  if (!node->attribute)
    node->attribute = onnx_graph_alloc(g, MAX_ATTRIBUTES * sizeof *node->attribute);
  Onnx__AttributeProto *attribute = onnx_graph_alloc(g, sizeof *attribute);
  onnx__attribute_proto__init(attribute);
  attribute->name = onnx_graph_format(g, "%s", name);
  node->attribute[node->n_attribute++] = attribute;
  return attribute;
}

static void onnx_graph_set_integer(struct trm_graph *graph, const char *name, int64_t value)
{
  Onnx__AttributeProto *attribute = onnx_graph_add_attribute(graph, name);
  attribute->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
  attribute->i = value;
}

static void onnx_graph_set_integers(struct trm_graph *graph, const char *name, const int64_t *values, int count)
{
  Onnx__AttributeProto *attribute = onnx_graph_add_attribute(graph, name);
  attribute->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
  attribute->n_ints = (size_t)count;
  attribute->ints = onnx_graph_alloc((struct onnx_graph *)graph, (size_t)count * sizeof *values);
  memcpy(attribute->ints, values, (size_t)count * sizeof *values);
}

static void onnx_graph_set_real(struct trm_graph *graph, const char *name, float value)
{
  Onnx__AttributeProto *attribute = onnx_graph_add_attribute(graph, name);
  attribute->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
  attribute->f = value;
}

static const struct trm_graph_ops onnx_graph_ops = {
  .parameter = onnx_graph_parameter,
  .floats = onnx_graph_floats,
  .integers = onnx_graph_integers,
  .node = onnx_graph_node,
  .set_integer = onnx_graph_set_integer,
  .set_integers = onnx_graph_set_integers,
  .set_real = onnx_graph_set_real,
};

/* -- the graph */

/* Describes an input or output: (batch, shape). */
static Onnx__ValueInfoProto **onnx_graph_value_info(struct onnx_graph *g, char *name, Onnx__TensorProto__DataType type,
                                                    const struct trm_shape *shape)
{
  Onnx__ValueInfoProto **list = onnx_graph_alloc(g, sizeof *list), *info = *list = onnx_graph_alloc(g, sizeof *info);
  onnx__value_info_proto__init(info);
  info->name = name;
  info->type = onnx_graph_alloc(g, sizeof *info->type);
  onnx__type_proto__init(info->type);
  info->type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
  Onnx__TypeProto__Tensor *tensor = info->type->tensor_type = onnx_graph_alloc(g, sizeof *tensor);
  onnx__type_proto__tensor__init(tensor);
  tensor->elem_type = type;
  tensor->shape = onnx_graph_alloc(g, sizeof *tensor->shape);
  onnx__tensor_shape_proto__init(tensor->shape);
  tensor->shape->n_dim = 1 + (size_t)shape->dims;
  tensor->shape->dim = onnx_graph_alloc(g, tensor->shape->n_dim * sizeof *tensor->shape->dim);
  for (int d = 0; d <= shape->dims; d++) {
    Onnx__TensorShapeProto__Dimension *size = tensor->shape->dim[d] = onnx_graph_alloc(g, sizeof *size);
    onnx__tensor_shape_proto__dimension__init(size);
    size->value_case = d ? ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE
                         : ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
    if (d)
      size->dim_value = (int64_t)shape->size[d - 1];
    else
      size->dim_param = onnx_graph_format(g, "batch");
  }
  return list;
}

struct onnx_graph *onnx_graph_create(const struct trm_model *model, const float *host_w)
{
  struct onnx_graph *g = trm_alloc(sizeof *g, "a graph");
  *g = (struct onnx_graph){.graph.ops = &onnx_graph_ops, .model = model, .host_w = host_w};
  g->parameter = onnx_graph_alloc(g, (size_t)trm_model_parameter_count(model) * sizeof *g->parameter);
  return g;
}

void onnx_graph_free(struct onnx_graph *g)
{
  for (size_t i = 0; i < g->blocks.count; i++)
    trm_free(g->blocks.item[i]);
  struct list *const lists[] = {&g->blocks, &g->names, &g->nodes, &g->initializers, &g->constant};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
    trm_free(lists[i]->item);
  trm_free(g);
}

int onnx_graph_build(struct onnx_graph *g)
{
  const struct trm_input_spec *spec = &g->model->spec;
  char *name = onnx_graph_format(g, spec->tokens ? "tokens" : "samples");
  int scores;
  TRM_CHECK(trm_model_graph(g->model, &g->graph, onnx_graph_add_value(g, name), &scores));
  Onnx__GraphProto *message = &g->message;
  onnx__graph_proto__init(message);
  message->name = onnx_graph_format(g, "trireme");
  message->node = (Onnx__NodeProto **)g->nodes.item;
  message->n_node = g->nodes.count;
  message->initializer = (Onnx__TensorProto **)g->initializers.item;
  message->n_initializer = g->initializers.count;
  message->input = onnx_graph_value_info(
    g, name, spec->tokens ? ONNX__TENSOR_PROTO__DATA_TYPE__INT64 : ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, &spec->shape);
  message->n_input = 1;
  /* renames the scores; all nodes refer to this text */
  strcpy(g->names.item[scores], "scores");
  message->output = onnx_graph_value_info(g, g->names.item[scores], ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT,
                                          &g->model->layer[g->model->layers - 1].out);
  message->n_output = 1;
  return TRM_OK;
}

Onnx__GraphProto *onnx_graph_message(struct onnx_graph *g)
{
  return &g->message;
}

#endif

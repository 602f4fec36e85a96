/* Where in a sequence a position stands: a learned vector that is added to it (position), or turns of attention's
 * queries and keys (rotary, between the linear layer that makes them and attention). */
#include <math.h>

#include "core/memory.h"
#include "core/status.h"
#include "nn/graph.h"
#include "nn/layers/layers.h"
#include "nn/split.h"

/* -- position */

static int position_create(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  return trm_argument_done(layer, arguments, 0, (const char *const[]){NULL});
}

static int position_shape(struct trm_layer *layer)
{
  TRM_CHECK(trm_layer_sequence(layer));
  layer->out = layer->in;
  const struct trm_shape weight = {.dims = 2, .size = {layer->in.size[0], layer->in.size[1]}};
  trm_layer_parameter(layer, "weight", &weight, TRM_INIT_NORMAL, 0.02f);
  return TRM_OK;
}

static void position_forward(struct trm_layer *layer, const struct trm_pass *pass, const float *x /* (B, T, D) */,
                             float *y /* (B, T, D) */, float *work)
{
  (void)work;
  const size_t b = pass->input->rows, n = trm_shape_count(&layer->in);
  if (y != x)
    pass->device->ops->copy(pass->device, y, x, b * n * sizeof(float));
  pass->device->ops->bias_add(pass->device, y, layer->parameter[0].w, b, n);
}

static void position_backward(struct trm_layer *layer, const struct trm_pass *pass, const float *x, const float *y,
                              const float *dy, float *dx, float *work)
{
  (void)x, (void)y, (void)work;
  const size_t b = pass->input->rows, n = trm_shape_count(&layer->in);
  pass->device->ops->bias_backward(pass->device, dy, pass->beta, layer->parameter[0].g, b, n);
  if (dx && dx != dy)
    pass->device->ops->copy(pass->device, dx, dy, b * n * sizeof(float));
}

static struct trm_cost position_cost(const struct trm_layer *layer)
{
  const double f = (double)trm_shape_count(&layer->in);
  return (struct trm_cost){.flop = f, .bytes = 2 * sizeof(float) * f};
}

static int position_export(const struct trm_layer *layer, struct trm_graph *graph, int x)
{
  return trm_graph_two(graph, "Add", x, graph->ops->parameter(graph, &layer->parameter[0]));
}

static int position_divide(struct trm_layer *layer, struct trm_division *division)
{
  const struct trm_lay has = division->has;
  if (has.kind == TRM_POSITIONS)
    trm_divide_parameter(division, &layer->parameter[0], 0, 1, layer->in.size[0]);
  else if (has.kind == TRM_FEATURES)
    trm_divide_parameter(division, &layer->parameter[0], 1, has.groups, has.units);
  return trm_divide_alike(layer, division);
}

const struct trm_layer_ops layer_position = {
  .name = "position",
  .usage = "position",
  .create = position_create,
  .shape = position_shape,
  .forward = position_forward,
  .backward = position_backward,
  .cost = position_cost,
  .export = position_export,
  .wish = trm_wish_alike,
  .divide = position_divide,
  .in_place = true,
};

/* -- rotary */

static int rotary_create(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  layer->base = 10000;
  TRM_CHECK(trm_argument_done(layer, arguments, 0, (const char *const[]){"heads", "base", NULL}));
  TRM_CHECK(trm_argument_size(layer, arguments, -1, "heads", &layer->heads));
  return trm_argument_real(layer, arguments, -1, "base", 1, 1e9, &layer->base);
}

static int rotary_shape(struct trm_layer *layer)
{
  TRM_CHECK(trm_layer_sequence(layer));
  if (layer->in.size[1] % (3 * 2 * layer->heads) != 0)
    return trm_error(TRM_USAGE, "%s: takes queries, keys and values of %zu heads of even width, (T, 3 D), not %s",
                     trm_layer_text(layer), layer->heads, trm_shape_text(&layer->in));
  layer->out = layer->in;
  return TRM_OK;
}

static void rotary_turn(const struct trm_layer *layer, const struct trm_pass *pass, bool back, const float *from,
                        float *to)
{
  const struct trm_attention shape = {.b = pass->input->rows,
                                      .t = layer->in.size[0],
                                      .heads = layer->heads,
                                      .width = layer->in.size[1] / 3 / layer->heads};
  if (to != from)
    pass->device->ops->copy(pass->device, to, from, shape.b * trm_shape_count(&layer->in) * sizeof(float));
  pass->device->ops->rotary(pass->device, &shape, layer->base, back, to);
}

static void rotary_forward(struct trm_layer *layer, const struct trm_pass *pass, const float *x /* (B, T, 3, H, E) */,
                           float *y, float *work)
{
  (void)work;
  rotary_turn(layer, pass, false, x, y);
}

static void rotary_backward(struct trm_layer *layer, const struct trm_pass *pass, const float *x, const float *y,
                            const float *dy, float *dx, float *work)
{
  (void)x, (void)y, (void)work;
  rotary_turn(layer, pass, true, dy, dx);
}

static struct trm_cost rotary_cost(const struct trm_layer *layer)
{
  const double f = (double)trm_shape_count(&layer->in) * 2 / 3;
  return (struct trm_cost){.flop = 3 * f, .bytes = 2 * sizeof(float) * f};
}

/* Queries or keys (B, T, H E), turned. */
static int turn_export(struct trm_graph *graph, const struct trm_shape *whole, const struct trm_shape *heads, int x,
                       int cosine, int sine)
{
  const int a = trm_graph_split(graph, trm_graph_reshape(graph, x, heads), 2), b = a + 1;
  const int a_along = trm_graph_two(graph, "Mul", a, cosine), b_across = trm_graph_two(graph, "Mul", b, sine);
  const int b_along = trm_graph_two(graph, "Mul", b, cosine), a_across = trm_graph_two(graph, "Mul", a, sine);
  int turned[2];
  turned[0] = trm_graph_two(graph, "Sub", a_along, b_across);
  turned[1] = trm_graph_two(graph, "Add", b_along, a_across);
  return trm_graph_reshape(graph, trm_graph_join(graph, turned, 2), whole);
}

static int rotary_export(const struct trm_layer *layer, struct trm_graph *graph, int x)
{
  const size_t t = layer->in.size[0], d = layer->in.size[1] / 3, half = d / layer->heads / 2;
  const struct trm_shape whole = {.dims = 2, .size = {t, d}}, heads = {.dims = 3, .size = {t, layer->heads, 2 * half}};
  const struct trm_shape angles = {.dims = 3, .size = {t, 1, half}};
  float *turn = trm_alloc(2 * t * half * sizeof *turn, "angles"); /* (2, T, E / 2): cosines, sines */
  for (size_t i = 0; i < t * half; i++) {
    const double angle = (double)(i / half) * pow((double)layer->base, -(double)(i % half) / (double)half);
    turn[i] = (float)cos(angle);
    turn[t * half + i] = (float)sin(angle);
  }
  const int cosine = graph->ops->floats(graph, &angles, turn);
  const int sine = graph->ops->floats(graph, &angles, turn + t * half);
  trm_free(turn);
  const int q = trm_graph_split(graph, x, 3), k = q + 1, v = q + 2;
  int parts[] = {q, k, v};
  for (int i = 0; i < 2; i++)
    parts[i] = turn_export(graph, &whole, &heads, parts[i], cosine, sine);
  return trm_graph_join(graph, parts, 3);
}

static struct trm_lay rotary_lay(const struct trm_layer *layer)
{
  return trm_lay_features(3, layer->heads, layer->in.size[1] / 3 / layer->heads);
}

static struct trm_lay rotary_wish(const struct trm_layer *layer, const struct trm_lay *out)
{
  (void)out;
  return rotary_lay(layer);
}

/* By heads. */
static int rotary_divide(struct trm_layer *layer, struct trm_division *division)
{
  const struct trm_lay lay = rotary_lay(layer);
  if (layer->heads < (size_t)division->parts)
    return trm_error(TRM_USAGE, "%s: %zu heads cannot be divided among %d ranks", trm_layer_text(layer), layer->heads,
                     division->parts);
  layer->heads = trm_divide_units(division, layer->heads);
  trm_divide(layer, division, lay, lay);
  return TRM_OK;
}

const struct trm_layer_ops layer_rotary = {
  .name = "rotary",
  .usage = "rotary heads=H [base=10000]",
  .create = rotary_create,
  .shape = rotary_shape,
  .forward = rotary_forward,
  .backward = rotary_backward,
  .cost = rotary_cost,
  .export = rotary_export,
  .wish = rotary_wish,
  .divide = rotary_divide,
  .in_place = true,
};

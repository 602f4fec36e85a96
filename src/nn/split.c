/* From the list of all layers to that of one rank of the tensor axis. Two walks: up, to learn how readers would like
 * each value, then down, where each layer chooses by how its input has come to lie. */
#include "nn/split.h"

#include "core/comm.h"
#include "core/memory.h"
#include "core/status.h"
#include "nn/layers/layers.h"

static const struct trm_lay whole_lay = {.kind = TRM_WHOLE};

/* -- lays */

struct trm_lay trm_lay_features(size_t groups, size_t units, size_t width)
{
  return (struct trm_lay){.kind = TRM_FEATURES, .groups = groups, .units = units, .width = width};
}

struct trm_lay trm_lay_of_shape(const struct trm_shape *shape)
{
  if (shape->sequence)
    return trm_lay_features(1, shape->size[1], 1);
  const size_t first = shape->dims ? shape->size[0] : 1;
  return shape->dims == 3 ? trm_lay_features(1, first, shape->size[1] * shape->size[2])
                          : trm_lay_features(1, trm_shape_count(shape), 1);
}

static bool lay_equals(const struct trm_lay *a, const struct trm_lay *b, int parts)
{
  if (a->kind != TRM_FEATURES || b->kind != TRM_FEATURES)
    return a->kind == b->kind;
  const size_t n = (size_t)parts;
  return a->groups == b->groups && a->units * a->width == b->units * b->width &&
         (a->units == b->units || (a->units % n == 0 && b->units % n == 0));
}

/* What of a sample of the whole shape the part has. */
static struct trm_slice lay_slice(const struct trm_shape *whole, const struct trm_lay *lay, int part, int parts)
{
  struct trm_slice slice;
  if (lay->kind == TRM_POSITIONS)
    slice = (struct trm_slice){.outer = 1, .whole = whole->size[0], .inner = whole->size[1]};
  else
    slice = (struct trm_slice){
      .outer = (whole->sequence ? whole->size[0] : 1) * lay->groups, .whole = lay->units, .inner = lay->width};
  trm_interval(slice.whole, (size_t)parts, (size_t)part, &slice.low, &slice.high);
  return slice;
}

static struct trm_shape lay_shape(const struct trm_shape *whole, const struct trm_lay *lay, int part, int parts)
{
  struct trm_shape shape = *whole;
  if (lay->kind == TRM_WHOLE)
    return shape;
  const struct trm_slice slice = lay_slice(whole, lay, part, parts);
  const size_t units = slice.high - slice.low;
  if (lay->kind == TRM_POSITIONS)
    shape.size[0] = units;
  else if (whole->dims == 3) /* width is a number of images: whole channels */
    shape.size[0] = lay->groups * units * lay->width / (whole->size[1] * whole->size[2]);
  else
    shape.size[whole->sequence ? 1 : 0] = lay->groups * units * lay->width;
  return shape;
}

/* -- for the layers */

size_t trm_divide_units(const struct trm_division *division, size_t units)
{
  size_t low, high;
  trm_interval(units, (size_t)division->parts, (size_t)division->part, &low, &high);
  return high - low;
}

void trm_divide(struct trm_layer *layer, struct trm_division *division, struct trm_lay in, struct trm_lay out)
{
  division->in = in;
  division->out = out;
  layer->in = lay_shape(&layer->in, &in, division->part, division->parts);
  layer->divided = out.kind != TRM_WHOLE;
  if (layer->divided)
    layer->slice = lay_slice(&layer->out, &out, division->part, division->parts);
  layer->out = lay_shape(&layer->out, &out, division->part, division->parts);
}

struct trm_lay trm_wish_alike(const struct trm_layer *layer, const struct trm_lay *out)
{
  (void)layer;
  return *out;
}

int trm_divide_alike(struct trm_layer *layer, struct trm_division *division)
{
  trm_divide(layer, division, division->has, division->has);
  return TRM_OK;
}

void trm_divide_parameter(const struct trm_division *division, struct trm_parameter *parameter, int dim, size_t groups,
                          size_t units)
{
  struct trm_slice *slice = &parameter->slice;
  size_t before = 1, behind = 1;
  for (int d = 0; d < parameter->shape.dims; d++)
    *(d < dim ? &before : &behind) *= parameter->shape.size[d];
  *slice = (struct trm_slice){.outer = before * groups, .whole = units, .inner = behind / (groups * units)};
  trm_interval(units, (size_t)division->parts, (size_t)division->part, &slice->low, &slice->high);
  parameter->shape.size[dim] = parameter->shape.size[dim] / units * (slice->high - slice->low);
  parameter->count = slice->outer * (slice->high - slice->low) * slice->inner;
}

/* -- the walks */

struct splitting {
  const struct trm_model_part *part;
  const struct trm_layer *whole; /* (layers) */
  int layers;
  struct trm_lay *wish; /* (layers) of the output */
  struct trm_layer *made;
  int count;
  struct trm_lay *lay;     /* (count) of the output; of summands: of their sum */
  struct trm_shape *shape; /* (count) of the whole output */
  int *itself, *where;     /* (layers) it, and its output, among those made */
};

/* For one layer: two moves for each of two inputs, itself, a move of its output; at the end another. */
enum { MOST_MADE = 7 };

static const struct trm_shape *shape_at(const struct splitting *s, int made)
{
  return &s->shape[made];
}

/* From the last layer up: the first reader that has a wish gets it. */
static void wishes_find(struct splitting *s)
{
  for (int i = s->layers - 1; i >= 0; i--) {
    const struct trm_layer *layer = &s->whole[i];
    const int reads[2] = {layer->from, layer->with};
    if (!layer->ops->wish)
      continue;
    const struct trm_lay wish = layer->ops->wish(layer, &s->wish[i]);
    for (int k = 0; k < 2; k++)
      if (reads[k] >= 0 && s->wish[reads[k]].kind == TRM_WHOLE)
        s->wish[reads[k]] = wish;
  }
}

static struct trm_layer *made_add(struct splitting *s, const struct trm_shape *whole, struct trm_lay lay)
{
  s->lay[s->count] = lay;
  s->shape[s->count] = *whole;
  return &s->made[s->count++];
}

/* One move of the value at `from` (or of the batch); about: the lay that is not whole. Readers that want the same share
 * it. */
static int move_add(struct splitting *s, const struct trm_layer *owner, const struct trm_layer_ops *ops, int from,
                    const struct trm_shape *whole, struct trm_lay to, struct trm_lay about)
{
  static const struct {
    const struct trm_layer_ops *ops;
    enum trm_move move[2];
  } moves[] = {
    {&layer_move_sum, {TRM_MOVE_SUM, TRM_MOVE_NONE}},       {&layer_move_scatter, {TRM_MOVE_SCATTER, TRM_MOVE_GATHER}},
    {&layer_move_spread, {TRM_MOVE_GATHER, TRM_MOVE_SCATTER}}, {&layer_move_gather, {TRM_MOVE_GATHER, TRM_MOVE_TAKE}},
    {&layer_move_take, {TRM_MOVE_TAKE, TRM_MOVE_GATHER}}};
  const int part = s->part->tensor, parts = s->part->tensors;
  for (int i = 0; i < s->count; i++)
    if (s->made[i].ops == ops && s->made[i].from == from && lay_equals(&s->lay[i], &to, parts))
      return i;
  const struct trm_shape before = from >= 0 ? s->made[from].out : *whole;
  const bool needed = from >= 0 && s->made[from].needs_dy;
  struct trm_layer *layer = made_add(s, whole, to);
  *layer = (struct trm_layer){.ops = ops, .number = owner->number, .place = owner->place, .from = from,
                              .with = TRM_FROM_NONE, .in = before, .out = lay_shape(whole, &to, part, parts),
                              .part = part, .parts = parts, .divided = to.kind != TRM_WHOLE, .needs_dy = needed,
                              .needs_dx = needed};
  if (about.kind != TRM_WHOLE)
    layer->slice = lay_slice(whole, &about, part, parts);
  for (size_t m = 0; m < sizeof moves / sizeof *moves; m++)
    if (moves[m].ops == ops)
      for (int k = 0; k < 2; k++)
        layer->move[k] = moves[m].move[k];
  return s->count - 1;
}

/* The value as the reader takes it. fans: each rank's reader does a part of the work on the whole. *summed: then moving
 * the gradient back sums it already. */
static int convert(struct splitting *s, const struct trm_layer *reader, int from, struct trm_lay to, bool fans,
                   bool *summed)
{
  const struct trm_shape whole = from >= 0 ? *shape_at(s, from) : reader->in;
  const struct trm_lay has = from >= 0 ? s->lay[from] : whole_lay;
  *summed = false;
  if (lay_equals(&has, &to, s->part->tensors))
    return from;
  if (has.kind != TRM_WHOLE) {
    *summed = fans && to.kind == TRM_WHOLE && has.kind == TRM_POSITIONS;
    from = move_add(s, reader, *summed ? &layer_move_spread : &layer_move_gather, from, &whole, whole_lay, has);
  }
  return to.kind == TRM_WHOLE ? from : move_add(s, reader, &layer_move_take, from, &whole, to, to);
}

/* Are sequences of this shape to be divided by positions? */
static bool takes_positions(const struct splitting *s, const struct trm_shape *shape)
{
  return s->part->by_positions && shape->sequence && shape->size[0] % (size_t)s->part->tensors == 0;
}

/* Both values of an add alike: by positions if one is, then by features. */
static int add_split(struct splitting *s, int i)
{
  struct trm_layer layer = s->whole[i];
  const int from[2] = {layer.from >= 0 ? s->where[layer.from] : layer.from,
                       layer.with >= 0 ? s->where[layer.with] : layer.with};
  struct trm_lay lay = whole_lay;
  bool summed;
  for (int k = 0; k < 2; k++)
    if (from[k] >= 0 && s->lay[from[k]].kind > lay.kind)
      lay = s->lay[from[k]];
  const struct trm_shape whole = layer.out;
  layer.from = convert(s, &layer, from[0], lay, false, &summed);
  layer.with = convert(s, &layer, from[1], lay, false, &summed);
  struct trm_division division = {.part = s->part->tensor, .parts = s->part->tensors};
  layer.part = division.part;
  layer.parts = division.parts;
  trm_divide(&layer, &division, lay, lay);
  s->where[i] = s->count;
  *made_add(s, &whole, lay) = layer;
  return TRM_OK;
}

static int layer_split(struct splitting *s, int i)
{
  struct trm_layer layer = s->whole[i];
  const struct trm_shape whole = layer.out;
  const int from = layer.from >= 0 ? s->where[layer.from] : layer.from;
  struct trm_division division = {.part = s->part->tensor,
                                  .parts = s->part->tensors,
                                  .has = from >= 0 ? s->lay[from] : whole_lay,
                                  .wish = s->wish[i]};
  bool summed = false;
  const struct trm_layer reader = layer; /* with its whole input */
  layer.part = division.part;
  layer.parts = division.parts;
  for (int p = 0; p < layer.parameters; p++) /* what stays whole counts once */
    layer.parameter[p].counted = division.part == 0;
  if (layer.tied)
    layer.tied = &s->made[s->itself[layer.tied - s->whole]];
  if (layer.ops->divide)
    TRM_CHECK(layer.ops->divide(&layer, &division));
  else
    trm_divide(&layer, &division, whole_lay, whole_lay);
  layer.from = convert(s, &reader, from, division.in, layer.fans, &summed);
  layer.fans = layer.fans && !summed;
  for (int p = 0; p < layer.parameters; p++)
    layer.parameter[p].counted = division.part == 0 || layer.parameter[p].slice.high - layer.parameter[p].slice.low <
                                                         layer.parameter[p].slice.whole;
  s->itself[i] = s->where[i] = s->count;
  *made_add(s, &whole, division.out) = layer;
  if (layer.sums) {
    const bool positions = takes_positions(s, &whole);
    const struct trm_lay lay = {.kind = positions ? TRM_POSITIONS : TRM_WHOLE};
    s->where[i] = move_add(s, &layer, positions ? &layer_move_scatter : &layer_move_sum, s->where[i], &whole, lay, lay);
  }
  return TRM_OK;
}

/* The scores as the loss reads them. */
static void scores_end(struct splitting *s, bool takes_features)
{
  int end = s->where[s->layers - 1];
  const struct trm_lay lay = s->lay[end];
  bool summed;
  if (lay.kind == TRM_POSITIONS || (lay.kind == TRM_FEATURES && (!takes_features || lay.groups > 1 || lay.width > 1)))
    end = convert(s, &s->whole[s->layers - 1], end, whole_lay, false, &summed);
  for (int i = 0; i < s->count; i++)
    s->made[i].scores = i == end;
}

int trm_model_split(const struct trm_model_part *part, bool takes_features, struct trm_layer **layer, int *layers)
{
  const size_t n = (size_t)*layers, room = MOST_MADE * n + 1;
  struct splitting s = {.part = part, .whole = *layer, .layers = *layers};
  s.wish = trm_alloc(n * sizeof *s.wish, "layers");
  s.where = trm_alloc(n * sizeof *s.where, "layers");
  s.itself = trm_alloc(n * sizeof *s.itself, "layers");
  s.made = trm_alloc(room * sizeof *s.made, "layers");
  s.lay = trm_alloc(room * sizeof *s.lay, "layers");
  s.shape = trm_alloc(room * sizeof *s.shape, "layers");
  wishes_find(&s);
  int status = TRM_OK;
  for (int i = 0; i < s.layers && status == TRM_OK; i++)
    status = s.whole[i].with != TRM_FROM_NONE ? add_split(&s, i) : layer_split(&s, i);
  if (status == TRM_OK)
    scores_end(&s, takes_features);
  trm_free(s.wish);
  trm_free(s.where);
  trm_free(s.itself);
  trm_free(s.lay);
  trm_free(s.shape);
  if (status != TRM_OK) {
    trm_free(s.made);
    return status;
  }
  trm_free(*layer);
  *layer = s.made;
  *layers = s.count;
  return TRM_OK;
}

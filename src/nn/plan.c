/* Lifetimes of the arrays of a step, and their places in the arena.
 *
 * Moments: forward of layer i is i, the loss is `last`; then, segment by segment from the last one, those of its layers
 * that compute again, and backward of its layers. Placement is greedy by size: the largest first, each at the lowest
 * offset that is free for its whole life (Pisarchyk & Lee 2020).
 *
 * Several gradients may be one array: those of what an add reads are that of its output, and layers in place hand
 * theirs on. So an array is written over only at a moment when no other gradient that still waits to be read is in
 * it. */
#include "nn/plan.h"

#include <stdlib.h>

#include "core/memory.h"
#include "nn/recompute.h"

enum { NONE = -1, ALIGN = TRM_ALIGNMENT / (int)sizeof(float) };

struct block {
  size_t elements, offset;
  int born, dies; /* first and last moment of use */
  bool stays;     /* outlasts a pass */
};

/* The blocks of a plan, and which one each array uses; NONE: no array. Values, workspaces, scratches as in trm_plan. */
struct blocks {
  const struct trm_layer *layer; /* (last) */
  const struct trm_plan *plan;   /* its segments */
  int first, last;
  size_t rows;
  struct block *block;
  int count;
  int *value, *work;       /* (2, last) */
  int *gradient;           /* (last) */
  int *scratch;            /* (3, last) */
  int *flow;               /* (last, 2, 3): write, earlier, sum */
  int *repeat, *backward;  /* (last) moments: forward again, backward; NONE: not at all */
  int *renewed;            /* (last) 1: its value is computed again, and at another place */
  int *read;               /* (2, last) the last moment at which a value is read: forward's, the repetition's */
};

static size_t block_elements(const struct blocks *blocks, int layer)
{
  return blocks->rows * trm_shape_count(&blocks->layer[layer].out);
}

static int block_add(struct blocks *blocks, size_t elements, int born)
{
  blocks->block[blocks->count] = (struct block){
    .elements = (elements + ALIGN - 1) / ALIGN * ALIGN, .born = born, .dies = born};
  return blocks->count++;
}

static void block_use(struct blocks *blocks, int block, int moment)
{
  if (blocks->block[block].dies < moment)
    blocks->block[block].dies = moment;
}

/* Which of the two values of layer v layer i finds after the loss: an index into value and read. */
static int found(const struct blocks *blocks, int i, int v)
{
  return blocks->renewed[v] == 1 && blocks->plan->end[v] == blocks->plan->end[i] ? blocks->last + v : v;
}

static void set_moments(struct blocks *blocks, bool training)
{
  const struct trm_plan *plan = blocks->plan;
  int now = blocks->last + 1;
  for (int end = blocks->last, begin; training && end > blocks->first; end = begin) {
    for (begin = end; begin > blocks->first && plan->end[begin - 1] == end;)
      begin--;
    for (int i = begin; i < end; i++)
      if (plan->again[i])
        blocks->repeat[i] = now++;
    for (int i = end - 1; i >= begin; i--, now++)
      if (blocks->layer[i].needs_dy)
        blocks->backward[i] = now;
  }
}

static void value_read(struct blocks *blocks, int value, int moment)
{
  if (blocks->read[value] < moment)
    blocks->read[value] = moment;
}

/* A value that a later segment reads is kept: whoever computes it again does so at the same place. */
static bool is_kept(const struct blocks *blocks, int v)
{
  const struct trm_plan *plan = blocks->plan;
  for (int r = plan->end[v]; r < blocks->last; r++)
    if (blocks->layer[r].from == v || blocks->layer[r].with == v)
      return true;
  return v == blocks->last - 1;
}

/* Until when each value is read. */
static void set_reads(struct blocks *blocks)
{
  const int last = blocks->last;
  for (int v = blocks->first; v < last; v++)
    blocks->renewed[v] = blocks->plan->again[v] && !is_kept(blocks, v);
  for (int i = blocks->first; i < last; i++) {
    const struct trm_layer *layer = &blocks->layer[i];
    const int operand[2] = {layer->from, layer->with};
    value_read(blocks, i, i);
    value_read(blocks, found(blocks, i, i), blocks->repeat[i]);
    if (layer->ops->keeps_output)
      value_read(blocks, found(blocks, i, i), blocks->backward[i]);
    for (int k = 0; k < 2; k++) {
      if (operand[k] < 0)
        continue;
      value_read(blocks, operand[k], i);
      value_read(blocks, found(blocks, i, operand[k]), blocks->repeat[i]);
      if (layer->ops->keeps_input)
        value_read(blocks, found(blocks, i, operand[k]), blocks->backward[i]);
    }
  }
  value_read(blocks, last - 1, last); /* by the loss */
}

/* Where layer i puts its value at a moment: over one that it reads and nobody reads later (never over the batch), or in
 * a place of its own. after: after the loss. */
static int value_place(struct blocks *blocks, int i, int moment, bool after)
{
  const struct trm_layer *layer = &blocks->layer[i];
  const int operand[2] = {layer->from, layer->with};
  for (int k = 0; k < 2; k++) {
    if (operand[k] < 0 || !layer->ops->in_place || layer->from == layer->with)
      continue;
    const int value = after ? found(blocks, i, operand[k]) : operand[k];
    if (blocks->read[value] == moment)
      return blocks->value[value];
  }
  return block_add(blocks, block_elements(blocks, i), moment);
}

static void layer_forward(struct blocks *blocks, int i, bool training)
{
  const struct trm_layer *layer = &blocks->layer[i];
  const int last = blocks->last;
  const bool again = training && blocks->plan->again[i], backward = training && layer->needs_dy;
  blocks->value[i] = value_place(blocks, i, i, false);
  block_use(blocks, blocks->value[i], blocks->read[i]);
  if (layer->workspace || layer->workspace_fixed) {
    const size_t elements = layer->workspace_fixed + blocks->rows * layer->workspace;
    blocks->work[i] = block_add(blocks, elements, i);
    blocks->work[last + i] = again ? block_add(blocks, elements, blocks->repeat[i]) : blocks->work[i];
    block_use(blocks, blocks->work[last + i], backward ? blocks->backward[i] : i);
  }
  const int moment[] = {i, again ? blocks->repeat[i] : NONE, backward ? blocks->backward[i] : NONE};
  for (int when = 0; when < 3; when++)
    if (layer->scratch && moment[when] != NONE)
      blocks->scratch[when * last + i] = block_add(blocks, layer->scratch, moment[when]);
}

static void plan_forward(struct blocks *blocks, bool training)
{
  const int last = blocks->last;
  for (int i = blocks->first; i < last; i++)
    layer_forward(blocks, i, training);
  for (int i = blocks->first; i < last; i++) {
    blocks->value[last + i] = blocks->value[i];
    if (blocks->renewed[i] == 1) {
      blocks->value[last + i] = value_place(blocks, i, blocks->repeat[i], true);
      block_use(blocks, blocks->value[last + i], blocks->read[last + i]);
    }
  }
}

/* Whether, in backward of layer i, the block may be written over as the gradient of `value`: no gradient of another
 * layer below is in it. */
static bool is_free(const struct blocks *blocks, int i, int value, int block)
{
  for (int below = blocks->first; below < i; below++)
    if (below != value && blocks->gradient[below] == block)
      return false;
  return true;
}

/* Backward of layer i gives its part of the gradient of a value that it reads. */
static void plan_flow(struct blocks *blocks, int i, int value, int *flow)
{
  enum { WRITE, EARLIER, SUM };
  const struct trm_layer *layer = &blocks->layer[i];
  const int moment = blocks->backward[i], dy = blocks->gradient[i];
  const bool is_add = layer->with != TRM_FROM_NONE;
  int *gradient = &blocks->gradient[value];
  if (is_add || (layer->ops->in_place && is_free(blocks, i, i, dy)))
    flow[WRITE] = dy;
  else
    flow[WRITE] = block_add(blocks, block_elements(blocks, value), moment);
  if (*gradient != NONE) {
    flow[EARLIER] = *gradient;
    block_use(blocks, *gradient, moment);
    if (is_free(blocks, i, value, *gradient))
      flow[SUM] = *gradient;
    else
      flow[SUM] = is_add ? block_add(blocks, block_elements(blocks, value), moment) : flow[WRITE];
  }
  *gradient = flow[EARLIER] == NONE ? flow[WRITE] : flow[SUM];
  block_use(blocks, *gradient, moment);
}

static void plan_backward(struct blocks *blocks)
{
  const struct trm_layer *layer = blocks->layer;
  const int end = blocks->last - 1;
  if (layer[end].ops->keeps_output || blocks->plan->again[end])
    blocks->gradient[end] = block_add(blocks, block_elements(blocks, end), blocks->last);
  else
    blocks->gradient[end] = blocks->value[end]; /* the loss writes over the scores */
  for (int i = end; i >= blocks->first; i--) {
    if (!layer[i].needs_dy)
      continue;
    const int operand[2] = {layer[i].from, layer[i].with};
    block_use(blocks, blocks->gradient[i], blocks->backward[i]);
    for (int k = 0; k < 2; k++)
      if (operand[k] >= 0 && layer[operand[k]].needs_dy)
        plan_flow(blocks, i, operand[k], &blocks->flow[6 * i + 3 * k]);
  }
}

static int block_compare(const void *a, const void *b)
{
  const struct block *x = *(const struct block *const *)a, *y = *(const struct block *const *)b;
  if (x->elements != y->elements)
    return x->elements > y->elements ? -1 : 1;
  return (x > y) - (x < y);
}

/* What is sent or received at the ends of the chain, and what lives from forward to backward. */
static void set_stays(struct blocks *blocks)
{
  for (int b = 0; b < blocks->count; b++)
    blocks->block[b].stays = blocks->block[b].born <= blocks->last && blocks->block[b].dies >= blocks->last;
  const int first = blocks->first;
  if (blocks->layer[first].from == TRM_FROM_NONE) {
    blocks->block[blocks->value[first]].stays = true;
    if (blocks->gradient[first] != NONE)
      blocks->block[blocks->gradient[first]].stays = true;
  }
}

/* Sets the offsets of the blocks that stay, or of the others, from `begin` up; returns where they end. */
static size_t blocks_place(struct blocks *blocks, bool stays, size_t begin)
{
  struct block **order = trm_alloc((size_t)blocks->count * sizeof *order, "arena plan");
  int count = 0;
  for (int i = 0; i < blocks->count; i++)
    if (blocks->block[i].stays == stays)
      order[count++] = &blocks->block[i];
  qsort(order, (size_t)count, sizeof *order, block_compare);
  size_t total = begin;
  for (int i = 0; i < count; i++) {
    struct block *b = order[i];
    b->offset = begin;
    for (bool moved = true; moved;) { /* up past whatever is in the way, until nothing is */
      moved = false;
      for (int j = 0; j < i; j++) {
        const struct block *o = order[j];
        const bool meets = b->born <= o->dies && o->born <= b->dies;
        if (meets && b->offset < o->offset + o->elements && o->offset < b->offset + b->elements) {
          b->offset = o->offset + o->elements;
          moved = true;
        }
      }
    }
    if (total < b->offset + b->elements)
      total = b->offset + b->elements;
  }
  trm_free(order);
  return total;
}

/* The offsets of n blocks. */
static void offsets_of(const struct blocks *blocks, const int *block, int n, size_t *offset)
{
  for (int i = 0; i < n; i++)
    offset[i] = block[i] == NONE ? 0 : blocks->block[block[i]].offset;
}

/* A layer has at most two values and workspaces, three scratches and four of its flows. */
enum { MOST_BLOCKS = 11, ARRAYS = 19 };

static void blocks_create(struct blocks *blocks)
{
  const size_t n = (size_t)blocks->last;
  blocks->block = trm_alloc(MOST_BLOCKS * n * sizeof *blocks->block, "arena plan");
  int *which = trm_alloc(ARRAYS * n * sizeof *which, "arena plan");
  for (size_t i = 0; i < ARRAYS * n; i++)
    which[i] = NONE;
  blocks->value = which;
  blocks->work = which + 2 * n;
  blocks->gradient = which + 4 * n;
  blocks->scratch = which + 5 * n;
  blocks->flow = which + 8 * n;
  blocks->repeat = which + 14 * n;
  blocks->backward = which + 15 * n;
  blocks->renewed = which + 16 * n;
  blocks->read = which + 17 * n;
}

static struct trm_plan *plan_take(int first, int last)
{
  const size_t n = (size_t)last;
  struct trm_plan *plan = trm_alloc(sizeof *plan, "arena plan");
  size_t *offsets = trm_alloc(8 * n * sizeof *offsets, "arena plan");
  *plan = (struct trm_plan){.first = first, .last = last, .value = offsets, .work = offsets + 2 * n,
                            .gradient = offsets + 4 * n, .scratch = offsets + 5 * n, .apart = SIZE_MAX,
                            .flow = trm_alloc(2 * n * sizeof *plan->flow, "arena plan"),
                            .end = trm_alloc(n * sizeof *plan->end, "arena plan"),
                            .again = trm_alloc(n * sizeof *plan->again, "arena plan")};
  return plan;
}

struct trm_plan *trm_plan_create(const struct trm_layer *layer, int first, int last,
                                 const struct trm_plan_request *request)
{
  struct trm_plan *plan = plan_take(first, last);
  plan->whole = request->apart && !layer[last - 1].scores;
  trm_recompute(layer, first, last, request->training ? request->recompute : 0, plan->whole, plan->end, plan->again);
  struct blocks blocks = {.layer = layer, .plan = plan, .first = first, .last = last, .rows = request->rows};
  blocks_create(&blocks);
  set_moments(&blocks, request->training);
  set_reads(&blocks);
  plan_forward(&blocks, request->training);
  if (request->training)
    plan_backward(&blocks);
  if (request->apart) {
    set_stays(&blocks);
    plan->apart = blocks_place(&blocks, true, 0);
  }
  plan->elements = blocks_place(&blocks, false, request->apart ? plan->apart : 0);
  offsets_of(&blocks, blocks.value, 2 * last, plan->value);
  offsets_of(&blocks, blocks.work, 2 * last, plan->work);
  offsets_of(&blocks, blocks.gradient, last, plan->gradient);
  offsets_of(&blocks, blocks.scratch, 3 * last, plan->scratch);
  for (int i = 0; i < 2 * last; i++) {
    size_t offset[3];
    offsets_of(&blocks, &blocks.flow[3 * i], 3, offset);
    plan->flow[i] = (struct trm_flow){
      .write = offset[0], .adds = blocks.flow[3 * i + 1] != NONE, .earlier = offset[1], .sum = offset[2]};
  }
  trm_free(blocks.block);
  trm_free(blocks.value);
  return plan;
}

void trm_plan_free(struct trm_plan *plan)
{
  if (!plan)
    return;
  trm_free(plan->value);
  trm_free(plan->flow);
  trm_free(plan->end);
  trm_free(plan->again);
  trm_free(plan);
}

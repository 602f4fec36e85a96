/* Lifetimes of the arrays of a step, and their places in the arena.
 *
 * Moments: forward of layer i is i, the loss is L = last, backward of layer i is 2 L - i. Placement is greedy by size: the
 * largest first, each at the lowest offset that is free for its whole life (Pisarchyk & Lee 2020).
 *
 * Several gradients may be one array: those of what an add reads are that of its output, and layers in place hand
 * theirs on. So an array is written over only at a moment when no other gradient that still waits to be read is in
 * it. */
#include "nn/plan.h"

#include <stdlib.h>

#include "core/memory.h"

enum { NONE = -1, ALIGN = TRM_ALIGNMENT / (int)sizeof(float) };

struct block {
  size_t elements, offset;
  int born, dies; /* first and last moment of use */
};

/* The blocks of a plan, and which one each array uses; NONE: no array. */
struct blocks {
  const struct trm_layer *layer; /* (last) */
  int first, last;
  size_t rows;
  struct block *block;
  int count;
  int *value, *gradient, *work; /* (last) */
  int *scratch;                 /* (2, last) */
  int *flow;                    /* (last, 2, 3): write, earlier, sum */
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

/* Whether layer i may write over what it reads: never over the batch, never over what another layer reads later or a
 * backward pass will read. */
static bool in_place(const struct blocks *blocks, int i, int operand, bool training)
{
  const struct trm_layer *layer = blocks->layer;
  if (operand < 0 || !layer[i].ops->in_place || layer[i].from == layer[i].with ||
      (training && layer[operand].ops->keeps_output))
    return false;
  for (int r = operand + 1; r < blocks->last; r++) {
    const bool reads = layer[r].from == operand || layer[r].with == operand;
    if (reads && (r > i || (training && layer[r].ops->keeps_input)))
      return false;
  }
  return true;
}

static void plan_forward(struct blocks *blocks, bool training)
{
  const int last = blocks->last;
  for (int i = blocks->first; i < last; i++) {
    const struct trm_layer *layer = &blocks->layer[i];
    const struct trm_layer_ops *ops = layer->ops;
    const bool backward = training && layer->needs_dy;
    const int operand[2] = {layer->from, layer->with};
    blocks->value[i] = NONE;
    for (int k = 0; k < 2; k++) {
      if (operand[k] < 0)
        continue;
      block_use(blocks, blocks->value[operand[k]], backward && ops->keeps_input ? 2 * last - i : i);
      if (blocks->value[i] == NONE && in_place(blocks, i, operand[k], training))
        blocks->value[i] = blocks->value[operand[k]];
    }
    if (blocks->value[i] == NONE)
      blocks->value[i] = block_add(blocks, block_elements(blocks, i), i);
    block_use(blocks, blocks->value[i], backward && ops->keeps_output ? 2 * last - i : i);
    if (layer->workspace || layer->workspace_fixed) {
      blocks->work[i] = block_add(blocks, layer->workspace_fixed + blocks->rows * layer->workspace, i);
      block_use(blocks, blocks->work[i], backward ? 2 * last - i : i);
    }
    if (layer->scratch) {
      blocks->scratch[i] = block_add(blocks, layer->scratch, i);
      if (backward)
        blocks->scratch[last + i] = block_add(blocks, layer->scratch, 2 * last - i);
    }
  }
  block_use(blocks, blocks->value[last - 1], last); /* by the loss */
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
  const int moment = 2 * blocks->last - i, dy = blocks->gradient[i];
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
  if (layer[end].ops->keeps_output)
    blocks->gradient[end] = block_add(blocks, block_elements(blocks, end), blocks->last);
  else
    blocks->gradient[end] = blocks->value[end]; /* the loss writes over the scores */
  for (int i = end; i >= blocks->first; i--) {
    if (!layer[i].needs_dy)
      continue;
    const int operand[2] = {layer[i].from, layer[i].with};
    block_use(blocks, blocks->gradient[i], 2 * blocks->last - i);
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

/* Sets every offset; returns the arena's size. */
static size_t blocks_place(struct blocks *blocks)
{
  struct block **order = trm_alloc((size_t)blocks->count * sizeof *order, "arena plan");
  for (int i = 0; i < blocks->count; i++)
    order[i] = &blocks->block[i];
  qsort(order, (size_t)blocks->count, sizeof *order, block_compare);
  size_t total = 0;
  for (int i = 0; i < blocks->count; i++) {
    struct block *b = order[i];
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

static size_t offset_of(const struct blocks *blocks, int block)
{
  return block == NONE ? 0 : blocks->block[block].offset;
}

struct trm_plan *trm_plan_create(const struct trm_layer *layer, int first, int last, size_t rows, bool training)
{
  const size_t n = (size_t)last;
  struct trm_plan *plan = trm_alloc(sizeof *plan, "arena plan");
  size_t *offsets = trm_alloc(5 * n * sizeof *offsets, "arena plan");
  *plan = (struct trm_plan){.first = first, .last = last, .value = offsets, .gradient = offsets + n, .work = offsets + 2 * n,
                            .scratch = offsets + 3 * n, .flow = trm_alloc(2 * n * sizeof *plan->flow, "arena plan")};

  struct blocks blocks = {.layer = layer, .first = first, .last = last, .rows = rows};
  /* a layer has at most a value, a workspace, two scratches and four of its flows */
  blocks.block = trm_alloc(8 * n * sizeof *blocks.block, "arena plan");
  int *which = trm_alloc(11 * n * sizeof *which, "arena plan");
  for (size_t i = 0; i < 11 * n; i++)
    which[i] = NONE;
  blocks.value = which;
  blocks.gradient = which + n;
  blocks.work = which + 2 * n;
  blocks.scratch = which + 3 * n;
  blocks.flow = which + 5 * n;
  plan_forward(&blocks, training);
  if (training)
    plan_backward(&blocks);
  plan->elements = blocks_place(&blocks);
  for (size_t i = 0; i < n; i++) {
    plan->value[i] = offset_of(&blocks, blocks.value[i]);
    plan->gradient[i] = offset_of(&blocks, blocks.gradient[i]);
    plan->work[i] = offset_of(&blocks, blocks.work[i]);
  }
  for (size_t i = 0; i < 2 * n; i++) {
    const int *flow = &blocks.flow[3 * i];
    plan->scratch[i] = offset_of(&blocks, blocks.scratch[i]);
    plan->flow[i] = (struct trm_flow){.write = offset_of(&blocks, flow[0]), .adds = flow[1] != NONE,
                                      .earlier = offset_of(&blocks, flow[1]), .sum = offset_of(&blocks, flow[2])};
  }
  trm_free(blocks.block);
  trm_free(which);
  return plan;
}

void trm_plan_free(struct trm_plan *plan)
{
  if (!plan)
    return;
  trm_free(plan->value);
  trm_free(plan->flow);
  trm_free(plan);
}

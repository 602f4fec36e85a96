/* Lifetimes of the arrays of a step, and their places in the arena.
 *
 * Moments: forward of layer i is i, the loss is L, backward of layer i is 2 L - i. Placement is greedy by size: the
 * largest first, each at the lowest offset that is free for its whole life (Pisarchyk & Lee 2020). */
#include "nn/plan.h"

#include <stdlib.h>

#include "core/memory.h"

enum { NONE = -1, ALIGN = TRM_ALIGNMENT / (int)sizeof(float) };

struct block {
  size_t elements, offset;
  int born, dies; /* first and last moment of use */
};

/* The blocks of a plan, and which one each array uses. */
struct blocks {
  struct block *block;
  int count;
  int *value, *gradient, *work; /* (layers) */
};

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

static void plan_forward(struct blocks *blocks, const struct trm_layer *layer, int layers, size_t rows, bool training)
{
  for (int i = 0; i < layers; i++) {
    const struct trm_layer_ops *ops = layer[i].ops, *before = i ? layer[i - 1].ops : NULL;
    /* never over the batch itself; never over what a backward pass will read */
    const bool in_place = before && ops->in_place && !(training && (ops->keeps_input || before->keeps_output));
    blocks->value[i] = in_place ? blocks->value[i - 1] : block_add(blocks, rows * trm_shape_count(&layer[i].out), i);
    block_use(blocks, blocks->value[i], i + 1); /* by the next layer, or the loss */
    if (i && training && ops->keeps_input)
      block_use(blocks, blocks->value[i - 1], 2 * layers - i);
    if (training && ops->keeps_output)
      block_use(blocks, blocks->value[i], 2 * layers - i);
    blocks->work[i] = NONE;
    if (layer[i].workspace) {
      blocks->work[i] = block_add(blocks, rows * layer[i].workspace, i);
      block_use(blocks, blocks->work[i], training ? 2 * layers - i : i);
    }
  }
}

static void plan_backward(struct blocks *blocks, const struct trm_layer *layer, int layers, size_t rows, int bottom)
{
  for (int i = layers - 1; i >= bottom; i--) {
    const bool last = i == layers - 1;
    const struct trm_layer_ops *from = last ? NULL : layer[i + 1].ops;
    if (last && !layer[i].ops->keeps_output)
      blocks->gradient[i] = blocks->value[i]; /* the loss writes over the scores */
    else if (from && from->in_place)
      blocks->gradient[i] = blocks->gradient[i + 1];
    else
      blocks->gradient[i] = block_add(blocks, rows * trm_shape_count(&layer[i].out), 2 * layers - (i + 1));
    block_use(blocks, blocks->gradient[i], 2 * layers - i);
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

struct trm_plan *trm_plan_create(const struct trm_layer *layer, int layers, size_t rows, bool training)
{
  const size_t n = (size_t)layers;
  struct trm_plan *plan = trm_alloc(sizeof *plan, "arena plan");
  size_t *offsets = trm_alloc(3 * n * sizeof *offsets, "arena plan");
  *plan = (struct trm_plan){.layers = layers, .value = offsets, .gradient = offsets + n, .work = offsets + 2 * n};
  while (plan->bottom < layers && !layer[plan->bottom].parameters)
    plan->bottom++;

  struct blocks blocks = {.block = trm_alloc(3 * n * sizeof *blocks.block, "arena plan")};
  blocks.value = trm_alloc(3 * n * sizeof *blocks.value, "arena plan");
  blocks.gradient = blocks.value + n;
  blocks.work = blocks.value + 2 * n;
  plan_forward(&blocks, layer, layers, rows, training);
  if (training)
    plan_backward(&blocks, layer, layers, rows, plan->bottom);
  plan->elements = blocks_place(&blocks);
  for (int i = 0; i < layers; i++) {
    plan->value[i] = blocks.block[blocks.value[i]].offset;
    if (training && i >= plan->bottom)
      plan->gradient[i] = blocks.block[blocks.gradient[i]].offset;
    if (blocks.work[i] != NONE)
      plan->work[i] = blocks.block[blocks.work[i]].offset;
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
  trm_free(plan);
}

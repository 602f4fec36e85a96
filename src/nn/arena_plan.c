/* Lifetimes of the arrays of a step, and their offsets in the arena. Times: forward of layer i is i, the loss is
 * `last`; then, per segment from the last one, its recomputed layers, and backward of its layers. Placement is greedy
 * by size: the largest first, each at the lowest offset that is free during its lifetime (Pisarchyk & Lee 2020).
 *
 * Gradients may share an array: those of an add's operands are that of its output, and in-place layers reuse theirs. So
 * an array is overwritten only when it contains no other gradient that is still to be read. */
#include "nn/arena_plan.h"

#include <stdlib.h>

#include "core/memory.h"
#include "nn/channels_last.h"
#include "nn/conv_chain.h"
#include "nn/fusion.h"

enum { NONE = -1 };

struct block {
  size_t bytes, offset;
  int first_use, last_use; /* first and last time of use */
  bool persistent;         /* lives longer than a pass */
};

/* The blocks of a plan, and the block of each array; NONE: no array. Indices as in trm_arena_plan. */
struct blocks {
  const struct trm_layer *layer;     /* (last) */
  const struct trm_arena_plan *plan; /* segments */
  const struct trm_arena_request *request;
  int first, last;
  struct block *block;
  int count;
  int *value, *work; /* (2, last) */
  int *gradient; /* (last) */
  int *scratch; /* (3, last) */
  int *copy; /* (3, last) */
  int *flow; /* (last, 2, 3): write, earlier, sum */
  int *recompute_time, *backward_time; /* (last) times: recomputation, backward; NONE: none */
  int *relocated; /* (last) 1: its value is recomputed at another offset */
  int *last_read; /* (2, last) time of the last read: of forward's value, of the recomputed one */
  int input;
};

/* Returns true if the layer is computed with the loss, in chunks. */
static bool arena_is_chunked(const struct blocks *blocks, int layer)
{
  return blocks->plan->loss_chunk && layer == blocks->last - 1;
}

static size_t arena_value_bytes(const struct blocks *blocks, int layer)
{
  const struct trm_layer *l = &blocks->layer[layer];
  const size_t vectors = l->output_rows * trm_layer_output_vectors(l), chunk = blocks->plan->loss_chunk;
  return (arena_is_chunked(blocks, layer) && chunk < vectors ? chunk : vectors) * trm_layer_output_ld(l) *
         trm_value_bytes(blocks->request->values);
}

static int arena_add_block(struct blocks *blocks, size_t bytes, int first_use)
{
  blocks->block[blocks->count] = (struct block){
    .bytes = (bytes + TRM_ALIGNMENT - 1) / TRM_ALIGNMENT * TRM_ALIGNMENT,
    .first_use = first_use,
    .last_use = first_use};
  return blocks->count++;
}

static void arena_extend_life(struct blocks *blocks, int block, int time)
{
  if (blocks->block[block].last_use < time)
    blocks->block[block].last_use = time;
}

/* Returns the value of layer v, forward's or the recomputed one, that layer i reads after the loss: an index into value
 * and last_read. */
static int arena_value_after_loss(const struct blocks *blocks, int i, int v)
{
  return blocks->relocated[v] == 1 && blocks->plan->segment_end[v] == blocks->plan->segment_end[i] ? blocks->last + v
                                                                                                   : v;
}

static void arena_set_times(struct blocks *blocks, bool training)
{
  const struct trm_arena_plan *plan = blocks->plan;
  int time = blocks->last + 1;
  for (int end = blocks->last, begin; training && end > blocks->first; end = begin) {
    for (begin = end; begin > blocks->first && plan->segment_end[begin - 1] == end;)
      begin--;
    for (int i = begin; i < end; i++)
      if (plan->recompute[i])
        blocks->recompute_time[i] = time++;
    for (int i = end - 1; i >= begin; i--, time++)
      if (blocks->layer[i].needs_dy || blocks->layer[i].needs_moments)
        blocks->backward_time[i] = arena_is_chunked(blocks, i) ? blocks->last : time;
  }
}

static void arena_note_read(struct blocks *blocks, int value, int time)
{
  if (blocks->last_read[value] < time)
    blocks->last_read[value] = time;
}

/* Returns true if a later segment reads the value: it is kept, and recomputed at the same offset. */
static bool arena_is_kept(const struct blocks *blocks, int v)
{
  const struct trm_arena_plan *plan = blocks->plan;
  for (int r = plan->segment_end[v]; r < blocks->last; r++)
    if (blocks->layer[r].from == v || blocks->layer[r].addend == v)
      return true;
  return v == blocks->last - 1;
}

/* Sets the time of the last read of each value. */
static void arena_set_last_reads(struct blocks *blocks)
{
  const int last = blocks->last;
  for (int v = blocks->first; v < last; v++)
    blocks->relocated[v] = blocks->plan->recompute[v] && !arena_is_kept(blocks, v);
  for (int i = blocks->first; i < last; i++) {
    const struct trm_layer *layer = &blocks->layer[i];
    const int operand[2] = {layer->from, layer->addend};
    arena_note_read(blocks, i, i);
    arena_note_read(blocks, arena_value_after_loss(blocks, i, i), blocks->recompute_time[i]);
    if (layer->ops->keeps_output && layer->needs_dy)
      arena_note_read(blocks, arena_value_after_loss(blocks, i, i), blocks->backward_time[i]);
    for (int k = 0; k < 2; k++) {
      if (operand[k] < 0)
        continue;
      arena_note_read(blocks, operand[k], i);
      arena_note_read(blocks, arena_value_after_loss(blocks, i, operand[k]), blocks->recompute_time[i]);
      if (layer->ops->keeps_input && layer->needs_dy)
        arena_note_read(blocks, arena_value_after_loss(blocks, i, operand[k]), blocks->backward_time[i]);
    }
  }
  arena_note_read(blocks, last - 1, last); /* by the loss */
}

/* Returns the block of layer i's value: that of an input at its last read (in place; never the batch), or a new one.
 * after: after the loss. */
static int arena_place_value(struct blocks *blocks, int i, int time, bool after)
{
  const struct trm_layer *layer = &blocks->layer[i];
  const int operand[2] = {layer->from, layer->addend};
  for (int k = 0; k < 2; k++) {
    if (operand[k] < 0 || !layer->ops->in_place || layer->from == layer->addend)
      continue;
    const int value = after ? arena_value_after_loss(blocks, i, operand[k]) : operand[k];
    if (blocks->last_read[value] == time)
      return blocks->value[value];
  }
  return arena_add_block(blocks, arena_value_bytes(blocks, i), time);
}

static void arena_plan_layer(struct blocks *blocks, int i, bool training)
{
  const struct trm_layer *layer = &blocks->layer[i];
  const int last = blocks->last;
  const bool recompute = training && blocks->plan->recompute[i];
  const bool backward = training && (layer->needs_dy || layer->needs_moments);
  blocks->value[i] = arena_place_value(blocks, i, arena_is_chunked(blocks, i) ? last : i, false);
  arena_extend_life(blocks, blocks->value[i], blocks->last_read[i]);
  if (layer->workspace || layer->workspace_fixed) {
    const size_t bytes = (layer->workspace_fixed + layer->rows * layer->workspace) * sizeof(float);
    blocks->work[i] = arena_add_block(blocks, bytes, i);
    blocks->work[last + i] = recompute ? arena_add_block(blocks, bytes, blocks->recompute_time[i]) : blocks->work[i];
    arena_extend_life(blocks, blocks->work[last + i], backward ? blocks->backward_time[i] : i);
  }
  const bool chunked = arena_is_chunked(blocks, i);
  const int time[] = {chunked ? NONE : i, recompute ? blocks->recompute_time[i] : NONE,
                      backward ? blocks->backward_time[i] : NONE};
  const struct trm_parameter *weight = blocks->request->copy_weights ? trm_layer_product_weight(layer) : NULL;
  for (int k = 0; k < 3; k++) {
    if (layer->scratch && time[k] != NONE)
      blocks->scratch[k * last + i] = arena_add_block(blocks, layer->scratch * sizeof(float), time[k]);
    if (weight && time[k] != NONE)
      blocks->copy[k * last + i] =
        arena_add_block(blocks, weight->count * trm_value_bytes(blocks->request->values), time[k]);
  }
  if (chunked)
    blocks->copy[i] = blocks->copy[2 * last + i];
}

/* Returns true if the layer reads the values of the batch. */
static bool arena_reads_batch(const struct trm_layer *layer)
{
  return !layer->sparse_input && !layer->token_input &&
         (layer->from == TRM_FROM_BATCH || layer->addend == TRM_FROM_BATCH);
}

/* Places the batch in the type of values, which is converted before the first layer. */
static void arena_plan_input(struct blocks *blocks)
{
  const struct trm_arena_request *request = blocks->request;
  for (int i = blocks->first; i < blocks->last && request->convert_input; i++) {
    if (!arena_reads_batch(&blocks->layer[i]))
      continue;
    if (blocks->input == NONE)
      blocks->input = arena_add_block(
        blocks, request->rows * request->convert_input * trm_value_bytes(request->values), blocks->first);
    arena_extend_life(blocks, blocks->input, i);
    arena_extend_life(blocks, blocks->input, blocks->recompute_time[i]);
    if (blocks->layer[i].ops->keeps_input && blocks->layer[i].needs_dy)
      arena_extend_life(blocks, blocks->input, blocks->backward_time[i]);
  }
}

static void arena_plan_forward(struct blocks *blocks, bool training)
{
  const int last = blocks->last;
  arena_plan_input(blocks);
  for (int i = blocks->first; i < last; i++)
    arena_plan_layer(blocks, i, training);
  for (int i = blocks->first; i < last; i++) {
    blocks->value[last + i] = blocks->value[i];
    if (blocks->relocated[i] == 1) {
      blocks->value[last + i] = arena_place_value(blocks, i, blocks->recompute_time[i], true);
      arena_extend_life(blocks, blocks->value[last + i], blocks->last_read[last + i]);
    }
  }
}

/* True if backward of layer i may overwrite the block as the gradient of `value`: it holds no gradient of another
 * earlier layer. */
static bool arena_is_free(const struct blocks *blocks, int i, int value, int block)
{
  for (int below = blocks->first; below < i; below++)
    if (below != value && blocks->gradient[below] == block)
      return false;
  return true;
}

/* Plans layer i's contribution to the gradient of a value that it reads. */
static void arena_plan_flow(struct blocks *blocks, int i, int value, int *flow)
{
  enum { WRITE, EARLIER, SUM };
  const struct trm_layer *layer = &blocks->layer[i];
  const int time = blocks->backward_time[i], dy = blocks->gradient[i];
  const bool is_add = layer->addend != TRM_FROM_NONE;
  int *gradient = &blocks->gradient[value];
  if (is_add || (layer->ops->in_place && arena_is_free(blocks, i, i, dy)))
    flow[WRITE] = dy;
  else
    flow[WRITE] = arena_add_block(blocks, arena_value_bytes(blocks, value), time);
  if (*gradient != NONE) {
    flow[EARLIER] = *gradient;
    arena_extend_life(blocks, *gradient, time);
    if (arena_is_free(blocks, i, value, *gradient))
      flow[SUM] = *gradient;
    else
      flow[SUM] = is_add ? arena_add_block(blocks, arena_value_bytes(blocks, value), time) : flow[WRITE];
  }
  *gradient = flow[EARLIER] == NONE ? flow[WRITE] : flow[SUM];
  arena_extend_life(blocks, *gradient, time);
}

static void arena_plan_backward(struct blocks *blocks)
{
  const struct trm_layer *layer = blocks->layer;
  const int end = blocks->last - 1;
  if (layer[end].ops->keeps_output || blocks->plan->recompute[end])
    blocks->gradient[end] = arena_add_block(blocks, arena_value_bytes(blocks, end), blocks->last);
  else
    blocks->gradient[end] = blocks->value[end]; /* the loss overwrites the scores */
  for (int i = end; i >= blocks->first; i--) {
    if (!layer[i].needs_dy)
      continue;
    const int operand[2] = {layer[i].from, layer[i].addend};
    arena_extend_life(blocks, blocks->gradient[i], blocks->backward_time[i]);
    for (int k = 0; k < 2; k++)
      if (operand[k] >= 0 && layer[operand[k]].needs_dy)
        arena_plan_flow(blocks, i, operand[k], &blocks->flow[6 * i + 3 * k]);
  }
}

static int arena_compare_blocks(const void *a, const void *b)
{
  const struct block *x = *(const struct block *const *)a, *y = *(const struct block *const *)b;
  if (x->bytes != y->bytes)
    return x->bytes > y->bytes ? -1 : 1;
  return (x > y) - (x < y);
}

/* Marks arrays that live from forward to the loss or longer, and those sent or received at the ends of the chain. */
static void arena_mark_persistent(struct blocks *blocks)
{
  for (int b = 0; b < blocks->count; b++)
    blocks->block[b].persistent =
      blocks->block[b].first_use < blocks->last && blocks->block[b].last_use >= blocks->last;
  const int first = blocks->first;
  if (blocks->layer[first].from == TRM_FROM_NONE) {
    blocks->block[blocks->value[first]].persistent = true;
    if (blocks->gradient[first] != NONE)
      blocks->block[blocks->gradient[first]].persistent = true;
  }
}

/* Sets the offsets of the persistent blocks, or of the others, from `begin` up; returns their end. */
static size_t arena_place_blocks(struct blocks *blocks, bool persistent, size_t begin)
{
  struct block **order = trm_alloc((size_t)blocks->count * sizeof *order, "arena plan");
  int count = 0;
  for (int i = 0; i < blocks->count; i++)
    if (blocks->block[i].persistent == persistent)
      order[count++] = &blocks->block[i];
  qsort(order, (size_t)count, sizeof *order, arena_compare_blocks);
  size_t total = begin;
  for (int i = 0; i < count; i++) {
    struct block *b = order[i];
    b->offset = begin;
    for (bool moved = true; moved;) { /* moves up past overlapping blocks */
      moved = false;
      for (int j = 0; j < i; j++) {
        const struct block *o = order[j];
        const bool overlap = b->first_use <= o->last_use && o->first_use <= b->last_use;
        if (overlap && b->offset < o->offset + o->bytes && o->offset < b->offset + b->bytes) {
          b->offset = o->offset + o->bytes;
          moved = true;
        }
      }
    }
    if (total < b->offset + b->bytes)
      total = b->offset + b->bytes;
  }
  trm_free(order);
  return total;
}

/* Copies the offsets of n blocks. */
static void arena_copy_offsets(const struct blocks *blocks, const int *block, int n, size_t *offset)
{
  for (int i = 0; i < n; i++)
    offset[i] = block[i] == NONE ? 0 : blocks->block[block[i]].offset;
}

/* Maximum per layer: two values and workspaces, three scratches and copies, four flows. */
enum { MAX_BLOCKS = 14, ARRAYS_PER_LAYER = 22, OFFSETS_PER_LAYER = 11 };

static void arena_create_blocks(struct blocks *blocks)
{
  const size_t n = (size_t)blocks->last;
  blocks->block = trm_alloc((MAX_BLOCKS * n + 1) * sizeof *blocks->block, "arena plan");
  int *index = trm_alloc(ARRAYS_PER_LAYER * n * sizeof *index, "arena plan");
  for (size_t i = 0; i < ARRAYS_PER_LAYER * n; i++)
    index[i] = NONE;
  blocks->value = index;
  blocks->work = index + 2 * n;
  blocks->gradient = index + 4 * n;
  blocks->scratch = index + 5 * n;
  blocks->copy = index + 8 * n;
  blocks->flow = index + 11 * n;
  blocks->recompute_time = index + 17 * n;
  blocks->backward_time = index + 18 * n;
  blocks->relocated = index + 19 * n;
  blocks->last_read = index + 20 * n;
  blocks->input = NONE;
}

static struct trm_arena_plan *arena_alloc_plan(int first, int last)
{
  const size_t n = (size_t)last;
  struct trm_arena_plan *plan = trm_alloc(sizeof *plan, "arena plan");
  size_t *offsets = trm_alloc(OFFSETS_PER_LAYER * n * sizeof *offsets, "arena plan");
  *plan = (struct trm_arena_plan){.first = first,
                                  .last = last,
                                  .value = offsets,
                                  .work = offsets + 2 * n,
                                  .gradient = offsets + 4 * n,
                                  .scratch = offsets + 5 * n,
                                  .copy = offsets + 8 * n,
                                  .transient_offset = SIZE_MAX,
                                  .flow = trm_alloc(2 * n * sizeof *plan->flow, "arena plan"),
                                  .segment_end = trm_alloc(n * sizeof *plan->segment_end, "arena plan"),
                                  .recompute = trm_alloc(n * sizeof *plan->recompute, "arena plan"),
                                  .span = trm_alloc(2 * n * sizeof *plan->span, "arena plan"),
                                  .backward_in = trm_alloc(n * sizeof *plan->backward_in, "arena plan"),
                                  .chain = trm_alloc(n * sizeof *plan->chain, "arena plan"),
                                  .blocked = trm_alloc(n * sizeof *plan->blocked, "arena plan")};
  return plan;
}

struct trm_arena_plan *trm_arena_plan_create(struct trm_layer *layer, int first, int last,
                                             const struct trm_arena_request *request)
{
  struct trm_arena_plan *plan = arena_alloc_plan(first, last);
  trm_recompute_plan(layer, first, last, request->training ? request->recompute_blocks : 0,
                     request->separate_transient && !layer[last - 1].is_output, plan->segment_end, plan->recompute);
  plan->loss_chunk = request->training ? request->loss_chunk : 0;
  struct blocks blocks = {.layer = layer, .plan = plan, .request = request, .first = first, .last = last};
  trm_layers_set_rows(layer, first, last, request->rows);
  arena_create_blocks(&blocks);
  arena_set_times(&blocks, request->training);
  arena_set_last_reads(&blocks);
  arena_plan_forward(&blocks, request->training);
  if (request->training)
    arena_plan_backward(&blocks);
  if (request->separate_transient) {
    arena_mark_persistent(&blocks);
    plan->transient_offset = arena_place_blocks(&blocks, true, 0);
  }
  plan->bytes = arena_place_blocks(&blocks, false, request->separate_transient ? plan->transient_offset : 0);
  arena_copy_offsets(&blocks, blocks.value, OFFSETS_PER_LAYER * last, plan->value); /* and those after it */
  arena_copy_offsets(&blocks, &blocks.input, 1, &plan->input);
  plan->reads_input = blocks.input != NONE;
  for (int i = 0; i < 2 * last; i++) {
    size_t offset[3];
    arena_copy_offsets(&blocks, &blocks.flow[3 * i], 3, offset);
    plan->flow[i] = (struct trm_gradient_flow){
      .write = offset[0], .accumulates = blocks.flow[3 * i + 1] != NONE, .earlier = offset[1], .sum = offset[2]};
  }
  trm_free(blocks.block);
  trm_free(blocks.value);
  trm_fusion_plan(layer, plan, request);
  trm_channels_last_set(layer, first, last, request->trains);
  if (request->infers)
    trm_conv_chain_plan(layer, plan, request);
  return plan;
}

void trm_arena_plan_free(struct trm_arena_plan *plan)
{
  if (!plan)
    return;
  trm_free(plan->value);
  trm_free(plan->flow);
  trm_free(plan->segment_end);
  trm_free(plan->recompute);
  trm_free(plan->span);
  trm_free(plan->backward_in);
  trm_free(plan->chain);
  trm_free(plan->blocked);
  trm_free(plan);
}

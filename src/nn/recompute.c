/* Segments of activation checkpointing, and the choice of recomputed layers. */
#include "nn/arena_plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "nn/model.h"

int trm_model_parse_recompute(const char *text, int *blocks)
{
  if (strcmp(text, "none") == 0 || strcmp(text, "block") == 0) {
    *blocks = text[0] == 'b';
    return TRM_OK;
  }
  char *end;
  errno = 0;
  const long value = strtol(text, &end, 10);
  if (text[0] < '0' || text[0] > '9' || *end || errno || value < 1 || value > INT32_MAX)
    return trm_error(TRM_USAGE, "parallel.recompute: '%s' is neither none, nor block, nor a number of blocks from 1 up",
                     text);
  *blocks = (int)value;
  return TRM_OK;
}

/* Sets the last layer before `last` that reads each value; the layer itself if none does. */
static void recompute_last_readers(const struct trm_layer *layer, int first, int last, int *reader)
{
  for (int i = first; i < last; i++) {
    reader[i] = i;
    if (layer[i].from >= first)
      reader[layer[i].from] = i;
    if (layer[i].addend >= first)
      reader[layer[i].addend] = i;
  }
}

/* in_branch[i]: several values computed before layer i are read at or after it. The batch does not count. */
static void recompute_find_branches(int first, int last, const int *reader, bool *in_branch)
{
  for (int at = first; at < last; at++) {
    int values = 0;
    for (int i = first; i < at; i++)
      values += reader[i] >= at;
    in_branch[at] = values > 1;
  }
}

/* Returns true if a block starts at layer i. *branch_ended: a branch has ended since the last block started. */
static bool recompute_block_begins(const struct trm_layer *layer, int last, const bool *in_branch, bool branches, int i,
                                   bool *branch_ended)
{
  if (in_branch[i])
    return false;
  *branch_ended = *branch_ended || in_branch[i - 1];
  const bool weights = layer[i].parameters || layer[i].tied;
  const bool begins = (i + 1 < last && in_branch[i + 1]) || ((*branch_ended || !branches) && weights);
  if (begins)
    *branch_ended = false;
  return begins;
}

static void recompute_find_segments(const struct trm_layer *layer, int first, int last, int blocks, const int *reader,
                                    int *end)
{
  bool *in_branch = trm_alloc((size_t)last * sizeof *in_branch, "blocks of layers");
  recompute_find_branches(first, last, reader, in_branch);
  bool branches = false, branch_ended = false;
  for (int i = first; i < last; i++)
    branches = branches || in_branch[i];
  int segment_begin = first, count = branches ? -1 : 0;
  for (int i = first + 1; i < last && blocks; i++) {
    if (!recompute_block_begins(layer, last, in_branch, branches, i, &branch_ended))
      continue;
    count++;
    const bool after_input = i == first + 1 && layer[first].from == TRM_FROM_NONE; /* only received, not computed */
    if (after_input && !branches)
      count = 0;
    if (after_input || count % blocks != 0)
      continue;
    while (segment_begin < i)
      end[segment_begin++] = i;
  }
  while (segment_begin < last)
    end[segment_begin++] = last;
  trm_free(in_branch);
}

void trm_recompute_plan(const struct trm_layer *layer, int first, int last, int blocks, bool recompute_last, int *end,
                        bool *recompute)
{
  int *reader = trm_alloc(2 * (size_t)last * sizeof *reader, "blocks of layers"), *needed = reader + last;
  recompute_last_readers(layer, first, last, reader);
  recompute_find_segments(layer, first, last, blocks, reader, end);
  for (int i = last - 1; i >= first; i--) { /* wanted: needed by a layer of the segment */
    const struct trm_layer_ops *ops = layer[i].ops;
    const bool backward = layer[i].needs_dy, in_segment = blocks && (end[i] < last || recompute_last);
    const bool saved = reader[i] >= end[i] || i == last - 1 || layer[i].from == TRM_FROM_NONE;
    needed[i] |= backward && ops->keeps_output;
    recompute[i] = in_segment && layer[i].from != TRM_FROM_NONE &&
                   ((backward && (layer[i].workspace || layer[i].workspace_fixed)) || (needed[i] && !saved));
    const int operand[2] = {layer[i].from, layer[i].addend};
    for (int k = 0; k < 2; k++)
      if (operand[k] >= first && end[operand[k]] == end[i])
        needed[operand[k]] |= recompute[i] || (backward && ops->keeps_input);
  }
  trm_free(reader);
}

bool trm_model_recomputes(const struct trm_model *model, int layer)
{
  int c = 0;
  while (layer >= model->chunk[c].last)
    c++;
  return model->chunk[c].plan->recompute[layer];
}

struct trm_cost trm_model_recompute_cost(const struct trm_model *model, int slots)
{
  struct trm_cost sum = {0};
  int *end = trm_alloc((size_t)model->layers * sizeof *end, "blocks of layers");
  bool *recompute = trm_alloc((size_t)model->layers * sizeof *recompute, "blocks of layers");
  for (int c = 0; c < model->chunks; c++) {
    const struct trm_chunk *chunk = &model->chunk[c];
    const bool shares_memory = (slots > 1 && !model->side_by_side) || model->chunks > 1;
    const bool recompute_last = shares_memory && !model->layer[chunk->last - 1].is_output;
    trm_recompute_plan(model->layer, chunk->first, chunk->last, model->recompute, recompute_last, end, recompute);
    for (int i = chunk->first; i < chunk->last; i++) {
      const struct trm_cost cost = trm_layers_cost(model->layer, i, recompute[i] ? i + 1 : i);
      sum.flop += cost.flop;
      sum.bytes += cost.bytes;
    }
  }
  trm_free(end);
  trm_free(recompute);
  return sum;
}

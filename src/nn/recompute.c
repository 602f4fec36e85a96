/* Where the segments end, and which of their layers compute again. */
#include "nn/recompute.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "nn/model.h"
#include "nn/plan.h"

int trm_model_recompute(const char *text, int *blocks)
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

/* The last layer that reads each one's value, among those before `last`; itself if none does. */
static void last_readers(const struct trm_layer *layer, int first, int last, int *reader)
{
  for (int i = first; i < last; i++) {
    reader[i] = i;
    if (layer[i].from >= first)
      reader[layer[i].from] = i;
    if (layer[i].with >= first)
      reader[layer[i].with] = i;
  }
}

/* in_branch[i]: more than one value is computed before layer i and read by it or behind. The batch is always there. */
static void find_branches(int first, int last, const int *reader, bool *in_branch)
{
  for (int at = first; at < last; at++) {
    int values = 0;
    for (int i = first; i < at; i++)
      values += reader[i] >= at;
    in_branch[at] = values > 1;
  }
}

/* Whether a block begins with layer i. *behind: a branch has ended since the last block began. */
static bool block_begins(const struct trm_layer *layer, int last, const bool *in_branch, bool branches, int i,
                         bool *behind)
{
  if (in_branch[i])
    return false;
  *behind = *behind || in_branch[i - 1];
  const bool weights = layer[i].parameters || layer[i].tied;
  const bool begins = (i + 1 < last && in_branch[i + 1]) || ((*behind || !branches) && weights);
  if (begins)
    *behind = false;
  return begins;
}

static void find_segments(const struct trm_layer *layer, int first, int last, int blocks, const int *reader, int *end)
{
  bool *in_branch = trm_alloc((size_t)last * sizeof *in_branch, "blocks of layers");
  find_branches(first, last, reader, in_branch);
  bool branches = false, behind = false;
  for (int i = first; i < last; i++)
    branches = branches || in_branch[i];
  int begun = first, count = branches ? -1 : 0;
  for (int i = first + 1; i < last && blocks; i++) {
    if (!block_begins(layer, last, in_branch, branches, i, &behind))
      continue;
    count++;
    const bool entered = i == first + 1 && layer[first].from == TRM_FROM_NONE; /* nothing has been computed yet */
    if (entered && !branches)
      count = 0;
    if (entered || count % blocks != 0)
      continue;
    while (begun < i)
      end[begun++] = i;
  }
  while (begun < last)
    end[begun++] = last;
  trm_free(in_branch);
}

void trm_recompute(const struct trm_layer *layer, int first, int last, int blocks, bool whole, int *end, bool *again)
{
  int *reader = trm_alloc(2 * (size_t)last * sizeof *reader, "blocks of layers"), *wanted = reader + last;
  last_readers(layer, first, last, reader);
  find_segments(layer, first, last, blocks, reader, end);
  for (int i = last - 1; i >= first; i--) { /* wanted: its value, by a layer of its segment, in backward or before */
    const struct trm_layer_ops *ops = layer[i].ops;
    const bool backward = layer[i].needs_dy, divided = blocks && (end[i] < last || whole);
    const bool kept = reader[i] >= end[i] || i == last - 1 || layer[i].from == TRM_FROM_NONE;
    wanted[i] |= backward && ops->keeps_output;
    again[i] = divided && layer[i].from != TRM_FROM_NONE &&
               ((backward && (layer[i].workspace || layer[i].workspace_fixed)) || (wanted[i] && !kept));
    const int operand[2] = {layer[i].from, layer[i].with};
    for (int k = 0; k < 2; k++)
      if (operand[k] >= first && end[operand[k]] == end[i])
        wanted[operand[k]] |= again[i] || (backward && ops->keeps_input);
  }
  trm_free(reader);
}

bool trm_model_again(const struct trm_model *model, int layer)
{
  int c = 0;
  while (layer >= model->chunk[c].last)
    c++;
  return model->chunk[c].plan->again[layer];
}

struct trm_cost trm_model_cost_again(const struct trm_model *model, int slots)
{
  struct trm_cost sum = {0};
  int *end = trm_alloc((size_t)model->layers * sizeof *end, "blocks of layers");
  bool *again = trm_alloc((size_t)model->layers * sizeof *again, "blocks of layers");
  for (int c = 0; c < model->chunks; c++) {
    const struct trm_chunk *chunk = &model->chunk[c];
    const bool whole = (slots > 1 || model->chunks > 1) && !model->layer[chunk->last - 1].scores;
    trm_recompute(model->layer, chunk->first, chunk->last, model->recompute, whole, end, again);
    for (int i = chunk->first; i < chunk->last; i++) {
      const struct trm_cost cost = model->layer[i].ops->cost(&model->layer[i]);
      sum.flop += again[i] ? cost.flop : 0;
      sum.bytes += again[i] ? cost.bytes : 0;
    }
  }
  trm_free(end);
  trm_free(again);
  return sum;
}

#include "nn/balance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"

/* A typical core; only the quotient matters. */
#define FLOP_PER_S 5e10
#define BYTES_PER_S 1e10

double trm_balance_seconds(const struct trm_model *model, int first, int last)
{
  struct trm_cost cost = trm_layers_cost(model->layer, first, last);
  for (int i = first; i < last; i++)
    if (model->layer[i].is_output) /* the loss reads and writes them */
      cost.bytes += 2 * (double)trm_value_bytes(model->values) * (double)trm_shape_count(&model->layer[i].out);
  return 3 * (cost.flop / FLOP_PER_S + cost.bytes / BYTES_PER_S); /* backward costs twice as much as forward */
}

/* Returns true if layers [first, last) have trainable parameters, a weight tied to an earlier layer included. */
static bool balance_has_trainable(const struct trm_model *model, int first, int last)
{
  for (int i = first; i < last; i++) {
    const struct trm_layer *layer = &model->layer[i];
    for (int p = 0; p < layer->parameters; p++)
      if (!layer->parameter[p].statistic)
        return true;
    if (layer->tied && layer->tied < model->layer + first)
      return true;
  }
  return false;
}

/* -- cuts given by the user */

/* Returns the first layer at or after item `item` of the text. */
static int balance_layer_of_item(const struct trm_model *model, long item)
{
  int i = 0;
  while (i < model->layers && model->layer[i].number < item)
    i++;
  return i;
}

static int balance_parse_cut(const struct trm_model *model, const char *cuts, long item, int after, int *at)
{
  const int last = model->layer[model->layers - 1].number;
  *at = balance_layer_of_item(model, item);
  if (item < 1 || item > last)
    return trm_error(TRM_USAGE, "parallel.cut: \"%.80s\": the model has items 1 to %d to cut it before, not %ld", cuts,
                     last, item);
  if (*at <= after)
    return trm_error(TRM_USAGE, "parallel.cut: \"%.80s\": the numbers must grow, with a layer between any two", cuts);
  if (!trm_partition_allowed(model->layer, model->layers, *at))
    return trm_error(TRM_USAGE,
                     "parallel.cut: \"%.80s\": the model cannot be cut before %s: more than one value would "
                     "cross, what it reads and what a later layer reads",
                     cuts, trm_layer_text(&model->layer[*at]));
  return TRM_OK;
}

static int balance_cut_manual(const struct trm_model *model, const char *cuts, int chunks,
                              struct trm_layer_range *chunk)
{
  int count = 0, at = 0;
  for (const char *text = cuts;; text++) {
    char *end;
    const long item = strtol(text, &end, 10);
    if (*text < '0' || *text > '9' || (*end != '\0' && *end != ','))
      return trm_error(TRM_USAGE,
                       "parallel.cut: \"%.80s\" is neither auto nor numbers of items with commas, such as "
                       "\"4,9\"",
                       cuts);
    if (count + 1 < chunks) {
      chunk[count].first = at;
      TRM_CHECK(balance_parse_cut(model, cuts, item, at, &chunk[count].last));
      at = chunk[count].last;
    }
    count++;
    text = end;
    if (*end == '\0')
      break;
  }
  if (count != chunks - 1)
    return trm_error(TRM_USAGE,
                     "parallel.cut: \"%.80s\" cuts the model into %d pieces, but %d are wanted: stages, "
                     "times chunks of a stage",
                     cuts, count + 1, chunks);
  chunk[chunks - 1] = (struct trm_layer_range){at, model->layers};
  for (int p = 0; p < chunks; p++)
    if (!balance_has_trainable(model, chunk[p].first, chunk[p].last))
      return trm_error(TRM_USAGE, "parallel.cut: \"%.80s\": piece %d, from %s, has nothing to train", cuts, p,
                       trm_layer_text(&model->layer[chunk[p].first]));
  return TRM_OK;
}

/* -- balanced cuts */

/* The best cut of the first layers into a number of chunks. */
struct best {
  double max_seconds; /* seconds of the slowest chunk; infinite: impossible */
  double squares;     /* sum of squared seconds: breaks ties evenly */
  int from;           /* start of the last chunk */
};

static bool balance_is_better(const struct best *a, const struct best *b)
{
  return a->max_seconds != b->max_seconds ? a->max_seconds < b->max_seconds : a->squares < b->squares;
}

/* Sets best (n + 1) for one chunk more than `fewer`. */
static void balance_extend(const struct trm_model *model, const bool *allowed, const double *cumulative,
                           const struct best *fewer, struct best *best)
{
  for (int to = 0; to <= model->layers; to++) {
    best[to] = (struct best){.max_seconds = INFINITY};
    for (int from = 0; from < to && allowed[to]; from++) {
      if (isinf(fewer[from].max_seconds) || !balance_has_trainable(model, from, to))
        continue;
      const double seconds = cumulative[to] - cumulative[from];
      const struct best candidate = {fmax(fewer[from].max_seconds, seconds), fewer[from].squares + seconds * seconds,
                                     from};
      if (balance_is_better(&candidate, &best[to]))
        best[to] = candidate;
    }
  }
}

/* Returns the maximum number of chunks. */
static int balance_max_chunks(const struct trm_model *model, const bool *allowed)
{
  int chunks = 0;
  for (int from = 0, to = 1; to <= model->layers; to++)
    if (allowed[to] && balance_has_trainable(model, from, to)) {
      chunks++;
      from = to;
    }
  return chunks;
}

static int balance_cut_auto(const struct trm_model *model, int chunks, struct trm_layer_range *chunk)
{
  const size_t n = (size_t)model->layers + 1;
  bool *allowed = trm_alloc(n * sizeof *allowed, "cuts");
  double *cumulative = trm_alloc(n * sizeof *cumulative, "cuts");
  struct best *best = trm_alloc(((size_t)chunks + 1) * n * sizeof *best, "cuts");
  for (size_t i = 0; i < n; i++) {
    allowed[i] = i == 0 || i == n - 1 || trm_partition_allowed(model->layer, model->layers, (int)i);
    cumulative[i] = i ? cumulative[i - 1] + trm_balance_seconds(model, (int)i - 1, (int)i) : 0;
    best[i].max_seconds = i ? INFINITY : 0;
  }
  for (size_t p = 1; p <= (size_t)chunks; p++)
    balance_extend(model, allowed, cumulative, best + (p - 1) * n, best + p * n);
  int to = model->layers, status = TRM_OK;
  if (isinf(best[(size_t)chunks * n + n - 1].max_seconds))
    status = trm_error(TRM_USAGE,
                       "the model cannot be cut into %d pieces (stages, times chunks of a stage), each with "
                       "something to train: there are places for %d at most",
                       chunks, balance_max_chunks(model, allowed));
  for (int p = chunks; p > 0 && status == TRM_OK; p--) {
    chunk[p - 1] = (struct trm_layer_range){best[(size_t)p * n + (size_t)to].from, to};
    to = chunk[p - 1].first;
  }
  trm_free(allowed);
  trm_free(cumulative);
  trm_free(best);
  return status;
}

int trm_balance(const struct trm_model *model, const char *cuts, int chunks, struct trm_layer_range *chunk)
{
  if (strcmp(cuts, "auto") != 0)
    return balance_cut_manual(model, cuts, chunks, chunk);
  return balance_cut_auto(model, chunks, chunk);
}

int trm_balance_stage(const struct trm_model *model, const char *cuts, int stages, int chunks, int stage,
                      struct trm_model_part *part)
{
  const int total_chunks = stages * chunks;
  part->chunks = 0;
  if (chunks > TRM_MAX_CHUNKS)
    return trm_error(TRM_USAGE, "parallel.chunks: a stage has at most %d chunks, not %d", TRM_MAX_CHUNKS, chunks);
  if (total_chunks == 1)
    return strcmp(cuts, "auto") == 0 ? TRM_OK
                                     : trm_error(TRM_USAGE,
                                                 "parallel.cut: \"%.80s\": there is one stage, "
                                                 "nothing to cut",
                                                 cuts);
  struct trm_layer_range *chunk = trm_alloc((size_t)total_chunks * sizeof *chunk, "cuts");
  const int status = trm_balance(model, cuts, total_chunks, chunk);
  for (int c = 0; c < chunks && status == TRM_OK; c++)
    part->chunk[part->chunks++] = chunk[c * stages + stage];
  trm_free(chunk);
  return status;
}

#include "nn/balance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"

/* A core of today: what counts is their quotient. */
#define FLOP_PER_S 5e10
#define BYTES_PER_S 1e10

double trm_balance_seconds(const struct trm_model *whole, int first, int last)
{
  double flop = 0, bytes = 0;
  for (int i = first; i < last; i++) {
    const struct trm_layer *layer = &whole->layer[i];
    const struct trm_cost cost = layer->ops->cost(layer);
    flop += cost.flop;
    bytes += cost.bytes;
    if (layer->scores) /* the loss reads and writes them */
      bytes += 2 * sizeof(float) * (double)trm_shape_count(&layer->out);
  }
  return 3 * (flop / FLOP_PER_S + bytes / BYTES_PER_S); /* backward is two of forward */
}

/* Is there something to train in layers [first, last)? A weight of a layer in front that one of them is tied to becomes
 * theirs, too. */
static bool trains(const struct trm_model *whole, int first, int last)
{
  for (int i = first; i < last; i++) {
    const struct trm_layer *layer = &whole->layer[i];
    for (int p = 0; p < layer->parameters; p++)
      if (!layer->parameter[p].statistic)
        return true;
    if (layer->tied && layer->tied < whole->layer + first)
      return true;
  }
  return false;
}

static bool may_cut(const struct trm_model *whole, int at)
{
  return trm_cut_allowed(whole->layer, whole->layers, at);
}

/* -- as the text says */

/* The first layer of item `item` of the text or behind it. */
static int layer_of_item(const struct trm_model *whole, long item)
{
  int i = 0;
  while (i < whole->layers && whole->layer[i].number < item)
    i++;
  return i;
}

static int cut_at(const struct trm_model *whole, const char *how, long item, int after, int *at)
{
  const int last = whole->layer[whole->layers - 1].number;
  *at = layer_of_item(whole, item);
  if (item < 1 || item > last)
    return trm_error(TRM_USAGE, "parallel.cut: \"%.80s\": the model has items 1 to %d to cut it before, not %ld", how,
                     last, item);
  if (*at <= after)
    return trm_error(TRM_USAGE, "parallel.cut: \"%.80s\": the numbers must grow, with a layer between any two", how);
  if (!may_cut(whole, *at))
    return trm_error(TRM_USAGE, "parallel.cut: \"%.80s\": the model cannot be cut before %s: more than one value would "
                     "cross, what it reads and what a later layer reads", how, trm_layer_text(&whole->layer[*at]));
  return TRM_OK;
}

static int cut_as_told(const struct trm_model *whole, const char *how, int pieces, struct trm_chunk_cut *cut)
{
  int count = 0, at = 0;
  for (const char *text = how;; text++) {
    char *end;
    const long item = strtol(text, &end, 10);
    if (*text < '0' || *text > '9' || (*end != '\0' && *end != ','))
      return trm_error(TRM_USAGE, "parallel.cut: \"%.80s\" is neither auto nor numbers of items with commas, such as "
                       "\"4,9\"", how);
    if (count + 1 < pieces) {
      cut[count].first = at;
      TRM_CHECK(cut_at(whole, how, item, at, &cut[count].last));
      at = cut[count].last;
    }
    count++;
    text = end;
    if (*end == '\0')
      break;
  }
  if (count != pieces - 1)
    return trm_error(TRM_USAGE, "parallel.cut: \"%.80s\" cuts the model into %d pieces, but %d are wanted: stages, "
                     "times chunks of a stage", how, count + 1, pieces);
  cut[pieces - 1] = (struct trm_chunk_cut){at, whole->layers};
  for (int p = 0; p < pieces; p++)
    if (!trains(whole, cut[p].first, cut[p].last))
      return trm_error(TRM_USAGE, "parallel.cut: \"%.80s\": piece %d, from %s, has nothing to train", how, p,
                       trm_layer_text(&whole->layer[cut[p].first]));
  return TRM_OK;
}

/* -- balanced */

/* The best way to cut the layers before a place into some pieces. */
struct best {
  double most;    /* seconds of the longest piece; infinite: there is no way */
  double squares; /* of the seconds: of equally good ways the one that is more even */
  int from;       /* where the last piece begins */
};

static bool is_better(const struct best *a, const struct best *b)
{
  return a->most != b->most ? a->most < b->most : a->squares < b->squares;
}

/* best (n + 1) for one more piece than `fewer`. */
static void extend(const struct trm_model *whole, const bool *allowed, const double *upto, const struct best *fewer,
                   struct best *best)
{
  for (int to = 0; to <= whole->layers; to++) {
    best[to] = (struct best){.most = INFINITY};
    for (int from = 0; from < to && allowed[to]; from++) {
      if (isinf(fewer[from].most) || !trains(whole, from, to))
        continue;
      const double seconds = upto[to] - upto[from];
      const struct best way = {fmax(fewer[from].most, seconds), fewer[from].squares + seconds * seconds, from};
      if (is_better(&way, &best[to]))
        best[to] = way;
    }
  }
}

/* Into how many pieces the model can be cut at most. */
static int most_pieces(const struct trm_model *whole, const bool *allowed)
{
  int pieces = 0;
  for (int from = 0, to = 1; to <= whole->layers; to++)
    if (allowed[to] && trains(whole, from, to)) {
      pieces++;
      from = to;
    }
  return pieces;
}

static int cut_balanced(const struct trm_model *whole, int pieces, struct trm_chunk_cut *cut)
{
  const size_t n = (size_t)whole->layers + 1;
  bool *allowed = trm_alloc(n * sizeof *allowed, "cuts");
  double *upto = trm_alloc(n * sizeof *upto, "cuts");
  struct best *best = trm_alloc(((size_t)pieces + 1) * n * sizeof *best, "cuts");
  for (size_t i = 0; i < n; i++) {
    allowed[i] = i == 0 || i == n - 1 || may_cut(whole, (int)i);
    upto[i] = i ? upto[i - 1] + trm_balance_seconds(whole, (int)i - 1, (int)i) : 0;
    best[i].most = i ? INFINITY : 0;
  }
  for (size_t p = 1; p <= (size_t)pieces; p++)
    extend(whole, allowed, upto, best + (p - 1) * n, best + p * n);
  int to = whole->layers, status = TRM_OK;
  if (isinf(best[(size_t)pieces * n + n - 1].most))
    status = trm_error(TRM_USAGE, "the model cannot be cut into %d pieces (stages, times chunks of a stage), each with "
                       "something to train: there are places for %d at most", pieces, most_pieces(whole, allowed));
  for (int p = pieces; p > 0 && status == TRM_OK; p--) {
    cut[p - 1] = (struct trm_chunk_cut){best[(size_t)p * n + (size_t)to].from, to};
    to = cut[p - 1].first;
  }
  trm_free(allowed);
  trm_free(upto);
  trm_free(best);
  return status;
}

int trm_balance(const struct trm_model *whole, const char *how, int pieces, struct trm_chunk_cut *cut)
{
  if (strcmp(how, "auto") != 0)
    return cut_as_told(whole, how, pieces, cut);
  return cut_balanced(whole, pieces, cut);
}

int trm_balance_part(const struct trm_model *whole, const char *how, int stages, int chunks, int stage,
                     struct trm_model_part *part)
{
  const int pieces = stages * chunks;
  part->chunks = 0;
  if (chunks > TRM_MAX_CHUNKS)
    return trm_error(TRM_USAGE, "parallel.chunks: a stage has at most %d chunks, not %d", TRM_MAX_CHUNKS, chunks);
  if (pieces == 1)
    return strcmp(how, "auto") == 0 ? TRM_OK : trm_error(TRM_USAGE, "parallel.cut: \"%.80s\": there is one stage, "
                                                         "nothing to cut", how);
  struct trm_chunk_cut *cut = trm_alloc((size_t)pieces * sizeof *cut, "cuts");
  const int status = trm_balance(whole, how, pieces, cut);
  for (int c = 0; c < chunks && status == TRM_OK; c++)
    part->chunk[part->chunks++] = cut[c * stages + stage];
  trm_free(cut);
  return status;
}

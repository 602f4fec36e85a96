#include "mpi/compress/compressor.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/compress/compressor_private.h"

static const struct compressor_ops *const compressors[] = {
  [TRM_COMPRESS_BF16] = &compress_bf16, [TRM_COMPRESS_FP16] = &compress_fp16, [TRM_COMPRESS_TOPK] = &compress_topk,
  [TRM_COMPRESS_DGC] = &compress_dgc,   [TRM_COMPRESS_SIGN] = &compress_sign, [TRM_COMPRESS_QSGD] = &compress_qsgd,
  [TRM_COMPRESS_POWERSGD] = &compress_powersgd,
};

/* -- set-up */

static size_t compressor_round_up(size_t bytes)
{
  return (bytes + TRM_ALIGNMENT - 1) / TRM_ALIGNMENT * TRM_ALIGNMENT;
}

/* Bytes of a slice's buffer: the compressor's own, then the statistics of all nodes. */
static size_t compressor_buffer_bytes(const struct compress_part *part, const struct compress_sizes *sizes)
{
  return compressor_round_up(sizes->buffer) +
         compressor_round_up((size_t)part->nodes->size * part->exact * sizeof(float));
}

/* Defines the parts, and sets *all to what they need together. */
static void compressor_measure(struct compressor *c, const struct compress_slice *slice,
                               struct compress_sizes *size_of, struct compress_sizes *all)
{
  const size_t trained = trm_optimizer_trained(c->strategy->optimizer);
  *all = (struct compress_sizes){0};
  for (int i = 0; i < c->parts; i++) {
    const size_t low = slice[i].low, high = slice[i].high;
    const size_t end = low > trained ? low : high > trained ? trained : high;
    struct compress_part *part = &c->part[i];
    *part = (struct compress_part){
      .nodes = slice[i].nodes, .low = low, .n = end - low, .exact = high - end, .round = -1};
    for (int k = 0; k < i; k++)
      part->number += c->part[k].nodes == part->nodes;
    size_of[i] = (struct compress_sizes){0};
    c->ops->measure(c, part, &size_of[i]);
    for (int k = 0; k < COMPRESS_STATES; k++)
      all->state[k] += size_of[i].state[k];
    all->buffer += compressor_buffer_bytes(part, &size_of[i]);
    all->scratch = size_of[i].scratch > all->scratch ? size_of[i].scratch : all->scratch;
    c->rounds = size_of[i].rounds > c->rounds ? size_of[i].rounds : c->rounds;
    c->sent += size_of[i].sent + compress_rows_sent(part, part->exact * sizeof(float));
  }
}

/* compressor_enter_round is called once more than there are rounds of messages. */
void compressor_describe(const struct compressor *c, struct trm_exchange *exchange)
{
  size_t n = 0;
  for (int i = 0; i < c->parts; i++)
    n += c->part[i].n;
  exchange->rounds = c->rounds;
  exchange->bytes += c->sent;
  exchange->floats += COMPRESS_PASSES * (double)n * (c->rounds + 1);
}

static int compressor_alloc(struct compressor *c, const struct compress_sizes *all)
{
  struct trm_device *device = c->strategy->device;
  for (int k = 0; k < COMPRESS_STATES; k++) {
    if (all->state[k] == 0)
      continue;
    const size_t bytes = all->state[k] * sizeof(float);
    TRM_CHECK(device->ops->alloc(device, bytes, TRM_MEMORY_STATES, (void **)&c->state[k]));
    TRM_CHECK(trm_strategy_keep(c->strategy, c->ops->state_name[k], c->state[k], bytes));
  }
  TRM_CHECK(device->ops->alloc(device, all->buffer, TRM_MEMORY_BUFFERS, (void **)&c->buffer));
  return device->ops->alloc(device, all->scratch, TRM_MEMORY_BUFFERS, &c->scratch);
}

static size_t compressor_requests(const struct compress_part *part)
{
  return COMPRESS_REQUESTS * (size_t)(part->nodes->size - 1);
}

/* Divides the memory among the parts. */
static void compressor_divide(struct compressor *c, const struct compress_sizes *size_of)
{
  size_t requests = 0, request = 0;
  for (int i = 0; i < c->parts; i++)
    requests += compressor_requests(&c->part[i]);
  c->request = trm_alloc(requests * sizeof(struct trm_request *), "requests");
  size_t at[COMPRESS_STATES] = {0}, byte = 0;
  for (int i = 0; i < c->parts; i++) {
    struct compress_part *part = &c->part[i];
    for (int k = 0; k < COMPRESS_STATES; at[k] += size_of[i].state[k], k++)
      part->state[k] = c->state[k] ? c->state[k] + at[k] : NULL;
    part->buffer = c->buffer + byte;
    part->others = (float *)(part->buffer + compressor_round_up(size_of[i].buffer));
    part->request = c->request + request;
    request += compressor_requests(part);
    byte += compressor_buffer_bytes(part, &size_of[i]);
  }
}

int compressor_create(struct compressor **compressor, struct trm_strategy *strategy,
                      const struct compress_slice *slice, int slices)
{
  if (slices > COMPRESS_MAX_SLICES)
    return trm_error(TRM_FAILED, "strategy.compress: the gradient has %d buckets, at most %d are possible (a larger "
                     "parallel.bucket makes fewer)", slices, COMPRESS_MAX_SLICES);
  struct compressor *c = trm_alloc(sizeof *c, "the compressor");
  *c = (struct compressor){.ops = compressors[strategy->options->compress], .strategy = strategy,
                           .parts = slices};
  c->part = trm_alloc((size_t)slices * sizeof *c->part, "slices of the gradient");
  struct compress_sizes *size_of = trm_alloc((size_t)slices * sizeof *size_of, "slices of the gradient"), all;
  compressor_measure(c, slice, size_of, &all);
  const int status = compressor_alloc(c, &all);
  if (status == TRM_OK)
    compressor_divide(c, size_of);
  trm_free(size_of);
  *compressor = c;
  if (status != TRM_OK)
    compressor_free(compressor);
  return status;
}

void compressor_free(struct compressor **compressor)
{
  struct compressor *c = *compressor;
  if (!c)
    return;
  void *const own[] = {c->state[0], c->state[1], c->buffer, c->scratch};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++)
    if (own[i])
      c->strategy->device->ops->release(c->strategy->device, own[i]);
  for (int i = 0; i < c->parts; i++)
    trm_free(c->part[i].layout);
  trm_free(c->part);
  trm_free(c->request);
  trm_free(c);
  *compressor = NULL;
}

/* -- sums */

static void compressor_enter_round(struct compressor *c, struct compress_part *part)
{
  const bool done = c->ops->advance(c, part);
  trm_strategy_pass_time(c->strategy, COMPRESS_PASSES * part->n);
  if (!done)
    return;
  compress_add_rows(part, part->data + part->n, part->others, part->exact);
  part->round = -1;
}

void compressor_begin(struct compressor *c, int slice, float *data)
{
  struct compress_part *part = &c->part[slice];
  c->first = c->first < c->last && c->first < slice ? c->first : slice;
  c->last = c->last > slice ? c->last : slice + 1;
  part->data = data;
  part->requests = 0;
  if (part->exact > 0) {
    part->round = COMPRESS_STATISTICS;
    memcpy(part->others + (size_t)part->nodes->rank * part->exact, data + part->n, part->exact * sizeof *data);
    compress_gather_rows_begin(c, part, part->others, part->exact * sizeof *data);
  }
  part->round = 0;
  if (!c->strategy->options->error_feedback && part->state[0]) /* e = 0 */
    memset(part->state[0], 0, part->n * sizeof *part->state[0]);
  compressor_enter_round(c, part);
}

/* Takes a slice as far as its messages are. */
static void compressor_advance(struct compressor *c, struct compress_part *part)
{
  while (part->round >= 0) {
    for (int i = 0; i < part->requests; i++)
      if (!part->nodes->ops->test(&part->request[i]))
        return;
    part->requests = 0;
    part->round++;
    compressor_enter_round(c, part);
  }
}

bool compressor_test(struct compressor *c, int slice)
{
  for (int i = c->first; i < c->last; i++)
    compressor_advance(c, &c->part[i]);
  while (c->first < c->last && c->part[c->first].round < 0)
    c->first++;
  return c->part[slice].round < 0;
}

/* Blocks on the first slice in progress. So does every other rank that waits: some rank gets what it waits for. */
void compressor_wait(struct compressor *c, int slice)
{
  while (!compressor_test(c, slice)) {
    struct compress_part *first = &c->part[c->first];
    for (int i = 0; i < first->requests; i++)
      first->nodes->ops->wait(&first->request[i]);
  }
}

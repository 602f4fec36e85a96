/* Silent errors (run.verify_every): a processor or memory that computes wrong values without saying so. With lanes the
 * gradient of a shard has the same bits on every rank, so another rank computes it again and the digests are compared.
 *
 *   computation     shard of rank s is computed by        rank s computes the shard of
 *   own             s                                     s
 *   check           s - D/2, on another node if possible  s + D/2
 *   third           s - D/2 - 1 (with D = 2: the check)   s + D/2 + 1
 *
 * If own and check differ anywhere, every rank makes all three computations anew. The right gradient of a shard is what
 * two ranks have computed; of two ranks that do not agree, what the one computed both times that always gets the same.
 * A rank whose first computations alone were wrong had a transient fault: it is logged, and the step goes on with the
 * gradient that was computed anew. A rank that is wrong again has a persistent fault, and so has one with too many
 * transient faults: the run ends. Nothing but the gradient array has changed by then: passes change neither weights nor
 * statistics, and their random numbers depend on the rows. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "train/trainer.h"

enum { VERIFY_MAX_TRANSIENT = 3 }; /* transient faults of a rank, in one process, that end the run */

struct trainer_verify_rank {
  char host[64];
  char processor[192]; /* what decides the bits of a gradient: device, library of products and its kernels */
  int faults;          /* transient ones so far */
};

/* Digests that a rank has computed, sent to all as 64-bit integers. [1]: anew. */
struct verify_digests {
  uint64_t shard; /* the rank's own */
  uint64_t own[2], check[2], third, weights;
};
enum { VERIFY_DIGESTS = sizeof(struct verify_digests) / sizeof(uint64_t) };

/* The ranks of the data axis, by their shards. */
struct verify_table {
  int count;
  struct verify_digests *digests; /* (count) */
  int *rank;                      /* (count) */
};

/* What one rank computed of a shard. */
struct verify_value {
  int shard_of; /* the computing rank, by its own shard */
  uint64_t digest;
};

static struct trm_comm *verify_comm(const struct trainer *t)
{
  return t->grid->axis[TRM_AXIS_DATA];
}

/* -- digests */

/* A bijection (the finalizer of SplitMix64; Steele, Lea, Flood 2014). */
static uint64_t verify_mix(uint64_t x)
{
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

/* A wrong value always changes it, several do but for a chance of 2^-64. */
static uint64_t verify_digest(const void *data, size_t bytes)
{
  const char *at = data;
  uint64_t sum = bytes, word;
  for (size_t i = 0; i < bytes / sizeof word; i++) {
    memcpy(&word, at + i * sizeof word, sizeof word);
    sum += verify_mix(word ^ verify_mix(i));
  }
  word = bytes;
  memcpy(&word, at + bytes / sizeof word * sizeof word, bytes % sizeof word);
  return sum + verify_mix(word);
}

/* Computes the gradient of a shard, and the digest of it and of its losses. *sums: of the shard. */
static int verify_compute(struct trainer *t, const struct trainer_batch *batch, int shard, struct trm_loss_sums *sums,
                          uint64_t *digest)
{
  const float *g;
  *sums = (struct trm_loss_sums){.loss = 0};
  TRM_CHECK(trainer_lanes_gradient(t, batch, shard, false, sums));
  TRM_CHECK(trm_staged_arrays_gradient(&t->arrays, &g));
  *digest = verify_digest(g, t->model.parameters * sizeof *g) + 3 * verify_digest(sums, sizeof *sums);
  return TRM_OK;
}

/* -- which rank computes what */

static int verify_check_offset(int ranks)
{
  return ranks / 2;
}

static int verify_third_offset(int ranks)
{
  return ranks > 2 ? ranks / 2 + 1 : 1;
}

/* Sends this rank's digests to all. Collective. */
static void verify_gather(const struct trainer *t, const struct verify_digests *mine, struct verify_table *table)
{
  struct trm_comm *comm = verify_comm(t);
  struct verify_digests *all = trm_alloc((size_t)comm->size * sizeof *all, "digests");
  comm->ops->allgather(comm, mine, all, VERIFY_DIGESTS, TRM_INT64);
  for (int rank = 0; rank < comm->size; rank++) {
    table->digests[all[rank].shard] = all[rank];
    table->rank[all[rank].shard] = rank;
  }
  trm_free(all);
}

/* -- judging */

/* Returns true if own and check are equal everywhere. */
static bool verify_agrees(const struct verify_table *table)
{
  bool agrees = true;
  for (int s = 0; s < table->count; s++)
    agrees &= table->digests[s].check[0] ==
              table->digests[(s + verify_check_offset(table->count)) % table->count].own[0];
  return agrees;
}

/* Sets *right to the digest of the right gradient of a shard. False: it cannot be told. */
static bool verify_find_right(const struct verify_table *table, int s, uint64_t *right)
{
  const int n = table->count;
  const int check = (s - verify_check_offset(n) + n) % n, third = (s - verify_third_offset(n) + n) % n;
  const struct verify_digests *d = table->digests;
  const struct verify_value value[] = {
    {s, d[s].own[1]}, {check, d[check].check[1]}, {third, d[third].third}, {s, d[s].own[0]}, {check, d[check].check[0]},
  };
  enum { VALUES = sizeof value / sizeof *value };
  for (int i = 0; i < VALUES; i++)
    for (int k = i + 1; k < VALUES; k++)
      if (value[i].shard_of != value[k].shard_of && value[i].digest == value[k].digest) {
        *right = value[i].digest;
        return true;
      }
  const bool own_repeats = d[s].own[0] == d[s].own[1];
  const bool check_repeats = d[check].check[0] == d[check].check[1] &&
                             (third != check || d[check].third == d[check].check[1]);
  *right = own_repeats ? d[s].own[1] : d[check].check[1];
  return own_repeats != check_repeats;
}

/* Ends the run, on every rank. */
static void verify_end(struct trainer *t, const struct trainer_batch *batch, const char *what)
{
  char *verified = t->verify.verified ? trm_format("step %" PRIu64, t->verify.verified)
                                      : trm_strdup("none of this process");
  t->verify.failed = true;
  trm_error(TRM_FAILED, "run.verify_every: step %" PRIu64 ": %s; the latest verified step is %s: resume from a "
            "checkpoint that is no later, without the host", batch->number + 1, what, verified);
  trm_free(verified);
}

/* True, with the end of the run, if not all ranks have the same weights: then their gradients differ rightly. */
static bool verify_weights_differ(struct trainer *t, const struct trainer_batch *batch,
                                  const struct verify_table *table)
{
  int largest = 0, best = 0, other = -1;
  for (int s = 0; s < table->count; s++) {
    int equal = 0;
    for (int i = 0; i < table->count; i++)
      equal += table->digests[i].weights == table->digests[s].weights;
    if (equal > largest) {
      largest = equal;
      best = s;
    }
  }
  for (int s = 0; s < table->count && other < 0; s++)
    if (table->digests[s].weights != table->digests[best].weights)
      other = s;
  if (other < 0)
    return false;
  const struct trainer_verify_rank *rank = t->verify.rank;
  char *what = trm_format("the weights of rank %d (host %s) are not those of rank %d (host %s), which %d of %d ranks "
                          "have", table->rank[other], rank[table->rank[other]].host, table->rank[best],
                          rank[table->rank[best]].host, largest, table->count);
  verify_end(t, batch, what);
  trm_free(what);
  return true;
}

/* Ends the run for two ranks that disagree. */
static void verify_end_undecided(struct trainer *t, const struct trainer_batch *batch,
                                 const struct verify_table *table, int s)
{
  const struct trainer_verify_rank *rank = t->verify.rank;
  const int a = table->rank[s], b = table->rank[(s - verify_check_offset(table->count) + table->count) % table->count];
  char *what = trm_format("ranks %d (host %s) and %d (host %s) compute different gradients of the same rows, again and "
                          "again: one of them has a persistent fault (with four ranks a third would tell)", a,
                          rank[a].host, b, rank[b].host);
  verify_end(t, batch, what);
  trm_free(what);
}

/* Logs a fault of a rank, or ends the run for it. */
static void verify_blame(struct trainer *t, const struct trainer_batch *batch, int rank, bool persists)
{
  struct trainer_verify_rank *who = &t->verify.rank[rank];
  who->faults++;
  t->result->transient_faults += !persists;
  if (persists || who->faults == VERIFY_MAX_TRANSIENT) {
    char *what = persists ? trm_format("rank %d (host %s) computed wrong values, and again when they were repeated: a "
                                    "persistent fault of its processor or memory", rank, who->host)
                       : trm_format("rank %d (host %s) computed wrong values in %d steps, each time once: its "
                                    "processor or memory fails", rank, who->host, who->faults);
    verify_end(t, batch, what);
    trm_free(what);
  } else if (t->comm->rank == 0) {
    trm_warn("run.verify_every: step %" PRIu64 ": rank %d (host %s) computed wrong values, but not when they were "
             "repeated: a transient fault; the step goes on with the right gradient", batch->number + 1, rank,
             who->host);
  }
}

/* Tells the ranks with faults. */
static void verify_judge(struct trainer *t, const struct trainer_batch *batch, const struct verify_table *table)
{
  const int n = table->count;
  uint64_t *right = trm_alloc((size_t)n * sizeof *right, "digests");
  for (int s = 0; s < n && !t->verify.failed; s++)
    if (!verify_find_right(table, s, &right[s]))
      verify_end_undecided(t, batch, table, s);
  for (int s = 0; s < n && !t->verify.failed; s++) {
    const struct verify_digests *d = &table->digests[s];
    const uint64_t check = right[(s + verify_check_offset(n)) % n], third = right[(s + verify_third_offset(n)) % n];
    const bool persists = d->own[1] != right[s] || d->check[1] != check || d->third != third;
    if (persists || d->own[0] != right[s] || d->check[0] != check)
      verify_blame(t, batch, table->rank[s], persists);
  }
  trm_free(right);
}

/* -- a step */

bool trainer_verify_due(const struct trainer *t, const struct trainer_batch *batch)
{
  return t->verify.rank && (batch->number + 1) % (uint64_t)t->options->run.verify_every == 0;
}

/* Own and check differ: computes all anew, own last, and judges. */
static int verify_repeat(struct trainer *t, const struct trainer_batch *batch, struct verify_digests *mine,
                         struct verify_table *table, struct trm_loss_sums *sums)
{
  const int own = t->strategy.batch_shard, n = table->count;
  TRM_CHECK(verify_compute(t, batch, (own + verify_third_offset(n)) % n, sums, &mine->third));
  TRM_CHECK(verify_compute(t, batch, (own + verify_check_offset(n)) % n, sums, &mine->check[1]));
  TRM_CHECK(verify_compute(t, batch, own, sums, &mine->own[1]));
  mine->weights = verify_digest(t->strategy.w, t->strategy.elements * sizeof(float));
  verify_gather(t, mine, table);
  if (!verify_weights_differ(t, batch, table))
    verify_judge(t, batch, table);
  return TRM_OK;
}

int trainer_verify_gradient(struct trainer *t, const struct trainer_batch *batch, struct trm_loss_sums *sums)
{
  const int n = verify_comm(t)->size, own = t->strategy.batch_shard;
  struct verify_digests mine = {.shard = (uint64_t)own};
  struct verify_table table = {.count = n};
  struct trm_loss_sums shard_sums;
  TRM_CHECK(verify_compute(t, batch, (own + verify_check_offset(n)) % n, &shard_sums, &mine.check[0]));
  TRM_CHECK(verify_compute(t, batch, own, &shard_sums, &mine.own[0]));
  table.digests = trm_alloc((size_t)n * sizeof *table.digests, "digests");
  table.rank = trm_alloc((size_t)n * sizeof *table.rank, "digests");
  verify_gather(t, &mine, &table);
  const int status = verify_agrees(&table) ? TRM_OK : verify_repeat(t, batch, &mine, &table, &shard_sums);
  trm_free(table.digests);
  trm_free(table.rank);
  sums->loss += shard_sums.loss;
  sums->correct += shard_sums.correct;
  sums->rows += shard_sums.rows;
  if (status == TRM_OK && !t->verify.failed) {
    t->verify.verified = batch->number + 1;
    t->result->verified_steps++;
  }
  return status;
}

/* -- set-up */

static int verify_check_run(const struct trainer *t)
{
  if (verify_comm(t)->size < 2)
    return trm_error(TRM_USAGE, "run.verify_every: needs two ranks or more: another one computes a gradient again");
  if (t->data->streamed)
    return trm_error(TRM_USAGE, "run.verify_every: needs the data set in memory: ranks cannot go back in one that is "
                     "streamed (more: data.memory)");
  return TRM_OK;
}

/* Every rank learns the others' hosts, and that all compute with the same. Collective. */
int trainer_verify_create(struct trainer *t)
{
  struct trm_comm *comm = verify_comm(t);
  const struct trm_device *device = t->modules->device;
  struct trainer_verify_rank mine = {.faults = 0};
  if (t->options->run.verify_every == 0)
    return TRM_OK;
  TRM_CHECK(verify_check_run(t));
  gethostname(mine.host, sizeof mine.host - 1);
  snprintf(mine.processor, sizeof mine.processor, "%s, %s", device->ops->name, device->blas->detail());
  t->verify.rank = trm_alloc((size_t)comm->size * sizeof mine, "names of hosts");
  comm->ops->allgather(comm, &mine, t->verify.rank, sizeof mine, TRM_BYTE);
  for (int r = 1; r < comm->size; r++)
    if (strcmp(t->verify.rank[r].processor, t->verify.rank[0].processor) != 0)
      return trm_error(TRM_USAGE, "run.verify_every: rank %d computes with %s, rank 0 with %s: their gradients have "
                       "not the same bits", r, t->verify.rank[r].processor, t->verify.rank[0].processor);
  return TRM_OK;
}

void trainer_verify_free(struct trainer *t)
{
  trm_free(t->verify.rank);
}

/* Shared by the files of compressed sums: compressor.c takes slices through their rounds, a file for each compressor
 * has what a round does, exchange.c their messages. */
#pragma once

#include "core/device.h"
#include "mpi/compress/compressor.h"

/* A compressor keeps at most so many arrays from one sum to the next. In a round about so many arrays are passed over:
 * data and a state are read, one of them is written. */
enum { COMPRESS_STATES = 2, COMPRESS_PASSES = 3 };

/* Memory that a slice needs. */
struct compress_sizes {
  size_t state[COMPRESS_STATES]; /* floats, kept from one sum to the next and in checkpoints */
  size_t buffer;                 /* bytes, of a sum in progress */
  size_t scratch;                /* bytes, within a round */
  int rounds;                    /* of messages */
  double sent;                   /* bytes in these: the mean over the nodes */
};

/* A slice, its sum in progress or not. */
struct compress_part {
  struct trm_comm *nodes;        /* not owned */
  int number;                    /* among the slices of these ranks */
  size_t low, n;                 /* compressed elements [low, low + n) of the flat arrays */
  size_t exact;                  /* statistics that follow */
  float *data;                   /* (n + exact) of the caller */
  float *state[COMPRESS_STATES];
  char *buffer;
  float *others;                 /* (nodes, exact) statistics of all nodes */
  void *layout;                  /* of powersgd.c; owned */
  struct trm_request **request;  /* (COMPRESS_REQUESTS * (nodes - 1)); `requests` of them begun in this round */
  int requests;
  int round;                     /* in progress; -1: none */
};
/* Requests of a slice to each other node at a time: of statistics, and of the round, a send and a receive each. Tags
 * of a slice: one for each round, the last one for statistics. They lie below those of other collectives (mpi/coll). */
enum { COMPRESS_REQUESTS = 4, COMPRESS_TAGS = 8, COMPRESS_STATISTICS = 7, COMPRESS_MAX_SLICES = 2500 };

/* One compressor. */
struct compressor_ops {
  const char *state_name[COMPRESS_STATES]; /* for checkpoints; NULL: no such array */
  /* Sets *sizes (zeroed), and may set part->layout. */
  void (*measure)(const struct compressor *c, struct compress_part *part, struct compress_sizes *sizes);
  /* Round part->round, from 0 on, once all messages of the round before have arrived: begins the messages of the round
   * and returns false, or returns true with the sum in data. */
  bool (*advance)(struct compressor *c, struct compress_part *part);
};
extern const struct compressor_ops compress_bf16, compress_fp16, compress_topk, compress_dgc, compress_sign,
  compress_qsgd, compress_powersgd;

struct compressor {
  const struct compressor_ops *ops;
  struct trm_strategy *strategy; /* not owned */
  struct compress_part *part;    /* (parts) */
  int parts;
  int rounds;                    /* of messages, the most of a slice */
  double sent;                   /* bytes, of a sum of all slices */
  int first, last;               /* parts in progress are among [first, last) */
  float *state[COMPRESS_STATES];
  char *buffer;                  /* of all slices */
  void *scratch;
  struct trm_request **request;
};

/* -- messages (exchange.c). Array `all` has n elements of so many bytes, a shard for each node (trm_interval). */

/* Begins: shard j goes to node j; shards (nodes, largest shard) gets every node's shard of this rank's number,
 * adjacent, its own included. */
void compress_scatter_begin(struct compressor *c, struct compress_part *part, const void *all, size_t n, size_t bytes,
                            void *shards);
/* Begins: this rank's shard of `all` goes to all others, whose shards arrive in the others' places. */
void compress_gather_begin(struct compressor *c, struct compress_part *part, void *all, size_t n, size_t bytes);
/* The same of messages of equal size: all (nodes, bytes). */
static inline void compress_gather_rows_begin(struct compressor *c, struct compress_part *part, void *all, size_t bytes)
{
  compress_gather_begin(c, part, all, (size_t)part->nodes->size * bytes, 1);
}
/* Bytes that a node sends in compress_gather_rows_begin; in compress_scatter_begin and compress_gather_begin, the mean over
 * the nodes. */
static inline double compress_rows_sent(const struct compress_part *part, size_t bytes)
{
  return (double)(part->nodes->size - 1) * (double)bytes;
}
static inline double compress_shards_sent(const struct compress_part *part, size_t n, size_t bytes)
{
  return compress_rows_sent(part, n * bytes) / part->nodes->size;
}
/* The elements of this rank's shard. */
static inline size_t compress_shard(const struct compress_part *part, size_t n, size_t *low)
{
  size_t high;
  trm_interval(n, (size_t)part->nodes->size, (size_t)part->nodes->rank, low, &high);
  return high - *low;
}
static inline size_t compress_max_shard(const struct compress_part *part, size_t n)
{
  return n / (size_t)part->nodes->size + 1;
}
/* to (n) = sum of rows (nodes, n), added in the order of the nodes. to lies apart. */
void compress_add_rows(const struct compress_part *part, float *to, const float *rows, size_t n);

/* state 0 (n) += data: error feedback's p = g + e, in place of e. */
void compress_add_gradient(struct compress_part *part);

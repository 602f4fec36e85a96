/* Shared by the files of replicas (replicas.h): replicas.c makes the steps and rounds, replicas_create.c the
 * communicators and arrays, replicas_exchange.c what replicas send one another. */
#pragma once

#include "mpi/compress/compressor.h"
#include "mpi/sync/replicas.h"

/* Slices begin at multiples of a cache line. Elements. */
#define REPLICAS_ALIGN ((size_t)16)

struct replicas {
  struct replicas_method method;
  struct trm_strategy inner; /* the synchronous method over `replica` */
  float *state[TRM_MAX_STATES - 1]; /* inner's, each (elements), one copy for each domain; not owned */

  int count, number;       /* replicas; this one */
  struct trm_comm *replica;  /* its ranks */
  struct trm_comm *domain;   /* those of them that share one copy of w and of the states */
  struct trm_comm *siblings; /* those with this rank's number in their domains, one of each domain */
  int domains, domain_ranks; /* of the replica; ranks of each that may have a slice: as many as the smallest has */
  struct trm_comm *cross;    /* the ranks of all replicas with this rank's slice; NULL: it has none */
  struct trm_comm *slices;   /* the replica's ranks that have a slice; NULL: this one has none */
  int slice_count;
  struct interval slice;     /* low == high: none */

  float *array[REPLICAS_MAX_ARRAYS]; /* host, (slice), owned */
  float *mean;                  /* host, (elements), one for each domain: of evaluations in the middle of a round; NULL:
                                   a replica is the only one */
  struct trm_shared mean_shared;
  struct interval *message;     /* (messages) those that make up the slice, ascending; owned */
  int messages;
  struct trm_request **request; /* (messages), owned */
  struct compressor *compressor; /* of the messages; NULL: all-reduces */

  int64_t position;            /* steps since the round began */
  bool equal;                  /* all replicas have the same weights: they have just been exchanged */
  int64_t unsummed;            /* steps whose losses are in `sums` alone */
  struct trm_loss_sums sums;   /* of this replica */
};

static inline struct replicas *replicas_of(const struct trm_strategy *strategy)
{
  return strategy->impl;
}

/* True if the replica is the only one and trains like sync: nothing is exchanged. */
static inline bool replicas_is_sync(const struct replicas *r)
{
  return r->count == 1 && !r->method.moves_alone;
}

static inline int64_t replicas_fragments(const struct trm_strategy *strategy)
{
  return strategy->options->fragments > 1 ? strategy->options->fragments : 1;
}

/* Returns slice `index` of the arrays. */
struct interval replicas_slice(const struct trm_strategy *strategy, int index);

/* -- replicas_exchange.c */

/* Collective over all ranks, at the end of a step. The elements of w in the interval become those that the method
 * combines from all replicas'. */
void replicas_exchange(struct trm_strategy *strategy, struct interval of, double rate);
/* Collective over all ranks. r->mean becomes the mean of w over the replicas. */
void replicas_mean(struct trm_strategy *strategy);
/* Collective over the replica. Copies each slice of an array (elements) from the domain of the rank that has it to the
 * other domains; returns when the domain's copy is whole. */
void replicas_spread(struct trm_strategy *strategy, float *array);
/* Collective over all ranks. *sums: in, of this replica, the same on all its ranks; out, over the replicas. TRM_FAILED
 * on every rank if the loss is not finite. */
int replicas_sum_losses(struct trm_strategy *strategy, struct trm_loss_sums *sums);

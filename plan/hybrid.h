/* Jobs of two kinds of ranks, such as ranks on GPUs and ranks on CPU cores: the time of a step of each kind alone, and of
 * both together with shares of the batch in proportion to their speeds (parallel.shares=measured), and the memory of a
 * rank of each. The ranks form a data axis; pipeline and tensor axes are one. */
#pragma once

#include "plan/layout.h"

enum { TRM_KINDS = 2 };

/* Set by the caller; nothing is owned. */
struct trm_rank_kind {
  const struct trm_machine *machine;
  int ranks, nodes;  /* ranks: a multiple of nodes */
  int cores, threads; /* of a node; of a rank */
};

struct trm_hybrid_kind {
  struct trm_layout_memory memory; /* of a rank in the job of both kinds */
  double alone_s;                  /* a step of these ranks without the others */
  double speed;                    /* samples a rank computes in a second, of an equal share of the batch */
  double share;                    /* of a rank, in thousandths of the fastest rank's; at least 1 */
  size_t rows;                     /* of a rank in a batch, at most */
  double passes_s;                 /* of those */
  double update_s;                 /* sum over all ranks, and update */
  bool fits;
};

struct trm_hybrid {
  struct trm_hybrid_kind kind[TRM_KINDS];
  double step_s;      /* both kinds together */
  int fast;           /* index of the kind whose ranks are faster */
  bool pays;          /* step_s is below kind[fast].alone_s */
};

/* Estimates the hybrid job. job: the model, the data and the options; its ranks, nodes, cores and machine are not read.
 * together: both kinds have the same nodes; otherwise each has its own. limit: bytes of a rank in the host's memory; 0:
 * none. The machines have figures of the model (trm_machine_require_model). TRM_USAGE: the batch has fewer samples than
 * the job ranks. */
int trm_hybrid_plan(const struct trm_layout_job *job, const struct trm_rank_kind kind[TRM_KINDS], bool together,
                    double limit, struct trm_hybrid *hybrid);

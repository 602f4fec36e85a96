/* The reading of the ledger of a job that stands still: which ranks are behind, and who waits for them. */
#pragma once

#include "core/ledger.h"

/* Returns one line about the ranks that have made no progress for after_s seconds, or NULL if none of them is behind:
 *
 *   behind       a rank whose process does not run, or that waits for no other rank: it computes, reads or writes
 *   mismatch     all ranks wait, some of them in different collectives of one number on one communicator
 *   deadlock     all ranks wait
 *
 * A rank that waits while others make progress, such as a parameter server, is not behind. rank (ranks): those that
 * something is known of, of a job of job_ranks. Caller frees with trm_free. */
char *trm_stall_describe(const struct trm_ledger_rank *rank, int ranks, int job_ranks, double after_s);

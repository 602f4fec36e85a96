/* The watchdog: a thread of each rank that watches the ledger (core/ledger.h) and never calls MPI, but to end the job.
 *
 * After run.stall_after seconds without progress it names the rank that is behind, its host, process and operation, and
 * who waits for it. After run.stall_abort seconds without progress of any rank it ends the job with status TRM_STALLED;
 * summary.json then says "stalled". On each node the first rank whose process runs acts, so that others do if it is
 * frozen. Nodes know of one another by the files in run.dir/ledger alone.
 *
 * Progress: any change of a rank's entry, or a call that it has answered. A rank that waits makes none; if it waits by
 * right, such as a parameter server, others make some. Injected sleeps are progress. Time in which the whole process
 * was stopped does not count. */
#pragma once

#include "core/comm.h"
#include "core/options.h"

struct trm_watchdog;

/* Opens the ledger of all ranks and begins to watch. *watchdog is NULL if run.stall_after and run.stall_abort are 0, or
 * with a warning if there is no shared memory. By the main thread; the ledger is its. Collective. */
void trm_watchdog_start(struct trm_watchdog **watchdog, const struct trm_options *options, struct trm_comm *comm);
/* Ends it and removes its files. NULL is allowed. Collective. */
void trm_watchdog_stop(struct trm_watchdog **watchdog);

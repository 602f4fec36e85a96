/* What each rank did when: for a picture of a run's steps (run.trace).
 *
 * One trace a rank, recorded by its main thread, off until it is started. Events of a rank lie one in another or
 * apart: so an operation that goes on while the rank computes is none, its beginning and the waiting for its end are.
 *
 *   const double began = trm_trace_begin();
 *   ...
 *   trm_trace_end("forward", TRM_TRACE_COMPUTE, began, (struct trm_trace_ids){.micro = 3, .chunk = 0, .layer = -1});
 */
#ifndef TRM_CORE_TRACE_H
#define TRM_CORE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/comm.h"

enum trm_trace_kind { TRM_TRACE_COMPUTE, TRM_TRACE_COMMUNICATION, TRM_TRACE_WAIT };

/* Numbers that say more; -1: does not apply. */
struct trm_trace_ids {
  int32_t micro, chunk, layer;
};
#define TRM_TRACE_NO_IDS ((struct trm_trace_ids){-1, -1, -1})

/* Collective: starts the trace of the ranks of comm, which stays valid until it is stopped, with room for the newest
 * `events` of each rank. Compares the clocks. */
void trm_trace_start(struct trm_comm *comm, size_t events);
bool trm_trace_on(void);

/* Events from now on belong to this step; 0 at first. */
void trm_trace_set_step(int64_t step);

double trm_trace_begin(void); /* seconds of comm->ops->clock; 0 where the trace is off */
/* An event from `began` until now. name: of up to 23 bytes is kept. Costs reading the clock, or nothing. */
void trm_trace_end(const char *name, enum trm_trace_kind kind, double began, struct trm_trace_ids ids);
/* The same of an event whose end was measured, too, by the same clock. */
void trm_trace_add(const char *name, enum trm_trace_kind kind, double began, double ended, struct trm_trace_ids ids);

/* Collective: writes the events of all ranks to a file of rank 0, in the Trace Event Format that chrome://tracing and
 * Perfetto read: a row a rank, microseconds since the start by rank 0's clock. Compares the clocks again, and takes
 * what they drifted as even. The trace goes on. TRM_FAILED on every rank if it cannot be written. A trace that is off
 * writes nothing. */
int trm_trace_write(const char *path);

/* Not collective. */
void trm_trace_stop(void);

#endif

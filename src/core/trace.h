/* The trace of a run's steps (run.trace=steps): when each rank computed, communicated and waited; and the names of its
 * parts for a profiler of the MPI library (run.trace=regions).
 *
 * One trace per rank, recorded by its main thread, off until started. Two events of a rank are nested or disjoint:
 * a non-blocking operation is two events, its start and the wait for its end. Its flight between them may be a third,
 * of a kind of its own (TRM_TRACE_FLIGHT). On a virtual network times are modeled: the trace is the same every time,
 * takes no time of the run, and has no events of length 0.
 *
 *   const double began = trm_trace_begin("forward");
 *   ...
 *   trm_trace_end("forward", TRM_TRACE_COMPUTE, began, (struct trm_trace_ids){.micro = 3, .chunk = 0, .layer = -1});
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/comm.h"

/* FLIGHT: from the start to the end of a non-blocking operation, an event beside the others, which it may overlap. */
enum trm_trace_kind { TRM_TRACE_COMPUTE, TRM_TRACE_COMMUNICATION, TRM_TRACE_WAIT, TRM_TRACE_FLIGHT };

/* The event's micro-batch, chunk and layer; -1: does not apply. */
struct trm_trace_ids {
  int32_t micro, chunk, layer;
};
#define TRM_TRACE_NO_IDS ((struct trm_trace_ids){-1, -1, -1})

/* Starts the trace of the ranks of comm, which must stay valid until trm_trace_stop, with room for the newest `events`
 * events of each rank. Measures the skew of the clocks, of ranks that have several. Collective. */
void trm_trace_start(struct trm_comm *comm, size_t events);
bool trm_trace_on(void);

/* Sets the step of the events that follow, from 1; 0, as at first: of none. */
void trm_trace_set_step(int64_t step);

/* Begins an event, which is a region of that name too. Returns seconds of comm->ops->clock; 0 where the trace is off. */
double trm_trace_begin(const char *name);
/* Records the event from `began` until now, and leaves its region. name: the same; up to 23 bytes are kept. */
void trm_trace_end(const char *name, enum trm_trace_kind kind, double began, struct trm_trace_ids ids);
/* Records an event that was measured by the same clock and is no region. Without a trace it does nothing. */
void trm_trace_add(const char *name, enum trm_trace_kind kind, double began, double ended, struct trm_trace_ids ids);

/* Writes the events of all ranks to a file, on rank 0, in the Trace Event Format of chrome://tracing and Perfetto: one
 * row for each rank, microseconds since the start by rank 0's clock. Measures the skew again and takes the drift as
 * linear. The trace goes on. TRM_FAILED on every rank if the file cannot be written. Without a trace it writes nothing.
 * Collective. */
int trm_trace_write(const char *path);

/* Records no more events. Not collective. */
void trm_trace_end_recording(void);

/* Stops both. Not collective. */
void trm_trace_stop(void);

/* Names regions from now on, by comm->ops->region; comm must stay valid until trm_trace_stop. Not collective. */
void trm_trace_start_regions(struct trm_comm *comm);
/* Of a rank's main thread, nested: the region from here to the call that leaves it. */
void trm_trace_enter_region(const char *name);
void trm_trace_leave_region(const char *name);

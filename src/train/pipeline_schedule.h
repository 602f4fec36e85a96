/* Pipeline schedules: the order in which a stage computes micro-batches. Pure data, no communication.
 *
 * The layers are cut into stages * chunks virtual stages; chunk c of stage s is virtual stage c * stages + s. Forward
 * passes go through all virtual stages in ascending order, backward passes in descending order:
 *
 *   gpipe        all forward passes, then all backward passes (Huang et al. 2019)
 *   1f1b         one forward and one backward pass in turn after the warm-up (Narayanan et al. 2019): takes as long as
 *                gpipe, but a stage has at most `stages` micro-batches in flight
 *   interleaved  1f1b, several chunks per stage (Narayanan et al. 2021): warm-up and drain take the time of one chunk
 *                for each stage, not of all its chunks
 *   pipedream    1f1b without flush: an update after every micro-batch (Narayanan et al. 2019)
 *   2bw          the same, an update after every `micros` micro-batches (PipeDream-2BW, Narayanan et al. 2021)
 *
 * Both passes of each chunk take the micro-batches in ascending order, so that sums over them have one order.
 */
#pragma once

#include <stdbool.h>

#include "core/choices.h"

struct trm_schedule {
  enum trm_schedule_name name;
  int stages;
  int chunks; /* per stage; above 1 only with interleaved */
  int micros; /* micro-batches per update */
};

struct trm_action {
  enum { TRM_FORWARD, TRM_BACKWARD } kind;
  int chunk; /* of this stage, from 0 */
  int micro; /* from 0; without flush counted through all batches of a run */
};

/* Checks chunks and micros against the schedule's limits. One stage has one chunk. TRM_USAGE: names the option. */
int trm_schedule_create(struct trm_schedule *schedule, enum trm_schedule_name name, int stages, int chunks, int micros);

bool trm_schedule_flushes(const struct trm_schedule *schedule); /* true: the pipeline is empty at each update */

/* Returns the actions (*count) of a stage for `batches` batches (schedules that flush: 1). Release with trm_free. */
struct trm_action *trm_schedule_actions(const struct trm_schedule *schedule, int stage, int batches, int *count);
/* Returns the forward passes (*count) of `micros` micro-batches, not of schedule->micros. Release with trm_free. */
struct trm_action *trm_schedule_forward(const struct trm_schedule *schedule, int micros, int *count);

/* Returns the maximum number of micro-batches in flight in a chunk of the stage. Micro-batch m uses slot m % slots. */
int trm_schedule_slots(const struct trm_schedule *schedule, int stage);

/* Returns the idle share of the stages' time, (S-1)/(v B M + S-1), if all chunks take equal time, messages take none,
 * and a backward pass takes a fixed multiple of a forward pass. S stages, v chunks, M micro-batches; B = batches: the
 * mean number of batches between two flushes, 1 with schedules that flush. */
double trm_schedule_bubble(const struct trm_schedule *schedule, double batches);

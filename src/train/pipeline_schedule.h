/* Schedules of pipelines: in which order a stage computes the micro-batches. Pure data, no communication.
 *
 * The chain of layers is cut into stages * chunks pieces; chunk c of stage s is piece c * stages + s. A micro-batch
 * goes forward through all pieces, and backward through all of them in turn:
 *
 *   gpipe        all forward, then all backward (Huang et al. 2019)
 *   1f1b         one forward, one backward, as soon as there is something to do backward (Narayanan et al. 2019): as
 *                long as gpipe, but a stage has at most `stages` micro-batches under way
 *   interleaved  1f1b with several chunks a stage (Narayanan et al. 2021): fill and drain take a chunk's time for each
 *                stage, not a stage's
 *   pipedream    1f1b that is never drained: an update after every micro-batch (Narayanan et al. 2019)
 *   2bw          the same with an update after every `micros` micro-batches (Narayanan et al. 2021, PipeDream-2BW)
 *
 * Both passes of each chunk take the micro-batches in ascending order, so that sums over them are added in one order.
 */
#ifndef TRM_TRAIN_PIPELINE_SCHEDULE_H
#define TRM_TRAIN_PIPELINE_SCHEDULE_H

#include <stdbool.h>

#include "core/choices.h"

struct trm_schedule {
  enum trm_schedule_name name;
  int stages;
  int chunks; /* of a stage; 1 but for interleaved */
  int micros; /* micro-batches of an update */
};

struct trm_action {
  enum { TRM_FORWARD, TRM_BACKWARD } kind;
  int chunk; /* of the stage's own, from 0 */
  int micro; /* from 0; without draining they count on through the batches */
};

/* Checks that name and chunks suit the numbers. One stage has one chunk. TRM_USAGE: names the option. */
int trm_schedule_create(struct trm_schedule *schedule, enum trm_schedule_name name, int stages, int chunks, int micros);

bool trm_schedule_flushes(const struct trm_schedule *schedule); /* the pipeline is empty at each update */

/* Actions of a stage for `batches` batches (schedules that flush: 1), (*count). Release with trm_free. */
struct trm_action *trm_schedule_actions(const struct trm_schedule *schedule, int stage, int batches, int *count);
/* The forward passes alone, of `micros` micro-batches, whatever schedule->micros is. */
struct trm_action *trm_schedule_forward(const struct trm_schedule *schedule, int micros, int *count);

/* Micro-batches that a chunk of the stage has under way at most. Micro-batch m may use slot m % slots. */
int trm_schedule_slots(const struct trm_schedule *schedule, int stage);

/* Share of the stages' time that is idle if all pieces take equal time, passes to one another take none, and backward
 * takes a fixed multiple of forward: (S-1)/(v B M + S-1), with v chunks, where B batches follow one another before the
 * pipeline is drained: 1 in schedules that flush; if their number varies, its mean. */
double trm_schedule_bubble(const struct trm_schedule *schedule, double batches);

#endif

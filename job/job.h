/* A training job: options, ranks, a device, and the implementations that the options name. A program that uses the
 * library begins here (examples/):
 *
 *   struct trm_job job;
 *   struct trm_result result;
 *   trm_job_init(&job);
 *   int status = trm_options_set(&job.options, "data.file", "digits.h5");
 *   status = trm_job_open(&job, status);
 *   if (status == TRM_OK)
 *     status = trm_job_train(&job, &result);
 *   if (status != TRM_OK && trm_log_rank() == 0)
 *     trm_log_error();
 *   trm_job_close(&job);
 */
#pragma once

#include "job/cores.h"
#include "train/train.h"

TRM_BEGIN_DECLS

struct trm_network;  /* mpi/network.h */
struct coll_choices; /* mpi/coll/choices.h */

struct trm_job {
  struct trm_options options; /* owned; read by open, then changed only by the caller */
  struct trm_modules modules; /* set by open, but for grid and pipeline; then the caller may set others */
  struct trm_device device;   /* modules.device once it is open */
  struct trm_cores cores;     /* set by open */
  bool serial;                /* set by the caller before open: one rank without MPI */
  const struct trm_network *network; /* modules.comm's; NULL: not started */
  struct coll_choices *collectives;  /* of parallel.collectives, set by open; NULL: none */
  struct trm_library libraries[4];   /* modules.libraries, set by open */
  char hdf5_version[32];
};

/* Sets every option to its default. */
void trm_job_init(struct trm_job *job);
/* Starts the network, MPI unless serial (once per process), selects the modules and opens the device by job->options.
 * status: this rank's result of setting the options; the first failure of any rank is every rank's, with its message.
 * Collective over all ranks of the launch. */
int trm_job_open(struct trm_job *job, int status);
/* Divides the ranks into the process grid and trains (trm_train). Collective. */
int trm_job_train(struct trm_job *job, struct trm_result *result);
/* Stops the network and releases everything, whether open succeeded or not. Collective. */
void trm_job_close(struct trm_job *job);

TRM_END_DECLS

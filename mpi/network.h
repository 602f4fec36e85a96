/* Networks: what the ranks of a job are, and how they reach one another. */
#pragma once

#include "core/comm.h"
#include "core/options.h"

TRM_BEGIN_DECLS

struct trm_network {
  const char *name;
  bool in_one_process; /* all ranks live in one process, and each needs a device of its own */
  /* Starts the network; *world is what the ranks of this process have in common: the communicator of the job where the
   * process is one rank. Collective over the processes of the launch. */
  int (*start)(const struct trm_options *options, struct trm_comm **world);
  /* Calls main(comm, context) once for each rank that lives in this process, comm: the communicator of the job at that
   * rank. Returns TRM_OK, or the first status that is not. Collective. */
  int (*run)(const struct trm_options *options, struct trm_comm *world,
             int (*main)(struct trm_comm *comm, void *context), void *context);
  /* Encrypts what nodes send one another from now on (run.encrypt). Collective. NULL: they send nothing. */
  int (*encrypt)(struct trm_comm *world);
  void (*stop)(struct trm_comm *world); /* collective */
};

/* "mpi": every process is a rank; "self": one rank without MPI; "virtual": simulate.workers ranks (mpi/virtual.h).
 * NULL: there is no such network. */
const struct trm_network *trm_network_find(const char *name);

TRM_END_DECLS

/* The real network: the communication contract over MPI. The one header of this wing that the roof needs, beside
 * strategies.h. */
#ifndef TRM_MPI_REAL_H
#define TRM_MPI_REAL_H

#include "core/comm.h"

/* Starts MPI (MPI_THREAD_MULTIPLE asked for; what was given is checked) and gives the communicator of the job. If the
 * program was started without a launcher, this is one rank. Refuses a broken launch: several singletons in place of one
 * job (told by the launcher's environment: sizes of Slurm, Hydra, PMIx, Open MPI against MPI's own), unless
 * allow_singletons. */
int trm_comm_start(int *argc, char ***argv, bool allow_singletons, struct trm_comm **world);

/* On some node there are more threads than cores: from here on a rank that waits long for others naps in between, so
 * that whoever is waited for has the core. All ranks of the job say so, or none. */
void trm_comm_set_oversubscribed(void);

/* Ends MPI (collective). world is gone. */
void trm_comm_stop(struct trm_comm *world);

/* For work that several processes would spoil (they would write the same file): refuses if a launcher started more than
 * one. Does not need MPI to be started. */
int trm_launch_require_single(const char *what);

/* Name and version of the MPI library, one line. */
const char *trm_comm_library(void);

#endif

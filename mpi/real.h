/* The communication contract (core/comm.h) over MPI. */
#pragma once

#include "core/comm.h"

/* Starts MPI with MPI_THREAD_MULTIPLE and sets *world to the communicator of the job, which trm_comm_stop releases. A
 * program started without a launcher is a job of one rank. Collective over the job. TRM_USAGE for a broken launch,
 * several jobs of one rank in place of one job (the launcher's environment says so), unless allow_singletons;
 * TRM_FAILED if the library grants threads less. After an error MPI has ended. */
int trm_comm_start(int *argc, char ***argv, bool allow_singletons, struct trm_comm **world);

/* Starts MPI alone, for trm_comm_probe before trm_comm_start. Fails as that does with a broken launch; MPI has then
 * ended. Collective. */
int trm_comm_init(void);
/* Has the ranks send one another messages, without a collective: every rank with rank 0, and of each pair of hosts two
 * ranks (of more than 64 hosts the pairs at distances of powers of two), each within so many seconds. Returns the
 * messages that did not arrive, as far as this rank knows, owned by the caller; "": another rank knows; NULL: none.
 * With a problem no call of MPI may follow, not even its end. Called by all ranks. */
char *trm_comm_probe(double seconds);

/* Encrypts and authenticates from now on what ranks of different nodes send one another in world, and in the
 * communicators that are made of it later, under this process' key (core/security.h), which all ranks must have.
 * TRM_USAGE: there is none, or the build has no libsodium. Collective; every rank gets the same status. */
int trm_comm_encrypt(struct trm_comm *world);

/* Declares that some node has more threads than cores: from now on ranks sleep between polls in long waits, to yield
 * their cores. Called by all ranks of the job, or none. */
void trm_comm_set_oversubscribed(void);

/* Sets parallel.progress, which is `thread` before. Equal on all ranks; no collective may be in progress. */
void trm_comm_set_progress(struct trm_comm *world, enum trm_progress progress);

struct coll_choices; /* mpi/coll/choices.h */
/* The algorithms of collectives from now on; NULL: those that are chosen without measurements. The same on all ranks of
 * the job, not owned. */
void trm_comm_set_collectives(struct trm_comm *world, const struct coll_choices *choices);

/* Bytes that this rank has sent so far to ranks of other nodes, in messages and in collectives over messages: in all of
 * the job's communicators, apart from calls, windows and the MPI library's collectives. */
uint64_t trm_comm_sent_between_nodes(struct trm_comm *world);

/* Releases world and ends MPI. Collective. */
void trm_comm_stop(struct trm_comm *world);

/* TRM_USAGE if a launcher started more than one process: for work that writes one file. MPI need not be started. `what`
 * names the work in the message. */
int trm_launch_require_single(const char *what);

/* This process' rank by the launcher's environment; 0: no launcher started several. */
int trm_launch_rank(void);

/* Name and version of the MPI library, one line. */
const char *trm_comm_library(void);

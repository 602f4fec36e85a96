/* The ledger: what each rank of the job does now. Each rank has an entry in memory that the ranks of its node share;
 * its main thread sets it by plain atomic stores: no lock, no system call, no clock. The watchdog (job/watchdog.h)
 * reads the entries of its node, finds out by itself since when they stand still, and writes them to a file in run.dir,
 * which other nodes and `trireme status` read.
 *
 * The communicator sets the operations that wait for other ranks (mpi/real_ledger.c), the trainer phases and steps, the
 * model layers. In a thread without an entry, such as a rank of a virtual network, all of this has no effect.
 *
 *   const enum trm_ledger_operation before = trm_ledger_enter(&(struct trm_ledger_call){.operation = TRM_LEDGER_READ});
 *   ...
 *   trm_ledger_leave(before);
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/comm.h"

enum trm_ledger_phase {
  TRM_LEDGER_SETUP, /* the run directory is not open yet */
  TRM_LEDGER_STEP,
  TRM_LEDGER_EVALUATION,
  TRM_LEDGER_CHECKPOINT,
  TRM_LEDGER_END, /* of the run: hashes, summary */
  TRM_LEDGER_PHASES
};

/* Of a layer. */
enum trm_ledger_pass { TRM_LEDGER_FORWARD, TRM_LEDGER_BACKWARD, TRM_LEDGER_PASSES };

/* From BARRIER to ACCESS: waits for other ranks. */
enum trm_ledger_operation {
  TRM_LEDGER_COMPUTE, /* none of the others */
  TRM_LEDGER_READ,    /* of data */
  TRM_LEDGER_WRITE,   /* of a file */
  TRM_LEDGER_SLEEP,   /* injected */
  TRM_LEDGER_BARRIER, /* collectives, from here to CALLS; the last four create or free something */
  TRM_LEDGER_BROADCAST,
  TRM_LEDGER_ALLREDUCE,
  TRM_LEDGER_ALLGATHER,
  TRM_LEDGER_REDUCE_SCATTER,
  TRM_LEDGER_SPLIT,
  TRM_LEDGER_SHARE,
  TRM_LEDGER_WINDOW,
  TRM_LEDGER_CALLS,
  TRM_LEDGER_SEND,
  TRM_LEDGER_RECEIVE,
  TRM_LEDGER_CALL,   /* of a function at another rank */
  TRM_LEDGER_CHANGE, /* of shared memory */
  TRM_LEDGER_ACCESS, /* to a window */
  TRM_LEDGER_OPERATIONS
};

/* An operation, with what it needs of the others. */
struct trm_ledger_call {
  enum trm_ledger_operation operation;
  enum trm_comm_role role; /* of the communicator */
  uint64_t group;          /* identifies the communicator: equal on its ranks */
  uint64_t number;         /* of the collective on its communicator, from 1 */
  uint64_t bytes;          /* of this rank */
  int32_t peer;            /* of SEND to ACCESS: rank in the communicator; -1: none */
};

/* An entry as it was read. */
struct trm_ledger_rank {
  int rank; /* in the job */
  int pid;
  char host[64];
  bool runs;         /* the process does: its watchdog thread was seen to */
  char state;        /* of its main thread, as in /proc/PID/stat; '?': not known */
  uint64_t progress; /* changes of the entry, and calls that the rank has answered */
  double since_s;    /* seconds without progress */
  enum trm_ledger_phase phase;
  uint64_t step; /* the current one, from 1; 0: none yet */
  int layer;     /* -1: none */
  enum trm_ledger_pass pass;
  struct trm_ledger_call call;
};

struct trm_ledger_entry; /* in shared memory */
size_t trm_ledger_entry_bytes(void);

/* Makes this the entry of the calling thread, and of its rank; NULL: of none, the entry stays as it is. rank: in the
 * job. The memory stays the caller's. */
void trm_ledger_open(struct trm_ledger_entry *entry, int rank);

/* -- by the thread of an entry */
enum trm_ledger_operation trm_ledger_enter(const struct trm_ledger_call *call); /* returns the operation before */
void trm_ledger_leave(enum trm_ledger_operation before);
void trm_ledger_set_phase(enum trm_ledger_phase phase, uint64_t step);
void trm_ledger_set_layer(int layer, enum trm_ledger_pass pass);
void trm_ledger_add_progress(void);

/* -- by any thread of the rank */
void trm_ledger_add_answer(void); /* a call of another rank was answered */

/* -- by the watchdog. beat: called by the watchdog thread of the entry's process from time to time; the others read how
 * often. read: sets all but since_s, runs and state. */
void trm_ledger_beat(struct trm_ledger_entry *entry);
uint64_t trm_ledger_beats(const struct trm_ledger_entry *entry);
void trm_ledger_read(const struct trm_ledger_entry *entry, struct trm_ledger_rank *rank);

bool trm_ledger_waits(enum trm_ledger_operation operation);        /* for other ranks */
bool trm_ledger_is_collective(enum trm_ledger_operation operation);
/* Put in words what a rank does: "computes forward of layer 4 in step 812", "waits in allreduce #9 of the data axis in
 * step 812"; an operation: "in allreduce #9 of the data axis". Return text. */
const char *trm_ledger_text(const struct trm_ledger_rank *rank, char text[256]);
const char *trm_ledger_operation_text(const struct trm_ledger_call *call, char text[160]);

/* -- files: run.dir/ledger/node-R.jsonl of the node whose first rank is R, a line of JSON for each rank of the node:
 *   {"rank":3,"host":"a","pid":123,"written":1.7e9,"beat":9,"runs":1,"state":"?","progress":80,"since_s":0.5,
 *    "phase":"step","step":812,"layer":4,"pass":"forward","operation":"allreduce","of":"the data axis","group":77,
 *    "number":9,"bytes":4096,"peer":-1}
 * written: seconds since 1970; beat: times that this file was written. */

/* Replaces the file of a node in one step. beat: of the file. TRM_FAILED without a message: the folder cannot be
 * written. */
int trm_ledger_file_write(const char *folder, int node, const struct trm_ledger_rank *rank, int ranks, uint64_t beat);
/* Reads it: sets up to `ranks` of rank, and *beat and *written_s. Returns their number, 0 if there is no such file. */
int trm_ledger_file_read(const char *path, struct trm_ledger_rank *rank, int ranks, uint64_t *beat, double *written_s);
/* Reads the files of all nodes of a run. Returns the number of ranks, sorted; *rank: owned by the caller. *newest_s:
 * seconds since the newest file was written, by this machine's clock; below 0: there is none. */
int trm_ledger_folder_read(const char *run_dir, struct trm_ledger_rank **rank, double *newest_s);
void trm_ledger_folder_remove(const char *run_dir); /* with the files of all nodes */

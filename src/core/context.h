/* State that belongs to a rank and outlives a call: none of it is static, so that several ranks can live in a process.
 *
 * Each thread works for one rank and has a context, which leads to that rank's state. A program does nothing for this:
 * by default a process is one rank. A scheduler that runs several ranks as fibers of one thread gives each fiber a
 * context and each rank a state, and calls trm_context_set whenever it switches fibers. */
#pragma once

#include <pthread.h>

#include "core/comm.h"

/* Messages of a rank to itself that are not matched yet, in order of the calls (comm_self.c). */
struct trm_mailbox {
  pthread_mutex_t lock;
  struct trm_request *messages, *receives;
};

/* Of a rank, shared by all its threads. Each field is set by the function named. */
struct trm_rank_state {
  int log_rank, log_size;     /* trm_log_set_rank */
  bool log_quiet;             /* trm_log_set_quiet */
  bool oversubscribed;        /* trm_comm_set_oversubscribed */
  int threads;                /* that compute for the rank: trm_job_open; 1 before */
  bool warned_of_tmpfs;       /* trm_mapped_create */
  struct trm_trace *trace;    /* trm_trace_start; NULL: off */
  struct trm_comm *regions;   /* trm_trace_start_regions; NULL: off */
  struct trm_ledger_entry *ledger; /* trm_ledger_open; NULL: off */
  struct trm_comm self;       /* trm_comm_self */
  struct trm_mailbox mailbox; /* of self */
};
/* Sets the defaults: rank 0 of 1, nothing under way. The state must stay where it is. */
void trm_rank_state_init(struct trm_rank_state *state);

/* Of a thread or a fiber. */
struct trm_context {
  struct trm_rank_state *rank; /* not owned; NULL: the process's own */
  struct trm_ledger_entry *ledger; /* trm_ledger_open; NULL: off, or another thread's */
  char error_text[4096];       /* trm_error_text */
  char text[8][256];           /* trm_context_text */
  unsigned next_text;
};
/* The context of the calling thread, its own if none has been set. */
struct trm_context *trm_context_current(void);
/* Makes this the calling thread's context, which stays the caller's; NULL: the thread's own again. */
void trm_context_set(struct trm_context *context);
/* The state of the rank that the calling thread works for. */
struct trm_rank_state *trm_rank_current(void);
/* As pthread_create with default attributes, for a thread that works for the caller's rank. */
int trm_context_start_thread(pthread_t *thread, void *(*run)(void *argument), void *argument);

/* Returns a buffer of 256 bytes for a text to return: valid until the thread has requested eight more. */
char *trm_context_text(void);

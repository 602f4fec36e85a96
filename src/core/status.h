/* Status codes and the one error message.
 *
 * Every function that can fail returns an int status. The first function that sees the reason records it with
 * trm_error; the callers return the status with TRM_CHECK. The program prints the message once. */
#pragma once

#include "core/api.h"

TRM_BEGIN_DECLS

/* The values are the program's exit codes. */
enum trm_status {
  TRM_OK = 0,
  TRM_FAILED = 1,  /* the work could not be done: file, memory, numbers, another rank */
  TRM_USAGE = 2,   /* the request was wrong: option, configuration, shape */
  TRM_STOPPED = 3, /* stopped on purpose after a checkpoint was written */
  TRM_STALLED = 4, /* no rank made progress any more (run.stall_abort) */
};

/* Records the message (printf form, no newline) for this thread and returns status.
 * A message should name the thing: file, option, layer, shape. */
int trm_error(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts "context: " before the recorded message and returns status. */
int trm_error_context(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Returns the last message of this thread (or fiber: core/context.h), "" if none. Owned by the library, valid until the
 * next error. */
const char *trm_error_text(void);

/* Sets how trm_abort ends the process: the communicator's abort once MPI has started. NULL: exit. */
void trm_set_abort(void (*hook)(int status));
void trm_abort(int status) __attribute__((noreturn)); /* prints nothing: the caller prints the reason first */

#define TRM_CHECK(call)                  \
  do {                                   \
    const int trm_check_status = (call); \
    if (trm_check_status != TRM_OK)      \
      return trm_check_status;           \
  } while (0)

TRM_END_DECLS

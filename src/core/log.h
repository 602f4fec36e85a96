/* The log, on stderr: informative lines from rank 0, warnings and errors from any rank. Results, such as those of
 * `options` or `bench --json`, go to stdout. */
#pragma once

#include <stdbool.h>

#include "core/api.h"

TRM_BEGIN_DECLS

/* Sets the rank of the log's lines and whether they name it (size > 1). Default: rank 0 of 1. */
void trm_log_set_rank(int rank, int size);
int trm_log_rank(void);

bool trm_log_set_quiet(bool quiet); /* true: no informative lines. Returns what it was before */

/* Prints an informative line, on rank 0 only. A newline is added. */
void trm_info(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints a warning, on the calling rank: "trireme: warning: ..." or "trireme: rank 3: warning: ...". */
void trm_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints trm_error_text() as the error line: "trireme: rank 3: error: ...". Rank prefix only if size > 1. */
void trm_log_error(void);

/* For functions that cannot return an error: prints it, too, and calls trm_abort. TRM_OK: does nothing. */
void trm_abort_on_error(int status);

/* Prints the progress line, on rank 0 only: on a terminal it replaces the one before, otherwise it is an ordinary line.
 * trm_progress_end keeps the last one on the terminal. */
void trm_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void trm_progress_end(void);
bool trm_progress_is_terminal(void);

TRM_END_DECLS

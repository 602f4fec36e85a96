/* The log: informative lines from rank 0, warnings and errors from any rank, all on stderr
 * (results asked for, such as `options` or `bench --json`, go to stdout). */
#ifndef TRM_CORE_LOG_H
#define TRM_CORE_LOG_H

#include <stdbool.h>

#include "core/api.h"

TRM_BEGIN_DECLS

/* The rank in prefixes, and the size of the job. Until set: rank 0 of 1. */
void trm_log_set_rank(int rank, int size);
int trm_log_rank(void);

void trm_log_set_quiet(bool quiet); /* true: no informative lines */

/* Informative line, printed by rank 0 alone. A newline is added. */
void trm_info(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Warning, printed by the rank that calls: "trireme: warning: ..." or "trireme: rank 3: warning: ...". */
void trm_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints trm_error_text() as the error line: "trireme: rank 3: error: ...". Rank prefix only if size > 1. */
void trm_log_error(void);

/* The progress line: on a terminal it overwrites itself (rank 0), otherwise it is an ordinary line.
 * trm_progress_end() leaves the last one standing. */
void trm_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void trm_progress_end(void);
bool trm_progress_is_terminal(void);

TRM_END_DECLS
#endif

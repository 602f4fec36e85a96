/* The audit log of a directory, audit.jsonl: a line for each event, which has the SHA-256 of the line before: a line
 * that is changed, removed or inserted shows, unless all lines after it are changed, too. The hash of the last line,
 * stored elsewhere, also shows a log that was cut or written a second time. One process at a time appends
 * (core/lease.h). */
#pragma once

#include <stdint.h>

#include "core/api.h"

TRM_BEGIN_DECLS

/* Texts are not owned; NULL: the line does not have the field. */
struct trm_audit_event {
  const char *event;          /* "start", "checkpoint", "end" */
  uint64_t step;
  const char *file;           /* that was written */
  const char *data, *config;  /* digest of the data set; SHA-256 of the configuration */
  const char *status, *weights_sha256;
};

/* Appends a line, with the time, user, host, batch job and command of the process, and brings it to the disk. A last
 * line that a killed process left incomplete is removed. */
int trm_audit_append(const char *directory, const struct trm_audit_event *event);

/* Verifies the log: sets *lines, and hash to that of the last one (of no line: zeros). TRM_FAILED: the message names
 * the first wrong line; or there is no log. */
int trm_audit_verify(const char *directory, uint64_t *lines, char hash[65]);

TRM_END_DECLS

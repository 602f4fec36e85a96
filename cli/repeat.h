/* Parts of `trireme repeat`: what a run has recorded, and the comparison of two runs. */
#pragma once

#include <stdbool.h>

#include "core/document.h"
#include "core/options.h"

/* A finished run, read from its directory. */
struct repeat_run {
  char *dir;                  /* owned, absolute */
  struct trm_options options; /* of config.yaml */
  struct trm_node *record, *summary;
  bool simulated, replays; /* on a virtual network; its repetition follows a recorded order of events */
};

/* Reads and checks a run. For repeat_run_close, also on failure. TRM_USAGE: there is no run, it has not ended, its
 * record is missing or damaged, or config.yaml was changed since. */
int repeat_run_open(struct repeat_run *run, const char *dir);
void repeat_run_close(struct repeat_run *run);
/* A text or number of the record, which repeat_run_open has checked; "" where it is null. */
const char *repeat_record_text(const struct repeat_run *run, const char *key);
int repeat_record_number(const struct repeat_run *run, const char *key);
/* TRM_USAGE: the program has another version than the run's, or the data or another file is not the run's. Paths are
 * relative to the working folder. */
int repeat_check_inputs(const struct repeat_run *run);
/* TRM_USAGE, and the reason: the run cannot be repeated, whatever is on this machine. */
int repeat_check_method(struct repeat_run *run);
/* Warns of each library, compiler and processor that the runs do not have in common. */
void repeat_warn_of_software(const struct repeat_run *first, const struct repeat_run *second);

/* TRM_OK: the weights and metrics of two runs are equal, but for times. TRM_FAILED: the message names the first
 * difference. */
int repeat_compare(const struct repeat_run *first, const struct repeat_run *second);

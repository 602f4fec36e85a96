/* The state of a run, read from the files in its directory. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

/* A state by `status` in summary.json, which is written at the end of each process that trains. */
struct run_state {
  const char *status; /* NULL: there is no such file, or another job's */
  int code;           /* an exit status, also of the program */
  const char *text;
};
enum { RUN_NOT_ENDED = 5 }; /* a code beside those of core/status.h */

/* Sets *state, which is static. Fails if summary.json is there and cannot be read. */
int run_state_read(const char *run, const struct run_state **state);

/* Files that a job replaces: two looks show what it has done between them. A file that is not there is all zeros. */
struct run_files {
  struct run_file {
    ino_t number;
    struct timespec written;
  } config, summary; /* config.yaml: when training begins; summary.json: at its end */
  struct run_file lease; /* renewed while the process runs that writes to the directory (core/lease.h) */
  char newest[64];   /* the name of the newest checkpoint */
};

void run_files_look(const char *run, struct run_files *files);
bool run_file_differs(const struct run_file *a, const struct run_file *b);

/* The words of the command that `trireme run` starts: launcher, program, `train`, configuration and options; and the
 * hosts that are put in. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct run_hosts {
  char **name;     /* (count), owned */
  size_t capacity; /* of name */
  int count;
  int ranks_per_host;
};

struct run_words {
  char *const *word; /* (count) */
  int count;
  int train;         /* the index of the first `train`; the program is before it */
};

/* Fails if there is no program and `train`. */
int run_words_open(struct run_words *words, char *const *word, int count);
/* Returns true if hosts, nodes or ranks are to be put in. */
bool run_words_name_hosts(const struct run_words *words);
/* Returns the words of a job on these hosts, then NULL: {hosts} is replaced by their names, separated by commas,
 * {nodes} by their number, {ranks} by that of their ranks. resumes: from the newest checkpoint. For run_words_free. */
char **run_words_of_job(const struct run_words *words, const struct run_hosts *hosts, bool resumes);
/* Returns the words that start a program, by its words, which end with NULL, once on a host as the job would be. For
 * run_words_free. */
char **run_words_on_host(const struct run_words *words, const char *host, const char *const *program);
void run_words_free(char **list);

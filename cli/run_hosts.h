/* The hosts of a job that `trireme run` starts. */
#pragma once

#include "cli/run_words.h"

/* Sets the hosts from a list with commas; NULL: those of the Slurm allocation. ranks: on each host; 0: Slurm's
 * --ntasks-per-node, or 1. Fails if there are no hosts. Hosts that any function here sets are for run_hosts_free. */
int run_hosts_open(struct run_hosts *hosts, const char *list, int ranks);
void run_hosts_copy(struct run_hosts *to, const struct run_hosts *from);
/* Sets *answering to those on which the launcher of the command starts a program within 20 s. Returns the signal that
 * came meanwhile, or 0. */
int run_hosts_probe(const struct run_hosts *hosts, const struct run_words *words, struct run_hosts *answering);
/* Removes the files of a folder on all hosts by the command's launcher, as far as they answer within 20 s. */
void run_hosts_remove(const struct run_hosts *hosts, const struct run_words *words, const char *folder);
void run_hosts_free(struct run_hosts *hosts);

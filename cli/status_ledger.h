/* The ranks of a run that goes on, for `trireme status`. */
#pragma once

/* Prints what each rank does, by the ledger in the run's directory (core/ledger.h); nothing if there is none. */
void status_print_ledger(const char *run_dir);

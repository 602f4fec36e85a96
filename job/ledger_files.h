/* The files of the ledger in run.dir/ledger, one a node, by which nodes know of one another. A thread writes and reads
 * them: a file system that does not answer holds up the thread alone. Not collective. */
#pragma once

#include "core/ledger.h"

struct trm_ledger_files;

/* Starts the thread. node: the first rank of this node; other: (count) those of the other nodes; both name files.
 * ranks: of the job. */
int trm_ledger_files_start(struct trm_ledger_files **files, const char *folder, int node, const int *other, int count,
                           int ranks);
/* Has this node's file replaced by a copy of the entries of rank. A copy that is not yet written is dropped. */
void trm_ledger_files_write(struct trm_ledger_files *files, const struct trm_ledger_rank *rank, int ranks);
void trm_ledger_files_wait(struct trm_ledger_files *files); /* until all is written */
/* Has the files of the other nodes read. */
void trm_ledger_files_read(struct trm_ledger_files *files);
/* Sets rank, `ranks` at most, to what was read of other node i, and *beat. Returns their number; 0: no file yet. */
int trm_ledger_files_get(struct trm_ledger_files *files, int i, struct trm_ledger_rank *rank, int ranks,
                         uint64_t *beat);
/* Ends the thread, removes this node's file, and frees. NULL is allowed. */
void trm_ledger_files_stop(struct trm_ledger_files *files);

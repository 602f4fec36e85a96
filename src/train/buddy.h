/* Copies of the state in the memory of two nodes (run.buddy), from which a run goes on that has lost a node (double
 * in-memory checkpointing: Zheng, Shi and Kale 2004). A copy is an ordinary checkpoint, a file in the node's memory
 * (memory_files.h), since processes of a job do not outlive one that dies. Rank 0 writes it and sends it to its
 * partner, the first rank of the next node. The copy before it is removed when both have the new one, so a job that is
 * killed at any time leaves a whole copy on each of the two nodes. With one node there is no partner: the copy outlives
 * the processes alone. */
#pragma once

#include "train/checkpoint_files.h"
#include "core/comm.h"

struct trm_buddy {
  struct trm_comm *pair; /* rank 0 of the run, and its partner; owned; NULL: elsewhere, and with one node */
  bool writes, receives; /* this rank is rank 0, is the partner */
  struct trm_checkpoint_files files; /* of the folder in memory */
  char *chunk;           /* of a message, owned; NULL: the rank does neither */
  uint64_t step;         /* of the latest copy */
  bool written;          /* rank 0: its file is complete */
};

/* Returns the partner of rank 0; -1: there is one node. first (ranks): the first rank of each rank's node. */
int trm_buddy_partner(const int *first, int ranks);
/* Returns the rank whose node has the newest copy; -1: none has one. found (ranks): 1 + the step of its copy, 0: none.
 * Of several, the first. */
int trm_buddy_choose(const uint64_t *found, int ranks);

/* Collective over comm. first: the first rank of this rank's node. folder: in the memory of each node, kept by the
 * caller; it is made where copies are, and what is there is removed, but for step `keep` (UINT64_MAX: none). bytes: of
 * a copy, on rank 0. Fails if there is no space for two copies, the new one and the one before. */
int trm_buddy_open(struct trm_buddy *buddy, struct trm_comm *comm, int first, const char *folder, uint64_t keep,
                   size_t bytes);
void trm_buddy_close(struct trm_buddy *buddy); /* collective over the pair */
/* Called by rank 0 and its partner, in any thread: rank 0 has tried to write the checkpoint of buddy->step (`written`):
 * sends it to the partner; both remove the one before. context: struct trm_buddy. A failure is a warning; always
 * TRM_OK. */
int trm_buddy_exchange(void *context);

/* Collective over comm. Returns true if a node's memory has an undamaged copy of step `from` or later: *step: of the
 * newest, which all nodes have then. first, folder: as above. A failure to copy it to a node is a warning, and there is
 * none then. */
bool trm_buddy_find(struct trm_comm *comm, int first, const struct trm_checkpoint_ops *ops, const char *folder,
                    uint64_t from, uint64_t *step);

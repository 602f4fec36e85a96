/* The area under the ROC curve (AUC) of a split, from the scores of all its rows: the mean over the classes, one
 * against the rest (measures.h). */
#pragma once

#include "core/comm.h"

enum { TRM_AUC_MIB = 256 }; /* the largest memory for the scores, of all ranks together */

/* The rows that this rank was given. */
struct trm_auc {
  size_t c, classes;       /* scores a row; classes: 2 with one score */
  struct auc_block *first; /* owned */
};

/* Returns true if so many rows of c scores, of all ranks, take no more than TRM_AUC_MIB. */
bool trm_auc_fits(size_t c, size_t rows);
/* The largest memory on a rank, bytes, with the rows divided among so many ranks. */
size_t trm_auc_bytes(size_t c, size_t rows, int ranks);

/* Keeps a copy of rows: scores (rows, c), label (rows). */
void trm_auc_keep(struct trm_auc *auc, size_t rows, const float *scores, const int32_t *label);
/* Returns the mean area over the classes that have rows; NAN: there are no two. support (classes): rows of each class,
 * of all ranks. Collective; the same on all ranks. */
double trm_auc_end(struct trm_auc *auc, const int64_t *support, struct trm_comm *comm);
void trm_auc_free(struct trm_auc *auc);

/* The area under the ROC curve: the fraction of pairs, of a row of the class and one of another, in which the first has
 * the higher probability; pairs of equal ones count half (Hanley and McNeil 1982). Every rank has the sorted
 * probabilities of the rows of each class, and looks up those of its own rows in the other classes. */
#include "train/auc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "train/measures.h"

/* Rows whose scores are kept. */
struct auc_block {
  struct auc_block *next;
  size_t rows;
  int32_t *label;  /* (rows) behind the scores */
  float scores[];  /* (rows, c) */
};

struct auc_area {
  double *sorted;  /* (rows of these classes) probabilities of a class's own rows, class by class */
  size_t *begin;   /* (classes + 1) */
  int64_t *wins;   /* (classes) twice the pairs */
  double *p;       /* (classes) what orders a row in each class */
};

bool trm_auc_fits(size_t c, size_t rows)
{
  return rows <= ((size_t)TRM_AUC_MIB << 18) / (c + 3);
}

size_t trm_auc_bytes(size_t c, size_t rows, int ranks)
{
  const size_t each = (rows + (size_t)ranks - 1) / (size_t)ranks;
  return each * (c + 1) * sizeof(float) /* blocks */
         + (each * ((size_t)ranks + 1) + rows) * (sizeof(double) + sizeof(int32_t));
}

void trm_auc_keep(struct trm_auc *auc, size_t rows, const float *scores, const int32_t *label)
{
  const size_t n = rows * auc->c;
  struct auc_block *block = trm_alloc(sizeof *block + n * sizeof(float) + rows * sizeof(int32_t), "scores");
  block->rows = rows;
  block->next = auc->first;
  block->label = (int32_t *)(block->scores + n);
  memcpy(block->scores, scores, n * sizeof *scores);
  memcpy(block->label, label, rows * sizeof *label);
  auc->first = block;
}

void trm_auc_free(struct trm_auc *auc)
{
  while (auc->first) {
    struct auc_block *next = auc->first->next;
    trm_free(auc->first);
    auc->first = next;
  }
}

static int auc_compare(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Of two classes, class 0 has the same area as class 1: it is left out. */
static size_t auc_first_class(const struct trm_auc *auc)
{
  return auc->classes == 2;
}

/* Sets p (classes) to what orders a row in each class. */
static void auc_order(const struct trm_auc *auc, const float *scores, double *p)
{
  if (auc->c == 1)
    p[1] = (double)scores[0];
  else
    trm_predicted_probabilities(scores, auc->c, p);
}

/* Collective. Gathers the probabilities of each class's own rows and sorts them. */
static void auc_gather(const struct trm_auc *auc, const int64_t *support, struct trm_comm *comm, struct auc_area *area)
{
  int64_t rows = 0, n = 0;
  for (const struct auc_block *b = auc->first; b; b = b->next)
    rows += (int64_t)b->rows;
  comm->ops->allreduce(comm, &rows, 1, TRM_INT64, TRM_MAX);
  const size_t each = (size_t)rows, all = each * (size_t)comm->size;
  double *own = trm_alloc((each + all) * sizeof *own, "probabilities"), *gathered = own + each;
  int32_t *class = trm_alloc((each + all) * sizeof *class, "classes"), *gathered_class = class + each;
  for (const struct auc_block *b = auc->first; b; b = b->next)
    for (size_t i = 0; i < b->rows; i++) {
      auc_order(auc, b->scores + i * auc->c, area->p);
      own[n] = area->p[b->label[i]];
      class[n++] = b->label[i];
    }
  for (; n < rows; n++) {
    own[n] = 0;
    class[n] = -1;
  }
  comm->ops->allgather(comm, own, gathered, each, TRM_DOUBLE);
  comm->ops->allgather(comm, class, gathered_class, each, TRM_INT32);
  area->begin[0] = 0;
  for (size_t k = 0; k < auc->classes; k++)
    area->begin[k + 1] = area->begin[k] + (size_t)support[k];
  area->sorted = trm_alloc((area->begin[auc->classes] + 1) * sizeof *area->sorted, "probabilities");
  for (size_t i = 0; i < all; i++)
    if (gathered_class[i] >= 0)
      area->sorted[area->begin[gathered_class[i]]++] = gathered[i];
  for (size_t k = auc->classes; k > 0; k--) /* they have moved to the ends */
    area->begin[k] = area->begin[k - 1];
  area->begin[0] = 0;
  for (size_t k = 0; k < auc->classes; k++)
    qsort(area->sorted + area->begin[k], (size_t)support[k], sizeof *area->sorted, auc_compare);
  trm_free(own);
  trm_free(class);
}

/* Returns the number of sorted values below x, or with `equal` up to it. */
static size_t auc_below(const double *sorted, size_t n, double x, bool equal)
{
  size_t low = 0;
  while (low < n) {
    const size_t middle = (low + n) / 2;
    if (sorted[middle] < x || (equal && sorted[middle] == x))
      low = middle + 1;
    else
      n = middle;
  }
  return low;
}

static void auc_count_wins(const struct trm_auc *auc, const struct auc_area *area)
{
  for (const struct auc_block *b = auc->first; b; b = b->next)
    for (size_t i = 0; i < b->rows; i++) {
      auc_order(auc, b->scores + i * auc->c, area->p);
      for (size_t k = auc_first_class(auc); k < auc->classes; k++) {
        const double *sorted = area->sorted + area->begin[k];
        const size_t n = area->begin[k + 1] - area->begin[k];
        if ((size_t)b->label[i] != k)
          area->wins[k] += (int64_t)(2 * n - auc_below(sorted, n, area->p[k], false) -
                                     auc_below(sorted, n, area->p[k], true));
      }
    }
}

/* Collective. */
static double auc_mean(const struct trm_auc *auc, const int64_t *support, struct trm_comm *comm)
{
  struct auc_area area = {.begin = trm_alloc((auc->classes + 1) * sizeof *area.begin, "classes"),
                          .wins = trm_alloc(auc->classes * sizeof *area.wins, "pairs"),
                          .p = trm_alloc(auc->classes * sizeof *area.p, "probabilities")};
  double sum = 0;
  int areas = 0;
  auc_gather(auc, support, comm, &area);
  auc_count_wins(auc, &area);
  comm->ops->allreduce(comm, area.wins, auc->classes, TRM_INT64, TRM_SUM);
  for (size_t k = auc_first_class(auc); k < auc->classes; k++) {
    const double own = (double)support[k], others = (double)area.begin[auc->classes] - own;
    if (own > 0 && others > 0) {
      sum += (double)area.wins[k] / (2 * own * others);
      areas++;
    }
  }
  trm_free(area.sorted);
  trm_free(area.begin);
  trm_free(area.wins);
  trm_free(area.p);
  return areas > 0 ? sum / areas : NAN;
}

/* The ranks of a virtual network are in one process: the first computes the AUC with the rows of all. Collective. */
static double auc_of_process(struct trm_auc *auc, const int64_t *support, struct trm_comm *comm)
{
  struct trm_auc **all = trm_alloc((size_t)comm->size * sizeof *all, "areas");
  double mean = NAN;
  comm->ops->allgather(comm, &auc, all, sizeof auc, TRM_BYTE);
  for (int rank = 1; rank < comm->size && comm->rank == 0; rank++)
    while (all[rank]->first) {
      struct auc_block *block = all[rank]->first;
      all[rank]->first = block->next;
      block->next = auc->first;
      auc->first = block;
    }
  if (comm->rank == 0)
    mean = auc_mean(auc, support, trm_comm_self());
  comm->ops->broadcast(comm, &mean, 1, TRM_DOUBLE, 0);
  trm_free(all);
  return mean;
}

double trm_auc_end(struct trm_auc *auc, const int64_t *support, struct trm_comm *comm)
{
  struct trm_comm *process = comm->ops->split_node(comm, TRM_SHARE_PROCESS);
  const bool one = process->size == comm->size && comm->size > 1;
  process->ops->release(process);
  return one ? auc_of_process(auc, support, comm) : auc_mean(auc, support, comm);
}

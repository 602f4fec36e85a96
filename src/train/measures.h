/* Measures of a model on a split besides loss and accuracy, from the scores of all its rows. Each is the value of
 * scikit-learn's function of that name, but for:
 * - the AUC of several classes: the mean over the classes that have rows (one class against the rest; Hand and Till
 *   2001, section 2), where scikit-learn gives none if a class has no row. Rows are ordered by the probability of the
 *   class, in double precision, with a single score by it. It is exact in every layout: the scores of all rows are
 *   kept. Two scores that differ by rounding alone may have another order in another layout.
 * - the expected calibration error (Guo et al. 2017, equation 3): 15 bins of equal width (a, b] of the highest
 *   probability of a row; the sum over the bins of |right rows - sum of these probabilities|, divided by all rows. */
#pragma once

#include "core/comm.h"
#include "nn/loss.h"

TRM_BEGIN_DECLS

enum trm_measure {
  TRM_TOP5,     /* of more than 5 classes; of equal scores the last ones count as the highest */
  TRM_F1_MACRO, /* mean over the classes with rows or predictions; over all labels, 0 of those without either */
  TRM_F1_MICRO, /* of one class a row: the accuracy; of labels: of all rows and labels together */
  TRM_AUC,
  TRM_ECE,      /* of losses that make probabilities of scores: not of hinge */
  TRM_MAE,      /* this and the next two: of several values a row the mean over them */
  TRM_RMSE,
  TRM_R2,
  TRM_MEASURES
};

/* The measures of one evaluation, indexed by enum trm_measure. */
struct trm_measures {
  bool applies[TRM_MEASURES]; /* to the loss, and computed */
  double value[TRM_MEASURES]; /* NAN: does not apply, not defined (AUC of a single class), a score is not finite */
};

/* The name and format of a measure. */
struct trm_measure_text {
  const char *key, *name; /* in JSON; in text */
  const char *format;     /* of value * scale */
  double scale;
};
extern const struct trm_measure_text trm_measure_texts[TRM_MEASURES];
/* Writes those that apply as "NAME VALUE, NAME VALUE"; "" if none does. Returns text. */
const char *trm_measures_text(const struct trm_measures *measures, char *text, size_t bytes);

/* A measurement of one rank: counts and sums over the rows that it was given, and for the AUC their scores. */
struct trm_measurement;

/* Of scores that a loss with these targets has. rows: of the split, of all ranks. confusion: counts the confusion
 * matrix, too. The AUC is left out, with a message, where the scores would take more than 256 MiB: 4 (C + 3) bytes a
 * row. Returns NULL for tokens, which have no measures. */
struct trm_measurement *trm_measurement_create(const struct trm_loss *loss, const struct trm_input_spec *spec,
                                               size_t rows, bool confusion);
void trm_measurement_free(struct trm_measurement *m); /* NULL is allowed */
/* The largest memory that a measurement takes on a rank, bytes, with the rows divided among so many ranks. */
size_t trm_measurement_bytes(const struct trm_loss *loss, const struct trm_input_spec *spec, size_t rows, int ranks);

/* Adds rows: scores (rows, C), and target_class (rows) or target_value (rows, values); host. */
void trm_measurement_add(struct trm_measurement *m, size_t rows, const float *scores, const int32_t *target_class,
                         const float *target_value);
/* The same as trm_pass.scored, which takes the measurement as its context. Collective over the axis of sharded scores,
 * all of whose ranks add the rows. */
void trm_measurement_add_pass(void *measurement, const struct trm_loss_call *call);

/* Collective over comm, whose ranks together were given each row once. The same on all ranks. Counts are integers: they
 * do not depend on the number of ranks. */
void trm_measurement_end(struct trm_measurement *m, struct trm_comm *comm, struct trm_measures *measures);
/* After end: (C, C) rows of all ranks by class (row) and predicted class (column); NULL: not counted. */
const int64_t *trm_measurement_confusion(const struct trm_measurement *m);

/* Returns the class of the highest of the scores (c), the first of equal ones; with c = 1: 1 if the score is positive,
 * else 0. */
int32_t trm_predicted_class(const float *scores, size_t c);
/* p (C, or 2 with c = 1) = the probabilities that the loss makes of a row's scores (c): softmax; logistic of a single
 * score. */
void trm_predicted_probabilities(const float *scores, size_t c, double *p);

TRM_END_DECLS

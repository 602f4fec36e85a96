#include "train/dataset.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"

const char *trm_split_name(enum trm_split split)
{
  return (const char *const[]){"train", "validation", "test"}[split];
}

int trm_validation_option(const struct trm_options *options, double *fraction, const char **file)
{
  const char *text = options->data.validation ? options->data.validation : "";
  char *end;
  *fraction = strtod(text, &end);
  *file = NULL;
  if (*end != '\0' || (end == text && *text != '\0')) {
    *fraction = 0;
    *file = text;
    return TRM_OK;
  }
  if (*fraction >= 0 && *fraction < 1)
    return TRM_OK;
  return trm_error(TRM_USAGE, "data.validation: %s is not a fraction of the training split: give one below 1, such as "
                   "0.1, or a file", text);
}

/* A file with the run's test split is accepted only if it has a validation split. */
int trm_validation_find(const struct trm_dataset_ops *ops, const struct trm_options *options, const char **path)
{
  double fraction;
  const char *file;
  bool has = false;
  TRM_CHECK(trm_validation_option(options, &fraction, &file));
  *path = file ? file : options->data.file;
  if (fraction > 0)
    return TRM_OK;
  TRM_CHECK(ops->has_split(*path, TRM_SPLIT_VALIDATION, &has));
  if (file && !has && (strcmp(file, options->data.file) == 0 || strcmp(file, options->data.test) == 0))
    return trm_error(TRM_USAGE, "data.validation: %s has no validation split, and its test split is kept for the end; "
                     "give a fraction of the training split, such as 0.1, or another file", file);
  *path = file || has ? *path : NULL;
  return TRM_OK;
}

/* Opens the validation or test split and checks its shape against the training split's. */
static int dataset_open_evaluation(struct trm_dataset **dataset, const char *path, enum trm_split split,
                                  const struct trm_splits *splits, const struct trm_options *options,
                                  struct trm_comm *comm)
{
  const struct trm_dataset *train = splits->train;
  TRM_CHECK(train->ops->open(dataset, path, split, options, comm));
  if (trm_shape_count(&(*dataset)->spec.shape) != trm_shape_count(&train->spec.shape))
    return trm_error(TRM_USAGE, "data.%s: samples of %s have shape %s, those of %s %s", trm_split_name(split), path,
                     trm_shape_text(&(*dataset)->spec.shape), options->data.file, trm_shape_text(&train->spec.shape));
  return TRM_OK;
}

/* The splits of evaluations. */
struct dataset_found {
  const char *validation; /* the file with the validation split, of the options; NULL: none */
  bool has_test;
};

/* The first rank of a process looks for all of them. Collective. */
static int dataset_find(struct dataset_found *found, const char *test, const struct trm_dataset_ops *ops,
                        const struct trm_options *options, struct trm_comm *comm)
{
  struct trm_comm *process = comm->ops->split_node(comm, TRM_SHARE_PROCESS);
  int status = TRM_OK;
  *found = (struct dataset_found){NULL, false};
  if (process->rank == 0)
    status = trm_validation_find(ops, options, &found->validation);
  if (process->rank == 0 && status == TRM_OK)
    status = ops->has_split(test, TRM_SPLIT_TEST, &found->has_test);
  status = trm_agree(comm, status);
  process->ops->broadcast(process, found, sizeof *found, TRM_BYTE, 0);
  process->ops->release(process);
  return status;
}

int trm_splits_open(struct trm_splits *splits, const struct trm_dataset_ops *ops, const struct trm_options *options,
                    struct trm_comm *comm)
{
  const char *test = options->data.test[0] ? options->data.test : options->data.file;
  struct dataset_found found;
  *splits = (struct trm_splits){0};
  TRM_CHECK(ops->open(&splits->train, options->data.file, TRM_SPLIT_TRAIN, options, comm));
  TRM_CHECK(dataset_find(&found, test, ops, options, comm));
  if (!found.has_test && options->data.test[0])
    return trm_error(TRM_USAGE, "data.test: %s has no test split", test);
  if (found.validation)
    TRM_CHECK(dataset_open_evaluation(&splits->validation, found.validation, TRM_SPLIT_VALIDATION, splits, options,
                                      comm));
  if (found.has_test)
    TRM_CHECK(dataset_open_evaluation(&splits->test, test, TRM_SPLIT_TEST, splits, options, comm));
  return TRM_OK;
}

void trm_splits_close(struct trm_splits *splits)
{
  struct trm_dataset *const all[] = {splits->test, splits->validation, splits->train};
  for (int i = 0; i < 3; i++)
    if (all[i])
      all[i]->ops->close(all[i]);
}

void trm_encoding_free(struct trm_encoding *encoding)
{
  trm_free(encoding->name);
  trm_free(encoding->merge);
  *encoding = (struct trm_encoding){0};
}

void trm_host_batch_free(struct trm_host_batch *batch)
{
  trm_free(batch->dense);
  trm_free(batch->starts);
  trm_free(batch->columns);
  trm_free(batch->values);
  trm_free(batch->tokens);
  trm_free(batch->target_class);
  trm_free(batch->target_value);
  trm_free(batch->row_weight);
  memset(batch, 0, sizeof *batch);
}

/* The loading of a model's weights from a file by the names of nn/param_names.h, of which a pattern may skip some. */
#pragma once

#include "core/pattern.h"
#include "nn/param_names.h"

struct trm_param_load {
  const char *path;               /* of the file, for messages; not owned */
  const struct trm_model *model;  /* not owned */
  struct trm_param_names names;   /* owned */
  const struct trm_pattern *skip; /* names of parameters and tensors that are not loaded; NULL: none. Not owned */
  bool *found;                    /* (parameters) owned: the file has it */
  bool *loaded;                   /* (parameters) owned: and it is not skipped */
  char *skipped;                  /* owned: the skipped names with their reasons, NULL: none */
};

/* Release with trm_param_load_free. */
void trm_param_load_create(struct trm_param_load *load, const char *path, const struct trm_model *model,
                           const struct trm_pattern *skip);
void trm_param_load_free(struct trm_param_load *load);

/* Finds the place of a tensor of the file: *number of the parameter that takes its values; -1: none, it is left out.
 * TRM_USAGE: the model has no place for it, or it is there twice. */
int trm_param_load_find(struct trm_param_load *load, const char *tensor, int *number);
/* Follows for each number, before the values are read; same: the shapes are equal. *reads: the values are to be read;
 * otherwise the parameter is skipped. stored, here: both shapes as text. TRM_USAGE: the shape differs. */
int trm_param_load_take(struct trm_param_load *load, int number, const char *tensor, bool same, const char *stored,
                        const char *here, bool *reads);
/* After the last tensor. TRM_USAGE: the file lacks a parameter that is not skipped, or the pattern has skipped none. */
int trm_param_load_end(struct trm_param_load *load);
/* Logs what was loaded and what was not. */
void trm_param_load_log(const struct trm_param_load *load);

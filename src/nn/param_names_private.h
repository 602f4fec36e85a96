/* A cursor over a model's layers, with which a scheme names their parameters (private to src/nn). */
#pragma once

#include "nn/param_names.h"

struct trm_name_cursor {
  const struct trm_model *model;
  struct trm_param_name *name; /* (parameters) */
  int layer;                   /* the next one */
  int parameter;               /* its first parameter's number */
};

/* Returns true if the layer `ahead` of the next one is of that kind. */
bool trm_name_is(const struct trm_name_cursor *n, int ahead, const char *kind);
/* If the next layer is of that kind, names its parameters NAME.weight, NAME.bias, ..., and moves on. */
bool trm_name_assign(struct trm_name_cursor *n, const char *kind, const char *name, ...)
  __attribute__((format(printf, 3, 4)));
/* The same for a layer without parameters. */
bool trm_name_skip(struct trm_name_cursor *n, const char *kind);

/* Each names a whole model; false: the model is not of its kind. */
bool trm_param_names_gpt2(struct trm_name_cursor *n);
bool trm_param_names_resnet(struct trm_name_cursor *n);
bool trm_param_names_vgg(struct trm_name_cursor *n);

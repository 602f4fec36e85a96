/* How a scheme of names goes through a model's layers (private to src/nn). */
#ifndef TRM_NN_NAMES_PRIVATE_H
#define TRM_NN_NAMES_PRIVATE_H

#include "nn/names.h"

struct trm_naming {
  const struct trm_model *model;
  struct trm_name *of; /* (parameters) */
  int layer;           /* the next one */
  int parameter;       /* its first parameter's number */
};

/* Is the layer `ahead` of the next one of that kind? */
bool trm_naming_is(const struct trm_naming *n, int ahead, const char *kind);
/* If the next layer is of that kind its parameters are NAME.weight, NAME.bias, ..., and the naming goes on. */
bool trm_naming_take(struct trm_naming *n, const char *kind, const char *name, ...)
  __attribute__((format(printf, 3, 4)));
/* The same for a layer without parameters. */
bool trm_naming_pass(struct trm_naming *n, const char *kind);

/* Each names a whole model, or says that it is not of its kind. */
bool trm_names_gpt2(struct trm_naming *n);
bool trm_names_resnet(struct trm_naming *n);
bool trm_names_vgg(struct trm_naming *n);

#endif

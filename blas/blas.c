/* The table of host matrix products, and the look-up by name. */
#include "blas/blas.h"

#include <string.h>

#include "core/status.h"

const struct trm_blas_ops *const trm_blas_table[] = {&trm_blas_openblas, NULL};

const struct trm_blas_ops *trm_blas_find(const char *name)
{
  char known[128] = "auto";

  if (!strcmp(name, "auto"))
    return trm_blas_table[0];
  for (int i = 0; trm_blas_table[i]; i++) {
    if (!strcmp(name, trm_blas_table[i]->name))
      return trm_blas_table[i];
    strncat(known, ", ", sizeof(known) - strlen(known) - 1);
    strncat(known, trm_blas_table[i]->name, sizeof(known) - strlen(known) - 1);
  }
  trm_error(TRM_USAGE, "device.blas=%s: this build has no such library of matrix products (it has %s)", name, known);
  return NULL;
}

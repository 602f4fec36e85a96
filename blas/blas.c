/* The table of host matrix product libraries, and the look-up by name. */
#include "blas/blas.h"

#include <string.h>
#include <strings.h>

#include "core/options.h"
#include "core/status.h"

const struct trm_blas_ops *const trm_blas_table[] = {
#ifdef HAVE_ONEDNN
  &trm_blas_by_size,
#endif
  &trm_blas_openblas,
#ifdef BLAS_AMX
  &trm_blas_amx,
#endif
#ifdef HAVE_ONEDNN
  &trm_blas_onednn, &trm_blas_onednn_bf16,
#define MISSING ""
#else
#define MISSING "; configure found no oneDNN (Debian: libdnnl-dev)"
#endif
  NULL};

const struct trm_blas_ops *trm_blas_find(const char *name, enum trm_matmul matmul)
{
  char known[128] = "auto", previous[64] = "";
  bool is_known = !strcmp(name, "auto");

  for (int i = 0; trm_blas_table[i]; i++) {
    const struct trm_blas_ops *ops = trm_blas_table[i];

    is_known |= !strcmp(name, ops->name);
    const bool chosen = !strcmp(name, "auto") ? !ops->supported || ops->supported() : !strcmp(name, ops->name);
    if (chosen && matmul == ops->matmul)
      return ops;
    if (!strcmp(previous, ops->name))
      continue;
    strncpy(previous, ops->name, sizeof(previous) - 1);
    strncat(known, ", ", sizeof(known) - strlen(known) - 1);
    strncat(known, ops->name, sizeof(known) - strlen(known) - 1);
  }
  const char *type = trm_choice_text("device.matmul", matmul);
  if (!is_known)
    trm_error(TRM_USAGE, "device.blas=%s: this build has no such library of matrix products (it has %s)%s", name, known,
              MISSING);
  else if (!strcmp(name, "auto"))
    trm_error(TRM_USAGE, "device.matmul=%s: no library of this build supports it%s", type, MISSING);
  else
    trm_error(TRM_USAGE, "device.matmul=%s: %s does not support it; set device.blas=onednn%s", type, name, MISSING);
  return NULL;
}

enum trm_vectors trm_blas_core_vectors(const char *core)
{
  static const char *const table[][9] = {
    [TRM_VECTORS_OLD] = {"Prescott", "Core2", "Penryn", "Dunnington", "Nehalem", "Atom", "Generic", "Sandybridge"},
    [TRM_VECTORS_AVX2] = {"Haswell", "Zen", "Excavator", "Steamroller"},
    [TRM_VECTORS_AVX512] = {"SkylakeX", "Cooperlake", "SapphireRapids"}};

  for (int i = TRM_VECTORS_OLD; i < TRM_VECTORS_UNKNOWN; i++)
    for (int k = 0; table[i][k]; k++)
      if (strcasecmp(core, table[i][k]) == 0)
        return i;
  return TRM_VECTORS_UNKNOWN;
}

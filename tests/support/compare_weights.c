/* compare_weights A.h5 B.h5: prints the largest difference between weights of two checkpoints of one model, relative to
 * the largest value of the tensor in A. */
#include <math.h>
#include <stdio.h>

#include "core/status.h"
#include "datasets/datasets.h"
#include "mpi/real.h"

static int compare_load(const char *path, struct trm_checkpoint *c, struct trm_model *model)
{
  TRM_CHECK(trm_checkpoint_hdf5.read_head(path, c));
  TRM_CHECK(trm_model_create(model, c->model_text, c->loss_name, &c->spec));
  return trm_checkpoint_hdf5.read_arrays(path, c, model, true);
}

static double compare_difference(const float *a, const float *b, size_t n)
{
  double worst = 0, largest = 0;
  for (size_t i = 0; i < n; i++) {
    const double d = fabs((double)a[i] - (double)b[i]);
    if (!(d <= worst)) /* NaN counts */
      worst = d;
    largest = fmax(largest, fabs((double)a[i]));
  }
  return worst == 0 ? 0 : largest > 0 ? worst / largest : INFINITY;
}

int main(int argc, char **argv)
{
  if (argc != 3)
    return 2;
  trm_hdf5_init();
  struct trm_checkpoint c[2];
  struct trm_model model[2];
  for (int i = 0; i < 2; i++)
    if (compare_load(argv[1 + i], &c[i], &model[i]) != TRM_OK) {
      fprintf(stderr, "%s\n", trm_error_text());
      return 1;
    }
  if (c[0].states != c[1].states || c[0].updates != c[1].updates || model[0].parameters != model[1].parameters) {
    fprintf(stderr, "%s and %s are not of one moment of one run\n", argv[1], argv[2]);
    return 1;
  }
  double worst = 0;
  for (int n = 0; n < trm_model_parameter_count(&model[0]); n++) {
    const struct trm_parameter *p = trm_model_parameter(&model[0], n);
    const double d = compare_difference(c[0].state[0] + p->offset, c[1].state[0] + p->offset, p->count);
    worst = d > worst || isnan(d) ? d : worst;
  }
  printf("%.3g\n", worst);
  for (int i = 0; i < 2; i++) {
    trm_model_free(&model[i]);
    trm_checkpoint_free(&c[i]);
  }
  return 0;
}

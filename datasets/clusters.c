/* `trireme data make clusters`: Gaussian clusters, the data of arXiv 2401.09135, section 6, and of its authors' code. A
 * cluster has a center that is uniform on the unit sphere; a sample is its center plus normal noise in every dimension.
 * Each class has as many clusters as the others, and the clusters take turns, so that classes have equal numbers of
 * samples. Every value is a function of the seed, the split and its place. */
#include <math.h>

#include "core/memory.h"
#include "core/parallel.h"
#include "core/random.h"
#include "core/status.h"
#include "datasets/import.h"

enum { CHUNK = 1024 }; /* samples drawn before they are written */
enum stream { CENTERS, SPLITS }; /* of random numbers; then one for each split */

struct clusters {
  uint64_t seed, clusters, classes, features;
  float noise;
  float *center; /* (clusters, features) */
  float *x;      /* (CHUNK, features) */
  int32_t *class; /* (CHUNK) */
};

static void clusters_draw_center(const struct clusters *c, uint64_t cluster)
{
  float *center = c->center + cluster * c->features;
  double norm = 0;
  for (uint64_t i = 0; i < c->features; i++) {
    center[i] = trm_random_normal(c->seed, TRM_RANDOM_CLUSTERS, CENTERS, cluster * c->features + i);
    norm += (double)center[i] * (double)center[i];
  }
  for (uint64_t i = 0; i < c->features; i++)
    center[i] = (float)((double)center[i] / sqrt(norm));
}

static void clusters_draw_sample(const struct clusters *c, uint32_t split, uint64_t sample, float *x)
{
  const float *center = c->center + sample % c->clusters * c->features;
  for (uint64_t i = 0; i < c->features; i++)
    x[i] = center[i] + c->noise * trm_random_normal(c->seed, TRM_RANDOM_CLUSTERS, SPLITS + split,
                                                    sample * c->features + i);
}

/* Samples from `first` on. */
struct drawing {
  const struct clusters *clusters;
  uint32_t split;
  uint64_t first;
};

static void clusters_draw_body(const void *context, size_t low, size_t high)
{
  const struct drawing *it = context;
  const struct clusters *c = it->clusters;
  for (size_t i = low; i < high; i++) {
    const uint64_t sample = it->first + i;
    clusters_draw_sample(c, it->split, sample, c->x + i * c->features);
    c->class[i] = (int32_t)(sample % c->clusters / (c->clusters / c->classes));
  }
}

static int clusters_draw_split(const struct clusters *c, struct trm_data_writer *writer, uint32_t split,
                               uint64_t samples)
{
  TRM_CHECK(trm_data_writer_split(writer, split == 0 ? "train" : "test"));
  for (uint64_t first = 0; first < samples; first += CHUNK) {
    const int count = (int)(samples - first < CHUNK ? samples - first : CHUNK);
    const struct drawing drawing = {c, split, first};
    trm_parallel_for(trm_parallel_default(), (size_t)count, clusters_draw_body, &drawing);
    const struct trm_data_rows rows = {.rows = (size_t)count, .floats = c->x, .target_class = c->class};
    TRM_CHECK(trm_data_writer_append(writer, &rows));
  }
  return TRM_OK;
}

int trm_import_clusters(const struct trm_import_request *request)
{
  struct clusters c = {
    .seed = request->seed,
    .clusters = request->clusters ? request->clusters : 32,
    .classes = request->classes ? request->classes : 4,
    .features = request->features ? request->features : 512,
    .noise = (float)request->noise,
  };
  const uint64_t train = request->train ? request->train : 128000, test = request->test ? request->test : 10000;
  if (c.clusters % c.classes != 0)
    return trm_error(TRM_USAGE, "--clusters: %llu clusters cannot be divided equally among %llu classes",
                     (unsigned long long)c.clusters, (unsigned long long)c.classes);
  char *source = trm_format("Gaussian clusters, version 1, seed %llu: %llu clusters, noise %g",
                            (unsigned long long)c.seed, (unsigned long long)c.clusters, request->noise);
  const struct trm_data_spec spec = {
    .kind = TRM_DATA_VECTOR, .element = TRM_ELEMENT_FLOAT, .shape = {.dims = 1, .size = {c.features}},
    .target = TRM_TARGET_CLASS, .classes = c.classes, .source = source,
  };
  struct trm_data_writer *writer;
  int status = trm_import_begin(request, spec, &writer);
  trm_free(source);
  TRM_CHECK(status);
  c.center = trm_alloc(c.clusters * c.features * sizeof *c.center, "centers of clusters");
  c.x = trm_alloc(CHUNK * c.features * sizeof *c.x, "drawn samples");
  c.class = trm_alloc(CHUNK * sizeof *c.class, "drawn classes");
  for (uint64_t i = 0; i < c.clusters; i++)
    clusters_draw_center(&c, i);
  status = clusters_draw_split(&c, writer, 0, train);
  if (status == TRM_OK)
    status = clusters_draw_split(&c, writer, 1, test);
  trm_free(c.center);
  trm_free(c.x);
  trm_free(c.class);
  return trm_import_end(writer, status, 0);
}

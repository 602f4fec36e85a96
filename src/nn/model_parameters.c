/* The parameters of a model: numbers, initial values, digest. */
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/random.h"
#include "core/sha256.h"
#include "core/status.h"
#include "nn/model.h"

bool trm_slice_is_shard(const struct trm_slice *slice)
{
  return slice->high - slice->low < slice->extent;
}

size_t trm_slice_full_index(const struct trm_slice *slice, size_t element)
{
  const size_t run = (slice->high - slice->low) * slice->inner;
  return element / run * slice->extent * slice->inner + slice->low * slice->inner + element % run;
}

int trm_model_parameter_count(const struct trm_model *model)
{
  int count = 0;
  for (int i = 0; i < model->layers; i++)
    count += model->layer[i].parameters;
  return count;
}

struct trm_parameter *trm_model_parameter(const struct trm_model *model, int number)
{
  for (int i = 0; number >= 0 && i < model->layers; number -= model->layer[i++].parameters)
    if (number < model->layer[i].parameters)
      return &model->layer[i].parameter[number];
  return NULL;
}

size_t trm_model_size(const struct trm_model *model)
{
  size_t count = 0;
  for (int n = 0; n < trm_model_parameter_count(model); n++)
    count += trm_model_parameter(model, n)->statistic ? 0 : trm_model_parameter(model, n)->count;
  return count;
}

static float model_init_value(const struct trm_parameter *p, uint64_t seed, uint32_t number, uint64_t element)
{
  switch (p->init) {
  case TRM_INIT_ONE:
    return 1;
  case TRM_INIT_UNIFORM:
    return p->scale * (2 * trm_random_uniform(seed, TRM_RANDOM_INIT, number, element) - 1);
  case TRM_INIT_NORMAL:
    return p->scale * trm_random_normal(seed, TRM_RANDOM_INIT, number, element);
  case TRM_INIT_ZERO:
    break;
  }
  return 0;
}

void trm_parameter_init(const struct trm_parameter *p, uint64_t seed, float *host)
{
  for (size_t e = 0; e < p->count; e++)
    host[e] = model_init_value(p, seed, (uint32_t)p->number, trm_slice_full_index(&p->slice, e));
}

void trm_model_init(const struct trm_model *model, uint64_t seed, float *host_w)
{
  memset(host_w, 0, model->parameters * sizeof *host_w);
  for (int n = 0; n < trm_model_parameter_count(model); n++) {
    const struct trm_parameter *p = trm_model_parameter(model, n);
    trm_parameter_init(p, seed, host_w + p->offset);
  }
}

static int model_compare_names(const void *a, const void *b)
{
  const struct trm_parameter *x = *(const struct trm_parameter *const *)a, *y = *(const struct trm_parameter *const *)b;
  return strcmp(x->name, y->name);
}

/* Adds the values as little-endian floats. */
static void model_hash_add(struct trm_sha256 *hash, const float *values, size_t count)
{
  uint8_t bytes[4096];
  while (count) {
    const size_t batch = count < sizeof bytes / 4 ? count : sizeof bytes / 4;
    for (size_t i = 0; i < batch; i++) {
      uint32_t word;
      memcpy(&word, &values[i], 4);
      for (int b = 0; b < 4; b++)
        bytes[4 * i + (size_t)b] = (uint8_t)(word >> 8 * b);
    }
    trm_sha256_add(hash, bytes, 4 * batch);
    values += batch;
    count -= batch;
  }
}

int trm_model_hash_tensors(const struct trm_model *model,
                           int (*read_tensor)(void *context, int state, int number, const float **values),
                           void *context, char hex[65])
{
  const int count = trm_model_parameter_count(model);
  const struct trm_parameter **order = trm_alloc((size_t)count * sizeof *order, "order of the parameters");
  for (int n = 0; n < count; n++)
    order[n] = trm_model_parameter(model, n);
  qsort(order, (size_t)count, sizeof *order, model_compare_names);
  struct trm_sha256 hash;
  trm_sha256_begin(&hash);
  int status = TRM_OK;
  for (int n = 0; n < count && status == TRM_OK; n++) {
    const float *values = NULL;
    status = read_tensor(context, 0, order[n]->number, &values);
    if (status == TRM_OK)
      model_hash_add(&hash, values, order[n]->count);
  }
  trm_sha256_end(&hash, hex);
  trm_free(order);
  return status;
}

struct flat {
  const struct trm_model *model;
  const float *host_w;
};

static int model_flat_tensor(void *context, int state, int number, const float **values)
{
  (void)state;
  const struct flat *flat = context;
  *values = flat->host_w + trm_model_parameter(flat->model, number)->offset;
  return TRM_OK;
}

void trm_model_hash(const struct trm_model *model, const float *host_w, char hex[65])
{
  struct flat flat = {model, host_w};
  trm_model_hash_tensors(model, model_flat_tensor, &flat, hex);
}

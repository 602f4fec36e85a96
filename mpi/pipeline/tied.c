#include "mpi/pipeline/tied.h"

#include "core/memory.h"
#include "core/status.h"

enum { TAG = 16000 };

static void tied_weight_free(struct tied_weight *weight, struct trm_device *device)
{
  for (int i = 0; i < weight->copies && weight->gradient; i++) {
    if (weight->gradient[i])
      device->ops->release(device, weight->gradient[i]);
    if (!device->host_memory)
      trm_free(weight->host[i]);
  }
  trm_free(weight->stage);
  trm_free(weight->gradient);
  trm_free(weight->host);
  trm_free(weight->request);
}

/* Returns the start of the flat interval of the parameter's layer. */
static size_t tied_layer_low(const struct trm_model *model, const struct trm_parameter *parameter)
{
  for (int i = 0; i < model->layers; i++)
    if (parameter >= model->layer[i].parameter && parameter < model->layer[i].parameter + TRM_MAX_PARAMETERS)
      return model->layer[i].low;
  return 0;
}

int tied_create(struct tied *tied, struct trm_comm *comm, const struct trm_model *model)
{
  const int own = trm_model_parameter_count(model);
  int32_t max = -1; /* the largest number of a parameter of any stage */
  for (int i = 0; i < own; i++)
    max = trm_model_parameter(model, i)->number > max ? trm_model_parameter(model, i)->number : max;
  comm->ops->allreduce(comm, &max, 1, TRM_INT32, TRM_MAX);
  const size_t numbers = (size_t)max + 1, stages = (size_t)comm->size;
  const struct trm_parameter **parameter = trm_alloc(numbers * sizeof *parameter, "parameters of the stages");
  char *stage_has = trm_alloc(stages * numbers, "parameters of the stages"); /* (stages, numbers) */
  char *has = stage_has + (size_t)comm->rank * numbers;
  for (int i = 0; i < own; i++) {
    const struct trm_parameter *p = trm_model_parameter(model, i);
    parameter[p->number] = p;
    has[p->number] = 1;
  }
  comm->ops->allgather(comm, has, stage_has, numbers, TRM_BYTE);
  *tied = (struct tied){.comm = comm, .deferred_from = SIZE_MAX};
  tied->weight = trm_alloc((size_t)own * sizeof *tied->weight, "tied weights");
  for (size_t n = 0; n < numbers; n++) { /* in the same order on all stages */
    struct tied_weight weight = {.parameter = parameter[n]};
    for (size_t s = 0; s < stages; s++)
      weight.copies += stage_has[s * numbers + n];
    if (!has[n] || weight.copies == 1 || parameter[n]->frozen)
      continue;
    weight.stage = trm_alloc((size_t)weight.copies * sizeof *weight.stage, "tied weights");
    for (int s = 0, copy = 0; s < comm->size; s++)
      if (stage_has[(size_t)s * numbers + n]) {
        weight.self = s == comm->rank ? copy : weight.self;
        weight.stage[copy++] = s;
      }
    tied->weight[tied->weights++] = weight;
    const size_t low = tied_layer_low(model, weight.parameter);
    tied->deferred_from = low < tied->deferred_from ? low : tied->deferred_from;
  }
  trm_free(stage_has);
  trm_free(parameter);
  return TRM_OK;
}

static int tied_weight_alloc(struct tied_weight *weight, struct trm_device *device)
{
  const size_t n = (size_t)weight->copies, bytes = weight->parameter->count * sizeof(float);
  weight->gradient = trm_alloc(n * sizeof *weight->gradient, "tied weights");
  weight->host = trm_alloc(n * sizeof *weight->host, "tied weights");
  weight->request = trm_alloc(2 * n * sizeof *weight->request, "tied weights");
  for (size_t i = 0; i < n; i++) {
    void *memory;
    TRM_CHECK(device->ops->alloc(device, bytes, TRM_MEMORY_BUFFERS, &memory));
    weight->gradient[i] = memory;
    weight->host[i] = device->host_memory ? memory : trm_alloc(bytes, "gradients of tied weights");
  }
  return TRM_OK;
}

int tied_begin(struct tied *tied, struct trm_device *device)
{
  for (int w = 0; w < tied->weights; w++) {
    struct tied_weight *weight = &tied->weight[w];
    if (!weight->gradient)
      TRM_CHECK(tied_weight_alloc(weight, device));
    for (int i = 0; i < weight->copies; i++)
      if (i != weight->self)
        tied->comm->ops->receive_begin(tied->comm, weight->host[i], weight->parameter->count, TRM_FLOAT,
                                       weight->stage[i], TAG, &weight->request[weight->copies + i]);
  }
  return TRM_OK;
}

static bool tied_is_within(const struct tied_weight *weight, size_t low, size_t high)
{
  return weight->parameter->offset >= low && weight->parameter->offset < high;
}

void tied_accumulate(struct tied *tied, struct trm_device *device, size_t low, size_t high, bool first)
{
  for (int w = 0; w < tied->weights; w++) {
    const struct tied_weight *weight = &tied->weight[w];
    const size_t n = weight->parameter->count;
    if (!tied_is_within(weight, low, high))
      continue;
    float *mine = weight->gradient[weight->self], *g = weight->parameter->g;
    const float *const both[] = {mine, g};
    if (first)
      device->ops->copy(device, mine, g, n * sizeof(float));
    else
      device->ops->sum(device, &(struct trm_sum){.to = mine, .from = both, .count = 2, .n = n});
    device->ops->fill(device, g, 0, n);
  }
}

void tied_write(const struct tied *tied, struct trm_device *device, size_t low, size_t high, float *g)
{
  for (int w = 0; w < tied->weights; w++) {
    const struct tied_weight *weight = &tied->weight[w];
    if (tied_is_within(weight, low, high))
      device->ops->copy(device, g + (weight->parameter->offset - low), weight->gradient[0],
                        weight->parameter->count * sizeof(float));
  }
}

bool tied_in_chunk(const struct tied *tied, const struct trm_layer *layer, const struct trm_chunk *chunk)
{
  for (int w = 0; w < tied->weights; w++)
    for (int i = chunk->first; i < chunk->last; i++)
      if (tied_is_within(&tied->weight[w], layer[i].low, layer[i].high))
        return true;
  return false;
}

static void tied_weight_send(struct tied *tied, struct tied_weight *weight, struct trm_device *device, bool accumulated)
{
  const size_t n = weight->parameter->count;
  float *mine = weight->gradient[weight->self];
  if (!accumulated)
    device->ops->copy(device, mine, weight->parameter->g, n * sizeof(float));
  if (weight->host[weight->self] != mine)
    device->ops->download(device, weight->host[weight->self], mine, n * sizeof(float));
  for (int i = 0; i < weight->copies; i++)
    if (i != weight->self)
      tied->comm->ops->send_begin(tied->comm, weight->host[weight->self], n, TRM_FLOAT, weight->stage[i], TAG,
                                  &weight->request[i]);
}

static void tied_weight_sum(struct tied *tied, struct tied_weight *weight, struct trm_device *device, double *wait_s)
{
  const size_t n = weight->parameter->count;
  const double before = tied->comm->ops->clock(tied->comm);
  for (int i = 0; i < 2 * weight->copies; i++)
    tied->comm->ops->wait(&weight->request[i]);
  *wait_s += tied->comm->ops->clock(tied->comm) - before;
  for (int i = 0; i < weight->copies; i++)
    if (i != weight->self && weight->host[i] != weight->gradient[i])
      device->ops->upload(device, weight->gradient[i], weight->host[i], n * sizeof(float));
  device->ops->sum(device, &(struct trm_sum){
    .to = weight->gradient[0], .from = (const float *const *)weight->gradient, .count = weight->copies, .n = n});
}

int tied_allreduce(struct tied *tied, struct trm_device *device, bool accumulated, double *wait_s)
{
  for (int w = 0; w < tied->weights; w++)
    tied_weight_send(tied, &tied->weight[w], device, accumulated);
  for (int w = 0; w < tied->weights; w++) {
    const struct trm_parameter *parameter = tied->weight[w].parameter;
    tied_weight_sum(tied, &tied->weight[w], device, wait_s);
    if (!accumulated)
      tied_write(tied, device, parameter->offset, parameter->offset + parameter->count, parameter->g);
  }
  return tied->weights ? device->ops->sync(device) : TRM_OK;
}

void tied_free(struct tied *tied, struct trm_device *device)
{
  for (int w = 0; w < tied->weights; w++)
    tied_weight_free(&tied->weight[w], device);
  trm_free(tied->weight);
}

#include "mpi/pipeline/versions.h"

#include "core/memory.h"
#include "core/status.h"

static bool versions_is_2bw(const struct versions *v)
{
  return v->pipeline->schedule.name == TRM_2BW;
}

void versions_create(struct versions *versions, struct trm_pipeline *pipeline)
{
  *versions = (struct versions){.pipeline = pipeline};
  if (versions_is_2bw(versions))
    versions->count = 1;
  else if (pipeline->schedule.name == TRM_PIPEDREAM && pipeline->stash && pipeline->slots > 1)
    versions->count = pipeline->slots;
  versions->copy = trm_alloc((size_t)versions->count * sizeof *versions->copy, "versions of the weights");
}

static size_t versions_bytes(const struct versions *v)
{
  return v->pipeline->model->parameters * sizeof(float);
}

/* Takes memory for the copies, once. */
static int versions_alloc_copies(struct versions *v)
{
  struct trm_device *device = v->device = v->pipeline->model->device;
  for (int i = 0; i < v->count; i++)
    if (!v->copy[i])
      TRM_CHECK(device->ops->alloc(device, versions_bytes(v), TRM_MEMORY_BUFFERS, (void **)&v->copy[i]));
  if (versions_is_2bw(v))
    v->pipeline->stashed = v->copy[0];
  return TRM_OK;
}

static void versions_copy_newest(struct versions *v, int to, size_t low, size_t high)
{
  const struct trm_model *model = v->pipeline->model;
  model->device->ops->copy(model->device, v->copy[to] + low, model->w + low, (high - low) * sizeof(float));
}

int versions_begin(struct versions *versions)
{
  const bool first = versions_is_2bw(versions) && !versions->copy[0];
  TRM_CHECK(versions_alloc_copies(versions));
  if (first)
    versions_copy_newest(versions, 0, 0, versions->pipeline->model->parameters);
  versions->updates = 0;
  versions->in_use = versions->pipeline->model->w;
  return TRM_OK;
}

int versions_restore(struct versions *versions, const float *before)
{
  if (!versions_is_2bw(versions))
    return TRM_OK;
  TRM_CHECK(versions_alloc_copies(versions));
  versions->device->ops->upload(versions->device, versions->copy[0], before, versions_bytes(versions));
  return versions->device->ops->sync(versions->device);
}

static void versions_bind(struct versions *v, float *w)
{
  struct trm_model *model = v->pipeline->model;
  if (w == v->in_use)
    return;
  v->in_use = w;
  trm_model_use_weights(model, w);
}

void versions_use(struct versions *versions, const struct trm_action *action, int batch)
{
  float *w = versions->pipeline->model->w;
  if (versions_is_2bw(versions)) {
    w = batch == versions->updates ? versions->copy[0] : w;
  } else if (versions->count) {
    const int at = action->micro % versions->count;
    if (action->kind == TRM_FORWARD)
      versions_copy_newest(versions, at, 0, versions->pipeline->model->parameters);
    w = versions->copy[at];
  }
  versions_bind(versions, w);
}

void versions_backward_done(struct versions *versions, size_t low, size_t high)
{
  if (versions_is_2bw(versions))
    versions_copy_newest(versions, 0, low, high);
}

void versions_step(struct versions *versions)
{
  versions->updates++;
}

void versions_end(struct versions *versions)
{
  versions_bind(versions, versions->pipeline->model->w);
}

void versions_free(struct versions *versions)
{
  for (int i = 0; i < versions->count; i++)
    if (versions->copy[i])
      versions->device->ops->release(versions->device, versions->copy[i]);
  trm_free(versions->copy);
}

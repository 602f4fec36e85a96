#include "train/staged_provider.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

struct staged_buffer {
  struct staged_buffer *next;
  size_t low, n;    /* the interval that it has, or had: first element, elements */
  size_t capacity;  /* elements */
  float *w, *g;     /* device, (capacity) */
  float *host_g;    /* the strategy's gradient of the interval, from its first acquisition with one until it is
                       complete, and longer if gradients are whole; else NULL */
  int users;        /* acquisitions */
};

static bool staged_provider_is_free(const struct staged_buffer *b)
{
  return b->users == 0 && !b->host_g;
}

static struct staged_buffer *staged_provider_find(const struct trm_staged_provider *staged, size_t low)
{
  for (struct staged_buffer *b = staged->buffers; b; b = b->next)
    if (b->low == low && !staged_provider_is_free(b))
      return b;
  return NULL;
}

/* Takes memory for n elements, in place of a smaller buffer. Ends the job if there is none: others wait for this
 * rank. */
static void staged_provider_grow(struct trm_device *device, struct staged_buffer *b, size_t n)
{
  float **const array[] = {&b->w, &b->g};
  for (int i = 0; i < 2; i++) {
    device->ops->release(device, *array[i]);
    trm_abort_on_error(device->ops->alloc(device, n * sizeof(float), TRM_MEMORY_UNITS, (void **)array[i]));
  }
  b->capacity = n;
}

/* Returns the smallest free buffer for n elements; if there is none, the largest free one, or a new one. */
static struct staged_buffer *staged_provider_take(struct trm_staged_provider *staged, size_t low, size_t n)
{
  struct staged_buffer *best = NULL;
  for (struct staged_buffer *b = staged->buffers; b; b = b->next)
    if (staged_provider_is_free(b) &&
        (!best ||
         (best->capacity < n ? b->capacity > best->capacity : b->capacity >= n && b->capacity < best->capacity)))
      best = b;
  if (!best) {
    best = trm_alloc(sizeof *best, "buffers of the layers at work");
    best->next = staged->buffers;
    staged->buffers = best;
  }
  if (best->capacity < n)
    staged_provider_grow(staged->device, best, n);
  best->low = low;
  best->n = n;
  return best;
}

static void staged_provider_acquire(void *context, size_t low, size_t high, enum trm_acquire_mode mode, float **w,
                                    float **g)
{
  struct trm_staged_provider *staged = context;
  const struct trm_param_provider *inner = staged->inner;
  struct trm_device *device = staged->device;
  float *host_w, *host_g;
  inner->acquire(inner->context, low, high, mode, &host_w, &host_g);
  struct staged_buffer *b = staged_provider_find(staged, low);
  if (!b)
    b = staged_provider_take(staged, low, high - low);
  b->users++;
  device->ops->upload(device, b->w, host_w, b->n * sizeof(float));
  if (host_g && !b->host_g) { /* some of its elements may be of layers that are not in this pass */
    device->ops->fill(device, b->g, 0, b->n);
    b->host_g = host_g;
  }
  *w = b->w;
  *g = host_g ? b->g : NULL;
}

static void staged_provider_download(const struct trm_staged_provider *staged, const struct staged_buffer *b)
{
  staged->device->ops->download(staged->device, b->host_g, b->g, b->n * sizeof(float));
}

static void staged_provider_release(void *context, size_t low, size_t high, enum trm_acquire_mode mode)
{
  struct trm_staged_provider *staged = context;
  const struct trm_param_provider *inner = staged->inner;
  struct staged_buffer *b = staged_provider_find(staged, low);
  b->users--;
  if (inner->overwrites_gradient && mode == TRM_ACQUIRE_BACKWARD) {
    staged_provider_download(staged, b);
    b->host_g = NULL;
  }
  inner->release(inner->context, low, high, mode);
}

void trm_staged_provider_ready(struct trm_staged_provider *staged, size_t low)
{
  if (!staged->inner->overwrites_gradient)
    staged_provider_download(staged, staged_provider_find(staged, low));
}

void trm_staged_provider_open(struct trm_staged_provider *staged, const struct trm_param_provider *inner,
                              struct trm_device *device)
{
  *staged = (struct trm_staged_provider){.inner = inner, .device = device};
  staged->provider = (struct trm_param_provider){.overwrites_gradient = inner->overwrites_gradient,
                                                 .acquire = staged_provider_acquire,
                                                 .release = staged_provider_release,
                                                 .context = staged};
}

void trm_staged_provider_free(struct trm_staged_provider *staged)
{
  while (staged->buffers) {
    struct staged_buffer *b = staged->buffers;
    staged->buffers = b->next;
    staged->device->ops->release(staged->device, b->w);
    staged->device->ops->release(staged->device, b->g);
    trm_free(b);
  }
}

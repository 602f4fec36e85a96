#include "train/charged_device.h"

/* device is the first field of the struct */
static const struct trm_device_ops *charged_inner(const struct trm_device *device)
{
  return ((const struct trm_charged_device *)device)->inner;
}

static const struct trm_array_costs *charged_costs(const struct trm_device *device)
{
  return &((const struct trm_charged_device *)device)->costs;
}

static void charged_pass_time(const struct trm_device *device, double seconds_per_byte, size_t floats)
{
  struct trm_comm *comm = ((const struct trm_charged_device *)device)->comm;
  comm->ops->compute(comm, NULL, NULL, seconds_per_byte * (double)(floats * sizeof(float)));
}

static void charged_copy(struct trm_device *device, void *to, const void *from, size_t bytes)
{
  charged_inner(device)->copy(device, to, from, bytes);
  charged_pass_time(device, charged_costs(device)->copy, 2 * bytes / sizeof(float));
}

static void charged_fill(struct trm_device *device, float *to, float value, size_t n)
{
  charged_inner(device)->fill(device, to, value, n);
  charged_pass_time(device, charged_costs(device)->copy, n);
}

static void charged_sum(struct trm_device *device, float *to, const float *const *from, int count, size_t n)
{
  charged_inner(device)->sum(device, to, from, count, n);
  charged_pass_time(device, charged_costs(device)->sum, (size_t)(count + 1) * n);
}

static double charged_norm_squared(struct trm_device *device, const float *x, size_t n)
{
  const double square = charged_inner(device)->norm_squared(device, x, n);
  charged_pass_time(device, charged_costs(device)->copy, n);
  return square;
}

static void charged_update(struct trm_device *device, const struct trm_update *opt, float *w, const float *g,
                           float *first, float *second, size_t n)
{
  charged_inner(device)->update(device, opt, w, g, first, second, n);
  charged_pass_time(device, charged_costs(device)->update, (size_t)(3 + 2 * ((first != NULL) + (second != NULL))) * n);
}

static void charged_lamb_direction(struct trm_device *device, const struct trm_update *opt, const float *w, float *g,
                                   float *first, float *second, size_t n)
{
  charged_inner(device)->lamb_direction(device, opt, w, g, first, second, n);
  charged_pass_time(device, charged_costs(device)->update, 7 * n);
}

void trm_charged_device_open(struct trm_charged_device *charged, const struct trm_device *inner, struct trm_comm *comm)
{
  *charged = (struct trm_charged_device){.device = *inner, .ops = *inner->ops, .inner = inner->ops, .comm = comm};
  charged->device.ops = &charged->ops;
  charged->ops.copy = charged_copy;
  charged->ops.fill = charged_fill;
  charged->ops.sum = charged_sum;
  charged->ops.norm_squared = charged_norm_squared;
  charged->ops.update = charged_update;
  charged->ops.lamb_direction = charged_lamb_direction;
}

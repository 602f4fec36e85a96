#include "train/charged_device.h"

#include "core/device_arrays.h"
#include "core/trace.h"

/* device is the first field of the struct */
static const struct trm_device_ops *charged_inner(const struct trm_device *device)
{
  return ((const struct trm_charged_device *)device)->inner;
}

static const struct trm_array_costs *charged_costs(const struct trm_device *device)
{
  return &((const struct trm_charged_device *)device)->costs;
}

static void charged_pass_time(const struct trm_device *device, double seconds_per_byte, size_t bytes)
{
  struct trm_comm *comm = ((const struct trm_charged_device *)device)->comm;
  const double began = trm_trace_begin("arrays");
  comm->ops->compute(comm, NULL, NULL, seconds_per_byte * (double)bytes);
  trm_trace_end("arrays", TRM_TRACE_COMPUTE, began, TRM_TRACE_NO_IDS);
}

static void charged_copy(struct trm_device *device, void *to, const void *from, size_t bytes)
{
  charged_inner(device)->copy(device, to, from, bytes);
  charged_pass_time(device, charged_costs(device)->copy, 2 * bytes);
}

static void charged_fill(struct trm_device *device, float *to, float value, size_t n)
{
  charged_inner(device)->fill(device, to, value, n);
  charged_pass_time(device, charged_costs(device)->copy, n * sizeof *to);
}

/* Defines the form of a kernel whose bytes take the time of `cost`. */
#define CHARGED(slot, type, cost)                                                                   \
  static void charged_##slot(struct trm_device *device, const struct type *call)                    \
  {                                                                                                 \
    struct trm_call_array array[TRM_CALL_ARRAYS];                                                   \
    charged_inner(device)->slot(device, call);                                                      \
    charged_pass_time(device, charged_costs(device)->cost,                                          \
                      trm_call_bytes(array, type##_arrays(call, array)));                           \
  }
CHARGED(sum, trm_sum, sum)
CHARGED(norm_squared, trm_norm_squared, copy)
CHARGED(update, trm_update_arrays, update)
CHARGED(lamb_direction, trm_lamb_direction, update)

void trm_charged_device_open(struct trm_charged_device *charged, const struct trm_device *inner, struct trm_comm *comm)
{
  *charged = (struct trm_charged_device){.device = *inner, .ops = *inner->ops, .inner = inner->ops, .comm = comm};
  charged->device.ops = &charged->ops;
  charged->ops.conv2d_fuses = NULL; /* it charges the calls of kernels */
  charged->ops.record_begin = NULL; /* each call takes its time */
  charged->ops.copy = charged_copy;
  charged->ops.fill = charged_fill;
  charged->ops.sum = charged_sum;
  charged->ops.norm_squared = charged_norm_squared;
  charged->ops.update = charged_update;
  charged->ops.lamb_direction = charged_lamb_direction;
}

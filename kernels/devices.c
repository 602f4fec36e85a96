/* The table of devices, and opening and closing by name. */
#include <string.h>

#include "blas/blas.h"
#include "core/status.h"
#include "kernels/host_kernels.h"
#include "kernels/kernels.h"

const struct trm_device_ops *const trm_device_table[] = {&trm_device_cpu, NULL};

int trm_device_open_ops(struct trm_device *device, const struct trm_device_ops *ops,
                        const struct trm_blas_ops *products, int index, int threads)
{
  *device = (struct trm_device){.ops = ops, .blas = products};
  TRM_CHECK(ops->open(device, index, threads, products));
  int status = host_kernels_add(device, index, threads);
  if (status == TRM_OK && !device->host_memory)
    status = device->ops->alloc(device, sizeof *device->number, TRM_MEMORY_BUFFERS, (void **)&device->number);
  if (status != TRM_OK)
    trm_device_close(device);
  return status;
}

int trm_device_open(struct trm_device *device, const char *name, const char *blas, enum trm_matmul matmul, int index,
                    int threads)
{
  const struct trm_blas_ops *products = trm_blas_find(blas, matmul);
  char known[128] = "auto";

  *device = (struct trm_device){.ops = NULL};
  if (!products)
    return TRM_USAGE;
  if (threads < 0 || index < 0)
    return trm_error(TRM_USAGE, "device %s: index %d and %d threads: neither can be negative", name, index, threads);
  for (int i = 0; trm_device_table[i]; i++) {
    if (!strcmp(name, trm_device_table[i]->name))
      return trm_device_open_ops(device, trm_device_table[i], products, index, threads);
    if (!strcmp(name, "auto") && trm_device_open_ops(device, trm_device_table[i], products, index, threads) == TRM_OK)
      return TRM_OK;
    strncat(known, ", ", sizeof(known) - strlen(known) - 1);
    strncat(known, trm_device_table[i]->name, sizeof(known) - strlen(known) - 1);
  }
  if (!strcmp(name, "auto"))
    return TRM_FAILED; /* trm_error has the last device's message */
  return trm_error(TRM_USAGE, "device.name=%s: this build has no such device (it has %s)", name, known);
}

void trm_device_close(struct trm_device *device)
{
  if (device->number)
    device->ops->release(device, device->number);
  host_kernels_remove(device);
  if (device->ops)
    device->ops->close(device);
  *device = (struct trm_device){.ops = NULL};
}

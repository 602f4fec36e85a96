/* The table of devices that are built in, and opening and closing by name. */
#include <string.h>

#include "blas/blas.h"
#include "core/status.h"
#include "kernels/host_kernels.h"
#include "kernels/kernels.h"
#include "kernels/module.h"

const struct trm_device_ops *const trm_device_table[] = {&trm_device_cpu, NULL};

int trm_device_open_ops(struct trm_device *device, const struct trm_device_ops *ops,
                        const struct trm_blas_ops *products, int index, int threads)
{
  *device = (struct trm_device){.ops = ops, .blas = products, .matmul = products->matmul};
  TRM_CHECK(ops->open(device, index, threads, products));
  int status = host_kernels_add(device, index, threads);
  if (status == TRM_OK && !device->host_memory)
    status = device->ops->alloc(device, sizeof *device->number, TRM_MEMORY_BUFFERS, (void **)&device->number);
  if (status != TRM_OK)
    trm_device_close(device);
  return status;
}

/* Names the devices of the table. */
static void devices_list(char *known, size_t bytes)
{
  for (int i = 0; trm_device_table[i]; i++) {
    strncat(known, ", ", bytes - strlen(known) - 1);
    strncat(known, trm_device_table[i]->name, bytes - strlen(known) - 1);
  }
}

/* Returns the operations of the device; NULL: an error is recorded. auto: a module's if it has a processor. */
static const struct trm_device_ops *devices_find(const char *name)
{
  const bool any = !strcmp(name, "auto");
  const struct trm_module *module;
  char known[128] = "auto, cuda";
  int processors;

  for (int i = 0; trm_device_table[i]; i++)
    if (!strcmp(name, trm_device_table[i]->name))
      return trm_device_table[i];
  if (!any && strcmp(name, "cuda") != 0) {
    devices_list(known, sizeof known);
    trm_error(TRM_USAGE, "device.name=%s: there is no such device (there are %s)", name, known);
    return NULL;
  }
  if (trm_module_find("cuda", &module) == TRM_OK && module->processors(&processors) == TRM_OK)
    return module->ops;
  return any ? trm_device_table[0] : NULL;
}

int trm_device_open(struct trm_device *device, const char *name, const char *blas, enum trm_matmul matmul, int index,
                    int threads)
{
  const bool tf32 = matmul == TRM_MATMUL_TF32;
  const struct trm_blas_ops *products = trm_blas_find(blas, tf32 ? TRM_MATMUL_F32 : matmul);

  *device = (struct trm_device){.ops = NULL};
  if (!products)
    return TRM_USAGE;
  if (threads < 0 || index < 0)
    return trm_error(TRM_USAGE, "device %s: index %d and %d threads: neither can be negative", name, index, threads);
  const struct trm_device_ops *ops = devices_find(name);
  if (!ops)
    return !strcmp(name, "cuda") ? TRM_FAILED : TRM_USAGE;
  if (tf32 && !ops->tf32)
    return trm_error(TRM_USAGE, "device.matmul=tf32: %s has no products in TF32, which GPUs have (device.name=cuda)",
                     ops->name);
  TRM_CHECK(trm_device_open_ops(device, ops, products, index, threads));
  device->matmul = matmul;
  return TRM_OK;
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

/* NVML, which comes with the driver of NVIDIA's GPUs: millijoules since the driver was loaded (NVML API Reference,
 * nvmlDeviceGetTotalEnergyConsumption; GPUs from Volta on). Loaded when it is asked for: the program links none of it. */
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/energy.h"

/* All return 0, or an error. */
struct nvml {
  int (*init)(void);
  int (*count)(unsigned *gpus);
  int (*gpu)(unsigned number, void **gpu);
  int (*energy)(void *gpu, unsigned long long *millijoules);
  int (*end)(void);
};

/* Returns the function of this name, as a pointer of any function's type through `to`. */
static int gpu_find(void *library, const char *name, void *to)
{
  void *const found = dlsym(library, name);
  memcpy(to, &found, sizeof found); /* POSIX: dlsym's pointers may be functions */
  return found != NULL;
}

static double gpu_sum(const struct nvml *nvml)
{
  unsigned gpus = 0;
  unsigned long long millijoules, sum = 0;
  if (nvml->count(&gpus))
    return NAN;
  for (unsigned i = 0; i < gpus; i++) {
    void *gpu;
    if (nvml->gpu(i, &gpu) || nvml->energy(gpu, &millijoules))
      return NAN;
    sum += millijoules;
  }
  return 1e-3 * (double)sum;
}

double trm_energy_of_gpus(void)
{
  struct nvml nvml;
  void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL); /* stays loaded */
  if (!library)
    return 0;
  if (!gpu_find(library, "nvmlInit_v2", &nvml.init) || !gpu_find(library, "nvmlDeviceGetCount_v2", &nvml.count) ||
      !gpu_find(library, "nvmlDeviceGetHandleByIndex_v2", &nvml.gpu) ||
      !gpu_find(library, "nvmlDeviceGetTotalEnergyConsumption", &nvml.energy) ||
      !gpu_find(library, "nvmlShutdown", &nvml.end) || nvml.init())
    return NAN;
  const double joules = gpu_sum(&nvml);
  nvml.end();
  return joules;
}

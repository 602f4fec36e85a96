/* A stand-in for NVML with two GPUs: between two readings the first one takes 125 mJ, the second one 250 mJ. With
 * NVML_FAILS in the environment the second one does not count. */
#include <stdlib.h>

#define EXPORTED __attribute__((visibility("default")))

EXPORTED int nvmlInit_v2(void);
EXPORTED int nvmlDeviceGetCount_v2(unsigned *gpus);
EXPORTED int nvmlDeviceGetHandleByIndex_v2(unsigned number, void **gpu);
EXPORTED int nvmlDeviceGetTotalEnergyConsumption(void *gpu, unsigned long long *millijoules);
EXPORTED int nvmlShutdown(void);

static unsigned long long reading[2];

int nvmlInit_v2(void)
{
  return 0;
}

int nvmlDeviceGetCount_v2(unsigned *gpus)
{
  *gpus = 2;
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned number, void **gpu)
{
  *gpu = &reading[number];
  return number > 1;
}

int nvmlDeviceGetTotalEnergyConsumption(void *gpu, unsigned long long *millijoules)
{
  unsigned long long *readings = gpu;
  const unsigned long long step = readings == reading ? 125 : 250;

  *millijoules = 1000 + step * (*readings)++;
  return readings != reading && getenv("NVML_FAILS") && *getenv("NVML_FAILS") ? 3 /* NVML_ERROR_NOT_SUPPORTED */ : 0;
}

int nvmlShutdown(void)
{
  return 0;
}

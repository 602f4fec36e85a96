/* Runs a test on many devices: arrays of one run, a digest of all results, comparisons that print the first difference.
 */
#include "support/on_devices.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blas/blas.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/sanitizers.h"
#include "core/status.h"
#include "kernels/kernels.h"
#include "support/pretend_device.h"

#define MAX_ARRAYS 20000 /* arrays per run */
#define OTHER_DEVICE 8   /* tolerances of a device of TRM_TEST_DEVICE, in those of the CPU */
/* Where each access is checked and takes long: each second run. */
#ifdef TRM_ADDRESS_SANITIZER
#define RUN_STEP 2
#else
#define RUN_STEP 1
#endif

static void *host_array[MAX_ARRAYS], *device_array[MAX_ARRAYS];
static int host_arrays, device_arrays;
static uint64_t digest; /* FNV-1a over 32-bit words (Fowler, Noll, Vo) */

const char *on_other_device(void)
{
  return getenv("TRM_TEST_DEVICE");
}

static uint64_t on_devices_run(void (*test)(struct trm_device *device), const struct trm_blas_ops *blas,
                               const char *name, int threads)
{
  const struct trm_device_ops *ops = !strcmp(name, "cpu")       ? &trm_device_cpu
                                     : !strcmp(name, "pretend") ? &pretend_device_ops
                                                                : &pretend_device_few_ops;
  const char *module = on_other_device();
  struct trm_device device;

  if (module)
    CU_ASSERT_EQUAL_FATAL(trm_device_open(&device, module, blas->name, blas->matmul, 0, threads), TRM_OK)
  else
    CU_ASSERT_EQUAL_FATAL(trm_device_open_ops(&device, ops, blas, 0, threads), TRM_OK);
  digest = 0xcbf29ce484222325u;
  test(&device);
  CU_ASSERT_EQUAL(device.ops->sync(&device), TRM_OK);
  while (device_arrays > 0)
    device.ops->release(&device, device_array[--device_arrays]);
  while (host_arrays > 0)
    trm_free(host_array[--host_arrays]);
  trm_device_close(&device);
  return digest;
}

void on_devices(void (*test)(struct trm_device *device))
{
  on_devices_with(test, trm_blas_find("auto", TRM_MATMUL_F32));
}

void on_devices_with(void (*test)(struct trm_device *device), const struct trm_blas_ops *blas)
{
  static const struct {
    const char *name;
    int threads;
  } run[] = {{"cpu", 1}, {"pretend", 2}, {"cpu", 3}, {"cpu", 2}, {"pretend, few kernels", 2}, {"pretend", 1}};
  uint64_t first = 0;

  /* on another device two runs, whose bits must be equal, or one */
  const size_t runs = !on_other_device() ? sizeof(run) / sizeof(*run) : getenv("TRM_TEST_ALL") ? 2 : 1;

  for (size_t i = 0; i < runs; i += RUN_STEP) {
    const uint64_t bits = on_devices_run(test, blas, run[i].name, run[i].threads);

    if (i == 0)
      first = bits;
    if (bits != first)
      printf("\n    %s with %d threads, %s: other bits than cpu with 1\n", run[i].name, run[i].threads, blas->name);
    CU_ASSERT_EQUAL(bits, first);
  }
}

float *host_floats(size_t n)
{
  CU_ASSERT_FATAL(host_arrays < MAX_ARRAYS);
  return host_array[host_arrays++] = trm_alloc(n * sizeof(float), "test");
}

float *host_random(size_t n, uint32_t stream)
{
  float *x = host_floats(n);

  for (size_t i = 0; i < n; i++) {
    static uint32_t word[4];

    if (i % 4 == 0)
      trm_random_block(1, TRM_RANDOM_BENCH, stream, i / 4, word);
    x[i] = 2 * trm_random_unit(word[i % 4]) - 1;
  }
  return x;
}

void *device_bytes(struct trm_device *device, const void *host, size_t bytes)
{
  CU_ASSERT_FATAL(device_arrays < MAX_ARRAYS);
  CU_ASSERT_EQUAL_FATAL(device->ops->alloc(device, bytes, TRM_MEMORY_BUFFERS, &device_array[device_arrays]), TRM_OK);
  device->ops->upload(device, device_array[device_arrays], host, bytes);
  return device_array[device_arrays++];
}

float *device_floats(struct trm_device *device, const float *host, size_t n)
{
  return device_bytes(device, host, n * sizeof(float));
}

float *device_nan(struct trm_device *device, size_t n)
{
  float *x = host_floats(n);

  for (size_t i = 0; i < n; i++)
    x[i] = NAN;
  return device_floats(device, x, n);
}

float *read_floats(struct trm_device *device, const float *from, size_t n)
{
  float *x = host_floats(n);

  device->ops->download(device, x, from, n * sizeof(float));
  for (size_t i = 0; i < n; i++) {
    uint32_t word;

    memcpy(&word, x + i, sizeof(word));
    digest = (digest ^ word) * 0x100000001b3u;
  }
  return x;
}

static bool on_devices_is_close(float got, double want, double absolute, double relative)
{
  if (isnan(got) || isnan(want))
    return isnan(got) && isnan(want);
  if (isinf(got) || isinf(want))
    return (double)got == want || (isinf(got) && (double)(float)want == (double)got);
  return fabs(got - want) <= absolute + relative * fabs(want);
}

void check_close(const char *what, const float *got, const double *want, size_t n, double absolute, double relative)
{
  const double factor = on_other_device() ? OTHER_DEVICE : 1; /* its sums and elementary functions are others */

  check_within(what, got, want, n, factor * absolute, factor * relative);
}

void check_within(const char *what, const float *got, const double *want, size_t n, double absolute, double relative)
{
  for (size_t i = 0; i < n; i++)
    if (!on_devices_is_close(got[i], want[i], absolute, relative)) {
      printf("\n    %s: element %zu of %zu is %.9g, should be %.9g\n", what, i, n, (double)got[i], want[i]);
      CU_FAIL("other numbers than the reference");
      return;
    }
  CU_PASS("as the reference");
}

void check_same(const char *what, const float *got, const float *want, size_t n)
{
  for (size_t i = 0; i < n; i++)
    if (memcmp(got + i, want + i, sizeof(float)) != 0) {
      printf("\n    %s: element %zu of %zu is %.9g, should be exactly %.9g\n", what, i, n, (double)got[i],
             (double)want[i]);
      CU_FAIL("other bits than they should be");
      return;
    }
  CU_PASS("the same bits");
}

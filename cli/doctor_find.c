/* What a rank finds on its host. */
#define _GNU_SOURCE
#include <config.h>
#include <ctype.h>
#include <dirent.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "blas/blas.h"
#include "cli/doctor.h"
#include "core/memory.h"
#include "core/sha256.h"
#include "core/status.h"
#include "datasets/datasets.h"
#include "kernels/kernels.h"
#include "mpi/real.h"

#define FIND_TEXT(to, text) snprintf(to, sizeof(to), "%s", text)

/* Reads the first line of a file, empty if there is none. */
static void find_line(const char *path, char *line, int bytes)
{
  FILE *file = fopen(path, "r");
  line[0] = '\0';
  if (file && fgets(line, bytes, file))
    line[strcspn(line, "\n")] = '\0';
  if (file)
    fclose(file);
}

static bool find_entry(const char *folder)
{
  DIR *list = opendir(folder);
  bool found = false;
  for (struct dirent *entry; list && (entry = readdir(list));)
    found = found || entry->d_name[0] != '.';
  if (list)
    closedir(list);
  return found;
}

/* The build: programs of one version can differ. */
static void find_program(struct doctor_rank *facts)
{
  char hex[65];
  if (trm_sha256_file("/proc/self/exe", hex) == TRM_OK)
    snprintf(facts->program, sizeof facts->program, "trireme " PACKAGE_VERSION " (%.12s)", hex);
  else
    FIND_TEXT(facts->program, "trireme " PACKAGE_VERSION);
}

static void find_blas(struct doctor_rank *facts)
{
  static const char *const variables[] = {"MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NVPL_NUM_THREADS"};
  const struct trm_blas_ops *blas = &trm_blas_openblas;
  const char *detail = blas->detail();
  const int name = (int)strcspn(detail, " "); /* OpenBLAS goes on with version, settings and the processor's kernels */
  snprintf(facts->blas, sizeof facts->blas, "%s %.*s", blas->name,
           name + (detail[name] ? 1 + (int)strcspn(detail + name + 1, " ,") : 0), detail);
  if (blas->core)
    FIND_TEXT(facts->kernels, blas->core());
  facts->other_blas = strcmp(blas->name, "cblas") == 0;
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
    facts->blas_threads = facts->blas_threads || getenv(variables[i]);
#ifdef __x86_64__
  facts->avx2 = __builtin_cpu_supports("avx2");
  facts->avx512 = __builtin_cpu_supports("avx512f");
#endif
}

/* CPU time of the threads of this process, in seconds, by their numbers. */
enum { FIND_THREADS = 2048 };
struct find_times {
  int n;
  long thread[FIND_THREADS];
  double seconds[FIND_THREADS];
};

static void find_times(struct find_times *times)
{
  DIR *list = opendir("/proc/self/task");
  times->n = 0;
  for (struct dirent *entry; list && times->n < FIND_THREADS && (entry = readdir(list));) {
    const long thread = atol(entry->d_name);
    struct timespec time;
    /* the clock that pthread_getcpuclockid has for a thread of this number (of Linux' interface) */
    if (thread <= 0 || clock_gettime((clockid_t)(~(unsigned)thread << 3 | 6), &time) != 0)
      continue;
    times->thread[times->n] = thread;
    times->seconds[times->n++] = (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
  }
  if (list)
    closedir(list);
}

void doctor_find_product(struct doctor_rank *facts, int threads)
{
  enum { SIZE = 1024 };
  const struct trm_blas_ops *blas = &trm_blas_openblas;
  facts->threads = threads;
  if (blas->open(threads) != TRM_OK)
    return;
  float *a = trm_alloc((size_t)2 * SIZE * SIZE * sizeof *a, "a product"), *c = a + SIZE * SIZE;
  const struct trm_gemm product = {.m = SIZE, .n = SIZE, .k = SIZE / 2, .alpha = 1, .a = a, .lda = SIZE / 2,
                                   .b = a + SIZE * SIZE / 2, .ldb = SIZE, .c = c, .ldc = SIZE};
  struct find_times *before = trm_alloc(2 * sizeof *before, "times of threads"), *after = before + 1;
  blas->gemm(&product); /* starts the threads */
  find_times(before);
  blas->gemm(&product);
  find_times(after);
  double all = 0, busiest = 0;
  for (int i = 0, k = 0; i < after->n; i++) {
    for (k = 0; k < before->n && before->thread[k] != after->thread[i];)
      k++;
    const double seconds = after->seconds[i] - (k < before->n ? before->seconds[k] : 0);
    all += seconds;
    busiest = seconds > busiest ? seconds : busiest;
  }
  if (busiest > 0) {
    facts->product_threads = all / busiest;
    facts->product_rate = (double)SIZE * SIZE * SIZE / all;
  }
  trm_free(before);
  trm_free(a);
}

static void find_cores(struct doctor_rank *facts)
{
  cpu_set_t set;
  char line[64], *period;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int i = 0; i < DOCTOR_CORES * 64; i++)
      facts->cores[i / 64] |= (uint64_t)(CPU_ISSET(i, &set) != 0) << i % 64;
  const char *openmp = getenv("OMP_NUM_THREADS");
  facts->openmp = openmp && atoi(openmp) > 0 ? atoi(openmp) : 0;
  find_line("/sys/fs/cgroup/cpu.max", line, sizeof line); /* "max 100000", "200000 100000" */
  const double granted = strtod(line, &period);
  if (period > line && atof(period) > 0)
    facts->quota = granted / atof(period);
}

static void find_limits(struct doctor_rank *facts)
{
  char line[128];
  struct rlimit limit;
  struct statvfs shared;
  find_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line);
  const char *open = strchr(line, '[');
  if (open)
    snprintf(facts->huge_pages, sizeof facts->huge_pages, "%.*s", (int)strcspn(open + 1, "]"), open + 1);
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
    facts->files = limit.rlim_cur == RLIM_INFINITY ? -1 : (int64_t)limit.rlim_cur;
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0)
    facts->locked = limit.rlim_cur == RLIM_INFINITY ? -1 : (int64_t)limit.rlim_cur;
  facts->infiniband = find_entry("/sys/class/infiniband");
  if (statvfs("/dev/shm", &shared) == 0)
    facts->shared_free = (int64_t)(shared.f_bavail * shared.f_frsize);
}

/* A host with the driver must have the module for its GPUs. */
static void find_gpu(struct doctor_rank *facts, int index)
{
  char line[256];
  struct trm_device device;
  find_line("/proc/driver/nvidia/version", line, sizeof line);
  if (!line[0])
    return;
  const char *number = strstr(line, "Module"); /* "... Kernel Module  550.54 ...", "... Module for x86_64  560.35 ..." */
  while (number && *number && !(number[0] == ' ' && isdigit((unsigned char)number[1])))
    number++;
  snprintf(facts->driver, sizeof facts->driver, "%.*s", number && *number ? (int)strcspn(number + 1, " ") : 7,
           number && *number ? number + 1 : "unknown");
  if (trm_device_open(&device, "cuda", "auto", TRM_MATMUL_F32, index, 1) == TRM_OK)
    trm_device_close(&device);
  else
    FIND_TEXT(facts->gpu_problem, trm_error_text());
}

void doctor_find(struct doctor_rank *facts, struct trm_comm *world)
{
  struct trm_comm *node = world->ops->split_node(world, TRM_SHARE_NODE);
  memset(facts, 0, sizeof *facts);
  facts->node = world->rank;
  node->ops->broadcast(node, &facts->node, 1, TRM_INT32, 0);
  gethostname(facts->host, sizeof facts->host - 1);
  find_program(facts);
  FIND_TEXT(facts->mpi, trm_comm_library());
  trm_hdf5_version(facts->hdf5);
  find_blas(facts);
  find_cores(facts);
  find_limits(facts);
  find_gpu(facts, node->rank);
  node->ops->release(node);
}

/* Which of the facts are problems, and their remedies. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "blas/blas.h"
#include "cli/doctor.h"
#include "core/memory.h"

/* -- versions */

static char *judge_versions(const struct doctor_rank *all, int n, int rank)
{
  const struct doctor_rank *a = &all[0], *b = &all[rank];
  const char *const name[] = {"program", "MPI library", "HDF5", "BLAS"};
  const char *const mine[] = {b->program, b->mpi, b->hdf5, b->blas};
  const char *const first[] = {a->program, a->mpi, a->hdf5, a->blas};
  char *text = NULL;
  (void)n;
  for (int i = 0; i < 4; i++)
    if (strcmp(mine[i], first[i]) != 0)
      trm_append(&text, "%s%s: %s, and rank 0 on %s has %s", text ? "; " : "", name[i], mine[i], a->host, first[i]);
  if (text)
    trm_append(&text, ": install one build on all hosts, and load the same modules");
  return text;
}

static char *judge_well_versions(const struct doctor_rank *all, int n)
{
  (void)n;
  return trm_format("%s, %s, HDF5 %s, %s", all->program, all->mpi, all->hdf5, all->blas);
}

/* -- cores and threads */

static int judge_count(const uint64_t *cores)
{
  int count = 0;
  for (int i = 0; i < DOCTOR_CORES; i++)
    count += __builtin_popcountll(cores[i]);
  return count;
}

static bool judge_within(const uint64_t *a, const uint64_t *b)
{
  for (int i = 0; i < DOCTOR_CORES; i++)
    if (a[i] & ~b[i])
      return false;
  return true;
}

int doctor_threads(const struct doctor_rank *all, int n, int rank)
{
  int sharing = 0;
  for (int i = 0; i < n; i++)
    sharing += all[i].node == all[rank].node && memcmp(all[i].cores, all[rank].cores, sizeof all[i].cores) == 0;
  const int threads = all[rank].openmp ? all[rank].openmp : judge_count(all[rank].cores) / sharing;
  return threads < 1 ? 1 : threads;
}

/* Ranks of the host that may use these cores only, and their threads. */
static int judge_threads_within(const struct doctor_rank *all, int n, int node, const uint64_t *cores, int *ranks)
{
  int threads = 0;
  *ranks = 0;
  for (int i = 0; i < n; i++)
    if (all[i].node == node && judge_within(all[i].cores, cores)) {
      threads += doctor_threads(all, n, i);
      ++*ranks;
    }
  return threads;
}

static char *judge_binding(const struct doctor_rank *all, int n, int rank)
{
  uint64_t any[DOCTOR_CORES] = {0};
  const struct doctor_rank *r = &all[rank];
  int ranks;
  for (int i = 0; i < n; i++)
    for (int k = 0; k < DOCTOR_CORES && all[i].node == r->node; k++)
      any[k] |= all[i].cores[k];
  for (int all_of_host = 0; all_of_host <= 1; all_of_host++) {
    const uint64_t *cores = all_of_host ? any : r->cores;
    const int threads = judge_threads_within(all, n, r->node, cores, &ranks), count = judge_count(cores);
    if (threads > count)
      return trm_format("%d rank%s with %d threads in all on %d core%s: bind each rank to cores of its own (srun "
                        "--cpus-per-task=T --cpu-bind=cores, mpiexec -bind-to core:T), or use fewer threads "
                        "(OMP_NUM_THREADS) or ranks", ranks, ranks == 1 ? "" : "s", threads, count,
                        count == 1 ? "" : "s");
    if (r->quota > 0 && all_of_host && threads > r->quota + 0.01)
      return trm_format("%d threads, and the control group grants the time of %.3g cores: raise the limit of the "
                        "container, or use fewer threads (OMP_NUM_THREADS)", threads, r->quota);
  }
  return NULL;
}

static char *judge_well_binding(const struct doctor_rank *all, int n)
{
  int threads = 0, hosts = 0;
  for (int i = 0; i < n; i++) {
    threads += doctor_threads(all, n, i);
    hosts += all[i].node == i;
  }
  return trm_format("%d rank%s on %d host%s, threads in all: %d, none of which share a core", n, n == 1 ? "" : "s",
                    hosts, hosts == 1 ? "" : "s", threads);
}

/* -- the system's settings */

static char *judge_pages(const struct doctor_rank *all, int n, int rank)
{
  (void)n;
  if (strcmp(all[rank].huge_pages, "never") != 0)
    return NULL;
  return trm_strdup("transparent huge pages are off, which slows access to large arrays: as root, echo madvise > "
                    "/sys/kernel/mm/transparent_hugepage/enabled");
}

static char *judge_well_pages(const struct doctor_rank *all, int n)
{
  (void)n;
  return trm_format("transparent huge pages: %s", *all->huge_pages ? all->huge_pages : "unknown");
}

static char *judge_shared(const struct doctor_rank *all, int n, int rank)
{
  enum { PER_RANK = 64 << 20 };
  int ranks = 0;
  for (int i = 0; i < n; i++)
    ranks += all[i].node == all[rank].node;
  if (all[rank].shared_free >= (int64_t)ranks * PER_RANK)
    return NULL;
  return trm_format("/dev/shm has %lld MiB free for %d rank%s, which keep weights and gradients there: enlarge it "
                    "(mount -o remount,size=8G /dev/shm; docker --shm-size; in Kubernetes a volume emptyDir with "
                    "medium: Memory)",
                    (long long)(all[rank].shared_free >> 20), ranks, ranks == 1 ? "" : "s");
}

static char *judge_well_shared(const struct doctor_rank *all, int n)
{
  int64_t lowest = all->shared_free;
  for (int i = 1; i < n; i++)
    lowest = all[i].shared_free < lowest ? all[i].shared_free : lowest;
  return trm_format("/dev/shm has %lld MiB free", (long long)(lowest >> 20));
}

/* A rank holds a connection with every other one, and with InfiniBand locked buffers. */
static char *judge_limits(const struct doctor_rank *all, int n, int rank)
{
  const int64_t files = 256 + 2 * (int64_t)n, locked = (int64_t)1 << 30;
  if (all[rank].files >= 0 && all[rank].files < files)
    return trm_format("%lld open files at most, too few for %d ranks: ulimit -n %lld", (long long)all[rank].files, n,
                      (long long)(files < 4096 ? 4096 : files));
  if (all[rank].infiniband && all[rank].locked >= 0 && all[rank].locked < locked)
    return trm_format("%lld KiB of locked memory at most, too few for InfiniBand: ulimit -l unlimited "
                      "(/etc/security/limits.conf; LimitMEMLOCK of slurmd)", (long long)(all[rank].locked >> 10));
  return NULL;
}

static char *judge_well_limits(const struct doctor_rank *all, int n)
{
  (void)n;
  return all->files < 0 ? trm_strdup("open files: unlimited") : trm_format("open files: %lld", (long long)all->files);
}

/* -- BLAS */

/* flop per second of a core: between a BLAS without vector instructions and the slowest core that has AVX2. */
#define REFERENCE_RATE 1e10

static char *judge_blas(const struct doctor_rank *all, int n, int rank)
{
  const struct doctor_rank *r = &all[rank];
  (void)n;
  const enum trm_vectors best = r->avx512 ? TRM_VECTORS_AVX512 : r->avx2 ? TRM_VECTORS_AVX2 : TRM_VECTORS_OLD;
  if (*r->kernels && trm_blas_core_vectors(r->kernels) < best)
    return trm_format("OpenBLAS has taken its kernels for %s on a processor with %s: a newer OpenBLAS, or "
                      "OPENBLAS_CORETYPE=%s in the environment", r->kernels, r->avx512 ? "AVX-512" : "AVX2",
                      r->avx512 ? "SkylakeX" : "Haswell");
  if (r->other_blas && !r->blas_threads)
    return trm_strdup("the BLAS may start threads of its own in each thread of the program: set MKL_NUM_THREADS=1 or "
                      "BLIS_NUM_THREADS=1 in the environment, or build with OpenBLAS");
  if (r->threads > 1 && r->product_rate > 0 && r->product_threads < 0.25 + 0.5 * r->threads)
    return trm_format("%.0f of %d threads compute a large product: parts of it would have other bits with this BLAS, "
                      "or no threads can be started (ulimit -u, pids.max of the control group): use OpenBLAS, or raise "
                      "the limit", r->product_threads, r->threads);
  if (r->avx2 && r->product_rate > 0 && r->product_rate < REFERENCE_RATE)
    return trm_format("products take %.1f Gflop a second of a core, as with the reference BLAS: let the loader find "
                      "OpenBLAS (ldd, LD_LIBRARY_PATH, LD_PRELOAD; Debian: update-alternatives --config "
                      "libblas.so.3-$(gcc -print-multiarch))", 1e-9 * r->product_rate);
  return NULL;
}

static char *judge_well_blas(const struct doctor_rank *all, int n)
{
  (void)n;
  return trm_format("%s%s, %d thread%s, %.3g Gflop a second of each", *all->kernels ? "kernels for " : "",
                    *all->kernels ? all->kernels : all->blas, all->threads, all->threads == 1 ? "" : "s",
                    1e-9 * all->product_rate);
}

/* -- GPUs */

static char *judge_gpu(const struct doctor_rank *all, int n, int rank)
{
  (void)n;
  return *all[rank].gpu_problem ? trm_format("there is a driver of NVIDIA GPUs (%s), and they cannot be used: %s",
                                             all[rank].driver, all[rank].gpu_problem) : NULL;
}

static char *judge_well_gpu(const struct doctor_rank *all, int n)
{
  int hosts = 0;
  for (int i = 0; i < n; i++)
    hosts += all[i].node == i && *all[i].driver;
  return hosts ? trm_format("driver and module work on %d host%s", hosts, hosts == 1 ? "" : "s") : trm_strdup("none");
}

const struct doctor_check doctor_checks[] = {
  {"versions", judge_versions, judge_well_versions}, {"binding", judge_binding, judge_well_binding},
  {"huge-pages", judge_pages, judge_well_pages},     {"shared-memory", judge_shared, judge_well_shared},
  {"limits", judge_limits, judge_well_limits},       {"blas", judge_blas, judge_well_blas},
  {"gpu", judge_gpu, judge_well_gpu},                {NULL, NULL, NULL}};

char *doctor_judge_clock(double ahead, double round_trip)
{
  const double allowed_s = 1;
  if (fabs(ahead) - round_trip / 2 <= allowed_s)
    return NULL;
  return trm_format("the clock is %.1f s %s rank 0's, and the times of files and logs do not agree: run an NTP service "
                    "(chronyd, ntpd, systemd-timesyncd) on all hosts", fabs(ahead), ahead > 0 ? "ahead of" : "behind");
}

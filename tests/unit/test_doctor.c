/* Which facts `trireme doctor` takes for problems. */
#include <string.h>

#include "cli/doctor.h"
#include "core/memory.h"
#include "suite.h"

enum { RANKS = 4 };

/* Four ranks on two hosts, each with two cores and two threads, and nothing wrong. */
static void doctor_healthy(struct doctor_rank all[RANKS])
{
  memset(all, 0, RANKS * sizeof *all);
  for (int i = 0; i < RANKS; i++) {
    struct doctor_rank *r = &all[i];
    r->node = i / 2 * 2;
    strcpy(r->host, i < 2 ? "a" : "b");
    strcpy(r->program, "trireme 1");
    strcpy(r->mpi, "MPICH 4");
    strcpy(r->hdf5, "1.14");
    strcpy(r->blas, "openblas 0.3");
    r->cores[0] = (uint64_t)3 << i % 2 * 2;
    r->openmp = 2;
    strcpy(r->huge_pages, "madvise");
    r->files = 1024;
    r->locked = 65536;
    r->shared_free = (int64_t)1 << 33;
    strcpy(r->kernels, "Haswell");
    r->avx2 = true;
    r->threads = 2;
    r->product_threads = 1.9;
    r->product_rate = 3e10;
  }
}

/* Returns true if the check alone finds a problem, of these ranks alone (a bit each), whose text has `text`. */
static bool doctor_finds(const struct doctor_rank *all, const char *check, unsigned ranks, const char *text)
{
  bool good = true;
  for (const struct doctor_check *c = doctor_checks; c->name; c++)
    for (int i = 0; i < RANKS; i++) {
      char *problem = c->judge(all, RANKS, i);
      const bool expected = strcmp(c->name, check) == 0 && (ranks >> i & 1);
      good = good && (problem != NULL) == expected && (!problem || strstr(problem, text));
      trm_free(problem);
    }
  return good;
}

static void test_doctor_healthy(void)
{
  struct doctor_rank all[RANKS];
  doctor_healthy(all);
  CU_ASSERT(doctor_finds(all, "none", 0, ""));
}

static void test_doctor_versions(void)
{
  struct doctor_rank all[RANKS];
  doctor_healthy(all);
  strcpy(all[2].mpi, "MPICH 3");
  strcpy(all[3].hdf5, "1.10");
  CU_ASSERT(doctor_finds(all, "versions", 12, ", and rank 0 on a has "));
  CU_ASSERT(!doctor_finds(all, "versions", 12, "MPI library: MPICH 3, and rank 0 on a has MPICH 4"));
  doctor_healthy(all);
  strcpy(all[1].blas, "onednn 3");
  CU_ASSERT(doctor_finds(all, "versions", 2, "BLAS: onednn 3, and rank 0 on a has openblas 0.3"));
}

static void test_doctor_binding(void)
{
  struct doctor_rank all[RANKS];
  doctor_healthy(all);
  all[3].openmp = 3; /* on two cores; the host has four */
  CU_ASSERT(!doctor_finds(all, "none", 0, ""));
  char *problem = doctor_checks[1].judge(all, RANKS, 3);
  CU_ASSERT(problem && strstr(problem, "1 rank with 3 threads in all on 2 cores"));
  trm_free(problem);
  doctor_healthy(all);
  all[1].cores[0] = all[0].cores[0]; /* bound to the same two cores */
  CU_ASSERT(doctor_finds(all, "binding", 3, "2 ranks with 4 threads in all on 2 cores"));
  all[0].openmp = all[1].openmp = 0; /* which they then divide */
  CU_ASSERT(doctor_finds(all, "none", 0, ""));
  doctor_healthy(all);
  all[2].cores[0] = 7; /* three cores and two: each has enough, both together have not */
  all[3].cores[0] = 6;
  all[2].openmp = 2;
  CU_ASSERT(doctor_finds(all, "binding", 12, "2 ranks with 4 threads in all on 3 cores"));
  doctor_healthy(all);
  all[0].quota = all[1].quota = 2.5;
  CU_ASSERT(doctor_finds(all, "binding", 3, "4 threads, and the control group grants the time of 2.5 cores"));
  all[0].quota = all[1].quota = 4;
  CU_ASSERT(doctor_finds(all, "none", 0, ""));
}

static void test_doctor_system(void)
{
  struct doctor_rank all[RANKS];
  doctor_healthy(all);
  strcpy(all[1].huge_pages, "never");
  CU_ASSERT(doctor_finds(all, "huge-pages", 2, "transparent huge pages are off"));
  doctor_healthy(all);
  all[2].shared_free = all[3].shared_free = 64 << 20; /* a container's default, for two ranks */
  CU_ASSERT(doctor_finds(all, "shared-memory", 12, "/dev/shm has 64 MiB free for 2 ranks"));
  doctor_healthy(all);
  all[0].files = 100;
  CU_ASSERT(doctor_finds(all, "limits", 1, "ulimit -n 4096"));
  doctor_healthy(all);
  all[1].infiniband = all[2].infiniband = true;
  all[2].locked = -1;
  CU_ASSERT(doctor_finds(all, "limits", 2, "64 KiB of locked memory at most"));
  doctor_healthy(all);
  strcpy(all[3].driver, "550.1");
  CU_ASSERT(doctor_finds(all, "none", 0, ""));
  strcpy(all[3].gpu_problem, "no module");
  CU_ASSERT(doctor_finds(all, "gpu", 8, "(550.1), and they cannot be used: no module"));
}

static void test_doctor_blas(void)
{
  struct doctor_rank all[RANKS];
  doctor_healthy(all);
  all[0].avx512 = true;
  CU_ASSERT(doctor_finds(all, "blas", 1, "Haswell on a processor with AVX-512"));
  strcpy(all[0].kernels, "SkylakeX");
  CU_ASSERT(doctor_finds(all, "none", 0, ""));
  strcpy(all[1].kernels, "Prescott");
  CU_ASSERT(doctor_finds(all, "blas", 2, "OPENBLAS_CORETYPE=Haswell"));
  strcpy(all[1].kernels, "NewerThanThis");
  CU_ASSERT(doctor_finds(all, "none", 0, ""));
  all[2].other_blas = true;
  CU_ASSERT(doctor_finds(all, "blas", 4, "MKL_NUM_THREADS=1"));
  all[2].blas_threads = true;
  CU_ASSERT(doctor_finds(all, "none", 0, ""));
  all[1].product_threads = 1.1;
  CU_ASSERT(doctor_finds(all, "blas", 2, "1 of 2 threads compute a large product"));
  all[1].threads = 1;
  CU_ASSERT(doctor_finds(all, "none", 0, ""));
  all[3].product_rate = 2e9;
  CU_ASSERT(doctor_finds(all, "blas", 8, "2.0 Gflop a second of a core"));
  all[3].product_rate = 0;
  CU_ASSERT(doctor_finds(all, "none", 0, ""));
}

static void test_doctor_clock(void)
{
  CU_ASSERT_PTR_NULL(doctor_judge_clock(0.9, 0));
  CU_ASSERT_PTR_NULL(doctor_judge_clock(-1.4, 1)); /* may be 0.9 s */
  char *problem = doctor_judge_clock(-1.6, 1);
  CU_ASSERT(problem && strstr(problem, "1.6 s behind rank 0's"));
  trm_free(problem);
  problem = doctor_judge_clock(3600, 0.01);
  CU_ASSERT(problem && strstr(problem, "3600.0 s ahead of rank 0's"));
  trm_free(problem);
}

int main(void)
{
  CU_TestInfo tests[] = {{"healthy", test_doctor_healthy}, {"versions", test_doctor_versions},
                         {"binding", test_doctor_binding}, {"system", test_doctor_system},
                         {"blas", test_doctor_blas},       {"clock", test_doctor_clock},
                         CU_TEST_INFO_NULL};
  return suite_run("doctor", tests);
}

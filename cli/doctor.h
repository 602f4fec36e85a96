/* The checks of `trireme doctor`. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/comm.h"

enum { DOCTOR_CORES = 1024 / 64, DOCTOR_TEXT = 512 };

/* The facts that a rank finds where it runs. All texts end with a NUL; empty: unknown or none. */
struct doctor_rank {
  int32_t node; /* the lowest rank on its host */
  char host[64];
  char program[96], mpi[160], hdf5[32], blas[96];
  uint64_t cores[DOCTOR_CORES]; /* a bit for each that it may use */
  int32_t openmp;               /* OMP_NUM_THREADS; 0: not set */
  double quota;                 /* cores' worth of time that its control group grants; 0: no limit */
  char huge_pages[16];          /* "always", "madvise", "never" */
  int64_t files, locked;        /* limits of open files and of locked memory in bytes; -1: none */
  bool infiniband;              /* the host has such an interface */
  int64_t shared_free;          /* bytes in /dev/shm */
  char kernels[32];             /* of OpenBLAS: "Haswell" */
  bool avx2, avx512;            /* of the processor */
  bool other_blas;              /* a BLAS that is not known to leave threads to the program */
  bool blas_threads;            /* the environment sets the threads of such a BLAS */
  int32_t threads;              /* of the rank, by doctor_threads; set with those of its product: */
  double product_threads;       /* CPU time of all threads in a large product, over that of the busiest one */
  double product_rate;          /* its flop per second of CPU time; 0: not measured */
  char driver[64];              /* of NVIDIA GPUs */
  char gpu_problem[DOCTOR_TEXT];
};

/* Finds all but what follows the threads. Collective over world. */
void doctor_find(struct doctor_rank *facts, struct trm_comm *world);
/* Measures a product with so many threads. Not collective. */
void doctor_find_product(struct doctor_rank *facts, int threads);

/* A check by what all ranks have found. judge: the problem of a rank with its remedy, NULL: none; describe: what is
 * said when no rank has one. Both are owned by the caller. all: (n), ordered by rank. */
struct doctor_check {
  const char *name;
  char *(*judge)(const struct doctor_rank *all, int n, int rank);
  char *(*describe)(const struct doctor_rank *all, int n);
};
extern const struct doctor_check doctor_checks[]; /* ends with a name of NULL */
/* Threads of a rank, by the rule of trm_cores_choose. */
int doctor_threads(const struct doctor_rank *all, int n, int rank);
/* Returns the problem of a host's clock that is `ahead` seconds before rank 0's, known to half of round_trip seconds;
 * owned by the caller, NULL: none. */
char *doctor_judge_clock(double ahead, double round_trip);

/* The problems that are printed, a line each with the hosts that it concerns. */
struct doctor_report {
  bool json;
  int problems;
  int count;
  struct doctor_finding {
    char *text, *hosts; /* owned; hosts separated by ", " */
  } finding[64];        /* of the check that is under way; further ones are only counted */
};
void doctor_add(struct doctor_report *report, const char *host, const char *text);
/* Prints the findings of a check and forgets them; without one, that it is well. */
void doctor_print(struct doctor_report *report, const char *check, const char *well);

/* A folder, tried by this rank in a thread, for at most limit_s seconds: sets the problem, empty if there is none.
 * token: the name of a file that rank 0 has made there, and that every host must see; NULL: not looked for. */
void doctor_try_folder(const char *folder, const char *token, double limit_s, char problem[DOCTOR_TEXT]);

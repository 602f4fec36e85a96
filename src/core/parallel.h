/* Loops divided among threads: one pool of threads for each thread that begins loops. Threads that wait for work, or
 * for the others, spin for a few milliseconds and then sleep, or at once where there are fewer cores than threads. */
#pragma once

#include <stddef.h>

/* Computes the half-open interval [low, high) of a loop, not empty. */
typedef void trm_parallel_body(const void *context, size_t low, size_t high);

/* Divides [0, n) as trm_interval does among at most `threads` threads, the caller among them, and returns when all
 * have computed. Inside a loop, or with one thread, the calling thread computes all. Fewer threads than asked for are
 * used if no more can be had: results must not depend on their number. */
void trm_parallel_for(int threads, size_t n, trm_parallel_body *body, const void *context);

/* The number of this thread in the loop, from 0; 0 outside of loops. */
int trm_parallel_thread(void);

/* Lets the calling thread use all cores of the process, if OpenMP's library has bound it to one place (OMP_PROC_BIND,
 * which it reads when the process begins). Threads of loops are started by it, and inherit its cores. */
void trm_parallel_unbind(void);

/* Threads that a process should use: OMP_NUM_THREADS if it is set, else the processors that it may run on. */
int trm_parallel_default(void);

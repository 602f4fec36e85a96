/* Shared by the tests of training methods: device, creation and initial state of a strategy, pseudo-random numbers, and
 * a check that names its setup. A program includes this once. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "kernels/kernels.h"
#include "mpi/strategies.h"
#include "ranks.h"
#include "train/staged_arrays.h"

static struct trm_device cpu;

/* Checks a condition and prints the setup on failure; the program has `const char *text_of(const struct setup *)`. */
#define CHECK(setup, condition)                                                   \
  do {                                                                            \
    const bool holds = (condition);                                               \
    if (!holds)                                                                   \
      printf("\n    %s, rank %d: %s\n", text_of(setup), world->rank, #condition); \
    CU_ASSERT_TRUE(holds);                                                        \
  } while (0)

/* Returns the number of state arrays of a rule. */
static inline int rule_states(enum trm_update_rule rule)
{
  static const int states[] = {[TRM_UPDATE_SGD] = 0,  [TRM_UPDATE_MOMENTUM] = 1, [TRM_UPDATE_NESTEROV] = 1,
                               [TRM_UPDATE_ADAM] = 2, [TRM_UPDATE_ADAMW] = 2,    [TRM_UPDATE_LARS] = 1,
                               [TRM_UPDATE_LAMB] = 2, [TRM_UPDATE_ADAGRAD] = 1,  [TRM_UPDATE_NADAMW] = 2,
                               [TRM_UPDATE_MUON] = 2};
  return states[rule];
}

/* Creates the strategy with TRM_NODE_SIZE = node_size; 0: unset. */
static inline int strategy_create(struct trm_strategy *strategy, int node_size)
{
  set_node_size(node_size);
  const int status = trm_strategy_create(strategy);
  set_node_size(0);
  return status;
}

/* The same with the arrays of passes, which strategy_end releases with it. */
static inline int strategy_begin(struct trm_staged_arrays *arrays, struct trm_strategy *strategy, int node_size)
{
  set_node_size(node_size);
  const int status = trm_staged_arrays_create(arrays, strategy);
  set_node_size(0);
  return status;
}

static inline void strategy_end(struct trm_staged_arrays *arrays)
{
  struct trm_strategy *strategy = arrays->strategy;
  trm_staged_arrays_free(arrays);
  strategy->ops->destroy(strategy);
}

/* Restores initial weights, and the same values as their average. */
static inline void strategy_restore_initial(struct trm_strategy *strategy, float (*initial)(size_t i))
{
  float *w = trm_alloc(strategy->elements * sizeof *w, "test");
  for (size_t i = 0; i < strategy->elements; i++)
    w[i] = initial(i);
  const float *from[TRM_MAX_STATES] = {w};
  if (strategy->optimizer->ema > 0)
    from[strategy->optimizer->states] = w;
  CU_ASSERT_EQUAL(strategy->ops->restore(strategy, from, 0), TRM_OK);
  trm_free(w);
}

/* Copies a state, 0: the weights, to `to` (elements) on rank 0. Collective. */
static inline int strategy_read(struct trm_strategy *strategy, int state, float *to)
{
  const float *view[TRM_MAX_STATES];
  if (strategy->ops->read)
    return strategy->ops->read(strategy, state, 0, strategy->elements, to);
  const int status = strategy->ops->collect(strategy, view);
  if (status == TRM_OK && strategy->comm->rank == 0)
    memcpy(to, view[state], strategy->elements * sizeof *to);
  return status;
}

/* Slot next_batch of a method that does not divide batches. */
static inline bool next_batch(struct trm_strategy *strategy, uint64_t end, uint64_t *batch)
{
  struct trm_batch_part part = {.parts = 1};
  const bool assigned = strategy->ops->next_batch(strategy, end, &part);
  CU_ASSERT(!assigned || (part.part == 0 && part.parts == 1));
  *batch = part.batch;
  return assigned;
}

/* Hashes three integers. */
static inline uint32_t mix(uint64_t a, uint64_t b, uint64_t c)
{
  uint64_t x = a * 0x9e3779b97f4a7c15u ^ (b + 1) * 0xbf58476d1ce4e5b9u ^ (c + 7) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  x *= 0xd6e8feb86659fd93u;
  return (uint32_t)(x >> 32);
}

static inline int method_run(int argc, char **argv, const char *name, CU_TestInfo *tests)
{
  if (trm_device_open(&cpu, "cpu", "auto", TRM_MATMUL_F32, 0, 1) != TRM_OK) {
    trm_log_error();
    return 99;
  }
  const int status = ranks_run(argc, argv, name, tests);
  trm_device_close(&cpu);
  return status;
}

/* The same in one process, whose tests have virtual ranks. */
static inline int method_run_virtual(const char *name, CU_TestInfo *tests)
{
  trm_log_set_quiet(true);
  world = trm_comm_self();
  if (trm_device_open(&cpu, "cpu", "auto", TRM_MATMUL_F32, 0, 1) != TRM_OK) {
    trm_log_error();
    return 99;
  }
  const int status = suite_run(name, tests);
  trm_device_close(&cpu);
  return status;
}

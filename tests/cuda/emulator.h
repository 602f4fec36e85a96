/* Runs CUDA kernels on the host: the words of CUDA C++ that kernels use, for a C++ compiler. kernel.cuh includes it in
 * place of CUDA's headers.
 *
 * The threads of a block run one at a time, in a random order that changes from launch to launch, and change only where
 * they wait: so a missing barrier shows as other results, and a barrier that not all threads reach ends the program.
 * Shared memory is NaN where nothing was written, and around the arrays, where nothing may be written. The
 * memory model and races between blocks that run at the same time are not modeled. */
#pragma once

#include <math.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>

#include "core/bfloat16.h"

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned of_x = 1, unsigned of_y = 1, unsigned of_z = 1) : x(of_x), y(of_y), z(of_z) {}
};

/* Where the running thread is. */
struct emulator_place {
  dim3 thread, block, threads, blocks;
};
extern struct emulator_place emulator_place;
#define threadIdx emulator_place.thread
#define blockIdx emulator_place.block
#define blockDim emulator_place.threads
#define gridDim emulator_place.blocks

struct CUstream_st;
/* Appends a kernel to the stream (runtime.cpp); it runs when the stream is waited for. */
void emulator_queue(struct CUstream_st *stream, std::function<void()> work);
/* Runs all threads of all blocks; kernel: its name, for messages. */
void emulator_run(dim3 blocks, dim3 threads, const char *kernel, const std::function<void()> &body);

#define CUDA_LAUNCH(kernel, blocks_, threads_, device, ...)                                               \
  do {                                                                                                    \
    const dim3 cuda_grid = (blocks_), cuda_block = (threads_);                                            \
    auto cuda_arguments = std::make_tuple(__VA_ARGS__);                                                   \
    if (cuda_grid.x > 0 && cuda_grid.y > 0 && cuda_grid.z > 0)                                            \
      emulator_queue(cuda_stream(device), [=] {                                                           \
        emulator_run(cuda_grid, cuda_block, #kernel,                                                      \
                     [&] { std::apply([=](auto... cuda_a) { kernel(cuda_a...); }, cuda_arguments); });    \
      });                                                                                                 \
  } while (0)

/* -- threads of a block together; line: of the call, which must be the same for all */

void emulator_barrier(int line);
/* Hands each lane what all lanes of the warp give, of at most 32 bytes: all (32). All lanes call. */
void emulator_collect(const void *own, size_t bytes, void *all, int line);
/* Returns the word of another lane of the warp. All lanes call. */
uint64_t emulator_exchange(unsigned mask, uint64_t own, unsigned lane, int line);
unsigned emulator_lane();
/* Ends the program if the address is not a multiple of n. */
void emulator_aligned(const void *address, size_t n);
/* Appends a copy (from NULL: zeros) to the thread's group, which it makes when it waits for all groups but `but`. */
void emulator_copy(void *to, const void *from, size_t bytes);
void emulator_copies_end();
void emulator_copies_wait(int but);
/* Returns the block's array of this key, which the first thread makes. */
void *emulator_shared(const void *key, size_t bytes);

static inline void __syncthreads(int line = __builtin_LINE())
{
  emulator_barrier(line);
}

template <typename type> static inline type emulator_shuffle(unsigned mask, type own, unsigned lane, int line)
{
  uint64_t word = 0;

  static_assert(sizeof own <= sizeof word, "a shuffle moves one word");
  memcpy(&word, &own, sizeof own);
  word = emulator_exchange(mask, word, lane, line);
  memcpy(&own, &word, sizeof own);
  return own;
}

template <typename type>
static inline type __shfl_xor_sync(unsigned mask, type own, int distance, int line = __builtin_LINE())
{
  return emulator_shuffle(mask, own, emulator_lane() ^ (unsigned)distance, line);
}

template <typename type>
static inline type __shfl_sync(unsigned mask, type own, int lane, int line = __builtin_LINE())
{
  return emulator_shuffle(mask, own, (unsigned)lane, line);
}

#define CUDA_SHARED(type, name, n)  \
  static const char name##_key = 0; \
  type *const name = (type *)emulator_shared(&name##_key, (n) * sizeof(type))

/* One thread runs at a time. */
template <typename type> static inline type atomicMin(type *at, type x)
{
  const type old = *at;

  *at = x < old ? x : old;
  return old;
}

/* -- bfloat16 */

struct __nv_bfloat16 {
  trm_bf16 bits;
};

static inline float __bfloat162float(__nv_bfloat16 x)
{
  return trm_bf16_value(x.bits);
}

static inline __nv_bfloat16 __float2bfloat16(float x)
{
  return {trm_bf16_round(x)};
}

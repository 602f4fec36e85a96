/* The threads of a block as fibers of one thread. A fiber runs one CUDA thread after the other; where one waits,
 * another fiber goes on. So kernels without barriers need one fiber. */
#include "cuda/emulator.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "core/sanitizers.h"

#ifdef TRM_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define SWITCH_STARTS(fake, stack, bytes) __sanitizer_start_switch_fiber(fake, stack, bytes)
#define SWITCH_ENDS(fake, stack, bytes) __sanitizer_finish_switch_fiber(fake, stack, bytes)
#else
#define SWITCH_STARTS(fake, stack, bytes) ((void)0)
#define SWITCH_ENDS(fake, stack, bytes) ((void)0)
#define ASAN_POISON_MEMORY_REGION(memory, bytes) ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(memory, bytes) ((void)0)
#endif

struct emulator_place emulator_place;

/* Saves the registers that a function must keep, and the stack pointer in *from; goes on where `to` was saved. As
 * swapcontext, without its system calls. */
#ifdef __x86_64__
extern "C" void emulator_switch(void **from, void *to);
asm(".text\n"
    ".type emulator_switch, @function\n"
    "emulator_switch:\n"
    "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
    "  mov %rsp, (%rdi)\n"
    "  mov %rsi, %rsp\n"
    "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"
    "  ret\n"
    ".size emulator_switch, .-emulator_switch\n");
#endif

namespace
{

enum { WARP = 32, STACK = 1 << 18, SHARED = 48 << 10, REDZONE = 64, MOST_THREADS = 1024, LANE_BYTES = 32 };
enum : char { UNWRITTEN = -1 };

struct fiber {
#ifdef __x86_64__
  void *pointer;
#else
  ucontext_t context;
#endif
  char *stack;  /* NULL: of the caller */
  void *fake;   /* the sanitizer's */
  int thread;   /* of the block */
};

struct warp {
  unsigned waiting;
  int line;
  uint64_t round; /* of exchanges; what a lane gives stays until the next but one */
  size_t bytes;
  alignas(8) char given[2][WARP * LANE_BYTES];
};

/* A copy that its thread has not waited for. */
struct late_copy {
  void *to;
  const void *from; /* NULL: zeros */
  size_t bytes;
  int group;

  void make() const
  {
    if (from)
      memcpy(to, from, bytes);
    else
      memset(to, 0, bytes);
  }
};

struct shared_array {
  const void *key;
  size_t at, bytes;
};

class block_of_threads
{
public:
  block_of_threads();
  ~block_of_threads();
  void run(dim3 blocks, dim3 threads, const char *name, const std::function<void()> &work);
  void barrier(int line);
  const void *collect(const void *own, size_t bytes, int line);
  void copy(void *to, const void *from, size_t bytes);
  void copies_end() { groups[(size_t)running->thread]++; }
  void copies_wait(int but);
  [[noreturn]] void die(const char *reason) const;
  unsigned lane() const { return (unsigned)(running->thread % WARP); }
  void *shared(const void *key, size_t bytes);

private:
  [[noreturn]] static void fiber_main();
  void shuffle_order();
  void run_block();
  void check_unused(size_t from, size_t to) const;
  void run_threads();
  static void prepare(fiber *made);
  void go_to(fiber *next);
  void go_on();
  void place_thread();

  fiber caller = {};
  std::vector<std::unique_ptr<fiber>> fibers;
  std::vector<fiber *> idle, ready; /* without a thread; whose thread can go on */
  fiber *running = &caller;
  std::vector<int> order; /* of the threads */
  int started = 0, done = 0, threads = 0;
  std::vector<fiber *> waiting; /* at the barrier */
  int barrier_line = 0;
  std::vector<warp> warps;
  std::vector<std::vector<fiber *>> exchanging;
  std::vector<std::vector<late_copy>> copies; /* of the threads */
  std::vector<int> groups;                    /* ended */
  bool copies_late = false;                   /* in this block; otherwise they are made at once */
  std::vector<shared_array> arrays;
  size_t shared_used = 0, shared_taken = 0;
  alignas(16) char memory[SHARED + 64 * REDZONE];
  std::minstd_rand random;
  const char *kernel = "";
  const std::function<void()> *body = nullptr;
  const void *caller_stack = nullptr;
  size_t caller_bytes = 0;
};

block_of_threads all;

block_of_threads::block_of_threads()
{
  memset(memory, UNWRITTEN, sizeof memory);
}

block_of_threads::~block_of_threads()
{
  ASAN_UNPOISON_MEMORY_REGION(memory, sizeof memory);
  for (auto &it : fibers)
    munmap(it->stack, STACK);
}

void block_of_threads::die(const char *reason) const
{
  fprintf(stderr, "emulator: %s: block (%u, %u), thread %d: %s\n", kernel, emulator_place.block.x,
          emulator_place.block.y, running->thread, reason);
  abort();
}

void block_of_threads::place_thread()
{
  const unsigned at = (unsigned)running->thread, x = emulator_place.threads.x, y = emulator_place.threads.y;

  emulator_place.thread = dim3(at % x, at / x % y, at / x / y);
}

void block_of_threads::go_to(fiber *next)
{
  fiber *const own = running;

  running = next;
  if (next == own)
    return;
  SWITCH_STARTS(&own->fake, next->stack ? next->stack : caller_stack, next->stack ? (size_t)STACK : caller_bytes);
#ifdef __x86_64__
  emulator_switch(&own->pointer, next->pointer);
#else
  swapcontext(&own->context, &next->context);
#endif
  SWITCH_ENDS(own->fake, nullptr, nullptr);
}

/* Makes a new fiber begin in fiber_main. */
void block_of_threads::prepare(fiber *made)
{
#ifdef __x86_64__
  void **top = (void **)(made->stack + STACK) - 1; /* aligned as after a call */

  *--top = (void *)fiber_main;
  made->pointer = top - 6; /* registers */
#else
  getcontext(&made->context);
  made->context.uc_stack.ss_sp = made->stack;
  made->context.uc_stack.ss_size = STACK;
  made->context.uc_link = nullptr;
  makecontext(&made->context, fiber_main, 0);
#endif
}

/* Leaves the running fiber for one that has work. */
void block_of_threads::go_on()
{
  const bool resumes = !ready.empty() && random() / 4 % 2;

  if (started < threads && !resumes) {
    if (idle.empty()) {
      fibers.push_back(std::make_unique<fiber>());
      fiber *made = fibers.back().get();
      void *stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

      if (stack == MAP_FAILED)
        die("no memory for a stack");
      made->stack = (char *)stack;
      prepare(made);
      idle.push_back(made);
    }
    fiber *next = idle.back();

    idle.pop_back();
    go_to(next);
  } else if (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    fiber *next = ready.back();

    ready.pop_back();
    go_to(next);
    place_thread();
    return;
  } else if (done == threads) {
    go_to(&caller);
  } else {
    die("not all threads of the block, or lanes of the warp, come to where this one waits");
  }
  if (running != &caller && running->thread >= 0)
    place_thread();
}

void block_of_threads::fiber_main()
{
  SWITCH_ENDS(nullptr, &all.caller_stack, &all.caller_bytes);
  for (;;)
    all.run_threads();
}

/* In a fiber: runs threads until all have started, then waits for the next block. */
void block_of_threads::run_threads()
{
  while (started < threads) {
    running->thread = order[(size_t)started++];
    place_thread();
    (*body)();
    if (!copies[(size_t)running->thread].empty())
      die("the thread ends with copies that it has not waited for");
    done++;
  }
  running->thread = -1;
  idle.push_back(running);
  go_on();
}

/* Threads in random order, or the warps, as a processor has them: then some end a step before others begin it. */
void block_of_threads::shuffle_order()
{
  std::shuffle(order.begin(), order.end(), random);
  if (random() / 4 % 2)
    return;
  std::vector<int> place(warps.size());
  for (size_t i = 0, warp = 0; i < order.size(); i++)
    if (order[i] % WARP == 0)
      place[(size_t)order[i] / WARP] = (int)warp++;
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return place[(size_t)a / WARP] < place[(size_t)b / WARP]; });
}

void block_of_threads::run_block()
{
  started = done = 0;
  copies_late = random() / 4 % 2;
  shuffle_order();
  for (warp &it : warps)
    it.waiting = 0;
  ASAN_UNPOISON_MEMORY_REGION(memory, sizeof memory);
  memset(memory, UNWRITTEN, shared_used + REDZONE);
  ASAN_POISON_MEMORY_REGION(memory, sizeof memory);
  arrays.clear();
  shared_used = shared_taken = 0;
  go_on();
  if (done != threads)
    die("ended early");
  ASAN_UNPOISON_MEMORY_REGION(memory, sizeof memory);
  size_t end = 0;
  for (const shared_array &it : arrays) {
    check_unused(end, it.at);
    end = it.at + it.bytes;
  }
  if (!arrays.empty())
    check_unused(end, shared_used + REDZONE);
}

/* Ends the program if shared memory that is no array's has been written. */
void block_of_threads::check_unused(size_t from, size_t to) const
{
  for (size_t i = from; i < to; i++)
    if (memory[i] != UNWRITTEN)
      die("a write outside of the block's shared arrays");
}

void block_of_threads::run(dim3 blocks, dim3 size, const char *name, const std::function<void()> &work)
{
  std::vector<unsigned> number((size_t)blocks.x * blocks.y * blocks.z);

  kernel = name;
  body = &work;
  threads = (int)(size.x * size.y * size.z);
  emulator_place.threads = size;
  emulator_place.blocks = blocks;
  if (threads > MOST_THREADS || blocks.y > 65535 || blocks.z > 65535)
    die("a launch that no GPU accepts");
  order.resize((size_t)threads);
  std::iota(order.begin(), order.end(), 0);
  warps.resize((size_t)(threads + WARP - 1) / WARP);
  exchanging.resize(warps.size());
  copies.resize((size_t)threads);
  groups.assign((size_t)threads, 0);
  std::iota(number.begin(), number.end(), 0u);
  std::shuffle(number.begin(), number.end(), random);
  for (unsigned at : number) {
    emulator_place.block = dim3(at % blocks.x, at / blocks.x % blocks.y, at / blocks.x / blocks.y);
    run_block();
  }
}

void block_of_threads::barrier(int line)
{
  if (waiting.empty())
    barrier_line = line;
  if (line != barrier_line)
    die("the block waits at another barrier");
  waiting.push_back(running);
  if ((int)waiting.size() == threads)
    ready.swap(waiting);
  go_on();
}

/* Returns what the lanes of the warp give, `bytes` each. */
const void *block_of_threads::collect(const void *own, size_t bytes, int line)
{
  const size_t number = (size_t)(running->thread / WARP);
  warp *it = &warps[number];

  if (threads - (int)number * WARP < WARP || bytes > LANE_BYTES)
    die("lanes of a part of a warp");
  if (it->waiting == 0) {
    it->line = line;
    it->bytes = bytes;
  }
  if (line != it->line || bytes != it->bytes)
    die("the warp waits at another shuffle");
  char *const given = it->given[it->round % 2];
  memcpy(given + (size_t)(running->thread % WARP) * bytes, own, bytes);
  exchanging[number].push_back(running);
  if (++it->waiting == WARP) {
    it->waiting = 0;
    it->round++;
    ready.insert(ready.end(), exchanging[number].begin(), exchanging[number].end());
    exchanging[number].clear();
  }
  go_on();
  return given;
}

void block_of_threads::copy(void *to, const void *from, size_t bytes)
{
  const size_t thread = (size_t)running->thread;
  const late_copy it = {to, from, bytes, groups[thread]};

  if (copies_late)
    copies[thread].push_back(it);
  else
    it.make();
}

void block_of_threads::copies_wait(int but)
{
  std::vector<late_copy> &own = copies[(size_t)running->thread];
  size_t n = 0;

  for (; n < own.size() && own[n].group < groups[(size_t)running->thread] - but; n++)
    own[n].make();
  own.erase(own.begin(), own.begin() + (ptrdiff_t)n);
}

void *block_of_threads::shared(const void *key, size_t bytes)
{
  for (const shared_array &it : arrays)
    if (it.key == key)
      return memory + it.at;
  const size_t at = shared_used + REDZONE, padded = (bytes + 15) / 16 * 16;

  shared_taken += padded;
  if (shared_taken > SHARED || at + padded + REDZONE > sizeof memory)
    die("more than 48 KiB of shared memory");
  shared_used = at + padded;
  ASAN_UNPOISON_MEMORY_REGION(memory + at, bytes);
  arrays.push_back({key, at, bytes});
  return memory + at;
}

} // namespace

void emulator_run(dim3 blocks, dim3 threads, const char *kernel, const std::function<void()> &body)
{
  all.run(blocks, threads, kernel, body);
}

void emulator_barrier(int line)
{
  all.barrier(line);
}

void emulator_collect(const void *own, size_t bytes, void *to, int line)
{
  memcpy(to, all.collect(own, bytes, line), WARP * bytes);
}

uint64_t emulator_exchange(unsigned mask, uint64_t own, unsigned lane, int line)
{
  if (mask != 0xffffffffu || lane >= WARP)
    all.die("a shuffle of a part of a warp");
  return ((const uint64_t *)all.collect(&own, sizeof own, line))[lane];
}

void emulator_aligned(const void *address, size_t n)
{
  if ((uintptr_t)address % n != 0)
    all.die("an address that is not aligned");
}

void emulator_copy(void *to, const void *from, size_t bytes)
{
  all.copy(to, from, bytes);
}

void emulator_copies_end()
{
  all.copies_end();
}

void emulator_copies_wait(int but)
{
  all.copies_wait(but);
}

unsigned emulator_lane()
{
  return all.lane();
}

void *emulator_shared(const void *key, size_t bytes)
{
  return all.shared(key, bytes);
}

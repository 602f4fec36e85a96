/* Fibers and events of the virtual network. A fiber that waits runs the events itself, in its own stack, until one
 * resumes a fiber: itself, or another, to which it switches. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE /* its longjmp knows one stack only */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/sanitizers.h"
#include "core/status.h"
#include "mpi/virtual_private.h"

#ifdef TRM_ADDRESS_SANITIZER
#define FIBER_ASAN(call) call
#include <sanitizer/asan_interface.h>
#else
#define FIBER_ASAN(call)
#endif
#ifdef TRM_THREAD_SANITIZER
#define FIBER_TSAN(call) call
#include <sanitizer/tsan_interface.h>
#else
#define FIBER_TSAN(call)
#endif

#define STACK_BYTES ((size_t)512 << 10) /* address space; pages that are not touched take no memory */

/* A stack with a page below that cannot be accessed takes two mappings, of which a process may have 65,530
 * (vm.max_map_count). With more ranks the stacks are one mapping, and an overflow is not noticed there; their depth does
 * not depend on the number of ranks. */
#define MAX_GUARDED 16000

#define MAX_AT_ONCE ((uint64_t)20 * 1000 * 1000) /* events of one time, for a run to be taken as stuck */

struct virtual_fiber {
  ucontext_t machine;          /* before it has run; under a sanitizer: where it waits */
  jmp_buf place;               /* where it waits */
  bool started;
  struct virtual_net *net;
  struct virtual_rank *rank;   /* NULL: the root */
  struct trm_context own, *context;
  void *stack;                 /* owned: above a page that cannot be accessed; or in net->stacks */
  size_t stack_bytes;
  void (*run)(void *of);
  void *of;
  virtual_describe *describe;  /* what it waits for */
  const void *waits_for;
  bool ended;
  struct virtual_notes *notes; /* of the call that it answers; NULL: none */
  struct virtual_fiber *joins; /* waits for its end */
  void *fake_stack, *thread;   /* of the sanitizers */
};

/* -- events: a heap by (time, order) */

static bool fiber_is_before(const struct virtual_event *a, const struct virtual_event *b)
{
  return a->time < b->time || (a->time == b->time && a->order < b->order);
}

static void fiber_push(struct virtual_net *net, struct virtual_event event)
{
  net->event = trm_grow(net->event, &net->event_capacity, net->events, net->events + 1, sizeof event, "events");
  event.order = net->order++;
  if (net->plan.schedule)
    event.order |= virtual_random_word(net) << 40;
  size_t i = net->events++;
  for (size_t parent; i > 0 && fiber_is_before(&event, &net->event[parent = (i - 1) / 2]); i = parent)
    net->event[i] = net->event[parent];
  net->event[i] = event;
}

/* Removes the event at this place of the heap. */
static struct virtual_event fiber_remove(struct virtual_net *net, size_t i)
{
  struct virtual_event *heap = net->event;
  const struct virtual_event removed = heap[i], last = heap[--net->events];
  for (size_t parent; i > 0 && fiber_is_before(&last, &heap[parent = (i - 1) / 2]); i = parent)
    heap[i] = heap[parent];
  for (size_t child; (child = 2 * i + 1) < net->events; i = child) {
    if (child + 1 < net->events && fiber_is_before(&heap[child + 1], &heap[child]))
      child++;
    if (!fiber_is_before(&heap[child], &last))
      break;
    heap[i] = heap[child];
  }
  heap[i] = last;
  return removed;
}

void virtual_act_at(struct virtual_net *net, double time, void (*act)(struct virtual_net *net, void *of), void *of)
{
  fiber_push(net, (struct virtual_event){.time = time, .act = act, .of = of});
}

void virtual_resume_at(struct virtual_net *net, double time, struct virtual_fiber *fiber)
{
  fiber_push(net, (struct virtual_event){.time = time, .fiber = fiber});
}

void virtual_resume_cancel(struct virtual_net *net, const struct virtual_fiber *fiber)
{
  size_t i = 0;
  while (net->event[i].fiber != fiber)
    i++;
  fiber_remove(net, i);
}

/* -- the random schedule */

uint64_t virtual_random_word(struct virtual_net *net) /* splitmix64 (Steele, Lea and Flood 2014) */
{
  uint64_t z = net->random += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

/* Mostly of the order of the latency; one in eight is much longer, so that a rank falls behind by whole batches. */
double virtual_random_delay(struct virtual_net *net)
{
  if (!net->plan.schedule)
    return 0;
  const uint64_t word = virtual_random_word(net);
  const double unit = ((double)(word >> 11) + 1) * 0x1p-53, mean = net->plan.latency > 0 ? net->plan.latency : 1e-6;
  return -log(unit) * mean * (word % 8 == 0 ? 300 : 1);
}

/* -- switching */

/* swapcontext saves the mask of signals, too, with a system call; the sanitizers know no other way. */
static void fiber_swap(struct virtual_fiber *from, struct virtual_fiber *to)
{
#if defined(TRM_ADDRESS_SANITIZER) || defined(TRM_THREAD_SANITIZER)
  swapcontext(&from->machine, &to->machine);
#else
  if (_setjmp(from->place) != 0)
    return;
  if (to->started)
    _longjmp(to->place, 1);
  to->started = true;
  setcontext(&to->machine);
#endif
}

static void fiber_switch(struct virtual_net *net, struct virtual_fiber *to)
{
  struct virtual_fiber *from = net->current;
  net->current = to;
  net->figures.switches++;
  trm_context_set(to->context);
  FIBER_ASAN(__sanitizer_start_switch_fiber(from->ended ? NULL : &from->fake_stack, to->stack, to->stack_bytes));
  FIBER_TSAN(__tsan_switch_to_fiber(to->thread, 0));
  fiber_swap(from, to);
  FIBER_ASAN(__sanitizer_finish_switch_fiber(from->fake_stack, NULL, NULL));
}

/* The first function of a fiber. makecontext passes int arguments only. */
static void fiber_enter(unsigned high, unsigned low)
{
  struct virtual_fiber *fiber = (struct virtual_fiber *)((uintptr_t)high << 32 | low);
  FIBER_ASAN(struct virtual_fiber *root = fiber->net->root;
             const void *stack; size_t bytes;
             __sanitizer_finish_switch_fiber(NULL, &stack, &bytes);
             if (!root->stack) {
               root->stack = (void *)(uintptr_t)stack;
               root->stack_bytes = bytes;
             });
  fiber->run(fiber->of);
  fiber->ended = true;
  if (fiber->joins)
    virtual_resume_at(fiber->net, fiber->net->now, fiber->joins);
  virtual_park(fiber->net, NULL, NULL);
  abort(); /* nothing resumes it */
}

static void fiber_fail_stacks(struct virtual_net *net)
{
  virtual_fail(net, "out of memory for the stacks of %d ranks (limits: ulimit -v, vm.max_map_count)", net->plan.ranks);
}

void virtual_stacks_create(struct virtual_net *net)
{
  const size_t bytes = (size_t)net->plan.ranks * STACK_BYTES;
  if (net->plan.ranks <= MAX_GUARDED)
    return;
  net->stacks = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (net->stacks == MAP_FAILED)
    fiber_fail_stacks(net);
  madvise(net->stacks, bytes, MADV_NOHUGEPAGE); /* a rank touches some 4 KiB pages of its own */
}

void virtual_stacks_free(struct virtual_net *net)
{
  if (net->stacks)
    munmap(net->stacks, (size_t)net->plan.ranks * STACK_BYTES);
}

/* Returns the memory of a stack: a rank's first fiber has that of the net, if it has any. */
static void *fiber_take_stack(struct virtual_net *net, const struct virtual_rank *rank)
{
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  if (net->stacks && !rank->fiber)
    return net->stacks + (size_t)rank->rank * STACK_BYTES;
  char *memory = mmap(NULL, STACK_BYTES + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory + page, STACK_BYTES, PROT_READ | PROT_WRITE) != 0)
    fiber_fail_stacks(net);
  return memory + page;
}

struct virtual_fiber *virtual_fiber_create(struct virtual_net *net, struct virtual_rank *rank, void (*run)(void *of),
                                           void *of)
{
  struct virtual_fiber *fiber = trm_alloc(sizeof *fiber, "a rank");
  fiber->net = net;
  fiber->rank = rank;
  fiber->own.rank = &rank->state;
  fiber->context = &fiber->own;
  fiber->stack = fiber_take_stack(net, rank);
  fiber->stack_bytes = STACK_BYTES;
  fiber->run = run;
  fiber->of = of;
  FIBER_TSAN(fiber->thread = __tsan_create_fiber(0));
  getcontext(&fiber->machine);
  fiber->machine.uc_stack.ss_sp = fiber->stack;
  fiber->machine.uc_stack.ss_size = fiber->stack_bytes;
  makecontext(&fiber->machine, (void (*)(void))fiber_enter, 2, (unsigned)((uintptr_t)fiber >> 32),
              (unsigned)(uintptr_t)fiber);
  virtual_resume_at(net, net->now, fiber);
  return fiber;
}

struct virtual_fiber *virtual_fiber_root(struct virtual_net *net)
{
  struct virtual_fiber *root = trm_alloc(sizeof *root, "the virtual network");
  root->net = net;
  root->context = trm_context_current();
  root->started = true;
  FIBER_TSAN(root->thread = __tsan_get_current_fiber());
  return root;
}

void virtual_fiber_free(struct virtual_fiber *fiber)
{
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  const struct virtual_net *net = fiber->net;
  if (fiber->rank) {
    FIBER_TSAN(__tsan_destroy_fiber(fiber->thread));
    FIBER_ASAN(__asan_unpoison_memory_region(fiber->stack, fiber->stack_bytes)); /* for what is mapped there next */
    if (!net->stacks || fiber != fiber->rank->fiber)
      munmap((char *)fiber->stack - page, fiber->stack_bytes + page);
  }
  trm_free(fiber);
}

const struct trm_context *virtual_fiber_context(const struct virtual_fiber *fiber)
{
  return fiber->context;
}

struct virtual_notes **virtual_fiber_notes(struct virtual_fiber *fiber)
{
  return &fiber->notes;
}

/* -- waiting */

/* Ranks that wait for the same. */
struct fiber_stuck {
  char what[256];
  int first, count;
};

/* Sets the error's text to what each rank waits for. */
static void fiber_report_deadlock(struct virtual_net *net)
{
  enum { KINDS = 8 };
  struct fiber_stuck stuck[KINDS];
  int kinds = 0, others = 0;
  char *text = NULL;
  for (int i = 0; i < net->plan.ranks; i++) {
    const struct virtual_fiber *fiber = net->rank[i].fiber;
    char what[sizeof stuck->what] = "";
    int k = 0;
    if (net->rank[i].done)
      continue;
    if (fiber->describe)
      fiber->describe(fiber->waits_for, what, sizeof what);
    while (k < kinds && strcmp(stuck[k].what, what) != 0)
      k++;
    if (k == KINDS)
      others++;
    else if (k == kinds)
      stuck[kinds++] = (struct fiber_stuck){.first = i};
    if (k < KINDS) {
      memcpy(stuck[k].what, what, sizeof what);
      stuck[k].count++;
    }
  }
  for (int k = 0; k < kinds; k++)
    if (stuck[k].count == 1)
      trm_append(&text, "; rank %d waits for %s", stuck[k].first, stuck[k].what);
    else
      trm_append(&text, "; %d ranks, the first is %d, wait for %s", stuck[k].count, stuck[k].first, stuck[k].what);
  if (others > 0)
    trm_append(&text, "; and %d more ranks", others);
  trm_context_set(net->root->context);
  trm_error(TRM_FAILED, "deadlock at %.9g s of virtual time: nothing is under way%s", net->now, text);
  trm_free(text);
}

void virtual_park(struct virtual_net *net, virtual_describe *describe, const void *of)
{
  struct virtual_fiber *self = net->current;
  if (net->acting)
    virtual_fail(net, "a function that answers calls has to wait");
  self->describe = describe;
  self->waits_for = of;
  for (;;) {
    if (net->events == 0) {
      fiber_report_deadlock(net);
      virtual_resume_at(net, net->now, net->root);
    }
    const struct virtual_event event = fiber_remove(net, 0);
    net->at_once = event.time > net->now ? 0 : net->at_once + 1;
    if (net->at_once > MAX_AT_ONCE)
      virtual_fail(net, "virtual time stands still at %.9g s: ranks wake one another without end", net->now);
    net->now = event.time > net->now ? event.time : net->now;
    net->polls = 0;
    net->figures.events++;
    if (event.act) {
      net->acting = true;
      event.act(net, event.of);
      net->acting = false;
      continue;
    }
    if (event.fiber != self)
      fiber_switch(net, event.fiber);
    return;
  }
}

static void fiber_describe_sleep(const void *of, char *text, size_t bytes)
{
  (void)of;
  snprintf(text, bytes, "a time");
}

static void fiber_describe_join(const void *of, char *text, size_t bytes)
{
  (void)of;
  snprintf(text, bytes, "the end of its calls");
}

void virtual_fiber_join(struct virtual_fiber *fiber)
{
  fiber->joins = fiber->net->current;
  virtual_park(fiber->net, fiber_describe_join, NULL);
  virtual_fiber_free(fiber);
}

void virtual_sleep_until(struct virtual_net *net, double time)
{
  if (time <= net->now)
    return;
  net->polls = 0;
  if (net->events == 0 || net->event[0].time > time) { /* nothing happens before */
    net->now = time;
    net->at_once = 0;
    return;
  }
  virtual_resume_at(net, time, net->current);
  virtual_park(net, fiber_describe_sleep, NULL);
}

void virtual_fail(struct virtual_net *net, const char *format, ...)
{
  char text[1024];
  va_list arguments;
  (void)net;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  trm_error(TRM_FAILED, "%s", text);
  trm_log_error();
  fflush(NULL);
  _exit(TRM_FAILED); /* other threads may be computing */
}

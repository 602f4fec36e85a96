#include "core/ledger.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/context.h"

#define LINE_BYTES 64

/* The first line belongs to the rank's main thread; the others are set when it is opened, but for two counters. */
struct trm_ledger_entry {
  _Alignas(LINE_BYTES) _Atomic uint64_t changes; /* of this line */
  _Atomic uint64_t group, number, bytes, step;
  _Atomic int32_t peer, layer;
  _Atomic uint8_t operation, role, phase, pass;

  _Alignas(LINE_BYTES) _Atomic uint64_t answers, beats;
  int32_t rank, pid;
  char host[64];
};
_Static_assert(offsetof(struct trm_ledger_entry, answers) == LINE_BYTES, "a rank's line of the ledger is one line");

size_t trm_ledger_entry_bytes(void)
{
  return sizeof(struct trm_ledger_entry);
}

#define SET(field, value) atomic_store_explicit(&entry->field, value, memory_order_relaxed)
#define GET(field) atomic_load_explicit(&entry->field, memory_order_relaxed)

static struct trm_ledger_entry *ledger_mine(void)
{
  return trm_context_current()->ledger;
}

/* Comes after the stores of a change. */
static void ledger_changed(struct trm_ledger_entry *entry)
{
  atomic_store_explicit(&entry->changes, GET(changes) + 1, memory_order_release);
}

void trm_ledger_open(struct trm_ledger_entry *entry, int rank)
{
  trm_context_current()->ledger = entry;
  trm_rank_current()->ledger = entry;
  if (!entry)
    return;
  entry->rank = rank;
  entry->pid = (int32_t)getpid();
  gethostname(entry->host, sizeof entry->host - 1);
  entry->host[strcspn(entry->host, "\"\\")] = '\0';
  SET(layer, -1);
  ledger_changed(entry);
}

enum trm_ledger_operation trm_ledger_enter(const struct trm_ledger_call *call)
{
  struct trm_ledger_entry *entry = ledger_mine();
  if (!entry)
    return TRM_LEDGER_COMPUTE;
  const enum trm_ledger_operation before = GET(operation);
  SET(operation, (uint8_t)call->operation);
  SET(role, (uint8_t)call->role);
  SET(group, call->group);
  SET(number, call->number);
  SET(bytes, call->bytes);
  SET(peer, call->peer);
  ledger_changed(entry);
  return before;
}

void trm_ledger_leave(enum trm_ledger_operation before)
{
  struct trm_ledger_entry *entry = ledger_mine();
  if (!entry)
    return;
  SET(operation, (uint8_t)before);
  ledger_changed(entry);
}

void trm_ledger_set_phase(enum trm_ledger_phase phase, uint64_t step)
{
  struct trm_ledger_entry *entry = ledger_mine();
  if (!entry)
    return;
  SET(phase, (uint8_t)phase);
  SET(step, step);
  SET(layer, -1);
  ledger_changed(entry);
}

void trm_ledger_set_layer(int layer, enum trm_ledger_pass pass)
{
  struct trm_ledger_entry *entry = ledger_mine();
  if (!entry)
    return;
  SET(layer, layer);
  SET(pass, (uint8_t)pass);
  ledger_changed(entry);
}

void trm_ledger_add_progress(void)
{
  struct trm_ledger_entry *entry = ledger_mine();
  if (entry)
    ledger_changed(entry);
}

void trm_ledger_add_answer(void)
{
  struct trm_ledger_entry *entry = trm_rank_current()->ledger;
  if (entry)
    atomic_fetch_add_explicit(&entry->answers, 1, memory_order_relaxed);
}

void trm_ledger_beat(struct trm_ledger_entry *entry)
{
  atomic_fetch_add_explicit(&entry->beats, 1, memory_order_relaxed);
}

uint64_t trm_ledger_beats(const struct trm_ledger_entry *entry)
{
  return GET(beats);
}

/* What changes while it is read belongs to a rank that makes progress: any mixture will do. */
void trm_ledger_read(const struct trm_ledger_entry *entry, struct trm_ledger_rank *rank)
{
  const uint64_t changes = atomic_load_explicit(&entry->changes, memory_order_acquire);
  *rank = (struct trm_ledger_rank){
    .rank = entry->rank,
    .pid = entry->pid,
    .state = '?',
    .progress = changes + GET(answers),
    .phase = GET(phase),
    .step = GET(step),
    .layer = GET(layer),
    .pass = GET(pass),
    .call = {.operation = GET(operation), .role = GET(role), .group = GET(group), .number = GET(number),
             .bytes = GET(bytes), .peer = GET(peer)},
  };
  memcpy(rank->host, entry->host, sizeof rank->host);
}

bool trm_ledger_waits(enum trm_ledger_operation operation)
{
  return operation >= TRM_LEDGER_BARRIER && operation <= TRM_LEDGER_ACCESS;
}

bool trm_ledger_is_collective(enum trm_ledger_operation operation)
{
  return operation >= TRM_LEDGER_BARRIER && operation <= TRM_LEDGER_CALLS;
}

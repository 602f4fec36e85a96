#include "job/stall.h"

#include <string.h>

#include "core/memory.h"

enum { MAX_NAMED = 3 }; /* ranks, operations, hosts in a line; the rest is counted */

static bool stall_is_behind(const struct trm_ledger_rank *rank, double after_s)
{
  return rank->since_s >= after_s && (!rank->runs || !trm_ledger_waits(rank->call.operation));
}

static bool stall_is_waiting(const struct trm_ledger_rank *rank, double after_s)
{
  return rank->since_s >= after_s && !stall_is_behind(rank, after_s);
}

static const char *stall_state_text(const struct trm_ledger_rank *rank)
{
  switch (rank->state) {
  case 'T':
    return "is stopped by a signal";
  case 't':
    return "is stopped by a debugger";
  case 'D':
    return "waits for a file system or a device";
  case 'X':
  case 'Z':
    return "has ended";
  default:
    return rank->runs ? NULL : "is not heard of";
  }
}

/* Appends "rank 3 (host a, pid 123) computes backward of layer 4 in step 812, for 61 s" or "rank 3 (host a, pid 123)
 * is stopped by a signal, for 61 s (it computes backward of layer 4 in step 812)". */
static void stall_append_behind(char **text, const struct trm_ledger_rank *rank)
{
  char doing[256];
  const char *state = stall_state_text(rank);
  trm_ledger_text(rank, doing);
  trm_append(text, "rank %d (host %s, pid %d) %s, for %.0f s", rank->rank, rank->host, rank->pid,
             state ? state : doing, rank->since_s);
  if (state)
    trm_append(text, " (it %s)", doing);
}

/* The same in words: communicators of one role are not told apart. */
static bool stall_same_operation(const struct trm_ledger_call *a, const struct trm_ledger_call *b)
{
  return a->operation == b->operation && a->role == b->role && a->number == b->number && a->peer == b->peer &&
         a->bytes == b->bytes;
}

/* Returns the number of waiting ranks in this rank's operation; *first: it is the first of them. */
static int stall_count(const struct trm_ledger_rank *rank, int ranks, int i, double after_s, bool *first)
{
  int count = 0;
  *first = true;
  for (int k = 0; k < ranks; k++)
    if (stall_is_waiting(&rank[k], after_s) && stall_same_operation(&rank[k].call, &rank[i].call)) {
      *first &= k >= i;
      count++;
    }
  return count;
}

/* Appends "7 ranks wait for it in allreduce #812 of the data axis, rank 5 (host a, pid 7) waits ...". behind: "", " for
 * it". */
static void stall_append_waiting(char **text, const struct trm_ledger_rank *rank, int ranks, double after_s,
                                 const char *behind)
{
  int named = 0, more = 0;
  for (int i = 0; i < ranks; i++) {
    char operation[160];
    bool first;
    if (!stall_is_waiting(&rank[i], after_s))
      continue;
    const int count = stall_count(rank, ranks, i, after_s, &first);
    if (!first)
      continue;
    if (named++ >= MAX_NAMED) {
      more += count;
      continue;
    }
    if (named > 1)
      trm_append(text, ", ");
    if (count > 1)
      trm_append(text, "%d ranks wait", count);
    else
      trm_append(text, "rank %d (host %s, pid %d) waits", rank[i].rank, rank[i].host, rank[i].pid);
    trm_append(text, "%s %s", trm_ledger_is_collective(rank[i].call.operation) ? behind : "",
               trm_ledger_operation_text(&rank[i].call, operation));
  }
  if (more > 0)
    trm_append(text, ", %d more ranks wait", more);
}

/* Appends what the ranks behind do. Returns their number. */
static int stall_append_all_behind(char **text, const struct trm_ledger_rank *rank, int ranks, double after_s)
{
  int behind = 0;
  for (int stopped = 1; stopped >= 0; stopped--) /* first those whose process does not run */
    for (int i = 0; i < ranks; i++)
      if (stall_is_behind(&rank[i], after_s) && stopped == !rank[i].runs && behind++ < MAX_NAMED) {
        if (*text)
          trm_append(text, ", ");
        stall_append_behind(text, &rank[i]);
      }
  if (behind > MAX_NAMED)
    trm_append(text, ", and %d more", behind - MAX_NAMED);
  return behind;
}

/* Returns a waiting rank whose collective has the number of another's on its communicator, but is another one: the rank
 * that fewer ranks agree with; -1: there is none. */
static int stall_find_mismatch(const struct trm_ledger_rank *rank, int ranks)
{
  for (int i = 0; i < ranks; i++)
    for (int k = i + 1; k < ranks; k++) {
      const struct trm_ledger_call *a = &rank[i].call, *b = &rank[k].call;
      bool first;
      if (trm_ledger_is_collective(a->operation) && trm_ledger_is_collective(b->operation) && a->group == b->group &&
          a->number == b->number && !stall_same_operation(a, b))
        return stall_count(rank, ranks, i, 0, &first) < stall_count(rank, ranks, k, 0, &first) ? i : k;
    }
  return -1;
}

/* All ranks wait. */
static void stall_append_deadlock(char **text, struct trm_ledger_rank *rank, int ranks)
{
  const int odd = stall_find_mismatch(rank, ranks);
  char operation[160];
  if (odd >= 0) {
    const struct trm_ledger_rank one = rank[odd];
    trm_append(text, "collectives do not match: rank %d (host %s, pid %d) is %s, ", one.rank, one.host, one.pid,
               trm_ledger_operation_text(&one.call, operation));
    rank[odd].since_s = -1; /* the others */
    stall_append_waiting(text, rank, ranks, 0, "");
    rank[odd].since_s = one.since_s;
  } else {
    trm_append(text, "all ranks wait: ");
    stall_append_waiting(text, rank, ranks, 0, "");
  }
  trm_append(text, ", for %.0f s", rank[0].since_s);
}

char *trm_stall_describe(const struct trm_ledger_rank *rank, int ranks, int job_ranks, double after_s)
{
  char *text = NULL;
  int waiting = 0;
  for (int i = 0; i < ranks; i++)
    waiting += stall_is_waiting(&rank[i], after_s);
  const int behind = stall_append_all_behind(&text, rank, ranks, after_s);
  if (behind > 0 && waiting > 0) {
    trm_append(&text, "; ");
    stall_append_waiting(&text, rank, ranks, after_s, behind > 1 ? " for them" : " for it");
  } else if (behind == 0 && waiting == ranks && ranks > 0) {
    struct trm_ledger_rank *copy = trm_alloc((size_t)ranks * sizeof *copy, "the ledger");
    memcpy(copy, rank, (size_t)ranks * sizeof *copy);
    stall_append_deadlock(&text, copy, ranks);
    trm_free(copy);
  }
  if (text && ranks < job_ranks)
    trm_append(&text, "; nothing is known of %d ranks on other nodes", job_ranks - ranks);
  return text;
}

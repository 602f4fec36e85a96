#include "cli/status_ledger.h"

#include <stdio.h>

#include "core/ledger.h"
#include "core/memory.h"
#include "job/stall.h"

/* Of larger jobs only ranks without progress for this long are printed. */
enum { MAX_RANKS = 64 };
static const double standing_s = 10;

void status_print_ledger(const char *run_dir)
{
  struct trm_ledger_rank *rank;
  double newest_s;
  char text[256];
  const int ranks = trm_ledger_folder_read(run_dir, &rank, &newest_s);
  int moving = 0;
  if (ranks > 0)
    printf("%-10s  %d, as of %.0f s ago\n", "ranks", ranks, newest_s);
  for (int i = 0; i < ranks; i++)
    if (ranks > MAX_RANKS && rank[i].since_s < standing_s)
      moving++;
    else
      printf("  rank %d (host %s, pid %d) %s, for %.1f s\n", rank[i].rank, rank[i].host, rank[i].pid,
             trm_ledger_text(&rank[i], text), rank[i].since_s);
  if (moving > 0)
    printf("  %d ranks make progress\n", moving);
  char *stalled = trm_stall_describe(rank, ranks, ranks, standing_s);
  if (stalled)
    printf("%-10s  %s\n", "stalled", stalled);
  trm_free(stalled);
  trm_free(rank);
}

/* The table of training methods. To add one: its file in sync/ or async/, its row here. */
#include "mpi/strategies.h"

#include <string.h>

#include "core/memory.h"
#include "core/options.h"
#include "core/status.h"
#include "mpi/async/async.h"
#include "mpi/sync/replicas.h"

const struct trm_strategy_ops *const trm_strategy_table[] = {
  &trm_strategy_sync,
  &trm_strategy_local,
  &trm_strategy_postlocal,
  &trm_strategy_slowmo,
  &trm_strategy_bmuf,
  &trm_strategy_diloco,
  &trm_strategy_adasum,
  &trm_strategy_asgd,
  &trm_strategy_hogwild,
  &trm_strategy_groups,
  &trm_strategy_softsync,
  &trm_strategy_dcasgd,
  &trm_strategy_ssp,
  &trm_strategy_essp,
  &trm_strategy_easgd,
  &trm_strategy_eamsgd,
  &trm_strategy_adpsgd,
  &trm_strategy_sgp,
  &trm_strategy_keuper,
  NULL,
};

const struct trm_strategy_ops *trm_strategy_find(const char *name)
{
  const char *known[sizeof trm_strategy_table / sizeof trm_strategy_table[0]];
  char list[1024] = "";
  int i = 0;
  for (; trm_strategy_table[i]; i++) {
    known[i] = trm_strategy_table[i]->name;
    if (strcmp(name, known[i]) == 0)
      return trm_strategy_table[i];
    strncat(list, i ? ", " : "", sizeof list - strlen(list) - 1);
    strncat(list, known[i], sizeof list - strlen(list) - 1);
  }
  known[i] = NULL;
  const char *suggestion = trm_nearest_word(name, known);
  trm_error(TRM_USAGE, "strategy.name: there is no method \"%s\"%s%s%s (known: %s)", name,
            suggestion ? "; did you mean \"" : "", suggestion ? suggestion : "", suggestion ? "\"?" : "", list);
  return NULL;
}

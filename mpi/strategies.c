/* The table of training methods. */
#include "mpi/strategies.h"

#include <string.h>

#include "core/memory.h"
#include "core/options.h"
#include "core/status.h"

#define TABLE_ROW(name) &trm_strategy_##name,
const struct trm_strategy_ops *const trm_strategy_table[] = {TRM_METHODS(TABLE_ROW) NULL};

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

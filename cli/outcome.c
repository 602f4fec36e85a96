#include "cli/outcome.h"

#include <math.h>
#include <string.h>

#include "train/strategy.h"

static const char *outcome_text(const struct trm_node *summary, const char *key)
{
  const struct trm_node *node = trm_node_get(summary, key);
  return node && node->text ? node->text : "";
}

bool outcome_is_diverged(const struct trm_node *summary, double first_loss)
{
  const double last = trm_node_number(trm_node_get(summary, "final_train_loss"), NAN);
  const struct trm_node *test = trm_node_get(summary, "test_loss");
  const char *status = outcome_text(summary, "status");
  if (last > 2 * first_loss)
    return true;
  if (strcmp(status, "failed") == 0)
    return strstr(outcome_text(summary, "reason"), TRM_LOSS_NOT_FINITE) != NULL;
  const bool ended = strcmp(status, "done") == 0 || strcmp(status, "early-stop") == 0;
  return ended && test && isfinite(first_loss) && !isfinite(trm_node_number(test, NAN));
}

/* The choice of settings on the validation split. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/sweep.h"
#include "core/memory.h"

bool sweep_has_accuracy(const struct sweep_runs *runs, bool test)
{
  for (int i = 0; i < runs->count; i++)
    if (runs->run[i].outcome == SWEEP_DONE &&
        isfinite(test ? runs->run[i].test.accuracy : runs->run[i].validation.accuracy))
      return true;
  return false;
}

/* The validation scores of the runs of a cell, setting and rung that are done; higher is better. */
struct choice {
  int done;
  double mean;
};

static struct choice select_score(const struct sweep_runs *runs, bool accuracy, int cell, int setting,
                                  int rung)
{
  struct choice choice = {0, 0};
  for (int i = 0; i < runs->count; i++) {
    const struct sweep_run *run = &runs->run[i];
    const double score = accuracy ? run->validation.accuracy : -run->validation.loss;
    if (run->cell != cell || run->setting != setting || run->rung != rung ||
        run->outcome != SWEEP_DONE || !isfinite(score))
      continue;
    choice.done++;
    choice.mean += (score - choice.mean) / choice.done;
  }
  return choice;
}

static bool select_is_better(const struct choice *a, const struct choice *b)
{
  return a->done > b->done || (a->done == b->done && a->done > 0 && a->mean > b->mean);
}

/* Returns the best of the cell's settings that are set in `of`, by the latest rung; -1: no run is done. */
static int select_best(const struct sweep *sweep, int cell, const bool *of)
{
  const bool accuracy = sweep_has_accuracy(&sweep->tune, false);
  struct choice best = {0, 0};
  int best_setting = -1;
  for (int setting = 0; setting < sweep->settings; setting++) {
    const struct choice choice = select_score(&sweep->tune, accuracy, cell, setting, sweep->halving.rung);
    if (!of[setting] || !select_is_better(&choice, &best))
      continue;
    best = choice;
    best_setting = setting;
  }
  return best_setting;
}

void sweep_halve(struct sweep *sweep)
{
  bool *kept = trm_alloc((size_t)sweep->settings * sizeof *kept, "sweep: settings");
  for (int cell = 0; cell < sweep->cells; cell++) {
    bool *of = sweep->halving.kept + (size_t)cell * (size_t)sweep->settings;
    int count = 0;
    for (int i = 0; i < sweep->settings; i++) {
      count += of[i];
      kept[i] = false;
    }
    for (int left = (count + 2) / 3, best; left > 0 && (best = select_best(sweep, cell, of)) >= 0; left--) {
      kept[best] = true;
      of[best] = false;
    }
    memcpy(of, kept, (size_t)sweep->settings * sizeof *kept);
  }
  sweep->halving.rung++;
  trm_free(kept);
}

void sweep_choose(struct sweep *sweep)
{
  for (int cell = 0; cell < sweep->cells; cell++)
    sweep->chosen[cell] = sweep->tune.count > 0 ? select_best(sweep, cell, sweep->halving.kept +
                                                              (size_t)cell * (size_t)sweep->settings) : 0;
}

int sweep_best_cell(const struct sweep *sweep)
{
  const bool accuracy = sweep_has_accuracy(&sweep->final, false);
  struct choice best = {0, 0};
  int best_cell = -1;
  for (int cell = 0; cell < sweep->cells; cell++) {
    const struct choice choice = select_score(&sweep->final, accuracy, cell, sweep->chosen[cell], 0);
    if (!select_is_better(&choice, &best))
      continue;
    best = choice;
    best_cell = cell;
  }
  return best_cell;
}

bool sweep_at_edge(const struct sweep_axis *axis, const char *value)
{
  if (!axis->ordered || axis->count < 2)
    return false;
  bool smaller = false, larger = false;
  for (int i = 0; i < axis->count; i++) {
    smaller |= strtod(axis->value[i], NULL) < strtod(value, NULL);
    larger |= strtod(axis->value[i], NULL) > strtod(value, NULL);
  }
  return !smaller || !larger;
}

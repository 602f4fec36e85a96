/* Runs that differ in their seeds alone are one series. */
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "cli/outcome.h"
#include "cli/report.h"
#include "core/memory.h"

/* -- outcomes */

static bool group_is_done(const struct report_run *run)
{
  return !strcmp(run->outcome, "done") || !strcmp(run->outcome, "early-stop");
}

static const char *group_outcome(const struct report_run *run)
{
  const struct trm_node *status = trm_node_get(run->summary, "status");
  if (outcome_is_diverged(run->summary, run->train.n ? run->train.point[0].value[REPORT_LOSS] : NAN))
    return "diverged";
  if (run->sweep_status && strcmp(run->sweep_status, "done") != 0)
    return run->sweep_status;
  return status && status->text ? status->text : "not ended";
}

/* -- settings */

bool report_is_no_setting(const char *name)
{
  static const char *const names[] = {"run.dir", "run.overwrite", "run.trace", "log.tensorboard"};
  bool listed = false;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    listed |= strcmp(names[i], name) == 0;
  return listed;
}

static bool group_is_listed(const char *name, const char *const *list)
{
  while (*list && strcmp(*list, name) != 0)
    list++;
  return *list != NULL;
}

static const struct trm_node *group_next_setting(const struct trm_node *node, const char *prefix,
                                                 const char *const *but)
{
  for (bool listed = true; node && listed; node = listed ? node->next : node) {
    char *name = trm_format("%s%s", prefix, node->key ? node->key : "");
    listed = report_is_no_setting(name) || group_is_listed(name, but);
    trm_free(name);
  }
  return node;
}

static bool group_same_nodes(const struct trm_node *a, const struct trm_node *b, const char *prefix,
                             const char *const *but)
{
  a = group_next_setting(a, prefix, but);
  b = group_next_setting(b, prefix, but);
  while (a && b) {
    const char *key = a->key ? a->key : "", *text = a->text ? a->text : "";
    if (a->kind != b->kind || strcmp(key, b->key ? b->key : "") || strcmp(text, b->text ? b->text : ""))
      return false;
    if (a->kind != TRM_NODE_SCALAR) {
      char *inner = trm_format("%s%s.", prefix, key);
      const bool same = group_same_nodes(a->first, b->first, inner, but);
      trm_free(inner);
      if (!same)
        return false;
    }
    a = group_next_setting(a->next, prefix, but);
    b = group_next_setting(b->next, prefix, but);
  }
  return !a && !b;
}

bool report_same_settings(const struct trm_node *a, const struct trm_node *b, const char *const *but)
{
  return a && b && a->kind == b->kind && group_same_nodes(a->first, b->first, "", but);
}

/* The length of a name without what follows the seed's key: of a sweep's runs all but the seed. */
static size_t group_stem(const char *name)
{
  const char *seed = strstr(name, "run.seed=");
  return seed ? (size_t)(seed - name) : strlen(name);
}

static bool group_fits(const struct report_group *group, const struct report_run *run)
{
  static const char *const seeds[] = {"run.seed", NULL};
  const struct report_run *first = group->run[0];
  if (!first->config || !run->config) { /* runs of a sweep, one of which failed before it began */
    const size_t stem = group_stem(run->name);
    return stem == group_stem(first->name) && memcmp(run->name, first->name, stem) == 0 && run->name[stem];
  }
  for (int i = 0; i < group->count; i++) {
    const struct trm_node *one = trm_node_get(run->config, "run.seed"),
                          *other = trm_node_get(group->run[i]->config, "run.seed");
    const bool differ = one && other && one->text && other->text && strcmp(one->text, other->text) != 0;
    if (group->run[i]->config && !differ)
      return false;
  }
  return report_same_settings(first->config, run->config, seeds);
}

/* -- names */

/* Cuts `word` off the end of a name, and separators before it. */
static void group_cut(char *name, const char *word)
{
  size_t length = strlen(name), end = strlen(word);
  if (length >= end && strcmp(name + length - end, word) == 0)
    name[length -= end] = '\0';
  while (length > 0 && strchr("-_,. =/", name[length - 1]))
    name[--length] = '\0';
}

/* Shortens a sweep's name: "variant=asgd,optim.lr=0.1,strategy.tau=" becomes "asgd,lr=0.1", "strategy.name=asgd" too.
 * Settings without a value are left out. */
static void group_shorten(char *name)
{
  char *to = name;
  for (const char *at = name; *at;) {
    const size_t item = strcspn(at, ","), key = strcspn(at, "=");
    const bool is_variant = key < item && (strncmp(at, "variant=", key + 1) == 0 ||
                                           strncmp(at, "strategy.name=", key + 1) == 0);
    const char *dot = key < item ? memchr(at, '.', key) : NULL;
    const char *from = is_variant ? at + key + 1 : dot ? dot + 1 : at;
    const size_t length = item - (size_t)(from - at);
    if (key + 1 < item) {
      if (to > name)
        *to++ = ',';
      memmove(to, from, length);
      to += length;
    }
    at += item + (at[item] == ',');
  }
  *to = '\0';
}

/* Of a sweep's names leaves the first setting alone where it tells all series apart: tables have the others. */
static void group_leave_first(struct report *report)
{
  for (int g = 0; g < report->groups; g++) {
    const char *name = report->group[g].name;
    const size_t length = strcspn(name, ",");
    if (!report->group[g].run[0]->sweep_status)
      return;
    for (int i = 0; i < g; i++)
      if (strcspn(report->group[i].name, ",") == length && strncmp(report->group[i].name, name, length) == 0)
        return;
  }
  for (int g = 0; g < report->groups; g++)
    report->group[g].name[strcspn(report->group[g].name, ",")] = '\0';
}

/* The common begin of the runs' names, without the seed: "asgd-1" and "asgd-2" are "asgd". */
static char *group_name(const struct report_group *group)
{
  char *name = trm_strdup(group->run[0]->name);
  size_t length = strlen(name);
  for (int i = 1; i < group->count; i++)
    for (size_t k = 0; k < length; k++)
      if (group->run[i]->name[k] != name[k])
        length = k;
  name[length] = '\0';
  if (group->count > 1) {
    while (length > 0 && isdigit((unsigned char)name[length - 1]))
      name[--length] = '\0';
    group_cut(name, "");
    group_cut(name, "run.seed");
    group_cut(name, "seed");
    const struct trm_node *strategy = trm_node_get(group->run[0]->config, "strategy.name");
    if (!*name) {
      trm_free(name);
      name = trm_strdup(strategy && strategy->text ? strategy->text : "all seeds");
    }
  }
  return name;
}

/* Moves the runs that satisfy `keeps` to the front, in order; returns their number. */
static int group_sort(struct report_group *group, bool (*keeps)(const struct report_run *run))
{
  int used = 0;
  for (int i = 0; i < group->count; i++)
    if (keeps(group->run[i])) {
      struct report_run *run = group->run[i];
      memmove(&group->run[used + 1], &group->run[used], (size_t)(i - used) * sizeof *group->run);
      group->run[used++] = run;
    }
  return used;
}

static bool group_goes_on(const struct report_run *run)
{
  return !strcmp(run->outcome, "not ended") || !strcmp(run->outcome, "stopped");
}

/* True if a sweep's run has the values of its baseline: each KEY=VALUE of the list is one of the name's. */
static bool group_is_baseline(const char *name, const char *list)
{
  for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',') {
    const size_t length = strcspn(at, ",");
    const char *in = name;
    while (*in && !(strncmp(in, at, length) == 0 && (!in[length] || in[length] == ','))) {
      in += strcspn(in, ",");
      in += *in == ',';
    }
    if (!*in)
      return false;
  }
  return true;
}

void report_make_groups(struct report *report)
{
  report->group = trm_alloc((size_t)report->count * sizeof *report->group, "report: series");
  for (int i = 0; i < report->count; i++) {
    struct report_run *run = &report->run[i];
    run->outcome = group_outcome(run);
    while (run->group < report->groups && !group_fits(&report->group[run->group], run))
      run->group++;
    struct report_group *group = &report->group[run->group];
    report->groups += run->group == report->groups;
    group->run = trm_grow(group->run, &group->capacity, (size_t)group->count, (size_t)group->count + 1,
                          sizeof *group->run, "report: series");
    group->run[group->count++] = run;
  }
  for (int g = 0; g < report->groups; g++) {
    struct report_group *group = &report->group[g];
    group->name = group_name(group);
    if (group->run[0]->sweep_status && report->baselines && report->baseline == 0 &&
        group_is_baseline(group->run[0]->name, report->baselines))
      report->baseline = g;
    if (group->run[0]->sweep_status)
      group_shorten(group->name);
    for (int i = 0; i < g; i++) /* two cells whose names differ after the seed */
      if (strcmp(report->group[i].name, group->name) == 0) {
        trm_free(group->name);
        group->name = trm_strdup(group->run[0]->name);
      }
  }
  if (report->groups > 1)
    group_leave_first(report);
  for (int g = 0; g < report->groups; g++) {
    struct report_group *group = &report->group[g];
    group->used = group->count == 1 ? 1 : group_sort(group, group_is_done);
    if (group->used == 0)
      group->used = group_sort(group, group_goes_on);
    group->label = group->used == group->count ? trm_strdup(group->name)
                                               : trm_format("%s (%d of %d)", group->name, group->used, group->count);
  }
}

void report_free_groups(struct report *report)
{
  for (int g = 0; g < report->groups; g++) {
    trm_free(report->group[g].name);
    trm_free(report->group[g].label);
    trm_free(report->group[g].run);
  }
  trm_free(report->group);
}

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/repeat.h"
#include "core/memory.h"
#include "core/status.h"

/* The files and the line that are compared. */
struct repeat_lines {
  const struct repeat_run *first;
  char *path[2];
  size_t number;
};

/* Real times differ from run to run; those of a virtual network do not. */
static bool repeat_is_time(const struct repeat_run *run, const char *key)
{
  const size_t n = key ? strlen(key) : 0;
  if (run->simulated)
    return n > 0 && strcmp(key, "wall_s") == 0;
  return n > 2 && strcmp(key + n - 2, "_s") == 0;
}

/* The node itself or the next one after it that is no time. */
static const struct trm_node *repeat_skip_times(const struct repeat_run *run, const struct trm_node *node)
{
  while (node && repeat_is_time(run, node->key))
    node = node->next;
  return node;
}

/* Returns the first entry of `a` that `b` does not have with the same value, in the same order; NULL: they are equal.
 * If `b` has more, its entry. *other: that of `b`, NULL: none. */
static const struct trm_node *repeat_find_difference(const struct repeat_run *run, const struct trm_node *a,
                                                    const struct trm_node *b, const struct trm_node **other)
{
  a = repeat_skip_times(run, a->first);
  b = repeat_skip_times(run, b->first);
  for (; a && b; a = repeat_skip_times(run, a->next), b = repeat_skip_times(run, b->next)) {
    const bool texts = a->text && b->text;
    *other = b;
    if (a->kind != b->kind || strcmp(a->key ? a->key : "", b->key ? b->key : "") != 0 ||
        (texts && strcmp(a->text, b->text) != 0))
      return a;
    if (!texts && repeat_find_difference(run, a, b, other)) {
      *other = b;
      return a;
    }
  }
  *other = b;
  return a ? a : b;
}

static const char *repeat_show(const struct trm_node *node)
{
  return !node ? "nothing" : node->text ? node->text : "another list";
}

static int repeat_compare_line(const struct repeat_lines *lines, const char *a, const char *b)
{
  const char *const text[2] = {a, b};
  struct trm_node *root[2] = {NULL, NULL};
  int status = TRM_OK;
  for (int i = 0; i < 2 && status == TRM_OK; i++) {
    char *where = trm_format("%s:%zu", lines->path[i], lines->number);
    status = trm_document_parse(text[i], strlen(text[i]), where, &root[i]);
    trm_free(where);
  }
  if (status == TRM_OK) {
    const struct trm_node *other = NULL, *found = repeat_find_difference(lines->first, root[0], root[1], &other);
    if (found)
      status = trm_error(TRM_FAILED, "metrics.jsonl, line %zu (step %.0f): %s is %s in the run and %s in its "
                         "repetition", lines->number, trm_node_number(trm_node_get(root[0], "step"), 0), found->key,
                         found == other ? "nothing" : repeat_show(found), repeat_show(other));
  }
  for (int i = 0; i < 2; i++)
    trm_node_free(root[i]);
  return status;
}

static int repeat_compare_streams(struct repeat_lines *lines, FILE *const in[2])
{
  char *line[2] = {NULL, NULL};
  size_t capacity[2] = {0, 0};
  int status = TRM_OK;
  for (bool more = true; more && status == TRM_OK;) {
    ssize_t n[2];
    lines->number++;
    for (int i = 0; i < 2; i++)
      n[i] = getline(&line[i], &capacity[i], in[i]);
    more = n[0] > 0 && n[1] > 0;
    if (more)
      status = repeat_compare_line(lines, line[0], line[1]);
    else if (n[0] > 0 || n[1] > 0)
      status = trm_error(TRM_FAILED, "metrics.jsonl: %s ends after line %zu", n[0] > 0 ? "the repetition" : "the run",
                         lines->number - 1);
  }
  free(line[0]);
  free(line[1]);
  return status;
}

static int repeat_compare_metrics(const struct repeat_run *first, const struct repeat_run *second)
{
  struct repeat_lines lines = {.first = first,
                               .path = {trm_format("%s/metrics.jsonl", first->dir),
                                        trm_format("%s/metrics.jsonl", second->dir)}};
  FILE *in[2] = {NULL, NULL};
  int status = TRM_OK;
  for (int i = 0; i < 2 && status == TRM_OK; i++)
    if (!(in[i] = fopen(lines.path[i], "r")))
      status = trm_error(TRM_FAILED, "%s: %s", lines.path[i], strerror(errno));
  if (status == TRM_OK)
    status = repeat_compare_streams(&lines, in);
  for (int i = 0; i < 2; i++) {
    if (in[i])
      fclose(in[i]);
    trm_free(lines.path[i]);
  }
  return status;
}

/* Metrics first: they tell the step at which the runs part. */
int repeat_compare(const struct repeat_run *first, const struct repeat_run *second)
{
  static const char *const keys[] = {"status", "steps", "weights_sha256"};
  TRM_CHECK(repeat_compare_metrics(first, second));
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const struct trm_node *a = trm_node_get(first->summary, keys[i]), *b = trm_node_get(second->summary, keys[i]);
    if (!a || !b || strcmp(repeat_show(a), repeat_show(b)) != 0)
      return trm_error(TRM_FAILED, "summary.json: %s is %s in the run and %s in its repetition", keys[i],
                       repeat_show(a), repeat_show(b));
  }
  return TRM_OK;
}

/* TensorBoard's event files of runs: a folder for each. */
#include <stdlib.h>
#include <string.h>

#include "cli/report.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "core/event_file.h"
#include "train/staleness.h"

/* Adds the staleness of all ranks, of staleness.json, at the last line. */
static int tensorboard_add_staleness(struct trm_event_file *file, const struct report_run *run,
                                     const struct report_lines *lines)
{
  uint64_t count[TRM_STALENESS_BINS] = {0};
  const struct trm_node *ranks = trm_node_get(run->staleness, "ranks");
  for (const struct trm_node *rank = ranks ? ranks->first : NULL; rank; rank = rank->next) {
    const struct trm_node *bins = trm_node_get(rank, "histogram"), *bin = bins ? bins->first : NULL;
    for (size_t i = 0; bin && i < TRM_STALENESS_BINS; bin = bin->next)
      count[i++] += (uint64_t)trm_node_number(bin, 0);
  }
  if (lines->n == 0)
    return TRM_OK;
  const int64_t step = (int64_t)trm_node_number(trm_node_get(lines->line[lines->n - 1], "step"), 0);
  return trm_event_file_add_histogram(file, "staleness/updates", step, report_lines_time(lines, lines->n - 1), count,
                                      TRM_STALENESS_BINS);
}

static int tensorboard_write_run(const char *folder, const struct report_run *run)
{
  struct report_lines lines;
  struct trm_event_file file;
  TRM_CHECK(report_lines_read(&lines, run));
  int status = trm_event_file_open(&file, folder, -1);
  if (status == TRM_OK) {
    for (size_t i = 0; i < lines.n && status == TRM_OK; i++)
      status = trm_event_file_add_line(&file, lines.line[i], report_lines_time(&lines, i));
    if (status == TRM_OK)
      status = tensorboard_add_staleness(&file, run, &lines);
    const int closed = trm_event_file_close(&file);
    status = status == TRM_OK ? closed : status;
  }
  report_lines_free(&lines);
  return status;
}

/* The folder of a run below dir: its name, which is a path where two runs have the same one, without "." and "..". */
static char *tensorboard_folder(const char *dir, const struct report_run *run)
{
  char *whole = strcmp(run->name, ".") == 0 || strcmp(run->name, "..") == 0 ? realpath(run->path, NULL) : NULL;
  const char *slash = whole ? strrchr(whole, '/') : NULL;
  char *folder = trm_strdup(dir), *rest = trm_strdup(slash ? slash : run->name);
  for (char *word = strtok(rest, "/"); word; word = strtok(NULL, "/")) {
    if (strcmp(word, ".") == 0 || strcmp(word, "..") == 0)
      continue;
    char *longer = trm_format("%s/%s", folder, word);
    trm_free(folder);
    folder = longer;
  }
  trm_free(rest);
  free(whole);
  return folder;
}

int report_tensorboard(const char *dir, const struct report *report)
{
  int status = TRM_OK;
  for (int i = 0; i < report->count && status == TRM_OK; i++) {
    char *folder = tensorboard_folder(dir, &report->run[i]);
    status = tensorboard_write_run(folder, &report->run[i]);
    trm_free(folder);
  }
  if (status == TRM_OK)
    trm_info("%s: event files of %d run%s", dir, report->count, report->count == 1 ? "" : "s");
  return status;
}

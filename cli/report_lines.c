/* The lines of metrics.jsonl as they are, for the forms of other programs. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/report.h"
#include "core/memory.h"
#include "core/status.h"

void report_lines_free(struct report_lines *lines)
{
  for (size_t i = 0; i < lines->n; i++)
    trm_node_free(lines->line[i]);
  trm_free(lines->line);
  *lines = (struct report_lines){0};
}

/* Adds the lines up to an incomplete one, which report_read has named. */
static int lines_read(struct report_lines *lines, FILE *in, const char *path)
{
  char *text = NULL;
  size_t capacity = 0, allocated = 0;
  int status = TRM_OK;
  for (ssize_t length; status == TRM_OK && (length = getline(&text, &capacity, in)) > 0;) {
    if (text[length - 1] != '\n' || text[strspn(text, " \t\r\n")] == '\0')
      continue;
    struct trm_node *line = NULL;
    status = trm_document_parse(text, (size_t)length, path, &line);
    if (status != TRM_OK)
      break;
    lines->line = trm_grow(lines->line, &allocated, lines->n, lines->n + 1, sizeof *lines->line, "report: lines");
    lines->line[lines->n++] = line;
  }
  free(text);
  return status;
}

int report_lines_read(struct report_lines *lines, const struct report_run *run)
{
  char *path = trm_format("%s/metrics.jsonl", run->path);
  struct stat about;
  *lines = (struct report_lines){0};
  FILE *in = fopen(path, "r");
  int status = TRM_OK;
  if (!in)
    status = errno == ENOENT ? TRM_OK : trm_error(TRM_FAILED, "%s: %s", path, strerror(errno));
  else if (fstat(fileno(in), &about) == 0)
    lines->start = (double)about.st_mtime;
  if (in) {
    status = lines_read(lines, in, path);
    fclose(in);
  }
  if (lines->n)
    lines->start -= trm_node_number(trm_node_get(lines->line[lines->n - 1], "wall_s"), 0);
  trm_free(path);
  if (status != TRM_OK)
    report_lines_free(lines);
  return status;
}

double report_lines_time(const struct report_lines *lines, size_t i)
{
  return lines->start + trm_node_number(trm_node_get(lines->line[i], "wall_s"), 0);
}


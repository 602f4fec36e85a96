/* The report's section on schedules: of each run with a trace.json (core/trace.h) a Gantt chart of its last steps, a
 * row for each rank. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/markup.h"
#include "cli/report.h"
#include "core/memory.h"
#include "core/status.h"

enum { WIDTH = 1280, ROW = 34, LOW_ROW = 8, MAX_DEPTH = 3 };
enum { STEPS = 2, MAX_BOXES = 20000 };

struct box {
  char name[32];
  double began, ended; /* seconds */
  int rank, color, micro, depth;
};

struct gantt {
  struct box *box;
  size_t count, capacity;
  int ranks;
  long long first, last; /* steps */
  const double *window;  /* seconds; NAN: the steps */
};

/* Colors of the boxes: those of the curves, of different lightness; waiting has none. */
enum { FORWARD, BACKWARD, OTHER, COMMUNICATION, WAITING, COLORS };
static const struct {
  const char *label;
  int number;
} colors[COLORS] = {{"forward", 0}, {"backward", 4}, {"computation", 6}, {"communication", 5}, {"waiting", SVG_IDLE}};

static int report_trace_color(const char *name, const char *kind)
{
  if (strcmp(kind, "wait") == 0)
    return WAITING;
  if (strcmp(kind, "communication") == 0)
    return COMMUNICATION;
  return strncmp(name, "forward", 7) == 0 ? FORWARD : strncmp(name, "backward", 8) == 0 ? BACKWARD : OTHER;
}

static const char *report_trace_text(const struct trm_node *map, const char *key)
{
  const struct trm_node *node = trm_node_get(map, key);
  return node && node->text ? node->text : "";
}

/* The step of an event's line, found without parsing it; -1: it has none. */
static long long report_trace_step_of(const char *line)
{
  const char *at = strstr(line, "\"args\":{\"step\":");
  return at ? strtoll(at + strlen("\"args\":{\"step\":"), NULL, 10) : -1;
}

/* Adds the event of a line if it is one of the steps that are drawn. A comma may precede it, the end of the list
 * follow. */
static void report_trace_add_line(struct gantt *gantt, char *line)
{
  char *begin = strchr(line, '{'), *end = begin ? strstr(begin, "}}") : NULL;
  const long long step = report_trace_step_of(line);
  struct trm_node *event;
  const bool all = !isnan(gantt->window[0]);
  if (!end || (!all && (step < gantt->first || step > gantt->last)) || gantt->count == MAX_BOXES ||
      trm_document_parse(begin, (size_t)(end + 2 - begin), "trace.json", &event) != TRM_OK)
    return;
  double began = trm_node_number(trm_node_get(event, "ts"), NAN) * 1e-6;
  double ended = began + trm_node_number(trm_node_get(event, "dur"), NAN) * 1e-6;
  const double rank = trm_node_number(trm_node_get(event, "tid"), -1);
  const bool inside = !all || (ended > gantt->window[0] && began < gantt->window[1]);
  if (all) {
    began = fmax(began, gantt->window[0]);
    ended = fmin(ended, gantt->window[1]);
  }
  if (inside && isfinite(began) && ended >= began && rank >= 0 && rank < 4096) {
    gantt->box = trm_grow(gantt->box, &gantt->capacity, gantt->count, gantt->count + 1, sizeof *gantt->box, "a trace");
    struct box *box = &gantt->box[gantt->count++];
    *box = (struct box){.began = began, .ended = ended, .rank = (int)rank,
                        .color = report_trace_color(report_trace_text(event, "name"), report_trace_text(event, "cat")),
                        .micro = (int)trm_node_number(trm_node_get(event, "args.micro"), -1)};
    snprintf(box->name, sizeof box->name, "%s", report_trace_text(event, "name"));
    gantt->ranks = box->rank + 1 > gantt->ranks ? box->rank + 1 : gantt->ranks;
  }
  trm_node_free(event);
}

static void report_trace_each_line(FILE *file, struct gantt *gantt, void (*use)(struct gantt *gantt, char *line))
{
  char *line = NULL;
  size_t bytes = 0;
  rewind(file);
  while (getline(&line, &bytes, file) > 0)
    use(gantt, line);
  free(line);
}

static void report_trace_find_last(struct gantt *gantt, char *line)
{
  const long long step = report_trace_step_of(line);
  gantt->last = step > gantt->last ? step : gantt->last;
}

static int report_trace_compare(const void *a, const void *b)
{
  const struct box *x = a, *y = b;
  if (x->rank != y->rank)
    return x->rank - y->rank;
  if (x->began != y->began)
    return x->began < y->began ? -1 : 1;
  return (x->ended < y->ended) - (x->ended > y->ended);
}

/* Sets the number of boxes that each one lies in. */
static void report_trace_set_depths(struct gantt *gantt)
{
  size_t enclosing[MAX_DEPTH + 1];
  int depth = 0;
  for (size_t i = 0; i < gantt->count; i++) {
    struct box *box = &gantt->box[i];
    if (i && gantt->box[i - 1].rank != box->rank)
      depth = 0;
    while (depth && box->ended > gantt->box[enclosing[depth - 1]].ended)
      depth--;
    box->depth = depth;
    if (depth < MAX_DEPTH)
      enclosing[depth++] = i;
  }
}

/* Adds the boxes of one color and depth: enclosing ones are drawn first. */
static void report_trace_add_color(const struct gantt *gantt, int color, int depth, struct report_panel *panel)
{
  size_t n = 0;
  for (size_t i = 0; i < gantt->count; i++)
    n += gantt->box[i].color == color && gantt->box[i].depth == depth;
  if (n == 0)
    return;
  struct svg_series *series = report_panel_add(panel, colors[color].label, colors[color].number, n, SVG_BOXES);
  n = 0;
  for (const struct box *box = gantt->box; box < gantt->box + gantt->count; box++) {
    if (box->color != color || box->depth != depth)
      continue;
    struct svg_box *to = (struct svg_box *)&series->box[n];
    char micro[32] = "";
    if (box->micro >= 0)
      snprintf(micro, sizeof micro, ", micro-batch %d", box->micro);
    snprintf(to->title, sizeof to->title, "%s%s: %.4g ms from %.4g ms", box->name, micro,
             1e3 * (box->ended - box->began), 1e3 * box->began);
    to->mark = color <= BACKWARD ? box->micro : -1;
    to->depth = depth;
    ((double *)series->x)[n] = box->began;
    ((double *)series->end)[n] = box->ended;
    ((double *)series->y)[n++] = box->rank;
  }
}

bool report_trace_read(const struct report *report, const struct report_run *run, struct report_panel *panel)
{
  char *path = trm_format("%s/trace.json", run->path);
  FILE *file = fopen(path, "r");
  struct gantt gantt = {.last = -1, .window = report->window};
  trm_free(path);
  if (!file)
    return false;
  report_trace_each_line(file, &gantt, report_trace_find_last);
  gantt.first = gantt.last < STEPS ? 0 : gantt.last - STEPS + 1;
  if (gantt.last >= 0)
    report_trace_each_line(file, &gantt, report_trace_add_line);
  fclose(file);
  if (gantt.count)
    qsort(gantt.box, gantt.count, sizeof *gantt.box, report_trace_compare);
  report_trace_set_depths(&gantt);
  for (int depth = 0; depth <= MAX_DEPTH; depth++)
    for (int color = 0; color < COLORS; color++)
      report_trace_add_color(&gantt, color, depth, panel);
  for (int rank = 0; rank < gantt.ranks; rank++)
    report_panel_add_row(panel, trm_format("rank %d", rank));
  panel->plot.x_label = "time";
  panel->plot.x_unit = SVG_SECONDS;
  if (isnan(gantt.window[0]) && gantt.first < gantt.last)
    snprintf(panel->title, sizeof panel->title, "Steps %lld to %lld of the trace; numbers are micro-batches.%s",
             gantt.first, gantt.last, gantt.count == MAX_BOXES ? " Not all is drawn." : "");
  else if (isnan(gantt.window[0]))
    snprintf(panel->title, sizeof panel->title, "Step %lld of the trace; numbers are micro-batches.", gantt.last);
  else
    snprintf(panel->title, sizeof panel->title, "From %.4g s to %.4g s of the trace.%s", gantt.window[0],
             gantt.window[1], gantt.count == MAX_BOXES ? " Not all is drawn." : "");
  trm_free(gantt.box);
  return gantt.count > 0;
}

static void report_trace_write(FILE *out, struct report_panel *panel)
{
  struct svg_plot *plot = &panel->plot;
  struct svg_notes notes;
  plot->width = WIDTH;
  plot->height = svg_rows_height(plot->rows, plot->rows > 32 ? LOW_ROW : ROW);
  plot->title = "What each rank did when";
  fputs("<figure>", out);
  svg_plot(out, plot, &notes);
  fputs("<figcaption>", out);
  for (int i = 0; i < plot->count; i++) {
    bool earlier = false;
    for (int k = 0; k < i; k++)
      earlier |= plot->series[k].label == plot->series[i].label;
    if (earlier)
      continue;
    fputs("<svg class=\"key\" viewBox=\"0 0 26 10\">", out);
    svg_box_key(out, plot->series[i].number, 1, 0, 24);
    fprintf(out, "</svg>%s &nbsp; ", plot->series[i].label);
  }
  fprintf(out, "<br>%s</figcaption></figure>\n", panel->title);
}

void report_trace(FILE *out, const struct report *report)
{
  bool begun = false;
  for (int g = 0; g < report->groups; g++) { /* of several seeds one */
    struct report_panel panel = {.capacity = 0};
    const struct report_run *run = report->group[g].run[0];
    if (report_trace_read(report, run, &panel)) {
      if (!begun)
        fputs("<h2>Schedule</h2>\n", out);
      begun = true;
      markup_print(out, "<h3>%s</h3>\n", run->name);
      report_trace_write(out, &panel);
    }
    report_panel_free(&panel);
  }
}

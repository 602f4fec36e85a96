/* The report's section on schedules: of each run with a trace.json (core/trace.h) a Gantt chart of its last steps, a
 * row for each rank or virtual worker. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/markup.h"
#include "cli/report.h"
#include "core/memory.h"
#include "core/status.h"

enum { WIDTH = 1100, ROW = 34, LOW_ROW = 8, MAX_DEPTH = 3 };
enum { STEPS = 2, MAX_BOXES = 20000, MAX_ROWS = 64 };

struct box {
  char name[32];
  double began, ended; /* seconds */
  int rank, color, micro, depth;
};

/* When a rank's latest steps began, the last one first. */
struct latest {
  long long step[STEPS]; /* 0: none */
  double began[STEPS];
};

struct gantt {
  struct box *box;
  size_t count, capacity;
  int ranks, drawn; /* drawn: up to MAX_ROWS */
  struct latest *latest; /* (ranks) */
  double ended;          /* the last event of a step */
  size_t latest_capacity;
  double window[2]; /* seconds */
};

/* Colors of the boxes, of different lightness; waiting has none. */
enum { FORWARD, BACKWARD, OTHER, COMMUNICATION, WAITING, COLORS };
static const struct {
  const char *label;
  int number;
} colors[COLORS] = {{"forward", 0}, {"backward", 4}, {"computation", SVG_DARK}, {"communication", SVG_LIGHT},
                    {"waiting", SVG_IDLE}};

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

/* A number of an event's line, found without parsing it; NAN: it has none. */
static double report_trace_number(const char *line, const char *key)
{
  const char *at = strstr(line, key);
  return at ? strtod(at + strlen(key), NULL) : NAN;
}

/* Adds the event of a line if it is in the window. A comma may precede it, the end of the list follow. */
static void report_trace_add_line(struct gantt *gantt, char *line)
{
  char *begin = strchr(line, '{'), *end = begin ? strstr(begin, "}}") : NULL;
  double began = report_trace_number(line, "\"ts\":") * 1e-6;
  double ended = began + report_trace_number(line, "\"dur\":") * 1e-6;
  const double rank = report_trace_number(line, "\"tid\":");
  const bool inside = ended > gantt->window[0] && began < gantt->window[1] && rank >= 0 && rank < gantt->drawn;
  struct trm_node *event;
  if (!end || !inside || gantt->count == MAX_BOXES ||
      trm_document_parse(begin, (size_t)(end + 2 - begin), "trace.json", &event) != TRM_OK)
    return;
  began = fmax(began, gantt->window[0]);
  ended = fmin(ended, gantt->window[1]);
  if (ended >= began) {
    gantt->box = trm_grow(gantt->box, &gantt->capacity, gantt->count, gantt->count + 1, sizeof *gantt->box, "a trace");
    struct box *box = &gantt->box[gantt->count++];
    *box = (struct box){.began = began, .ended = ended, .rank = (int)rank,
                        .color = report_trace_color(report_trace_text(event, "name"), report_trace_text(event, "cat")),
                        .micro = (int)trm_node_number(trm_node_get(event, "args.micro"), -1)};
    snprintf(box->name, sizeof box->name, "%s", report_trace_text(event, "name"));
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

/* The events of a rank are in order of their starts. */
static void report_trace_find_last(struct gantt *gantt, char *line)
{
  const double number = report_trace_number(line, "\"args\":{\"step\":"), rank = report_trace_number(line, "\"tid\":");
  const double began = report_trace_number(line, "\"ts\":") * 1e-6;
  if (!(number > 0 && number < 1e18 && rank >= 0 && rank < 1e6))
    return;
  gantt->ended = fmax(gantt->ended, began + report_trace_number(line, "\"dur\":") * 1e-6);
  const int ranks = (int)rank + 1;
  gantt->latest = trm_grow(gantt->latest, &gantt->latest_capacity, (size_t)gantt->ranks, (size_t)ranks,
                           sizeof *gantt->latest, "a trace");
  gantt->ranks = ranks > gantt->ranks ? ranks : gantt->ranks;
  struct latest *latest = &gantt->latest[ranks - 1];
  if ((long long)number <= latest->step[0])
    return;
  for (int i = STEPS - 1; i > 0; i--) {
    latest->step[i] = latest->step[i - 1];
    latest->began[i] = latest->began[i - 1];
  }
  latest->step[0] = (long long)number;
  latest->began[0] = began;
}

/* Sets the window to the last steps of all ranks, unless the user has; false: there are no steps. Ranks of an
 * asynchronous run have steps of their own. */
static bool report_trace_set_window(struct gantt *gantt, const double window[2], long long *first, long long *last)
{
  double began = INFINITY;
  *first = *last = 0;
  for (int rank = 0; rank < gantt->ranks; rank++)
    for (int i = 0; i < STEPS; i++) {
      const struct latest *latest = &gantt->latest[rank];
      if (latest->step[i] == 0)
        continue;
      began = fmin(began, latest->began[i]);
      *first = *first == 0 || latest->step[i] < *first ? latest->step[i] : *first;
      *last = latest->step[i] > *last ? latest->step[i] : *last;
    }
  gantt->window[0] = isnan(window[0]) ? began : window[0];
  gantt->window[1] = isnan(window[0]) ? gantt->ended : window[1];
  gantt->drawn = gantt->ranks < MAX_ROWS ? gantt->ranks : MAX_ROWS;
  return isfinite(began);
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

static void report_trace_title(struct report_panel *panel, const struct gantt *gantt, bool steps, long long first,
                               long long last)
{
  char *title = NULL;
  if (!steps)
    trm_append(&title, "From %.4g s to %.4g s of the trace", gantt->window[0], gantt->window[1]);
  else if (last - first >= STEPS)
    trm_append(&title, "The last %d steps of each rank", STEPS);
  else
    trm_append(&title, first < last ? "Steps %lld to %lld of the trace" : "Step %lld of the trace", first, last);
  if (gantt->drawn < gantt->ranks)
    trm_append(&title, ", %d of %d ranks", gantt->drawn, gantt->ranks);
  for (size_t i = 0; i < gantt->count; i++)
    if (gantt->box[i].micro >= 0) {
      trm_append(&title, "; numbers are micro-batches");
      break;
    }
  trm_append(&title, gantt->count == MAX_BOXES ? ". Not all is drawn." : ".");
  snprintf(panel->title, sizeof panel->title, "%s", title);
  trm_free(title);
}

bool report_trace_read(const struct report *report, const struct report_run *run, struct report_panel *panel)
{
  char *path = trm_format("%s/trace.json", run->path);
  FILE *file = fopen(path, "r");
  struct gantt gantt = {.count = 0};
  long long first, last;
  trm_free(path);
  if (!file)
    return false;
  report_trace_each_line(file, &gantt, report_trace_find_last);
  if (report_trace_set_window(&gantt, report->window, &first, &last))
    report_trace_each_line(file, &gantt, report_trace_add_line);
  fclose(file);
  if (gantt.count)
    qsort(gantt.box, gantt.count, sizeof *gantt.box, report_trace_compare);
  report_trace_set_depths(&gantt);
  for (int depth = 0; depth <= MAX_DEPTH; depth++)
    for (int color = 0; color < COLORS; color++)
      report_trace_add_color(&gantt, color, depth, panel);
  for (int rank = 0; rank < gantt.drawn; rank++)
    report_panel_add_row(panel, trm_format("rank %d", rank));
  panel->plot.x_label = run->modeled ? "virtual time" : "time";
  panel->plot.x_unit = SVG_SECONDS;
  report_trace_title(panel, &gantt, isnan(report->window[0]), first, last);
  trm_free(gantt.box);
  trm_free(gantt.latest);
  return gantt.count > 0;
}

static void report_trace_write(FILE *out, struct report_panel *panel)
{
  struct svg_plot *plot = &panel->plot;
  struct svg_notes notes;
  plot->width = WIDTH;
  plot->height = svg_rows_height(plot->rows, plot->rows > 32 ? LOW_ROW : ROW);
  plot->title = "What each rank did when";
  fputs("<figure class=\"schedule\">", out);
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

/* The report's section on schedules: of each run with a trace.json (core/trace.h) a Gantt chart of its last steps, a
 * row for each rank. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/markup.h"
#include "cli/report.h"
#include "core/memory.h"
#include "core/status.h"

/* Size of the chart in drawing units. */
enum { LEFT = 62, TOP = 10, WIDTH = 1280, ROW = 34, INSET = 4, MAX_DEPTH = 3, BOTTOM = 44, RIGHT = 12 };
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
  double began, ended;
};

/* Colors of the boxes: those of the curves; waiting has none. */
enum { FORWARD, BACKWARD, OTHER, COMMUNICATION, WAITING };
static const struct {
  const char *label, *class;
} colors[] = {
  {"forward", "s0"}, {"backward", "s1"}, {"other computation", "s5"}, {"communication", "s4"}, {"waiting", NULL}};

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
  if (!end || step < gantt->first || step > gantt->last || gantt->count == MAX_BOXES ||
      trm_document_parse(begin, (size_t)(end + 2 - begin), "trace.json", &event) != TRM_OK)
    return;
  const double began = trm_node_number(trm_node_get(event, "ts"), NAN) * 1e-6;
  const double ended = began + trm_node_number(trm_node_get(event, "dur"), NAN) * 1e-6;
  const double rank = trm_node_number(trm_node_get(event, "tid"), -1);
  if (isfinite(began) && ended >= began && rank >= 0 && rank < 4096) {
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

/* Sets the number of boxes that each one lies in, and the chart's limits in time. */
static void report_trace_set_depths(struct gantt *gantt)
{
  size_t enclosing[MAX_DEPTH + 1];
  int depth = 0;
  gantt->began = INFINITY;
  gantt->ended = -INFINITY;
  for (size_t i = 0; i < gantt->count; i++) {
    struct box *box = &gantt->box[i];
    if (i && gantt->box[i - 1].rank != box->rank)
      depth = 0;
    while (depth && box->ended > gantt->box[enclosing[depth - 1]].ended)
      depth--;
    box->depth = depth;
    if (depth < MAX_DEPTH)
      enclosing[depth++] = i;
    gantt->began = fmin(gantt->began, box->began);
    gantt->ended = fmax(gantt->ended, box->ended);
  }
}

static double report_trace_x_of(const struct gantt *gantt, double time)
{
  const double span = gantt->ended > gantt->began ? gantt->ended - gantt->began : 1;
  return LEFT + (time - gantt->began) / span * (WIDTH - LEFT - RIGHT);
}

static void report_trace_write_box(FILE *out, const struct gantt *gantt, const struct box *box)
{
  const double x = report_trace_x_of(gantt, box->began), width = fmax(report_trace_x_of(gantt, box->ended) - x, 0.3);
  const double y = TOP + box->rank * ROW + 2 + box->depth * INSET, height = ROW - 4 - 2 * box->depth * INSET;
  const char *class = colors[box->color].class;
  fprintf(out, "<g%s%s%s><rect class=\"%s\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\"><title>",
          class ? " class=\"" : "", class ? class : "", class ? "\"" : "", class ? "box" : "idle", x, y, width, height);
  markup_text(out, box->name);
  if (box->micro >= 0)
    fprintf(out, ", micro-batch %d", box->micro);
  fprintf(out, ": %.4g ms from %.4g ms</title></rect>", 1e3 * (box->ended - box->began),
          1e3 * (box->began - gantt->began));
  if (box->micro >= 0 && box->color <= BACKWARD && width > (box->micro > 9 ? 17 : 10))
    svg_text(out, "in", "middle", x + width / 2, y + height / 2 + 4, "%d", box->micro);
  fputs("</g>\n", out);
}

static void report_trace_write_axis(FILE *out, const struct gantt *gantt)
{
  const double y = TOP + gantt->ranks * ROW, span = 1e3 * (gantt->ended - gantt->began);
  const double step = svg_tick_step(fmax(span, 1e-6) / 8);
  svg_line(out, "axis", LEFT, y, WIDTH - RIGHT, y);
  for (int k = 0; k * step <= span && k < 24; k++)
    svg_text(out, "tick", "middle", report_trace_x_of(gantt, gantt->began + k * step * 1e-3), y + 17, "%.6g", k * step);
  svg_text(out, "name", "middle", (LEFT + WIDTH - RIGHT) / 2, y + 36, "milliseconds");
}

static void report_trace_write(FILE *out, const struct gantt *gantt)
{
  fprintf(out, "<figure><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"What each rank did when\">\n", WIDTH,
          TOP + gantt->ranks * ROW + BOTTOM);
  for (int rank = 0; rank < gantt->ranks; rank++)
    svg_text(out, "tick", "end", LEFT - 8, TOP + rank * ROW + ROW / 2 + 4, "rank %d", rank);
  for (size_t i = 0; i < gantt->count; i++)
    report_trace_write_box(out, gantt, &gantt->box[i]);
  report_trace_write_axis(out, gantt);
  fputs("</svg><figcaption>", out);
  for (int i = 0; i <= WAITING; i++)
    fprintf(out,
            "<svg class=\"key%s%s\" viewBox=\"0 0 26 10\"><rect class=\"%s\" x=\"1\" width=\"24\" height=\"10\"/>"
            "</svg>%s &nbsp; ",
            colors[i].class ? " " : "", colors[i].class ? colors[i].class : "", colors[i].class ? "box" : "idle",
            colors[i].label);
  if (gantt->first == gantt->last)
    fprintf(out, "<br>Step %lld", gantt->last);
  else
    fprintf(out, "<br>Steps %lld to %lld", gantt->first, gantt->last);
  fprintf(out, " of the trace; numbers are micro-batches.%s</figcaption></figure>\n",
          gantt->count == MAX_BOXES ? " There is more than can be drawn." : "");
}

/* Reads the last STEPS steps of the trace. */
static void report_trace_read(FILE *file, struct gantt *gantt)
{
  gantt->last = -1;
  report_trace_each_line(file, gantt, report_trace_find_last);
  if (gantt->last < 0)
    return;
  gantt->first = gantt->last < STEPS ? 0 : gantt->last - STEPS + 1;
  report_trace_each_line(file, gantt, report_trace_add_line);
  if (gantt->count)
    qsort(gantt->box, gantt->count, sizeof *gantt->box, report_trace_compare);
  report_trace_set_depths(gantt);
}

void report_trace(FILE *out, const struct report_run *runs, int count)
{
  bool begun = false;
  for (int i = 0; i < count; i++) {
    char *path = trm_format("%s/trace.json", runs[i].path);
    FILE *file = fopen(path, "r");
    struct gantt gantt = {0};
    if (file) {
      report_trace_read(file, &gantt);
      fclose(file);
    }
    if (gantt.count) {
      if (!begun)
        fputs("<h2>Schedule</h2>\n", out);
      begun = true;
      markup_print(out, "<h3>%s</h3>\n", runs[i].name);
      report_trace_write(out, &gantt);
    }
    trm_free(gantt.box);
    trm_free(path);
  }
}

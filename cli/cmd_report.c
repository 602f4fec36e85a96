/* trireme report: curves and tables of one or several runs. */
#include <math.h>
#include <stdlib.h>

#include "cli/command.h"
#include "cli/report.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

static const char usage[] =
  "usage: trireme report RUN|SWEEP... [--out=report.html] [--x=samples|updates|time] [--title=TEXT]\n"
  "         [--picture=KIND] [--svg=F.svg] [--pdf=F.pdf] [--png=F.png] [--csv=F.csv]\n"
  "         [--tensorboard=DIR] [--mlflow=DIR]\n"
  "\n"
  "Draws the curves and the figures of one or several run directories (config.yaml, metrics.jsonl,\n"
  "summary.json) into one page that needs nothing beside it. The directory of a sweep stands for its\n"
  "final runs. Runs whose settings differ in run.seed alone are one series: a line of the mean and a\n"
  "band from the least to the largest. Runs that failed, diverged or have not ended are not in it:\n"
  "\"(4 of 5)\". More than six series are small panels, each over the first one, or a sweep's baseline.\n"
  "\n"
  "  --out=FILE    the page (default report.html; with a picture alone: none)\n"
  "  --x=AXIS      samples (default), updates, or time: of training without evaluations where that is\n"
  "                logged; on the virtual clock of runs that have one\n"
  "  --svg=FILE, --pdf=FILE, --png=FILE\n"
  "                a picture, as wide as a column (PDF and PNG need librsvg)\n"
  "  --csv=FILE    its values: panel, series, x, x_end, y, y_low, y_high\n"
  "  --tensorboard=DIR\n"
  "                TensorBoard event files of each run, in DIR/NAME (log.tensorboard writes them while a\n"
  "                run trains)\n"
  "  --mlflow=DIR  the runs in MLflow's file store DIR (mlruns), under the experiment \"trireme\"\n"
  "  --picture=KIND\n"
  "                curves (loss and accuracy; default), loss, accuracy, staleness (its distribution),\n"
  "                target (the first time at --target), scaling (speed-up and efficiency over the\n"
  "                number of workers, from samples per second or the time to --target), or gantt (what\n"
  "                each rank or virtual worker of the first run with a trace did, its last steps or\n"
  "                --window)\n"
  "  --target=X    an evaluation's accuracy, from 0 to 1, to reach; of runs without accuracies, a loss\n"
  "                (default: that of the sweep). The page then has time, updates and samples to it\n"
  "  --window=A:B  seconds of the trace to draw\n"
  "  --title=TEXT  the heading\n";

struct report_flags {
  const char *out, *picture[REPORT_FORMATS], *title, *window, *tensorboard, *mlflow;
  enum report_axis axis;
  enum report_kind kind;
  double target;
};
#define AT(field) offsetof(struct report_flags, field)
/* time is the axis of a target where none is given: a choice of its own */
static const char *const axes[] = {"samples", "updates", "time", "auto", NULL};
enum { AXIS_AUTO = REPORT_OVER_TIME + 1 };
static const struct trm_option flags[] = {{"out", TRM_OPTION_TEXT, AT(out), NULL, NO_RANGE},
                                          {"svg", TRM_OPTION_TEXT, AT(picture[REPORT_SVG]), NULL, NO_RANGE},
                                          {"pdf", TRM_OPTION_TEXT, AT(picture[REPORT_PDF]), NULL, NO_RANGE},
                                          {"png", TRM_OPTION_TEXT, AT(picture[REPORT_PNG]), NULL, NO_RANGE},
                                          {"csv", TRM_OPTION_TEXT, AT(picture[REPORT_CSV]), NULL, NO_RANGE},
                                          {"tensorboard", TRM_OPTION_TEXT, AT(tensorboard), NULL, NO_RANGE},
                                          {"mlflow", TRM_OPTION_TEXT, AT(mlflow), NULL, NO_RANGE},
                                          {"picture", TRM_OPTION_CHOICE, AT(kind), "curves", 0, 0, report_kinds, NULL},
                                          {"x", TRM_OPTION_CHOICE, AT(axis), "auto", 0, 0, axes, NULL},
                                          {"target", TRM_OPTION_REAL, AT(target), "-1", -1, 1e30, NULL, NULL},
                                          {"window", TRM_OPTION_TEXT, AT(window), NULL, NO_RANGE},
                                          {"title", TRM_OPTION_TEXT, AT(title), NULL, NO_RANGE},
                                          END_OF_FLAGS};

static int report_read_window(const char *text, double window[2])
{
  char *end;
  window[0] = window[1] = NAN;
  if (!text)
    return TRM_OK;
  window[0] = strtod(text, &end);
  if (end != text && *end == ':') {
    const char *second = end + 1;
    window[1] = strtod(second, &end);
    if (end != second && !*end && window[0] >= 0 && window[1] > window[0] && isfinite(window[1]))
      return TRM_OK;
  }
  return trm_error(TRM_USAGE, "report: --window=%.40s: not FROM:TO in seconds", text);
}

static int report_draw(struct report *report, const struct report_flags *f)
{
  const int count = report->count;
  bool draws = f->tensorboard || f->mlflow;
  for (int format = 0; format < REPORT_FORMATS; format++)
    draws |= f->picture[format] != NULL;
  const char *out = f->out || draws ? f->out : "report.html";
  char *heading = count == 1 ? trm_format("Run %s", report->run[0].name) : trm_strdup("Training runs compared");
  const char *title = f->title ? f->title : heading;
  int status = TRM_OK;
  if (out) {
    status = report_html(out, title, report);
    if (status == TRM_OK)
      trm_info("%s: report of %d run%s", out, count, count == 1 ? "" : "s");
  }
  for (int format = 0; format < REPORT_FORMATS && status == TRM_OK; format++)
    if (f->picture[format]) {
      status = report_picture(f->picture[format], format, f->kind, title, report);
      if (status == TRM_OK)
        trm_info("%s: picture of %d run%s", f->picture[format], count, count == 1 ? "" : "s");
    }
  if (status == TRM_OK && f->tensorboard)
    status = report_tensorboard(f->tensorboard, report);
  if (status == TRM_OK && f->mlflow)
    status = report_mlflow(f->mlflow, report);
  trm_free(heading);
  return status;
}

static int cmd_report_run(const struct call *call)
{
  const struct report_flags *f = call->values;
  const bool timed = f->kind == REPORT_TARGET || f->kind == REPORT_SCALING;
  struct report report = {
    .axis = f->axis != (enum report_axis)AXIS_AUTO ? f->axis : timed ? REPORT_OVER_TIME : REPORT_OVER_SAMPLES,
    .target = f->target < 0 ? NAN : f->target};
  int status = report_read_window(f->window, report.window);
  if (status == TRM_OK)
    status = report_read(&report, call->nargs, call->args);
  if (status == TRM_OK) {
    report_make_groups(&report);
    status = report_draw(&report, f);
  }
  report_free(&report);
  return status;
}

const struct command cmd_report = {
  .name = "report", .help = "draw curves and tables of runs and sweeps",
  .usage = usage, .flags = flags, .bytes = sizeof(struct report_flags), .max_args = ANY_ARGS,
  .missing = "no run given",
  .run = cmd_report_run,
};

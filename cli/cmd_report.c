/* trireme report: curves and tables of one or several runs. */
#include "cli/command.h"
#include "cli/report.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

static const char usage[] =
  "usage: trireme report RUN... [--out=report.html] [--svg=F.svg] [--pdf=F.pdf] [--png=F.png]\n"
  "                      [--title=TEXT]\n"
  "\n"
  "Draws the curves and the figures of one or several run directories (config.yaml, metrics.jsonl,\n"
  "summary.json) into one page that needs nothing beside it.\n"
  "\n"
  "  --out=FILE    the page (default report.html; with a picture alone: none)\n"
  "  --svg=FILE, --pdf=FILE, --png=FILE\n"
  "                loss and accuracy as one picture, as wide as a column (PDF and PNG need librsvg)\n"
  "  --title=TEXT  the heading\n";

struct report_flags {
  const char *out, *picture[REPORT_PNG + 1], *title;
};
#define AT(field) offsetof(struct report_flags, field)
static const struct trm_option flags[] = {{"out", TRM_OPTION_TEXT, AT(out), NULL, NO_RANGE},
                                          {"svg", TRM_OPTION_TEXT, AT(picture[REPORT_SVG]), NULL, NO_RANGE},
                                          {"pdf", TRM_OPTION_TEXT, AT(picture[REPORT_PDF]), NULL, NO_RANGE},
                                          {"png", TRM_OPTION_TEXT, AT(picture[REPORT_PNG]), NULL, NO_RANGE},
                                          {"title", TRM_OPTION_TEXT, AT(title), NULL, NO_RANGE},
                                          END_OF_FLAGS};

static int cmd_report_run(const struct call *call)
{
  const struct report_flags *f = call->values;
  const char *const *picture = f->picture;
  const int count = call->nargs;
  const bool draws = picture[REPORT_SVG] || picture[REPORT_PDF] || picture[REPORT_PNG];
  const char *out = f->out || draws ? f->out : "report.html";
  struct report_run *runs = trm_alloc((size_t)count * sizeof *runs, "report: runs");
  int status = report_read(runs, count, call->args);
  char *heading = count == 1 ? trm_format("Run %s", runs[0].name) : trm_strdup("Training runs compared");
  const char *title = f->title ? f->title : heading;
  if (status == TRM_OK && out)
    status = report_html(out, title, runs, count);
  if (status == TRM_OK && out)
    trm_info("%s: report of %d run%s", out, count, count == 1 ? "" : "s");
  for (int format = REPORT_SVG; format <= REPORT_PNG && status == TRM_OK; format++)
    if (picture[format]) {
      status = report_picture(picture[format], format, title, runs, count);
      if (status == TRM_OK)
        trm_info("%s: picture of %d run%s", picture[format], count, count == 1 ? "" : "s");
    }
  trm_free(heading);
  report_free(runs, count);
  trm_free(runs);
  return status;
}

const struct command cmd_report = {
  .name = "report", .help = "draw curves and tables of one or several runs",
  .usage = usage, .flags = flags, .bytes = sizeof(struct report_flags), .max_args = ANY_ARGS,
  .missing = "no run given",
  .run = cmd_report_run,
};

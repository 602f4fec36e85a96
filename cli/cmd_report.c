/* trireme report: curves and tables of one or several runs. */
#include "cli/commands.h"
#include "cli/flags.h"
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

int cmd_report(int argc, char **argv)
{
  const char *out = NULL, *picture[] = {[REPORT_SVG] = NULL, [REPORT_PDF] = NULL, [REPORT_PNG] = NULL}, *title = NULL;
  const struct flag table[] = {{"out", FLAG_TEXT, &out, 0, 0},
                               {"svg", FLAG_TEXT, &picture[REPORT_SVG], 0, 0},
                               {"pdf", FLAG_TEXT, &picture[REPORT_PDF], 0, 0},
                               {"png", FLAG_TEXT, &picture[REPORT_PNG], 0, 0},
                               {"title", FLAG_TEXT, &title, 0, 0},
                               {NULL, FLAG_TEXT, NULL, 0, 0}};
  const struct flags flags = {.command = "report", .usage = usage, .table = table};
  int count;
  bool help_shown;
  TRM_CHECK(flags_read(&flags, argc, argv, &count, &help_shown));
  if (help_shown)
    return TRM_OK;
  if (count == 0)
    return trm_error(TRM_USAGE, "report: no run given: trireme report RUN... [--out=report.html]");
  if (!out && !picture[REPORT_SVG] && !picture[REPORT_PDF] && !picture[REPORT_PNG])
    out = "report.html";

  struct report_run *runs = trm_alloc((size_t)count * sizeof *runs, "report: runs");
  int status = report_read(runs, count, argv);
  char *heading = count == 1 ? trm_format("Run %s", runs[0].name) : trm_strdup("Training runs compared");
  if (!title)
    title = heading;
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

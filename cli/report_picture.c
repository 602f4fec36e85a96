/* Loss and accuracy of runs as one picture, with text that can be read at the width of a column: plots of svg.h below
 * one another. PDF and PNG are the same picture, rendered by librsvg. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_RSVG
#include <cairo-pdf.h>
#include <dlfcn.h>
#include <librsvg/rsvg.h>
#endif

#include "cli/markup.h"
#include "cli/report.h"
#include "core/atomic_file.h"
#include "core/memory.h"
#include "core/status.h"

enum { WIDTH = 440, PANEL = 250, TITLE = 26, HEADING = 20, LEGEND_ROW = 18, MARGIN = 8, KEY = 22 };
#define LETTER 6.4 /* mean width of a letter of the legend, in drawing units */

static const char picture_style[] =
  "svg{font-family:'DejaVu Sans',Verdana,Arial,sans-serif}.title{font-size:14px;fill:#1c2126}"
  ".heading{font-size:12px;font-weight:600;fill:#1c2126}\n";

/* -- the drawing */

/* Draws the legend from `y` down if `out` is given. Returns its height: 0 for one run, which the title names. */
static int picture_legend(FILE *out, const struct report_run *runs, int count, int y)
{
  double x = MARGIN;
  int rows = 1;
  if (count == 1)
    return 0;
  for (int i = 0; i < count; i++) {
    const double width = KEY + 8 + LETTER * (double)strlen(runs[i].name) + 14;
    if (x > MARGIN && x + width > WIDTH) {
      x = MARGIN;
      rows++;
    }
    if (out) {
      const int base = y + LEGEND_ROW * (rows - 1) + 10;
      svg_key(out, i, x, base - 4, KEY);
      fprintf(out, "<text class=\"label\" x=\"%.1f\" y=\"%d\">", x + KEY + 6, base);
      markup_text(out, runs[i].name);
      fputs("</text>\n", out);
    }
    x += width;
  }
  return LEGEND_ROW * rows;
}

/* Draws a panel at `y`: the curves of `line`, and as dots those of `dots` unless it is NULL. */
static void picture_panel(FILE *out, const char *heading, const struct report_curve *line,
                          const struct report_curve *dots, const struct report_run *runs, int count, int y)
{
  const struct svg_plot plot = {.width = WIDTH, .height = PANEL, .title = heading};
  struct svg_notes notes;
  fprintf(out, "<text class=\"heading\" x=\"%d\" y=\"%d\">%s</text>\n", MARGIN, y + 13, heading);
  fprintf(out, "<g transform=\"translate(0,%d)\">", y + HEADING);
  report_curve_draw(out, line, dots, runs, count, plot, &notes);
  fputs("</g>\n", out);
}

/* Writes the picture as SVG; returns its height. */
static int picture_draw(FILE *out, const char *title, const struct report_run *runs, int count)
{
  static const struct report_curve train = {"", "training samples", false, REPORT_SAMPLES, REPORT_LOSS, SVG_COUNT,
                                            SVG_PLAIN, true, true};
  static const struct report_curve test = {"", "training samples", true, REPORT_SAMPLES, REPORT_LOSS, SVG_COUNT,
                                           SVG_PLAIN, true, false};
  static const struct report_curve accuracy = {"", "training samples", true, REPORT_SAMPLES, REPORT_ACCURACY, SVG_COUNT,
                                               SVG_PERCENT, false, false};
  const struct svg_plot none = {.width = 0};
  const bool tested = report_curve_draw(NULL, &test, NULL, runs, count, none, NULL) > 0;
  const bool rated = report_curve_draw(NULL, &accuracy, NULL, runs, count, none, NULL) > 0;
  const int panels = 1 + rated, legend = TITLE + panels * (HEADING + PANEL);
  const int height = legend + picture_legend(NULL, runs, count, 0) + MARGIN;
  fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n", WIDTH,
          height, WIDTH, height);
  fprintf(out, "<style>\n%s%s</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n", svg_style,
          picture_style);
  fprintf(out, "<text class=\"title\" x=\"%d\" y=\"18\">", MARGIN);
  markup_text(out, title);
  fputs("</text>\n", out);
  const char *split = report_evaluated_split(runs, count);
  char loss_title[64] = "Loss: training", accuracy_title[64];
  if (tested)
    snprintf(loss_title, sizeof loss_title, "Loss: training (lines), %c%s (dots)", tolower((unsigned char)split[0]),
             split + 1);
  snprintf(accuracy_title, sizeof accuracy_title, "%s accuracy", split);
  picture_panel(out, loss_title, &train, &test, runs, count, TITLE);
  if (rated)
    picture_panel(out, accuracy_title, &accuracy, NULL, runs, count, TITLE + HEADING + PANEL);
  picture_legend(out, runs, count, legend);
  fputs("</svg>\n", out);
  return height;
}

/* -- PDF and PNG */

#ifdef HAVE_RSVG
/* Functions of librsvg and cairo, loaded on demand: they depend on forty libraries, which ranks should not load at
 * start. */
static struct {
  RsvgHandle *(*parse)(const guint8 *data, gsize bytes, GError **error);
  gboolean (*render)(RsvgHandle *handle, cairo_t *cairo, const RsvgRectangle *viewport, GError **error);
  void (*unref)(gpointer object);
  cairo_surface_t *(*pdf)(cairo_write_func_t write, void *to, double width, double height);
  cairo_surface_t *(*image)(cairo_format_t format, int width, int height);
  cairo_status_t (*png)(cairo_surface_t *surface, cairo_write_func_t write, void *to);
  cairo_t *(*create)(cairo_surface_t *surface);
  void (*destroy)(cairo_t *cairo), (*finish)(cairo_surface_t *surface), (*release)(cairo_surface_t *surface);
  cairo_status_t (*status)(cairo_surface_t *surface);
} rsvg;

static int picture_load_rsvg(void)
{
  const struct {
    const char *name;
    void *slot;
  } table[] = {{"rsvg_handle_new_from_data", &rsvg.parse},
               {"rsvg_handle_render_document", &rsvg.render},
               {"g_object_unref", &rsvg.unref},
               {"cairo_pdf_surface_create_for_stream", &rsvg.pdf},
               {"cairo_image_surface_create", &rsvg.image},
               {"cairo_surface_write_to_png_stream", &rsvg.png},
               {"cairo_create", &rsvg.create},
               {"cairo_destroy", &rsvg.destroy},
               {"cairo_surface_finish", &rsvg.finish},
               {"cairo_surface_destroy", &rsvg.release},
               {"cairo_surface_status", &rsvg.status}};
  void *library = dlopen("librsvg-2.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return trm_error(TRM_FAILED, "librsvg cannot be loaded: %s: install it (Debian: librsvg2-2), or use --svg",
                     dlerror());
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    void *function = dlsym(library, table[i].name);
    if (!function)
      return trm_error(TRM_FAILED, "librsvg has no %s: install a newer one, or use --svg", table[i].name);
    memcpy(table[i].slot, &function, sizeof function);
  }
  return TRM_OK;
}

static cairo_status_t picture_put(void *stream, const unsigned char *data, unsigned int bytes)
{
  return fwrite(data, 1, bytes, stream) == bytes ? CAIRO_STATUS_SUCCESS : CAIRO_STATUS_WRITE_ERROR;
}

/* Renders the SVG as PDF, one point for a unit of the drawing, or as PNG, three pixels for a unit. */
static int picture_render(FILE *out, enum report_format format, const char *svg, size_t bytes, int height)
{
  TRM_CHECK(picture_load_rsvg());
  const int scale = format == REPORT_PNG ? 3 : 1, width = scale * WIDTH;
  height *= scale;
  RsvgHandle *handle = rsvg.parse((const guint8 *)svg, bytes, NULL);
  if (!handle)
    return trm_error(TRM_FAILED, "librsvg cannot read the picture");
  cairo_surface_t *surface = format == REPORT_PNG ? rsvg.image(CAIRO_FORMAT_ARGB32, width, height)
                                                  : rsvg.pdf(picture_put, out, width, height);
  cairo_t *cairo = rsvg.create(surface);
  const RsvgRectangle viewport = {0, 0, width, height};
  bool good = rsvg.render(handle, cairo, &viewport, NULL);
  rsvg.destroy(cairo);
  if (good && format == REPORT_PNG)
    good = rsvg.png(surface, picture_put, out) == CAIRO_STATUS_SUCCESS;
  rsvg.finish(surface);
  good = good && rsvg.status(surface) == CAIRO_STATUS_SUCCESS;
  rsvg.release(surface);
  rsvg.unref(handle);
  return good ? TRM_OK : trm_error(TRM_FAILED, "librsvg cannot render the picture");
}
#else
static int picture_render(FILE *out, enum report_format format, const char *svg, size_t bytes, int height)
{
  (void)out, (void)format, (void)svg, (void)bytes, (void)height;
  return trm_error(TRM_USAGE, "--pdf, --png: built without librsvg: use --svg, or install librsvg (Debian: "
                              "librsvg2-dev), run configure again and build");
}
#endif

/* Makes the picture in memory (*made, *bytes), which the caller frees. */
static int picture_make(enum report_format format, const char *title, const struct report_run *runs, int count,
                        char **made, size_t *bytes)
{
  FILE *out = open_memstream(made, bytes);
  const int height = out ? picture_draw(out, title, runs, count) : 0;
  if (!out || ferror(out) | fclose(out))
    return trm_error(TRM_FAILED, "report: no memory for the picture");
  if (format == REPORT_SVG)
    return TRM_OK;
  char *svg = *made;
  const size_t length = *bytes;
  *made = NULL;
  out = open_memstream(made, bytes);
  int status = out ? picture_render(out, format, svg, length, height) : TRM_FAILED;
  if (!out || ferror(out) | fclose(out))
    status = trm_error(TRM_FAILED, "report: no memory for the picture");
  free(svg);
  return status;
}

int report_picture(const char *path, enum report_format format, const char *title, const struct report_run *runs,
                   int count)
{
  char *made = NULL;
  size_t bytes = 0;
  struct atomic_file file;
  int status = picture_make(format, title, runs, count, &made, &bytes);
  if (status == TRM_OK)
    status = atomic_file_open(&file, path);
  if (status == TRM_OK)
    status = atomic_file_close(&file, fwrite(made, 1, bytes, file.stream) == bytes);
  free(made);
  return status;
}

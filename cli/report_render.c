/* Pictures as PDF and PNG, by librsvg. */
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_RSVG
#include <cairo-pdf.h>
#include <dlfcn.h>
#include <librsvg/rsvg.h>
#endif

#include "cli/report.h"
#include "core/status.h"

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

static int render_load_rsvg(void)
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

static cairo_status_t render_put(void *stream, const unsigned char *data, unsigned int bytes)
{
  return fwrite(data, 1, bytes, stream) == bytes ? CAIRO_STATUS_SUCCESS : CAIRO_STATUS_WRITE_ERROR;
}

static int render_svg(FILE *out, enum report_format format, const char *svg, size_t bytes, int width, int height)
{
  TRM_CHECK(render_load_rsvg());
  const int scale = format == REPORT_PNG ? 3 : 1;
  width *= scale;
  height *= scale;
  RsvgHandle *handle = rsvg.parse((const guint8 *)svg, bytes, NULL);
  if (!handle)
    return trm_error(TRM_FAILED, "librsvg cannot read the picture");
  cairo_surface_t *surface = format == REPORT_PNG ? rsvg.image(CAIRO_FORMAT_ARGB32, width, height)
                                                  : rsvg.pdf(render_put, out, width, height);
  cairo_t *cairo = rsvg.create(surface);
  const RsvgRectangle viewport = {0, 0, width, height};
  bool good = rsvg.render(handle, cairo, &viewport, NULL);
  rsvg.destroy(cairo);
  if (good && format == REPORT_PNG)
    good = rsvg.png(surface, render_put, out) == CAIRO_STATUS_SUCCESS;
  rsvg.finish(surface);
  good = good && rsvg.status(surface) == CAIRO_STATUS_SUCCESS;
  rsvg.release(surface);
  rsvg.unref(handle);
  return good ? TRM_OK : trm_error(TRM_FAILED, "librsvg cannot render the picture");
}
#else
static int render_svg(FILE *out, enum report_format format, const char *svg, size_t bytes, int width, int height)
{
  (void)out, (void)format, (void)svg, (void)bytes, (void)width, (void)height;
  return trm_error(TRM_USAGE, "--pdf, --png: built without librsvg: use --svg, or install librsvg (Debian: "
                              "librsvg2-dev), run configure again and build");
}
#endif

int report_render(enum report_format format, char **made, size_t *bytes, int width, int height)
{
  char *svg = *made;
  const size_t length = *bytes;
  *made = NULL;
  FILE *out = open_memstream(made, bytes);
  int status = out ? render_svg(out, format, svg, length, width, height) : TRM_FAILED;
  if (!out || ferror(out) | fclose(out))
    status = trm_error(TRM_FAILED, "no memory for the picture");
  free(svg);
  return status;
}

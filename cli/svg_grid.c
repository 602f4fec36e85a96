/* Small panels, one for each number of a line, with the same axes. */
#include "cli/svg_private.h"
#include "core/memory.h"

/* Returns the first series from `s` on that is a line, and the first one of its number; plot->count: there is none. */
static int svg_next_cell(const struct svg_plot *plot, int s)
{
  for (; s < plot->count; s++) {
    bool earlier = plot->series[s].form != SVG_LINE;
    for (int k = 0; k < s && !earlier; k++)
      earlier = plot->series[k].form == SVG_LINE && plot->series[k].number == plot->series[s].number;
    if (!earlier)
      break;
  }
  return s;
}

static int svg_cells(const struct svg_plot *plot)
{
  int cells = 0;
  for (int s = svg_next_cell(plot, 0); s < plot->count; s = svg_next_cell(plot, s + 1))
    cells++;
  return cells;
}

bool svg_is_grid(const struct svg_plot *plot)
{
  return !plot->rows && !plot->cell && svg_cells(plot) > SVG_MANY;
}

const char *svg_name_behind(const struct svg_plot *plot)
{
  for (int s = 0; s < plot->count; s++)
    if (plot->series[s].number == plot->behind && plot->series[s].form == SVG_LINE)
      return plot->series[s].label;
  return NULL;
}

static int svg_grid_columns(const struct svg_plot *plot)
{
  return (svg_cells(plot) > 12 ? 3 : 2) + (plot->width > 600);
}

int svg_grid_height(const struct svg_plot *plot)
{
  const int columns = svg_grid_columns(plot);
  return (svg_cells(plot) + columns - 1) / columns * (CELL_TOP + CELL_HEIGHT + CELL_GAP) - CELL_GAP + BOTTOM;
}

/* Draws the series of the cell's number over the one behind, in one color. */
static void svg_draw_cell(struct canvas *c, const char *name)
{
  const struct svg_plot *plot = c->plot;
  for (int s = 0; s < plot->count; s++)
    if (plot->series[s].number == plot->behind && plot->behind != plot->cell->number &&
        plot->series[s].form == SVG_LINE) {
      fputs("<path class=\"behind\" d=\"", c->out);
      svg_path_points(c, &plot->series[s]);
      fputs("\"/>\n", c->out);
    }
  struct svg_plot alone = *plot;
  struct svg_series *series = trm_alloc((size_t)plot->count * sizeof *series, "report: a panel");
  alone.series = series;
  alone.count = 0;
  for (int s = 0; s < plot->count; s++)
    if (plot->series[s].number == plot->cell->number) {
      series[alone.count] = plot->series[s];
      series[alone.count++].number = 0;
    }
  c->plot = &alone;
  svg_draw_all(c, 0);
  c->plot = plot;
  trm_free(series);
  svg_name(c->out, name, c->x.to - c->x.from, c->x.from, CELL_TOP - 6);
}

/* Draws a panel, its upper left corner at (x, y). The axes are those of all series. */
static void svg_draw_panel(FILE *out, const struct svg_plot *plot, const struct svg_cell *cell, const char *name,
                           double x, double y, double width, struct svg_notes *notes)
{
  struct svg_plot small = *plot;
  struct canvas c = {.out = out, .plot = &small, .notes = notes};
  small.cell = cell;
  small.width = (int)width;
  svg_set_frame(&c, 0);
  fprintf(out, "<g transform=\"translate(%.1f,%.1f)\">\n", x, y);
  svg_set_axis_x(&c);
  svg_set_axis_y(&c);
  svg_draw_axes(&c);
  svg_draw_cell(&c, name);
  fputs("</g>\n", out);
}

void svg_draw_grid(FILE *out, const struct svg_plot *plot, struct svg_notes *notes)
{
  const int cells = svg_cells(plot), columns = svg_grid_columns(plot);
  const double width = (double)(plot->width - LEFT - RIGHT - (columns - 1) * CELL_SPACE) / columns;
  int s = svg_next_cell(plot, 0);
  for (int i = 0; i < cells; i++, s = svg_next_cell(plot, s + 1)) {
    const int column = i % columns;
    const struct svg_cell cell = {plot->series[s].number, column == 0, i + columns >= cells};
    svg_draw_panel(out, plot, &cell, plot->series[s].label, column ? LEFT + column * (width + CELL_SPACE) : 0,
                   i / columns * (CELL_TOP + CELL_HEIGHT + CELL_GAP), column ? width : LEFT + width, notes);
  }
}

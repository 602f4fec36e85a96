/* Rows of bars and of boxes. */
#include <math.h>
#include <string.h>

#include "cli/markup.h"
#include "cli/svg_private.h"

enum { NAME_LETTERS = 8 }; /* of the longest name beside the rows; longer ones are above them */

bool svg_names_above(const struct svg_plot *plot)
{
  size_t longest = 0;
  for (int r = 0; r < plot->rows; r++)
    longest = strlen(plot->row[r]) > longest ? strlen(plot->row[r]) : longest;
  return longest > NAME_LETTERS;
}

static double svg_row_height(const struct canvas *c)
{
  return (c->y.from - c->y.to) / c->plot->rows;
}

void svg_row_edges(const struct canvas *c, double row, double *top, double *bottom)
{
  const double height = svg_row_height(c), middle = svg_to_pixel(&c->y, row), gap = height > 12 ? 2 : 0.5;
  *top = middle - height / 2 + (svg_names_above(c->plot) ? 17 : gap);
  *bottom = middle + height / 2 - gap;
}

/* Low rows have the names of some. */
void svg_draw_row_names(struct canvas *c)
{
  const bool above = svg_names_above(c->plot);
  const int every = c->plot->rows ? (int)ceil(12 / svg_row_height(c)) : 1;
  for (int r = 0; r < c->plot->rows; r += every) {
    const double middle = svg_to_pixel(&c->y, r);
    if (above) {
      svg_name(c->out, c->plot->row[r], c->x.to - c->x.from, c->x.from, middle - svg_row_height(c) / 2 + 13);
      continue;
    }
    fprintf(c->out, "<text class=\"tick\" text-anchor=\"end\" x=\"%.1f\" y=\"%.1f\">", c->x.from - 8.0, middle + 4);
    markup_text(c->out, c->plot->row[r]);
    fputs("</text>\n", c->out);
  }
}

void svg_draw_bars(struct canvas *c, const struct svg_series *s)
{
  for (size_t i = 0; i < s->n; i++) {
    double top, bottom;
    svg_row_edges(c, s->y[i], &top, &bottom);
    if (isfinite(s->x[i]))
      fprintf(c->out,
              "<rect class=\"bar s%d\" opacity=\".4\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
              s->number % SVG_COLORS, c->x.from, top, svg_to_pixel(&c->x, s->x[i]) - c->x.from, bottom - top);
    else
      svg_text(c->out, "tick", "start", c->x.from + 4, (top + bottom) / 2 + 4, "not reached");
  }
}

void svg_draw_boxes(struct canvas *c, const struct svg_series *s)
{
  for (size_t i = 0; i < s->n; i++) {
    double top, bottom;
    svg_row_edges(c, s->y[i], &top, &bottom);
    const double inset = fmin(4 * s->box[i].depth, 0.35 * (bottom - top));
    const double x = svg_to_pixel(&c->x, s->x[i]), width = fmax(svg_to_pixel(&c->x, s->end[i]) - x, 0.3);
    char class[16] = "idle";
    if (s->number >= 0)
      snprintf(class, sizeof class, "box s%d", s->number);
    fprintf(c->out, "<g><rect class=\"%s\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\"><title>", class, x,
            top + inset, width, bottom - top - 2 * inset);
    markup_text(c->out, s->box[i].title);
    fputs("</title></rect>", c->out);
    if (s->box[i].mark >= 0 && bottom - top > 12 && width > (s->box[i].mark > 9 ? 17 : 10))
      svg_text(c->out, "in", "middle", x + width / 2, (top + bottom) / 2 + 4, "%d", s->box[i].mark);
    fputs("</g>\n", c->out);
  }
}

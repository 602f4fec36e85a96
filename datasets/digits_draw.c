/* Draws one handwritten-like digit: a skeleton is jittered, slanted, rotated and bent, drawn with a pen of varying
 * width and pressure, then blurred, scratched and speckled.
 *
 * The bytes must be the same on every machine and with every compiler. So all arithmetic is on integers, except for one
 * truncated square root of an integer (too small for rounding to matter); and no call or initializer draws twice, since
 * C does not define their order. Lengths are in 1/256 pixel; ink, blur and noise in 1/256 of their full amount unless
 * said otherwise. Only nonnegative values are shifted right; divisions truncate. */
#include "datasets/digits.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/random.h"

#define SIDE TRM_DIGIT_SIDE
#define PIXEL 256       /* units of length */
#define STEPS 8         /* straight pieces between two points of a skeleton; a power of two */
#define MAX_POINTS 256  /* of a flattened digit */
#define GRID 4          /* nodes per side of the displacement field */
#define JITTER (4 * 256) /* of a skeleton's points: 4 of its 100 units */
#define BLOCKS_BITS 12  /* each sample has 2^12 random blocks */

/* -- random numbers: the blocks of one sample, word by word */

struct draws {
  uint64_t seed, block;
  uint32_t split, word[4];
  int left;
};

static uint32_t draw_word(struct draws *draws)
{
  if (!draws->left) {
    trm_random_block(draws->seed, TRM_RANDOM_DIGITS, draws->split, draws->block++, draws->word);
    draws->left = 4;
  }
  return draws->word[--draws->left];
}

/* Uniform in low..high, both included. */
static int draw_between(struct draws *draws, int low, int high)
{
  return low + (int)(((uint64_t)draw_word(draws) * (uint32_t)(high - low + 1)) >> 32);
}

/* Bell-shaped with standard deviation `deviation`, never beyond 3.45 of it: the sum of four bytes has deviation
 * 147.8. */
static int draw_bell(struct draws *draws, int deviation)
{
  const uint32_t word = draw_word(draws);
  const int sum = (int)((word & 255) + (word >> 8 & 255) + (word >> 16 & 255) + (word >> 24)) - 510;
  return sum * deviation / 148;
}

static bool draw_chance(struct draws *draws, int percent)
{
  return draw_between(draws, 0, 99) < percent;
}

/* -- the path of the pen */

struct point {
  int x, y;
  int radius; /* of the pen */
  int ink;    /* its pressure */
  bool lifted; /* the pen is lifted before this point */
};

struct path {
  struct point point[MAX_POINTS];
  int points;
};

struct control {
  int x, y; /* 1/256 of the skeleton's unit */
  bool corner;
};

static void draw_path_add(struct path *path, int x, int y, bool lifted)
{
  if (path->points < MAX_POINTS)
    path->point[path->points++] = (struct point){x, y, 0, 0, lifted};
}

/* One smooth run through control points first..last (Catmull-Rom, its end tangents from mirrored neighbors). */
static void draw_run_flatten(struct path *path, const struct control *control, int first, int last, bool lifted)
{
  if (lifted)
    draw_path_add(path, control[first].x, control[first].y, true);
  for (int i = first; i < last; i++) {
    const struct control *b = &control[i], *c = &control[i + 1];
    const int ax = i > first ? control[i - 1].x : 2 * b->x - c->x, ay = i > first ? control[i - 1].y : 2 * b->y - c->y;
    const int dx = i + 1 < last ? control[i + 2].x : 2 * c->x - b->x;
    const int dy = i + 1 < last ? control[i + 2].y : 2 * c->y - b->y;
    for (int t = 1; t <= STEPS; t++) {
      const int64_t t1 = (int64_t)t * STEPS * STEPS, t2 = (int64_t)t * t * STEPS, t3 = (int64_t)t * t * t;
      const int64_t one = (int64_t)STEPS * STEPS * STEPS;
      const int64_t x = 2 * b->x * one + (c->x - ax) * t1 + (2 * ax - 5 * b->x + 4 * c->x - dx) * t2 +
                        (3 * b->x - ax - 3 * c->x + dx) * t3;
      const int64_t y = 2 * b->y * one + (c->y - ay) * t1 + (2 * ay - 5 * b->y + 4 * c->y - dy) * t2 +
                        (3 * b->y - ay - 3 * c->y + dy) * t3;
      draw_path_add(path, (int)(x / (2 * one)), (int)(y / (2 * one)), false);
    }
  }
}

static void draw_stroke_flatten(struct path *path, const struct control *control, int controls)
{
  for (int first = 0, i = 1; i < controls; i++)
    if (control[i].corner || i == controls - 1) {
      draw_run_flatten(path, control, first, i, first == 0);
      first = i;
    }
}

/* Reads a skeleton, moves every point a little, and flattens its strokes. */
static void draw_form_flatten(const char *text, struct draws *draws, int jitter, struct path *path)
{
  struct control control[32];
  int controls = 0;
  path->points = 0;
  while (*text) {
    char *end;
    const long x = strtol(text, &end, 10), y = strtol(end + 1, &end, 10);
    struct control *here = &control[controls++];
    here->x = (int)x * 256 + draw_bell(draws, jitter);
    here->y = (int)y * 256 + draw_bell(draws, jitter);
    here->corner = *end == '!';
    text = end + here->corner;
    while (*text == ' ')
      text++;
    if (*text == '|' || !*text) {
      draw_stroke_flatten(path, control, controls);
      controls = 0;
      text += *text == '|';
    }
  }
}

/* -- distortion */

/* Rotates, slants, scales and places the skeleton: box units to pixels. */
static void draw_path_place(struct path *path, struct draws *draws)
{
  const int height = draw_between(draws, 16 * PIXEL, 22 * PIXEL);
  const int width = height * draw_between(draws, 72, 112) / 100;
  const int slant = 24 + draw_bell(draws, 36);       /* 1/256, to the right */
  const int turn = draw_bell(draws, 15);             /* 1/256: tangent of half the angle; deviation 6.7 degrees */
  const int scale = 65536 + turn * turn, cosine = 65536 - turn * turn, sine = 2 * turn * 256;
  const int at_x = SIDE * PIXEL / 2 + draw_bell(draws, 170), at_y = SIDE * PIXEL / 2 + draw_bell(draws, 170);
  for (int i = 0; i < path->points; i++) {
    struct point *point = &path->point[i];
    const int64_t v = (int64_t)(point->y - 50 * 256) * height / (100 * 256);
    const int64_t u = (int64_t)(point->x - 50 * 256) * width / (100 * 256) - v * slant / 256;
    point->x = at_x + (int)((u * cosine - v * sine) / scale);
    point->y = at_y + (int)((u * sine + v * cosine) / scale);
  }
}

static int draw_mix(int a, int b, int part) /* part 0..256 from a to b */
{
  return (a * (256 - part) + b * part) / 256;
}

/* Displaces every point by a smooth random field. */
static void draw_path_bend(struct path *path, struct draws *draws)
{
  int field[2][GRID][GRID];
  const int strength = draw_between(draws, 150, 480);
  for (int axis = 0; axis < 2; axis++)
    for (int i = 0; i < GRID * GRID; i++)
      field[axis][i / GRID][i % GRID] = draw_bell(draws, strength);
  const int cell = SIDE * PIXEL / (GRID - 1), end = SIDE * PIXEL - 1;
  for (int i = 0; i < path->points; i++) {
    struct point *point = &path->point[i];
    const int x = point->x < 0 ? 0 : point->x > end ? end : point->x;
    const int y = point->y < 0 ? 0 : point->y > end ? end : point->y;
    const int column = x / cell < GRID - 1 ? x / cell : GRID - 2, row = y / cell < GRID - 1 ? y / cell : GRID - 2;
    int px = (x - column * cell) * 256 / cell, py = (y - row * cell) * 256 / cell;
    px = px * px * (768 - 2 * px) / 65536; /* smooth at the nodes: 3 p^2 - 2 p^3 */
    py = py * py * (768 - 2 * py) / 65536;
    int moved[2];
    for (int axis = 0; axis < 2; axis++)
      moved[axis] = draw_mix(draw_mix(field[axis][row][column], field[axis][row][column + 1], px),
                             draw_mix(field[axis][row + 1][column], field[axis][row + 1][column + 1], px), py);
    point->x += moved[0];
    point->y += moved[1];
  }
}

/* Sets the pen's width and pressure along the path; both drift. */
static void draw_path_ink(struct path *path, struct draws *draws, int radius, int ink)
{
  const int radius_end = radius * draw_between(draws, 70, 125) / 100;
  const int ink_end = ink * draw_between(draws, 65, 110) / 100;
  for (int i = 0; i < path->points; i++) {
    const int part = path->points > 1 ? 256 * i / (path->points - 1) : 0;
    path->point[i].radius = draw_mix(radius, radius_end, part);
    path->point[i].ink = draw_mix(ink, ink_end > 256 ? 256 : ink_end, part);
  }
}

/* -- pixels */

static int draw_min(int a, int b)
{
  return a < b ? a : b;
}
static int draw_max(int a, int b)
{
  return a > b ? a : b;
}

/* Inks the line from a to b: full inside the pen's radius, falling to nothing over one pixel around it. */
static void draw_line(int sheet[SIDE][SIDE], const struct point *a, const struct point *b)
{
  const int reach = draw_max(a->radius, b->radius) + PIXEL / 2;
  const int left = draw_min(a->x, b->x) - reach, right = draw_max(a->x, b->x) + reach;
  const int top = draw_min(a->y, b->y) - reach, bottom = draw_max(a->y, b->y) + reach;
  if (right < 0 || bottom < 0)
    return;
  const int64_t dx = b->x - a->x, dy = b->y - a->y, length2 = dx * dx + dy * dy;
  for (int row = draw_max(0, top) / PIXEL; row < SIDE && row * PIXEL <= bottom; row++)
    for (int column = draw_max(0, left) / PIXEL; column < SIDE && column * PIXEL <= right; column++) {
      const int64_t x = column * PIXEL + PIXEL / 2 - a->x, y = row * PIXEL + PIXEL / 2 - a->y;
      int64_t part = length2 ? (x * dx + y * dy) * 256 / length2 : 0; /* 1/256 of the way */
      part = part < 0 ? 0 : part > 256 ? 256 : part;
      const int64_t away_x = 256 * x - dx * part, away_y = 256 * y - dy * part;
      const int outside = draw_mix(a->radius, b->radius, (int)part) + PIXEL / 2;
      const int64_t away2 = away_x * away_x + away_y * away_y;
      if (away2 >= (int64_t)outside * outside * 65536)
        continue;
      const int away = (int)(sqrt((double)away2) / 256.0);
      const int cover = draw_min(outside - away, PIXEL); /* 0..256 */
      const int ink = cover * draw_mix(a->ink, b->ink, (int)part) / PIXEL;
      if (ink > sheet[row][column])
        sheet[row][column] = ink;
    }
}

static void draw_path(int sheet[SIDE][SIDE], const struct path *path)
{
  for (int i = 1; i < path->points; i++)
    if (!path->point[i].lifted)
      draw_line(sheet, &path->point[i - 1], &path->point[i]);
}

/* A short curved line: the stroke of a neighboring digit near the border, or a scratch across. */
static void draw_scrap(int sheet[SIDE][SIDE], struct draws *draws, bool across)
{
  struct path path = {.points = 0};
  struct control control[3];
  const int side = draw_between(draws, 0, 3);
  const int along = draw_between(draws, 0, SIDE * PIXEL);
  const int depth = across ? draw_between(draws, 8 * PIXEL, 20 * PIXEL) : draw_between(draws, 0, 3 * PIXEL);
  const int vertical = side & 1, far = side & 2;
  control[1].x = vertical ? (far ? SIDE * PIXEL - depth : depth) : along;
  control[1].y = vertical ? along : (far ? SIDE * PIXEL - depth : depth);
  const int reach_x = draw_bell(draws, 4 * PIXEL), reach_y = draw_bell(draws, 4 * PIXEL);
  const int bow_x = draw_bell(draws, PIXEL), bow_y = draw_bell(draws, PIXEL);
  control[0] = (struct control){control[1].x - reach_x, control[1].y - reach_y, false};
  control[1].corner = false;
  control[2] = (struct control){control[1].x + reach_x + bow_x, control[1].y + reach_y + bow_y, false};
  draw_stroke_flatten(&path, control, 3);
  const int radius = across ? draw_between(draws, 60, 150) : draw_between(draws, 100, 260);
  const int ink = draw_between(draws, 120, 256);
  draw_path_ink(&path, draws, radius, ink);
  draw_path(sheet, &path);
}

/* Spreads each pixel: weight `spread` of 256 to each neighbor, along rows, then along columns. */
static void draw_sheet_blur(int sheet[SIDE][SIDE], int spread)
{
  int line[SIDE];
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < SIDE; i++) {
      for (int j = 0; j < SIDE; j++)
        line[j] = pass ? sheet[j][i] : sheet[i][j];
      for (int j = 0; j < SIDE; j++) {
        const int beside = (j ? line[j - 1] : 0) + (j + 1 < SIDE ? line[j + 1] : 0);
        *(pass ? &sheet[j][i] : &sheet[i][j]) = (line[j] * (256 - 2 * spread) + beside * spread) / 256;
      }
    }
}

static const struct trm_digit_form *draw_form_choose(int digit, struct draws *draws)
{
  const struct trm_digit_form *first = trm_digit_form_table;
  while (first->digit != digit)
    first++;
  int weights = 0;
  for (const struct trm_digit_form *form = first; form->strokes && form->digit == digit; form++)
    weights += form->weight;
  int chosen = draw_between(draws, 0, weights - 1);
  while (chosen >= first->weight)
    chosen -= first++->weight;
  return first;
}

int trm_digit_draw(uint64_t seed, uint32_t split, uint64_t sample, uint8_t *pixels)
{
  /* Streams 0 and 1 draw the samples of the two splits; the even and odd ones above order the labels, by thousands. */
  const uint32_t stream = (uint32_t)(2 * (sample / 1000 + 1)) + split;
  const int digit = (int)(trm_random_permute(seed, TRM_RANDOM_DIGITS, stream, 1000, sample % 1000) % 10);
  struct draws draws = {.seed = seed, .split = split, .block = sample << BLOCKS_BITS};

  struct path path;
  const struct trm_digit_form *form = draw_form_choose(digit, &draws);
  draw_form_flatten(form->strokes, &draws, JITTER, &path);
  draw_path_place(&path, &draws);
  draw_path_bend(&path, &draws);
  const int radius = draw_between(&draws, 150, 420), ink = draw_between(&draws, 190, 256);
  draw_path_ink(&path, &draws, radius, ink);

  int sheet[SIDE][SIDE], scratch[SIDE][SIDE];
  memset(sheet, 0, sizeof sheet);
  draw_path(sheet, &path);
  if (draw_chance(&draws, 50))
    draw_scrap(sheet, &draws, false);
  if (draw_chance(&draws, 30)) { /* a line covers the digit */
    memset(scratch, 0, sizeof scratch);
    draw_scrap(scratch, &draws, true);
    for (int i = 0; i < SIDE * SIDE; i++)
      sheet[i / SIDE][i % SIDE] -= sheet[i / SIDE][i % SIDE] * scratch[i / SIDE][i % SIDE] / 256;
  }
  draw_sheet_blur(sheet, draw_between(&draws, 8, 56));

  const int paper = draw_between(&draws, 0, 40), dark = draw_between(&draws, 160, 255);
  const int grain = draw_between(&draws, 2, 36); /* half width of the noise, 1/255 */
  for (int i = 0; i < SIDE * SIDE; i += 4) {
    const uint32_t noise = draw_word(&draws);
    for (int j = 0; j < 4; j++) {
      const int value = draw_mix(paper, dark, sheet[(i + j) / SIDE][(i + j) % SIDE]) +
                        ((int)(noise >> (8 * j) & 255) * (2 * grain + 1) / 256 - grain);
      pixels[i + j] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
  }
  return digit;
}

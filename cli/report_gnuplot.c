/* Loss and accuracy as one picture, drawn by gnuplot: its script goes to a pipe, its SVG to the file. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/report.h"
#include "cli/svg.h"
#include "core/memory.h"
#include "core/status.h"

enum { NO_PROGRAM = 127 };

static const char *const colors[] = {"0072b2", "d55e00", "008a64", "b65c92", "b98200", "3a9bd4", "555555"};
enum { COLOURS = sizeof colors / sizeof *colors };

/* A text in single quotes: gnuplot knows no escape in them but '' for '. */
static void quoted(FILE *script, const char *text)
{
  fputc('\'', script);
  for (; *text; text++) {
    if (*text == '\'')
      fputc('\'', script);
    fputc((unsigned char)*text < 0x20 ? ' ' : *text, script);
  }
  fputc('\'', script);
}

/* Writes $NAMErun, and $NAMErun_means where the values are many. */
static bool block_write(FILE *script, const char *name, int run, const struct svg_series *s, bool *means)
{
  size_t finite = 0;
  fprintf(script, "$%s%d << EOD\n", name, run);
  for (size_t k = 0; k < s->n; k++)
    if (isfinite(s->y[k])) {
      fprintf(script, "%.17g %.9g\n", s->x[k], s->y[k]);
      finite++;
    } else {
      fprintf(script, "\n"); /* breaks the line */
    }
  fputs("EOD\n", script);
  *means = finite && svg_wants_means(s);
  if (*means) {
    double x[SVG_WINDOWS], y[SVG_WINDOWS];
    const int windows = svg_means(s, x, y);
    fprintf(script, "$%s%d_means << EOD\n", name, run);
    for (int k = 0; k < windows; k++)
      isfinite(y[k]) ? fprintf(script, "%.17g %.9g\n", x[k], y[k]) : fprintf(script, "\n");
    fputs("EOD\n", script);
  }
  return finite > 0;
}

/* What of a run is there to draw. */
struct drawable {
  bool train, means, test, accuracy;
  int coincide; /* runs after it that it would be hidden by: it is drawn wider */
};

static struct drawable run_write(FILE *script, const struct report_run *run, int number, double *low, double *high)
{
  const size_t longest = run->train.n > run->test.n ? run->train.n : run->test.n;
  double *x = trm_alloc((2 * longest + 1) * sizeof *x, "report: a curve"), *y = x + longest;
  struct svg_series s = {.n = run->train.n, .x = x, .y = y};
  struct drawable is = {.coincide = 0};
  bool unused;
  for (size_t k = 0; k < s.n; k++) {
    x[k] = run->train.point[k].samples;
    y[k] = run->train.point[k].loss;
    if (isfinite(y[k])) {
      *low = fmin(*low, y[k]);
      *high = fmax(*high, y[k]);
    }
  }
  is.train = block_write(script, "train", number, &s, &is.means);
  s.n = run->test.n;
  for (size_t k = 0; k < s.n; k++) {
    x[k] = run->test.point[k].samples;
    y[k] = run->test.point[k].loss;
  }
  is.test = block_write(script, "test", number, &s, &unused);
  for (size_t k = 0; k < s.n; k++)
    y[k] = 100 * run->test.point[k].accuracy;
  is.accuracy = block_write(script, "accuracy", number, &s, &unused);
  trm_free(x);
  return is;
}

/* Whether two runs logged the same training losses, to within what can be seen. */
static bool runs_coincide(const struct report_series *a, const struct report_series *b)
{
  bool same = a->n == b->n;
  for (size_t k = 0; same && k < a->n; k++) {
    const double x = a->point[k].loss, y = b->point[k].loss;
    same = a->point[k].samples == b->point[k].samples && !(fabs(x - y) > 0.005 * fabs(x));
  }
  return same;
}

static const char *separator(bool *first)
{
  const char *s = *first ? "plot " : ", ";
  *first = false;
  return s;
}

static void loss_panel(FILE *script, const struct report_run *runs, int count, const struct drawable *is,
                       bool logarithmic)
{
  bool first = true, means = false, any = false;
  for (int i = 0; i < count; i++) {
    means |= is[i].means;
    any |= is[i].train || is[i].test;
  }
  const char *what = !any    ? "no values"
                     : means ? "training (thin: every value, thick: means), test (points)"
                             : "training (line), test (points)";
  fprintf(script, "set title 'Loss: %s'\n", what);
  if (logarithmic)
    fputs("set logscale y\n", script);
  for (int i = 0; i < count; i++)
    if (is[i].means)
      fprintf(script, "%s$train%d with lines lw 0.5 lc rgb '#c0%s' notitle", separator(&first), i, colors[i % COLOURS]);
  for (int i = 0; i < count; i++) {
    const char *color = colors[i % COLOURS];
    if (is[i].train) {
      fprintf(script, "%s$train%d%s with lines dt %d lw %.1f lc rgb '#%s' title ", separator(&first), i,
              is[i].means ? "_means" : "", 1 + i / COLOURS % 4, 1.6 + 2.4 * is[i].coincide, color);
      quoted(script, runs[i].name);
    }
    if (is[i].test)
      fprintf(script, "%s$test%d with points pt 7 ps 0.5 lc rgb '#%s' notitle", separator(&first), i, color);
  }
  if (first)
    fputs("set xrange [0:1]\nset yrange [0:1]\nplot NaN notitle", script);
}

static void accuracy_panel(FILE *script, const struct report_run *runs, int count, const struct drawable *is)
{
  bool any = false, first = true;
  for (int i = 0; i < count; i++)
    any |= is[i].accuracy;
  fprintf(script, "\nunset logscale\nset format y '%%g%%%%'\nset title 'Test accuracy%s'\n",
          any ? "" : ": no evaluations");
  for (int i = 0; i < count; i++)
    if (is[i].accuracy) {
      fprintf(script, "%s$accuracy%d with linespoints dt %d pt 7 ps %.1f lw %.1f lc rgb '#%s' title ",
              separator(&first), i, 1 + i / COLOURS % 4, 0.5 + 0.4 * is[i].coincide, 1.6 + 2.4 * is[i].coincide,
              colors[i % COLOURS]);
      quoted(script, runs[i].name);
    }
  if (first)
    fputs("set xrange [0:1]\nset yrange [0:1]\nplot NaN notitle", script);
}

static void script_write(FILE *script, const char *title, const struct report_run *runs, int count)
{
  static const char settings[] =
    "set terminal svg size 1120,440 dynamic enhanced font 'sans-serif,12' background '#ffffff'\n"
    "set border 3 lw 1 lc rgb '#5b6570'\nset tics nomirror out tc rgb '#5b6570'\nset grid y lc rgb '#dfe3e7' lt 1\n"
    "set key noenhanced outside below center horizontal samplen 2 spacing 1.1 tc rgb '#1c2126'\n"
    "set xlabel 'samples' tc rgb '#5b6570'\n"
    "set format x '%.0s%c'\nset xrange [0:*]\nset title tc rgb '#1c2126'\n";
  fputs(settings, script);
  struct drawable *is = trm_alloc((size_t)count * sizeof *is, "report: what to draw");
  double low = INFINITY, high = -INFINITY;
  for (int i = 0; i < count; i++)
    is[i] = run_write(script, &runs[i], i, &low, &high);
  for (int i = 0; i < count; i++)
    for (int k = i + 1; k < count; k++)
      is[i].coincide += runs_coincide(&runs[i].train, &runs[k].train);
  fputs("set multiplot layout 1,2 title ", script);
  quoted(script, title);
  fputs(" noenhanced font ',15' tc rgb '#1c2126'\n", script);
  loss_panel(script, runs, count, is, low > 0 && high / low > 12);
  accuracy_panel(script, runs, count, is);
  fputs("\nunset multiplot\n", script);
  trm_free(is);
}

static void child_run(int script, int picture)
{
  dup2(script, STDIN_FILENO);
  dup2(picture, STDOUT_FILENO);
  close(script);
  close(picture);
  execlp(TRM_GNUPLOT, "gnuplot", "-", (char *)NULL);
  execlp("gnuplot", "gnuplot", "-", (char *)NULL);
  _exit(NO_PROGRAM);
}

static int gnuplot_feed(const char *out, int picture, const char *title, const struct report_run *runs, int count)
{
  int ends[2];
  if (pipe(ends) != 0)
    return trm_error(TRM_FAILED, "%s: cannot start gnuplot: %s", out, strerror(errno));
  /* a gnuplot that ends early must be an error message, not a signal */
  void (*const before)(int) = signal(SIGPIPE, SIG_IGN);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGPIPE, SIG_DFL);
    close(ends[1]);
    child_run(ends[0], picture);
  }
  close(ends[0]);
  FILE *script = child > 0 ? fdopen(ends[1], "w") : NULL;
  if (script) {
    script_write(script, title, runs, count);
    fclose(script);
  } else {
    close(ends[1]);
  }
  int ended = 0;
  while (child > 0 && waitpid(child, &ended, 0) < 0 && errno == EINTR)
    ;
  signal(SIGPIPE, before);
  if (!script)
    return trm_error(TRM_FAILED, "%s: cannot start gnuplot: %s", out, strerror(errno));
  if (WIFEXITED(ended) && WEXITSTATUS(ended) == NO_PROGRAM)
    return trm_error(TRM_FAILED,
                     "--svg needs gnuplot (%s: not found): install the package gnuplot (Debian: gnuplot-nox)",
                     TRM_GNUPLOT);
  if (!WIFEXITED(ended) || WEXITSTATUS(ended))
    return trm_error(TRM_FAILED, "%s: gnuplot failed: its message is above", out);
  return TRM_OK;
}

int report_gnuplot(const char *out, const char *title, const struct report_run *runs, int count)
{
  char *aside = trm_format("%s.new", out);
  const int picture = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  int status = picture < 0 ? trm_error(TRM_FAILED, "%s: cannot write: %s", out, strerror(errno))
                           : gnuplot_feed(out, picture, title, runs, count);
  if (picture >= 0 && (close(picture) != 0 || (status == TRM_OK && rename(aside, out) != 0)) && status == TRM_OK)
    status = trm_error(TRM_FAILED, "%s: cannot write: %s", out, strerror(errno));
  if (picture >= 0 && status != TRM_OK)
    unlink(aside);
  trm_free(aside);
  return status;
}

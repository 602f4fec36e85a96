/* Lines on stderr. Each is one write, so that the lines of several ranks and threads do not mix. */
#include "core/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/context.h"
#include "core/printable.h"
#include "core/status.h"

#define LINE_BYTES 8192
#define CLEAR_LINE "\r\033[K"

/* Of the process: lines of all its ranks share one terminal. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char progress_line[1024]; /* the progress line on the terminal, or "" */

void trm_log_set_rank(int rank, int size)
{
  struct trm_rank_state *state = trm_rank_current();
  state->log_rank = rank;
  state->log_size = size;
}

int trm_log_rank(void)
{
  return trm_rank_current()->log_rank;
}

bool trm_log_set_quiet(bool quiet)
{
  const bool before = trm_rank_current()->log_quiet;
  trm_rank_current()->log_quiet = quiet;
  return before;
}

/* Returns true if this rank prints no informative lines. */
static bool log_is_silent(void)
{
  const struct trm_rank_state *state = trm_rank_current();
  return state->log_rank != 0 || state->log_quiet;
}

bool trm_progress_is_terminal(void)
{
  const char *terminal = getenv("TERM");
  return isatty(STDERR_FILENO) && terminal && strcmp(terminal, "dumb") != 0;
}

/* Prints the message as one line, above the progress line if there is one. kind: "", or "error" for a line that begins
 * with "trireme: error: ", or "trireme: rank 3: error: " if there are several ranks. */
static void log_print_line(const char *kind, const char *format, va_list arguments)
{
  const struct trm_rank_state *state = trm_rank_current();
  char text[LINE_BYTES], line[LINE_BYTES];
  int length = 0;
  if (*kind && state->log_size > 1)
    length = snprintf(text, sizeof text, "trireme: rank %d: %s: ", state->log_rank, kind);
  else if (*kind)
    length = snprintf(text, sizeof text, "trireme: %s: ", kind);
  const int added = vsnprintf(text + length, sizeof text - (size_t)length, format, arguments);
  if (added > 0)
    length += added;
  if ((size_t)length > sizeof text - 1)
    length = (int)sizeof text - 1;
  /* information may be a table; a warning or an error is one line */
  size_t bytes = trm_printable_copy(line, sizeof line - 1, text, (size_t)length, *kind ? "\t" : "\t\n");
  line[bytes++] = '\n';

  pthread_mutex_lock(&lock);
  if (progress_line[0])
    fputs(CLEAR_LINE, stderr);
  fwrite(line, 1, bytes, stderr);
  if (progress_line[0])
    fputs(progress_line, stderr);
  fflush(stderr);
  pthread_mutex_unlock(&lock);
}

void trm_info(const char *format, ...)
{
  if (log_is_silent())
    return;
  va_list arguments;
  va_start(arguments, format);
  log_print_line("", format, arguments);
  va_end(arguments);
}

void trm_warn(const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  log_print_line("warning", format, arguments);
  va_end(arguments);
}

static void log_print_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void log_print_error(const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  log_print_line("error", format, arguments);
  va_end(arguments);
}

void trm_log_error(void)
{
  log_print_error("%s", trm_error_text());
}

void trm_abort_on_error(int status)
{
  if (status == TRM_OK)
    return;
  trm_log_error();
  trm_abort(status);
}

/* Truncates the progress line to the terminal's width, between characters: a wrapped line cannot be overwritten. */
static void log_fit_progress_line(void)
{
  struct winsize window;
  size_t width = 79;
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 1)
    width = window.ws_col - 1u;
  if (strlen(progress_line) <= width)
    return;
  while (width > 0 && ((unsigned char)progress_line[width] & 0xc0) == 0x80)
    width--;
  progress_line[width] = '\0';
}

void trm_progress(const char *format, ...)
{
  if (log_is_silent())
    return;
  va_list arguments;
  va_start(arguments, format);
  if (!trm_progress_is_terminal()) {
    log_print_line("", format, arguments);
  } else {
    pthread_mutex_lock(&lock);
    vsnprintf(progress_line, sizeof progress_line, format, arguments);
    log_fit_progress_line();
    fputs(CLEAR_LINE, stderr);
    fputs(progress_line, stderr);
    fflush(stderr);
    pthread_mutex_unlock(&lock);
  }
  va_end(arguments);
}

void trm_progress_end(void)
{
  pthread_mutex_lock(&lock);
  if (progress_line[0]) {
    fputc('\n', stderr);
    fflush(stderr);
    progress_line[0] = '\0';
  }
  pthread_mutex_unlock(&lock);
}

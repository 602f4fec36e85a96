/* Lines on stderr. Each is one write, so that the lines of several ranks and threads do not mix. */
#include "core/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/status.h"

#define LINE_BYTES 8192
#define CLEAR_LINE "\r\033[K"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int log_rank, log_size = 1;
static bool log_quiet;
static char standing[1024]; /* the progress line on the terminal, "" if there is none */

void trm_log_identity(int rank, int size)
{
  log_rank = rank;
  log_size = size;
}

int trm_log_rank(void)
{
  return log_rank;
}

void trm_log_quiet(bool quiet)
{
  log_quiet = quiet;
}

bool trm_progress_is_terminal(void)
{
  static int known = -1;
  if (known < 0) {
    const char *terminal = getenv("TERM");
    known = isatty(STDERR_FILENO) && terminal && strcmp(terminal, "dumb") != 0;
  }
  return known;
}

/* Prints prefix and message as one line; a standing progress line makes room and comes back below it. */
static void line_print(const char *prefix, const char *format, va_list arguments)
{
  char text[LINE_BYTES];
  int length = snprintf(text, sizeof text, "%s", prefix);
  const int added = vsnprintf(text + length, sizeof text - (size_t)length, format, arguments);
  if (added > 0)
    length += added;
  if ((size_t)length > sizeof text - 2)
    length = (int)sizeof text - 2;
  text[length++] = '\n';

  pthread_mutex_lock(&lock);
  if (standing[0])
    fputs(CLEAR_LINE, stderr);
  fwrite(text, 1, (size_t)length, stderr);
  if (standing[0])
    fputs(standing, stderr);
  fflush(stderr);
  pthread_mutex_unlock(&lock);
}

/* "trireme: rank 3: warning: " */
static void prefix_write(char *prefix, size_t bytes, const char *kind)
{
  if (log_size > 1)
    snprintf(prefix, bytes, "trireme: rank %d: %s: ", log_rank, kind);
  else
    snprintf(prefix, bytes, "trireme: %s: ", kind);
}

void trm_info(const char *format, ...)
{
  if (log_rank != 0 || log_quiet)
    return;
  va_list arguments;
  va_start(arguments, format);
  line_print("", format, arguments);
  va_end(arguments);
}

void trm_warn(const char *format, ...)
{
  char prefix[64];
  prefix_write(prefix, sizeof prefix, "warning");
  va_list arguments;
  va_start(arguments, format);
  line_print(prefix, format, arguments);
  va_end(arguments);
}

static void error_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void error_print(const char *format, ...)
{
  char prefix[64];
  prefix_write(prefix, sizeof prefix, "error");
  va_list arguments;
  va_start(arguments, format);
  line_print(prefix, format, arguments);
  va_end(arguments);
}

void trm_log_error(void)
{
  error_print("%s", trm_error_text());
}

/* A line that wraps could not be overwritten: cuts to the terminal's width, between characters. */
static void standing_fit(void)
{
  struct winsize window;
  size_t width = 79;
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 1)
    width = window.ws_col - 1u;
  if (strlen(standing) <= width)
    return;
  while (width > 0 && ((unsigned char)standing[width] & 0xc0) == 0x80)
    width--;
  standing[width] = '\0';
}

void trm_progress(const char *format, ...)
{
  if (log_rank != 0 || log_quiet)
    return;
  va_list arguments;
  va_start(arguments, format);
  if (!trm_progress_is_terminal()) {
    line_print("", format, arguments);
  } else {
    pthread_mutex_lock(&lock);
    vsnprintf(standing, sizeof standing, format, arguments);
    standing_fit();
    fputs(CLEAR_LINE, stderr);
    fputs(standing, stderr);
    fflush(stderr);
    pthread_mutex_unlock(&lock);
  }
  va_end(arguments);
}

void trm_progress_end(void)
{
  pthread_mutex_lock(&lock);
  if (standing[0]) {
    fputc('\n', stderr);
    fflush(stderr);
    standing[0] = '\0';
  }
  pthread_mutex_unlock(&lock);
}

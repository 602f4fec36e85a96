#include "core/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"

enum { TEXT_BYTES = sizeof ((struct trm_context *)NULL)->error_text };

static void (*abort_hook)(int status);

/* Records the text; truncation is marked by dots. */
static void status_record(const char *text, int length)
{
  char *error_text = trm_context_current()->error_text;
  if (length >= TEXT_BYTES) {
    memcpy(error_text, text, TEXT_BYTES - 4);
    memcpy(error_text + TEXT_BYTES - 4, "...", 4);
  } else {
    memcpy(error_text, text, (size_t)length + 1);
  }
}

int trm_error(int status, const char *format, ...)
{
  char text[TEXT_BYTES]; /* not in place: the arguments may quote the old message */
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (length >= 0)
    status_record(text, length);
  return status;
}

int trm_error_context(int status, const char *format, ...)
{
  char context[TEXT_BYTES], text[2 * TEXT_BYTES + 2];
  va_list arguments;
  va_start(arguments, format);
  const int written = vsnprintf(context, sizeof context, format, arguments);
  va_end(arguments);
  if (written >= 0)
    status_record(text, snprintf(text, sizeof text, "%s: %s", context, trm_error_text()));
  return status;
}

const char *trm_error_text(void)
{
  return trm_context_current()->error_text;
}

void trm_set_abort(void (*hook)(int status))
{
  abort_hook = hook;
}

_Noreturn void trm_abort(int status)
{
  if (abort_hook)
    abort_hook(status);
  exit(status == TRM_OK ? TRM_FAILED : status);
}

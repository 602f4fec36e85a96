#include "cli/flags.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"

static int flags_report_unknown(const struct flags *flags, const char *word, size_t length)
{
  const char *known[64];
  size_t n = 0;
  for (const struct flag *f = flags->table; f->name && n < sizeof known / sizeof *known - 1; f++)
    known[n++] = f->name;
  known[n] = NULL;
  char *name = trm_format("%.*s", (int)length, word);
  const char *near = trm_nearest_word(name, known), *command = flags->command;
  const char *option = flags->options ? trm_nearest_option(name) : NULL;
  const int status =
    near     ? trm_error(TRM_USAGE, "%s: unknown flag --%s; did you mean --%s?", command, name, near)
    : option ? trm_error(TRM_USAGE, "%s: --%s: unknown option; did you mean --%s%s?", command, name, option, word + length)
             : trm_error(TRM_USAGE, "%s: unknown flag --%s; see trireme %s --help", command, name, command);
  trm_free(name);
  return status;
}

static int flags_set(const struct flags *flags, const struct flag *flag, const char *value)
{
  if (flag->kind == FLAG_BOOL) {
    if (!value || !strcmp(value, "yes") || !strcmp(value, "true"))
      *(bool *)flag->value = true;
    else if (!strcmp(value, "no") || !strcmp(value, "false"))
      *(bool *)flag->value = false;
    else
      return trm_error(TRM_USAGE, "%s: --%s=%s: yes or no", flags->command, flag->name, value);
    return TRM_OK;
  }
  if (!value || !*value)
    return trm_error(TRM_USAGE, "%s: --%s needs a value: --%s=...", flags->command, flag->name, flag->name);
  if (flag->kind == FLAG_TEXT) {
    *(const char **)flag->value = value;
    return TRM_OK;
  }
  char *end;
  if (flag->kind == FLAG_REAL) {
    const double real = strtod(value, &end);
    if (*end || !(real >= (double)flag->low && real <= (double)flag->high))
      return trm_error(TRM_USAGE, "%s: --%s=%s: a number from %lld to %lld", flags->command, flag->name, value,
                       (long long)flag->low, (long long)flag->high);
    *(double *)flag->value = real;
    return TRM_OK;
  }
  errno = 0;
  const long long number = strtoll(value, &end, 10);
  if (errno || *end || number < flag->low || number > flag->high)
    return trm_error(TRM_USAGE, "%s: --%s=%s: a whole number from %lld to %lld", flags->command, flag->name, value,
                     (long long)flag->low, (long long)flag->high);
  *(int64_t *)flag->value = number;
  return TRM_OK;
}

/* Sets the flag or option of `word`. next: the following word or NULL; *used: it was the value. */
static int flags_parse(const struct flags *flags, const char *word, const char *next, bool *used)
{
  *used = false;
  const char *equal = strchr(word, '=');
  const size_t length = equal ? (size_t)(equal - word) : strlen(word);
  for (const struct flag *f = flags->table; f->name; f++)
    if (strlen(f->name) == length && !strncmp(f->name, word, length)) {
      *used = !equal && f->kind != FLAG_BOOL && next && strncmp(next, "--", 2) != 0;
      return flags_set(flags, f, equal ? equal + 1 : *used ? next : NULL);
    }
  const bool is_option = memchr(word, '.', length) || (length == 5 && !strncmp(word, "model", length));
  if (!flags->options || !is_option)
    return flags_report_unknown(flags, word, length);
  if (!equal)
    return trm_error(TRM_USAGE, "%s: --%s: needs a value: --%s=%s", flags->command, word, word,
                     next && strncmp(next, "--", 2) != 0 ? next : "...");
  char *name = trm_format("%.*s", (int)length, word);
  const int status = trm_options_set(flags->options, name, equal + 1);
  trm_free(name);
  return status;
}

int flags_read(const struct flags *flags, int argc, char **argv, int *nargs, bool *help_shown)
{
  bool no_more_flags = false;
  *nargs = 0;
  *help_shown = false;
  for (int i = 1; i < argc; i++) {
    if (!no_more_flags && !strcmp(argv[i], "--")) {
      no_more_flags = true;
    } else if (!no_more_flags && (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))) {
      fputs(flags->usage, stdout);
      *help_shown = true;
      return TRM_OK;
    } else if (!no_more_flags && !strncmp(argv[i], "--", 2)) {
      bool used;
      TRM_CHECK(flags_parse(flags, argv[i] + 2, i + 1 < argc ? argv[i + 1] : NULL, &used));
      i += used;
    } else if (!no_more_flags && argv[i][0] == '-' && argv[i][1]) {
      return trm_error(TRM_USAGE, "%s: unknown flag %s; flags are written --name=value", flags->command, argv[i]);
    } else {
      argv[(*nargs)++] = argv[i];
    }
  }
  return TRM_OK;
}

#include "cli/command.h"

#include <string.h>

#include "core/document.h"
#include "core/memory.h"
#include "core/options_private.h"
#include "core/status.h"

/* -- flags */

/* Refuses the flag --name, which had this value (or NULL). */
static int command_refuse_flag(const struct call *call, const char *name, const char *value)
{
  const struct command *command = call->command;
  const char *known[64];
  size_t n = 0;
  for (const struct trm_option *row = command->flags; row->name && n < sizeof known / sizeof *known - 1; row++)
    known[n++] = row->name;
  known[n] = NULL;
  const char *near = trm_nearest_word(name, known), *option = command->job ? trm_nearest_option(name) : NULL;
  if (near)
    return trm_error(TRM_USAGE, "%s: unknown flag --%s; did you mean --%s?", command->name, name, near);
  if (option)
    return trm_error(TRM_USAGE, "%s: --%s: unknown option; did you mean --%s%s%s?", command->name, name, option,
                     value ? "=" : "", value ? value : "");
  return trm_error(TRM_USAGE, "%s: unknown flag --%s; see trireme %s --help", command->name, name, command->name);
}

static int command_set_flag(struct call *call, const struct trm_option *row, const char *text)
{
  static const char *const wanted[] = {
    [TRM_OPTION_BOOL] = "yes or no",       [TRM_OPTION_INT] = "a whole number from ",
    [TRM_OPTION_REAL] = "a number from ",  [TRM_OPTION_BYTES] = "bytes, such as 4000000000 or 4G, from ",
    [TRM_OPTION_TEXT] = "not valid UTF-8", [TRM_OPTION_CHOICE] = "one of "};
  call->given |= (uint64_t)1 << (row - call->command->flags);
  if (trm_values_set(call->values, row, text) == TRM_OK)
    return TRM_OK;
  char low[32], high[32];
  char *range = row->choices        ? trm_option_choices_text(row)
                : row->high > row->low ? trm_format("%s to %s", trm_number_text(row->low, low),
                                                    trm_number_text(row->high, high))
                                       : trm_strdup("");
  trm_error(TRM_USAGE, "%s: --%s=%s: %s%s", call->command->name, row->name,
            row->type == TRM_OPTION_TEXT ? "..." : text, wanted[row->type], range);
  trm_free(range);
  return TRM_USAGE;
}

/* Sets the flag or option --name=value. value: NULL if there is no "=". next: the following word or NULL; *used: it was
 * the value. */
static int command_read_flag(struct call *call, const char *name, const char *value, const char *next, bool *used)
{
  const char *command = call->command->name;
  const struct trm_option *row = call->command->flags;
  const bool next_is_value = next && strncmp(next, "--", 2) != 0;
  const bool threads = call->command->threads && strcmp(name, "threads") == 0;
  while (row->name && strcmp(row->name, name) != 0)
    row++;
  if (row->name || threads) {
    const bool alone = !threads && row->type == TRM_OPTION_BOOL; /* without a value: yes */
    *used = !value && next_is_value && !alone;
    value = value ? value : *used ? next : alone ? "yes" : "";
    if (!*value)
      return trm_error(TRM_USAGE, "%s: --%s needs a value: --%s=...", command, name, name);
    return threads ? trm_options_set(&call->job->options, "parallel.threads", value)
                   : command_set_flag(call, row, value);
  }
  if (!call->command->job || (!strchr(name, '.') && strcmp(name, "model") != 0))
    return command_refuse_flag(call, name, value);
  if (!value)
    return trm_error(TRM_USAGE, "%s: --%s: needs a value: --%s=%s", command, name, name, next_is_value ? next : "...");
  return trm_options_set(&call->job->options, name, value);
}

bool command_is_given(const struct call *call, const char *flag)
{
  for (int i = 0; call->command->flags[i].name; i++)
    if (strcmp(call->command->flags[i].name, flag) == 0)
      return call->given >> i & 1;
  return false;
}

/* -- arguments */

/* Returns the first argument that is no flag. NULL: none, or it may be the value of a preceding option without "=". */
static const char *command_first_argument(int argc, char **argv)
{
  for (int i = 1; i < argc; i++) {
    if (argv[i][0] != '-')
      return argv[i];
    if (strchr(argv[i], '.') && !strchr(argv[i], '='))
      return NULL;
  }
  return NULL;
}

/* True for a word --section.key=value, or --model=value. */
static bool command_is_option(const char *word)
{
  const size_t length = strcspn(word, "=");
  return word[length] && (memchr(word, '.', length) || (length == 7 && memcmp(word, "--model", 7) == 0));
}

/* Sets flags and options, and moves the positional arguments to the begin of argv. */
static int command_read_words(struct call *call, int argc, char **argv)
{
  const char *command = call->command->name;
  bool no_more_flags = false;
  for (int i = 1; i < argc; i++) {
    if (no_more_flags || argv[i][0] != '-' || !argv[i][1]) {
      argv[call->nargs++] = argv[i];
    } else if (argv[i][1] != '-') {
      return trm_error(TRM_USAGE, "%s: unknown flag %s; flags are written --name=value", command, argv[i]);
    } else if (!argv[i][2]) {
      no_more_flags = true;
    } else if (call->command->keeps_options && command_is_option(argv[i])) {
      argv[call->nargs++] = argv[i];
    } else {
      const char *equal = strchr(argv[i], '=');
      char *name = trm_format("%.*s", equal ? (int)(equal - argv[i] - 2) : (int)strlen(argv[i]), argv[i] + 2);
      bool used = false;
      const int status = command_read_flag(call, name, equal ? equal + 1 : NULL, argv[i + 1], &used);
      trm_free(name);
      TRM_CHECK(status);
      i += used;
    }
  }
  argv[call->nargs] = NULL;
  return TRM_OK;
}

static int command_read_arguments(struct call *call, int argc, char **argv)
{
  const struct command *command = call->command;
  const char *config = command->config ? command_first_argument(argc, argv) : NULL;
  for (const char *const *preset = command->presets; preset && *preset; preset += 2)
    TRM_CHECK(trm_options_set(&call->job->options, preset[0], preset[1]));
  if (config)
    TRM_CHECK(trm_options_read(&call->job->options, config));
  TRM_CHECK(command_read_words(call, argc, argv));
  if (call->nargs > command->max_args)
    return trm_error(TRM_USAGE, "%s: one argument too many: \"%s\"%s", command->name, argv[command->max_args],
                     command->job ? " (options are written --section.key=value)" : "");
  if (call->nargs == 0 && command->missing)
    return trm_error(TRM_USAGE, "%s: %s; trireme %s --help shows the usage", command->name, command->missing,
                     command->name);
  if (call->job->options.simulate.workers > 0 && !command->simulates)
    return trm_error(TRM_USAGE, "simulate.workers: %s runs on real ranks; only train takes it", command->name);
  return TRM_OK;
}

int command_read_options(const struct command *command, int argc, char **argv, struct trm_options *options)
{
  struct trm_job job;
  trm_job_init(&job);
  struct call call = {.command = command, .job = &job, .args = argv};
  const int status = command_read_arguments(&call, argc, argv);
  *options = job.options;
  return status;
}

/* -- running */

const char *command_word(const struct command *command)
{
  const char *space = strrchr(command->name, ' ');
  return space ? space + 1 : command->name;
}

static int command_run_member(const struct command *group, int argc, char **argv)
{
  const char *known[32] = {NULL};
  if (argc < 2)
    return trm_error(TRM_USAGE, "no %s named; %s --help lists them", group->member, group->name);
  for (int i = 0; group->group[i] && i < 31; i++) {
    known[i] = command_word(group->group[i]);
    if (strcmp(known[i], argv[1]) == 0)
      return command_run(group->group[i], argc - 1, argv + 1);
  }
  const char *near = trm_nearest_word(argv[1], known);
  return near ? trm_error(TRM_USAGE, "there is no %s \"%s\"; did you mean \"%s\"?", group->member, argv[1], near)
              : trm_error(TRM_USAGE, "there is no %s \"%s\"; %s --help lists them", group->member, argv[1],
                          group->name);
}

int command_run(const struct command *command, int argc, char **argv)
{
  for (int i = 1; i < (command->group ? 2 : argc) && i < argc && strcmp(argv[i], "--") != 0; i++)
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
      fputs(command->usage, stdout);
      for (const struct command *const *member = command->group; member && *member; member++)
        printf("  %-9s  %s\n", command_word(*member), (*member)->help);
      return TRM_OK;
    }
  if (command->group)
    return command_run_member(command, argc, argv);
  struct trm_job job;
  trm_job_init(&job);
  job.serial = command->job == SERIAL_JOB;
  struct call call = {.command = command, .job = &job, .args = argv};
  call.values = trm_alloc(command->bytes, "flags");
  trm_values_default(call.values, command->flags);
  int status = command_read_arguments(&call, argc, argv);
  if (command->job)
    status = trm_job_open(&job, status);
  if (status == TRM_OK)
    status = command->run(&call);
  trm_job_close(&job);
  trm_values_free(call.values, command->flags);
  trm_free(call.values);
  return status;
}

/* trireme sbatch: writes the batch script of a run. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/sbatch.h"
#include "cli/script.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "train/dataset.h"

static const char usage[] =
  "usage: trireme sbatch CONFIG.yaml --nodes=N --ranks-per-node=R --time=HH:MM:SS [flag ...]\n"
  "                      [--section.key=value ...]\n\n"
  "Writes a batch script for Slurm, for the machine that it runs on: the launcher that the MPI\n"
  "library of this program can be started by, binding and threads in its words. Before the time\n"
  "limit the run stops with a checkpoint; a job that is queued again goes on from there. The\n"
  "configuration and the options are checked now. With an mpiexec the script runs by itself, too.\n\n"
  "  --nodes=N --ranks-per-node=R   R ranks on each of N nodes\n"
  "  --threads=T          cores of each rank (parallel.threads of the configuration, else 1)\n"
  "  --time=HH:MM:SS      the time limit; D-HH:MM:SS\n"
  "  --notice=S           the run is asked to stop S s before that (120; 0: it is not)\n"
  "  --requeue            the job is queued again when it was stopped so, or its node failed\n"
  "  --array=LIST         as of sbatch: a run for each number, its seed, in run.dir-NUMBER\n"
  "  --partition=P --account=A --gpus-per-node=G   as of sbatch\n"
  "  --launcher=NAME      srun, or the mpiexec of mpich, openmpi or intel; auto: srun where\n"
  "                       `srun --mpi=list` has an interface that the library speaks\n"
  "  --stage=yes          copies the data sets to each node's own disk, $SLURM_TMPDIR or $TMPDIR;\n"
  "                       all: the run directory, too, and back at the end (one node; a node that\n"
  "                       is lost takes its checkpoints along)\n"
  "  --out=FILE           the script's file (standard output)\n\n"
  "Values of several components, separated by \"/\", make a heterogeneous job: here ranks on GPUs\n"
  "and ranks on CPUs, one MPI job under srun.\n\n"
  "  trireme sbatch config.yaml --nodes=4 --ranks-per-node=2 --threads=16 --time=04:00:00 --requeue \\\n"
  "    --out=job.sbatch\n"
  "  trireme sbatch config.yaml --nodes=1/2 --ranks-per-node=4/8 --threads=4 --gpus-per-node=4/0 \\\n"
  "    --partition=gpu/cpu --time=04:00:00\n";

struct sbatch_flags {
  const char *nodes, *ranks_per_node, *threads, *time, *partition, *account, *gpus, *array, *out;
  enum sbatch_launcher launcher;
  enum sbatch_stage stage;
  int64_t notice_s;
  bool requeue;
};
#define AT(field) offsetof(struct sbatch_flags, field)
static const char *const stages[] = {"no", "yes", "all", NULL};
static const struct trm_option flags[] = {
  {"nodes", TRM_OPTION_TEXT, AT(nodes), NULL, NO_RANGE},
  {"ranks-per-node", TRM_OPTION_TEXT, AT(ranks_per_node), NULL, NO_RANGE},
  {"threads", TRM_OPTION_TEXT, AT(threads), NULL, NO_RANGE},
  {"time", TRM_OPTION_TEXT, AT(time), NULL, NO_RANGE},
  {"notice", TRM_OPTION_INT, AT(notice_s), "120", RANGE(0, 65535)},
  {"requeue", TRM_OPTION_BOOL, AT(requeue), NULL, NO_RANGE},
  {"array", TRM_OPTION_TEXT, AT(array), NULL, NO_RANGE},
  {"partition", TRM_OPTION_TEXT, AT(partition), NULL, NO_RANGE},
  {"account", TRM_OPTION_TEXT, AT(account), NULL, NO_RANGE},
  {"gpus-per-node", TRM_OPTION_TEXT, AT(gpus), NULL, NO_RANGE},
  {"launcher", TRM_OPTION_CHOICE, AT(launcher), "auto", 0, 0, sbatch_launchers, NULL},
  {"stage", TRM_OPTION_CHOICE, AT(stage), "no", 0, 0, stages, NULL},
  {"out", TRM_OPTION_TEXT, AT(out), NULL, NO_RANGE},
  END_OF_FLAGS};

/* -- values of components */

static int sbatch_count(const char *text)
{
  int count = 1;
  for (; text && (text = strchr(text, '/')); text++)
    count++;
  return count;
}

/* Returns the value of component i in a list; that of a single one is every component's. Owned by the caller. */
static char *sbatch_value(const char *list, int i)
{
  for (; i > 0 && strchr(list, '/'); i--)
    list = strchr(list, '/') + 1;
  return trm_format("%.*s", (int)strcspn(list, "/"), list);
}

/* Refuses what Slurm would not read as one word of a line of the script. */
static int sbatch_check_text(const char *flag, const char *text)
{
  for (const char *c = text; c && *c; c++)
    if (!isalnum((unsigned char)*c) && !strchr("_.,:=%@+-/", *c))
      return trm_error(TRM_USAGE, "sbatch: --%s=%s: no such name in Slurm: \"%c\"", flag, text, *c);
  return TRM_OK;
}

static int sbatch_read_number(const char *flag, const char *list, int i, int missing, int *number)
{
  if (!list && missing == 0)
    return trm_error(TRM_USAGE, "sbatch: --%s: no number named; trireme sbatch --help shows the usage", flag);
  char *value = list ? sbatch_value(list, i) : trm_format("%d", missing), *end;
  const long n = strtol(value, &end, 10);
  const bool valid = isdigit((unsigned char)*value) && !*end && n >= 1 && n <= 1000000;
  *number = (int)n;
  trm_free(value);
  return valid ? TRM_OK : trm_error(TRM_USAGE, "sbatch: --%s=%s: a whole number from 1 for each component", flag, list);
}

/* Sets *text to the value of component i; NULL: none, or 0. */
static int sbatch_read_text(const char *flag, const char *list, int i, char **text)
{
  TRM_CHECK(sbatch_check_text(flag, list));
  *text = list ? sbatch_value(list, i) : NULL;
  if (*text && (strcmp(*text, "0") == 0 || !**text)) {
    trm_free(*text);
    *text = NULL;
  }
  return TRM_OK;
}

static int sbatch_read_component(struct sbatch *batch, const struct sbatch_flags *f, int threads, int i)
{
  struct sbatch_component *c = &batch->component[i];
  TRM_CHECK(sbatch_read_number("nodes", f->nodes, i, 0, &c->nodes));
  TRM_CHECK(sbatch_read_number("ranks-per-node", f->ranks_per_node, i, 0, &c->ranks_per_node));
  TRM_CHECK(sbatch_read_number("threads", f->threads, i, threads, &c->threads));
  TRM_CHECK(sbatch_read_text("gpus-per-node", f->gpus, i, &c->gpus));
  TRM_CHECK(sbatch_read_text("partition", f->partition, i, &c->partition));
  return sbatch_read_text("account", f->account, i, &c->account);
}

static int sbatch_read_components(struct sbatch *batch, const struct sbatch_flags *f, int threads)
{
  const char *const lists[] = {f->nodes, f->ranks_per_node, f->threads, f->gpus, f->partition, f->account};
  batch->components = 1;
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    const int count = sbatch_count(lists[i]);
    if (count > SBATCH_COMPONENTS || (count > 1 && batch->components > 1 && count != batch->components))
      return trm_error(TRM_USAGE, "sbatch: %s: all lists have the same number of components, at most %d", lists[i],
                       SBATCH_COMPONENTS);
    batch->components = count > 1 ? count : batch->components;
  }
  for (int i = 0; i < batch->components; i++)
    TRM_CHECK(sbatch_read_component(batch, f, threads, i));
  return TRM_OK;
}

/* -- checks */

/* Sets the seconds of [D-]HH:MM:SS. */
static int sbatch_read_time(const char *text, int64_t *seconds)
{
  int days = 0, hours, minutes, rest, used = 0;
  if (!text)
    return trm_error(TRM_USAGE, "sbatch: --time: no time limit named: --time=HH:MM:SS");
  const bool form = sscanf(text, "%4d-%2d:%2d:%2d%n", &days, &hours, &minutes, &rest, &used) == 4 ||
                    (days = 0, sscanf(text, "%4d:%2d:%2d%n", &hours, &minutes, &rest, &used) == 3);
  if (!form || text[used] || strspn(text, "0123456789:-") != strlen(text) || minutes > 59 || rest > 59 || hours < 0 ||
      minutes < 0 || rest < 0)
    return trm_error(TRM_USAGE, "sbatch: --time=%s: HH:MM:SS, or D-HH:MM:SS", text);
  *seconds = ((days * 24LL + hours) * 60 + minutes) * 60 + rest;
  return TRM_OK;
}

static int sbatch_check(const struct sbatch *batch)
{
  int64_t limit_s = 0;
  TRM_CHECK(sbatch_read_time(batch->time, &limit_s));
  TRM_CHECK(sbatch_check_text("array", batch->array));
  if (batch->notice_s >= limit_s)
    return trm_error(TRM_USAGE, "sbatch: --notice=%lld: not before the time limit of %lld s",
                     (long long)batch->notice_s, (long long)limit_s);
  if (batch->array && batch->components > 1)
    return trm_error(TRM_USAGE, "sbatch: --array: Slurm has no arrays of heterogeneous jobs");
  if (batch->components > 1 && batch->launcher != SBATCH_SRUN)
    return trm_error(TRM_USAGE, "sbatch: --launcher=%s: of launchers only srun reaches all components of a "
                     "heterogeneous job", sbatch_launchers[batch->launcher]);
  if (batch->stage == SBATCH_STAGE_ALL && (batch->components > 1 || batch->component[0].nodes > 1))
    return trm_error(TRM_USAGE, "sbatch: --stage=all: the run directory is on the disk of one node, and the job has "
                     "several: --stage=yes");
  return TRM_OK;
}

/* The files of the data set. */
static int sbatch_find_files(struct sbatch *batch, const struct trm_options *options)
{
  double fraction;
  const char *validation;
  TRM_CHECK(trm_validation_option(options, &fraction, &validation));
  const char *const file[SBATCH_FILES] = {options->data.file, options->data.test, validation};
  static const char *const option[SBATCH_FILES] = {"data.file", "data.test", "data.validation"};
  for (int i = 0; i < SBATCH_FILES; i++) {
    batch->file_option[i] = option[i];
    batch->file[i] = file[i] && *file[i] ? file[i] : NULL;
  }
  if (batch->stage && !batch->file[0])
    return trm_error(TRM_USAGE, "sbatch: --stage: no data set named: data.file");
  return TRM_OK;
}

/* -- the command */

/* Returns the command line of this process in a shell's words, owned by the caller. */
static char *sbatch_command_line(void)
{
  char *text = trm_strdup("trireme"), *word = NULL;
  size_t capacity = 0;
  FILE *words = fopen("/proc/self/cmdline", "r");
  for (int i = 0; words && getdelim(&word, &capacity, '\0', words) > 0; i++) {
    for (char *c = word; *c; c++)
      *c = iscntrl((unsigned char)*c) ? ' ' : *c; /* the text is a comment's line */
    if (i > 0) {
      trm_append(&text, " ");
      script_add_word(&text, word);
    }
  }
  if (words)
    fclose(words);
  free(word);
  return text;
}

static int sbatch_read(struct sbatch *batch, const struct call *call, const struct trm_options *options)
{
  const struct sbatch_flags *f = call->values;
  *batch = (struct sbatch){.launcher = f->launcher, .stage = f->stage, .time = f->time, .array = f->array,
                           .notice_s = f->notice_s, .requeue = f->requeue, .words = call->args,
                           .run_dir = options->run.dir};
  TRM_CHECK(sbatch_read_components(batch, f, options->parallel.threads > 0 ? (int)options->parallel.threads : 1));
  TRM_CHECK(sbatch_find_files(batch, options));
  TRM_CHECK(sbatch_choose_launcher(batch));
  return sbatch_check(batch);
}

static int sbatch_write(const struct sbatch *batch, const char *path)
{
  char *command = sbatch_command_line(), *text = sbatch_script(batch, command);
  int status = TRM_OK;
  if (path)
    status = script_write(path, text);
  else
    fputs(text, stdout);
  if (path && status == TRM_OK)
    trm_info("sbatch: sbatch %s submits the job%s", path, batch->launcher == SBATCH_SRUN ? ""
             : "; bash runs it without Slurm");
  trm_free(command);
  trm_free(text);
  return status;
}

static int cmd_sbatch_run(const struct call *call)
{
  const struct sbatch_flags *f = call->values;
  struct trm_options options;
  struct sbatch batch = {0};
  char **words = trm_alloc(((size_t)call->nargs + 2) * sizeof *words, "the words of a command");
  memcpy(words + 1, call->args, (size_t)call->nargs * sizeof *words);
  words[0] = (char *)"train";
  int status = call->args[0][0] == '-'
                 ? trm_error(TRM_USAGE, "sbatch: the configuration comes before its options, not %s", call->args[0])
                 : TRM_OK;
  const int read = command_read_options(&cmd_train, call->nargs + 1, words, &options);
  status = status == TRM_OK ? read : status;
  if (status == TRM_OK)
    status = sbatch_read(&batch, call, &options);
  if (status == TRM_OK)
    status = sbatch_write(&batch, f->out);
  for (int i = 0; i < SBATCH_COMPONENTS; i++) {
    trm_free(batch.component[i].gpus);
    trm_free(batch.component[i].partition);
    trm_free(batch.component[i].account);
  }
  trm_options_free(&options);
  trm_free(words);
  return status;
}

const struct command cmd_sbatch = {
  .name = "sbatch", .help = "write the batch script of a run for Slurm",
  .usage = usage, .flags = flags, .bytes = sizeof(struct sbatch_flags), .max_args = ANY_ARGS, .keeps_options = true,
  .missing = "no configuration named", .run = cmd_sbatch_run,
};

/* The commands of `trireme` as records, and the driver that runs the one that a command line names. */
#pragma once

#include "core/options.h"
#include "job/job.h"

/* One run of a command. */
struct call {
  const struct command *command;
  struct trm_job *job; /* open, unless the command has none */
  void *values;        /* the struct that its flags set */
  uint64_t given;      /* flags on the command line, by their places in command->flags */
  char **args;         /* (nargs), then NULL: the positional arguments */
  int nargs;
};

enum command_job {
  WITHOUT_JOB, /* no ranks, no device; --section.key=value is refused */
  SERIAL_JOB,  /* one rank without MPI */
  JOB_OF_RANKS,
};

struct command {
  const char *name;  /* as typed: "eval", "bench gemm"; of a group with "trireme" before it */
  const char *help;  /* one line, for the list of commands */
  const char *usage; /* printed by --help */
  /* A group of commands, of which the next word names one: nothing else is set. */
  const struct command *const *group; /* ends with NULL */
  const char *member;                 /* what one is called: "bench" */
  /* Any other command. */
  const struct trm_option *flags; /* its own, --name=value or --name value; ends with END_OF_FLAGS */
  size_t bytes;                   /* of the struct that they set, zeroed before */
  int max_args;                   /* positional arguments */
  const char *missing;            /* refuses a call without any: "no checkpoint named"; NULL: none is needed */
  enum command_job job;
  bool simulates; /* it runs on a virtual network, too */
  bool keeps_options; /* the words --section.key=value stay among the arguments; WITHOUT_JOB */
  bool config;  /* the first argument is a configuration file; flags take precedence over it */
  bool threads; /* has the flag --threads, short for --parallel.threads */
  const char *const *presets; /* names and values of options, set before the flags; ends with NULL; NULL: none */
  int (*run)(const struct call *call);
};

/* The last fields of a row of flags. */
#define NO_RANGE 0, 0, NULL, NULL
#define RANGE(low, high) low, high, NULL, NULL
#define END_OF_FLAGS {.name = NULL}

enum { ANY_ARGS = 1 << 30 };

/* Runs the command, or that one of a group, with the words after its name: argv[1..]. Collective over the ranks of a
 * launch; on failure every rank has the message. TRM_USAGE: a wrong command line; the message names what is near. */
int command_run(const struct command *command, int argc, char **argv);
/* Reads the options of a command's words, argv[1..], into *options and does not run it. The order of argv changes. Not
 * collective. For trm_options_free, also on failure. */
int command_read_options(const struct command *command, int argc, char **argv, struct trm_options *options);
/* True if the command line has the flag. */
bool command_is_given(const struct call *call, const char *flag);
/* The last word of its name: "gemm". */
const char *command_word(const struct command *command);

extern const struct command all_commands; /* the group of them */
extern const struct command cmd_train, cmd_run, cmd_plan, cmd_eval, cmd_predict, cmd_export, cmd_generate, cmd_data,
  cmd_key, cmd_report, cmd_status, cmd_repeat, cmd_sweep, cmd_sbatch, cmd_doctor, cmd_bench, cmd_options;

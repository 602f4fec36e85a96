/* trireme: the command line. */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "core/log.h"
#include "core/options.h"
#include "core/status.h"
#include "mpi/real.h"

static const struct {
  const char *name, *help;
  int (*run)(int argc, char **argv);
} commands[] = {
  {"train", "train a model, on one rank or under mpiexec or srun", cmd_train},
  {"plan", "compare the layouts of a job: memory, messages, time", cmd_plan},
  {"eval", "evaluate a checkpoint on a data set", cmd_eval},
  {"predict", "write a prediction for every sample of a data set", cmd_predict},
  {"export", "write a checkpoint's model as safetensors or ONNX", cmd_export},
  {"generate", "continue a text with a language model", cmd_generate},
  {"data", "make, import or describe data sets", cmd_data},
  {"report", "draw curves and tables of one or several runs", cmd_report},
  {"bench", "measure the speed of this machine", cmd_bench},
  {"options", "list every option of a run", cmd_options},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void main_print_help(FILE *stream)
{
  fprintf(stream, "usage: trireme COMMAND [ARGUMENT...]\n\n");
  for (int i = 0; i < COMMANDS; i++)
    fprintf(stream, "  %-8s  %s\n", commands[i].name, commands[i].help);
  fprintf(stream, "\ntrireme COMMAND --help describes each command; man trireme has the whole manual.\n");
}

static int main_run_command(int argc, char **argv)
{
  const char *name = argv[1];
  for (int i = 0; i < COMMANDS; i++)
    if (strcmp(name, commands[i].name) == 0)
      return commands[i].run(argc - 1, argv + 1);
  const char *known[COMMANDS + 1] = {NULL};
  for (int i = 0; i < COMMANDS; i++)
    known[i] = commands[i].name;
  const char *near = trm_nearest_word(name, known);
  return near ? trm_error(TRM_USAGE, "there is no command \"%s\"; did you mean \"%s\"?", name, near)
              : trm_error(TRM_USAGE, "there is no command \"%s\"; trireme --help lists them", name);
}

int main(int argc, char **argv)
{
  if (argc < 2) {
    main_print_help(stderr);
    return TRM_USAGE;
  }
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
    main_print_help(stdout);
    return TRM_OK;
  }
  if (strcmp(argv[1], "--version") == 0) {
    printf("trireme %s\n%s\n", PACKAGE_VERSION, trm_comm_library());
    return TRM_OK;
  }
  const int status = main_run_command(argc, argv);
  if (status == TRM_STOPPED)
    trm_info("%s", trm_error_text());
  else if (status != TRM_OK && trm_log_rank() == 0)
    trm_log_error();
  return status;
}

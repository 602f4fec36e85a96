/* The commands of `trireme`, each in cmd_NAME.c. argv[0] is the command's name. Each returns a trm_status and records its
 * error (core/status.h). */
#pragma once

int cmd_train(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_predict(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_data(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_options(int argc, char **argv);

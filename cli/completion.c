#include "cli/completion.h"

#include <string.h>

#include "cli/command.h"
#include "mpi/strategies.h"

const char *const completion_shells[] = {"none", "bash", "zsh", "fish", NULL};

/* The words that call a command: "data make". */
static const char *completion_path(const struct command *command)
{
  const char *name = command->name;
  if (strncmp(name, "trireme", 7) == 0)
    name += name[7] == ' ' ? 8 : 7;
  return name;
}

static bool completion_takes_options(const struct command *command)
{
  return command->job || command->keeps_options;
}

/* Calls visit for the command and those of its group. */
static void completion_walk(FILE *out, const struct command *command, void visit(FILE *, const struct command *))
{
  visit(out, command);
  for (const struct command *const *member = command->group; member && *member; member++)
    completion_walk(out, *member, visit);
}

/* The i-th word that is a value; NULL: there are no more, or none. */
static const char *completion_word(const struct trm_option *row, int i)
{
  static const char *const truths[] = {"yes", "no", NULL};
  if (row->type == TRM_OPTION_BOOL)
    return truths[i];
  if (row->type == TRM_OPTION_CHOICE)
    return row->choices[i];
  if (strcmp(row->name, "strategy.name") == 0)
    return trm_strategy_table[i] ? trm_strategy_table[i]->name : NULL;
  return NULL;
}

/* -- bash and zsh: three functions of tables, then one of the shell */

static void completion_members(FILE *out, const struct command *command)
{
  if (!command->group)
    return;
  fprintf(out, "    '%s') echo \"", completion_path(command));
  for (const struct command *const *member = command->group; *member; member++)
    fprintf(out, "%s%s", member == command->group ? "" : " ", command_word(*member));
  fputs("\" ;;\n", out);
}

static void completion_flags(FILE *out, const struct command *command)
{
  if (command->group)
    return;
  fprintf(out, "    '%s') echo \"--help", completion_path(command));
  for (const struct trm_option *row = command->flags; row && row->name; row++)
    fprintf(out, " --%s%s", row->name, row->type == TRM_OPTION_BOOL ? "" : "=");
  if (command->threads)
    fputs(" --threads=", out);
  if (completion_takes_options(command))
    fputs(" $_trireme_options", out);
  fputs("\" ;;\n", out);
}

static void completion_values(FILE *out, const struct trm_option *row)
{
  const char *word;
  for (int i = 0; (word = completion_word(row, i)); i++)
    fprintf(out, "%s%s", i ? " " : "", word);
}

static void completion_flag_values(FILE *out, const struct command *command)
{
  for (const struct trm_option *row = command->flags; row && row->name; row++)
    if (row->type == TRM_OPTION_CHOICE) {
      fprintf(out, "    '%s --%s') echo \"", completion_path(command), row->name);
      completion_values(out, row);
      fputs("\" ;;\n", out);
    }
}

static void completion_print_tables(FILE *out)
{
  fputs("_trireme_options=\"", out);
  for (const struct trm_option *row = trm_option_table; row->name; row++)
    fprintf(out, "%s--%s=", row == trm_option_table ? "" : " ", row->name);
  fputs("\"\n_trireme_members() { # COMMAND: those of a group\n  case $1 in\n", out);
  completion_walk(out, &all_commands, completion_members);
  fputs("    *) return 1 ;;\n  esac\n}\n_trireme_flags() { # COMMAND\n  case $1 in\n", out);
  completion_walk(out, &all_commands, completion_flags);
  fputs("  esac\n}\n_trireme_values() { # \"COMMAND --NAME\": fails if the value is a text or a number\n", out);
  fputs("  case $1 in\n", out);
  completion_walk(out, &all_commands, completion_flag_values);
  for (const struct trm_option *row = trm_option_table; row->name; row++)
    if (completion_word(row, 0)) {
      fprintf(out, "    *' --%s') echo \"", row->name);
      completion_values(out, row);
      fputs("\" ;;\n", out);
    }
  fputs("    *) return 1 ;;\n  esac\n}\n", out);
}

/* bash divides words at "=" if COMP_WORDBREAKS has it. */
static const char bash_function[] =
  "_trireme() {\n"
  "  local cur=${COMP_WORDS[COMP_CWORD]} prefix= name= path= words i\n"
  "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
  "    _trireme_members \"$path\" > /dev/null || break\n"
  "    path=${path:+$path }${COMP_WORDS[i]}\n"
  "  done\n"
  "  if [[ $cur == --*=* ]]; then\n"
  "    name=${cur%%=*} prefix=${cur%%=*}= cur=${cur#*=}\n"
  "  elif [[ $cur == \"=\" ]]; then\n"
  "    name=${COMP_WORDS[COMP_CWORD - 1]} cur=\n"
  "  elif [[ $COMP_CWORD -gt 1 && ${COMP_WORDS[COMP_CWORD - 1]} == \"=\" ]]; then\n"
  "    name=${COMP_WORDS[COMP_CWORD - 2]}\n"
  "  fi\n"
  "  if [[ $name ]]; then\n"
  "    if words=$(_trireme_values \"$path $name\"); then\n"
  "      mapfile -t COMPREPLY < <(compgen -P \"$prefix\" -W \"$words\" -- \"$cur\")\n"
  "    else\n"
  "      compopt -o filenames\n"
  "      mapfile -t COMPREPLY < <(compgen -P \"$prefix\" -f -- \"$cur\")\n"
  "    fi\n"
  "  elif words=$(_trireme_members \"$path\"); then\n"
  "    mapfile -t COMPREPLY < <(compgen -W \"$words --help\" -- \"$cur\")\n"
  "  elif [[ $cur == -* ]]; then\n"
  "    mapfile -t COMPREPLY < <(compgen -W \"$(_trireme_flags \"$path\")\" -- \"$cur\")\n"
  "    [[ ${#COMPREPLY[@]} -gt 0 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n"
  "  else\n"
  "    compopt -o filenames\n"
  "    mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
  "  fi\n"
  "}\n"
  "complete -F _trireme trireme\n";

static const char zsh_function[] =
  "_trireme() {\n"
  "  local line= found i\n"
  "  for ((i = 2; i < CURRENT; i++)); do\n"
  "    _trireme_members \"$line\" > /dev/null || break\n"
  "    line=${line:+$line }${words[i]}\n"
  "  done\n"
  "  if [[ $PREFIX == --*=* ]]; then\n"
  "    local name=${PREFIX%%=*}\n"
  "    compset -P '*='\n"
  "    if found=$(_trireme_values \"$line $name\"); then compadd -- ${=found}; else _files; fi\n"
  "  elif found=$(_trireme_members \"$line\"); then\n"
  "    compadd -- ${=found} --help\n"
  "  elif [[ $PREFIX == -* ]]; then\n"
  "    found=$(_trireme_flags \"$line\")\n"
  "    compadd -S '' -- ${(M)${=found}:#*=}\n"
  "    compadd -- ${${=found}:#*=}\n"
  "  else\n"
  "    _files\n"
  "  fi\n"
  "}\n"
  "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _trireme \"$@\"; else compdef _trireme trireme; fi\n";

/* -- fish */

static void completion_fish_text(FILE *out, const char *text)
{
  fputc('\'', out);
  for (; text && *text; text++)
    fprintf(out, *text == '\'' || *text == '\\' ? "\\%c" : "%c", *text);
  fputc('\'', out);
}

/* A condition: the words of the command are on the line. */
static void completion_fish_begin(FILE *out, const struct command *command)
{
  char path[64];
  snprintf(path, sizeof path, "%s", completion_path(command));
  fputs("complete -c trireme -n '", out);
  if (!path[0])
    fputs("__fish_use_subcommand", out);
  for (const char *word = strtok(path, " "); word; word = strtok(NULL, " "))
    fprintf(out, "%s__fish_seen_subcommand_from %s", word == path ? "" : "; and ", word);
  fputc('\'', out);
}

static void completion_fish_option(FILE *out, const struct trm_option *row, bool flag)
{
  fprintf(out, " -l %s", row->name);
  if (row->type == TRM_OPTION_CHOICE || (row->type == TRM_OPTION_BOOL && !flag)) {
    fputs(" -x -a '", out);
    completion_values(out, row);
    fputc('\'', out);
  } else if (row->type != TRM_OPTION_BOOL) {
    fputs(" -r", out);
  }
  if (row->help) {
    fputs(" -d ", out);
    completion_fish_text(out, row->help);
  }
  fputc('\n', out);
}

static void completion_fish(FILE *out, const struct command *command)
{
  for (const struct command *const *member = command->group; member && *member; member++) {
    completion_fish_begin(out, command);
    fprintf(out, " -f -a %s -d ", command_word(*member));
    completion_fish_text(out, (*member)->help);
    fputc('\n', out);
  }
  for (const struct trm_option *row = command->flags; row && row->name; row++) {
    completion_fish_begin(out, command);
    completion_fish_option(out, row, true);
  }
  if (!completion_takes_options(command))
    return;
  completion_fish_begin(out, command);
  fputs(" -a '(__trireme_options)'\n", out);
}

/* Options are the same for all commands that take them: a list with the values of each. */
static void completion_fish_options(FILE *out)
{
  fputs("function __trireme_options\n  string match -q -- '--*' (commandline -ct); or return\n  printf '%s\\n'", out);
  for (const struct trm_option *row = trm_option_table; row->name; row++) {
    const char *word = completion_word(row, 0);
    for (int i = 0; word; word = completion_word(row, ++i))
      fprintf(out, " --%s=%s", row->name, word);
    if (!completion_word(row, 0))
      fprintf(out, " --%s=", row->name);
  }
  fputs("\nend\n", out);
}

void completion_print(FILE *out, enum completion_shell shell)
{
  if (shell == COMPLETION_FISH) {
    completion_fish_options(out);
    completion_walk(out, &all_commands, completion_fish);
    return;
  }
  fputs(shell == COMPLETION_ZSH ? "#compdef trireme\n" : "# Completion of trireme in bash.\n", out);
  completion_print_tables(out);
  fputs(shell == COMPLETION_ZSH ? zsh_function : bash_function, out);
}

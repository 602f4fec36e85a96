/* Completion of the command line by shells: commands, their flags, the options of a run and the words of choices. */
#pragma once

#include <stdio.h>

enum completion_shell { COMPLETION_NONE, COMPLETION_BASH, COMPLETION_ZSH, COMPLETION_FISH };
extern const char *const completion_shells[]; /* their names, then NULL */

/* Writes a script for a shell. */
void completion_print(FILE *out, enum completion_shell shell);

/* Shell scripts that the program writes: for sweeps, and for batch systems. */
#pragma once

/* Appends a word of a shell's command; quoted where that is needed. */
void script_add_word(char **text, const char *word);
/* Returns the path of this program, `trireme` if it is unknown. Owned by the caller. */
char *script_program(void);
/* Writes a script in one step. Errors name the file. */
int script_write(const char *path, const char *text);

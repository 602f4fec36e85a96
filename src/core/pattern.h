/* Patterns: extended regular expressions (POSIX, regcomp) that options choose names by. */
#pragma once

#include <stdbool.h>

struct trm_pattern;

/* Compiles text; option names it in messages. *pattern is NULL for an empty text, which matches nothing. TRM_USAGE: it
 * is no regular expression. Release with trm_pattern_free. */
int trm_pattern_create(struct trm_pattern **pattern, const char *option, const char *text);
void trm_pattern_free(struct trm_pattern *pattern); /* NULL is allowed */

/* Returns true if a part of the name matches. A NULL pattern matches nothing. */
bool trm_pattern_matches(const struct trm_pattern *pattern, const char *name);

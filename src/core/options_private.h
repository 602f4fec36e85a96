/* Functions of options.c for options_show.c. */
#pragma once

#include <stddef.h>

#include "core/options.h"

/* Length of the section in "section.key"; the whole length if there is no dot. */
size_t trm_section_length(const char *name);

/* TRM_USAGE with the nearest known section, if there is no section of this name. */
int trm_section_check(const char *section);

/* "a|b|c" of a choice. Owned by the caller. */
char *trm_option_choices_text(const struct trm_option *row);

/* Text in HTML and SVG. */
#pragma once

#include <stdio.h>

/* Writes text (0-terminated) as content or as a quoted attribute's value: the characters of markup are escaped, bytes
 * that are not UTF-8 and control characters become U+FFFD. */
void markup_text(FILE *out, const char *text);
/* Writes format, in which %s (nothing else is replaced) stands for a text that is written so. */
void markup_print(FILE *out, const char *format, ...);

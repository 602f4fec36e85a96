/* Text for a terminal. Names, labels and messages may quote files, whose control characters would be commands to the
 * terminal: they are shown as \xNN instead, where text is printed. */
#pragma once

#include <stddef.h>

/* Writes text (bytes) to `to`, with a final NUL, and returns its length; what is more than capacity - 1 is omitted.
 * Escaped are the control characters of ASCII, except those in `keep`, and those of Unicode, U+0080 to U+009F, in
 * UTF-8; all other bytes are unchanged. */
size_t trm_printable_copy(char *to, size_t capacity, const char *text, size_t bytes, const char *keep);
/* The same of a whole text, without exceptions. Caller frees with trm_free. */
char *trm_printable(const char *text);

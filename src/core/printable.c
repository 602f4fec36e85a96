#include "core/printable.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"

/* Returns the number of bytes of the control character that text begins with, 0: another character. */
static size_t printable_control_bytes(const unsigned char *text, size_t bytes, const char *keep)
{
  if (text[0] < 0x20 || text[0] == 0x7f)
    return text[0] == '\0' || !strchr(keep, text[0]);
  return text[0] == 0xc2 && bytes > 1 && text[1] >= 0x80 && text[1] < 0xa0 ? 2 : 0;
}

size_t trm_printable_copy(char *to, size_t capacity, const char *text, size_t bytes, const char *keep)
{
  const unsigned char *from = (const unsigned char *)text;
  size_t length = 0, escaped = 0; /* escaped: bytes to escape */
  for (size_t i = 0; i < bytes; i++) {
    if (escaped == 0)
      escaped = printable_control_bytes(from + i, bytes - i, keep);
    const size_t needed = escaped > 0 ? 4 : 1;
    if (length + needed >= capacity)
      break;
    if (escaped > 0) {
      snprintf(to + length, needed + 1, "\\x%02x", from[i]);
      escaped--;
    } else {
      to[length] = text[i];
    }
    length += needed;
  }
  to[length] = '\0';
  return length;
}

char *trm_printable(const char *text)
{
  const size_t bytes = strlen(text), capacity = 4 * bytes + 1;
  char *to = trm_alloc(capacity, "a text to print");
  trm_printable_copy(to, capacity, text, bytes, "");
  return to;
}

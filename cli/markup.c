/* Text in HTML and SVG. */
#include "cli/markup.h"

#include <stdarg.h>
#include <string.h>

/* Bytes of the UTF-8 character at p; 0: the bytes there are none. */
static int markup_character_length(const unsigned char *p)
{
  const int n = *p < 0x80 ? 1 : *p >= 0xc2 && *p < 0xe0 ? 2 : (*p & 0xf0) == 0xe0 ? 3 : *p >= 0xf0 && *p < 0xf5 ? 4 : 0;
  for (int i = 1; i < n; i++)
    if ((p[i] & 0xc0) != 0x80)
      return 0;
  return n;
}

void markup_text(FILE *out, const char *text)
{
  for (const unsigned char *p = (const unsigned char *)text; *p;) {
    const int n = markup_character_length(p);
    if (n == 0 || (*p < 0x20 && *p != '\n' && *p != '\t'))
      fputs("\xef\xbf\xbd", out);
    else if (strchr("&<>\"", *p))
      fputs(*p == '&' ? "&amp;" : *p == '<' ? "&lt;" : *p == '>' ? "&gt;" : "&quot;", out);
    else
      fwrite(p, 1, (size_t)n, out);
    p += n ? n : 1;
  }
}

void markup_print(FILE *out, const char *format, ...)
{
  va_list texts;
  va_start(texts, format);
  for (const char *at; (at = strstr(format, "%s")) != NULL; format = at + 2) {
    fwrite(format, 1, (size_t)(at - format), out);
    markup_text(out, va_arg(texts, const char *));
  }
  va_end(texts);
  fputs(format, out);
}

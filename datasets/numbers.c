/* Decimal numbers. Up to 15 digits (any mantissa up to 2^53) with a power of ten up to 10^22 are one exact conversion
 * and one correctly rounded operation (Clinger 1990, "How to read floating point numbers accurately"); strtod reads the
 * others. So every number is that of strtod. */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "datasets/file_reader.h"

#define EXACT ((uint64_t)1 << 53)
#define MAX_POWER 22

static const double power[MAX_POWER + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                            1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static unsigned numbers_digit(char c)
{
  return (unsigned char)c - (unsigned)'0';
}

/* Appends digits to *mantissa; returns the end of them. */
static const char *numbers_digits(const char *text, uint64_t *mantissa)
{
  uint64_t m = *mantissa;
  for (unsigned digit, next; (digit = numbers_digit(text[0])) < 10; text += 2) { /* pairs: half the multiplications */
    next = numbers_digit(text[1]);
    if (next > 9) {
      m = 10 * m + digit;
      text++;
      break;
    }
    m = 100 * m + (10 * digit + next);
  }
  *mantissa = m;
  return text;
}

/* Parses "e-3" into *exponent; returns `text` if it is none. */
static const char *numbers_exponent(const char *text, int *exponent)
{
  if (*text != 'e' && *text != 'E')
    return text;
  const bool minus = text[1] == '-';
  const char *begin = text + 1 + (minus || text[1] == '+');
  uint64_t value = 0;
  const char *end = numbers_digits(begin, &value);
  if (end == begin || end - begin > 4)
    return text;
  *exponent += minus ? -(int)value : (int)value;
  return end;
}

const char *trm_number_scan(const char *text, double *number)
{
  const bool minus = *text == '-';
  const char *begin = text + (minus || *text == '+');
  uint64_t mantissa = 0;
  int exponent = 0;
  const char *end = numbers_digits(begin, &mantissa);
  ptrdiff_t digits = end - begin;
  if (*end == '.') {
    const char *fraction = end + 1;
    end = numbers_digits(fraction, &mantissa);
    exponent = -(int)(end - fraction < 1000 ? end - fraction : 1000);
    digits += end - fraction;
  }
  if (digits > 0)
    end = numbers_exponent(end, &exponent);
  const bool exact = digits > 0 && digits <= 19 && mantissa <= EXACT && exponent >= -MAX_POWER &&
                     exponent <= MAX_POWER && (unsigned char)(*end | 32) - (unsigned)'a' > 25; /* 0x10, 1e999999 */
  if (exact) {
    const double value = exponent < 0 ? (double)mantissa / power[-exponent] : (double)mantissa * power[exponent];
    *number = minus ? -value : value;
    return end;
  }
  char *stop;
  if (!*text || *text == ' ' || (*text >= '\t' && *text <= '\r')) /* which strtod skips */
    return text;
  *number = strtod(text, &stop);
  return stop;
}

/* One number, NaN and infinities included. */
static bool numbers_parse(const char *text, double *number)
{
  const char *end = trm_number_scan(text, number);
  return end != text && !*end;
}

bool trm_parse_number(const char *text, double *number)
{
  return numbers_parse(text, number) && isfinite(*number);
}

const char *trm_parse_float(const char *text, float *value)
{
  double number;
  if (!numbers_parse(text, &number))
    return "is not a number";
  if (!(fabs(number) <= (double)FLT_MAX))
    return "is not finite in single precision";
  *value = (float)number;
  return NULL;
}

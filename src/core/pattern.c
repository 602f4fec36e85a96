#include "core/pattern.h"

#include <regex.h>
#include <stddef.h>

#include "core/memory.h"
#include "core/status.h"

struct trm_pattern {
  regex_t code;
};

int trm_pattern_create(struct trm_pattern **pattern, const char *option, const char *text)
{
  *pattern = NULL;
  if (text[0] == '\0')
    return TRM_OK;
  struct trm_pattern *made = trm_alloc(sizeof *made, "a pattern");
  const int failure = regcomp(&made->code, text, REG_EXTENDED | REG_NOSUB);
  if (failure) {
    char reason[128];
    regerror(failure, &made->code, reason, sizeof reason);
    trm_free(made);
    return trm_error(TRM_USAGE, "%s: '%s' is no regular expression: %s", option, text, reason);
  }
  *pattern = made;
  return TRM_OK;
}

void trm_pattern_free(struct trm_pattern *pattern)
{
  if (pattern)
    regfree(&pattern->code);
  trm_free(pattern);
}

bool trm_pattern_matches(const struct trm_pattern *pattern, const char *name)
{
  return pattern && regexec(&pattern->code, name, 0, NULL, 0) == 0;
}

/* The output of trireme doctor. */
#include <stdio.h>
#include <string.h>

#include "cli/doctor.h"
#include "core/document.h"
#include "core/memory.h"

/* True if a list has the host. */
static bool report_has(const char *hosts, const char *host)
{
  const size_t length = strlen(host);
  for (const char *at = hosts; (at = strstr(at, host)); at += length)
    if ((at == hosts || at[-1] == ' ') && (at[length] == ',' || !at[length]))
      return true;
  return false;
}

void doctor_add(struct doctor_report *report, const char *host, const char *text)
{
  int i = 0;
  while (i < report->count && strcmp(report->finding[i].text, text) != 0)
    i++;
  if (i == (int)(sizeof report->finding / sizeof *report->finding))
    return;
  struct doctor_finding *f = &report->finding[i];
  if (i == report->count) {
    *f = (struct doctor_finding){trm_strdup(text), trm_strdup(host)};
    report->count++;
  } else if (!report_has(f->hosts, host)) {
    trm_append(&f->hosts, ", %s", host);
  }
}

static void report_line(const struct doctor_report *report, const char *check, bool problem, const char *text,
                        const char *hosts)
{
  if (report->json) {
    struct trm_json json;
    trm_json_open(&json, stdout);
    trm_json_object(&json, NULL);
    trm_json_text(&json, "check", check);
    trm_json_text(&json, "status", problem ? "problem" : "ok");
    trm_json_text(&json, "text", text);
    if (problem)
      trm_json_text(&json, "hosts", hosts);
    trm_json_end(&json);
  } else {
    printf("%-7s  %-13s  %s%s%s%s\n", problem ? "problem" : "ok", check, text, problem ? " [" : "",
           problem ? hosts : "", problem ? "]" : "");
  }
  fflush(stdout);
}

void doctor_print(struct doctor_report *report, const char *check, const char *well)
{
  if (report->count == 0 && well)
    report_line(report, check, false, well, "");
  for (int i = 0; i < report->count; i++) {
    report_line(report, check, true, report->finding[i].text, report->finding[i].hosts);
    trm_free(report->finding[i].text);
    trm_free(report->finding[i].hosts);
  }
  report->problems += report->count;
  report->count = 0;
}

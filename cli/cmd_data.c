/* trireme data */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/commands.h"
#include "cli/flags.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "datasets/datasets.h"
#include "mpi/real.h"

static const char usage_head[] =
  "usage: trireme data make digits --out=FILE [--seed=N] [--train=N] [--test=N] [--compress=N] [--overwrite]\n"
  "       trireme data import FORMAT PATH... --out=FILE [FLAG...]\n"
  "       trireme data info FILE [--check] [--json]\n"
  "\n"
  "make draws a data set, the same bytes for the same seed on every machine.\n"
  "  --seed=N           seed of the random numbers (1)\n"
  "  --train=N          samples of the train split (60000)\n"
  "  --test=N           samples of the test split (10000)\n"
  "\n"
  "import converts files, plain or gzip, to one HDF5 file with its splits. FORMAT is one of\n";

static const char usage_tail[] =
  "  Of a single file, a part of the rows can become the test split. Labels become classes in ascending order.\n"
  "  --test-part=X      libsvm, csv, text: that part of a single file, 0 to 1 (text: 0.1, else 0: no test split)\n"
  "  --split=RULE       libsvm, csv: random rows, by class in proportion (default), or the last ones; text: last\n"
  "  --seed=N           libsvm, csv: seed of the random rows (1)\n"
  "  --target=WHAT      libsvm, csv: \"class\" (default), or \"value\" for regression\n"
  "  --label=COLUMN     csv: name or number (from 1) of the label's column (default: the last one)\n"
  "  --normalize        libsvm: scale each row to unit Euclidean length\n"
  "  --tokens=WHAT      text: characters (default), bytes, or bpe, byte pairs as in GPT-2\n"
  "  --vocab=N          bpe: learn N tokens from the training part of the text\n"
  "  --vocab-file=FILE  bpe: read the tokens from vocab.json\n"
  "  --merges=FILE      bpe: and their merges from merges.txt\n"
  "  --names=A,B,...    names of the classes, in order (default: digits, or the labels as written)\n"
  "\n"
  "make and import:\n"
  "  --out=FILE         the file to write; it is complete or absent\n"
  "  --overwrite        replace FILE if it exists\n"
  "  --compress=N       0 (fastest to read; default of make) to 9 (smallest); import: 4\n"
  "\n"
  "info describes a data set or a checkpoint.\n"
  "  --check            read everything and verify checksums and digest\n"
  "  --json             print one JSON object\n";

/* The text of --help; the caller frees it with trm_free. */
static char *cmd_data_usage_text(void)
{
  char *text = trm_strdup(usage_head);
  for (const struct trm_importer *importer = trm_importer_table; importer->name; importer++) {
    if (!strcmp(importer->name, "digits"))
      continue;
    char *longer = trm_format("%s  %-17s  %s\n", text, importer->name, importer->help);
    trm_free(text);
    text = longer;
  }
  char *full = trm_format("%s%s", text, usage_tail);
  trm_free(text);
  return full;
}

static int cmd_data_find_importer(const char *what, const char *name, const struct trm_importer **importer)
{
  const bool make = !strcmp(what, "make");
  const char *known[32];
  size_t n = 0;
  for (*importer = trm_importer_table; (*importer)->name; ++*importer) {
    if (make != !strcmp((*importer)->name, "digits"))
      continue;
    if (!strcmp((*importer)->name, name))
      return TRM_OK;
    if (n < sizeof known / sizeof *known - 1)
      known[n++] = (*importer)->name;
  }
  known[n] = NULL;
  const char *near = trm_nearest_word(name, known);
  if (near)
    return trm_error(TRM_USAGE, "data %s: there is no \"%s\"; did you mean \"%s\"?", what, name, near);
  return trm_error(TRM_USAGE, "data %s: there is no \"%s\"; trireme data --help lists them", what, name);
}

/* Returns true if `word` is in `list`, separated by spaces. */
static bool cmd_data_word_listed(const char *list, const char *word)
{
  const size_t length = strlen(word);
  for (const char *at = strstr(list, word); at; at = strstr(at + 1, word))
    if ((at == list || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
      return true;
  return false;
}

/* The request of make or import, and the flags that have other types in it. */
struct import_flags {
  char command[64]; /* "data import csv" */
  struct trm_import_request request;
  int64_t compress, seed, train, test, vocabulary;
};

/* Reads the flags that the format has, and moves the paths to argv[0..request.count). */
static int cmd_data_read_flags(struct import_flags *f, const struct trm_importer *importer, const char *usage, int argc,
                               char **argv, bool *help_shown)
{
  struct trm_import_request *r = &f->request;
  const struct {
    const char *formats;
    struct flag flag;
  } all[] = {
    {"digits mnist cifar10 libsvm csv text", {"out", FLAG_TEXT, &r->out, 0, 0}},
    {"digits mnist cifar10 libsvm csv text", {"overwrite", FLAG_BOOL, &r->overwrite, 0, 0}},
    {"digits mnist cifar10 libsvm csv text", {"compress", FLAG_INTEGER, &f->compress, 0, 9}},
    {"digits libsvm csv", {"seed", FLAG_INTEGER, &f->seed, 0, INT64_MAX}},
    {"digits", {"train", FLAG_INTEGER, &f->train, 1, INT32_MAX}},
    {"digits", {"test", FLAG_INTEGER, &f->test, 1, INT32_MAX}},
    {"libsvm csv text", {"test-part", FLAG_REAL, &r->test_part, 0, 1}},
    {"libsvm csv text", {"split", FLAG_TEXT, &r->split, 0, 0}},
    {"text", {"tokens", FLAG_TEXT, &r->tokens, 0, 0}},
    {"text", {"vocab", FLAG_INTEGER, &f->vocabulary, 257, 1000000}},
    {"text", {"vocab-file", FLAG_TEXT, &r->vocabulary_file, 0, 0}},
    {"text", {"merges", FLAG_TEXT, &r->merges, 0, 0}},
    {"libsvm csv", {"target", FLAG_TEXT, &r->target, 0, 0}},
    {"csv", {"label", FLAG_TEXT, &r->label, 0, 0}},
    {"libsvm", {"normalize", FLAG_BOOL, &r->normalize, 0, 0}},
    {"digits mnist cifar10 libsvm csv", {"names", FLAG_TEXT, &r->names, 0, 0}},
  };
  struct flag table[sizeof all / sizeof *all + 1];
  size_t n = 0;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (cmd_data_word_listed(all[i].formats, importer->name))
      table[n++] = all[i].flag;
  table[n].name = NULL;
  const struct flags flags = {.command = f->command, .usage = usage, .table = table};
  return flags_read(&flags, argc, argv, &f->request.count, help_shown);
}

static int cmd_data_check_request(const struct trm_import_request *request, const char *command, bool make)
{
  if (make && request->count)
    return trm_error(TRM_USAGE, "%s: takes no paths, but got %s", command, request->paths[0]);
  if (!make && !request->count)
    return trm_error(TRM_USAGE, "%s: no path to import", command);
  if (!request->out)
    return trm_error(TRM_USAGE, "%s: --out: no file named; --out=FILE", command);
  if (request->test_part >= 1)
    return trm_error(TRM_USAGE, "%s: --test-part=%g: leaves no training samples; a number below 1", command,
                     request->test_part);
  return trm_launch_require_single(command);
}

static int cmd_data_import(const struct trm_importer *importer, const struct trm_import_request *request)
{
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  TRM_CHECK(importer->run(request));
  clock_gettime(CLOCK_MONOTONIC, &end);
  trm_info("%s written in %.1f s", request->out,
           (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec));
  return trm_data_info(request->out, false, false);
}

/* what: "make" or "import" */
static int cmd_data_make_or_import(const char *what, int argc, char **argv, const char *usage)
{
  const bool make = !strcmp(what, "make");
  if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
    fputs(usage, stdout);
    return TRM_OK;
  }
  if (argc < 2 || argv[1][0] == '-')
    return trm_error(TRM_USAGE, "data %s: no format named; usage: trireme data %s %s --out=FILE", what, what,
                     make ? "digits" : "FORMAT PATH...");
  const struct trm_importer *importer;
  TRM_CHECK(cmd_data_find_importer(what, argv[1], &importer));
  /* rendered digits are noisy: compression would save a fifth and slow down reading */
  struct import_flags f = {.request = {.test_part = -1, .target = "class"}, .compress = make ? 0 : 4, .seed = 1};
  snprintf(f.command, sizeof f.command, "data %s %s", what, importer->name);
  bool help_shown;
  TRM_CHECK(cmd_data_read_flags(&f, importer, usage, argc - 1, argv + 1, &help_shown));
  if (help_shown)
    return TRM_OK;
  f.request.paths = (const char *const *)(argv + 1);
  f.request.compress = (int)f.compress;
  f.request.seed = (uint64_t)f.seed;
  f.request.train = (uint64_t)f.train;
  f.request.test = (uint64_t)f.test;
  f.request.vocabulary = (size_t)f.vocabulary;
  TRM_CHECK(cmd_data_check_request(&f.request, f.command, make));
  return cmd_data_import(importer, &f.request);
}

static int cmd_data_info(int argc, char **argv, const char *usage)
{
  bool check = false, json = false, help_shown;
  const struct flag table[] = {
    {"check", FLAG_BOOL, &check, 0, 0}, {"json", FLAG_BOOL, &json, 0, 0}, {NULL, FLAG_BOOL, NULL, 0, 0}};
  const struct flags flags = {.command = "data info", .usage = usage, .table = table};
  int nargs;
  TRM_CHECK(flags_read(&flags, argc, argv, &nargs, &help_shown));
  if (help_shown)
    return TRM_OK;
  if (nargs != 1)
    return trm_error(TRM_USAGE, "data info: takes one file, but got %d", nargs);
  return trm_data_info(argv[0], check, json);
}

static int cmd_data_run(int argc, char **argv, const char *usage)
{
  if (argc < 2)
    return trm_error(TRM_USAGE, "data: no action named: make, import or info; trireme data --help describes them");
  if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
    fputs(usage, stdout);
    return TRM_OK;
  }
  if (!strcmp(argv[1], "make") || !strcmp(argv[1], "import"))
    return cmd_data_make_or_import(argv[1], argc - 1, argv + 1, usage);
  if (!strcmp(argv[1], "info"))
    return cmd_data_info(argc - 1, argv + 1, usage);
  static const char *const known[] = {"make", "import", "info", NULL};
  const char *near = trm_nearest_word(argv[1], known);
  return near ? trm_error(TRM_USAGE, "data: there is no \"%s\"; did you mean \"%s\"?", argv[1], near)
              : trm_error(TRM_USAGE, "data: there is no \"%s\"; there are make, import and info", argv[1]);
}

int cmd_data(int argc, char **argv)
{
  char *usage = cmd_data_usage_text();
  const int status = cmd_data_run(argc, argv, usage);
  trm_free(usage);
  return status;
}

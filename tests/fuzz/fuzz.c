/* The program of the fuzzers: environment variable FUZZ_READER selects the reader. tests/fuzz.sh runs it. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/log.h"
#include "core/status.h"
#include "datasets/datasets.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct {
  const char *name;
  fuzz_reader *read;
} readers[] = {
  {"dataset", fuzz_dataset},         {"checkpoint", fuzz_checkpoint}, {"encrypted", fuzz_encrypted},
  {"safetensors", fuzz_safetensors}, {"rows", fuzz_rows},             {"text", fuzz_text},
  {"settings", fuzz_settings},       {"model", fuzz_model},           {"run", fuzz_run},
};
enum { READERS = sizeof readers / sizeof *readers };

static fuzz_reader *reader;
static const char *folder;

const char *fuzz_path(const char *name)
{
  static char path[8][512];
  static int next;
  next = (next + 1) % 8;
  snprintf(path[next], sizeof path[next], "%s/%s", folder, name);
  return path[next];
}

const char *fuzz_file(const char *name, struct fuzz_input content)
{
  const char *path = fuzz_path(name);
  FILE *file = fopen(path, "wb");
  fuzz_require(file && fwrite(content.bytes, 1, content.count, file) == content.count && fclose(file) == 0,
               "the fuzzer can write its files");
  return path;
}

struct fuzz_input fuzz_content(const char *name)
{
  struct stat info;
  FILE *file = fopen(fuzz_path(name), "rb");
  fuzz_require(file && fstat(fileno(file), &info) == 0, "the fuzzer can read its files");
  const size_t count = (size_t)info.st_size;
  char *bytes = malloc(count + 1);
  fuzz_require(bytes && fread(bytes, 1, count, file) == count, "the fuzzer can read its files");
  fclose(file);
  return (struct fuzz_input){bytes, count};
}

struct fuzz_input fuzz_part(struct fuzz_input *input)
{
  static const char mark[] = "\n====\n";
  struct fuzz_input part = *input;
  const char *end = memmem(input->bytes, input->count, mark, sizeof mark - 1);
  if (end)
    part.count = (size_t)(end - input->bytes) + 1;
  const size_t taken = part.count + (end ? sizeof mark - 2 : 0);
  *input = (struct fuzz_input){input->bytes + taken, input->count - taken};
  return part;
}

char fuzz_variant(struct fuzz_input *input)
{
  if (input->count == 0)
    return '\0';
  input->count--;
  return *input->bytes++;
}

char *fuzz_string(struct fuzz_input part)
{
  return strndup(part.bytes, part.count);
}

void fuzz_require(int kept, const char *promise)
{
  if (kept)
    return;
  fprintf(stderr, "broken: %s; the last error: %s\n", promise, trm_error_text());
  abort();
}

/* A reader that ends the process breaks its promise. */
static void fuzz_on_abort(int status)
{
  fuzz_require(0, status ? "readers return their errors" : "readers return");
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
  (void)argc, (void)argv;
  const char *name = getenv("FUZZ_READER");
  folder = getenv("FUZZ_FOLDER");
  for (int i = 0; name && i < READERS; i++)
    reader = strcmp(readers[i].name, name) == 0 ? readers[i].read : reader;
  if (!reader || !folder) {
    fprintf(stderr, "FUZZ_FOLDER is a folder for files, FUZZ_READER one of:");
    for (int i = 0; i < READERS; i++)
      fprintf(stderr, " %s", readers[i].name);
    fprintf(stderr, "\n");
    exit(2);
  }
  trm_set_abort(fuzz_on_abort);
  trm_log_set_quiet(true);
  trm_hdf5_init();
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  reader((struct fuzz_input){(const char *)data, size});
  return 0;
}

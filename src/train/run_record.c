/* record.json of a run directory, and the same text in each checkpoint: with config.yaml, what is needed to repeat the
 * run (`trireme repeat`): the program, its libraries and compiler, ranks, processor, and the files that the options
 * name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/sha256.h"
#include "core/status.h"
#include "train/checkpoint_files.h"
#include "train/revision.h"
#include "train/trainer.h"

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif

/* Sets text to the name of the processor, "" if the system does not tell it. */
static void run_record_find_processor(char text[128])
{
  char line[256];
  FILE *in = fopen("/proc/cpuinfo", "r");
  text[0] = '\0';
  while (in && text[0] == '\0' && fgets(line, sizeof line, in)) {
    const char *name = strncmp(line, "model name", 10) == 0 ? strstr(line, ": ") : NULL;
    if (name)
      snprintf(text, 128, "%.*s", (int)strcspn(name + 2, "\n"), name + 2);
  }
  if (in)
    fclose(in);
}

static void run_record_add_data(struct trm_json *json, const struct trm_splits *splits)
{
  const struct trm_dataset *const all[] = {splits->train, splits->validation, splits->test};
  trm_json_object(json, "data");
  for (int i = 0; i < 3; i++) {
    if (!all[i])
      continue;
    trm_json_object(json, trm_split_name((enum trm_split)i));
    trm_json_text(json, "file", all[i]->path);
    trm_json_text(json, "digest", all[i]->digest);
    trm_json_end(json);
  }
  trm_json_end(json);
}

/* Adds the other files that the run has read. A run that is resumed may have lost one: null. */
static void run_record_add_files(struct trm_json *json, const struct trm_options *o)
{
  const struct {
    const char *option, *path;
  } file[] = {{"model.init", o->model_init},
              {"simulate.machine", o->simulate.machine},
              {"parallel.collectives", o->parallel.collectives}};
  trm_json_object(json, "files");
  for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
    char hex[65];
    if (file[i].path[0] == '\0')
      continue;
    char *path; /* of a run directory its checkpoint */
    const int found = trm_checkpoint_find(file[i].path, &path);
    trm_json_object(json, file[i].option);
    trm_json_text(json, "file", path ? path : file[i].path);
    trm_json_text(json, "sha256", found == TRM_OK && trm_sha256_file(path, hex) == TRM_OK ? hex : NULL);
    trm_json_end(json);
    trm_free(path);
  }
  trm_json_end(json);
}

/* Adds what the bits may depend on besides configuration and data. */
static void run_record_add_software(struct trm_json *json, const struct trm_modules *modules)
{
  const struct trm_blas_ops *blas = modules->device->blas;
  char processor[128];
  run_record_find_processor(processor);
  trm_json_text(json, "processor", processor);
  trm_json_text(json, "device", modules->device->ops->name);
  trm_json_text(json, "blas", blas ? blas->name : NULL);
  trm_json_text(json, "blas_library", blas ? blas->detail() : NULL);
  trm_json_text(json, "blas_core", blas && blas->core ? blas->core() : NULL);
  for (const struct trm_library *library = modules->libraries; library && library->name; library++)
    trm_json_text(json, library->name, library->version);
  trm_json_text(json, "compiler", COMPILER);
  trm_json_text(json, "flags", TRM_COMPILER_FLAGS);
}

/* config: the SHA-256 of config.yaml. */
static void run_record_add_all(FILE *stream, const struct trainer *t, const struct trm_options *options,
                               const char *config)
{
  char folder[4096];
  struct trm_json json;
  trm_json_open(&json, stream);
  trm_json_object(&json, NULL);
  trm_json_text(&json, "version", PACKAGE_VERSION);
  trm_json_text(&json, "revision", TRM_REVISION);
  trm_json_text(&json, "config_sha256", config);
  trm_json_text(&json, "folder", getcwd(folder, sizeof folder) ? folder : NULL);
  trm_json_integer(&json, "seed", options->run.seed);
  trm_json_integer(&json, "ranks", t->comm->size);
  trm_json_integer(&json, "nodes", t->nodes);
  trm_json_integer(&json, "threads", t->modules->device->threads);
  trm_json_integer(&json, "resumed_at", (int64_t)t->resumed_at);
  trm_json_text(&json, "shares", t->options->parallel.shares); /* config.yaml has those that were measured */
  run_record_add_data(&json, &t->splits);
  run_record_add_files(&json, options);
  trm_json_object(&json, "software");
  run_record_add_software(&json, t->modules);
  trm_json_end(&json);
  trainer_add_places(&json, t);
  trm_json_end(&json);
}

int trainer_write_record(struct trainer *t, const struct trm_options *options)
{
  char config[65];
  size_t bytes;
  TRM_CHECK(trm_run_dir_hash_config(&t->run_dir, options, config));
  free(t->record);
  t->record = NULL;
  FILE *stream = open_memstream(&t->record, &bytes);
  if (stream)
    run_record_add_all(stream, t, options, config);
  if (!stream || fclose(stream) != 0)
    return trm_error(TRM_FAILED, "record.json: no memory for its text");
  char *path = trm_format("%s/record.json", t->run_dir.path);
  struct atomic_file file;
  int status = atomic_file_open(&file, path);
  if (status == TRM_OK) {
    fwrite(t->record, 1, bytes, file.stream);
    status = atomic_file_close(&file, !ferror(file.stream));
  }
  trm_free(path);
  return status;
}

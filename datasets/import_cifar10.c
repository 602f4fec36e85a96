/* CIFAR-10 (Krizhevsky 2009), binary version: records of one label byte and 3 x 32 x 32 pixel bytes, planes of red,
 * green and blue, each by rows. */
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "datasets/import.h"
#include "datasets/file_reader.h"

#define CLASSES TRM_IMAGE_CLASSES
#define PIXELS 3072
#define RECORD (1 + PIXELS)
#define CHUNK 1000 /* records at once */
#define BATCHES 5

/* Class names if the folder has no file of them. */
static const char *const default_names[CLASSES] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                                   "dog",      "frog",       "horse", "ship", "truck"};

static int cifar10_names_read(const char *path, char *names[CLASSES])
{
  struct trm_reader *reader;
  TRM_CHECK(trm_reader_open(&reader, path));
  int count = 0, status;
  char *line;
  size_t length;
  while ((status = trm_reader_line(reader, &line, &length)) == TRM_OK && line) {
    if (!length)
      continue;
    if (count == CLASSES) {
      status = trm_reader_error(reader, "more than %d class names", CLASSES);
      break;
    }
    names[count++] = trm_strdup(line);
  }
  if (status == TRM_OK && count < CLASSES)
    status = trm_error(TRM_FAILED, "%s: %d class names in place of %d", path, count, CLASSES);
  trm_reader_close(reader);
  return status;
}

static int cifar10_file_copy(struct trm_data_writer *writer, const char *path, uint8_t *records, uint8_t *image)
{
  struct trm_reader *reader;
  TRM_CHECK(trm_reader_open(&reader, path));
  int status = TRM_OK;
  size_t done = 0;
  for (size_t got = CHUNK * RECORD; got == CHUNK * RECORD && status == TRM_OK;) {
    int32_t target[CHUNK];
    status = trm_reader_read(reader, records, CHUNK * RECORD, &got);
    if (status == TRM_OK && (got % RECORD || (!got && !done)))
      status = trm_error(TRM_FAILED, "%s: is not a CIFAR-10 batch: %zu bytes, which are no records of %d bytes", path,
                         done * RECORD + got, RECORD);
    const size_t count = got / RECORD;
    for (size_t i = 0; i < count && status == TRM_OK; i++) {
      const uint8_t *record = records + i * RECORD;
      if (record[0] >= CLASSES)
        status = trm_error(TRM_FAILED, "%s: label %u of record %zu is not within 0..%d", path, record[0], done + i,
                           CLASSES - 1);
      target[i] = record[0];
      memcpy(image + i * PIXELS, record + 1, PIXELS);
    }
    const struct trm_data_rows rows = {.rows = count, .bytes = image, .target_class = target};
    if (status == TRM_OK)
      status = trm_data_writer_append(writer, &rows);
    done += count;
  }
  trm_reader_close(reader);
  return status;
}

/* All but the last file are train batches; the last one is the test split (a single file has no test split). */
static int cifar10_files_import(const struct trm_import_request *request, const char *const *paths, int count,
                                const char *const *names)
{
  char *source = trm_format("CIFAR-10 binary files, first %s", paths[0]);
  const struct trm_shape shape = {.dims = 3, .size = {3, 32, 32}};
  struct trm_data_writer *writer;
  int status = trm_import_begin_images(request, shape, names, source, &writer);
  trm_free(source);
  TRM_CHECK(status);
  uint8_t *records = trm_alloc(CHUNK * RECORD, "CIFAR-10 records");
  uint8_t *image = trm_alloc(CHUNK * PIXELS, "CIFAR-10 images");
  for (int i = 0; i < count && status == TRM_OK; i++) {
    if (i == 0 || i == count - 1)
      status = trm_data_writer_split(writer, i == 0 ? "train" : "test");
    if (status == TRM_OK)
      status = cifar10_file_copy(writer, paths[i], records, image);
  }
  trm_free(records);
  trm_free(image);
  return trm_import_end(writer, status, 0);
}

static int cifar10_folder_import(const struct trm_import_request *request)
{
  const char *folder = request->paths[0];
  char *path[BATCHES + 1] = {NULL}, *names[CLASSES] = {NULL};
  int status = TRM_OK;
  for (int i = 0; i <= BATCHES && status == TRM_OK; i++) {
    char *name = i < BATCHES ? trm_format("data_batch_%d.bin", i + 1) : trm_strdup("test_batch.bin");
    path[i] = trm_import_find(folder, name);
    status = path[i] ? TRM_OK : TRM_FAILED;
    trm_free(name);
  }
  char *meta = trm_import_find(folder, "batches.meta.txt");
  if (status == TRM_OK && meta)
    status = cifar10_names_read(meta, names);
  if (status == TRM_OK)
    status = cifar10_files_import(request, (const char *const *)path, BATCHES + 1,
                                  meta ? (const char *const *)names : default_names);
  trm_free(meta);
  for (int i = 0; i <= BATCHES; i++)
    trm_free(path[i]);
  for (int i = 0; i < CLASSES; i++)
    trm_free(names[i]);
  return status;
}

int trm_import_cifar10(const struct trm_import_request *request)
{
  if (request->count == 1 && trm_is_folder(request->paths[0]))
    return cifar10_folder_import(request);
  return cifar10_files_import(request, request->paths, request->count, default_names);
}

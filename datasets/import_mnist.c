/* Images in IDX files, the format of MNIST (LeCun, Cortes, Burges) and of its successors: a big-endian magic number
 * (0, 0, 8 = unsigned bytes, number of dimensions), the sizes, the bytes. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"
#include "datasets/import.h"
#include "datasets/file_reader.h"

#define CHUNK 4096 /* images at once */
#define CLASSES TRM_IMAGE_CLASSES
#define IMAGES_MAGIC 0x803u
#define LABELS_MAGIC 0x801u

struct idx {
  struct trm_reader *reader;
  uint32_t size[3];
};

static uint32_t mnist_big_endian(const uint8_t *bytes)
{
  return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Opens a file of images (3 sizes) or of labels (1 size) and reads its header. */
static int mnist_idx_open(struct idx *idx, const char *path, uint32_t expected)
{
  const bool images = expected == IMAGES_MAGIC;
  const size_t dims = images ? 3 : 1;
  uint8_t head[16];
  size_t got;
  TRM_CHECK(trm_reader_open(&idx->reader, path));
  TRM_CHECK(trm_reader_read(idx->reader, head, 4 + 4 * dims, &got));
  const uint32_t magic = got >= 4 ? mnist_big_endian(head) : 0;
  if (got >= 4 && magic != expected)
    return trm_error(TRM_FAILED, "%s: is not an IDX file of %s: magic number 0x%08x in place of 0x%08x%s", path,
                     images ? "images" : "labels", magic, expected,
                     magic == IMAGES_MAGIC || magic == LABELS_MAGIC ? " (the order is IMAGES LABELS)" : "");
  if (got < 4 + 4 * dims)
    return trm_error(TRM_FAILED, "%s: the IDX file is cut short: %zu bytes, within its head", path, got);
  for (size_t i = 0; i < dims; i++)
    idx->size[i] = mnist_big_endian(head + 4 + 4 * i);
  /* before memory is taken for an image */
  if (images && (uint64_t)idx->size[1] * idx->size[2] > trm_reader_max_bytes(idx->reader))
    return trm_error(TRM_FAILED, "%s: the IDX file is cut short: it promises images of %u x %u", path, idx->size[1],
                     idx->size[2]);
  return TRM_OK;
}

/* Reads `count` items of `bytes` bytes each; `done` items were read before. */
static int mnist_idx_read(struct idx *idx, uint8_t *to, uint32_t done, size_t count, size_t bytes)
{
  size_t got;
  TRM_CHECK(trm_reader_read(idx->reader, to, count * bytes, &got));
  if (got == count * bytes)
    return TRM_OK;
  return trm_error(TRM_FAILED, "%s: the IDX file is cut short: it promises %u items and holds %zu",
                   trm_reader_path(idx->reader), idx->size[0], done + got / bytes);
}

static int mnist_idx_end(struct idx *idx)
{
  uint8_t more;
  size_t got;
  TRM_CHECK(trm_reader_read(idx->reader, &more, 1, &got));
  return got ? trm_error(TRM_FAILED, "%s: there are bytes after the last of %u items", trm_reader_path(idx->reader),
                         idx->size[0])
             : TRM_OK;
}

/* Copies one split. Opens both files, which the caller closes; the first split opens the writer. */
static int mnist_split_copy(const struct trm_import_request *request, const char *const paths[2], struct idx idx[2],
                            struct trm_data_writer **writer, uint32_t side[2])
{
  const bool is_first = !*writer;
  TRM_CHECK(mnist_idx_open(&idx[0], paths[0], IMAGES_MAGIC));
  TRM_CHECK(mnist_idx_open(&idx[1], paths[1], LABELS_MAGIC));
  const uint32_t rows = idx[0].size[0], *size = idx[0].size;
  if (rows != idx[1].size[0])
    return trm_error(TRM_FAILED, "%s has %u images, %s has %u labels", paths[0], rows, paths[1], idx[1].size[0]);
  if (!rows || !size[1] || !size[2] || size[1] > 16384 || size[2] > 16384)
    return trm_error(TRM_FAILED, "%s: %u images of %u x %u pixels: nothing to import", paths[0], rows, size[1],
                     size[2]);
  if (!is_first && (side[0] != size[1] || side[1] != size[2]))
    return trm_error(TRM_FAILED, "%s: images of %u x %u pixels, the train images have %u x %u", paths[0], size[1],
                     size[2], side[0], side[1]);
  if (is_first) {
    side[0] = size[1];
    side[1] = size[2];
    char *source = trm_format("IDX files, train images %s", paths[0]);
    const struct trm_shape shape = {.dims = 3, .size = {1, side[0], side[1]}};
    const int status = trm_import_begin_images(request, shape, trm_digit_names, source, writer);
    trm_free(source);
    TRM_CHECK(status);
  }
  TRM_CHECK(trm_data_writer_split(*writer, is_first ? "train" : "test"));
  const size_t pixels = (size_t)size[1] * size[2];
  const size_t chunk = pixels * CHUNK > (size_t)1 << 26 ? 1 : CHUNK; /* large images one by one */
  uint8_t *image = trm_alloc(chunk * pixels, "IDX images"), label[CHUNK];
  int32_t target[CHUNK];
  int status = TRM_OK;
  for (uint32_t done = 0; done < rows && status == TRM_OK;) {
    const size_t count = rows - done < chunk ? rows - done : chunk;
    status = mnist_idx_read(&idx[0], image, done, count, pixels);
    if (status == TRM_OK)
      status = mnist_idx_read(&idx[1], label, done, count, 1);
    for (size_t i = 0; i < count && status == TRM_OK; i++) {
      target[i] = label[i];
      if (label[i] >= CLASSES)
        status = trm_error(TRM_FAILED, "%s: label %u of item %zu is not within 0..%d", paths[1], label[i], done + i,
                           CLASSES - 1);
    }
    const struct trm_data_rows batch = {.rows = count, .bytes = image, .target_class = target};
    if (status == TRM_OK)
      status = trm_data_writer_append(*writer, &batch);
    done += (uint32_t)count;
  }
  trm_free(image);
  TRM_CHECK(status);
  TRM_CHECK(mnist_idx_end(&idx[0]));
  return mnist_idx_end(&idx[1]);
}

static int mnist_files_import(const struct trm_import_request *request, const char *const *paths, int count)
{
  struct trm_data_writer *writer = NULL;
  uint32_t side[2];
  int status = TRM_OK;
  for (int i = 0; i < count && status == TRM_OK; i += 2) {
    struct idx idx[2] = {{.reader = NULL}, {.reader = NULL}};
    status = mnist_split_copy(request, paths + i, idx, &writer, side);
    trm_reader_close(idx[0].reader);
    trm_reader_close(idx[1].reader);
  }
  return trm_import_end(writer, status, 0);
}

int trm_import_mnist(const struct trm_import_request *request)
{
  /* some archives use the second spelling */
  static const char *const names[4][2] = {
    {"train-images-idx3-ubyte", "train-images.idx3-ubyte"},
    {"train-labels-idx1-ubyte", "train-labels.idx1-ubyte"},
    {"t10k-images-idx3-ubyte", "t10k-images.idx3-ubyte"},
    {"t10k-labels-idx1-ubyte", "t10k-labels.idx1-ubyte"},
  };
  if (request->count != 1 || !trm_is_folder(request->paths[0])) {
    if (request->count == 1 && access(request->paths[0], F_OK) != 0)
      return trm_error(TRM_FAILED, "%s: %s", request->paths[0], strerror(errno));
    if (request->count != 2 && request->count != 4)
      return trm_error(TRM_USAGE, "mnist: give a folder, or IMAGES LABELS, or IMAGES LABELS TEST-IMAGES TEST-LABELS");
    return mnist_files_import(request, request->paths, request->count);
  }
  char *path[4] = {NULL};
  int status = TRM_OK;
  for (int i = 0; i < 4 && status == TRM_OK; i++) {
    path[i] = trm_import_find(request->paths[0], names[i][1]);
    if (!path[i])
      path[i] = trm_import_find(request->paths[0], names[i][0]);
    status = path[i] ? TRM_OK : TRM_FAILED;
  }
  if (status == TRM_OK)
    status = mnist_files_import(request, (const char *const *)path, 4);
  for (int i = 0; i < 4; i++)
    trm_free(path[i]);
  return status;
}

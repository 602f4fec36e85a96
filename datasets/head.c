/* `trireme data head`: rows as text, images as PNG files in memory. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/printable.h"
#include "core/status.h"
#include "data_reader.h"
#include "datasets.h"
#include "image_file.h"
#include "table.h"

#define SHOWN 12    /* values of a row */
#define LINE 80     /* tokens of a row */

/* An open split of a data set. */
struct head {
  const char *path;
  hid_t file;
  struct data_head about;
  struct data_split split;
  struct data_table table;
  bool has_table, has_split;
};

static int head_open(struct head *head, const char *path, const char *split)
{
  *head = (struct head){.path = path, .file = -1};
  TRM_CHECK(h5_open(path, H5_DATASET, NULL, &head->file));
  TRM_CHECK(data_head_read(&head->about, head->file, path));
  TRM_CHECK(table_get(head->file, path, &head->table, &head->has_table));
  if (!h5_exists(head->file, split))
    return trm_error(TRM_USAGE, "%s: has no %s split", path, split);
  head->has_split = true;
  return data_split_open(&head->split, &head->about, head->file, path, split);
}

static void head_close(struct head *head)
{
  if (head->has_split)
    data_split_close(&head->split);
  table_free(&head->table);
  data_head_free(&head->about);
  h5_close(head->file);
}

/* Returns the label of a row as text; NULL and an error if it cannot be read. Owned by the caller. */
static char *head_label_read(struct head *head, uint64_t row)
{
  const struct data_head *about = &head->about;
  if (about->target == TRM_TARGET_CLASS) {
    int32_t class;
    if (data_array_read(&head->split.y, row, 1, &class) != TRM_OK)
      return NULL;
    if (class < 0 || (size_t)class >= about->classes) {
      trm_error(TRM_FAILED, "%s: %s row %" PRIu64 " has class %d of %zu classes", head->path, head->split.name, row,
                class, about->classes);
      return NULL;
    }
    return about->class_names ? trm_printable(about->class_names[class]) : trm_format("%d", class);
  }
  float *values = trm_alloc(about->classes * sizeof *values, "target values");
  char *text = NULL;
  if (data_array_read(&head->split.y, row, 1, values) == TRM_OK)
    for (size_t i = 0; i < about->classes && i < SHOWN; i++)
      trm_append(&text, "%s%.6g", i ? " " : "", (double)values[i]);
  trm_free(values);
  return text;
}

/* -- rows as text */

/* Reads a row of dense values; bytes become values. */
static int head_values_read(struct head *head, uint64_t row, float *values)
{
  struct data_array *x = &head->split.x;
  const size_t n = trm_shape_count(&head->about.shape);
  if (x->type != BLOCK_UINT8)
    return data_array_read(x, row, 1, values);
  uint8_t *bytes = trm_alloc(n, "a row");
  const int status = data_array_read(x, row, 1, bytes);
  for (size_t i = 0; i < n && status == TRM_OK; i++)
    values[i] = head->about.scale * bytes[i] + head->about.shift;
  trm_free(bytes);
  return status;
}

/* Prints the values of a vector by name, or what an image's lie between. */
static int head_dense_print(struct head *head, uint64_t row)
{
  const size_t n = trm_shape_count(&head->about.shape);
  float *values = trm_alloc(n * sizeof *values, "a row");
  const int status = head_values_read(head, row, values);
  if (status == TRM_OK && head->about.kind == TRM_DATA_IMAGE) {
    float low = values[0], high = values[0];
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
      low = values[i] < low ? values[i] : low;
      high = values[i] > high ? values[i] : high;
      sum += (double)values[i];
    }
    printf(" %s, %.4g to %.4g, mean %.4g", trm_shape_text(&head->about.shape), (double)low, (double)high,
           sum / (double)n);
  } else if (status == TRM_OK) {
    const bool named = head->has_table && table_features(&head->table) == n;
    for (size_t i = 0; i < n && i < SHOWN; i++) {
      char *name = named ? table_feature_name(&head->table, i) : NULL, *shown = name ? trm_printable(name) : NULL;
      printf(shown ? "  %s: %.6g" : "%s %.6g", shown ? shown : "", (double)values[i]);
      trm_free(shown);
      trm_free(name);
    }
    if (n > SHOWN)
      printf(" ... (%zu values)", n);
  }
  trm_free(values);
  return status;
}

/* Prints entries with indices from 1, as libsvm files have them. */
static int head_sparse_print(struct head *head, uint64_t row)
{
  int64_t bounds[2];
  TRM_CHECK(data_array_read(&head->split.starts, row, 2, bounds));
  if (bounds[0] < 0 || bounds[1] < bounds[0] || (uint64_t)bounds[1] > head->split.entries)
    return trm_error(TRM_FAILED, "%s: %s row %" PRIu64 " is damaged", head->path, head->split.name, row);
  const size_t n = (size_t)(bounds[1] - bounds[0]), shown = n < SHOWN ? n : SHOWN;
  int32_t columns[SHOWN];
  float values[SHOWN];
  if (shown) {
    TRM_CHECK(data_array_read(&head->split.columns, (uint64_t)bounds[0], shown, columns));
    TRM_CHECK(data_array_read(&head->split.values, (uint64_t)bounds[0], shown, values));
  }
  for (size_t i = 0; i < shown; i++)
    printf(" %" PRId64 ":%.6g", (int64_t)columns[i] + 1, (double)values[i]);
  if (n > shown)
    printf(" ... (%zu entries)", n);
  return TRM_OK;
}

static int head_rows_print(struct head *head, size_t rows)
{
  for (uint64_t row = 0; row < rows && row < head->split.rows; row++) {
    char *label = head_label_read(head, row);
    if (!label)
      return TRM_FAILED;
    printf("%-6" PRIu64 " %-12s", row, label);
    trm_free(label);
    TRM_CHECK(head->about.kind == TRM_DATA_CSR ? head_sparse_print(head, row) : head_dense_print(head, row));
    printf("\n");
  }
  return TRM_OK;
}

/* -- tokens as text */

static void head_text_print(const struct trm_tokenizer *tokenizer, const int32_t *token, size_t count)
{
  char *text = NULL;
  size_t used = 0, capacity = 0;
  for (size_t i = 0; i < count; i++) {
    size_t bytes;
    const char *part = trm_tokenizer_text(tokenizer, token[i], &bytes);
    text = trm_grow(text, &capacity, used, used + bytes, 1, "text of tokens");
    memcpy(text + used, part, bytes);
    used += bytes;
  }
  const size_t size = 6 * used + 1; /* escaped */
  char *shown = trm_alloc(size, "text of tokens");
  trm_printable_copy(shown, size, text, used, "\n\t");
  printf("%s\n", shown);
  trm_free(shown);
  trm_free(text);
}

static int head_tokens_print(struct head *head, size_t rows)
{
  const struct data_head *about = &head->about;
  const uint64_t all = head->split.rows, wanted = rows < all / LINE ? rows * LINE : all;
  const size_t count = wanted < (uint64_t)rows * LINE ? (size_t)wanted : rows * LINE;
  const bool narrow = head->split.x.type == BLOCK_UINT16;
  int32_t *token = trm_alloc(count * sizeof *token, "tokens");
  uint16_t *half = trm_alloc(count * sizeof *half, "tokens");
  int status = data_array_read(&head->split.x, 0, count, narrow ? (void *)half : token);
  for (size_t i = 0; i < count && status == TRM_OK; i++) {
    token[i] = narrow ? half[i] : token[i];
    if (token[i] < 0 || (size_t)token[i] >= about->vocabulary)
      status = trm_error(TRM_FAILED, "%s: %s token %zu is %d, outside of the vocabulary of %zu", head->path,
                         head->split.name, i, token[i], about->vocabulary);
  }
  struct trm_tokenizer *tokenizer = NULL;
  if (status == TRM_OK && about->encoding.name)
    status = trm_tokenizer_open(&tokenizer, head->path, &about->encoding, about->class_names, about->vocabulary);
  if (status == TRM_OK && tokenizer)
    head_text_print(tokenizer, token, count);
  for (size_t i = 0; i < count && status == TRM_OK && !tokenizer; i++)
    printf("%d%s", token[i], i + 1 == count ? "\n" : " ");
  trm_tokenizer_close(tokenizer);
  trm_free(half);
  trm_free(token);
  return status;
}

int trm_data_head(const char *path, const char *split, size_t rows)
{
  struct head head;
  H5_LOCKED;
  int status = head_open(&head, path, split);
  if (status == TRM_OK)
    status = head.about.kind == TRM_DATA_TOKENS ? head_tokens_print(&head, rows) : head_rows_print(&head, rows);
  head_close(&head);
  return status;
}

/* -- pictures */

/* Reads an image as bytes (H, W, C); of floats its least value becomes 0 and its largest 255. Images that have neither
 * 1 nor 3 channels show the first. */
static int head_image_read(struct head *head, uint64_t row, struct image *image)
{
  const struct trm_shape *shape = &head->about.shape;
  const size_t n = trm_shape_count(shape), pixels = image->height * image->width;
  float *values = trm_alloc(n * sizeof *values, "an image");
  const int status = head_values_read(head, row, values);
  const size_t used = pixels * image->channels;
  float low = 0, high = 1;
  if (status == TRM_OK && head->split.x.type == BLOCK_UINT8) {
    low = head->about.shift;
    high = low + 255 * head->about.scale;
  } else if (status == TRM_OK) {
    low = high = values[0];
    for (size_t i = 0; i < used; i++) {
      low = values[i] < low ? values[i] : low;
      high = values[i] > high ? values[i] : high;
    }
  }
  const float range = high > low || high < low ? high - low : 1;
  for (size_t i = 0; i < used && status == TRM_OK; i++)
    image->pixel[i % pixels * image->channels + i / pixels] = (uint8_t)((values[i] - low) / range * 255 + 0.5f);
  trm_free(values);
  return status;
}

static int head_picture_add(struct head *head, uint64_t row, struct trm_data_pictures *pictures)
{
  struct image image = {.height = pictures->height, .width = pictures->width};
  const struct trm_shape *shape = &head->about.shape;
  image.channels = shape->dims == 3 && shape->size[0] == 3 ? 3 : 1;
  image.pixel = trm_alloc(image.height * image.width * image.channels, "an image");
  struct trm_data_picture *picture = &pictures->picture[pictures->count];
  char why[IMAGE_WHY];
  int status = head_image_read(head, row, &image);
  if (status == TRM_OK && !image_png_write(&image, &picture->png, &picture->bytes, why))
    status = trm_error(TRM_USAGE, "%s: %s", head->path, why);
  trm_free(image.pixel);
  TRM_CHECK(status);
  pictures->count++;
  picture->label = head_label_read(head, row);
  return picture->label ? TRM_OK : TRM_FAILED;
}

static int head_pictures_read(struct head *head, size_t count, struct trm_data_pictures *pictures)
{
  const struct trm_shape *shape = &head->about.shape;
  if (head->about.kind != TRM_DATA_IMAGE || shape->dims < 2 || shape->dims > 3)
    return trm_error(TRM_USAGE, "%s: --out: its rows are no images", head->path);
  pictures->height = shape->size[shape->dims - 2];
  pictures->width = shape->size[shape->dims - 1];
  if (head->split.rows == 0)
    return trm_error(TRM_FAILED, "%s: the %s split has no rows", head->path, head->split.name);
  count = count < head->split.rows ? count : (size_t)head->split.rows;
  pictures->picture = trm_alloc(count * sizeof *pictures->picture, "pictures");
  for (size_t i = 0; i < count; i++)
    TRM_CHECK(head_picture_add(head, (uint64_t)i * head->split.rows / count, pictures));
  return TRM_OK;
}

int trm_data_pictures_read(const char *path, const char *split, size_t count, struct trm_data_pictures *pictures)
{
  struct head head;
  *pictures = (struct trm_data_pictures){.count = 0};
  H5_LOCKED;
  int status = head_open(&head, path, split);
  if (status == TRM_OK)
    status = head_pictures_read(&head, count, pictures);
  head_close(&head);
  return status;
}

void trm_data_pictures_free(struct trm_data_pictures *pictures)
{
  for (size_t i = 0; i < pictures->count; i++) {
    trm_free(pictures->picture[i].png);
    trm_free(pictures->picture[i].label);
  }
  trm_free(pictures->picture);
}

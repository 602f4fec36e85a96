/* Folders of images: FOLDER/CLASS/FILE, or FOLDER/train/CLASS/FILE beside FOLDER/val and FOLDER/test. Rows are in the
 * order of the names of classes, then of files. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "datasets/image_file.h"
#include "datasets/import.h"

#define CHUNK 64 /* files at once; threads share them */
#define MAX_SIDE 16384

struct image_entry {
  char *path;
  int32_t class;
};

/* The files of one split. */
struct listing {
  enum trm_split split;
  struct image_entry *entry;
  size_t count, capacity;
};

struct images {
  const struct trm_import_request *request;
  size_t height, width, channels; /* of the rows */
  char **class;                   /* (classes) names, ascending */
  size_t classes, class_capacity;
  struct listing listing[TRM_SPLIT_TEST + 1]; /* by split; without split folders all files are in the first one */
  struct trm_stratum *stratum;    /* (classes) of the test split that is cut, or NULL */
  bool random_split;
};

/* -- listing */

/* Returns the names in a folder, ascending, without hidden ones; NULL and an error if there are none. Owned by the
 * caller: images_names_free. */
static char **images_names_read(const char *folder, size_t *count)
{
  struct dirent **entry;
  const int all = scandir(folder, &entry, NULL, NULL);
  *count = 0;
  if (all < 0) {
    trm_error(TRM_FAILED, "%s: %s", folder, strerror(errno));
    return NULL;
  }
  char **name = trm_alloc(((size_t)all + 1) * sizeof *name, "names of files");
  for (int i = 0; i < all; i++) {
    if (entry[i]->d_name[0] != '.')
      name[(*count)++] = trm_strdup(entry[i]->d_name);
    free(entry[i]);
  }
  free(entry);
  qsort(name, *count, sizeof *name, trm_import_text_compare);
  return name;
}

static void images_names_free(char **name, size_t count)
{
  for (size_t i = 0; i < count; i++)
    trm_free(name[i]);
  trm_free(name);
}

static int images_class_list(struct listing *listing, const char *folder, size_t class)
{
  size_t count;
  char **name = images_names_read(folder, &count);
  if (!name)
    return TRM_FAILED;
  for (size_t i = 0; i < count; i++) {
    listing->entry = trm_grow(listing->entry, &listing->capacity, listing->count, listing->count + 1,
                              sizeof *listing->entry, "names of files");
    listing->entry[listing->count++] =
      (struct image_entry){.path = trm_format("%s/%s", folder, name[i]), .class = (int32_t)class};
  }
  images_names_free(name, count);
  return count ? TRM_OK : trm_error(TRM_FAILED, "%s: holds no images", folder);
}

/* Returns the class of this name, which is added if the split is the first; `classes`: none. */
static size_t images_class_find(struct images *images, const char *name, bool add)
{
  size_t class = 0;
  while (class < images->classes && strcmp(images->class[class], name) != 0)
    class++;
  if (class == images->classes && add) {
    images->class =
      trm_grow(images->class, &images->class_capacity, class, class + 1, sizeof *images->class, "classes");
    images->class[images->classes++] = trm_strdup(name);
  }
  return class;
}

/* Lists the files of a folder of classes. */
static int images_split_list(struct images *images, const char *folder, enum trm_split split)
{
  struct listing *listing = &images->listing[split];
  size_t count;
  char **name = images_names_read(folder, &count);
  int status = !name ? TRM_FAILED : count ? TRM_OK : trm_error(TRM_FAILED, "%s: holds no folders of classes", folder);
  listing->split = split;
  for (size_t i = 0; i < count && status == TRM_OK; i++) {
    char *path = trm_format("%s/%s", folder, name[i]);
    if (!trm_is_folder(path)) {
      status = trm_error(TRM_FAILED, "%s: is not a folder: %s must hold one folder for each class", path, folder);
    } else {
      const size_t class = images_class_find(images, name[i], split == TRM_SPLIT_TRAIN);
      status = class == images->classes
                 ? trm_error(TRM_FAILED, "%s: is not among the %zu classes of the train split", path, images->classes)
                 : images_class_list(listing, path, class);
    }
    trm_free(path);
  }
  images_names_free(name, count);
  return status;
}

/* Returns FOLDER/NAME if it is a folder, else NULL. Owned by the caller: trm_free. */
static char *images_folder_find(const char *folder, const char *name)
{
  char *path = trm_format("%s/%s", folder, name);
  if (trm_is_folder(path))
    return path;
  trm_free(path);
  return NULL;
}

/* Lists FOLDER/train, FOLDER/val (or validation) and FOLDER/test. *found: FOLDER/train is there, with one of them. */
static int images_splits_list(struct images *images, const char *folder, bool *found)
{
  static const char *const names[] = {"train", "val", "validation", "test"};
  static const enum trm_split splits[] = {TRM_SPLIT_TRAIN, TRM_SPLIT_VALIDATION, TRM_SPLIT_VALIDATION, TRM_SPLIT_TEST};
  char *path[4];
  for (int i = 0; i < 4; i++)
    path[i] = images_folder_find(folder, names[i]);
  int status = TRM_OK;
  *found = path[0] && (path[1] || path[2] || path[3]);
  if (*found && path[1] && path[2])
    status = trm_error(TRM_FAILED, "%s: has both val and validation", folder);
  if (*found && images->request->test_part >= 0)
    status = trm_error(TRM_USAGE, "--test-part: %s has folders of splits", folder);
  for (int i = 0; i < 4 && *found && status == TRM_OK; i++)
    if (path[i])
      status = images_split_list(images, path[i], splits[i]);
  for (int i = 0; i < 4; i++)
    trm_free(path[i]);
  return status;
}

static int images_list(struct images *images)
{
  const struct trm_import_request *request = images->request;
  const char *folder = request->paths[0];
  bool splits;
  TRM_CHECK(images_splits_list(images, folder, &splits));
  if (splits)
    return TRM_OK;
  TRM_CHECK(images_split_list(images, folder, TRM_SPLIT_TRAIN));
  if (request->test_part <= 0)
    return TRM_OK;
  images->stratum = trm_alloc(images->classes * sizeof *images->stratum, "classes");
  for (size_t i = 0; i < images->listing[0].count; i++)
    images->stratum[images->listing[0].entry[i].class].rows++;
  uint64_t train_rows;
  TRM_CHECK(trm_import_train_rows(request, 0, images->listing[0].count, &train_rows));
  trm_strata_plan(images->stratum, images->classes, request->test_part);
  return TRM_OK;
}

/* Moves the test rows of each class to the test split. */
static void images_split_cut(struct images *images)
{
  struct listing *from = &images->listing[TRM_SPLIT_TRAIN], *to = &images->listing[TRM_SPLIT_TEST];
  const size_t count = from->count;
  from->count = 0;
  to->entry = trm_alloc(count * sizeof *to->entry, "names of files");
  for (size_t i = 0; i < count; i++) {
    const struct image_entry entry = from->entry[i];
    const bool test = trm_stratum_next(&images->stratum[entry.class], images->random_split, images->request->seed,
                                       (uint32_t)entry.class);
    if (test)
      to->entry[to->count++] = entry;
    else
      from->entry[from->count++] = entry;
  }
}

/* -- rows */

/* Parses --size=HxW or --size=N. */
static int images_size_parse(struct images *images)
{
  const char *text = images->request->size;
  char *end;
  if (!text)
    return TRM_OK;
  images->height = images->width = strtoul(text, &end, 10);
  if (*end == 'x')
    images->width = strtoul(end + 1, &end, 10);
  const bool good = *text >= '1' && *text <= '9' && !*end && images->height <= MAX_SIDE && images->width > 0 &&
                    images->width <= MAX_SIDE;
  return good ? TRM_OK : trm_error(TRM_USAGE, "--size=%s: must be HEIGHTxWIDTH, such as 224x224, at most %d each", text,
                                   MAX_SIDE);
}

/* Takes size and channels that are not asked for from the first file. */
static int images_shape_detect(struct images *images)
{
  struct image image;
  char why[IMAGE_WHY];
  const char *path = images->listing[TRM_SPLIT_TRAIN].entry[0].path;
  const bool done = image_read(path, images->channels, &image, why);
  trm_free(image.pixel);
  if (!done)
    return trm_error(TRM_FAILED, "%s: %s", path, why);
  images->channels = image.channels;
  if (!images->height) {
    images->height = image.height;
    images->width = image.width;
  }
  return images->height <= MAX_SIDE && images->width <= MAX_SIDE
           ? TRM_OK : trm_error(TRM_FAILED, "%s: has %zu x %zu pixels; --size=HxW resizes", path, image.height,
                                image.width);
}

/* Reads a file as a row. Threads call it at once. */
static bool images_row_read(const struct images *images, const char *path, uint8_t *row, char why[IMAGE_WHY])
{
  struct image image;
  const bool as_it_is = !images->request->channels;
  bool done = image_read(path, as_it_is && images->channels == 1 ? 0 : images->channels, &image, why);
  if (done && image.channels != images->channels) {
    snprintf(why, IMAGE_WHY, "is in color, and the first file is grey: --channels=3 or --channels=1 converts");
    done = false;
  }
  if (done && !images->request->size && (image.height != images->height || image.width != images->width)) {
    snprintf(why, IMAGE_WHY, "has %zu x %zu pixels, and the first file %zu x %zu: --size=HxW resizes", image.height,
             image.width, images->height, images->width);
    done = false;
  }
  if (done)
    image_fit(&image, images->height, images->width, row);
  trm_free(image.pixel);
  return done;
}

/* Appends `count` files; the first one that cannot be read is the error. */
static int images_chunk_add(const struct images *images, struct trm_data_writer *writer,
                            const struct image_entry *entry, int count, uint8_t *rows)
{
  const size_t bytes = images->channels * images->height * images->width;
  char why[CHUNK][IMAGE_WHY];
  int32_t class[CHUNK];
  bool done[CHUNK];
#pragma omp parallel for schedule(dynamic)
  for (int i = 0; i < count; i++) {
    done[i] = images_row_read(images, entry[i].path, rows + (size_t)i * bytes, why[i]);
    class[i] = entry[i].class;
  }
  for (int i = 0; i < count; i++)
    if (!done[i])
      return trm_error(TRM_FAILED, "%s: %s", entry[i].path, why[i]);
  return trm_data_writer_append(writer,
                                &(struct trm_data_rows){.rows = (size_t)count, .bytes = rows, .target_class = class});
}

static int images_listing_add(const struct images *images, struct trm_data_writer *writer,
                              const struct listing *listing)
{
  int status = trm_data_writer_split(writer, trm_split_name(listing->split));
  uint8_t *rows = trm_alloc(CHUNK * images->channels * images->height * images->width, "images");
  for (size_t i = 0; i < listing->count && status == TRM_OK; i += CHUNK)
    status = images_chunk_add(images, writer, listing->entry + i,
                              listing->count - i < CHUNK ? (int)(listing->count - i) : CHUNK, rows);
  trm_free(rows);
  return status;
}

static int images_write(struct images *images)
{
  const struct trm_import_request *request = images->request;
  char *source = trm_format("images of folder %s", request->paths[0]);
  const struct trm_data_spec spec = {
    .kind = TRM_DATA_IMAGE, .element = TRM_ELEMENT_UINT8, .scale = 1.0f / 255,
    .shape = {.dims = 3, .size = {images->channels, images->height, images->width}},
    .target = TRM_TARGET_CLASS, .classes = images->classes, .class_names = (const char *const *)images->class,
    .source = source,
    .split = !images->stratum ? NULL : images->random_split ? "random" : "last",
    .split_seed = request->seed,
  };
  struct trm_data_writer *writer;
  int status = trm_import_begin(request, spec, &writer);
  trm_free(source);
  TRM_CHECK(status);
  for (int i = 0; i <= TRM_SPLIT_TEST && status == TRM_OK; i++)
    if (images->listing[i].count)
      status = images_listing_add(images, writer, &images->listing[i]);
  return trm_import_end(writer, status, 0);
}

static int images_import(struct images *images)
{
  enum trm_target_kind target;
  TRM_CHECK(trm_import_check(images->request, &target, &images->random_split));
  if (images->request->count != 1 || !trm_is_folder(images->request->paths[0]))
    return trm_error(TRM_USAGE, "%s: is not a folder; data import images takes one, with a folder for each class",
                     images->request->paths[images->request->count - 1]);
  TRM_CHECK(images_size_parse(images));
  TRM_CHECK(images_list(images));
  TRM_CHECK(images_shape_detect(images));
  if (images->stratum) {
    images->listing[TRM_SPLIT_TEST].split = TRM_SPLIT_TEST;
    images_split_cut(images);
  }
  return images_write(images);
}

int trm_import_images(const struct trm_import_request *request)
{
  struct images images = {.request = request, .channels = request->channels};
  const int status = request->channels == 2 ? trm_error(TRM_USAGE, "--channels=2: must be 1 or 3")
                                            : images_import(&images);
  for (struct listing *listing = images.listing; listing <= images.listing + TRM_SPLIT_TEST; listing++) {
    for (size_t i = 0; i < listing->count; i++)
      trm_free(listing->entry[i].path);
    trm_free(listing->entry);
  }
  images_names_free(images.class, images.classes);
  trm_free(images.stratum);
  return status;
}

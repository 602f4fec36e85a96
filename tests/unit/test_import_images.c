/* Folders of PNG and JPEG files: pixels against Pillow's, splits, damaged files. */
#include <sys/stat.h>

#include "datasets/image_file.h"
#include "import_files.h"

/* A recorded file and its pixels. */
struct recorded {
  char name[32];
  size_t channels, height, width, bytes, pixels;
  uint8_t file[8192], pixel[4096];
};

static size_t hex_parse(const char *hex, uint8_t *to, size_t capacity)
{
  size_t count = strlen(hex) / 2;
  CU_ASSERT_FATAL(count <= capacity);
  for (size_t i = 0; i < count; i++) {
    unsigned byte;
    CU_ASSERT_EQUAL_FATAL(sscanf(hex + 2 * i, "%2x", &byte), 1);
    to[i] = (uint8_t)byte;
  }
  return count;
}

static FILE *recorded_open(void)
{
  const char *top = getenv("top_srcdir");
  char *path = trm_format("%s/tests/reference/image_files.txt", top ? top : ".");
  FILE *file = fopen(path, "r");
  CU_ASSERT_PTR_NOT_NULL_FATAL(file);
  trm_free(path);
  return file;
}

static bool recorded_next(FILE *list, struct recorded *recorded)
{
  static char file[16384], pixels[8192];
  if (fscanf(list, "%31s %zu %zu %zu %16383s %8191s", recorded->name, &recorded->channels, &recorded->height,
             &recorded->width, file, pixels) != 6)
    return false;
  recorded->bytes = hex_parse(file, recorded->file, sizeof recorded->file);
  recorded->pixels = hex_parse(pixels, recorded->pixel, sizeof recorded->pixel);
  CU_ASSERT_EQUAL(recorded->pixels, recorded->channels * recorded->height * recorded->width);
  return true;
}

static bool format_is_built(const char *name)
{
#ifndef HAVE_PNG
  if (strstr(name, ".png"))
    return false;
#endif
#ifndef HAVE_JPEG
  if (strstr(name, ".jpg"))
    return false;
#endif
  return *name;
}

/* A file as a row has the bytes that Pillow gives it. */
static void test_pillow(void)
{
  FILE *list = recorded_open();
  struct recorded recorded;
  int cases = 0;
  for (; recorded_next(list, &recorded); cases++) {
    file_write("image", recorded.file, recorded.bytes);
    char *path = file_name("image"), why[IMAGE_WHY] = "";
    struct image image;
    const bool done = image_read(path, recorded.channels, &image, why);
    trm_free(path);
    if (!format_is_built(recorded.name)) {
      CU_ASSERT(!done && strstr(why, "this build has no lib"));
      continue;
    }
    CU_ASSERT_FATAL(done);
    uint8_t pixel[sizeof recorded.pixel];
    image_fit(&image, recorded.height, recorded.width, pixel);
    size_t differ = 0;
    for (size_t i = 0; i < recorded.pixels; i++)
      differ += pixel[i] != recorded.pixel[i];
    if (differ)
      printf("\n%s: %zu of %zu bytes differ\n", recorded.name, differ, recorded.pixels);
    CU_ASSERT_EQUAL(differ, 0);
    trm_free(image.pixel);
  }
  CU_ASSERT_EQUAL(cases, 14);
  fclose(list);
}

#if defined HAVE_PNG && defined HAVE_JPEG
static struct recorded color, gray, photo;

static void folder_make(const char *name)
{
  char *path = file_name(name);
  CU_ASSERT_EQUAL(mkdir(path, 0777), 0);
  trm_free(path);
}

static void path_remove(const char *name)
{
  char *path = file_name(name);
  CU_ASSERT_EQUAL(remove(path), 0);
  trm_free(path);
}

/* Reads the recorded files that the next tests use. */
static void recorded_read(void)
{
  FILE *list = recorded_open();
  struct recorded next;
  while (recorded_next(list, &next)) {
    if (!strcmp(next.name, "color.png") && next.height == 8)
      color = next;
    if (!strcmp(next.name, "gray.png") && next.height == 9)
      gray = next;
    if (!strcmp(next.name, "color.jpg") && next.channels == 3)
      photo = next;
  }
  fclose(list);
  CU_ASSERT_FATAL(color.bytes && gray.bytes && photo.bytes);
}

/* 10 files of class b and 20 of class a: a fifth of each is the test split. */
static void test_folder(void)
{
  recorded_read();
  folder_make("set");
  folder_make("set/b");
  folder_make("set/a");
  file_write("set/.hidden", "x", 1);
  for (int i = 0; i < 30; i++) {
    char name[32];
    snprintf(name, sizeof name, "set/%c/%02d", i < 10 ? 'b' : 'a', i);
    if (i % 2)
      file_write(name, photo.file, photo.bytes);
    else
      file_write(name, color.file, color.bytes);
  }
  struct trm_import_request request = {.test_part = 0.2, .seed = 1, .size = "8x8"};
  struct split split;
  CU_ASSERT_EQUAL_FATAL(import_run("images", "set", request), TRM_OK);
  for (int which = 0; which < 2; which++) {
    split_read(&split, which ? TRM_SPLIT_TEST : TRM_SPLIT_TRAIN, 1);
    CU_ASSERT_EQUAL_FATAL(split.dataset->rows, which ? 6 : 24);
    CU_ASSERT_STRING_EQUAL(trm_shape_text(&split.dataset->spec.shape), "(3, 8, 8)");
    CU_ASSERT_STRING_EQUAL(split.dataset->class_names[1], "b");
    for (int i = 0; i < (which ? 6 : 24); i++)
      CU_ASSERT_EQUAL(split.batch.target_class[i], i >= (which ? 4 : 16));
    split_free(&split);
  }
  out_remove();
  request.split = "last"; /* the last four of a, then the last two of b */
  CU_ASSERT_EQUAL_FATAL(import_run("images", "set", request), TRM_OK);
  split_read(&split, TRM_SPLIT_TEST, 1);
  CU_ASSERT_EQUAL_FATAL(split.dataset->rows, 6);
  for (size_t i = 0; i < color.pixels; i++) /* file 26, the first one of them */
    CU_ASSERT_EQUAL(split.batch.dense[i], (float)color.pixel[i] * (1.0f / 255));
  split_free(&split);
  out_remove();
  request = plain;
  CU_ASSERT_EQUAL_FATAL(import_run("images", "set", request), TRM_OK); /* they have one size */
  split_read(&split, TRM_SPLIT_TRAIN, 1);
  CU_ASSERT_STRING_EQUAL(trm_shape_text(&split.dataset->spec.shape), "(3, 19, 31)");
  for (size_t i = 0; i < photo.pixels; i++) /* a/11, the second file */
    CU_ASSERT_EQUAL(split.batch.dense[photo.pixels + i], (float)photo.pixel[i] * (1.0f / 255));
  split_free(&split);
  out_remove();
}

/* Each fault ends the import with its file's name; the set of test_folder is whole but for it. */
static void test_folder_errors(void)
{
  struct trm_import_request request = plain;
  file_write("set/b/05", gray.file, gray.bytes);
  import_fails("images", "set", &request, "set/b/05: has 24 x 17 pixels, and the first file 19 x 31: --size");
  file_write("set/b/05", color.file, color.bytes / 2);
  import_fails("images", "set", &request, "set/b/05: is a damaged PNG file");
  file_write("set/b/05", color.file, color.bytes - 12); /* without its end */
  import_fails("images", "set", &request, "set/b/05: is a damaged PNG file");
  file_write("set/b/05", photo.file, photo.bytes * 3 / 4);
  import_fails("images", "set", &request, "set/b/05: is a damaged JPEG file");
  uint8_t flipped[sizeof color.file];
  memcpy(flipped, color.file, color.bytes);
  flipped[color.bytes / 2] ^= 0x10;
  file_write("set/b/05", flipped, color.bytes);
  import_fails("images", "set", &request, "set/b/05: is a damaged PNG file");
  flipped[18] = flipped[22] = 0x7f; /* a width and a height of millions */
  file_write("set/b/05", flipped, color.bytes);
  import_fails("images", "set", &request, "set/b/05: is a damaged PNG file");
  file_write("set/b/05", "notes", 5);
  import_fails("images", "set", &request, "set/b/05: is neither a PNG nor a JPEG file");
  file_write("set/b/05", "", 0);
  import_fails("images", "set", &request, "set/b/05: is empty");
  path_remove("set/b/05");
  folder_make("set/b/05");
  import_fails("images", "set", &request, "set/b/05: is not a regular file");
  path_remove("set/b/05");
  folder_make("set/c");
  import_fails("images", "set", &request, "set/c: holds no images");
  path_remove("set/c");
  file_write("set/labels.csv", "a,b\n", 4);
  import_fails("images", "set", &request, "set/labels.csv: is not a folder");
  import_fails("images", "set/labels.csv", &request, "set/labels.csv: is not a folder");
  path_remove("set/labels.csv");
  file_write("set/a/00", gray.file, gray.bytes);
  request.size = "8x8";
  import_fails("images", "set", &request, "is in color, and the first file is grey: --channels=3");
  path_remove("set/a/00");
  request.channels = 2;
  import_fails("images", "set", &request, "--channels=2: must be 1 or 3");
  request.channels = 0;
  static const char *const sizes[] = {"", "x", "8x", "0x8", "8x0", "8x8x8", "-1", "99999"};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    request.size = sizes[i];
    import_fails("images", "set", &request, "must be HEIGHTxWIDTH");
  }
}

/* Folders of splits; classes are those of the train split. */
static void test_split_folders(void)
{
  static const char *const folders[] = {"cut",       "cut/train", "cut/train/cat", "cut/train/dog", "cut/val",
                                        "cut/val/dog", "cut/test",  "cut/test/cat"};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    folder_make(folders[i]);
    if (strlen(folders[i]) > 9) {
      char *name = trm_format("%s/one.png", folders[i]);
      file_write(name, gray.file, gray.bytes);
      trm_free(name);
    }
  }
  struct trm_import_request request = {.test_part = -1, .size = "9x5"};
  CU_ASSERT_EQUAL_FATAL(import_run("images", "cut", request), TRM_OK);
  for (enum trm_split which = TRM_SPLIT_TRAIN; which <= TRM_SPLIT_TEST; which++) {
    struct split split;
    split_read(&split, which, 1);
    CU_ASSERT_EQUAL_FATAL(split.dataset->rows, which == TRM_SPLIT_TRAIN ? 2 : 1);
    CU_ASSERT_STRING_EQUAL(trm_shape_text(&split.dataset->spec.shape), "(1, 9, 5)");
    CU_ASSERT_EQUAL(split.batch.target_class[0], which == TRM_SPLIT_VALIDATION);
    CU_ASSERT_EQUAL(split.batch.dense[44], (float)gray.pixel[44] * (1.0f / 255));
    split_free(&split);
  }
  out_remove();
  request.test_part = 0.1;
  import_fails("images", "cut", &request, "--test-part: ");
  request.test_part = -1;
  folder_make("cut/test/cow");
  import_fails("images", "cut", &request, "cut/test/cow: is not among the 2 classes of the train split");
}
#endif

int main(void)
{
  CU_TestInfo tests[] = {{"pixels as Pillow's", test_pillow},
#if defined HAVE_PNG && defined HAVE_JPEG
                         {"a folder", test_folder},
                         {"a folder, errors", test_folder_errors},
                         {"folders of splits", test_split_folders},
#endif
                         CU_TEST_INFO_NULL};
  return import_suite("import of images", tests);
}

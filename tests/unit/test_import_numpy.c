/* Arrays of NumPy (tests/reference/make_numpy.py): values, splits, damaged files. */
#include "import_files.h"

enum { ROWS = 12, HEIGHT = 4, WIDTH = 5, CHANNELS = 3, ROW = HEIGHT * WIDTH * CHANNELS };

/* Writes the recorded files to the folder. */
static void files_write(void)
{
  const char *top = getenv("top_srcdir");
  char *path = trm_format("%s/tests/reference/numpy_files.txt", top ? top : "."), name[32];
  FILE *list = fopen(path, "r");
  CU_ASSERT_PTR_NOT_NULL_FATAL(list);
  static char hex[32768];
  static unsigned char bytes[16384];
  int files = 0;
  for (; fscanf(list, "%31s %32767s", name, hex) == 2; files++) {
    for (size_t i = 0; i < strlen(hex) / 2; i++) {
      unsigned byte;
      CU_ASSERT_EQUAL_FATAL(sscanf(hex + 2 * i, "%2x", &byte), 1);
      bytes[i] = (unsigned char)byte;
    }
    file_write(name, bytes, strlen(hex) / 2);
  }
  CU_ASSERT_EQUAL(files, 19);
  fclose(list);
  trm_free(path);
}

static int pixel(size_t row, size_t h, size_t w, size_t c)
{
  return (int)((row * ROW + h * WIDTH * CHANNELS + w * CHANNELS + c) % 251);
}

/* Checks rows first, first + 1, ... of x in color and the classes of y. */
static void colors_check(enum trm_split which, size_t first, size_t rows)
{
  struct split split;
  split_read(&split, which, 1);
  CU_ASSERT_EQUAL_FATAL(split.dataset->rows, rows);
  CU_ASSERT_STRING_EQUAL(trm_shape_text(&split.dataset->spec.shape), "(3, 4, 5)");
  CU_ASSERT_STRING_EQUAL(split.dataset->class_names[0], "-10");
  CU_ASSERT_STRING_EQUAL(split.dataset->class_names[2], "10");
  int wrong = 0;
  for (size_t i = 0; i < rows * ROW; i++) {
    const size_t h = i / WIDTH % HEIGHT, w = i % WIDTH, c = i / (HEIGHT * WIDTH) % CHANNELS;
    wrong += split.batch.dense[i] != (float)pixel(first + i / ROW, h, w, c) * (1.0f / 255);
  }
  for (size_t i = 0; i < rows; i++)
    wrong += split.batch.target_class[i] != (int)((first + i) % 3);
  CU_ASSERT_EQUAL(wrong, 0);
  split_free(&split);
}

static void test_colors(void)
{
  static const char *const files[] = {"x.npy y.npy", "x.npy y8.npy", "first.npy y.npy", "x2.npy y.npy"};
  files_write();
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    CU_ASSERT_EQUAL_FATAL(import_run("npy", files[i], plain), TRM_OK);
    colors_check(TRM_SPLIT_TRAIN, 0, ROWS);
    out_remove();
  }
  CU_ASSERT_EQUAL_FATAL(import_run("npy", "x.npy y.npy x.npy y.npy", plain), TRM_OK);
  colors_check(TRM_SPLIT_TEST, 0, ROWS);
  out_remove();
  CU_ASSERT_EQUAL_FATAL(import_run("npz", "stored.npz", plain), TRM_OK);
  colors_check(TRM_SPLIT_TRAIN, 0, ROWS);
  out_remove();
#ifdef HAVE_ZLIB
  struct trm_import_request request = plain;
  CU_ASSERT_EQUAL_FATAL(import_run("npz", "splits.npz", request), TRM_OK);
  colors_check(TRM_SPLIT_TRAIN, 0, ROWS);
  colors_check(TRM_SPLIT_TEST, 3, 2);
  out_remove();
  request.x = "a";
  request.y = "b";
  request.test_part = 0.25;
  request.split = "last";
  CU_ASSERT_EQUAL_FATAL(import_run("npz", "packed.npz", request), TRM_OK);
  colors_check(TRM_SPLIT_TRAIN, 0, 9);
  colors_check(TRM_SPLIT_TEST, 9, 3);
  out_remove();
#endif
}

/* Floats in either order of bytes, grey images, several targets, a random split. */
static void test_values(void)
{
  struct trm_import_request request = plain;
  struct split split;
  for (int is_double = 0; is_double < 2; is_double++) {
    request.target = "value";
    CU_ASSERT_EQUAL_FATAL(import_run("npy", is_double ? "double.npy value.npy" : "big.npy value.npy", request), TRM_OK);
    split_read(&split, TRM_SPLIT_TRAIN, 1);
    CU_ASSERT_STRING_EQUAL(trm_shape_text(&split.dataset->spec.shape), "(4)");
    for (size_t i = 0; i < ROWS * HEIGHT; i++)
      CU_ASSERT_EQUAL(split.batch.dense[i],
                      (float)pixel(i / HEIGHT, i % HEIGHT, 0, 0) / (is_double ? 2.0f : 1.0f));
    CU_ASSERT_EQUAL(split.dataset->spec.classes, 2);
    CU_ASSERT_EQUAL(split.batch.target_value[2 * 5], 10);
    CU_ASSERT_EQUAL(split.batch.target_value[2 * 5 + 1], 2.5f);
    split_free(&split);
    out_remove();
  }
  request = plain;
  request.test_part = 0.25;
  request.seed = 1;
  CU_ASSERT_EQUAL_FATAL(import_run("npy", "gray.npy y.npy", request), TRM_OK);
  int seen[3] = {0};
  split_read(&split, TRM_SPLIT_TEST, 1);
  CU_ASSERT_EQUAL_FATAL(split.dataset->rows, 3); /* one of each class */
  CU_ASSERT_STRING_EQUAL(trm_shape_text(&split.dataset->spec.shape), "(1, 4, 5)");
  for (int i = 0; i < 3; i++)
    seen[split.batch.target_class[i]]++;
  CU_ASSERT(seen[0] == 1 && seen[1] == 1 && seen[2] == 1);
  split_free(&split);
  out_remove();
}

static void test_errors(void)
{
  static const char *const bad[][2] = {
    {"fortran.npy y.npy", "fortran.npy: is in Fortran order"},
    {"objects.npy y.npy", "objects.npy: is an array of Python objects"},
    {"x.npy text.npy", "text.npy: has elements of type '<U"},
    {"x.npy complex.npy", "complex.npy: has elements of type '<c16'"},
    {"none.npy y.npy", "none.npy: is empty"},
    {"x.npy scalar.npy", "scalar.npy: is a single number"},
    {"nan.npy y.npy", "nan.npy: a number in it is not finite"},
    {"y.npy y.npy", "y.npy: has 1 dimensions"},
    {"x.npy value.npy", "value.npy: has 2 dimensions: a label for each row is wanted"},
    {"x.npy y.npy gray.npy y.npy", "gray.npy: has rows of another shape"},
    {"stored.npz y.npy", "stored.npz: is not an array of NumPy"},
    {"x.npy", "1 were given"},
    {"nowhere.npy y.npy", "nowhere.npy: No such file"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    import_fails("npy", bad[i][0], &plain, bad[i][1]);
  import_fails("npz", "x.npy", &plain, "x.npy: is not a zip archive");
  struct trm_import_request request = plain;
  request.x = "z";
  import_fails("npz", "stored.npz", &request, "stored.npz: has no array z");
}

/* A file cut anywhere is refused; a changed byte is found, or changes nothing that is read. */
static void damaged_check(const char *format, const char *file, struct trm_import_request request)
{
  char *path = file_name(file);
  FILE *from = fopen(path, "rb");
  static unsigned char bytes[8192];
  const size_t count = from ? fread(bytes, 1, sizeof bytes, from) : 0;
  CU_ASSERT_FATAL(count > 200 && count < sizeof bytes);
  fclose(from);
  trm_free(path);
  const bool archive = !strcmp(format, "npz");
  const char *names = archive ? "damaged" : "damaged y.npy";
  int good = 0, cuts = 0;
  for (size_t length = 0; length < count; length += 1 + count / 40, cuts++) {
    file_write("damaged", bytes, length);
    good += import_run(format, names, request) == TRM_OK;
  }
  CU_ASSERT(cuts > 30);
  CU_ASSERT_EQUAL(good, 0);
  for (size_t at = 0; archive && at < count; at += 1 + count / 150) {
    bytes[at] ^= 0x55;
    file_write("damaged", bytes, count);
    if (import_run(format, names, request) == TRM_OK) {
      colors_check(TRM_SPLIT_TRAIN, 0, ROWS);
      out_remove();
      good++;
    }
    bytes[at] ^= 0x55;
  }
  CU_ASSERT(!archive || good > 0); /* times of members, for one */
  CU_ASSERT(!file_exists("out.h5"));
}

static void test_damaged(void)
{
  damaged_check("npy", "x.npy", plain);
#ifdef HAVE_ZLIB
  struct trm_import_request request = plain;
  damaged_check("npz", "stored.npz", request);
  request.x = "a";
  request.y = "b";
  damaged_check("npz", "packed.npz", request);
#endif
}

int main(void)
{
  CU_TestInfo tests[] = {{"images in color", test_colors},
                         {"values", test_values},
                         {"errors", test_errors},
                         {"damaged files", test_damaged},
                         CU_TEST_INFO_NULL};
  return import_suite("import of NumPy's arrays", tests);
}

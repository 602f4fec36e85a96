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
  CU_ASSERT_EQUAL(files, 25);
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

/* Text labels: numbers first, then the others by their bytes; of two spellings of a number the first. */
static void test_text_labels(void)
{
  static const char *const files[] = {"x.npy names.npy", "x.npy names_big.npy", "x.npy names_bytes.npy"};
  for (size_t i = 0; i < sizeof files / sizeof *files + 1; i++) {
    struct split split;
    const bool archive = i == sizeof files / sizeof *files;
    CU_ASSERT_EQUAL_FATAL(import_run(archive ? "npz" : "npy", archive ? "names.npz" : files[i], plain), TRM_OK);
    split_read(&split, TRM_SPLIT_TRAIN, 1);
    CU_ASSERT_EQUAL_FATAL(split.dataset->rows, ROWS);
    CU_ASSERT_EQUAL_FATAL(split.dataset->spec.classes, 3);
    CU_ASSERT_STRING_EQUAL(split.dataset->class_names[0], "7.0");
    CU_ASSERT_STRING_EQUAL(split.dataset->class_names[1], "Z\303\274rich");
    CU_ASSERT_STRING_EQUAL(split.dataset->class_names[2], "oslo");
    for (int k = 0; k < ROWS; k++)
      CU_ASSERT_EQUAL(split.batch.target_class[k], k % 3);
    split_free(&split);
    out_remove();
  }
  /* texts of numbers: the classes of the numbers */
  CU_ASSERT_EQUAL_FATAL(import_run("npy", "x.npy text.npy x.npy text.npy", plain), TRM_OK);
  colors_check(TRM_SPLIT_TRAIN, 0, ROWS);
  colors_check(TRM_SPLIT_TEST, 0, ROWS);
  out_remove();
  struct trm_import_request request = plain;
  request.target = "value";
  import_fails("npy", "x.npy text.npy", &request, "text.npy: holds texts, which are no values");
}

static void test_errors(void)
{
  static const char *const bad[][2] = {
    {"fortran.npy y.npy", "fortran.npy: is in Fortran order"},
    {"objects.npy y.npy", "objects.npy: is an array of Python objects"},
    {"text.npy y.npy", "text.npy: holds texts; rows of numbers are wanted"},
    {"x.npy latin.npy", "latin.npy: element 1 is no text: "},
    {"x.npy blank.npy", "blank.npy: element 0 is no text: empty"},
    {"x.npy names.npy x.npy y.npy", "y.npy: holds numbers as labels, and the train split texts"},
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

/* Labels whose file is cut, whose type has another length than the elements, or no characters. */
static void test_damaged_texts(void)
{
  char *path = file_name("names.npy");
  FILE *from = fopen(path, "rb");
  static unsigned char bytes[1024];
  const size_t count = from ? fread(bytes, 1, sizeof bytes, from) : 0, header = 128;
  fclose(from);
  trm_free(path);
  CU_ASSERT_EQUAL_FATAL(count, header + ROWS * 6 * 4); /* <U6 */
  for (size_t length = 0; length < count; length += 5) {
    file_write("damaged", bytes, length);
    CU_ASSERT_EQUAL(import_run("npy", "x.npy damaged", plain), TRM_FAILED);
  }
  unsigned char *const type = (unsigned char *)strstr((char *)bytes + 10, "<U6") + 1, *first = bytes + header;
  static const struct {
    const char *type, *what;
  } types[] = {{"U5", "has 288 bytes, which its shape and type do not make"}, {"U7", "has 288 bytes, which"},
               {"S6", "has 288 bytes, which"}, {"U0", "has elements of type '<U0'"}, {"U-", "has elements of type"},
               {"V6", "has elements of type '<V6'"}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    memcpy(type, types[i].type, 2);
    file_write("damaged", bytes, count);
    import_fails("npy", "x.npy damaged", &plain, types[i].what);
  }
  memcpy(type, "U6", 2);
  static const uint32_t none[] = {0x110000, 0xd800, 0xdfff, 0xffffffff, 0};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
    for (int k = 0; k < 4; k++)
      first[k] = (unsigned char)(none[i] >> 8 * k);
    file_write("damaged", bytes, count);
    import_fails("npy", "x.npy damaged", &plain, "damaged: element 0 is no text: not UTF-32");
  }
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
                         {"text labels", test_text_labels},
                         {"errors", test_errors},
                         {"damaged files", test_damaged},
                         {"damaged text labels", test_damaged_texts},
                         CU_TEST_INFO_NULL};
  return import_suite("import of NumPy's arrays", tests);
}

/* Tables as people have them: separators, quotes, missing values, categories, standardization, and new rows treated
 * like old ones. Values are those of pandas (tests/reference/make_table.py). */
#include <math.h>

#include "datasets/file_reader.h"
#include "import_files.h"

static const char *reference(const char *name)
{
  static char path[512];
  const char *top = getenv("top_srcdir");
  snprintf(path, sizeof path, "%s/tests/reference/%s", top ? top : ".", name);
  return path;
}

static void text_write(const char *name, const char *text)
{
  file_write(name, text, strlen(text));
}

/* Numbers are those of strtod, to the bit. */
static void test_numbers(void)
{
  static const char *const texts[] = {
    "0", "-0", "1", "+3", "0.1", "-2.50", ".5", "5.", "123456789012345", "0.123456789012345", "9007199254740993",
    "1e22", "1e23", "1e-22", "1e-23", "3.14159e10", "2.2250738585072011e-308", "1.7976931348623157e308", "1e-400",
    "179769313486231580000000000000000", "0.000000000000000000000000000001", "6.0221e+23", "0x1p3", "1E5", "inf", "nan",
    "8.5e0001", "00000000000000000000001.5", "7450580596923828125e-27", "9.999999e22"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    double number = 0;
    char *end;
    const double expected = strtod(texts[i], &end);
    CU_ASSERT_PTR_EQUAL(trm_number_scan(texts[i], &number), texts[i] + strlen(texts[i]));
    CU_ASSERT(!memcmp(&number, &expected, sizeof number) || (isnan(number) && isnan(expected)));
  }
  char text[64];
  int wrong = 0;
  for (uint64_t i = 0; i < 200000; i++) { /* random digits and exponents */
    const uint64_t bits = made_mix(i, 1) | (uint64_t)made_mix(i, 2) << 32;
    const uint64_t fraction = made_mix(i, 3) | (uint64_t)made_mix(i, 4) << 32;
    snprintf(text, sizeof text, "%s%llu.%llue%d", bits & 1 ? "-" : "", (unsigned long long)(bits >> (44 + bits % 16)),
             (unsigned long long)(fraction >> (20 + bits % 32)), (int)(bits >> 8 & 63) - 32);
    double number = 0;
    const double expected = strtod(text, NULL);
    wrong += *trm_number_scan(text, &number) != '\0' || number < expected || number > expected;
  }
  CU_ASSERT_EQUAL(wrong, 0);
  static const char *const none[] = {"", " 1", "-", ".", "e5", "x", "\t2", "+"};
  double number;
  for (size_t i = 0; i < sizeof none / sizeof *none; i++)
    CU_ASSERT_PTR_EQUAL(trm_number_scan(none[i], &number), none[i]);
  CU_ASSERT_STRING_EQUAL(trm_number_scan("1e", &number), "e");
  CU_ASSERT_STRING_EQUAL(trm_number_scan("1.5,2", &number), ",2");
}

/* Separators are detected by frequency outside of quotes. */
static void test_separators(void)
{
  static const char *const texts[][2] = {
    {"a;b,c;y\n1;2;0\n3;4;1\n", NULL},         {"a\tb\ty\n1\t 2\t0\n3\t4\t1\n", NULL},
    {"\"a,a,a,a\";b;y\n1;2;0\n3;4;1\n", NULL}, {"a,b,y\n1,2,0\n3,4,1\n", ","},
    {"a|b|y\n1|2|0\n3|4|1\n", "|"},            {"1\t2\t0\n3\t4\t1\n", "tab"}};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    static const float x[] = {1, 2, 3, 4};
    struct trm_import_request request = plain;
    struct split split;
    request.separator = texts[i][1];
    text_write("table", texts[i][0]);
    CU_ASSERT_EQUAL_FATAL(import_run("csv", "table", request), TRM_OK);
    split_read(&split, TRM_SPLIT_TRAIN, 1);
    CU_ASSERT_EQUAL_FATAL(split.dataset->rows, 2);
    CU_ASSERT_EQUAL(memcmp(split.batch.dense, x, sizeof x), 0);
    split_free(&split);
    out_remove();
  }
}

/* Reads the split and compares rows with those of table.txt, from row `first`. */
static void rows_check(enum trm_split which, size_t first, size_t rows, double tolerance)
{
  struct split split;
  split_read(&split, which, 1);
  CU_ASSERT_EQUAL_FATAL(split.dataset->rows, rows);
  const size_t features = split.dataset->spec.shape.size[0];
  CU_ASSERT_EQUAL_FATAL(features, 10); /* age, 5 cities, income, 3 codes */
  FILE *file = fopen(reference("table.txt"), "r");
  CU_ASSERT_PTR_NOT_NULL_FATAL(file);
  for (size_t i = 0; i < (first + rows) * features; i++) {
    double expected;
    CU_ASSERT_EQUAL_FATAL(fscanf(file, "%lf", &expected), 1);
    if (i >= first * features)
      CU_ASSERT_DOUBLE_EQUAL(split.batch.dense[i - first * features], expected, tolerance);
  }
  for (size_t i = 0; i < rows; i++)
    CU_ASSERT_EQUAL(split.batch.target_class[i], (first + i) % 3 != 0);
  fclose(file);
  split_free(&split);
}

static void test_pandas(void)
{
  char *path = trm_strdup(reference("table.csv"));
  struct trm_import_request request = plain;
  request.drop = "identifier";
  request.categorical = "code";
  request.categories = "onehot";
  request.missing = "mean";
  request.standardize = true;
  CU_ASSERT_EQUAL_FATAL(import_run("csv", path, request), TRM_OK);
  rows_check(TRM_SPLIT_TRAIN, 0, 40, 1e-6);
  /* a part of the rows, in another order of columns, without labels and with another separator, treated alike */
  char *old = file_name("out.h5"), *like = file_name("old.h5");
  CU_ASSERT_EQUAL(rename(old, like), 0);
  text_write("new", "code,income; year,city,age\n14,13386.862518664362,the \"\"x,1\n");
  request = plain;
  request.like = like;
  import_fails("csv", "new", &request, "new:2: a quote in the middle");
  text_write("new", "code,income; year,city,age\n14,?,Bergen,1\n");
  import_fails("csv", "new", &request, "new:2: column 3 (city): \"Bergen\" is not among the column's categories");
  text_write("new", "code,city,age\n14,Oslo,1\n");
  import_fails("csv", "new", &request, "new:1: has no column \"income; year\"");
  text_write("new", "code,income; year,city,age\n14,?,\"two\nlines\",\n");
  CU_ASSERT_EQUAL_FATAL(import_run("csv", "new", request), TRM_OK);
  struct split split;
  static const float x[] = {0, 0, 0, 0, 0, 1, 0, 0, 1, 0}; /* means, the fifth city, the second of "0", "14", "7" */
  split_read(&split, TRM_SPLIT_TRAIN, 1);
  CU_ASSERT_EQUAL_FATAL(split.dataset->rows, 1);
  CU_ASSERT_EQUAL(memcmp(split.batch.dense, x, sizeof x), 0);
  CU_ASSERT_STRING_EQUAL(split.dataset->class_names[1], "yes");
  split_free(&split);
  out_remove();
  CU_ASSERT_EQUAL_FATAL(import_run("csv", path, request), TRM_OK);
  rows_check(TRM_SPLIT_TRAIN, 0, 40, 1e-6);
  out_remove();
  text_write("new", "code;income; year;city;age;class\n14;1;Oslo;2;maybe\n");
  request.separator = ";";
  import_fails("csv", "new", &request, "new:1: has no column \"income; year\"");
  text_write("new", "code,income; year,city,age,class\n14,1,Oslo,2,maybe\n");
  request.separator = NULL;
  import_fails("csv", "new", &request, "new:2: column 5 (class): \"maybe\" is not among the labels of --like");
  request.label = "class";
  import_fails("csv", "new", &request, "--label: ");
  trm_free(old);
  trm_free(like);
  trm_free(path);
}

/* Statistics are of the train split alone, also where it is cut from one file. */
static void test_train_statistics(void)
{
  char text[4096] = "x,y\n", *to = text + 4;
  for (int i = 0; i < 100; i++)
    to += sprintf(to, "%d,%s\n", i < 80 ? i % 2 * 2 + 9 : 1000, i % 4 < 2 ? "a" : "b"); /* 9 and 11, then 1000 */
  text_write("part", text);
  struct trm_import_request request = plain;
  struct split split;
  request.test_part = 0.2;
  request.split = "last";
  request.standardize = true;
  CU_ASSERT_EQUAL_FATAL(import_run("csv", "part", request), TRM_OK);
  split_read(&split, TRM_SPLIT_TRAIN, 1);
  CU_ASSERT_EQUAL_FATAL(split.dataset->rows, 80);
  for (int i = 0; i < 80; i++)
    CU_ASSERT_EQUAL(split.batch.dense[i], i % 2 ? 1 : -1);
  split_free(&split);
  split_read(&split, TRM_SPLIT_TEST, 1);
  CU_ASSERT_EQUAL(split.batch.dense[19], 990);
  split_free(&split);
  out_remove();
}

static void test_missing(void)
{
  text_write("holes", "a,b,y\n1,red,0\n,blue,1\n3,,1\n4,red,\n5,blue,0\n");
  struct trm_import_request request = plain;
  struct split split;
  import_fails("csv", "holes", &request, "holes:5: column 3 (y): \"\" is a missing label");
  request.missing = "drop";
  CU_ASSERT_EQUAL_FATAL(import_run("csv", "holes", request), TRM_OK);
  split_read(&split, TRM_SPLIT_TRAIN, 1);
  static const float whole[] = {1, 1, 5, 0}; /* blue is 0, red 1 */
  CU_ASSERT_EQUAL_FATAL(split.dataset->rows, 2);
  CU_ASSERT_EQUAL(memcmp(split.batch.dense, whole, sizeof whole), 0);
  split_free(&split);
  out_remove();
  text_write("holes", "a,b,y\n1,red,0\n,blue,1\n3,,1\n5,blue,0\n");
  request.missing = "mean";
  CU_ASSERT_EQUAL_FATAL(import_run("csv", "holes", request), TRM_OK);
  split_read(&split, TRM_SPLIT_TRAIN, 1);
  static const float filled[] = {1, 1, 3, 0, 3, 0, 5, 0};
  CU_ASSERT_EQUAL_FATAL(split.dataset->rows, 4);
  CU_ASSERT_EQUAL(memcmp(split.batch.dense, filled, sizeof filled), 0);
  split_free(&split);
  out_remove();
  request.missing = NULL; /* a column that is not used may have holes */
  request.columns = "b";
  text_write("holes", "a,b,y\n1,red,0\n,blue,1\n");
  CU_ASSERT_EQUAL_FATAL(import_run("csv", "holes", request), TRM_OK);
  split_read(&split, TRM_SPLIT_TRAIN, 1);
  CU_ASSERT_STRING_EQUAL(trm_shape_text(&split.dataset->spec.shape), "(1)");
  split_free(&split);
  out_remove();
}

/* Several label columns are values of a row, in the order of --label, with their names. */
static void test_several_labels(void)
{
  static const float y[] = {0, 1.5f, 1, -2, 1, 3}, x[] = {1, 2, 3};
  struct trm_import_request request = plain;
  struct split split;
  text_write("labels", "b,x,a\n1.5,1,0\n-2,2,1\n3,3,1\n");
  request.label = "a,b";
  request.target = NULL;
  CU_ASSERT_EQUAL_FATAL(import_run("csv", "labels", request), TRM_OK);
  split_read(&split, TRM_SPLIT_TRAIN, 1);
  CU_ASSERT_EQUAL(split.dataset->spec.target, TRM_TARGET_VALUE);
  CU_ASSERT_EQUAL_FATAL(split.dataset->spec.classes, 2);
  CU_ASSERT_EQUAL_FATAL(split.dataset->rows, 3);
  CU_ASSERT_EQUAL(memcmp(split.batch.target_value, y, sizeof y), 0);
  CU_ASSERT_EQUAL(memcmp(split.batch.dense, x, sizeof x), 0);
  CU_ASSERT_PTR_NOT_NULL_FATAL(split.dataset->class_names);
  CU_ASSERT_STRING_EQUAL(split.dataset->class_names[0], "a");
  CU_ASSERT_STRING_EQUAL(split.dataset->class_names[1], "b");
  split_free(&split);
  /* new rows: all labels, in another order, none, or not all */
  char *old = file_name("out.h5"), *like = file_name("old.h5");
  CU_ASSERT_EQUAL(rename(old, like), 0);
  request = plain;
  request.like = like;
  text_write("new", "a,b,x\n0,1.5,1\n1,-2,2\n1,3,3\n");
  CU_ASSERT_EQUAL_FATAL(import_run("csv", "new", request), TRM_OK);
  split_read(&split, TRM_SPLIT_TRAIN, 1);
  CU_ASSERT_EQUAL_FATAL(split.dataset->rows, 3);
  CU_ASSERT_EQUAL(memcmp(split.batch.target_value, y, sizeof y), 0);
  split_free(&split);
  out_remove();
  text_write("new", "x\n7\n");
  CU_ASSERT_EQUAL_FATAL(import_run("csv", "new", request), TRM_OK);
  split_read(&split, TRM_SPLIT_TRAIN, 1);
  CU_ASSERT_EQUAL(split.batch.dense[0], 7);
  CU_ASSERT(split.batch.target_value[0] == 0 && split.batch.target_value[1] == 0);
  split_free(&split);
  out_remove();
  text_write("new", "x,a\n7,1\n");
  import_fails("csv", "new", &request, "new: has no column \"b\", but another one of the labels");
  /* columns by number, without a header; rows that lack one of the labels */
  request = plain;
  request.target = "value";
  request.label = "3,1";
  request.missing = "drop";
  text_write("numbers", "1.5,1,0\n5,2,?\n-2,2,1\n3,3,1\n");
  CU_ASSERT_EQUAL_FATAL(import_run("csv", "numbers", request), TRM_OK);
  split_read(&split, TRM_SPLIT_TRAIN, 1);
  CU_ASSERT_EQUAL_FATAL(split.dataset->rows, 3);
  CU_ASSERT_EQUAL(memcmp(split.batch.target_value, y, sizeof y), 0);
  CU_ASSERT_STRING_EQUAL(split.dataset->class_names[0], "3");
  split_free(&split);
  out_remove();
  trm_free(old);
  trm_free(like);
}

static void test_errors(void)
{
  static const struct {
    const char *text, *what;
    struct trm_import_request request;
  } bad[] = {
    {"a,b,y\n1,2,0\n", "--missing=no: must be one of error, drop, mean", {.missing = "no"}},
    {"a,b,y\n1,2,0\n", "--categories=x: must be one of index, onehot", {.categories = "x"}},
    {"a,b,y\n1,2,0\n", "--header=1: must be one of yes, no", {.header = "1"}},
    {"a,b,y\n1,2,0\n", "--separator=ab: must be one character", {.separator = "ab"}},
    {"a,b,y\n1,2,0\n", "has no column \"c\"", {.columns = "a,c"}},
    {"a,b,y\n1,2,0\n", "--columns: column 3 is the label", {.columns = "a,y"}},
    {"a,b,y\n1,2,0\n", "leave no feature", {.drop = "a,2"}},
    {"1,2,0\n", "has no column \"a\": it has no header", {.drop = "a"}},
    {"a,b,y\n1,2,0\n", "there is no column 4; there are columns 1 to 3", {.drop = "4"}},
    {"a,b,y\n1,2,0\n3,x,0\n", "bad:3: column 2 (b): \"x\" is not a number, and the column begins with one",
     {.seed = 1}},
    {"a,b,y\n1,2,0\n", "nowhere.h5: cannot be opened", {.like = "nowhere.h5"}},
    {"a;b;y\n1;2;0\n", "bad:1: one column alone", {.separator = ","}},
    {"a,b,y\n1,2,0\n", "--target=class: a class is one column", {.label = "b,y", .target = "class"}},
    {"a,b,y\n1,2,0\n", "--label: names column 2 twice", {.label = "b,y,2"}},
    {"a,b,y\n1,2,0\n", "has no column \"z\"", {.label = "b,z"}},
    {"a,b,y\n1,2,0\n", "--columns: column 2 is the label", {.label = "y,b", .columns = "a,b"}},
    {"a,b,y\n1,2,0\n3,4,x\n", "bad:3: column 3 (y): \"x\" is not a finite number: label columns, if they are several,",
     {.label = "b,y"}},
    {"a,b,y\n1,2,0\n3,4,1e39\n", "bad:3: column 3 (y): \"1e39\" is not a finite number", {.label = "b,y"}},
    {"a,b,y\n1,2,0\n3,4,\n", "bad:3: column 3 (y): \"\" is not a finite number", {.label = "b,y"}},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct trm_import_request request = bad[i].request;
    request.test_part = -1;
    text_write("bad", bad[i].text);
    import_fails("csv", "bad", &request, bad[i].what);
  }
  /* a test file has the categories of the train file */
  text_write("train", "a,y\nred,0\nblue,1\n");
  text_write("test", "a,y\ngreen,0\n");
  import_fails("csv", "train test", &plain, "test:2: column 1 (a): \"green\" is not among the column's categories");
}

int main(void)
{
  CU_TestInfo tests[] = {{"numbers", test_numbers},
                         {"separators", test_separators},
                         {"a table as pandas reads it", test_pandas},
                         {"statistics of the train split", test_train_statistics},
                         {"missing values", test_missing},
                         {"several label columns", test_several_labels},
                         {"errors", test_errors},
                         CU_TEST_INFO_NULL};
  return import_suite("import of tables", tests);
}

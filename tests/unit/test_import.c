/* Importers of text files: small files, damaged files and, where available, real ones. */
#include <math.h>

#include "core/random.h"
#include "datasets/file_reader.h"
#include "import_files.h"

/* -- the reader */

static void lines_check(const char *name)
{
  char *path = file_name(name), *line;
  struct trm_reader *reader;
  size_t length;
  CU_ASSERT_EQUAL_FATAL(trm_reader_open(&reader, path), TRM_OK);
  const char *const begin[] = {"one", "", "x", "last"};
  const size_t lengths[] = {3, 0, 600000, 4};
  for (size_t i = 0; i < 4; i++) {
    CU_ASSERT_EQUAL_FATAL(trm_reader_line(reader, &line, &length), TRM_OK);
    CU_ASSERT_PTR_NOT_NULL_FATAL(line);
    CU_ASSERT_EQUAL(length, lengths[i]);
    CU_ASSERT_EQUAL(strlen(line), length);
    CU_ASSERT_EQUAL(strncmp(line, begin[i], strlen(begin[i])), 0);
    CU_ASSERT_EQUAL(trm_reader_line_number(reader), i + 1);
  }
  for (int i = 0; i < 2; i++) {
    CU_ASSERT_EQUAL(trm_reader_line(reader, &line, &length), TRM_OK);
    CU_ASSERT_PTR_NULL(line);
    CU_ASSERT_EQUAL(trm_reader_line_number(reader), 4);
  }
  trm_reader_close(reader);
  trm_free(path);
}

static void test_reader(void)
{
  const size_t wide = 600000, all = 5 + 1 + wide + 2 + 4; /* a line longer than the reader's buffer */
  char *text = malloc(all + 1);
  memcpy(text, "one\r\n\n", 6);
  memset(text + 6, 'x', wide);
  memcpy(text + 6 + wide, "\r\nlast", 6);
  file_write("lines.txt", text, all);
  lines_check("lines.txt");
#ifdef HAVE_ZLIB
  file_gzip("lines", text, all); /* recognized by content, not by name */
  lines_check("lines");
#endif
  free(text);
}

static void test_reader_errors(void)
{
  file_write("bz", "BZh91AY&SY", 10);
  import_fails("libsvm", "bz", &plain, "bzip2");
  import_fails("libsvm", "nowhere.svm", &plain, "nowhere.svm: No such file");
  import_fails("libsvm", ".", &plain, "folder");
  file_write("nul", "1 1:1\n2 2:\0", 11);
  import_fails("libsvm", "nul", &plain, "nul:2: a NUL byte");
  import_fails("csv", "nul nul nul", &plain, "3 were given");
#ifdef HAVE_ZLIB
  char text[3000];
  for (size_t i = 0; i < sizeof text; i++)
    text[i] = (char)('a' + made_mix(i, 0) % 26);
  for (long bytes = 3; bytes < 2000; bytes = bytes * 3 + 1) {
    file_gzip("cut.gz", text, sizeof text);
    file_truncate("cut.gz", bytes);
    import_fails("text", "cut.gz", &plain, "cut.gz: the gzip file is cut short");
  }
  file_gzip("flip.gz", text, sizeof text);
  char *path = file_name("flip.gz");
  FILE *file = fopen(path, "r+b");
  CU_ASSERT_PTR_NOT_NULL_FATAL(file);
  fseek(file, 1000, SEEK_SET);
  fwrite("\0\377\0\377", 1, 4, file);
  fclose(file);
  trm_free(path);
  import_fails("text", "flip.gz", &plain, "flip.gz");
  const size_t long_line = (size_t)65 << 20; /* of 64 KB, as gzip writes it */
  char *zeros = trm_alloc(long_line, "a line");
  file_gzip("long.gz", memset(zeros, '0', long_line), long_line);
  trm_free(zeros);
  import_fails("csv", "long.gz", &plain, "long.gz:1: a line of more than 64 MiB");
#endif
}

/* -- made clusters */

enum { CLUSTERS = 6, FEATURES = 5 };

/* Makes a file with this noise and reads a split of it. */
static void clusters_make(struct split *split, enum trm_split which, uint64_t seed, double noise)
{
  const struct trm_import_request request = {.seed = seed, .train = 2000, .test = 9, .clusters = CLUSTERS,
                                             .classes = 3, .features = FEATURES, .noise = noise};
  CU_ASSERT_EQUAL_FATAL(import_run("clusters", "none", request), TRM_OK);
  split_read(split, which, 1);
  out_remove();
}

/* Centers have norm 1; a sample is a center plus noise, a pure function of seed, split and place; clusters take turns,
 * and the first two of six are of the first of three classes. */
static void test_clusters(void)
{
  for (enum trm_split which = TRM_SPLIT_TRAIN; which <= TRM_SPLIT_TEST; which += TRM_SPLIT_TEST) {
    struct split center, split, other;
    clusters_make(&center, which, 7, 0);
    clusters_make(&split, which, 7, 0.25);
    clusters_make(&other, which, 8, 0.25);
    const size_t rows = split.dataset->rows;
    CU_ASSERT_EQUAL_FATAL(rows, which == TRM_SPLIT_TRAIN ? 2000 : 9);
    CU_ASSERT(!split.dataset->spec.sparse && split.dataset->spec.shape.size[0] == FEATURES);
    CU_ASSERT_EQUAL(split.dataset->spec.classes, 3);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < rows; i++) {
      double norm = 0;
      for (size_t k = 0; k < FEATURES; k++) {
        const double c = (double)center.batch.dense[i * FEATURES + k];
        const double noise = ((double)split.batch.dense[i * FEATURES + k] - c) / 0.25;
        const uint32_t stream = which == TRM_SPLIT_TRAIN ? 1 : 2;
        const float drawn = trm_random_normal(7, TRM_RANDOM_CLUSTERS, stream, i * FEATURES + k);
        CU_ASSERT_DOUBLE_EQUAL(noise, (double)drawn, 1e-5);
        CU_ASSERT_EQUAL(center.batch.dense[i * FEATURES + k], center.batch.dense[i % CLUSTERS * FEATURES + k]);
        CU_ASSERT_NOT_EQUAL(split.batch.dense[i * FEATURES + k], other.batch.dense[i * FEATURES + k]);
        norm += c * c;
        sum += noise;
        squares += noise * noise;
      }
      CU_ASSERT_DOUBLE_EQUAL(norm, 1, 1e-6);
      CU_ASSERT_EQUAL(split.batch.target_class[i], (int)(i % CLUSTERS / 2));
    }
    const double n = (double)(rows * FEATURES); /* limits of four standard deviations */
    CU_ASSERT_DOUBLE_EQUAL(sum / n, 0, 4 / sqrt(n));
    CU_ASSERT_DOUBLE_EQUAL(squares / n, 1, 4 * sqrt(2 / n));
    split_free(&center);
    split_free(&split);
    split_free(&other);
  }
  const struct trm_import_request request = {.clusters = 6, .classes = 4, .noise = 1};
  import_fails("clusters", "none", &request, "6 clusters cannot be divided equally among 4 classes");
}

/* -- libsvm */

static void text_write(const char *name, const char *text)
{
  file_write(name, text, strlen(text));
}

static void test_libsvm(void)
{
  text_write("rows", "# a comment\n+1 1:0.5\t3:-2e1 \r\n\n  -1\n 10 2:1 7:.25 # end\n1.0 1:4 2:3");
  text_write("more", "x 9:1\n-1 1:1\n");
  CU_ASSERT_EQUAL_FATAL(import_run("libsvm", "rows more", plain), TRM_OK);
  struct split split;
  split_read(&split, TRM_SPLIT_TRAIN, 1);
  CU_ASSERT_EQUAL(split.dataset->rows, 4);
  CU_ASSERT(split.dataset->spec.sparse);
  CU_ASSERT_EQUAL(split.dataset->spec.shape.size[0], 9); /* the maximum index includes the test split */
  CU_ASSERT_EQUAL_FATAL(split.dataset->spec.classes, 4);
  static const char *const names[] = {"-1", "+1", "10", "x"}; /* numbers by value, then texts; "1.0" equals "+1" */
  for (int i = 0; i < 4; i++)
    CU_ASSERT_STRING_EQUAL(split.dataset->class_names[i], names[i]);
  static const int64_t starts[] = {0, 2, 2, 4, 6};
  static const int32_t columns[] = {0, 2, 1, 6, 0, 1}, classes[] = {1, 0, 2, 1};
  static const float values[] = {0.5f, -20, 1, 0.25f, 4, 3};
  CU_ASSERT_EQUAL(memcmp(split.batch.starts, starts, sizeof starts), 0);
  CU_ASSERT_EQUAL(memcmp(split.batch.columns, columns, sizeof columns), 0);
  CU_ASSERT_EQUAL(memcmp(split.batch.values, values, sizeof values), 0);
  CU_ASSERT_EQUAL(memcmp(split.batch.target_class, classes, sizeof classes), 0);
  split_free(&split);
  split_read(&split, TRM_SPLIT_TEST, 1);
  CU_ASSERT_EQUAL(split.dataset->rows, 2);
  CU_ASSERT_EQUAL(split.batch.target_class[0], 3);
  CU_ASSERT_EQUAL(split.batch.columns[0], 8);
  split_free(&split);
  out_remove();

  struct trm_import_request request = {.test_part = 0.25, .split = "last", .target = "value", .normalize = true};
  CU_ASSERT_EQUAL_FATAL(import_run("libsvm", "rows", request), TRM_OK);
  split_read(&split, TRM_SPLIT_TRAIN, 1);
  CU_ASSERT_EQUAL(split.dataset->rows, 3);
  CU_ASSERT_EQUAL(split.dataset->spec.target, TRM_TARGET_VALUE);
  CU_ASSERT_EQUAL(split.batch.target_value[2], 10);
  CU_ASSERT_DOUBLE_EQUAL(split.batch.values[1], -20 / sqrt(400.25), 1e-6);
  split_free(&split);
  split_read(&split, TRM_SPLIT_TEST, 1);
  CU_ASSERT_EQUAL(split.dataset->rows, 1);
  CU_ASSERT_EQUAL(split.batch.values[0], 0.8f);
  CU_ASSERT_EQUAL(split.batch.values[1], 0.6f);
  split_free(&split);
  out_remove();
}

/* Rows across several chunks, and one longer than the initial capacity of a chunk. */
static void test_libsvm_many(void)
{
  enum { ROWS = 3000 };
  char *path = file_name("many");
  FILE *file = fopen(path, "w");
  CU_ASSERT_PTR_NOT_NULL_FATAL(file);
  for (int i = 0; i < ROWS; i++) {
    fprintf(file, "%d", i % 3);
    for (int e = 0; e < i % 50; e++)
      fprintf(file, " %d:%d", e * 7 + 1, i + e);
    fputc('\n', file);
  }
  fclose(file);
  trm_free(path);
  CU_ASSERT_EQUAL_FATAL(import_run("libsvm", "many", plain), TRM_OK);
  struct split split;
  split_read(&split, TRM_SPLIT_TRAIN, 1);
  CU_ASSERT_EQUAL_FATAL(split.dataset->rows, ROWS);
  int wrong = 0;
  for (int i = 0; i < ROWS; i++) {
    const int64_t first = split.batch.starts[i];
    wrong += split.batch.target_class[i] != i % 3 || split.batch.starts[i + 1] - first != i % 50;
    for (int e = 0; e < i % 50 && !wrong; e++)
      wrong += split.batch.columns[first + e] != e * 7 || split.batch.values[first + e] != (float)(i + e);
  }
  CU_ASSERT_EQUAL(wrong, 0);
  split_free(&split);
  out_remove();
}

static void test_libsvm_errors(void)
{
  static const char *const bad[][2] = {
    {"1 1:2\n2 0:1\n", "bad:2: \"0:1\": indices begin at 1"},
    {"1 1:2 1:3\n", "bad:1: \"1:3\": index 1 is there twice"},
    {"\n1 3:2 1:3\n", "bad:2: \"1:3\": index 1 comes after 3"},
    {"1 1:2x\n", "bad:1: \"1:2x\": the value is not a number"},
    {"1 1:\n", "not a number"},
    {"1 1: 2\n", "not a number"},
    {"1 1\n", "\"1\" is not index:value"},
    {"1 a:1\n", "\"a:1\" is not index:value"},
    {"1 -1:1\n", "\"-1:1\" is not index:value"},
    {"1 99999999999:1\n", "too large"},
    {"1 2147483648:1\n", "too large"},
    {"1 1:1e60\n", "not finite"},
    {"1 1:nan\n", "not finite"},
    {"1 1:inf\n", "not finite"},
    {"1 qid:3 1:2\n", "bad:1: \"qid:3\": query groups are not supported"},
    {"1,2 1:2\n", "several labels"},
    {"1:2 2:1\n", "in place of a label"},
    {"# nothing\n\n", "bad: holds no rows"},
    {"", "bad: holds no rows"},
    {"1\n2\n", "no row has an entry"},
  };
  text_write("good", "1 1:1\n");
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    text_write("bad", bad[i][0]);
    import_fails("libsvm", "bad", &plain, bad[i][1]);
    if (i + 1 < sizeof bad / sizeof *bad) /* empty rows are valid beside others */
      import_fails("libsvm", "good bad", &plain, bad[i][1]);
  }
  struct trm_import_request request = {.test_part = -1, .target = "value"};
  text_write("bad", "1 1:1\na 1:1\n");
  import_fails("libsvm", "bad", &request, "bad:2: label \"a\" is not a number");
  request.target = "valu";
  import_fails("libsvm", "good", &request, "--target=valu: must be class or value");
  request = plain;
  request.test_part = 0.9;
  import_fails("libsvm", "good", &request, "leaves none of the 1 rows");
  import_fails("libsvm", "good good", &request, "good is the test split");
}

/* -- csv */

static void test_csv(void)
{
  text_write("table", "\xef\xbb\xbf\"the \"\"a\"\"\", name , \"b\nc\"\r\n1, dog ,\"2.5\"\n\n"
                      "-3e0,\"a, cat\",4\n5,dog,6\n");
  struct trm_import_request request = plain;
  struct split split;
  for (int by_number = 0; by_number < 2; by_number++) {
    request.label = by_number ? "2" : "name";
    CU_ASSERT_EQUAL_FATAL(import_run("csv", "table", request), TRM_OK);
    split_read(&split, TRM_SPLIT_TRAIN, 1);
    CU_ASSERT_EQUAL(split.dataset->rows, 3);
    CU_ASSERT_STRING_EQUAL(trm_shape_text(&split.dataset->spec.shape), "(2)");
    CU_ASSERT_EQUAL_FATAL(split.dataset->spec.classes, 2);
    CU_ASSERT_STRING_EQUAL(split.dataset->class_names[0], "a, cat");
    static const float x[] = {1, 2.5f, -3, 4, 5, 6};
    static const int32_t y[] = {1, 0, 1};
    CU_ASSERT_EQUAL(memcmp(split.batch.dense, x, sizeof x), 0);
    CU_ASSERT_EQUAL(memcmp(split.batch.target_class, y, sizeof y), 0);
    split_free(&split);
    out_remove();
  }
  /* no header; the last column is the target; a second file is the test split */
  text_write("train", "1,2,0.5\n3,4,-1\n");
  text_write("test", "7,8,2");
  request = (struct trm_import_request){.test_part = -1, .target = "value"};
  CU_ASSERT_EQUAL_FATAL(import_run("csv", "train test", request), TRM_OK);
  split_read(&split, TRM_SPLIT_TRAIN, 1);
  CU_ASSERT_EQUAL(split.dataset->rows, 2);
  CU_ASSERT_EQUAL(split.batch.target_value[1], -1);
  split_free(&split);
  split_read(&split, TRM_SPLIT_TEST, 1);
  CU_ASSERT_EQUAL(split.dataset->rows, 1);
  CU_ASSERT_EQUAL(split.batch.dense[1], 8);
  CU_ASSERT_EQUAL(split.batch.target_value[0], 2);
  split_free(&split);
  out_remove();
  /* many rows, divided into splits */
  char *path = file_name("many");
  FILE *file = fopen(path, "w");
  CU_ASSERT_PTR_NOT_NULL_FATAL(file);
  for (int i = 0; i < 1000; i++)
    fprintf(file, "%d,%d,c%d\n", i, -i, i % 4);
  fclose(file);
  trm_free(path);
  request = (struct trm_import_request){.test_part = 0.3, .split = "last", .target = "class"};
  CU_ASSERT_EQUAL_FATAL(import_run("csv", "many", request), TRM_OK);
  for (int which = 0; which < 2; which++) {
    split_read(&split, which ? TRM_SPLIT_TEST : TRM_SPLIT_TRAIN, 1);
    CU_ASSERT_EQUAL_FATAL(split.dataset->rows, which ? 300 : 700);
    int wrong = 0;
    for (int i = 0; i < (which ? 300 : 700); i++) {
      const int row = i + 700 * which;
      wrong += split.batch.dense[2 * i] != (float)row || split.batch.dense[2 * i + 1] != (float)-row ||
               split.batch.target_class[i] != row % 4;
    }
    CU_ASSERT_EQUAL(wrong, 0);
    split_free(&split);
  }
  out_remove();
}

static void test_csv_errors(void)
{
  static const char *const bad[][3] = {
    {"a,b,y\n1,2,0\n3,,1\n", NULL, "bad:3: column 2 (b): \"\" is a missing value"},
    {"a,b,y\n1,2,0\n3,NA,1\n", NULL, "bad:3: column 2 (b): \"NA\" is a missing value"},
    {",2,0\n3,4,1\n", NULL, "bad:1: column 1: \"\" is a missing value"}, /* and no header */
    {"a,b,y\n1,2,0\n3,4,\n", NULL, "bad:3: column 3 (y): \"\" is a missing label"},
    {"1,2,0\n3,red,1\n", NULL, "bad:2: column 2: \"red\" is not a number"},
    {"1,2,0\n3,1e40,1\n", NULL, "bad:2: column 2: \"1e40\" is not finite"},
    {"a,b,y\n1,2,0\n3,1\n", NULL, "bad:3: 2 columns in place of 3"},
    {"1,2,3\n1,2,3,4\n", NULL, "bad:2: 4 columns in place of 3"},
    {"a,\"b\n\",y\n1,2,0\n3,x,1\n", NULL, "bad:4: column 2"}, /* error messages count lines, not records */
    {"1,\"2,3\n4,5,6\n", NULL, "bad:1: a quoted field is not closed"},
    {"1,2,3\n1,\"2\"2,3\n", NULL, "bad:2: a quote in the middle of a field"},
    {"1\n2\n", NULL, "bad:1: one column alone"},
    {"", NULL, "bad: is empty"},
    {"a,b\n", NULL, "bad: holds no rows"},
    {"alpha,y,b\n1,2,3\n", "alpa", "has no column \"alpa\"; did you mean \"alpha\"?"},
    {"1,2,3\n", "4", "there is no column 4"},
    {"1,2,3\n", "0", "there is no column 0"},
  };
  struct trm_import_request request = plain;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    text_write("bad", bad[i][0]);
    request.label = bad[i][1];
    import_fails("csv", "bad", &request, bad[i][2]);
  }
  text_write("train", "a,b,y\n1,2,0\n");
  text_write("test", "a,c,y\n1,2,0\n");
  import_fails("csv", "train test", &plain, "test:1: column 2 is \"c\" in place of \"b\"");
  request = plain;
  request.target = "value";
  text_write("bad", "1,2,x\n");
  import_fails("csv", "bad", &request, "bad:1: column 3: \"x\" is not a number");
  request.names = "p,q";
  import_fails("csv", "train", &request, "no classes");
}

/* -- the test split of a single file */

#define SPLIT_ROWS 1000
static const int split_class_rows[] = {700, 200, 99, 1}; /* of classes a, b, c, d, in order */

/* Imports sorted.csv, whose row i is "i,CLASS" (or "i,i": the target is a value). where[i] counts 1 for each row i in
 * train, 10 in test. */
static void split_rows_read(struct trm_import_request request, int where[SPLIT_ROWS])
{
  CU_ASSERT_EQUAL_FATAL(import_run("csv", "sorted", request), TRM_OK);
  memset(where, 0, SPLIT_ROWS * sizeof *where);
  for (int which = 0; which < 2; which++) {
    struct split split;
    split_read(&split, which ? TRM_SPLIT_TEST : TRM_SPLIT_TRAIN, 1);
    for (size_t i = 0; i < split.dataset->rows; i++) {
      CU_ASSERT_FATAL(split.batch.dense[i] >= 0 && split.batch.dense[i] < SPLIT_ROWS);
      if (i > 0)
        CU_ASSERT(split.batch.dense[i] > split.batch.dense[i - 1]); /* file order is kept */
      where[(int)split.batch.dense[i]] += which ? 10 : 1;
    }
    split_free(&split);
  }
  out_remove();
}

static void split_file_write(bool classes)
{
  char *path = file_name("sorted");
  FILE *file = fopen(path, "w");
  CU_ASSERT_PTR_NOT_NULL_FATAL(file);
  for (int class = 0, row = 0; class < 4; class++)
    for (int i = 0; i < split_class_rows[class]; i++, row++)
      if (classes)
        fprintf(file, "%d,%c\n", row, 'a' + class);
      else
        fprintf(file, "%d,%d\n", row, row);
  fclose(file);
  trm_free(path);
}

static int split_test_rows(const int *where, int first, int rows)
{
  int count = 0;
  for (int i = first; i < first + rows; i++) {
    CU_ASSERT(where[i] == 1 || where[i] == 10); /* exactly one split */
    count += where[i] == 10;
  }
  return count;
}

static void test_split(void)
{
  static const int share[] = {140, 40, 20, 0}; /* a fifth of each class, rounded; 200 in total */
  struct trm_import_request request = {.test_part = 0.2, .target = "class", .seed = 1};
  int where[SPLIT_ROWS], again[SPLIT_ROWS];
  split_file_write(true);
  split_rows_read(request, where);
  for (int class = 0, first = 0; class < 4; first += split_class_rows[class++])
    CU_ASSERT_EQUAL(split_test_rows(where, first, split_class_rows[class]), share[class]);
  const int early = split_test_rows(where, 0, 350); /* expected: 70 of 350, standard deviation 5.3 */
  CU_ASSERT(early > 40 && early < 100);
  split_rows_read(request, again);
  CU_ASSERT_EQUAL(memcmp(where, again, sizeof where), 0);
  request.seed = 2;
  split_rows_read(request, again);
  CU_ASSERT_NOT_EQUAL(memcmp(where, again, sizeof where), 0);
  request.split = "last"; /* of a sorted file: the rare classes only, with none left for training */
  split_rows_read(request, where);
  CU_ASSERT_EQUAL(split_test_rows(where, 0, 800), 0);
  CU_ASSERT_EQUAL(split_test_rows(where, 800, 200), 200);
  split_file_write(false);
  request = (struct trm_import_request){.test_part = 0.2, .target = "value", .seed = 1};
  split_rows_read(request, where);
  CU_ASSERT_EQUAL(split_test_rows(where, 0, SPLIT_ROWS), 200);
  const int half = split_test_rows(where, 0, 500); /* expected: 100, standard deviation 6.3 */
  CU_ASSERT(half > 65 && half < 135);
  request.split = "first";
  import_fails("csv", "sorted", &request, "--split=first: must be random or last");
  request.split = "random";
  import_fails("text", "sorted", &request, "--split=random: a text is not shuffled");
  request.test_part = -1;
  import_fails("csv", "sorted sorted", &request, "--split: ");
}

/* -- text */

static void test_text(void)
{
  const char *const text = "h\xc3\xa9llo \xe2\x82\xac \xf0\x9f\x99\x82\nhe"; /* 12 characters */
  static const char *const names[] = {"\n", " ", "e", "h", "l", "o", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x99\x82"};
  static const int32_t tokens[] = {3, 6, 4, 4, 5, 1, 7, 1, 8, 0, 3, 2};
  char *marked = trm_format("\xef\xbb\xbf%s", text);
  text_write("text", text);
  text_write("marked", marked);
  trm_free(marked);
  text_write("rest", "leeh");
  struct trm_import_request request = {.test_part = 0.25};
  struct split split;
  for (int is_marked = 0; is_marked < 2; is_marked++) {
    CU_ASSERT_EQUAL_FATAL(import_run("text", is_marked ? "marked" : "text", request), TRM_OK);
    split_read(&split, TRM_SPLIT_TRAIN, 8); /* 9 tokens: one row and its targets */
    CU_ASSERT_EQUAL_FATAL(split.dataset->rows, 1);
    CU_ASSERT(split.dataset->spec.tokens);
    CU_ASSERT_EQUAL_FATAL(split.dataset->spec.classes, 9);
    for (int i = 0; i < 9; i++)
      CU_ASSERT_STRING_EQUAL(split.dataset->class_names[i], names[i]);
    CU_ASSERT_EQUAL(memcmp(split.batch.tokens, tokens, 8 * sizeof *tokens), 0);
    CU_ASSERT_EQUAL(memcmp(split.batch.target_class, tokens + 1, 8 * sizeof *tokens), 0);
    split_free(&split);
    split_read(&split, TRM_SPLIT_TEST, 2);
    CU_ASSERT_EQUAL_FATAL(split.dataset->rows, 1);
    CU_ASSERT_EQUAL(memcmp(split.batch.tokens, tokens + 9, 2 * sizeof *tokens), 0);
    CU_ASSERT_EQUAL(split.batch.target_class[1], 2);
    split_free(&split);
    out_remove();
  }
  CU_ASSERT_EQUAL_FATAL(import_run("text", "text rest", plain), TRM_OK);
  split_read(&split, TRM_SPLIT_TRAIN, 11);
  CU_ASSERT_EQUAL(memcmp(split.batch.tokens, tokens, 11 * sizeof *tokens), 0);
  split_free(&split);
  split_read(&split, TRM_SPLIT_TEST, 3);
  CU_ASSERT_EQUAL(split.batch.tokens[0], 4);
  CU_ASSERT_EQUAL(split.batch.target_class[2], 3);
  split_free(&split);
  out_remove();
}

/* Characters of three bytes across many chunks: some chunk boundaries split a character. */
static void test_text_long(void)
{
  enum { COUNT = 200000, TEST = COUNT / 10 };
  char *text = malloc(3 * COUNT);
  for (int i = 0; i < COUNT; i++) {
    const unsigned code = 0x4e00 + made_mix((uint64_t)i, 1) % 5000;
    text[3 * i] = (char)(0xe0 | code >> 12);
    text[3 * i + 1] = (char)(0x80 | (code >> 6 & 0x3f));
    text[3 * i + 2] = (char)(0x80 | (code & 0x3f));
  }
  file_write("long", text, 3 * COUNT);
  CU_ASSERT_EQUAL_FATAL(import_run("text", "long", plain), TRM_OK); /* a tenth is the test split */
  int wrong = 0;
  for (int which = 0; which < 2; which++) {
    const int first = which ? COUNT - TEST : 0, count = which ? TEST : COUNT - TEST;
    struct split split;
    split_read(&split, which ? TRM_SPLIT_TEST : TRM_SPLIT_TRAIN, 1);
    CU_ASSERT_EQUAL_FATAL(split.dataset->rows, (size_t)count - 1);
    for (int i = 0; i < count; i++) {
      const int32_t token = i < count - 1 ? split.batch.tokens[i] : split.batch.target_class[i - 1];
      const char *name = split.dataset->class_names[token];
      wrong += strlen(name) != 3 || strncmp(name, text + 3 * (first + i), 3) != 0;
    }
    split_free(&split);
  }
  CU_ASSERT_EQUAL(wrong, 0);
  free(text);
  out_remove();
}

static void test_text_errors(void)
{
  static const char *const bad[][2] = {
    {"", "bad: the text is empty"},
    {"\xef\xbb\xbf", "bad: the text is empty"},
    {"a\nb\xe9\n", "bad:2: is not valid UTF-8: a character is cut short"},
    {"a\xc0\x80", "bad:1: is not valid UTF-8: a character in more bytes than it needs"},
    {"a\xe0\x9f\xbf", "more bytes than it needs"},
    {"a\xed\xa0\x80", "outside of Unicode"}, /* half a surrogate pair */
    {"\xf4\x90\x80\x80", "outside of Unicode"},
    {"\n\n\nab\xe2\x82", "bad:4: is not valid UTF-8: the last character is cut short"},
    {"ab\xff", "begins no character"},
    {"ab\x80", "begins no character"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    text_write("bad", bad[i][0]);
    import_fails("text", "bad", &plain, bad[i][1]);
  }
  file_write("bad", "a\0b", 3);
  import_fails("text", "bad", &plain, "NUL");
}

/* -- real files: in TRM_SHARED_DATA, or shared/ beside the sources */

static char *shared_folder(void)
{
  const char *given = getenv("TRM_SHARED_DATA"), *sources = getenv("top_srcdir");
  char *path = given ? trm_strdup(given) : trm_format("%s/../shared/data", sources ? sources : ".");
  if (access(path, R_OK) != 0) {
    printf("\nSKIPPED: real files: there is no %s (TRM_SHARED_DATA names the folder)\n", path);
    trm_free(path);
    path = NULL;
  }
  return path;
}

static void test_real(void)
{
  static const struct {
    const char *format, *names; /* %s: the folder */
    size_t train, test, classes;
    const char *shape;
  } real[] = {
    {"mnist", "%s/fashion-mnist", 60000, 10000, 10, "(1, 28, 28)"},
    {"libsvm", "%s/a9a/a9a.libsvm.gz %s/a9a/a9a.t.libsvm.gz", 32561, 16281, 2, "(123)"},
    {"libsvm", "%s/mushrooms/mushrooms.libsvm.gz", 7312, 812, 2, "(112)"},
    {"libsvm", "%s/news20/news20.libsvm.gz", 14341, 1594, 20, "(62061)"},
    {"text", "%s/tinyshakespeare/input.txt.gz", 1003854, 111538, 65, NULL}, /* the last has no target */
  };
  char *shared = shared_folder();
  for (size_t i = 0; shared && i < sizeof real / sizeof *real; i++) {
    char names[1024];
    char *at = names;
    for (const char *c = real[i].names; *c; c++)
      if (c[0] == '%')
        at += snprintf(at, 400, "%s", shared), c++;
      else
        *at++ = *c;
    *at = '\0';
    if (access(names, F_OK) != 0 && !strchr(names, ' ')) {
      printf("\nSKIPPED: there is no %s\n", names);
      continue;
    }
    struct trm_import_request request = {.target = "class", .test_part = strchr(names, ' ') ? -1 : 0.1};
    CU_ASSERT_EQUAL_FATAL(import_run(real[i].format, names, request), TRM_OK);
    for (int which = 0; which < 2; which++) {
      struct split split;
      split_read(&split, which ? TRM_SPLIT_TEST : TRM_SPLIT_TRAIN, 1);
      CU_ASSERT_EQUAL(split.dataset->rows, which ? real[i].test : real[i].train);
      CU_ASSERT_EQUAL(split.dataset->spec.classes, real[i].classes);
      if (real[i].shape)
        CU_ASSERT_STRING_EQUAL(trm_shape_text(&split.dataset->spec.shape), real[i].shape);
      split_free(&split);
    }
    out_remove();
  }
  trm_free(shared);
  CU_PASS();
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"reader: lines", test_reader},
    {"reader: unreadable files", test_reader_errors},
    {"clusters", test_clusters},
    {"libsvm", test_libsvm},
    {"libsvm: many rows", test_libsvm_many},
    {"libsvm: errors", test_libsvm_errors},
    {"csv", test_csv},
    {"csv: errors", test_csv_errors},
    {"the test split of a single file", test_split},
    {"text", test_text},
    {"text: many characters", test_text_long},
    {"text: errors", test_text_errors},
    {"real files", test_real},
    CU_TEST_INFO_NULL,
  };
  return import_suite("import", tests);
}

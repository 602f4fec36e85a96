/* Images: rendered digits; importers of image formats with small and damaged files. */
#include <math.h>

#include "core/sha256.h"
#include "datasets/digits.h"
#include "import_files.h"

#define DIGITS_SHA256 "8029a8154a6ca38c804a6b2647dadbb5ee7f044d26be9584cae46c08948765b6"

/* -- digits */

enum { PIXELS = TRM_DIGIT_SIDE * TRM_DIGIT_SIDE };

/* The bytes of version 1 do not depend on compiler, flags or machine. */
static void test_digits_bytes(void)
{
  struct trm_sha256 hash;
  trm_sha256_begin(&hash);
  for (uint32_t split = 0; split < 2; split++)
    for (uint64_t i = 0; i < 1000; i++) {
      uint8_t sample[PIXELS + 1];
      sample[PIXELS] = (uint8_t)trm_digit_draw(1, split, i * 61, sample);
      trm_sha256_add(&hash, sample, sizeof sample);
    }
  char hex[65];
  trm_sha256_end(&hash, hex);
  CU_ASSERT_STRING_EQUAL(hex, DIGITS_SHA256);
}

static void test_digits_pure(void)
{
  uint8_t one[PIXELS], other[PIXELS];
  const int label = trm_digit_draw(7, 0, 123456789, one);
  CU_ASSERT_EQUAL(trm_digit_draw(7, 0, 123456789, other), label);
  CU_ASSERT_EQUAL(memcmp(one, other, PIXELS), 0);
  trm_digit_draw(8, 0, 123456789, other);
  CU_ASSERT_NOT_EQUAL(memcmp(one, other, PIXELS), 0);
  trm_digit_draw(7, 1, 123456789, other);
  CU_ASSERT_NOT_EQUAL(memcmp(one, other, PIXELS), 0);
  trm_digit_draw(7, 0, 123456790, other);
  CU_ASSERT_NOT_EQUAL(memcmp(one, other, PIXELS), 0);
}

/* Labels are balanced in every thousand, in random order, and match the images: the nearest mean image of 2,000
 * training images predicts the digit far better than chance, but far from perfectly. */
static void test_digits_labels(void)
{
  enum { TRAIN = 2000, TEST = 1000 };
  static double mean[10][PIXELS];
  int counts[TRAIN / 1000][10] = {{0}}, right = 0, repeats = 0;
  uint8_t pixels[PIXELS];
  int before[10] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
  for (int i = 0; i < TRAIN; i++) {
    const int label = trm_digit_draw(3, 0, (uint64_t)i, pixels);
    CU_ASSERT_FATAL(label >= 0 && label < 10);
    counts[i / 1000][label]++;
    repeats += before[i % 10] == label;
    before[i % 10] = label;
    for (int p = 0; p < PIXELS; p++)
      mean[label][p] += pixels[p] / (double)(TRAIN / 10);
  }
  for (int digit = 0; digit < 10; digit++)
    for (int part = 0; part < TRAIN / 1000; part++)
      CU_ASSERT_EQUAL(counts[part][digit], 100);
  CU_ASSERT(repeats > TRAIN / 20 && repeats < TRAIN / 5); /* by chance one in ten */
  for (int i = 0; i < TEST; i++) {
    const int label = trm_digit_draw(3, 1, (uint64_t)i, pixels);
    int nearest = 0;
    double least = INFINITY;
    for (int digit = 0; digit < 10; digit++) {
      double distance = 0;
      for (int p = 0; p < PIXELS; p++)
        distance += (pixels[p] - mean[digit][p]) * (pixels[p] - mean[digit][p]);
      if (distance < least) {
        least = distance;
        nearest = digit;
      }
    }
    right += nearest == label;
  }
  CU_ASSERT(right > TEST / 2 && right < TEST * 9 / 10);
}

static void test_digits_file(void)
{
  struct trm_import_request request = {.seed = 5, .train = 5000, .test = 30};
  CU_ASSERT_EQUAL_FATAL(import_run("digits", "", request), TRM_OK);
  for (uint32_t which = 0; which < 2; which++) {
    struct split split;
    split_read(&split, which ? TRM_SPLIT_TEST : TRM_SPLIT_TRAIN, 1);
    CU_ASSERT_EQUAL(split.dataset->rows, which ? 30 : 5000);
    CU_ASSERT_EQUAL(split.dataset->spec.classes, 10);
    CU_ASSERT_STRING_EQUAL(trm_shape_text(&split.dataset->spec.shape), "(1, 28, 28)");
    CU_ASSERT_STRING_EQUAL(split.dataset->class_names[7], "7");
    for (size_t i = 0; i < split.dataset->rows; i += which ? 1 : 499) {
      uint8_t pixels[PIXELS];
      CU_ASSERT_EQUAL(split.batch.target_class[i], trm_digit_draw(5, which, i, pixels));
      int wrong = 0;
      for (int p = 0; p < PIXELS; p++)
        wrong += fabsf(split.batch.dense[i * PIXELS + (size_t)p] * 255 - pixels[p]) > 1e-3f;
      CU_ASSERT_EQUAL(wrong, 0);
    }
    split_free(&split);
  }
  /* an existing file is kept unless the request allows overwriting; the same seed gives the same digest */
  CU_ASSERT_EQUAL(import_run("digits", "", request), TRM_USAGE);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "overwrite"));
  request.overwrite = true;
  request.train = 20;
  CU_ASSERT_EQUAL(import_run("digits", "", request), TRM_OK);
  struct split split;
  split_read(&split, TRM_SPLIT_TRAIN, 1);
  CU_ASSERT_EQUAL(split.dataset->rows, 20);
  split_free(&split);
  out_remove();
}

/* -- images */

static const char images[] = "\0\0\10\3\0\0\0\3\0\0\0\2\0\0\0\1" "\0\1" "\144\200" "\377\376";
static const char labels[] = "\0\0\10\1\0\0\0\3" "\7\0\11";
enum { IMAGES = 16 + 6, LABELS = 8 + 3 };

static void images_check(void)
{
  static const float want[] = {0, 1, 100, 128, 255, 254};
  static const int32_t classes[] = {7, 0, 9};
  for (int which = 0; which < 2; which++) {
    struct split split;
    split_read(&split, which ? TRM_SPLIT_TEST : TRM_SPLIT_TRAIN, 1);
    CU_ASSERT_EQUAL(split.dataset->rows, 3);
    CU_ASSERT_STRING_EQUAL(trm_shape_text(&split.dataset->spec.shape), "(1, 2, 1)");
    for (int i = 0; i < 6; i++)
      CU_ASSERT_DOUBLE_EQUAL(split.batch.dense[i], want[i] / 255, 1e-7);
    CU_ASSERT_EQUAL(memcmp(split.batch.target_class, classes, sizeof classes), 0);
    split_free(&split);
  }
  out_remove();
}

static void test_mnist(void)
{
  file_write("train-images-idx3-ubyte", images, IMAGES);
  file_write("train-labels.idx1-ubyte", labels, LABELS);
  file_write("t10k-images-idx3-ubyte", images, IMAGES);
  import_fails("mnist", ".", &plain, "t10k-labels-idx1-ubyte");
#ifdef HAVE_ZLIB
  file_gzip("t10k-labels-idx1-ubyte.gz", labels, LABELS);
#else
  file_write("t10k-labels-idx1-ubyte", labels, LABELS);
#endif
  CU_ASSERT_EQUAL_FATAL(import_run("mnist", ".", plain), TRM_OK);
  images_check();
  file_write("im", images, IMAGES);
  file_write("lab", labels, LABELS);
  CU_ASSERT_EQUAL_FATAL(import_run("mnist", "im lab im lab", plain), TRM_OK);
  images_check();

  import_fails("mnist", "lab im", &plain, "lab: is not an IDX file of images: magic number 0x00000801");
  import_fails("mnist", "im im", &plain, "im: is not an IDX file of labels");
  import_fails("mnist", "im", &plain, "IMAGES LABELS");
  import_fails("mnist", "im lab im", &plain, "IMAGES LABELS");
  file_write("cut", images, IMAGES - 1);
  import_fails("mnist", "cut lab", &plain, "cut: the IDX file is cut short: it promises 3 items and holds 2");
  import_fails("mnist", "im lab cut lab", &plain, "cut: the IDX file is cut short");
  file_write("cut", images, 15);
  import_fails("mnist", "cut lab", &plain, "cut: the IDX file is cut short: 15 bytes");
  file_write("cut", images, 0);
  import_fails("mnist", "cut lab", &plain, "cut: the IDX file is cut short: 0 bytes");
  file_write("huge", "\0\0\10\3\0\0\0\3\0\0\100\0\0\0\100\0" "\0\1\144\200\377\376", IMAGES);
  import_fails("mnist", "huge lab", &plain, "huge: the IDX file is cut short: it promises images of 16384 x 16384");
  file_write("long", labels, sizeof labels); /* one byte too long: the NUL */
  import_fails("mnist", "im long", &plain, "long: there are bytes after the last of 3 items");
  file_write("two", "\0\0\10\1\0\0\0\2\1\2", 10);
  import_fails("mnist", "im two", &plain, "has 3 images");
  file_write("ten", "\0\0\10\1\0\0\0\3\1\12\2", 11);
  import_fails("mnist", "im ten", &plain, "ten: label 10 of item 1 is not within 0..9");
  file_write("wide", "\0\0\10\3\0\0\0\3\0\0\0\1\0\0\0\2" "\0\1\144\200\377\376", IMAGES);
  import_fails("mnist", "im lab wide lab", &plain, "wide: images of 1 x 2 pixels, the train images have 2 x 1");

  struct trm_import_request named = plain;
  named.names = "a,b";
  import_fails("mnist", "im lab", &named, "--names: gives 2 names, but the rows have 10 classes");
  named.names = "a,b,c,d,e,f,g,h,i,j j";
  CU_ASSERT_EQUAL_FATAL(import_run("mnist", "im lab", named), TRM_OK);
  struct split split;
  split_read(&split, TRM_SPLIT_TRAIN, 1);
  CU_ASSERT_STRING_EQUAL(split.dataset->class_names[9], "j j");
  split_free(&split);
  out_remove();
}

static void test_cifar10(void)
{
  enum { RECORD = 3073, RECORDS = 3 };
  uint8_t records[RECORDS * RECORD];
  for (int batch = 0; batch < 6; batch++) {
    for (size_t i = 0; i < sizeof records; i++)
      records[i] = (uint8_t)made_mix((uint64_t)batch, i);
    for (int i = 0; i < RECORDS; i++)
      records[i * RECORD] = (uint8_t)((batch * RECORDS + i) % 10);
    char name[32];
    snprintf(name, sizeof name, batch < 5 ? "data_batch_%d.bin" : "test_batch.bin", batch + 1);
    file_write(name, records, batch < 5 ? sizeof records : sizeof records - RECORD);
  }
  for (int named = 0; named < 2; named++) {
    if (named)
      file_write("batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n", 21);
    const char *files = named ? "." : "data_batch_1.bin data_batch_2.bin test_batch.bin";
    CU_ASSERT_EQUAL_FATAL(import_run("cifar10", files, plain), TRM_OK);
    struct split split;
    split_read(&split, TRM_SPLIT_TRAIN, 1);
    CU_ASSERT_EQUAL(split.dataset->rows, (named ? 5 : 2) * RECORDS);
    CU_ASSERT_STRING_EQUAL(trm_shape_text(&split.dataset->spec.shape), "(3, 32, 32)");
    CU_ASSERT_STRING_EQUAL(split.dataset->class_names[9], named ? "j" : "truck");
    CU_ASSERT_EQUAL(split.batch.target_class[4], 4);
    CU_ASSERT_DOUBLE_EQUAL(split.batch.dense[4 * 3072 + 1000] * 255, (uint8_t)made_mix(1, RECORD + 1001), 1e-3);
    split_free(&split);
    split_read(&split, TRM_SPLIT_TEST, 1);
    CU_ASSERT_EQUAL(split.dataset->rows, RECORDS - 1);
    split_free(&split);
    out_remove();
  }
  file_write("batches.meta.txt", "a\nb\n", 4);
  import_fails("cifar10", ".", &plain, "batches.meta.txt: 2 class names");
  file_write("short.bin", records, RECORD + 100);
  import_fails("cifar10", "data_batch_1.bin short.bin", &plain, "short.bin: is not a CIFAR-10 batch: 3173 bytes");
  file_write("empty.bin", records, 0);
  import_fails("cifar10", "empty.bin", &plain, "empty.bin: is not a CIFAR-10 batch");
  records[RECORD] = 10;
  file_write("label.bin", records, 2 * RECORD);
  import_fails("cifar10", "label.bin", &plain, "label.bin: label 10 of record 1");
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"digits: the bytes of version 1", test_digits_bytes},
    {"digits: a function of seed, split and number", test_digits_pure},
    {"digits: labels", test_digits_labels},
    {"digits: the file", test_digits_file},
    {"mnist", test_mnist},
    {"cifar10", test_cifar10},
    CU_TEST_INFO_NULL,
  };
  return import_suite("images", tests);
}

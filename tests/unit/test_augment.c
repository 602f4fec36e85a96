/* Augmentation: pixels equal those computed from the definition with the same random numbers, for any sharding of a
 * batch, in memory or streamed. For 1 or more ranks. */
#include <math.h>
#include <stdlib.h>

#include "core/random.h"
#include "datasets/loader.h"
#include "job_folder.h"

static struct trm_options options_of(int64_t memory, int64_t pad, bool flip)
{
  return (struct trm_options){
    .data = {.shuffle = true, .memory = memory, .threads = 1, .context = 10, .pad = pad, .flip = flip},
    .train = {.batch = 100}, .parallel = {.share = TRM_SHARE_NODE}, .run = {.seed = 5},
  };
}

/* Writes images (C, H, W) with pseudo-random values: bytes, or floats. */
static char *images_make(const char *name, bool bytes, const size_t size[3], size_t rows)
{
  char *path = trm_format("%s/%s", folder, name);
  int status = TRM_OK;
  if (world->rank == 0) {
    struct trm_data_spec spec;
    made_spec(bytes ? MADE_BYTES : MADE_FLOATS, 1, 0, &spec);
    spec.kind = TRM_DATA_IMAGE;
    spec.shape = (struct trm_shape){.dims = 3, .size = {size[0], size[1], size[2]}};
    struct trm_data_writer *writer;
    status = trm_data_writer_open(&writer, path, &spec);
    for (int split = 0; split < 2 && status == TRM_OK; split++)
      if ((status = trm_data_writer_split(writer, split ? "test" : "train")) == TRM_OK)
        status = made_append(writer, bytes ? MADE_BYTES : MADE_FLOATS, size[0] * size[1] * size[2], 0, rows);
    if (status == TRM_OK)
      status = trm_data_writer_finish(writer, 0);
  }
  CU_ASSERT_EQUAL_FATAL(trm_agree(world, status), TRM_OK);
  return path;
}

/* Computes a pixel of the augmented image by definition: the crop starts at (down, right) of the padded image. */
static float pixel(const float *image, const size_t size[3], float zero, const uint32_t word[4], size_t pad, bool flip,
                   size_t plane, size_t y, size_t x)
{
  const size_t down = (size_t)((uint64_t)word[0] * (2 * pad + 1) >> 32);
  const size_t right = (size_t)((uint64_t)word[1] * (2 * pad + 1) >> 32);
  if (flip && word[2] >= 0x80000000u)
    x = size[2] - 1 - x;
  const long from_y = (long)(y + down) - (long)pad, from_x = (long)(x + right) - (long)pad;
  const bool inside = from_y >= 0 && from_y < (long)size[1] && from_x >= 0 && from_x < (long)size[2];
  return inside ? image[(plane * size[1] + (size_t)from_y) * size[2] + (size_t)from_x] : zero;
}

/* Two epochs in batches of 100, sharded over the ranks: compares every pixel with augmentation of the plain rows. */
static void check_pixels(const char *path, bool bytes, const size_t size[3], int64_t memory, bool shuffle,
                         int64_t pad, bool flip)
{
  struct trm_dataset *plain, *moved;
  struct trm_options options = options_of(memory, 0, false);
  options.data.shuffle = shuffle;
  CU_ASSERT_EQUAL_FATAL(trm_dataset_hdf5.open(&plain, path, TRM_SPLIT_TRAIN, &options, world), TRM_OK);
  options.data.pad = pad;
  options.data.flip = flip;
  CU_ASSERT_EQUAL_FATAL(trm_dataset_hdf5.open(&moved, path, TRM_SPLIT_TRAIN, &options, world), TRM_OK);
  const size_t width = size[0] * size[1] * size[2];
  size_t wrong = 0, same = 0, mirrored = 0, seen = 0;
  struct trm_host_batch a = {0}, b = {0};
  for (uint64_t epoch = 0; epoch < 2; epoch++)
    for (size_t at = 0; at < plain->rows; at += 100) {
      size_t from, to;
      const size_t batch = plain->rows - at < 100 ? plain->rows - at : 100;
      trm_interval(batch, (size_t)world->size, (size_t)world->rank, &from, &to);
      CU_ASSERT_EQUAL_FATAL(plain->ops->fetch(plain, epoch, at + from, at + to, &a), TRM_OK);
      CU_ASSERT_EQUAL_FATAL(moved->ops->fetch(moved, epoch, at + from, at + to, &b), TRM_OK);
      CU_ASSERT_EQUAL_FATAL(b.rows, to - from);
      for (size_t i = 0; i < to - from; i++) {
        uint32_t word[4];
        trm_random_block(5, TRM_RANDOM_AUGMENT, (uint32_t)epoch, at + from + i, word);
        wrong += a.target_class[i] != b.target_class[i];
        for (size_t j = 0; j < width; j++)
          wrong += b.dense[i * width + j] != pixel(a.dense + i * width, size, bytes ? MADE_SHIFT : 0, word, (size_t)pad,
                                                   flip, j / (size[1] * size[2]), j / size[2] % size[1], j % size[2]);
        same += !memcmp(a.dense + i * width, b.dense + i * width, width * sizeof *a.dense);
        mirrored += word[2] >> 31;
        seen++;
      }
    }
  CU_ASSERT_EQUAL(wrong, 0);
  /* one of (2 pad + 1)^2 crops is the image itself; every second image is mirrored */
  const size_t half = seen / 2, some = seen / 8;
  CU_ASSERT(pad ? same < seen / 4 : same > half - some && same < half + some);
  CU_ASSERT(mirrored > half - some && mirrored < half + some);
  trm_host_batch_free(&a);
  trm_host_batch_free(&b);
  plain->ops->close(plain);
  moved->ops->close(moved);
}

static void test_pixels(void)
{
  const size_t small[] = {3, 9, 7}, grey[] = {1, 28, 28};
  char *floats = images_make("floats.h5", false, small, 1003), *bytes = images_make("bytes.h5", true, grey, 5003);
  check_pixels(floats, false, small, 1 << 30, true, 4, true);
  check_pixels(floats, false, small, 1 << 30, false, 6, true);
  check_pixels(floats, false, small, 1 << 30, true, 0, true);
  check_pixels(bytes, true, grey, 1 << 30, true, 4, true);
  check_pixels(bytes, true, grey, 1 << 30, true, 2, false);
  check_pixels(bytes, true, grey, 1 << 20, true, 4, true); /* shuffle windows */
  check_pixels(bytes, true, grey, 1 << 20, false, 4, true);  /* read directly */
  trm_free(floats);
  trm_free(bytes);
}

/* -- parts, colors */

/* Values that PyTorch computes (tests/reference/make_augment.py). */
static void test_recorded(void)
{
  enum { C = 3, H = 11, W = 9, N = C * H * W };
  static const float scale = 0.25f, shift = -2;
  struct loader loader = {.head = {.scale = scale, .shift = shift}, .x_type = BLOCK_UINT8,
                          .augment = {.channels = C, .height = H, .width = W}};
  const char *top = getenv("top_srcdir");
  char *path = trm_format("%s/tests/reference/augment.txt", top ? top : "."), line[64];
  FILE *file = fopen(path, "r");
  unsigned char image[N];
  float got[N], factor[3];
  int cases = 0, first, second;
  double worst = 0;
  CU_ASSERT_PTR_NOT_NULL_FATAL(file);
  for (int i = 0; i < N; i++)
    image[i] = (unsigned char)((7 * (i / (H * W)) + 31 * (i / W % H) + 13 * (i % W) + i % W * (i / W % H)) % 251);
  for (; fgets(line, sizeof line, file); cases++) {
    struct augment_box box;
    const bool resizes = sscanf(line, "resize %zu %zu %zu %zu", &box.top, &box.left, &box.height, &box.width) == 4;
    if (resizes) {
      augment_resize(&loader, &box, image, got);
      for (int i = 0; i < N; i++)
        got[i] = (got[i] - shift) / scale;
    } else {
      CU_ASSERT_EQUAL_FATAL(sscanf(line, "colors %f %f %f %d %d", &factor[0], &factor[1], &factor[2], &first, &second), 5);
      for (int i = 0; i < N; i++)
        got[i] = (float)image[i] / 255;
      augment_colors(got, C, H * W, factor, first, second);
    }
    for (int i = 0; i < N; i++) {
      double want;
      CU_ASSERT_EQUAL_FATAL(fscanf(file, "%lf", &want), 1);
      worst = fmax(worst, fabs((double)got[i] - want) / (resizes ? 255 : 1));
    }
    CU_ASSERT_FATAL(fscanf(file, " ") == 0);
  }
  CU_ASSERT_EQUAL(cases, 10);
  CU_ASSERT(worst < 1e-6);
  fclose(file);
  trm_free(path);
}

/* Parts as drawn: inside the image, of the area and the aspect that are asked for, everywhere. */
static void test_boxes(void)
{
  enum { H = 120, W = 160, N = 4000 };
  struct loader loader = {.augment = {.crop = 0.2, .channels = 1, .height = H, .width = W, .seed = 3}};
  double area = 0, down = 0;
  int wrong = 0, tall = 0;
  for (uint64_t i = 0; i < N; i++) {
    const struct augment_box box = augment_draw_box(&loader, i);
    const double part = (double)(box.height * box.width) / (H * W), aspect = (double)box.width / (double)box.height;
    wrong += box.top + box.height > H || box.left + box.width > W || part < 0.19 || aspect < 0.73 || aspect > 1.37;
    area += part / N;
    tall += box.height > box.width;
    down += box.height < H ? (double)box.top / (double)(H - box.height) / N : 0.5 / N;
  }
  CU_ASSERT_EQUAL(wrong, 0);
  CU_ASSERT(area > 0.487 && area < 0.507); /* 0.497: large parts often do not fit; by a separate simulation */
  CU_ASSERT(tall > N / 3 && tall < N / 2);
  CU_ASSERT(down > 0.48 && down < 0.52);
  loader.augment = (struct augment){.crop = 1, .channels = 1, .height = 20, .width = 100};
  const struct augment_box middle = augment_draw_box(&loader, 0); /* the whole is too wide */
  CU_ASSERT(middle.height == 20 && middle.width == 27 && middle.left == 36 && middle.top == 0);
}

/* Rows of a data set, sharded over the ranks, are those of the functions above at their position and epoch. */
static void test_parts_of_rows(void)
{
  const size_t size[] = {3, 12, 10}, width = 360;
  char *path = images_make("boxes.h5", true, size, 301);
  struct trm_options options = options_of(1 << 30, 0, true);
  struct trm_dataset *plain, *moved;
  struct trm_host_batch a = {0}, b = {0};
  size_t low, high, wrong = 0, changed = 0;
  options.data.flip = false;
  CU_ASSERT_EQUAL_FATAL(trm_dataset_hdf5.open(&plain, path, TRM_SPLIT_TRAIN, &options, world), TRM_OK);
  options.data.crop = 0.3;
  CU_ASSERT_EQUAL_FATAL(trm_dataset_hdf5.open(&moved, path, TRM_SPLIT_TRAIN, &options, world), TRM_OK);
  struct loader floats = *(struct loader *)moved;
  floats.x_type = BLOCK_FLOAT;
  floats.epoch = 1;
  trm_interval(100, (size_t)world->size, (size_t)world->rank, &low, &high);
  CU_ASSERT_EQUAL_FATAL(plain->ops->fetch(plain, 1, 100 + low, 100 + high, &a), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(moved->ops->fetch(moved, 1, 100 + low, 100 + high, &b), TRM_OK);
  for (size_t i = 0; i < high - low; i++) {
    float want[360];
    const struct augment_box box = augment_draw_box(&floats, 100 + low + i);
    augment_resize(&floats, &box, (const unsigned char *)(a.dense + i * width), want);
    for (size_t j = 0; j < width; j++)
      wrong += fabsf(b.dense[i * width + j] - want[j]) > 1e-4f;
    changed += memcmp(a.dense + i * width, want, sizeof want) != 0;
  }
  CU_ASSERT_EQUAL(wrong, 0);
  CU_ASSERT(changed > (high - low) / 2);
  moved->ops->close(moved);
  options.data.crop = 0;
  options.data.jitter = 0.4;
  CU_ASSERT_EQUAL_FATAL(trm_dataset_hdf5.open(&moved, path, TRM_SPLIT_TRAIN, &options, world), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(moved->ops->fetch(moved, 1, 100 + low, 100 + high, &b), TRM_OK);
  double sum = 0, square = 0;
  for (size_t i = 0; i < high - low; i++) {
    double mean[2] = {0, 0};
    for (size_t j = 0; j < width; j++) {
      const float x = b.dense[i * width + j];
      wrong += !(x >= MADE_SHIFT && x <= MADE_SHIFT + 255 * MADE_SCALE);
      mean[0] += (double)(a.dense[i * width + j] - MADE_SHIFT) / (double)width;
      mean[1] += (double)(x - MADE_SHIFT) / (double)width;
    }
    sum += mean[1] / mean[0] / (double)(high - low); /* brightness moves the mean, the others hardly */
    square += pow(mean[1] / mean[0] - 1, 2) / (double)(high - low);
  }
  CU_ASSERT_EQUAL(wrong, 0);
  CU_ASSERT(sum > 0.85 && sum < 1.1);
  CU_ASSERT(sqrt(square) > 0.12 && sqrt(square) < 0.3); /* 0.4 / sqrt(3) = 0.23, less what is clamped */
  trm_host_batch_free(&a);
  trm_host_batch_free(&b);
  plain->ops->close(plain);
  moved->ops->close(moved);
  trm_free(path);
}

/* A batch fetched whole, in parts, and by a run resumed in its middle. */
static void test_parts(void)
{
  const size_t size[] = {2, 8, 8};
  char *path = images_make("parts.h5", true, size, 300);
  const struct trm_options options = options_of(1 << 30, 3, true);
  struct trm_dataset *data, *resumed;
  struct trm_comm *alone = trm_comm_self();
  CU_ASSERT_EQUAL_FATAL(trm_dataset_hdf5.open(&data, path, TRM_SPLIT_TRAIN, &options, alone), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(trm_dataset_hdf5.open(&resumed, path, TRM_SPLIT_TRAIN, &options, alone), TRM_OK);
  struct trm_host_batch whole = {0}, part = {0}, other = {0};
  CU_ASSERT_EQUAL(data->ops->fetch(data, 3, 0, 200, &whole), TRM_OK);
  size_t wrong = 0;
  for (size_t at = 0, n = 1; at < 200; at += n, n = n * 2 % 37 + 1) {
    n = n < 200 - at ? n : 200 - at;
    CU_ASSERT_EQUAL(data->ops->fetch(data, 3, at, at + n, &part), TRM_OK);
    wrong += memcmp(part.dense, whole.dense + at * 128, n * 128 * sizeof(float)) != 0;
  }
  CU_ASSERT_EQUAL(resumed->ops->fetch(resumed, 3, 117, 200, &other), TRM_OK);
  wrong += memcmp(other.dense, whole.dense + 117 * 128, 83 * 128 * sizeof(float)) != 0;
  CU_ASSERT_EQUAL(wrong, 0);
  trm_host_batch_free(&whole);
  trm_host_batch_free(&part);
  trm_host_batch_free(&other);
  data->ops->close(data);
  resumed->ops->close(resumed);
  trm_free(path);
}

/* Rows of the test split are not augmented. */
static void test_test_split(void)
{
  const size_t size[] = {2, 8, 8};
  char *path = images_make("test.h5", true, size, 50);
  const struct trm_options options = options_of(1 << 30, 3, true);
  struct trm_dataset *data;
  CU_ASSERT_EQUAL_FATAL(trm_dataset_hdf5.open(&data, path, TRM_SPLIT_TEST, &options, world), TRM_OK);
  struct trm_host_batch batch = {0};
  CU_ASSERT_EQUAL(data->ops->fetch(data, 0, 0, 50, &batch), TRM_OK);
  for (size_t i = 0; i < 50; i++)
    CU_ASSERT(made_is_row(MADE_BYTES, 128, 0, &batch, i, i));
  trm_host_batch_free(&batch);
  data->ops->close(data);
  trm_free(path);
}

static void check_refused(const char *path, int64_t pad, bool flip, const char *what)
{
  struct trm_dataset *data;
  const struct trm_options options = options_of(1 << 30, pad, flip);
  CU_ASSERT_EQUAL(trm_dataset_hdf5.open(&data, path, TRM_SPLIT_TRAIN, &options, world), TRM_USAGE);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), what));
}

static void test_refused(void)
{
  static const struct {
    enum made_kind kind;
    const char *what;
  } kinds[] = {{MADE_FLOATS, "data.flip is for images (C, H, W); the samples of "},
               {MADE_CSR, "are sparse rows, (1000)"}, {MADE_TOKENS, "are tokens"}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    char *path = trm_format("%s/kind%zu.h5", folder, i);
    const int made = world->rank == 0 ? made_file(path, kinds[i].kind, 20, 3000, 0, 0) : TRM_OK;
    CU_ASSERT_EQUAL(trm_agree(world, made), TRM_OK);
    check_refused(path, 0, true, kinds[i].what);
    trm_free(path);
  }
  const size_t size[] = {1, 9, 5};
  char *path = images_make("small.h5", true, size, 20);
  check_refused(path, 5, false, "data.pad: 5 must be less than the sides of the images of ");
  trm_free(path);
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"folder", job_folder},
    {"pixels", test_pixels},
    {"recorded parts and colors", test_recorded},
    {"parts that are drawn", test_boxes},
    {"parts and colors of rows", test_parts_of_rows},
    {"parts of a batch", test_parts},
    {"the test split", test_test_split},
    {"refused settings", test_refused},
    {"folder, removed", job_folder_remove},
    CU_TEST_INFO_NULL,
  };
  return ranks_run(argc, argv, "augment", tests);
}

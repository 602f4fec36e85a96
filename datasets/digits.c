/* `trireme data make digits`: a data set of rendered digits, without a download. */
#include "datasets/digits.h"

#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "datasets/import.h"

#define CHUNK 4096 /* samples drawn before they are written */
#define PIXELS ((size_t)TRM_DIGIT_SIDE * TRM_DIGIT_SIDE)
#define MAX_SAMPLES ((uint64_t)1 << 31) /* of a split: 1.6 TB, and the random streams of labels stay apart */

/* Samples from `first` on. */
struct drawing {
  uint64_t seed;
  uint32_t split;
  uint64_t first;
  uint8_t *pixels;
  int32_t *digit;
};

static void digits_draw_body(const void *context, size_t low, size_t high)
{
  const struct drawing *it = context;
  for (size_t i = low; i < high; i++)
    it->digit[i] = trm_digit_draw(it->seed, it->split, it->first + i, it->pixels + i * PIXELS);
}

static int digits_split_draw(struct trm_data_writer *writer, uint64_t seed, uint32_t split, uint64_t samples,
                             uint8_t *pixels, int32_t *digit)
{
  TRM_CHECK(trm_data_writer_split(writer, split == 0 ? "train" : "test"));
  for (uint64_t first = 0; first < samples; first += CHUNK) {
    const int count = (int)(samples - first < CHUNK ? samples - first : CHUNK);
    const struct drawing drawing = {seed, split, first, pixels, digit};
    trm_parallel_for(trm_parallel_default(), (size_t)count, digits_draw_body, &drawing);
    const struct trm_data_rows rows = {.rows = (size_t)count, .bytes = pixels, .target_class = digit};
    TRM_CHECK(trm_data_writer_append(writer, &rows));
  }
  return TRM_OK;
}

int trm_import_digits(const struct trm_import_request *request)
{
  const uint64_t train = request->train ? request->train : 60000, test = request->test ? request->test : 10000;
  if (train > MAX_SAMPLES || test > MAX_SAMPLES)
    return trm_error(TRM_USAGE, "digits: a split has at most %llu samples", (unsigned long long)MAX_SAMPLES);
  char *source = trm_format("rendered digits, version 1, seed %llu", (unsigned long long)request->seed);
  const struct trm_shape shape = {.dims = 3, .size = {1, TRM_DIGIT_SIDE, TRM_DIGIT_SIDE}};
  struct trm_data_writer *writer;
  int status = trm_import_begin_images(request, shape, trm_digit_names, source, &writer);
  trm_free(source);
  TRM_CHECK(status);
  uint8_t *pixels = trm_alloc(CHUNK * PIXELS, "drawn digits");
  int32_t *digit = trm_alloc(CHUNK * sizeof *digit, "drawn labels");
  status = digits_split_draw(writer, request->seed, 0, train, pixels, digit);
  if (status == TRM_OK)
    status = digits_split_draw(writer, request->seed, 1, test, pixels, digit);
  trm_free(pixels);
  trm_free(digit);
  return trm_import_end(writer, status, 0);
}

/* Scores of a growing text, by the cache: those of a pass over the whole text, beyond the context too. */
#include <math.h>
#include <string.h>

#include "core/status.h"
#include "nn/decoder.h"
#include "suite.h"
#include "support/nn_case.h"
#include "support/on_devices.h"

enum { CONTEXT = 12, WORDS = 7, TEXT = 17 };
static const int32_t text[TEXT] = {3, 1, 4, 1, 5, 2, 6, 5, 3, 5, 0, 2, 6, 6, 1, 0, 4};
static const struct trm_input_spec spec = {
  .shape = {.dims = 1, .size = {CONTEXT}}, .tokens = true, .target = TRM_TARGET_CLASS, .classes = WORDS};

/* Scores (WORDS) after n tokens, by a pass over the last of them. */
static void score_whole(struct nn_case *c, size_t n, float *scores)
{
  const size_t seen = n < CONTEXT ? n : CONTEXT;
  int32_t window[CONTEXT] = {0};
  void *tokens;
  memcpy(window, text + n - seen, seen * sizeof *window);
  CU_ASSERT_EQUAL_FATAL(c->device->ops->alloc(c->device, sizeof window, TRM_MEMORY_BUFFERS, &tokens), TRM_OK);
  c->device->ops->upload(c->device, tokens, window, sizeof window);
  const struct trm_input input = {.rows = 1, .tokens = tokens};
  const struct trm_pass pass = {.device = c->device, .input = &input};
  trm_model_forward(&c->model, &pass);
  trm_model_read_scores(&c->model, seen - 1, 1, scores);
  CU_ASSERT_EQUAL(c->device->ops->sync(c->device), TRM_OK);
  c->device->ops->release(c->device, tokens);
}

/* Sum of the squares of the scores' errors. */
static double squares(const float *scores, const float *exact)
{
  double sum = 0;
  for (int i = 0; i < WORDS; i++)
    sum += ((double)scores[i] - (double)exact[i]) * ((double)scores[i] - (double)exact[i]);
  return sum;
}

/* The text is given `first` tokens at once, then `step` at a time. */
static void check_text(struct trm_device *device, const char *model, enum trm_value_type values, size_t first,
                       size_t step)
{
  struct nn_case c;
  struct trm_decoder decoder;
  CU_ASSERT_EQUAL_FATAL(nn_case_open(&c, device, model, "auto", &spec, 1, 5), TRM_OK);
  float exact[TEXT + 1][WORDS], want[TEXT + 1][WORDS], scores[WORDS], begin[WORDS];
  double errors = 0, errors_whole = 0;
  for (size_t n = first; n <= TEXT; n++)
    score_whole(&c, n, exact[n]);
  CU_ASSERT_EQUAL_FATAL(trm_model_set_values(&c.model, values), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(trm_model_bind(&c.model, device, c.model.w, NULL, 1, false), TRM_OK);
  for (size_t n = first; n <= TEXT; n++)
    score_whole(&c, n, want[n]);
  CU_ASSERT_EQUAL_FATAL(trm_decoder_open(&decoder, &c.model), TRM_OK);
  for (size_t n = first; n <= TEXT; n += step) {
    CU_ASSERT_EQUAL(trm_decoder_score_next(&decoder, text, n, scores), TRM_OK);
    if (n == first)
      memcpy(begin, scores, sizeof begin);
    for (int i = 0; i < WORDS && values == TRM_VALUES_F32; i++)
      CU_ASSERT(fabsf(scores[i] - want[n][i]) <= 2e-6f);
    errors += squares(scores, exact[n]);
    errors_whole += squares(want[n], exact[n]);
    CU_ASSERT(n == first || memcmp(want[n], want[n - 1], sizeof want[n]) != 0);
  }
  if (values == TRM_VALUES_BF16) /* which rounds other sums than the whole pass, but no more of them */
    CU_ASSERT(errors > 0 && errors < 2 * errors_whole);
  /* another text, shorter: from its beginning */
  CU_ASSERT_EQUAL(trm_decoder_score_next(&decoder, text, first, scores), TRM_OK);
  CU_ASSERT(memcmp(scores, begin, sizeof scores) == 0);
  trm_decoder_close(&decoder);
  score_whole(&c, TEXT, scores); /* the model has its context again */
  CU_ASSERT(memcmp(scores, want[TEXT], sizeof scores) == 0);
  nn_case_close(&c);
}

static void texts(struct trm_device *device)
{
  static const char *const models[] = {
    "gpt layers=2 heads=2 dim=8 context=12",
    ("embedding 12 | mark a | rms_norm | linear 36 bias=no | rotary heads=3 | attention heads=3 | linear 12 | add a | "
     "head tied"),
    "embedding 6 | position | linear 18 | attention heads=1 | layer_norm | linear 18 | attention heads=2 | head"};
  static const size_t first[] = {1, 5, 14}; /* the last one is beyond the context */
  for (size_t m = 0; m < sizeof models / sizeof *models; m++)
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
      for (enum trm_value_type type = TRM_VALUES_F32; type <= TRM_VALUES_BF16; type++)
        for (size_t step = 1; step <= 3; step += 2)
          check_text(device, models[m], type, first[i], step);
}

static void test_texts(void)
{
  on_devices(texts);
}

int main(void)
{
  CU_TestInfo tests[] = {{"a text token by token", test_texts}, CU_TEST_INFO_NULL};
  return suite_run("decoder", tests);
}

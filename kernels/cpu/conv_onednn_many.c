/* Plans of several images (conv_onednn.h). What oneDNN computes of an image could depend on how many the primitive has,
 * by another order of additions: so both primitives are tried on random numbers first. */
#include <omp.h>
#include <string.h>

#include "core/memory.h"
#include "core/random.h"
#include "kernels/cpu/conv_onednn.h"

/* Random numbers around 0. */
static void *many_random(size_t n, bool bf16, int array)
{
  void *to = trm_alloc(n * sizeof(float), "a trial of oneDNN");
  uint32_t word[4] = {0};

  for (size_t i = 0; i < n; i++) {
    if (i % 4 == 0)
      trm_random_block(1, TRM_RANDOM_BENCH, (uint32_t)array, i / 4, word);
    const float x = trm_random_unit(word[i % 4]) - 0.5f;
    if (bf16)
      ((trm_bf16 *)to)[i] = trm_bf16_round(x);
    else
      ((float *)to)[i] = x;
  }
  return to;
}

/* Runs both on the same images; returns true if the results are equal to the bit. */
static bool many_agree(const struct conv_library *library, const struct conv_plan *one, const struct conv_plan *many)
{
  const struct conv_key *key = &many->key;
  const struct trm_window2d *o = &key->conv.window;
  const bool typed_bf16 = key->type == TRM_VALUES_BF16;
  const size_t value = trm_value_bytes((enum trm_value_type)key->type),
               image[] = {[CONV_SRC] = key->conv.channels * o->in[0] * o->in[1],
                          [CONV_DST] = key->units * o->out[0] * o->out[1]};
  const int result = key->pass == CONV_FORWARD ? CONV_DST : CONV_SRC, factor = CONV_SRC + CONV_DST - result;
  const size_t bytes = key->images * image[result] * value,
               work_bytes = one->work_bytes > many->work_bytes ? one->work_bytes : many->work_bytes;
  char *x = many_random(key->images * image[factor], typed_bf16, factor);
  char *addend = many_random(key->images * image[result], typed_bf16, CONV_ADDEND);
  void *w = many_random(many->array[CONV_KERNEL].bytes / (key->bf16 ? sizeof(trm_bf16) : sizeof(float)), key->bf16,
                        CONV_KERNEL);
  void *bias = many_random(key->units, false, CONV_BIAS);
  char *results = trm_alloc(2 * bytes, "a trial of oneDNN"), *work = trm_alloc(work_bytes, "a trial of oneDNN");
  const int threads = omp_get_max_threads();

  omp_set_num_threads(1);
  for (size_t i = 0; i <= key->images; i++) { /* one by one, and then all */
    const bool all = i == key->images;
    const size_t at = all ? 0 : i;
    const void *data[CONV_CALL] = {[CONV_KERNEL] = w, [CONV_BIAS] = bias};

    data[factor] = x + at * image[factor] * value;
    data[result] = results + all * bytes + at * image[result] * value;
    data[CONV_ADDEND] = addend + at * image[result] * value;
    conv_plan_run(all ? many : one, 0, library->stream[0], work, data, false);
  }
  omp_set_num_threads(threads);
  const bool agree = memcmp(results, results + bytes, bytes) == 0;
  trm_free(x);
  trm_free(addend);
  trm_free(w);
  trm_free(bias);
  trm_free(results);
  trm_free(work);
  return agree;
}

const struct conv_plan *conv_plan_of_many(struct conv_library *library, const struct conv_plan *one,
                                          const struct conv_key *key)
{
  const bool is_new = !conv_plan_look(library, key);
  struct conv_plan *many = conv_plan_of(library, key);

  if (many && is_new && !(conv_weights_match(one, many) && many_agree(library, one, many))) {
    conv_plan_discard(library, many);
    return NULL;
  }
  return many;
}

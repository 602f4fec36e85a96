/* Models: the text grammar and its errors, the flat array, initial weights, the hash. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/random.h"
#include "core/sha256.h"
#include "core/status.h"
#include "suite.h"
#include "support/nn_case.h"

static void test_layout(void)
{
  struct trm_model model;
  const char *layers = "linear 7 | relu | linear 5 bias=no | linear 10";
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, layers, "auto", &nn_ten_classes), TRM_OK);
  static const struct {
    const char *name;
    size_t offset, count;
    const char *shape;
  } expected[] = {
    {"layer0.weight", 64 + 16 + 48, 63, "(7, 9)"},
    {"layer0.bias", 64 + 16 + 48 + 64, 7, "(7)"},
    {"layer2.weight", 64 + 16, 35, "(5, 7)"},
    {"layer3.weight", 0, 50, "(10, 5)"},
    {"layer3.bias", 64, 10, "(10)"},
  };
  CU_ASSERT_EQUAL_FATAL(trm_model_parameter_count(&model), 5);
  for (int n = 0; n < 5; n++) {
    const struct trm_parameter *p = trm_model_parameter(&model, n);
    CU_ASSERT_STRING_EQUAL(p->name, expected[n].name);
    CU_ASSERT_EQUAL(p->offset, expected[n].offset);
    CU_ASSERT_EQUAL(p->count, expected[n].count);
    CU_ASSERT_STRING_EQUAL(trm_shape_text(&p->shape), expected[n].shape);
  }
  CU_ASSERT_PTR_NULL(trm_model_parameter(&model, 5));
  CU_ASSERT_PTR_NULL(trm_model_parameter(&model, -1));
  CU_ASSERT_EQUAL(model.parameters, 64 + 16 + 48 + 64 + 16);
  CU_ASSERT_EQUAL(trm_model_size(&model), 63 + 7 + 35 + 50 + 10);
  CU_ASSERT_EQUAL_FATAL(model.boundaries, 3);
  static const struct trm_tensor tensors[] = {
    {.end = 64}, {.end = 80, .vector = true}, {.end = 128}, {.end = 192}, {.end = 208, .vector = true}};
  CU_ASSERT_EQUAL_FATAL(model.tensors, 5);
  for (int t = 0; t < 5; t++) {
    CU_ASSERT_EQUAL(model.tensor[t].end, tensors[t].end);
    CU_ASSERT_EQUAL(model.tensor[t].vector, tensors[t].vector);
  }
  CU_ASSERT_EQUAL(model.boundary[0], 80);
  CU_ASSERT_EQUAL(model.boundary[1], 128);
  CU_ASSERT_EQUAL(model.boundary[2], 208);
  CU_ASSERT_FALSE(model.layer[0].needs_dx);
  CU_ASSERT_TRUE(model.layer[1].needs_dx);
  const struct trm_cost cost = trm_model_cost(&model);
  CU_ASSERT_EQUAL(cost.flop, 2 * 63 + 7 + 2 * 35 + 2 * 50);
  CU_ASSERT_EQUAL(cost.bytes, 4 * (9 + 7 + 14 + 7 + 5 + 5 + 10));
  char *text = trm_model_describe(&model);
  int lines = 0;
  for (const char *at = text; (at = strchr(at, '\n')); at++)
    lines++;
  CU_ASSERT_EQUAL(lines, 4);
  CU_ASSERT(strstr(text, "linear") && strstr(text, "relu"));
  CU_ASSERT(strstr(text, "(9) -> (7)") && strstr(text, "70 parameters"));
  trm_free(text);
  trm_model_free(&model);
}

/* A bias before batch norm is omitted, unless requested or its value has other readers. */
static void test_biases(void)
{
  static const struct {
    const char *text, *bias;
    bool there;
  } cases[] = {
    {"conv2d 3 3 | batch_norm | linear 5", "layer0.bias", false},
    {"conv2d 3 3 | batch_norm | linear 5", "layer2.bias", true},
    {"conv2d 3 3 bias=yes | batch_norm | linear 5", "layer0.bias", true},
    {"conv2d 3 3 | relu | batch_norm | linear 5", "layer0.bias", true},
    {"linear 6 | batch_norm | linear 5", "layer0.bias", false},
    {"conv2d 2 3 pad=1 | mark a | batch_norm | add a | linear 5", "layer0.bias", true},
    {"conv2d 2 3 pad=1 | mark a | batch_norm | mark b | at a | tanh | add b | linear 5", "layer0.bias", true},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct trm_model model;
    CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, cases[i].text, "auto", &nn_images), TRM_OK);
    bool there = false;
    for (int n = 0; n < trm_model_parameter_count(&model); n++)
      there |= strcmp(trm_model_parameter(&model, n)->name, cases[i].bias) == 0;
    CU_ASSERT_EQUAL(there, cases[i].there);
    CU_ASSERT_STRING_EQUAL(model.text, cases[i].text);
    trm_model_free(&model);
  }
}

static void test_init(void)
{
  struct trm_model model;
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, "linear 100 | relu | linear 10", "auto", &nn_ten_classes), TRM_OK);
  const size_t n = model.parameters;
  float *a = trm_alloc(n * sizeof *a, "weights"), *b = trm_alloc(n * sizeof *b, "weights");
  memset(a, 0x55, n * sizeof *a);
  trm_model_init(&model, 5, a);
  trm_model_init(&model, 5, b);
  CU_ASSERT(memcmp(a, b, n * sizeof *a) == 0);
  trm_model_init(&model, 6, b);
  CU_ASSERT(distance_of(a, b, n) > 0.5);
  size_t padding = n;
  for (int p = 0; p < 4; p++) {
    const struct trm_parameter *parameter = trm_model_parameter(&model, p);
    const double bound = p < 2 ? 1 / sqrt(9) : 1 / sqrt(100);
    double sum = 0, squares = 0, largest = 0;
    for (size_t e = 0; e < parameter->count; e++) {
      const double value = (double)a[parameter->offset + e];
      sum += value, squares += value * value;
      largest = fabs(value) > largest ? fabs(value) : largest;
      /* a function of seed, parameter number and element */
      const float expected = (float)bound * (2 * trm_random_uniform(5, TRM_RANDOM_INIT, (uint32_t)p, e) - 1);
      CU_ASSERT_DOUBLE_EQUAL(value, (double)expected, 1e-7);
    }
    const double count = (double)parameter->count;
    CU_ASSERT(largest <= bound);
    CU_ASSERT(largest > 0.7 * bound);
    CU_ASSERT(fabs(sum / count) < 4 * bound / sqrt(3 * count));
    if (count > 100)
      CU_ASSERT_DOUBLE_EQUAL(squares / count, bound * bound / 3, 0.1 * bound * bound);
    padding -= parameter->count;
  }
  size_t zeros = 0;
  for (size_t e = 0; e < n; e++)
    zeros += a[e] == 0;
  CU_ASSERT_EQUAL(zeros, padding);
  trm_free(a);
  trm_free(b);
  trm_model_free(&model);
}

static void test_hash(void)
{
  struct trm_model model;
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, "linear 7 | relu | linear 10", "auto", &nn_ten_classes), TRM_OK);
  const size_t n = model.parameters;
  float *w = trm_alloc(n * sizeof *w, "weights");
  for (size_t e = 0; e < n; e++)
    w[e] = (float)NAN; /* padding included */
  char hex[65], expected[65];
  struct trm_sha256 hash;
  trm_sha256_begin(&hash);
  static const int by_name[] = {1, 0, 3, 2}; /* the hash orders by name: bias, weight */
  for (int i = 0; i < 4; i++) {
    const struct trm_parameter *p = trm_model_parameter(&model, by_name[i]);
    for (size_t e = 0; e < p->count; e++) {
      w[p->offset + e] = 1.5f; /* 0x3fc00000 */
      trm_sha256_add(&hash, "\x00\x00\xc0\x3f", 4);
    }
  }
  trm_sha256_end(&hash, expected);
  trm_model_hash(&model, w, hex);
  CU_ASSERT_STRING_EQUAL(hex, expected);

  trm_model_init(&model, 1, w);
  trm_model_hash(&model, w, expected);
  trm_sha256_begin(&hash);
  for (int i = 0; i < 4; i++) {
    const struct trm_parameter *p = trm_model_parameter(&model, by_name[i]);
    for (size_t e = 0; e < p->count; e++) {
      uint32_t word;
      memcpy(&word, &w[p->offset + e], 4);
      const uint8_t bytes[] = {(uint8_t)word, (uint8_t)(word >> 8), (uint8_t)(word >> 16), (uint8_t)(word >> 24)};
      trm_sha256_add(&hash, bytes, 4);
    }
  }
  trm_sha256_end(&hash, hex);
  CU_ASSERT_STRING_EQUAL(hex, expected);
  w[trm_model_parameter(&model, 3)->offset + 9] += 1;
  trm_model_hash(&model, w, hex);
  CU_ASSERT_STRING_NOT_EQUAL(hex, expected);
  trm_free(w);
  trm_model_free(&model);
}

static void test_text(void)
{
  static const struct {
    const char *text, *canonical, *loss;
    const struct trm_input_spec *spec;
  } texts[] = {
    {"mlp 12-8-4 relu", "linear 8 | relu | linear 4", "softmax_cross_entropy", &nn_image_classes},
    {"  mlp   12-8-6-4  ", "linear 8 | relu | linear 6 | relu | linear 4", "softmax_cross_entropy", &nn_image_classes},
    {"mlp 12-8-4 gelu tanh", "linear 8 | gelu tanh | linear 4", "softmax_cross_entropy", &nn_image_classes},
    {"mlp 12-4", "linear 4", "softmax_cross_entropy", &nn_image_classes},
    {"mlp 12-8 tanh|dropout 0.25|\n linear 4", "linear 8 | dropout 0.25 | linear 4", "softmax_cross_entropy",
     &nn_image_classes},
    {"linear units=4 bias=no", "linear units=4 bias=no", "softmax_cross_entropy", &nn_image_classes},
    {"linear 3", "linear 3", "mean_squared_error", &nn_three_values},
    {"linear 1", "linear 1", "logistic", &nn_sparse_two},
    {"linear 2", "linear 2", "softmax_cross_entropy", &nn_sparse_two},
    {"linear 4 | dropout", "linear 4 | dropout", "softmax_cross_entropy", &nn_image_classes},
    {"linear 4|mark  a |tanh| add a", "linear 4 | mark a | tanh | add a", "softmax_cross_entropy", &nn_image_classes},
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    struct trm_model model;
    CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, texts[i].text, "auto", texts[i].spec), TRM_OK);
    CU_ASSERT_STRING_EQUAL(model.text, texts[i].canonical);
    CU_ASSERT_STRING_EQUAL(model.loss->name, texts[i].loss);
    struct trm_model again;
    CU_ASSERT_EQUAL_FATAL(trm_model_create(&again, model.text, model.loss->name, texts[i].spec), TRM_OK);
    CU_ASSERT_EQUAL(again.parameters, model.parameters);
    CU_ASSERT_STRING_EQUAL(again.text, model.text);
    trm_model_free(&again);
    trm_model_free(&model);
  }
  const struct trm_shape scalar = {0};
  CU_ASSERT_EQUAL(trm_shape_count(&scalar), 1);
  CU_ASSERT_STRING_EQUAL(trm_shape_text(&scalar), "()");
  CU_ASSERT_STRING_EQUAL(trm_shape_text(&nn_image_classes.shape), "(2, 2, 3)");
}

static void test_refused(void)
{
  static const struct trm_input_spec a9a = {
    .shape = {.dims = 1, .size = {123}}, .sparse = true, .target = TRM_TARGET_CLASS, .classes = 2};
  static const struct trm_input_spec words = {
    .shape = {.dims = 1, .size = {64}}, .tokens = true, .target = TRM_TARGET_CLASS, .classes = 100};
  static const struct {
    const char *text, *loss;
    const struct trm_input_spec *spec;
    const char *message; /* its beginning */
  } cases[] = {
    {"mlp 784-10 relu", "auto", &a9a,
     "layer 0 (mlp): the model expects samples of 784 values, the data set has samples of shape (123)"},
    {"mlp 784-10 relu", "auto", &nn_image_classes,
     "layer 0 (mlp): the model expects samples of 784 values, the data set has samples of shape (2, 2, 3)"},
    {"mlp", "auto", &a9a, "layer 0 (mlp): the sizes are missing; usage: mlp "},
    {"mlp 123", "auto", &a9a, "layer 0 (mlp): '123' is no list of two or more sizes"},
    {"mlp 123-", "auto", &a9a, "layer 0 (mlp): '123-' is no list"},
    {"mlp 123--2", "auto", &a9a, "layer 0 (mlp): '123--2' is no list"},
    {"mlp 123-0-2", "auto", &a9a, "layer 0 (mlp): '123-0-2' is no list"},
    {"mlp 123-99999999999-2", "auto", &a9a, "layer 0 (mlp): '123-99999999999-2' is no list"},
    {"mlp 123-x", "auto", &a9a, "layer 0 (mlp): '123-x' is no list"},
    {"mlp 123-8-2 rellu", "auto", &a9a, "layer 0 (mlp): there is no activation 'rellu', did you mean 'relu'?"},
    {"mlp 123-8-2 relu tanh", "auto", &a9a, "layer 1 (relu): 'tanh' is one word too many; usage: relu"},
    {"linear 8 | mlp 8-2", "auto", &a9a, "layer 1 (mlp): a preset may only be the model's first item"},
    {"", "auto", &a9a, "model: there is no layer"},
    {"  ", "auto", &a9a, "model: there is no layer"},
    {"linear 3 | | linear 2", "auto", &a9a, "model: item 1 is empty"},
    {"| linear 2", "auto", &a9a, "model: item 0 is empty"},
    {"linear 2 |", "auto", &a9a, "model: item 1 is empty"},
    {"linear 8 | relu | liner 2", "auto", &a9a, "layer 2: there is no layer 'liner', did you mean 'linear'?"},
    {"convolutionally 8", "auto", &a9a, "layer 0: there is no layer 'convolutionally'; there are linear, relu, "},
    {"linear 4 | linear", "auto", &a9a, "layer 1 (linear): units is missing; usage: linear UNITS [bias=yes|no]"},
    {"linear 4 | relu | linear 0", "auto", &a9a, "layer 2 (linear): units is '0', must be a whole number from 1 to"},
    {"linear -4", "auto", &a9a, "layer 0 (linear): units is '-4', must be"},
    {"linear 4x", "auto", &a9a, "layer 0 (linear): units is '4x', must be"},
    {"linear 4294967296", "auto", &a9a, "layer 0 (linear): units is '4294967296', must be"},
    {"linear 4 5", "auto", &a9a, "layer 0 (linear): '5' is one word too many; usage: linear"},
    {"linear 4 bais=no", "auto", &a9a, "layer 0 (linear): there is no argument 'bais', did you mean 'bias'?"},
    {"linear 4 bias=perhaps", "auto", &a9a, "layer 0 (linear): bias is 'perhaps', must be yes or no"},
    {"linear 4 bias=no bias=yes", "auto", &a9a, "layer 0 (linear): bias is given twice"},
    {"linear 1 2 3 4 5 6 7 8 9", "auto", &a9a, "layer 0 (linear): more than 8 arguments"},
    {"linear 2147483647 | linear 2147483647", "auto", &a9a, "layer 1 (linear): layer1.weight of shape (2147483647, "},
    {"linear 4 | dropout 1 | linear 2", "auto", &a9a, "layer 1 (dropout): rate is '1', must be a number in [0, 1)"},
    {"linear 4 | dropout -0.1", "auto", &a9a, "layer 1 (dropout): rate is '-0.1'"},
    {"linear 4 | dropout 0.99999999999", "auto", &a9a, "layer 1 (dropout): rate is '0.99999999999'"},
    {"linear 4 | dropout nan", "auto", &a9a, "layer 1 (dropout): rate is 'nan'"},
    {"linear 4 | gelu fast", "auto", &a9a, "layer 1 (gelu): 'fast' is not known; usage: gelu [tanh]"},
    {"relu | linear 2", "auto", &a9a, "layer 0 (relu): takes dense values, the data set has sparse rows of (123)"},
    {"dropout | linear 2", "auto", &a9a, "layer 0 (dropout): takes dense values, the data set has sparse rows"},
    {"linear 4 | mark", "auto", &nn_image_classes, "layer 1 (mark): takes one name; usage: mark NAME"},
    {"linear 4 | mark a b | add a", "auto", &nn_image_classes, "layer 1 (mark): takes one name; usage: mark NAME"},
    {"linear 4 | mark a | tanh | add", "auto", &nn_image_classes, "layer 3 (add): takes one name; usage: add NAME"},
    {"linear 4 | mark a | tanh", "auto", &nn_image_classes, "layer 1 (mark): nothing uses 'a'"},
    {"linear 4 | mark a | tanh | mark a | add a", "auto", &nn_image_classes, "layer 1 (mark): nothing uses 'a'"},
    {"linear 4 | mark main | tanh | add mian", "auto", &nn_image_classes,
     "layer 3 (add): there is no mark 'mian' above, did you mean 'main'?"},
    {"linear 4 | at a", "auto", &nn_image_classes, "layer 1 (at): there is no mark 'a' above"},
    {"linear 4 | add a | mark a", "auto", &nn_image_classes, "layer 1 (add): there is no mark 'a' above"},
    {"linear 8 | mark a | linear 4 | add a", "auto", &nn_image_classes,
     "layer 3 (add): adds a value of shape (8) to one of shape (4): the two must agree"},
    {"mark a | linear 12 | add a", "auto", &nn_image_classes,
     "layer 2 (add): adds a value of shape (2, 2, 3) to one of shape (12): the two must agree"},
    {"mark a | linear 123 | add a", "auto", &a9a, "layer 2 (add): takes dense values, the data set has sparse rows"},
    {"linear 4 | mark a | tanh | at a | linear 4", "auto", &nn_image_classes,
     "layer 2 (tanh): nothing uses its output: mark it before 'at', and add it to another value"},
    {"linear 4 | mark a | tanh | at a", "auto", &nn_image_classes, "layer 2 (tanh): nothing uses its output"},
    {"linear 4 | mark a | tanh | mark b | add a | at b", "auto", &nn_image_classes,
     "layer 4 (add): nothing uses its output"},
    {"mark a | at a", "auto", &nn_image_classes, "model: there is no layer"},
    {"linear 4 | markk a", "auto", &nn_image_classes, "layer 1: there is no layer 'markk', did you mean 'mark'?"},
    {"relu", "auto", &nn_ten_classes, "model 'relu' has no layer with parameters"},
    {"linear 100", "auto", &words,
     "layer 0 (linear): takes values, the data set has rows of 64 tokens: put an embedding first"},
    {"dropout | embedding 4 | head", "auto", &words, "layer 0 (dropout): takes values, the data set has rows of 64"},
    {"embedding 4 | embedding 4", "auto", &words,
     "layer 1 (embedding): takes tokens, and must be the first to: here are"},
    {"embedding 4 | linear 3", "auto", &words,
     "loss softmax_cross_entropy: the model gives scores of shape (64, 3), 64 tokens of a vocabulary of 100 want "
     "(64, 100)"},
    {"linear 4 | position", "auto", &nn_ten_classes,
     "layer 1 (position): takes sequences, which an embedding of tokens makes, not samples of shape (4)"},
    {"embedding 4 | attention heads=2", "auto", &words,
     "layer 1 (attention): takes queries, keys and values of 2 heads, (T, 3 D), not (64, 4)"},
    {"embedding 6 | attention", "auto", &words,
     "layer 1 (attention): heads is missing; usage: attention heads=H [causal=yes|no]"},
    {"embedding 6 | rotary heads=2", "auto", &words,
     "layer 1 (rotary): takes queries, keys and values of 2 heads of even"},
    {"embedding 5 | swiglu", "auto", &words,
     "layer 1 (swiglu): takes vectors or sequences of an even number of values"},
    {"linear 10 | head tied", "auto", &nn_ten_classes,
     "layer 1 (head): there is no embedding above that it could be tied to"},
    {"embedding 4 | linear 5 | head tied", "auto", &words,
     "layer 2 (head): is tied to an embedding of dimension 4, but reads (64, 5)"},
    {"embedding 4 | mark a | head tied | mark b | at a | head tied | add b", "auto", &words,
     "layer 5 (head): another layer is tied to that embedding already"},
    {"embedding 4 | head tight", "auto", &words, "layer 1 (head): 'tight' is not known; usage: head [tied]"},
    {"linear 4 init=hee", "auto", &nn_ten_classes,
     "layer 0 (linear): init is 'hee', must be default, he, xavier or gpt2"},
    {"linear 4 init=he residuals=3", "auto", &nn_ten_classes, "layer 0 (linear): residuals belongs to init=gpt2"},
    {"layer_norm epsilon=0", "auto", &nn_ten_classes,
     "layer 0 (layer_norm): epsilon is '0', must be a number in [1e-12"},
    {"gpt layers=2 heads=2 dim=8 context=32", "auto", &words,
     "layer 0 (gpt): the model's context is 32, the data's (data.context) 64: the two must agree"},
    {"gpt layers=2 heads=3 dim=8", "auto", &words, "layer 0 (gpt): dim=8 cannot be divided among heads=3"},
    {"gpt layers=2 head=2 dim=8", "auto", &words, "layer 0 (gpt): 'head=2' is not known, did you mean 'heads'?; usage"},
    {"gpt layers=2 heads=2", "auto", &words, "layer 0 (gpt): dim is missing; usage: gpt layers=N"},
    {"gpt layers=2 heads=2 dim=8.5", "auto", &words, "layer 0 (gpt): dim=8.5 is no whole number"},
    {"gpt layers=2 heads=2 dim=8 dropout=1", "auto", &words, "layer 0 (gpt): dropout=1 is no part"},
    {"gpt layers=2 heads=2 dim=8", "auto", &nn_ten_classes, "layer 0 (gpt): takes tokens, the data set has samples of"},
    {"linear 12", "auto", &nn_ten_classes,
     "loss softmax_cross_entropy: the model gives scores of shape (12), the data set has 10 classes"},
    {"linear 2", "softmax_cross_entropy", &nn_three_values,
     "loss softmax_cross_entropy is for classes, the targets are 3"},
    {"linear 2", "auto", &nn_three_values,
     "loss mean_squared_error: the model gives scores of shape (2), the targets are 3 values"},
    {"linear 10", "mean_squared_error", &nn_ten_classes,
     "loss mean_squared_error is for value targets, the data set has 10"},
    {"linear 2", "logistic", &nn_sparse_two, "loss logistic wants one score, the model gives scores of shape (2)"},
    {"linear 1", "hinge", &nn_ten_classes,
     "loss hinge is for two classes, or one value of -1 or +1; the data set has 10"},
    {"linear 1", "logistic", &nn_three_values,
     "loss logistic is for two classes, or one value of -1 or +1; the data set has 3"},
    {"linear 10", "softmax", &nn_ten_classes, "there is no loss 'softmax'"},
    {"linear 1", "hinje", &nn_sparse_two, "there is no loss 'hinje', did you mean 'hinge'?"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct trm_model model;
    const int status = trm_model_create(&model, cases[i].text, cases[i].loss, cases[i].spec);
    CU_ASSERT_EQUAL(status, TRM_USAGE);
    const bool as_said = strncmp(trm_error_text(), cases[i].message, strlen(cases[i].message)) == 0;
    if (!as_said)
      printf("\n  '%s': %s\n", cases[i].text, trm_error_text());
    CU_ASSERT(as_said);
    if (status == TRM_OK)
      trm_model_free(&model);
  }
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"flat layout", test_layout},
    {"biases that a batch norm removes", test_biases},
    {"initial weights", test_init},
    {"hash of the weights", test_hash},
    {"texts", test_text},
    {"texts refused", test_refused},
    CU_TEST_INFO_NULL,
  };
  return suite_run("model", tests);
}

/* Weights in safetensors files: names, round trips, files of PyTorch, refused files. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "exchange/exchange.h"
#include "nn/param_names.h"
#include "suite.h"
#include "support/nn_case.h"

static char folder[] = "/tmp/trireme-exchange-XXXXXX";
static char *path;

static const struct trm_input_spec photos = {
  .shape = {.dims = 3, .size = {3, 32, 32}}, .target = TRM_TARGET_CLASS, .classes = 10};

static void model_make(struct trm_model *model, const char *text, const struct trm_input_spec *spec)
{
  if (trm_model_create(model, text, "auto", spec) != TRM_OK) {
    printf("%s\n", trm_error_text());
    CU_FAIL_FATAL("model");
  }
}

/* -- names */

static void test_names(void)
{
  static const struct {
    const char *text;
    const struct trm_input_spec *spec;
    const char *scheme, *own, *name;
    bool transposed;
  } cases[] = {
    {"resnet18", &photos, "resnet", "layer0.weight", "conv1.weight", false},
    {"resnet18", &photos, "resnet", "layer1.running_var", "bn1.running_var", false},
    {"resnet18", &photos, "resnet", "layer20.weight", NULL, false},
    {"resnet20", &photos, "resnet", "layer4.weight", "layer1.0.conv1.weight", false},
    {"resnet34", &photos, "resnet", "layer5.weight", "layer1.0.conv1.weight", false},
    {"resnet50", &photos, "resnet", "layer5.weight", "layer1.0.conv1.weight", false},
    {"resnet50", &photos, "resnet", "layer11.weight", "layer1.0.conv3.weight", false},
    {"resnet50", &photos, "resnet", "layer15.weight", "layer1.0.downsample.0.weight", false},
    {"resnet50", &photos, "resnet", "layer20.weight", "layer1.1.conv1.weight", false},
    {"vgg11", &photos, "vgg", "layer0.weight", "features.0.weight", false},
    {"vgg11", &photos, "vgg", "layer18.bias", "features.18.bias", false},
    {"vgg11", &photos, "vgg", "layer22.weight", "classifier.0.weight", false},
    {"vgg11", &photos, "vgg", "layer28.bias", "classifier.6.bias", false},
    {"lenet5", &photos, "vgg", "layer7.weight", "classifier.0.weight", false},
    {"gpt layers=2 heads=2 dim=8", &nn_tokens, "gpt2", "layer0.weight", "wte.weight", false},
    {"gpt layers=2 heads=2 dim=8", &nn_tokens, "gpt2", "layer1.weight", "wpe.weight", false},
    {"gpt layers=2 heads=2 dim=8", &nn_tokens, "gpt2", "layer4.weight", "h.0.attn.c_attn.weight", true},
    {"gpt layers=2 heads=2 dim=8", &nn_tokens, "gpt2", "layer4.bias", "h.0.attn.c_attn.bias", false},
    {"gpt layers=2 heads=2 dim=8 dropout=0.1", &nn_tokens, "gpt2", "layer3.weight", NULL, false},
    {"gpt layers=2 heads=2 dim=8", &nn_tokens, "gpt2", "layer25.weight", NULL, false},
    {"mlp 9-5-10 relu", &nn_ten_classes, "own", "layer2.weight", "layer2.weight", false},
    {"conv2d 3 3 pad=1 | tanh | flatten | linear 5", &nn_images, "own", "layer3.bias", "layer3.bias", false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct trm_model model;
    struct trm_param_names names;
    model_make(&model, cases[i].text, cases[i].spec);
    trm_param_names_create(&names, &model);
    CU_ASSERT_STRING_EQUAL(names.scheme, cases[i].scheme);
    int found = -1;
    for (int p = 0; p < trm_model_parameter_count(&model); p++)
      if (strcmp(trm_model_parameter(&model, p)->name, cases[i].own) == 0)
        found = p;
    CU_ASSERT_EQUAL(found >= 0, cases[i].name != NULL); /* NULL: the layer has no such parameter */
    if (found >= 0) {
      CU_ASSERT_STRING_EQUAL(names.name[found].text, cases[i].name);
      CU_ASSERT_EQUAL(names.name[found].transposed, cases[i].transposed);
      CU_ASSERT_EQUAL(trm_param_names_find(&names, &model, cases[i].name), found);
    }
    trm_param_names_free(&names);
    trm_model_free(&model);
  }
}

/* Names of a model's parameters are unique and map back to their parameters. */
static void test_names_differ(void)
{
  static const struct nn_example more[] = {{"resnet18", "auto", &photos, false}, {"resnet50", "auto", &photos, false},
                                           {"resnet56", "auto", &photos, false}, {"vgg11", "auto", &photos, false},
                                           {NULL, NULL, NULL, false}};
  const struct nn_example *const lists[] = {nn_examples, more};
  for (int list = 0; list < 2; list++)
    for (const struct nn_example *e = lists[list]; e->text; e++) {
      struct trm_model model;
      struct trm_param_names names;
      model_make(&model, e->text, e->spec);
      trm_param_names_create(&names, &model);
      int wrong = 0;
      for (int p = 0; p < trm_model_parameter_count(&model); p++)
        wrong += trm_param_names_find(&names, &model, names.name[p].text) != p;
      CU_ASSERT_EQUAL(wrong, 0);
      CU_ASSERT_EQUAL(trm_param_names_find(&names, &model, "stranger"), -1);
      trm_param_names_free(&names);
      trm_model_free(&model);
    }
}

static void test_names_of_gpt2(void)
{
  struct trm_model model;
  struct trm_param_names names;
  model_make(&model, "gpt layers=1 heads=2 dim=8", &nn_tokens);
  trm_param_names_create(&names, &model);
  CU_ASSERT_EQUAL(trm_param_names_find(&names, &model, "transformer.wpe.weight"), 1);
  CU_ASSERT_EQUAL(trm_param_names_find(&names, &model, "transformer.h.0.attn.bias"), -2);
  CU_ASSERT_EQUAL(trm_param_names_find(&names, &model, "h.0.attn.masked_bias"), -2);
  CU_ASSERT_EQUAL(trm_param_names_find(&names, &model, "lm_head.weight"), -2);
  CU_ASSERT_EQUAL(trm_param_names_find(&names, &model, "h.1.ln_1.weight"), -1);
  trm_param_names_free(&names);
  trm_model_free(&model);
}

/* -- round trips */

static void test_round_trip(void)
{
  static const struct nn_example cases[] = {
    {"mlp 9-5-10 relu", "auto", &nn_ten_classes, false},
    {"resnet20", "auto", &photos, false},
    {"lenet5", "auto", &photos, false},
    {"gpt layers=2 heads=2 dim=8", "auto", &nn_tokens, false},
    {"embedding 6 | position | linear 18 | rotary heads=1 | attention heads=2 | head", "auto", &nn_tokens, false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct trm_model model;
    model_make(&model, cases[i].text, cases[i].spec);
    const size_t bytes = model.parameters * sizeof(float);
    float *w = trm_alloc(bytes, "test"), *back = trm_alloc(bytes, "test");
    trm_model_init(&model, 3, w);
    memset(back, 1, bytes);
    CU_ASSERT_EQUAL(trm_export_table[0].write(path, &model, w), TRM_OK);
    CU_ASSERT_EQUAL(trm_safetensors_read(path, &model, back), TRM_OK);
    CU_ASSERT_EQUAL(memcmp(w, back, bytes), 0);
    trm_free(w);
    trm_free(back);
    trm_model_free(&model);
  }
  remove(path);
}

/* The value that tests/reference/make_exchange.py writes as element `at` of a tensor: exact in every type. */
static float written(const char *name, size_t at)
{
  unsigned sum = 0;
  for (const char *c = name; *c; c++)
    sum += (unsigned char)*c;
  return ((float)((sum + 37 * at) % 251) - 125) / 64;
}

/* Files of the safetensors library: GPT-2 with Hugging Face's prefix and buffers, in four types; a ResNet. */
static void test_written_by_pytorch(void)
{
  static const struct {
    const char *file, *text;
    const struct trm_input_spec *spec;
  } cases[] = {{"gpt2.safetensors", "gpt layers=2 heads=2 dim=8", &nn_tokens},
               {"resnet.safetensors",
                "conv2d 3 3 pad=1 bias=no | batch_norm | relu | mark in | conv2d 3 3 pad=1 bias=no | batch_norm | "
                "relu | conv2d 3 3 pad=1 bias=no | batch_norm | add in | relu | global_avg_pool | linear 5",
                &nn_images}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct trm_model model;
    struct trm_param_names names;
    model_make(&model, cases[i].text, cases[i].spec);
    trm_param_names_create(&names, &model);
    float *w = trm_alloc(model.parameters * sizeof *w, "test");
    char *file = trm_format("%s/tests/reference/%s", getenv("top_srcdir") ? getenv("top_srcdir") : ".", cases[i].file);
    const int status = trm_safetensors_read(file, &model, w);
    if (status != TRM_OK)
      printf("%s\n", trm_error_text());
    CU_ASSERT_EQUAL_FATAL(status, TRM_OK);
    size_t wrong = 0;
    for (int p = 0; p < trm_model_parameter_count(&model); p++) {
      const struct trm_parameter *parameter = trm_model_parameter(&model, p);
      const size_t columns = parameter->shape.size[1], rows = parameter->shape.size[0];
      for (size_t e = 0; e < parameter->count; e++) {
        const size_t at = names.name[p].transposed ? e % columns * rows + e / columns : e;
        wrong += w[parameter->offset + e] != written(names.name[p].text, at);
      }
    }
    CU_ASSERT_EQUAL(wrong, 0);
    trm_free(file);
    trm_free(w);
    trm_param_names_free(&names);
    trm_model_free(&model);
  }
}

/* -- refused files */

static void file_make(uint64_t head, const char *text, size_t data, unsigned char fill)
{
  FILE *file = fopen(path, "wb");
  CU_ASSERT_PTR_NOT_NULL_FATAL(file);
  for (int i = 0; i < 8; i++)
    fputc((int)(head >> 8 * i & 255), file);
  fputs(text, file);
  while (data--)
    fputc(fill, file);
  fclose(file);
}

/* The model is linear 2 of two values: layer0.weight (2, 2), layer0.bias (2), 24 bytes. */
static int read_small(void)
{
  static const struct trm_input_spec two = {.shape = {.dims = 1, .size = {2}}, .target = TRM_TARGET_CLASS,
                                            .classes = 2};
  struct trm_model model;
  float w[64];
  model_make(&model, "linear 2", &two);
  const int status = trm_safetensors_read(path, &model, w);
  trm_model_free(&model);
  return status;
}

#define WEIGHT(shape, from, to) \
  "\"layer0.weight\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"
#define BIAS(from, to) "\"layer0.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[" #from "," #to "]}"

static void test_refused(void)
{
  static const struct {
    const char *head;
    size_t data;
    int status;
    const char *message;
  } cases[] = {
    {"{" WEIGHT("[2,2]", 0, 16) "," BIAS(16, 24) "}", 24, TRM_OK, ""},
    {"{" BIAS(0, 8) ", " WEIGHT("[2,2]", 8, 24) ",\"__metadata__\":{\"a\":\"b\"}}  \n", 24, TRM_OK, ""},
    {"{" WEIGHT("[2,2]", 0, 16) "," BIAS(16, 24) "}", 23, TRM_FAILED, "layer0.bias: lies beyond the end"},
    {"{" WEIGHT("[2,2]", 0, 16) "," BIAS(16, 24) "}", 25, TRM_FAILED, "the last 1 bytes belong to no tensor"},
    {"{" WEIGHT("[2,2]", 0, 16) "," BIAS(8, 16) "}", 16, TRM_FAILED, "another tensor's"},
    {"{" WEIGHT("[2,2]", 4, 20) "," BIAS(20, 28) "}", 28, TRM_FAILED, "the bytes before it belong to no tensor"},
    {"{" WEIGHT("[2,2]", 0, 16) "," BIAS(24, 16) "}", 24, TRM_FAILED, "no [BEGIN, END]"},
    {"{" WEIGHT("[2,2]", 0, 16) "," BIAS(-8, 0) "}", 24, TRM_FAILED, "no [BEGIN, END]"},
    {"{" WEIGHT("[2,2]", 0, 16) "," BIAS(16, 99999999999999999999999) "}", 24, TRM_FAILED, "no [BEGIN, END]"},
    {"{" WEIGHT("[2,2]", 0, 16) ",\"layer0.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[16]}}", 24,
     TRM_FAILED, "no [BEGIN, END]"},
    {"{" WEIGHT("[2,2]", 0, 16) ",\"layer0.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[16,24,24]}}", 24,
     TRM_FAILED, "no [BEGIN, END]"},
    {"{" WEIGHT("[2,2]", 0, 16) ",\"layer0.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[[],\"\"]}}", 24,
     TRM_FAILED, "no [BEGIN, END]"},
    {"{" WEIGHT("[2,2]", 0, 16) ",\"layer0.bias\":{\"dtype\":[],\"shape\":[2],\"data_offsets\":[16,24]}}", 24,
     TRM_FAILED, "is missing in the header"},
    {"{" WEIGHT("[2,2]", 0, 16) "," BIAS(16, 20) "}", 20, TRM_FAILED, "do not agree with its shape and type"},
    {"{" WEIGHT("[2,3]", 0, 24) "," BIAS(24, 32) "}", 32, TRM_USAGE, "has shape (2, 3), but the model's has (2, 2)"},
    {"{" WEIGHT("[4]", 0, 16) "," BIAS(16, 24) "}", 24, TRM_USAGE, "has shape (4), but the model's has (2, 2)"},
    {"{" WEIGHT("[4294967296,4294967296,2]", 0, 16) "," BIAS(16, 24) "}", 24, TRM_FAILED, "larger than any memory"},
    {"{" WEIGHT("[4611686018427387904]", 0, 0) "," BIAS(0, 8) "}", 8, TRM_FAILED, "do not agree"},
    {"{" WEIGHT("[1,1,1,1,1,1,1,1,4]", 0, 16) "," BIAS(16, 24) "}", 24, TRM_FAILED, "no list of up to 8 sizes"},
    {"{" WEIGHT("[2.5]", 0, 16) "," BIAS(16, 24) "}", 24, TRM_FAILED, "no list of up to 8 sizes"},
    {"{" WEIGHT("{}", 0, 16) "," BIAS(16, 24) "}", 24, TRM_FAILED, "is missing in the header"},
    {"{\"layer0.weight\":[1]," BIAS(0, 8) "}", 8, TRM_FAILED, "is missing in the header"},
    {"{\"layer0.weight\":7," BIAS(0, 8) "}", 8, TRM_FAILED, "is missing in the header"},
    {"{" WEIGHT("[2,2]", 0, 16) "}", 16, TRM_USAGE, "there is no tensor layer0.bias"},
    {"{\"w\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}," WEIGHT("[2,2]", 4, 20) "," BIAS(20, 28) "}", 28,
     TRM_USAGE, "no place for tensor w"},
    {"{" WEIGHT("[2,2]", 0, 16) "," WEIGHT("[2,2]", 16, 32) "," BIAS(32, 40) "}", 40, TRM_FAILED, "stands twice"},
    {"{\"layer0.weight\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[0,16]}," BIAS(16, 24) "}", 24, TRM_USAGE,
     "is of type I32"},
    {"{\"layer0.weight\":{\"dtype\":\"F4\",\"shape\":[2,2],\"data_offsets\":[0,2]}," BIAS(2, 10) "}", 10, TRM_USAGE,
     "the type F4 is not known"},
    {"[1, 2]", 0, TRM_FAILED, "no JSON object"},
    {"{\"layer0.weight\": {", 0, TRM_FAILED, "the header of a safetensors file"},
    {"{}", 0, TRM_USAGE, "there is no tensor layer0.weight"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    file_make(strlen(cases[i].head), cases[i].head, cases[i].data, 0);
    const int status = read_small();
    CU_ASSERT_EQUAL(status, cases[i].status);
    if (status != TRM_OK) {
      const bool fits = strstr(trm_error_text(), cases[i].message) && strstr(trm_error_text(), path);
      if (!fits)
        printf("case %zu: %s\n", i, trm_error_text());
      CU_ASSERT(fits);
    }
  }
}

/* float16: the largest, subnormal and smallest normal numbers; infinities and NaN are no weights. */
static void test_half(void)
{
  static const struct trm_input_spec two = {.shape = {.dims = 1, .size = {2}}, .target = TRM_TARGET_CLASS,
                                            .classes = 2};
  static const uint16_t bits[][6] = {{0x3c00, 0xc000, 0x7bff, 0x0001, 0x8001, 0x0400},
                                     {0x3c00, 0xc000, 0x7bff, 0x0001, 0xfc00, 0x0400},
                                     {0x3c00, 0xc000, 0x7bff, 0x0001, 0x8001, 0x7e00}};
  static const char head[] = "{\"layer0.weight\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[0,8]},"
                             "\"layer0.bias\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[8,12]}}";
  struct trm_model model;
  float w[64];
  model_make(&model, "linear 2", &two);
  for (int k = 0; k < 3; k++) {
    file_make(strlen(head), head, 0, 0);
    FILE *file = fopen(path, "ab");
    for (size_t i = 0; i < 6; i++) {
      fputc(bits[k][i] & 255, file);
      fputc(bits[k][i] >> 8, file);
    }
    fclose(file);
    CU_ASSERT_EQUAL(trm_safetensors_read(path, &model, w), k ? TRM_FAILED : TRM_OK);
    const float *weight = w + trm_model_parameter(&model, 0)->offset, *bias = w + trm_model_parameter(&model, 1)->offset;
    CU_ASSERT(k || (weight[0] == 1 && weight[1] == -2 && weight[2] == 65504 && weight[3] == 0x1p-24f));
    CU_ASSERT(k || (bias[0] == -0x1p-24f && bias[1] == 0x1p-14f));
    CU_ASSERT(!k || strstr(trm_error_text(), "layer0.bias"));
  }
  trm_model_free(&model);
}

/* A file with a bias in front of a batch norm, under the model's own names and those of torchvision. */
static void test_omitted_bias(void)
{
  static const struct {
    const char *written, *read;
    const struct trm_input_spec *spec;
    const char *bias;
  } cases[] = {{"linear 5 bias=yes | batch_norm | linear 10", "linear 5 | batch_norm | linear 10", &nn_ten_classes,
                "layer0.bias"},
               {"conv2d 3 3 bias=yes | batch_norm | relu | global_avg_pool | linear 5",
                "conv2d 3 3 | batch_norm | relu | global_avg_pool | linear 5", &nn_images, "conv1.bias"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct trm_model model, other;
    model_make(&model, cases[i].written, cases[i].spec);
    model_make(&other, cases[i].read, cases[i].spec);
    float *w = trm_alloc(model.parameters * sizeof *w, "test");
    CU_ASSERT_EQUAL(trm_export_table[0].write(path, &model, w), TRM_OK);
    CU_ASSERT_EQUAL(trm_safetensors_read(path, &other, w), TRM_USAGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), cases[i].bias));
    CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "; write bias=yes on layer 0 ("));
    trm_free(w);
    trm_model_free(&model);
    trm_model_free(&other);
  }
  remove(path);
}

static void refuse(int status, const char *message)
{
  CU_ASSERT_EQUAL(read_small(), status);
  if (!strstr(trm_error_text(), message))
    printf("%s\n", trm_error_text());
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), message));
}

static void test_damaged(void)
{
  const char *head = "{" WEIGHT("[2,2]", 0, 16) "," BIAS(16, 24) "}";
  file_make(strlen(head), head, 24, 255); /* NaN */
  refuse(TRM_FAILED, "layer0.weight: value 0 is not finite");
  file_make(strlen(head) + 25, head, 24, 0);
  refuse(TRM_FAILED, "ends beyond the file");
  file_make(UINT64_MAX, head, 24, 0);
  refuse(TRM_FAILED, "no safetensors file");
  file_make(1, head, 24, 0);
  refuse(TRM_FAILED, "no safetensors file");
  FILE *file = fopen(path, "wb");
  CU_ASSERT_PTR_NOT_NULL_FATAL(file);
  fputs("short", file);
  fclose(file);
  refuse(TRM_FAILED, "ends too early");
  remove(path);
  refuse(TRM_USAGE, "No such file");
}

int main(void)
{
  if (!mkdtemp(folder))
    return 99;
  path = trm_format("%s/w.safetensors", folder);
  CU_TestInfo tests[] = {
    {"names", test_names},
    {"names differ", test_names_differ},
    {"names of GPT-2", test_names_of_gpt2},
    {"round trip", test_round_trip},
    {"written by PyTorch", test_written_by_pytorch},
    {"refused", test_refused},
    {"float16", test_half},
    {"of a bias that is omitted", test_omitted_bias},
    {"damaged", test_damaged},
    CU_TEST_INFO_NULL,
  };
  const int status = suite_run("exchange", tests);
  remove(path);
  rmdir(folder);
  trm_free(path);
  return status;
}

/* Models as ONNX files: each value has one producer, which precedes its readers; weights and shapes are those of the
 * model; graphs are the ones checked with onnxruntime (tests/reference/onnx.txt, see check_onnx.py there). */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/random.h"
#include "core/sha256.h"
#include "core/status.h"
#include "exchange/onnx.h"
#include "suite.h"
#include "support/nn_case.h"

#ifdef TRM_ONNX

static char folder[] = "/tmp/trireme-onnx-XXXXXX";
static char *path;

static const struct trm_input_spec photos = {
  .shape = {.dims = 3, .size = {3, 32, 32}}, .target = TRM_TARGET_CLASS, .classes = 10};
static const struct trm_input_spec digits = {
  .shape = {.dims = 3, .size = {1, 28, 28}}, .target = TRM_TARGET_CLASS, .classes = 10};

/* The presets, in addition to nn_examples. The last is large, and used only when outputs are requested. */
static const struct nn_example presets[] = {
  {"mlp 784-32-10 relu", "auto", &digits, false},
  {"lenet5", "auto", &digits, false},
  {"resnet20", "auto", &photos, false},
  {"resnet18", "auto", &photos, false},
  {"gpt layers=1 heads=1 dim=4 dropout=0.2", "auto", &nn_tokens, false},
  {"vgg11", "auto", &photos, false},
  {NULL, NULL, NULL, false},
};

static const struct nn_example *example_at(int number)
{
  int count = 0;
  while (nn_examples[count].text)
    count++;
  return number < count ? &nn_examples[number] : &presets[number - count];
}

static const char *folder_of_answers(void)
{
  return getenv("TRM_ONNX_OUT");
}

static bool is_wanted(const struct nn_example *e)
{
  return e->text && (folder_of_answers() || strcmp(e->text, "vgg11") != 0);
}

/* Random initial weights, none of them constant; variances stay positive. */
static float *weights_make(const struct trm_model *model)
{
  float *w = trm_alloc(model->parameters * sizeof *w, "test");
  trm_model_init(model, 5, w);
  for (int n = 0; n < trm_model_parameter_count(model); n++) {
    const struct trm_parameter *p = trm_model_parameter(model, n);
    for (size_t e = 0; e < p->count; e++)
      w[p->offset + e] += 0.2f * trm_random_uniform(5, TRM_RANDOM_BENCH, (uint32_t)n, e);
  }
  return w;
}

static Onnx__ModelProto *file_read(const char *from)
{
  FILE *file = fopen(from, "rb");
  CU_ASSERT_PTR_NOT_NULL_FATAL(file);
  fseek(file, 0, SEEK_END);
  const size_t bytes = (size_t)ftell(file);
  rewind(file);
  uint8_t *data = trm_alloc(bytes, "test");
  CU_ASSERT_EQUAL_FATAL(fread(data, 1, bytes, file), bytes);
  fclose(file);
  Onnx__ModelProto *model = onnx__model_proto__unpack(NULL, bytes, data);
  trm_free(data);
  CU_ASSERT_PTR_NOT_NULL_FATAL(model);
  return model;
}

/* SHA-256 of the graph without float values, whose rounding depends on the math library. */
static void graph_digest(const Onnx__GraphProto *graph, char hex[65])
{
  for (size_t i = 0; i < graph->n_initializer; i++)
    if (graph->initializer[i]->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT)
      memset(graph->initializer[i]->raw_data.data, 0, graph->initializer[i]->raw_data.len);
  const size_t bytes = onnx__graph_proto__get_packed_size(graph);
  uint8_t *data = trm_alloc(bytes, "test");
  onnx__graph_proto__pack(graph, data);
  struct trm_sha256 hash;
  trm_sha256_begin(&hash);
  trm_sha256_add(&hash, data, bytes);
  trm_sha256_end(&hash, hex);
  trm_free(data);
}

/* -- invariants of every file */

static bool is_among(char *const *names, size_t count, const char *name)
{
  for (size_t i = 0; i < count; i++)
    if (strcmp(names[i], name) == 0)
      return true;
  return false;
}

/* Counts names that are produced twice, or read before they are produced. */
static int names_wrong(const Onnx__GraphProto *graph)
{
  size_t room = graph->n_input + graph->n_initializer, made = 0;
  for (size_t n = 0; n < graph->n_node; n++)
    room += graph->node[n]->n_output;
  char **names = trm_alloc((room ? room : 1) * sizeof *names, "test");
  int wrong = 0;
  names[made++] = graph->input[0]->name;
  for (size_t i = 0; i < graph->n_initializer; i++) {
    wrong += is_among(names, made, graph->initializer[i]->name);
    names[made++] = graph->initializer[i]->name;
  }
  for (size_t n = 0; n < graph->n_node; n++) {
    for (size_t i = 0; i < graph->node[n]->n_input; i++)
      wrong += !is_among(names, made, graph->node[n]->input[i]);
    for (size_t i = 0; i < graph->node[n]->n_output; i++) {
      wrong += is_among(names, made, graph->node[n]->output[i]);
      names[made++] = graph->node[n]->output[i];
    }
  }
  wrong += !is_among(names, made, graph->output[0]->name);
  trm_free(names);
  return wrong;
}

static int weights_wrong(const Onnx__GraphProto *graph, const struct trm_model *model, const float *w)
{
  int wrong = 0;
  for (int n = 0; n < trm_model_parameter_count(model); n++) {
    const struct trm_parameter *p = trm_model_parameter(model, n);
    int found = 0;
    for (size_t i = 0; i < graph->n_initializer; i++) {
      const Onnx__TensorProto *t = graph->initializer[i];
      if (strcmp(t->name, p->name) != 0)
        continue;
      bool same = t->n_dims == (size_t)p->shape.dims && t->raw_data.len == p->count * sizeof *w &&
                  memcmp(t->raw_data.data, w + p->offset, t->raw_data.len) == 0;
      for (int d = 0; same && d < p->shape.dims; d++)
        same = t->dims[d] == (int64_t)p->shape.size[d];
      found += same;
    }
    wrong += found != 1;
  }
  return wrong;
}

static bool is_face(const Onnx__ValueInfoProto *info, const char *name, const struct trm_shape *shape)
{
  const Onnx__TensorShapeProto *size = info->type->tensor_type->shape;
  bool same = strcmp(info->name, name) == 0 && size->n_dim == 1 + (size_t)shape->dims &&
              strcmp(size->dim[0]->dim_param, "batch") == 0;
  for (int d = 0; same && d < shape->dims; d++)
    same = size->dim[1 + d]->dim_value == (int64_t)shape->size[d];
  return same;
}

/* tests/reference/onnx.txt: lines of DIGEST TEXT. */
static char *recorded_read(void)
{
  const char *top = getenv("top_srcdir");
  char *name = trm_format("%s/tests/reference/onnx.txt", top ? top : "."), *all = trm_alloc(1 << 20, "test");
  FILE *file = fopen(name, "r");
  CU_ASSERT_PTR_NOT_NULL_FATAL(file);
  CU_ASSERT_FATAL(fread(all, 1, (1 << 20) - 1, file) > 0);
  fclose(file);
  trm_free(name);
  return all;
}

/* Returns true if the graph is the recorded one, or the model is not recorded. */
static bool is_confirmed(const char *recorded, const char *digest, const char *text)
{
  char *line = trm_format("%s %s\n", digest, text);
  const bool same = strstr(recorded, line) != NULL, known = strstr(recorded, line + strlen(digest)) != NULL;
  trm_free(line);
  if (!same)
    printf("%s: %s check_onnx.py\n", text, known ? "another graph than was confirmed by" : "not yet confirmed by");
  CU_ASSERT(same || !known);
  return same;
}

static void test_files(void)
{
  char *recorded = recorded_read();
  int lines = 0, confirmed = 0;
  for (const char *at = recorded; (at = strchr(at, '\n')); at++)
    lines++;
  for (int number = 0; is_wanted(example_at(number)); number++) {
    const struct nn_example *e = example_at(number);
    struct trm_model model;
    CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, e->text, e->loss, e->spec), TRM_OK);
    float *w = weights_make(&model);
    CU_ASSERT_EQUAL_FATAL(onnx_write(path, &model, w), TRM_OK);
    Onnx__ModelProto *file = file_read(path);
    const struct trm_shape *scores = &model.layer[model.layers - 1].out;
    CU_ASSERT(file->ir_version == 8 && file->n_opset_import == 1 && file->opset_import[0]->version == 17);
    CU_ASSERT(is_face(file->graph->input[0], e->spec->tokens ? "tokens" : "samples", &e->spec->shape));
    CU_ASSERT(is_face(file->graph->output[0], "scores", scores));
    CU_ASSERT_EQUAL(names_wrong(file->graph), 0);
    CU_ASSERT_EQUAL(weights_wrong(file->graph, &model, w), 0);
    char digest[65];
    graph_digest(file->graph, digest);
    confirmed += !folder_of_answers() && is_confirmed(recorded, digest, e->text);
    onnx__model_proto__free_unpacked(file, NULL);
    trm_free(w);
    trm_model_free(&model);
  }
  CU_ASSERT(confirmed == lines || folder_of_answers());
  trm_free(recorded);
  remove(path);
}

/* Weights beyond the size limit are in a second file, at the offsets given in the first. */
static void test_beside(void)
{
  struct trm_model model;
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, "mlp 784-32-10 relu", "auto", &digits), TRM_OK);
  float *w = weights_make(&model);
  CU_ASSERT_EQUAL_FATAL(onnx_write_limited(path, &model, w, 1000), TRM_OK);
  Onnx__ModelProto *file = file_read(path);
  char *beside = trm_format("%s.data", path);
  FILE *data = fopen(beside, "rb");
  CU_ASSERT_PTR_NOT_NULL_FATAL(data);
  int moved = 0;
  for (size_t i = 0; i < file->graph->n_initializer; i++) {
    const Onnx__TensorProto *t = file->graph->initializer[i];
    for (int n = 0; n < trm_model_parameter_count(&model); n++) {
      const struct trm_parameter *p = trm_model_parameter(&model, n);
      if (strcmp(p->name, t->name) != 0)
        continue;
      float *got = trm_alloc(p->count * sizeof *got, "test");
      CU_ASSERT(t->raw_data.len == 0 && t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL);
      CU_ASSERT_STRING_EQUAL(t->external_data[0]->value, strrchr(beside, '/') + 1);
      CU_ASSERT_EQUAL(atoll(t->external_data[2]->value), (long long)(p->count * sizeof *got));
      fseek(data, atol(t->external_data[1]->value), SEEK_SET);
      CU_ASSERT_EQUAL(fread(got, sizeof *got, p->count, data), p->count);
      CU_ASSERT_EQUAL(memcmp(got, w + p->offset, p->count * sizeof *got), 0);
      trm_free(got);
      moved++;
    }
  }
  CU_ASSERT_EQUAL(moved, trm_model_parameter_count(&model));
  fclose(data);
  remove(beside);
  trm_free(beside);
  onnx__model_proto__free_unpacked(file, NULL);
  trm_free(w);
  trm_model_free(&model);
}

static void test_refused(void)
{
  struct trm_model model;
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, "linear 10", "auto", &nn_ten_classes), TRM_OK);
  float *w = weights_make(&model);
  CU_ASSERT_EQUAL(onnx_write("/nonexistent/m.onnx", &model, w), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "/nonexistent/m.onnx"));
  struct trm_layer_ops without = *model.layer[0].ops;
  without.export_graph = NULL;
  model.layer[0].ops = &without;
  CU_ASSERT_EQUAL(onnx_write(path, &model, w), TRM_USAGE);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "layer 0 (linear): cannot be exported"));
  trm_free(w);
  trm_model_free(&model);
}

/* -- outputs for check_onnx.py: NUMBER.onnx, .in, .out, and a line of manifest.txt */

static void floats_put(const char *to, int number, const char *end, const float *values, size_t count)
{
  char *name = trm_format("%s/%d.%s", to, number, end);
  FILE *file = fopen(name, "wb");
  CU_ASSERT_PTR_NOT_NULL_FATAL(file);
  CU_ASSERT_EQUAL(fwrite(values, sizeof *values, count, file), count);
  fclose(file);
  trm_free(name);
}

static void answer(struct trm_device *device, int number, const struct nn_example *e, FILE *manifest)
{
  enum { ROWS = 3 };
  const char *to = folder_of_answers();
  struct nn_case c;
  CU_ASSERT_EQUAL_FATAL(nn_case_open(&c, device, e->text, e->loss, e->spec, ROWS, 5), TRM_OK);
  float *w = weights_make(&c.model);
  nn_case_upload(&c, w);
  const size_t f = trm_shape_count(&e->spec->shape), scores = trm_shape_count(&c.model.layer[c.model.layers - 1].out);
  float *x = host_random(ROWS * f, 77);
  for (size_t i = 0; e->spec->tokens && i < ROWS * f; i++)
    x[i] = (float)(int)((x[i] + 1) / 2 * (float)e->spec->classes);
  nn_case_batch(&c, ROWS, x, NULL, NULL);
  const struct trm_pass pass = {.device = device, .input = &c.input};
  trm_model_forward(&c.model, &pass);
  float *y = host_floats(ROWS * scores);
  device->ops->download(device, y, c.model.scores, ROWS * scores * sizeof *y);
  floats_put(to, number, "in", x, ROWS * f);
  floats_put(to, number, "out", y, ROWS * scores);
  char *name = trm_format("%s/%d.onnx", to, number), digest[65];
  CU_ASSERT_EQUAL_FATAL(onnx_write_limited(name, &c.model, w, strcmp(e->text, "vgg11") ? SIZE_MAX : 0), TRM_OK);
  Onnx__ModelProto *file = file_read(name);
  graph_digest(file->graph, digest);
  fprintf(manifest, "%d %s %s\n", number, digest, e->text);
  onnx__model_proto__free_unpacked(file, NULL);
  trm_free(name);
  trm_free(w);
  nn_case_close(&c);
}

static void answers(struct trm_device *device)
{
  static bool done;
  if (done) /* one device is enough: other tests compare devices */
    return;
  done = true;
  char *name = trm_format("%s/manifest.txt", folder_of_answers());
  FILE *manifest = fopen(name, "w");
  CU_ASSERT_PTR_NOT_NULL_FATAL(manifest);
  for (int number = 0; is_wanted(example_at(number)); number++)
    answer(device, number, example_at(number), manifest);
  fclose(manifest);
  trm_free(name);
}

static void test_answers(void)
{
  CU_ASSERT(true);
  if (folder_of_answers())
    on_devices(answers);
}

int main(void)
{
  if (!mkdtemp(folder))
    return 99;
  path = trm_format("%s/m.onnx", folder);
  CU_TestInfo tests[] = {
    {"files", test_files},
    {"weights in a second file", test_beside},
    {"refused", test_refused},
    {"outputs for check_onnx.py", test_answers},
    CU_TEST_INFO_NULL,
  };
  const int status = suite_run("onnx", tests);
  remove(path);
  rmdir(folder);
  trm_free(path);
  return status;
}

#else

int main(void)
{
  puts("SKIPPED: this build has no protobuf-c");
  return 77;
}

#endif

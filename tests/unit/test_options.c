/* Options: defaults, accepted and refused values, misspelled names, configuration files read and written. */
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/options.h"
#include "messages.h"
#include "suite.h"

static void test_options_default(void)
{
  struct trm_options options;
  int rows = 0;
  trm_options_default(&options);
  for (const struct trm_option *row = trm_option_table; row->name; row++, rows++) {
    if (trm_options_set(&options, row->name, row->default_text) != TRM_OK)
      CU_FAIL("a default that its own row refuses");
    for (const struct trm_option *other = trm_option_table; other != row; other++)
      CU_ASSERT(strcmp(other->name, row->name) != 0 && other->offset != row->offset);
    CU_ASSERT(row->offset < sizeof options);
    CU_ASSERT(row->help && *row->help && !strchr(row->help, '\n'));
    CU_ASSERT_EQUAL(row->choices != NULL, row->type == TRM_OPTION_CHOICE);
  }
  CU_ASSERT(rows > 40);
  CU_ASSERT_STRING_EQUAL(trm_choice_text("optim.name", TRM_UPDATE_LAMB), "lamb");
  CU_ASSERT_STRING_EQUAL(trm_choice_text("optim.schedule", TRM_LR_LINEAR), "linear");
  CU_ASSERT_STRING_EQUAL(trm_choice_text("train.loss", TRM_LOSS_HINGE), "hinge");
  CU_ASSERT_STRING_EQUAL(trm_choice_text("parallel.schedule", TRM_2BW), "2bw");
  CU_ASSERT_STRING_EQUAL(trm_choice_text("parallel.share", TRM_SHARE_NONE), "none");
  CU_ASSERT_STRING_EQUAL(trm_choice_text("parallel.shard", TRM_SHARD_NODE), "node");
  CU_ASSERT_STRING_EQUAL(trm_choice_text("parallel.layout", TRM_LAYOUT_AUTO), "auto");
  CU_ASSERT_STRING_EQUAL(trm_choice_text("strategy.data", TRM_ASSIGN_STATIC), "static");
  CU_ASSERT_STRING_EQUAL(trm_choice_text("strategy.rate", TRM_STALE_RATE_DIVIDED), "staleness");
  CU_ASSERT_STRING_EQUAL(trm_choice_text("strategy.rate", TRM_STALE_RATE_DELAY), "delay");
  CU_ASSERT_STRING_EQUAL(trm_choice_text("strategy.rate", TRM_STALE_RATE_HINGE), "hinge");
  CU_ASSERT_STRING_EQUAL(trm_choice_text("strategy.compensation", TRM_COMPENSATION_ADAPTIVE), "adaptive");
  CU_ASSERT_STRING_EQUAL(trm_choice_text("run.trace", TRM_TRACE_STEPS), "steps");
  CU_ASSERT_STRING_EQUAL(trm_choice_text("device.matmul", TRM_MATMUL_BF16), "bf16");
  CU_ASSERT_STRING_EQUAL(trm_choice_text("device.compute", TRM_COMPUTE_SLEEP), "sleep");
  CU_ASSERT_EQUAL(options.data.memory, INT64_C(1) << 30);
  CU_ASSERT_EQUAL(options.parallel.bucket, 2 << 20);
  CU_ASSERT_EQUAL(options.parallel.data, -1);
  CU_ASSERT_EQUAL(options.optim.rate, 0.1);
  CU_ASSERT_EQUAL(options.optim.epsilon, 1e-8);
  CU_ASSERT_STRING_EQUAL(options.strategy.name, "sync");
  CU_ASSERT_STRING_EQUAL(options.model, "");
  CU_ASSERT_TRUE(options.data.shuffle);
  CU_ASSERT_FALSE(options.run.overwrite);
  trm_options_free(&options);
  CU_ASSERT_PTR_NULL(options.model);
}

static void test_options_set(void)
{
  static const struct {
    const char *name, *value, *error; /* error NULL: accepted */
  } given[] = {
      {"train.batch", "12", NULL},
      {"train.batch", "+12", NULL},
      {"train.batch", "12x", "option train.batch: \"12x\" is not a whole number"},
      {"train.batch", "", "option train.batch: \"\" is not a whole number"},
      {"train.batch", " 12", "is not a whole number"},
      {"train.batch", "12 ", "is not a whole number"},
      {"train.batch", "1.5", "is not a whole number"},
      {"train.batch", "1e3", "is not a whole number"},
      {"train.batch", "0x10", "is not a whole number"},
      {"train.batch", "nan", "is not a whole number"},
      {"train.batch", "0", "option train.batch: 0 is too small: at least 1"},
      {"train.batch", "-3", "at least 1"},
      {"train.batch", "9223372036854775807", NULL},
      {"train.batch", "9223372036854775808", "too large"},
      {"parallel.data", "-1", NULL},
      {"parallel.data", "-2", "at least -1"},
      {"parallel.pipeline", "-2", "option parallel.pipeline: -2 is out of range: -1 to 4096"},
      {"parallel.zero", "4", "option parallel.zero: 4 is out of range: 0 to 3"},
      {"data.threads", "2", "option data.threads: 2 is out of range: 0 to 1"},
      {"optim.lr", "0.05", NULL},
      {"optim.lr", ".5", NULL},
      {"optim.lr", "1e-3", NULL},
      {"optim.lr", "nan", "option optim.lr: \"nan\" is not a number"},
      {"optim.lr", "inf", "is not a number"},
      {"optim.lr", "1e999", "too large"},
      {"optim.lr", "0.1f", "is not a number"},
      {"optim.lr", "0x1p-3", "is not a number"},
      {"optim.lr", "--1", "is not a number"},
      {"optim.lr", "", "is not a number"},
      {"optim.lr", "-0.1", "at least 0"},
      {"optim.momentum", "1.5", "0 to 1"},
      {"optim.beta2", "1", "out of range"},
      {"optim.name", "adam", NULL},
      {"optim.name", "ada", "option optim.name: \"ada\" is not one of sgd|momentum|nesterov|adagrad|adam|adamw|nadamw"},
      {"optim.name", "sgd|momentum", "is not one of"},
      {"optim.name", "", "is not one of"},
      {"data.memory", "512M", NULL},
      {"data.memory", "1.5g", NULL},
      {"data.memory", "2097152", NULL},
      {"data.memory", "4X", "option data.memory: \"4X\" is not a number of bytes"},
      {"data.memory", "4GB", "is not a number of bytes"},
      {"data.memory", "G", "is not a number of bytes"},
      {"data.memory", "", "is not a number of bytes"},
      {"data.memory", "0.3", "is not a whole number of bytes"},
      {"data.memory", "1K", "out of range"},
      {"data.memory", "9e200T", "out of range"},
      {"data.memory", "9e300T", "too large"},
      {"data.shuffle", "no", NULL},
      {"data.shuffle", "maybe", "is neither yes nor no"},
      {"data.drop_last", "on", NULL},
      {"data.drop_last", "maybe", "option data.drop_last: \"maybe\" is neither yes nor no"},
      {"run.dir", "a \xc3\xa4 b", NULL},
      {"run.dir", "a\xff", "not UTF-8"},
      {"train.bacth", "1", "unknown option \"train.bacth\"; did you mean \"train.batch\"?"},
      {"batch", "1", "unknown option \"batch\"; did you mean \"train.batch\"?"},
      {"shrae", "1", "unknown option \"shrae\"; did you mean \"parallel.share\"?"},
      {"strategy", "sync", "\"strategy\" is a section"},
      {"xyzzy.quux", "1", "unknown option \"xyzzy.quux\" (trireme options lists all)"},
      {"", "1", "unknown option \"\""},
  };
  struct trm_options options;
  trm_options_default(&options);
  for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
    trm_error(TRM_OK, "(no error)");
    const int status = trm_options_set(&options, given[i].name, given[i].value);
    if (status != (given[i].error ? TRM_USAGE : TRM_OK))
      fprintf(stderr, "%s=%s: status %d\n", given[i].name, given[i].value, status);
    CU_ASSERT_EQUAL(status, given[i].error ? TRM_USAGE : TRM_OK);
    CU_ASSERT(error_has(given[i].error ? given[i].error : "(no error)"));
  }
  /* the last accepted value stays; a refused value changes nothing */
  CU_ASSERT_EQUAL(options.train.batch, INT64_MAX);
  CU_ASSERT_EQUAL(options.optim.rate, 1e-3);
  CU_ASSERT_EQUAL(options.optim.name, TRM_UPDATE_ADAM);
  CU_ASSERT_EQUAL(options.data.memory, 2097152);
  CU_ASSERT_FALSE(options.data.shuffle);
  CU_ASSERT_TRUE(options.data.drop_last);
  CU_ASSERT_STRING_EQUAL(options.run.dir, "a \xc3\xa4 b");
  CU_ASSERT_EQUAL(trm_options_set(&options, "data.memory", "1.5g"), TRM_OK);
  CU_ASSERT_EQUAL(options.data.memory, INT64_C(3) << 29);
  CU_ASSERT_EQUAL(trm_options_set(&options, "data.shuffle", "1"), TRM_OK);
  CU_ASSERT_TRUE(options.data.shuffle);
  static const char *const truths[] = {"no", "yes", "false", "true", "off", "on", "0", "1"};
  for (int i = 0; i < 8; i++) {
    CU_ASSERT_EQUAL(trm_options_set(&options, "log.quiet", truths[i]), TRM_OK);
    CU_ASSERT_EQUAL(options.log.quiet, i % 2 == 1);
  }
  trm_options_free(&options);
}

static void test_nearest(void)
{
  static const char *const known[] = {"train", "data", "parallel", "lr", NULL};
  CU_ASSERT_PTR_EQUAL(trm_nearest_word("trian", known), known[0]);
  CU_ASSERT_PTR_EQUAL(trm_nearest_word("trai", known), known[0]);
  CU_ASSERT_PTR_EQUAL(trm_nearest_word("dataa", known), known[1]);
  CU_ASSERT_PTR_EQUAL(trm_nearest_word("paralel", known), known[2]);
  CU_ASSERT_PTR_EQUAL(trm_nearest_word("rl", known), known[3]); /* swapped letters are one change */
  CU_ASSERT_PTR_NULL(trm_nearest_word("zzzzz", known));
  CU_ASSERT_PTR_NULL(trm_nearest_word("", known));
  char word[500];
  memset(word, 'a', sizeof word - 1);
  word[sizeof word - 1] = '\0';
  CU_ASSERT_PTR_NULL(trm_nearest_word(word, known));
}

static void test_options_print(void)
{
  struct capture capture;
  CU_ASSERT_EQUAL(trm_options_print(capture_begin(&capture), "run"), TRM_OK);
  fclose(capture.stream);
  int lines = 0;
  for (char *line = strtok(capture.text, "\n"); line; line = strtok(NULL, "\n"), lines++)
    CU_ASSERT_EQUAL(strncmp(line, "run.", 4), 0);
  CU_ASSERT_EQUAL(lines, 22);
  free(capture.text);

  CU_ASSERT_EQUAL(trm_options_print(capture_begin(&capture), NULL), TRM_OK);
  fclose(capture.stream);
  for (const struct trm_option *row = trm_option_table; row->name; row++)
    CU_ASSERT(strstr(capture.text, row->name) && strstr(capture.text, row->help));
  free(capture.text);

  CU_ASSERT_EQUAL(trm_options_print(capture_begin(&capture), "trian"), TRM_USAGE);
  CU_ASSERT(error_has("unknown section \"trian\"; did you mean \"train\"?"));
  fclose(capture.stream);
  CU_ASSERT_STRING_EQUAL(capture.text, "");
  free(capture.text);
}

#ifdef HAVE_LIBYAML

static char config_path[] = "test_options_XXXXXX";

/* Reads `text` as a configuration file over the defaults. */
static int options_of(const char *text, struct trm_options *options)
{
  FILE *file = fopen(config_path, "w");
  if (!file)
    return -1;
  fputs(text, file);
  fclose(file);
  trm_options_default(options);
  return trm_options_read(options, config_path);
}

static void test_options_read(void)
{
  struct trm_options options;
  const int made = mkstemp(config_path);
  CU_ASSERT_FATAL(made >= 0);
  close(made);

  CU_ASSERT_EQUAL(options_of("model: mlp 784-10 relu\ndata: {file: d.h5, shuffle: no}\n"
                             "optim:\n  lr: 0.25\n  name: adam\nstrategy:\nrun:\n  overwrite: yes\n", &options),
                  TRM_OK);
  CU_ASSERT_STRING_EQUAL(options.model, "mlp 784-10 relu");
  CU_ASSERT_STRING_EQUAL(options.data.file, "d.h5");
  CU_ASSERT_FALSE(options.data.shuffle);
  CU_ASSERT_EQUAL(options.optim.rate, 0.25);
  CU_ASSERT_EQUAL(options.optim.name, TRM_UPDATE_ADAM);
  CU_ASSERT_STRING_EQUAL(options.strategy.name, "sync");
  CU_ASSERT_TRUE(options.run.overwrite);
  trm_options_free(&options);

  CU_ASSERT_EQUAL(options_of("model:\n  - linear 256\n  - relu\n  - dropout: 0.5\n  - {linear: 10, bias: no}\n"
                             "  - relu:\n", &options),
                  TRM_OK);
  CU_ASSERT_STRING_EQUAL(options.model, "linear 256 | relu | dropout 0.5 | linear 10 bias=no | relu");
  trm_options_free(&options);
  CU_ASSERT_EQUAL(options_of("", &options), TRM_OK);
  trm_options_free(&options);
  static const char *const with_init[] = {"model: {text: gpt, init: w.safetensors}\ntrain.batch: 7\n",
                                          "model:\n  init: w.safetensors\n  text: [gpt]\ntrain: {batch: 7}\n",
                                          "model: gpt\nmodel.init: w.safetensors\ntrain.batch: 7\n"};
  for (size_t i = 0; i < sizeof with_init / sizeof *with_init; i++) {
    CU_ASSERT_EQUAL(options_of(with_init[i], &options), TRM_OK);
    CU_ASSERT_STRING_EQUAL(options.model, "gpt");
    CU_ASSERT_STRING_EQUAL(options.model_init, "w.safetensors");
    CU_ASSERT_EQUAL(options.train.batch, 7);
    trm_options_free(&options);
  }

  static const struct {
    const char *text, *error;
  } wrong[] = {
      {"data: {file: x}\ntrian: {batch: 3}\n", ":2: unknown section \"trian\"; did you mean \"train\"?"},
      {"train:\n  epochs: 1\n  bacth: 3\n", ":3: unknown option \"train.bacth\"; did you mean \"train.batch\"?"},
      {"train:\n  batch: 12x\n", ":2: option train.batch: \"12x\" is not a whole number"},
      {"train:\n  batch: 1\n  batch: 2\n", ":3: option train.batch is given twice"},
      {"train: {batch: 1}\ndata: {file: x}\ntrain: {epochs: 2}\n",
       ":3: section train is given twice (first in line 1)"},
      {"train: {batch: [1, 2]}\n", ":1: option train.batch takes one value"},
      {"strategy: sync\n", ":1: section strategy holds entries (strategy: {KEY: VALUE}) with these keys: name"},
      {"strategy: [name]\n", ":1: section strategy holds entries"},
      {"model: {linear: 3}\n", ":1: model: is a text"},
      {"model: {text: {linear: 3}}\n", ":1: model: is a text"},
      {"model: {text: gpt, init: [a]}\n", ":1: option model.init takes one value"},
      {"train: {batch: 1}\ntrain.batch: 2\n", ":2: option train.batch is given twice"},
      {"train.bacth: 2\n", ":1: unknown option \"train.bacth\"; did you mean \"train.batch\"?"},
      {"model: [[linear, 3]]\n", ":1: an item of the model"},
      {"model: [{}]\n", ":1: an item of the model"},
      {"model:\n  - conv: [1, 2]\n", ":2: model: conv takes one value"},
      {"- 1\n", ":1: a configuration is a map of sections"},
      {"just a text\n", ":1: a configuration is a map of sections"},
      {"data: {file: [}\n", ":1:"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    CU_ASSERT_EQUAL(options_of(wrong[i].text, &options), TRM_USAGE);
    CU_ASSERT(error_has(wrong[i].error));
    CU_ASSERT(error_has(config_path));
    trm_options_free(&options);
  }
  CU_ASSERT_EQUAL(trm_options_read(&options, "/nonexistent/c.yaml"), TRM_USAGE);
  remove(config_path);
}

/* Options written and read back are bit-identical. */
static void test_options_write(void)
{
  static const char *const texts[] = {
      "plain/path-1.h5", "", "yes", "two words | 'q' \"d\" \\ #x: {y}", " lead", "-", "...", "a..",
      "\xc3\xa4\xe2\x82\xac\xf0\x9f\x9a\xa3", "tab\tline\nbell\x07\x7f\xc2\x85\xc2\xa0 \xe2\x80\xa8 x \xc2\x85 y",
      "\xef\xbb\xbf\xef\xbf\xbe~null", "1e5", "[a]", "&a", "*a", "!t", "%d", "@", "`", "?", "x: y"};
  static const double reals[] = {0.1, 1.0 / 3, 1e-300, 2.2250738585072014e-308, 12345678.9, 1, 0.30000000000000004};
  struct trm_options options, again;
  const size_t count = sizeof texts / sizeof *texts;
  for (size_t round = 0; round < count; round++) {
    trm_options_default(&options);
    trm_free(options.run.dir), trm_free(options.model), trm_free(options.optim.milestones);
    options.run.dir = trm_strdup(texts[round]);
    options.model = trm_strdup(texts[(round + 1) % count]);
    CU_ASSERT_EQUAL(trm_options_set(&options, "model.init", texts[(round + 3) % count]), TRM_OK);
    options.optim.milestones = trm_strdup(texts[(round + 2) % count]);
    options.optim.rate = reals[round % 7];
    options.optim.l2 = reals[(round + 3) % 7];
    options.run.seed = INT64_MAX - (int64_t)round;
    options.data.memory = (INT64_C(1) << 49) + 12345 + (int64_t)round;
    options.run.overwrite = round % 2;
    CU_ASSERT_EQUAL(trm_options_set(&options, "parallel.share", round % 2 ? "numa" : "none"), TRM_OK);

    struct capture capture;
    CU_ASSERT_EQUAL(trm_options_write(&options, capture_begin(&capture), "trireme 1\nsecond line: {"), TRM_OK);
    fclose(capture.stream);
    CU_ASSERT_EQUAL(strncmp(capture.text, "# trireme 1\n# second line: {\nmodel: ", 36), 0);
    const int status = options_of(capture.text, &again);
    CU_ASSERT_EQUAL(status, TRM_OK);
    if (status != TRM_OK)
      fprintf(stderr, "%s\n%s\n", trm_error_text(), capture.text);
    for (const struct trm_option *row = trm_option_table; row->name; row++) {
      const char *a = (const char *)&options + row->offset, *b = (const char *)&again + row->offset;
      const size_t bytes = row->type == TRM_OPTION_BOOL     ? sizeof(bool)
                           : row->type == TRM_OPTION_CHOICE ? sizeof(int)
                                                            : 8;
      if (row->type == TRM_OPTION_TEXT)
        CU_ASSERT_STRING_EQUAL(*(char *const *)a, *(char *const *)b)
      else
        CU_ASSERT_EQUAL(memcmp(a, b, bytes), 0);
    }
    free(capture.text);
    trm_options_free(&options);
    trm_options_free(&again);
  }
  remove(config_path);

  trm_options_default(&options);
  FILE *full = fopen("/dev/full", "w");
  if (full) {
    setvbuf(full, NULL, _IONBF, 0);
    CU_ASSERT_EQUAL(trm_options_write(&options, full, NULL), TRM_FAILED);
    fclose(full);
  }
  trm_options_free(&options);
}

#endif

int main(void)
{
  CU_TestInfo tests[] = {
    {"defaults", test_options_default},
    {"set", test_options_set},
    {"nearest word", test_nearest},
    {"printed", test_options_print},
#ifdef HAVE_LIBYAML
    {"read", test_options_read},
    {"written and read", test_options_write},
#endif
    CU_TEST_INFO_NULL,
  };
  return suite_run("options", tests);
}

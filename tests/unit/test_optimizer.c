/* Optimizers and schedules: options become rules, wrong ones are refused, rates follow their closed forms. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "kernels/kernels.h"
#include "nn/optimizer.h"
#include "suite.h"

/* Default options with "name=value" settings, separated by spaces. Release with trm_options_free. */
static struct trm_options options_of(const char *settings)
{
  struct trm_options options;
  trm_options_default(&options);
  char *text = trm_strdup(settings), *state = NULL;
  for (char *word = strtok_r(text, " ", &state); word; word = strtok_r(NULL, " ", &state)) {
    char name[64];
    char *equals = strchr(word, '=');
    snprintf(name, sizeof name, "optim.%.*s", (int)(equals - word), word);
    CU_ASSERT_EQUAL_FATAL(trm_options_set(&options, name, equals + 1), TRM_OK);
  }
  trm_free(text);
  return options;
}

static void test_rules(void)
{
  static const struct {
    const char *settings;
    enum trm_update_rule rule;
    int states;
    float momentum;
    const char *first, *second, *third;
  } cases[] = {
    {"name=sgd", TRM_UPDATE_SGD, 0, 0, NULL, NULL, NULL},
    {"name=sgd momentum=0.8", TRM_UPDATE_MOMENTUM, 1, 0.8f, "momentum", NULL, NULL},
    {"name=momentum", TRM_UPDATE_MOMENTUM, 1, 0.9f, "momentum", NULL, NULL},
    {"name=momentum momentum=0.5", TRM_UPDATE_MOMENTUM, 1, 0.5f, "momentum", NULL, NULL},
    {"name=nesterov", TRM_UPDATE_NESTEROV, 1, 0.9f, "momentum", NULL, NULL},
    {"name=nesterov momentum=0.5", TRM_UPDATE_NESTEROV, 1, 0.5f, "momentum", NULL, NULL},
    {"name=adagrad", TRM_UPDATE_ADAGRAD, 1, 0, "squares", NULL, NULL},
    {"name=adam", TRM_UPDATE_ADAM, 2, 0, "first", "second", NULL},
    {"name=adamw decay=0.01", TRM_UPDATE_ADAMW, 2, 0, "first", "second", NULL},
    {"name=nadamw decay=0.01", TRM_UPDATE_NADAMW, 2, 0, "first", "second", NULL},
    {"name=lars", TRM_UPDATE_LARS, 1, 0.9f, "momentum", NULL, NULL},
    {"name=lamb decay=0.01", TRM_UPDATE_LAMB, 2, 0, "first", "second", NULL},
    {"name=muon decay=0.01", TRM_UPDATE_MUON, 2, 0.95f, "first", "second", NULL},
    {"name=muon momentum=0.9", TRM_UPDATE_MUON, 2, 0.9f, "first", "second", NULL},
    {"name=sgd ema=0.9", TRM_UPDATE_SGD, 1, 0, "ema", NULL, NULL},
    {"name=lars ema=0.9", TRM_UPDATE_LARS, 2, 0.9f, "momentum", "ema", NULL},
    {"name=lamb ema=0.9", TRM_UPDATE_LAMB, 3, 0, "first", "second", "ema"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct trm_options options = options_of(cases[i].settings);
    struct trm_optimizer o;
    CU_ASSERT_EQUAL_FATAL(trm_optimizer_create(&o, &options, NULL), TRM_OK);
    CU_ASSERT_EQUAL(o.update.rule, cases[i].rule);
    CU_ASSERT_EQUAL(o.states, cases[i].states);
    CU_ASSERT_EQUAL(o.update.momentum, cases[i].momentum);
    CU_ASSERT_EQUAL(o.update.scale, 1);
    const char *wanted[] = {cases[i].first, cases[i].second, cases[i].third};
    for (int s = 0; s < 3; s++) {
      const char *name = trm_optimizer_state_name(&o, s);
      CU_ASSERT(wanted[s] ? name && strcmp(name, wanted[s]) == 0 : !name);
    }
    CU_ASSERT_PTR_NULL(trm_optimizer_state_name(&o, 3));
    CU_ASSERT_PTR_NULL(trm_optimizer_state_name(&o, -1));
    trm_options_free(&options);
  }
  struct trm_options options = options_of("name=adamw decay=0.25 l2=0.5 beta1=0.75 beta2=0.875 epsilon=1e-6 clip=3");
  struct trm_optimizer o;
  CU_ASSERT_EQUAL(trm_optimizer_create(&o, &options, NULL), TRM_OK);
  CU_ASSERT(o.update.decay == 0.25f && o.update.l2 == 0.5f && o.update.beta1 == 0.75f && o.update.beta2 == 0.875f);
  CU_ASSERT(o.update.epsilon == 1e-6f && o.clip == 3);
  trm_options_free(&options);
  options = options_of("name=adamw ema=0.9");
  options.parallel.error_feedback = true;
  CU_ASSERT(trm_optimizer_create(&o, &options, NULL) == TRM_OK && o.states == 4 && o.error_feedback);
  CU_ASSERT_STRING_EQUAL(trm_optimizer_state_name(&o, 1), "second");
  CU_ASSERT_STRING_EQUAL(trm_optimizer_state_name(&o, 2), "last_step");
  CU_ASSERT_STRING_EQUAL(trm_optimizer_state_name(&o, 3), "ema");
  trm_options_free(&options);
  options = options_of("momentum=0.5 clip=3");
  options.strategy.compress = TRM_COMPRESS_DGC; /* has the momentum, and clips */
  CU_ASSERT(trm_optimizer_create(&o, &options, NULL) == TRM_OK && o.update.rule == TRM_UPDATE_SGD && o.clip == 0);
  trm_options_free(&options);
}

static void test_refused(void)
{
  static const struct {
    const char *settings;
    const char *field; /* a number refused by the option table, set directly */
    double value;
    const char *message;
  } cases[] = {
    {"name=sgd decay=0.1", "", 0,
     "optim.decay is 0.1: decoupled decay is for adamw, nadamw, lamb and muon, with sgd use optim.l2"},
    {"name=adam decay=0.1", "", 0,
     "optim.decay is 0.1: decoupled decay is for adamw, nadamw, lamb and muon, with adam use optim.l2"},
    {"name=adagrad momentum=0.5", "", 0, "optim.momentum is 0.5: adagrad has none"},
    {"name=lars decay=0.1", "", 0,
     "optim.decay is 0.1: decoupled decay is for adamw, nadamw, lamb and muon, with lars use optim.l2"},
    {"name=lamb momentum=0.9", "", 0, "optim.momentum is 0.9: lamb has none"},
    {"name=muon l2=0.1", "", 0, "optim.l2 is 0.1: muon has decoupled decay alone, use optim.decay"},
    {"", "trust", -1, "optim.trust is -1"},
    {"", "ema", 1, "optim.ema is 1, must be in [0, 1)"},
    {"name=adam momentum=0.9", "", 0, "optim.momentum is 0.9: adam has none"},
    {"", "rate", -1, "optim.lr is -1, must be in [0, inf)"},
    {"", "rate", NAN, "optim.lr is nan"},
    {"", "momentum", 1, "optim.momentum is 1, must be in [0, 1)"},
    {"", "beta1", 1, "optim.beta1 is 1, must be in [0, 1)"},
    {"", "beta2", -0.5, "optim.beta2 is -0.5, must be in [0, 1)"},
    {"name=adam", "epsilon", 0, "optim.epsilon is 0, must be above 0"},
    {"", "l2", -1, "optim.l2 is -1"},
    {"", "clip", -1, "optim.clip is -1"},
    {"", "warmup", -1, "optim.warmup is -1"},
    {"warmup=2.5", "", 0, "optim.warmup is 2.5, must be a whole number of steps, or a fraction of the run below 1"},
    {"schedule=cosine", "final", 1.5, "optim.final is 1.5, must be in [0, 1]"},
    {"schedule=step milestones=0.5", "gamma", 0, "optim.gamma is 0"},
    {"schedule=step", "", 0, "optim.schedule is step: optim.milestones must say when"},
    {"schedule=step milestones=,", "", 0, "optim.schedule is step: optim.milestones must say when"},
    {"schedule=step milestones=0.5,1.5", "", 0, "optim.milestones is '0.5,1.5', must be fractions of the run"},
    {"schedule=step milestones=30,sixty", "", 0, "optim.milestones is '30,sixty'"},
    {"schedule=step milestones=30,60x", "", 0, "optim.milestones is '30,60x'"},
    {"schedule=step milestones=-1", "", 0, "optim.milestones is '-1'"},
    {"schedule=step milestones=nan", "", 0, "optim.milestones is 'nan'"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct trm_options options = options_of(cases[i].settings);
    struct {
      const char *name;
      double *at;
    } fields[] = {
      {"rate", &options.optim.rate},       {"momentum", &options.optim.momentum}, {"beta1", &options.optim.beta1},
      {"beta2", &options.optim.beta2},     {"epsilon", &options.optim.epsilon},   {"l2", &options.optim.l2},
      {"clip", &options.optim.clip},       {"warmup", &options.optim.warmup},     {"final", &options.optim.final},
      {"gamma", &options.optim.gamma},     {"trust", &options.optim.trust},       {"ema", &options.optim.ema},
    };
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++)
      if (strcmp(fields[f].name, cases[i].field) == 0)
        *fields[f].at = cases[i].value;
    struct trm_optimizer o;
    CU_ASSERT_EQUAL(trm_optimizer_create(&o, &options, NULL), TRM_USAGE);
    const bool as_said = strncmp(trm_error_text(), cases[i].message, strlen(cases[i].message)) == 0;
    if (!as_said)
      printf("\n  %s: %s\n", cases[i].settings, trm_error_text());
    CU_ASSERT(as_said);
    trm_options_free(&options);
  }
}

/* Slices of any division produce each partial norm exactly once; vectors have none. */
static void test_pieces(void)
{
  enum { UNIT = 64, N = 16 * 40 };
  static const struct trm_tensor tensor[] = {{.end = 16},      {.end = 32, .vector = true},
                                             {.end = 48},      {.end = 64},
                                             {.end = 80},      {.end = 16 * 20},
                                             {.end = 16 * 21, .vector = true}, {.end = 16 * 36}};
  struct trm_device device;
  CU_ASSERT_EQUAL_FATAL(trm_device_open(&device, "cpu", "auto", TRM_MATMUL_F32, 0, 1), TRM_OK);
  const struct trm_optimizer o = {.update = {.rule = TRM_UPDATE_LAMB}, .tensor = tensor, .tensors = 8};
  double whole[32][2] = {{0}}, sliced[32][2] = {{0}};
  float w[N], g[N], ratio[8];
  for (int i = 0; i < N; i++) {
    w[i] = (float)(1 + i % 7);
    g[i] = (float)(1 + i % 5);
  }
  CU_ASSERT_EQUAL(trm_optimizer_trained(&o), 16 * 36);
  CU_ASSERT_EQUAL(trm_optimizer_norm_count(&o, UNIT), 8 + 8);
  CU_ASSERT_EQUAL(trm_optimizer_norm_count(&o, SIZE_MAX), 8);
  const struct trm_update_interval all = {0, N, w, NULL, NULL};
  trm_optimizer_partial_norms(&o, &device, UNIT, &all, g, whole);
  static const size_t cut[] = {0, 64, 256, 320, 576, N};
  for (int c = 0; c < 5; c++)
    trm_optimizer_partial_norms(&o, &device, UNIT,
                                &(struct trm_update_interval){cut[c], cut[c + 1] - cut[c], w + cut[c], NULL, NULL},
                                g + cut[c], sliced);
  CU_ASSERT(memcmp(whole, sliced, sizeof whole) == 0);
  trm_optimizer_trust_ratios(&o, &o.update, UNIT, whole, ratio);
  size_t low = 0;
  for (int t = 0; t < 8; low = tensor[t++].end) {
    double ww = 0, gg = 0;
    for (size_t i = low; i < tensor[t].end; i++) {
      ww += (double)w[i] * (double)w[i];
      gg += (double)g[i] * (double)g[i];
    }
    CU_ASSERT_EQUAL(ratio[t], tensor[t].vector ? 1 : (float)(sqrt(ww) / sqrt(gg)));
  }
  trm_device_close(&device);
}

/* With a norm of 0 the ratio is 1. */
static void test_zero(void)
{
  static const struct trm_tensor tensor[] = {{.end = 16}, {.end = 32}, {.end = 48}};
  for (enum trm_update_rule rule = TRM_UPDATE_LARS; rule <= TRM_UPDATE_LAMB; rule++) {
    const struct trm_optimizer o = {.update = {.rule = rule, .scale = 1}, .trust = 2, .tensor = tensor, .tensors = 3};
    double norm[3][2] = {{0, 4}, {4, 0}, {4, 16}};
    float ratio[3];
    trm_optimizer_trust_ratios(&o, &o.update, SIZE_MAX, norm, ratio);
    CU_ASSERT(ratio[0] == 1 && ratio[1] == 1);
    CU_ASSERT_EQUAL(ratio[2], rule == TRM_UPDATE_LAMB ? 0.5f : 1.0f);
  }
}

static void test_clip(void)
{
  struct trm_optimizer o = {.clip = 2};
  CU_ASSERT_EQUAL(trm_clip_scale(&o, 1), 1);
  CU_ASSERT_EQUAL(trm_clip_scale(&o, 4), 1);
  CU_ASSERT_EQUAL(trm_clip_scale(&o, 64), 0.25f);
  CU_ASSERT_EQUAL(trm_clip_scale(&o, 0), 1);
  o.clip = 0;
  CU_ASSERT_EQUAL(trm_clip_scale(&o, 1e30), 1);
}

/* Compares the rate of every step of a run of `steps` with a formula. */
static void rates_are(const char *settings, uint64_t steps, uint64_t per_epoch, double (*formula)(double step))
{
  struct trm_options options = options_of(settings);
  CU_ASSERT_EQUAL_FATAL(trm_schedule_check(&options), TRM_OK);
  for (uint64_t step = 0; step < steps; step++) {
    const double rate = trm_schedule_rate(&options, step, steps, per_epoch), expected = formula((double)step);
    const bool right = fabs(rate - expected) <= 1e-14;
    if (!right)
      printf("\n  %s: step %d of %d: %.17g, must be %.17g\n", settings, (int)step, (int)steps, rate, expected);
    CU_ASSERT(right);
  }
  trm_options_free(&options);
}

static double constant(double step) { return (void)step, 0.5; }
static double warm_10(double step) { return step < 10 ? 0.5 * (step + 1) / 10 : 0.5; }
static double warm_9(double step) { return 0.5 * (step + 1) / 9; }
static double warm_cosine(double step)
{
  const double cosine = 0.5 * (0.1 + 0.9 * (1 + cos(M_PI * step / 40)) / 2);
  return step < 8 ? cosine * (step + 1) / 8 : cosine;
}
static double linear(double step) { return 0.5 * (1 - step / 40); }
static double linear_final(double step) { return 0.5 - 0.4 * step / 40; }
static double halves(double step) { return step < 20 ? 0.5 : step < 30 ? 0.05 : 0.005; }
static double epochs(double step) { return step < 14 ? 0.5 : step < 21 ? 0.25 : 0.125; }
/* warm-up over 4 steps overlaps milestones at 2 and 3 */
static double warm_steps(double step)
{
  return (step < 4 ? (step + 1) / 4 : 1) * (step < 2 ? 0.5 : step < 3 ? 0.25 : 0.125);
}
static double tenth(double step) { return step < 3 ? 0.5 : 0.05; }

static void test_schedules(void)
{
  rates_are("lr=0.5", 40, 7, constant);
  rates_are("lr=0.5 warmup=10", 40, 7, warm_10);
  rates_are("lr=0.5 warmup=0.25", 40, 7, warm_10);
  rates_are("lr=0.5 schedule=cosine final=0.1 warmup=8", 40, 7, warm_cosine);
  rates_are("lr=0.5 schedule=cosine final=0.1 warmup=0.2", 40, 7, warm_cosine);
  rates_are("lr=0.5 schedule=linear", 40, 7, linear);
  rates_are("lr=0.5 schedule=linear final=0.2", 40, 7, linear_final);
  rates_are("lr=0.5 schedule=step milestones=0.5,0.75", 40, 7, halves);
  rates_are("lr=0.5 schedule=step milestones=0.75,.5,1.0", 40, 7, halves); /* 1.0: the end of the run, never reached */
  rates_are("lr=0.5 schedule=step gamma=0.5 milestones=2,3,9", 40, 7, epochs);
  rates_are("lr=0.5 schedule=step milestones=0.1", 30, 7, tenth); /* 0.1 * 30 is inexact in binary */
  rates_are("lr=0.5 schedule=step gamma=0.5 milestones=2,3 warmup=4", 9, 1, warm_steps);
  /* very short runs */
  rates_are("lr=0.5 schedule=cosine", 1, 1, constant);
  rates_are("lr=0.5 schedule=linear", 1, 1, constant);
  rates_are("lr=0.5 schedule=step milestones=0.5,1", 1, 1, constant);
  rates_are("lr=0.5 warmup=0.3", 1, 1, constant);
  rates_are("lr=0.5 warmup=1", 3, 1, constant);
  rates_are("lr=0.5 warmup=9", 3, 1, warm_9); /* longer than the run */
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"options become rules", test_rules}, {"options refused", test_refused},        {"clipping", test_clip},
    {"partial norms and trust ratios", test_pieces},   {"norms of 0", test_zero},
    {"schedules", test_schedules},        CU_TEST_INFO_NULL,
  };
  return suite_run("optimizer", tests);
}

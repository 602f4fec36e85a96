/* Configurations, options and the texts in them, models, files of a machine's figures. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/options.h"
#include "core/status.h"
#include "fuzz.h"
#include "mpi/coll/choices.h"
#include "nn/balance.h"
#include "nn/param_names.h"
#include "plan/machine.h"
#include "train/shares.h"
#include "train/slowdown.h"

static char *fuzz_written(const struct trm_options *options)
{
  char *text = NULL;
  size_t bytes = 0;
  FILE *stream = open_memstream(&text, &bytes);
  fuzz_require(stream && trm_options_write(options, stream, "head") == TRM_OK && fclose(stream) == 0,
               "options can be written");
  return text;
}

/* Options that are written read back as the same. */
static void fuzz_round_trip(const struct trm_options *options)
{
  struct trm_options again;
  char *text = fuzz_written(options);
  trm_options_default(&again);
  const char *path = fuzz_file("again.yaml", (struct fuzz_input){text, strlen(text)});
  fuzz_require(trm_options_read(&again, path) == TRM_OK, "written options can be read");
  char *same = fuzz_written(&again);
  fuzz_require(strcmp(text, same) == 0, "written options read back as the same");
  free(text);
  free(same);
  trm_options_free(&again);
}

static void fuzz_config(struct fuzz_input input)
{
  struct trm_options options;
  trm_options_default(&options);
  if (trm_options_read(&options, fuzz_file("config.yaml", input)) == TRM_OK)
    fuzz_round_trip(&options);
  trm_options_free(&options);
}

static void fuzz_machine(struct fuzz_input input)
{
  struct trm_machine machine;
  trm_machine_create(&machine, 2, 1);
  trm_machine_read(&machine, fuzz_file("machine.json", input));
  trm_machine_free(&machine);
}

/* The texts in options, for rank 3 of 5. */
static void fuzz_option_texts(const struct trm_options *options)
{
  struct trm_comm comm = *trm_comm_self();
  struct trm_slowdown slowdown;
  double share[5], fraction;
  const char *file;
  int blocks;
  comm.rank = 3;
  comm.size = 5;
  if (trm_slowdown_create(&slowdown, options, &comm, 1e6) == TRM_OK) {
    fuzz_require(trm_slowdown_factor(&slowdown, 7) >= 0, "a factor of jitter is not negative");
    fuzz_require(slowdown.slow_factor >= 1, "a rank is slowed");
  }
  trm_slowdown_has_failures(options->run.outages);
  if (trm_shares_parse(options->parallel.shares, 5, share) == TRM_OK) {
    struct trm_shares shares = {0};
    const int32_t shard[5] = {0, 1, 2, 3, 4};
    size_t low = 0, high = 0;
    trm_shares_set(&shares, share, shard, 5);
    for (int i = 0; i < 5; i++) {
      trm_shares_interval(&shares, 23, i, &low, &high);
      fuzz_require(low <= high && high <= 23, "a share is an interval of the rows");
    }
    fuzz_require(high == 23, "the shares are all rows");
    trm_shares_free(&shares);
  }
  trm_model_parse_recompute(options->parallel.recompute, &blocks);
  trm_validation_option(options, &fraction, &file);
  if (trm_schedule_check(options) == TRM_OK)
    for (uint64_t step = 0; step < 100; step += 9)
      fuzz_require(trm_schedule_rate(options, step, 100, 10) >= 0, "a rate is not negative");
}

/* Lines NAME=VALUE. */
static void fuzz_options(struct fuzz_input input)
{
  struct trm_options options;
  char *text = fuzz_string(input), *rest = text;
  trm_options_default(&options);
  for (char *line; (line = strsep(&rest, "\n"));) {
    char *value = strchr(line, '=');
    if (!value)
      continue;
    *value = '\0';
    trm_options_set(&options, line, value + 1);
  }
  free(text);
  fuzz_option_texts(&options);
  fuzz_round_trip(&options);
  trm_options_free(&options);
}

/* Choices that are written read back as the same. */
static void fuzz_collectives(struct fuzz_input input)
{
  struct coll_choices choices, again;
  if (coll_choices_read(&choices, fuzz_file("collectives.json", input)) != TRM_OK)
    return;
  const char *path = fuzz_path("again.json");
  fuzz_require(coll_choices_write(&choices, path) == TRM_OK && coll_choices_read(&again, path) == TRM_OK,
               "written choices can be read");
  fuzz_require(again.count == choices.count, "as many choices as were written");
  for (size_t i = 0; i < choices.count; i++) {
    const struct coll_choice *a = &choices.choice[i], *b = &again.choice[i];
    fuzz_require(a->kind == b->kind && a->across_nodes == b->across_nodes && a->ranks == b->ranks &&
                   a->bytes == b->bytes && a->ops == b->ops, "written choices read back as the same");
  }
  coll_choose(&choices, COLL_ALLREDUCE, 3, COLL_NODES, 1000);
  coll_choices_free(&choices);
  coll_choices_free(&again);
}

/* A configuration ('c'), options ('o'), choices of collectives ('k'), or the figures of a machine. */
void fuzz_settings(struct fuzz_input input)
{
  const char variant = fuzz_variant(&input);
  if (variant == 'c')
    fuzz_config(input);
  else if (variant == 'o')
    fuzz_options(input);
  else if (variant == 'k')
    fuzz_collectives(input);
  else
    fuzz_machine(input);
}

static void fuzz_use_model(const struct trm_model *model, const char *cuts)
{
  struct trm_layer_range chunk[3];
  struct trm_param_names names;
  char *text = trm_model_describe(model);
  trm_free(text);
  trm_model_cost(model);
  trm_balance(model, cuts, 3, chunk);
  trm_param_names_create(&names, model);
  trm_param_names_free(&names);
}

/* A model for vectors ('v'), images, or tokens ('t'), and where it is cut. */
void fuzz_model(struct fuzz_input input)
{
  struct trm_input_spec spec = {.shape = {.dims = 3, .size = {1, 8, 8}}, .target = TRM_TARGET_CLASS, .classes = 10};
  struct trm_model model, again;
  const char variant = fuzz_variant(&input);
  if (variant == 'v')
    spec.shape = (struct trm_shape){.dims = 1, .size = {12}};
  if (variant == 't')
    spec = (struct trm_input_spec){.shape = {.dims = 1, .size = {16}}, .target = TRM_TARGET_CLASS, .tokens = true,
                                   .classes = 50};
  char *text = fuzz_string(fuzz_part(&input)), *cuts = fuzz_string(input);
  trm_model_context(text);
  if (trm_model_create(&model, text, "auto", &spec) == TRM_OK) {
    fuzz_use_model(&model, cuts);
    fuzz_require(trm_model_create(&again, model.text, "auto", &spec) == TRM_OK, "a canonical text is a model's");
    fuzz_require(strcmp(again.text, model.text) == 0, "a canonical text stays as it is");
    trm_model_free(&again);
    trm_model_free(&model);
  }
  free(text);
  free(cuts);
}

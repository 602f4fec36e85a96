/* Parts of the planner: machine measurements, the dry run's memory, and schedules with known durations. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/options.h"
#include "core/status.h"
#include "kernels/kernels.h"
#include "mpi/strategies.h"
#include "suite.h"
#include "support/pretend_device.h"
#include "plan/hybrid.h"
#include "plan/layout.h"

/* -- the machine */

static void test_machine(void)
{
  struct trm_machine machine, again;
  const char path[] = "test_plan_machine.json";
  double backward;
  trm_machine_create(&machine, 4, 2);
  machine.message_bytes_per_s = 1e9;
  snprintf(machine.device, sizeof machine.device, "cuda");
  machine.device_bytes = 8e10;
  trm_machine_add(&machine, &(struct trm_machine_work){"linear", 1e6, 100, 1, 2});
  trm_machine_add(&machine, &(struct trm_machine_work){"linear", 1e9, 100, 500, 900});
  trm_machine_add(&machine, &(struct trm_machine_work){"relu", 0, 64, 3, 4});
  CU_ASSERT(trm_machine_has(&machine, "linear", 1e6, 100) && !trm_machine_has(&machine, "linear", 1e6, 101));
  CU_ASSERT_EQUAL(trm_machine_seconds(&machine, "linear", 1e6, 100, &backward), 1);
  CU_ASSERT_EQUAL(backward, 2);
  CU_ASSERT_DOUBLE_EQUAL(trm_machine_seconds(&machine, "linear", 2e6, 7, &backward), 2, 1e-12); /* as the small one */
  /* as the large one */
  CU_ASSERT_DOUBLE_EQUAL(trm_machine_seconds(&machine, "linear", 5e8, 7, &backward), 250, 1e-9);
  CU_ASSERT_DOUBLE_EQUAL(backward, 450, 1e-9);
  /* the same number of operations on more values */
  trm_machine_add(&machine, &(struct trm_machine_work){"linear", 1e9, 400, 700, 800});
  CU_ASSERT_EQUAL(trm_machine_seconds(&machine, "linear", 1e9, 390, &backward), 700);
  CU_ASSERT_EQUAL(trm_machine_seconds(&machine, "linear", 1e9, 110, &backward), 500);
  CU_ASSERT_DOUBLE_EQUAL(trm_machine_seconds(&machine, "relu", 0, 32, NULL), 1.5, 1e-12);
  CU_ASSERT_EQUAL(trm_machine_seconds(&machine, "gelu", 0, 32, &backward), 0);
  CU_ASSERT_EQUAL(backward, 0);

  CU_ASSERT_EQUAL(trm_machine_write(&machine, path), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(trm_machine_read(&again, path), TRM_OK);
  CU_ASSERT(again.cores == 4 && again.threads == 2 && again.works == 4 && !again.messages_measured);
  CU_ASSERT_EQUAL(again.message_bytes_per_s, 1e9);
  CU_ASSERT(again.device_bytes == 8e10 && strcmp(again.device, "cuda") == 0);
  for (int i = 0; i < 4; i++)
    CU_ASSERT(strcmp(again.work[i].name, machine.work[i].name) == 0 && again.work[i].flop == machine.work[i].flop &&
              again.work[i].bytes == machine.work[i].bytes && again.work[i].forward_s == machine.work[i].forward_s &&
              again.work[i].backward_s == machine.work[i].backward_s);
  trm_machine_free(&again);
  trm_machine_free(&machine);
  unlink(path);
}

static void refused(const char *text, const char *message)
{
  struct trm_machine machine;
  const char path[] = "test_plan_machine.json";
  FILE *file = fopen(path, "w");
  fputs(text, file);
  fclose(file);
  CU_ASSERT_EQUAL(trm_machine_read(&machine, path), TRM_USAGE);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), message));
  unlink(path);
}

static void test_machine_errors(void)
{
#define HEAD                                                                                                           \
  "{\"cores\":1,\"threads\":1,\"message_s\":1,\"message_bytes_per_s\":1,\"network_s\":1,\"network_bytes_per_s\":1"
  refused("{}", "cores");
  refused("{\"cores\":-1}", "cores");
  refused("{\"device_bytes\":-1}", "device_bytes");
  refused(HEAD "}", "work: no list");
  refused(HEAD ",\"work\":[]}", "work: no list");
  refused(HEAD ",\"work\":[{\"flop\":1,\"forward_s\":1}]}", "without a name");
  refused(HEAD ",\"work\":[{\"name\":\"relu\",\"forward_s\":1}]}", "neither flop nor bytes");
  refused(HEAD ",\"work\":[{\"name\":\"relu\",\"bytes\":1}]}", "forward_s");
}

/* -- the dry run */

static void group_is(struct trm_comm *comm, enum trm_group group, const struct trm_comm *node, int size)
{
  struct trm_comm *part = trm_comm_group(comm, group, node, 0);
  CU_ASSERT_EQUAL(part->size, size);
  part->ops->release(part);
}

static void test_dry_run(void)
{
  struct trm_dry_run_account account = {.peer_bytes = 0};
  struct trm_dry_run_comm comm;
  trm_dry_run_comm_open(&comm, 6, 3, &account);
  struct trm_comm *face = &comm.base, *node = face->ops->split_node(face, TRM_SHARE_NODE);
  CU_ASSERT_EQUAL(node->size, 3);
  group_is(face, TRM_GROUP_SELF, NULL, 1);
  group_is(face, TRM_GROUP_ALL, NULL, 6);
  group_is(face, TRM_GROUP_ACROSS_NODES, node, 2);
  struct trm_shared shared;
  CU_ASSERT_EQUAL(node->ops->share(node, 1000, TRM_MEMORY_GRADIENTS, &shared), TRM_OK);
  CU_ASSERT_EQUAL(account.bytes[TRM_MEMORY_GRADIENTS], 1000);
  CU_ASSERT_EQUAL(account.peer_bytes, 2000);
  node->ops->unshare(node, &shared);
  CU_ASSERT_EQUAL(node->ops->share(node, 300, TRM_MEMORY_UNITS, &shared), TRM_OK);
  CU_ASSERT_EQUAL(account.bytes[TRM_MEMORY_UNITS], 300);
  CU_ASSERT_EQUAL(account.peer_bytes, 2200); /* a third of each peer's memory is touched */
  node->ops->unshare(node, &shared);
  node->ops->release(node);
}

/* -- layouts of four equal layers */

struct fixture {
  struct trm_options options;
  struct trm_device device;
  struct trm_modules parts;
  struct trm_input_spec spec;
  struct trm_model whole;
  struct trm_machine machine;
  struct trm_budget budget;
  struct trm_layout_job job;
};

enum { WIDTH = 64, LAYERS = 4 };

static void open(struct fixture *f, int ranks, int cores, const char *accumulate)
{
  memset(f, 0, sizeof *f);
  trm_options_default(&f->options);
  CU_ASSERT_EQUAL(trm_options_set(&f->options, "model",
                                  "linear 64 bias=no | linear 64 bias=no | linear 64 bias=no | linear 64 bias=no"),
                  TRM_OK);
  CU_ASSERT_EQUAL(trm_options_set(&f->options, "train.batch", "32"), TRM_OK);
  CU_ASSERT_EQUAL(trm_options_set(&f->options, "train.accumulate", accumulate), TRM_OK);
  CU_ASSERT_EQUAL(trm_options_set(&f->options, "optim.name", "adam"), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(trm_device_open(&f->device, "cpu", "auto", TRM_MATMUL_F32, 0, 1), TRM_OK);
  f->parts = (struct trm_modules){.strategy = trm_strategy_find("sync"), .device = &f->device};
  f->spec = (struct trm_input_spec){
    .shape = {.dims = 1, .size = {WIDTH}}, .target = TRM_TARGET_VALUE, .classes = WIDTH};
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&f->whole, f->options.model, "auto", &f->spec), TRM_OK);
  trm_machine_create(&f->machine, cores, 1);
  f->machine.message_latency_s = 1e-15;
  f->machine.message_bytes_per_s = 1e25;
  f->job = (struct trm_layout_job){.options = &f->options,
                                   .modules = &f->parts,
                                   .spec = &f->spec,
                                   .full_model = &f->whole,
                                   .machine = &f->machine,
                                   .budget = &f->budget,
                                   .rows = 1000,
                                   .ranks = ranks,
                                   .nodes = 1,
                                   .threads = 1,
                                   .cores = cores};
}

static void close_all(struct fixture *f)
{
  trm_machine_free(&f->machine);
  trm_model_free(&f->whole);
  trm_device_close(&f->device);
  trm_options_free(&f->options);
}

/* Sets each layer's times to 1 s forward and 2 s backward for a micro-batch of `rows`. */
static void pace(struct fixture *f, size_t rows)
{
  struct trm_machine_work work = trm_machine_layer_work(&f->whole.layer[0], rows);
  work.forward_s = 1;
  work.backward_s = 2;
  trm_machine_add(&f->machine, &work);
  work = trm_machine_layer_work(&f->whole.layer[1], rows);
  work.forward_s = 1;
  work.backward_s = 2;
  trm_machine_add(&f->machine, &work);
}

static double step_of(struct fixture *f, const struct trm_layout *layout, struct trm_layout_memory *memory)
{
  struct trm_layout_models models;
  struct trm_layout_time time;
  CU_ASSERT_EQUAL_FATAL(trm_layout_models_create(&models, &f->job, layout), TRM_OK);
  CU_ASSERT_EQUAL(trm_layout_memory(&f->job, layout, &models, memory), TRM_OK);
  trm_layout_time(&f->job, layout, &models, &time);
  trm_layout_models_free(&models);
  return time.step_s;
}

/* Known durations: pipeline bubbles, and stages that share cores. */
static void test_schedules(void)
{
  struct fixture f;
  struct trm_layout_memory memory;
  struct trm_layout layout = {.size = {1, 4, 1}, .schedule = TRM_GPIPE, .chunks = 1, .recompute = "none"};
  open(&f, 4, 4, "8");
  pace(&f, 4);
  CU_ASSERT_DOUBLE_EQUAL(step_of(&f, &layout, &memory), (8 + 3) * 3.0, 1e-6);
  layout.schedule = TRM_1F1B;
  CU_ASSERT_DOUBLE_EQUAL(step_of(&f, &layout, &memory), (8 + 3) * 3.0, 1e-6);
  f.job.cores = 1; /* no speedup */
  CU_ASSERT_DOUBLE_EQUAL(step_of(&f, &layout, &memory), 4 * 8 * 3.0, 1e-6);
  f.job.cores = 2; /* stages 0 and 2 on one core, 1 and 3 on the other: the second starts after the first */
  const double two = step_of(&f, &layout, &memory);
  CU_ASSERT(two > 2 * 8 * 3.0 && two < 4 * 8 * 3.0);
  f.job.cores = 4;
  layout = (struct trm_layout){.size = {1, 2, 1}, .schedule = TRM_INTERLEAVED, .chunks = 2, .recompute = "none"};
  f.job.ranks = 2; /* the bubble is one chunk's time */
  CU_ASSERT_DOUBLE_EQUAL(step_of(&f, &layout, &memory), 8 * 6.0 + 3.0, 1e-6);
  layout = (struct trm_layout){.size = {2, 1, 1}, .schedule = TRM_1F1B, .chunks = 1, .recompute = "none"};
  CU_ASSERT_DOUBLE_EQUAL(step_of(&f, &layout, &memory), 0.5 * 8 * 4 * 3.0, 1e-6); /* half the rows each */
  close_all(&f);
}

/* Arrays of known size. */
static void test_memory(void)
{
  struct fixture f;
  struct trm_layout_memory one, four, sharded, less;
  const double flat = sizeof(float) * LAYERS * WIDTH * WIDTH;
  struct trm_layout layout = {.size = {1, 1, 1}, .schedule = TRM_1F1B, .chunks = 1, .recompute = "none"};
  open(&f, 1, 4, "2");
  const size_t before = trm_memory_allocated();
  step_of(&f, &layout, &one);
  CU_ASSERT_EQUAL(one.part[TRM_LAYOUT_PARAMETERS], flat);
  CU_ASSERT_EQUAL(one.part[TRM_LAYOUT_GRADIENTS], flat);
  CU_ASSERT_EQUAL(one.part[TRM_LAYOUT_STATES], 2 * flat);
  CU_ASSERT(one.part[TRM_LAYOUT_ACTIVATIONS] >= sizeof(float) * 16 * 2 * WIDTH);
  CU_ASSERT_EQUAL(one.total, one.resident);

  f.job.ranks = 4;
  CU_ASSERT_EQUAL(trm_options_set(&f.options, "parallel.share", "none"), TRM_OK);
  layout.size[TRM_AXIS_DATA] = 4;
  step_of(&f, &layout, &four);
  CU_ASSERT_EQUAL(four.part[TRM_LAYOUT_STATES], 2 * flat);
  layout.zero = 3;
  step_of(&f, &layout, &sharded);
  CU_ASSERT_EQUAL(sharded.part[TRM_LAYOUT_PARAMETERS], flat / 4);
  CU_ASSERT_EQUAL(sharded.part[TRM_LAYOUT_GRADIENTS], flat / 4);
  CU_ASSERT_EQUAL(sharded.part[TRM_LAYOUT_STATES], 2 * flat / 4);
  CU_ASSERT(sharded.part[TRM_LAYOUT_BUFFERS] >= flat / 4); /* gathered units */
  CU_ASSERT_EQUAL(trm_options_set(&f.options, "parallel.offload", "somewhere"), TRM_OK);
  step_of(&f, &layout, &less);
  CU_ASSERT_EQUAL(less.part[TRM_LAYOUT_STATES], 0);

  CU_ASSERT_EQUAL(trm_options_set(&f.options, "parallel.offload", ""), TRM_OK);
  layout = (struct trm_layout){.size = {1, 1, 4}, .schedule = TRM_1F1B, .chunks = 1, .recompute = "none"};
  step_of(&f, &layout, &four);
  CU_ASSERT_EQUAL(four.part[TRM_LAYOUT_PARAMETERS], flat / 4);
  layout = (struct trm_layout){.size = {1, 4, 1}, .schedule = TRM_GPIPE, .chunks = 1, .recompute = "none"};
  step_of(&f, &layout, &four);
  CU_ASSERT_EQUAL(four.part[TRM_LAYOUT_PARAMETERS], flat / 4);
  CU_ASSERT_EQUAL(trm_memory_allocated(), before); /* all memory is released */
  close_all(&f);
}

/* A machine whose device has memory of its own: arrays of passes are there, those that ranks share on the host, and
 * transfers take time. */
static void test_device_layouts(void)
{
  struct fixture f;
  struct trm_layout_memory host, device;
  const double flat = sizeof(float) * LAYERS * WIDTH * WIDTH;
  struct trm_layout layout = {.size = {1, 1, 1}, .schedule = TRM_1F1B, .chunks = 1, .recompute = "none"};
  open(&f, 2, 4, "2");
  pace(&f, 16);
  const double step = step_of(&f, &layout, &host);
  CU_ASSERT_EQUAL(host.device, 0);
  f.machine.device_bytes = 1e9;
  trm_machine_add(&f.machine, &(struct trm_machine_work){"upload", 0, flat, 3, 0});
  trm_machine_add(&f.machine, &(struct trm_machine_work){"download", 0, flat, 5, 0});
  trm_machine_add(&f.machine, &(struct trm_machine_work){"device update", 0, 7 * flat, 11, 0});
  trm_machine_add(&f.machine, &(struct trm_machine_work){"update", 0, 7 * flat, 17, 0});
  CU_ASSERT_DOUBLE_EQUAL(step_of(&f, &layout, &device), step + 11, 1e-6);
  CU_ASSERT(device.device >= 4 * flat && device.device <= host.total);
  CU_ASSERT_EQUAL(device.total + device.device, host.total);
  layout.size[TRM_AXIS_DATA] = 2;
  f.job.ranks = 2;
  f.options.parallel.share = TRM_SHARE_NONE;
  CU_ASSERT_DOUBLE_EQUAL(step_of(&f, &layout, &device), step / 2 + 3 + 5 + 17, 1e-6);
  CU_ASSERT(device.device >= 2 * flat && device.device < 4 * flat); /* copies of weights and gradient, activations */
  CU_ASSERT(device.part[TRM_LAYOUT_STATES] == 2 * flat && device.part[TRM_LAYOUT_PARAMETERS] == 2 * flat);
  close_all(&f);
}

/* Jobs of two kinds of ranks. 120 samples, four layers. A rank of the accelerator takes 4 * 3 s for 30 samples, one of
 * the host 4 * 3 s for 10. Adam's update reads and writes 7 arrays. */
static void test_merge(void)
{
  struct trm_machine machine, other;
  double backward;
  trm_machine_create(&machine, 4, 2);
  trm_machine_add(&machine, &(struct trm_machine_work){"linear", 1e6, 100, 1, 7});
  trm_machine_copy(&other, &machine);
  other.message_bytes_per_s = 3e9;
  other.work[0] = (struct trm_machine_work){"linear", 1e6, 100, 2, 5};
  trm_machine_add(&other, &(struct trm_machine_work){"relu", 0, 64, 3, 4});
  CU_ASSERT_EQUAL(trm_machine_seconds(&machine, "linear", 1e6, 100, &backward), 1); /* the copy has its own */
  trm_machine_merge(&machine, &other);
  CU_ASSERT_EQUAL(machine.works, 2);
  CU_ASSERT_EQUAL(trm_machine_seconds(&machine, "linear", 1e6, 100, &backward), 1);
  CU_ASSERT_EQUAL(backward, 5);
  CU_ASSERT_EQUAL(trm_machine_seconds(&machine, "relu", 0, 64, &backward), 3);
  CU_ASSERT_EQUAL(machine.message_bytes_per_s, 3e9);
  trm_machine_free(&other);
  trm_machine_free(&machine);
}

static void test_hybrid(void)
{
  struct fixture f;
  struct trm_machine slow;
  struct trm_hybrid hybrid;
  const double flat = sizeof(float) * LAYERS * WIDTH * WIDTH;
  open(&f, 1, 4, "1");
  CU_ASSERT_EQUAL(trm_options_set(&f.options, "train.batch", "120"), TRM_OK);
  CU_ASSERT_EQUAL(trm_options_set(&f.options, "parallel.share", "none"), TRM_OK);
  struct trm_rank_kind kind[TRM_KINDS] = {{&f.machine, 1, 1, 4, 1}, {&slow, 1, 1, 4, 1}};
  pace(&f, 10);
  slow = f.machine; /* takes the figures */
  f.machine.work = NULL;
  f.machine.works = 0;
  f.machine.capacity = 0;
  pace(&f, 30);

  /* Sums and updates take no time: 120 samples take 48 s or 144 s alone; together, 90 and 30 of them, 36 s. */
  CU_ASSERT_EQUAL_FATAL(trm_hybrid_plan(&f.job, kind, true, 0, &hybrid), TRM_OK);
  CU_ASSERT_DOUBLE_EQUAL(hybrid.kind[0].alone_s, 48, 1e-6);
  CU_ASSERT_DOUBLE_EQUAL(hybrid.kind[1].alone_s, 144, 1e-6);
  CU_ASSERT(hybrid.kind[0].share == 1000 && hybrid.kind[1].share == 333);
  CU_ASSERT(hybrid.kind[0].rows == 91 && hybrid.kind[1].rows == 30); /* 120 * 1000 / 1333, rounded up */
  CU_ASSERT_DOUBLE_EQUAL(hybrid.kind[0].passes_s, 91 * 0.4, 1e-6);
  CU_ASSERT_DOUBLE_EQUAL(hybrid.kind[1].passes_s, 36, 1e-6);
  CU_ASSERT_DOUBLE_EQUAL(hybrid.step_s, 91 * 0.4, 1e-6);
  CU_ASSERT(hybrid.fast == 0 && hybrid.pays);

  /* Three slow ranks on nodes of their own, the kinds in the other order: 60 samples and 20 each. */
  const struct trm_rank_kind three[TRM_KINDS] = {{&slow, 3, 3, 4, 1}, {&f.machine, 1, 1, 4, 1}};
  CU_ASSERT_EQUAL_FATAL(trm_hybrid_plan(&f.job, three, false, 0, &hybrid), TRM_OK);
  CU_ASSERT(hybrid.fast == 1 && hybrid.kind[1].rows == 61 && hybrid.kind[0].rows == 20);
  CU_ASSERT_DOUBLE_EQUAL(hybrid.kind[0].alone_s, 48 + 2 * 2 * slow.network_latency_s + 4 * flat / 3 / 1e10, 1e-3);
  CU_ASSERT_DOUBLE_EQUAL(hybrid.step_s, 61 * 0.4, 1e-3);

  /* Three slow ranks on one core: each takes three times as long. */
  const struct trm_rank_kind crowded[TRM_KINDS] = {{&f.machine, 1, 1, 4, 1}, {&slow, 3, 1, 1, 1}};
  CU_ASSERT_EQUAL_FATAL(trm_hybrid_plan(&f.job, crowded, true, 0, &hybrid), TRM_OK);
  CU_ASSERT(hybrid.kind[1].share == 111);
  CU_ASSERT_DOUBLE_EQUAL(hybrid.kind[1].alone_s, 144, 1e-6);

  /* The update of the accelerator alone, 7 arrays of 0.5 s; with another rank it is the host's, 4 s an array, and the
   * gradient and the weights are moved, 1 s and 2 s: 12 s are gained, and more than that is lost. */
  f.machine.device_bytes = 1e9;
  snprintf(f.machine.device, sizeof f.machine.device, "accelerator");
  trm_machine_add(&f.machine, &(struct trm_machine_work){"download", 0, flat, 1, 0});
  trm_machine_add(&f.machine, &(struct trm_machine_work){"upload", 0, flat, 2, 0});
  trm_machine_add(&f.machine, &(struct trm_machine_work){"device update", 0, flat, 0.5, 0});
  trm_machine_add(&f.machine, &(struct trm_machine_work){"update", 0, flat, 4, 0});
  CU_ASSERT_EQUAL_FATAL(trm_hybrid_plan(&f.job, kind, true, 0, &hybrid), TRM_OK);
  CU_ASSERT_DOUBLE_EQUAL(hybrid.kind[0].alone_s, 48 + 7 * 0.5, 1e-6);
  CU_ASSERT_DOUBLE_EQUAL(hybrid.kind[0].update_s, 7 * 4 + 1 + 2, 1e-6);
  CU_ASSERT_DOUBLE_EQUAL(hybrid.kind[1].update_s, 0, 1e-6);
  CU_ASSERT_DOUBLE_EQUAL(hybrid.step_s, 91 * 0.4 + 31, 1e-6);
  CU_ASSERT(!hybrid.pays);
  /* Memory: weights, gradient, two states; the accelerator has a copy of weights and gradient, and its activations. */
  CU_ASSERT(hybrid.kind[1].memory.device == 0 && hybrid.kind[1].memory.part[TRM_LAYOUT_STATES] == 2 * flat);
  CU_ASSERT(hybrid.kind[0].memory.device >= 2 * flat + 91 * 2 * sizeof(float) * WIDTH);
  CU_ASSERT(hybrid.kind[0].fits && hybrid.kind[1].fits);
  f.machine.device_bytes = flat;
  CU_ASSERT_EQUAL_FATAL(trm_hybrid_plan(&f.job, kind, true, 4 * flat, &hybrid), TRM_OK);
  CU_ASSERT(!hybrid.kind[0].fits && !hybrid.kind[1].fits);

  CU_ASSERT_EQUAL(trm_options_set(&f.options, "train.batch", "1"), TRM_OK);
  CU_ASSERT_EQUAL(trm_hybrid_plan(&f.job, kind, true, 0, &hybrid), TRM_USAGE);
  trm_machine_free(&slow);
  close_all(&f);
}

/* Measuring on devices with memory of their own. */
static void test_device_measurements(void)
{
  static const char *const names[] = {"upload", "download", "sum", "copy", "update", "device sum", "device copy",
                                      "device update", "linear", "linear first", "loss mean_squared_error"};
  enum { ROWS = 16 };
  struct fixture f;
  struct trm_device device[2];
  struct trm_optimizer optimizer;
  struct trm_input input = {.rows = ROWS};
  struct trm_machine_bench bench = {.device = device, .devices = 2, .seconds = 10};
  float *x, *y;
  open(&f, 2, 4, "2");
  for (int i = 0; i < 2; i++)
    CU_ASSERT_EQUAL_FATAL(pretend_device_open(&device[i], 1), TRM_OK);
  const size_t bytes = sizeof(float) * ROWS * WIDTH;
  CU_ASSERT_EQUAL(device[0].ops->alloc(&device[0], bytes, TRM_MEMORY_BUFFERS, (void **)&x), TRM_OK);
  CU_ASSERT_EQUAL(device[0].ops->alloc(&device[0], bytes, TRM_MEMORY_BUFFERS, (void **)&y), TRM_OK);
  input.dense = x;
  input.target_value = y;
  trm_machine_set_device(&f.machine, &device[0]);
  CU_ASSERT(f.machine.device_bytes > 0 && strcmp(f.machine.device, "cpu") != 0);
  CU_ASSERT_EQUAL(trm_optimizer_create(&optimizer, &f.options, &f.whole), TRM_OK);
  CU_ASSERT_EQUAL(trm_machine_measure_arrays(&f.machine, &bench, &optimizer), TRM_OK);
  bench.devices = 1;
  CU_ASSERT_EQUAL(trm_machine_measure_model(&f.machine, &bench, &f.whole, &input, ROWS), TRM_OK);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    CU_ASSERT(trm_machine_knows(&f.machine, names[i]));
  device[0].ops->release(&device[0], x);
  device[0].ops->release(&device[0], y);
  for (int i = 0; i < 2; i++)
    pretend_device_close(&device[i]);
  close_all(&f);
}

/* Bytes that a rank receives per step, computed by hand. */
static struct trm_layout_time time_of(struct fixture *f, struct trm_layout layout)
{
  struct trm_layout_models models;
  struct trm_layout_memory memory;
  struct trm_layout_time time;
  CU_ASSERT_EQUAL_FATAL(trm_layout_models_create(&models, &f->job, &layout), TRM_OK);
  CU_ASSERT_EQUAL(trm_layout_memory(&f->job, &layout, &models, &memory), TRM_OK);
  trm_layout_time(&f->job, &layout, &models, &time);
  trm_layout_models_free(&models);
  return time;
}

static void traffic_is(struct fixture *f, struct trm_layout layout, double data, double pipeline, double tensor)
{
  const struct trm_layout_time time = time_of(f, layout);
  CU_ASSERT_DOUBLE_EQUAL(time.traffic[TRM_AXIS_DATA], data, 1e-6);
  CU_ASSERT_DOUBLE_EQUAL(time.traffic[TRM_AXIS_PIPELINE], pipeline, 1e-6);
  CU_ASSERT_DOUBLE_EQUAL(time.traffic[TRM_AXIS_TENSOR], tensor, 1e-6);
}

static void test_traffic(void)
{
  struct fixture f;
  const double flat = sizeof(float) * LAYERS * WIDTH * WIDTH; /* of the weights */
  const double value = sizeof(float) * 32 * WIDTH;           /* activations of a layer, whole batch */
  open(&f, 4, 4, "2");
  CU_ASSERT_EQUAL(trm_options_set(&f.options, "parallel.share", "none"), TRM_OK);
  struct trm_layout layout = {.size = {4, 1, 1}, .schedule = TRM_1F1B, .chunks = 1, .recompute = "none"};
  traffic_is(&f, layout, 2 * 0.75 * flat, 0, 0); /* all-reduce */
  layout.zero = 1;
  traffic_is(&f, layout, 2 * 0.75 * flat, 0, 0); /* reduce-scatter, all-gather of weights */
  layout.zero = 2;
  traffic_is(&f, layout, (2 + 1) * 0.75 * flat, 0, 0); /* reduce-scatter per micro-batch, all-gather of weights */
  layout.zero = 3;
  traffic_is(&f, layout, 2 * 3 * 0.75 * flat, 0, 0); /* per micro-batch: two all-gathers, one reduce-scatter */
  layout = (struct trm_layout){.size = {1, 4, 1}, .schedule = TRM_1F1B, .chunks = 1, .recompute = "none"};
  traffic_is(&f, layout, 0, 2 * value, 0); /* a middle stage: activations from one side, gradients from the other */
  f.job.ranks = 2;
  layout.size[TRM_AXIS_PIPELINE] = 2;
  traffic_is(&f, layout, 0, value, 0); /* one of the two */
  layout = (struct trm_layout){.size = {1, 1, 2}, .schedule = TRM_1F1B, .chunks = 1, .recompute = "none"};
  traffic_is(&f, layout, 0, 0, 3 * 2 * 0.5 * value); /* two pairs: an all-reduce each, and one backward */
  close_all(&f);
}

/* Two nodes of one rank each, on a network of 1000 bytes/s: seconds of a step are those of its messages. */
static struct trm_layout_time exchange_time(struct fixture *f, const char *method, const char *compress, int tau)
{
  f->parts.strategy = trm_strategy_find(method);
  f->options.strategy.tau = tau;
  CU_ASSERT_EQUAL(trm_options_set(&f->options, "strategy.compress", compress), TRM_OK);
  return time_of(f, (struct trm_layout){.size = {2, 1, 1}, .schedule = TRM_1F1B, .chunks = 1, .recompute = "none"});
}

static void test_exchanges(void)
{
  struct fixture f;
  const double flat = sizeof(float) * LAYERS * WIDTH * WIDTH;
  open(&f, 2, 4, "1");
  f.job.nodes = 2;
  f.machine.network_latency_s = 1e-12;
  f.machine.network_bytes_per_s = 1000;
  CU_ASSERT_EQUAL(trm_options_set(&f.options, "strategy.compress_ratio", "0.125"), TRM_OK);
  const struct {
    const char *method, *compress;
    int tau;
    double sent; /* bytes, of a rank in a step */
  } cases[] = {{"sync", "bf16", 1, flat / 2},
               {"sync", "topk", 1, 0.125 * 2 * flat},
               {"sync", "sign", 1, flat / 32 + flat / 512},
               {"sync", "powersgd", 1, LAYERS * 2 * 2 * WIDTH * sizeof(float)}, /* half of P and Q, twice */
               {"local", "topk", 8, 0.125 * 2 * flat / 8},
               {"adasum", "none", 4, flat / 4}};
  struct trm_layout_time time = exchange_time(&f, "sync", "none", 1);
  CU_ASSERT_DOUBLE_EQUAL(time.step_s, flat / 1000, 1e-6);
  CU_ASSERT_EQUAL(time.between_nodes, flat);
  CU_ASSERT_EQUAL(trm_options_set(&f.options, "strategy.compress_rank", "2"), TRM_OK);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    time = exchange_time(&f, cases[i].method, cases[i].compress, cases[i].tau);
    CU_ASSERT_DOUBLE_EQUAL(time.between_nodes, cases[i].sent, 1e-6);
    CU_ASSERT_DOUBLE_EQUAL(time.step_s, cases[i].sent / 1000, 1e-6);
    CU_ASSERT_DOUBLE_EQUAL(time.traffic[TRM_AXIS_DATA], cases[i].sent, 1e-6);
  }
  static const char *const by_mean[] = {"local", "postlocal", "slowmo", "bmuf", "diloco"};
  for (size_t i = 0; i < sizeof by_mean / sizeof *by_mean; i++)
    for (int tau = 1; tau <= 16; tau *= 4)
      CU_ASSERT_DOUBLE_EQUAL(exchange_time(&f, by_mean[i], "none", tau).step_s, flat / 1000 / tau, 1e-6);
  f.job.nodes = 1; /* one node sends nothing; two replicas do, inside it */
  CU_ASSERT_EQUAL(exchange_time(&f, "local", "none", 1).between_nodes, 0);
  f.options.strategy.replica = TRM_REPLICA_RANK;
  CU_ASSERT_EQUAL(exchange_time(&f, "local", "none", 4).between_nodes, flat / 4);
  CU_ASSERT(exchange_time(&f, "local", "none", 4).step_s < 1e-6);
  close_all(&f);
}

/* The arrays of compressors and of replicas, in two nodes of one rank or two. */
static void test_exchange_memory(void)
{
  struct fixture f;
  const double flat = sizeof(float) * LAYERS * WIDTH * WIDTH;
  open(&f, 2, 4, "1");
  f.job.nodes = 2;
  for (int node_ranks = 1; node_ranks <= 2; node_ranks++) {
    struct trm_layout_memory sync, topk, local, diloco, adasum, compressed;
    const struct trm_layout layout = {
      .size = {2 * node_ranks, 1, 1}, .schedule = TRM_1F1B, .chunks = 1, .recompute = "none"};
    const size_t before = trm_memory_allocated();
    f.job.ranks = 2 * node_ranks;
    f.parts.strategy = trm_strategy_find("sync");
    step_of(&f, &layout, &sync);
    f.options.strategy.compress = TRM_COMPRESS_TOPK;
    step_of(&f, &layout, &topk);
    f.parts.strategy = trm_strategy_find("local");
    step_of(&f, &layout, &compressed);
    f.options.strategy.compress = TRM_COMPRESS_NONE;
    step_of(&f, &layout, &local);
    f.parts.strategy = trm_strategy_find("diloco");
    step_of(&f, &layout, &diloco);
    f.parts.strategy = trm_strategy_find("adasum");
    step_of(&f, &layout, &adasum);
    const double states = local.part[TRM_LAYOUT_STATES];
    CU_ASSERT_EQUAL(topk.part[TRM_LAYOUT_STATES], sync.part[TRM_LAYOUT_STATES] + flat / node_ranks);
    CU_ASSERT_EQUAL(states, sync.part[TRM_LAYOUT_STATES]);
    CU_ASSERT_EQUAL(compressed.part[TRM_LAYOUT_STATES], states + 2 * flat / node_ranks); /* errors, last weights */
    CU_ASSERT_EQUAL(diloco.part[TRM_LAYOUT_STATES], states + 2 * flat / node_ranks);
    CU_ASSERT_EQUAL(adasum.part[TRM_LAYOUT_STATES], states + 3 * flat / node_ranks);
    CU_ASSERT_EQUAL(local.part[TRM_LAYOUT_PARAMETERS], 2 * flat); /* a segment: weights, and their mean */
    CU_ASSERT_EQUAL(trm_memory_allocated(), before);
  }
  close_all(&f);
}

/* Tied weights: a table of 64 tokens in the first and last stage; each receives the other's gradient. */
static void test_tied(void)
{
  struct fixture f;
  open(&f, 2, 2, "1");
  trm_model_free(&f.whole);
  CU_ASSERT_EQUAL(trm_options_set(&f.options, "model", "gpt layers=2 heads=2 dim=16 context=8"), TRM_OK);
  f.spec = (struct trm_input_spec){
    .shape = {.dims = 1, .size = {8}}, .target = TRM_TARGET_CLASS, .classes = 64, .tokens = true};
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&f.whole, f.options.model, "auto", &f.spec), TRM_OK);
  const double value = sizeof(float) * 32 * 8 * 16;
  traffic_is(&f, (struct trm_layout){.size = {1, 2, 1}, .schedule = TRM_1F1B, .chunks = 1, .recompute = "none"}, 0,
             value + sizeof(float) * 64 * 16, 0);
  close_all(&f);
}

static void test_impossible(void)
{
  struct fixture f;
  struct trm_layout_models models;
  open(&f, 8, 4, "8");
  const struct trm_layout eight = {.size = {1, 8, 1}, .schedule = TRM_1F1B, .chunks = 1, .recompute = "none"};
  CU_ASSERT_EQUAL(trm_layout_models_create(&models, &f.job, &eight), TRM_USAGE);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "cannot be cut into 8 pieces"));
  close_all(&f);
}

/* Ranks of the data axis on nodes. */
static void test_nodes(void)
{
  struct fixture f;
  open(&f, 8, 4, "1");
  f.job.nodes = 2;
  const struct {
    int size[TRM_AXES], near;
  } cases[] = {{{8, 1, 1}, 4}, {{4, 2, 1}, 4}, {{2, 1, 4}, 1}, {{4, 1, 2}, 2}, {{2, 2, 2}, 2}, {{1, 8, 1}, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct trm_layout layout = {.size = {cases[i].size[0], cases[i].size[1], cases[i].size[2]}};
    CU_ASSERT_EQUAL(trm_layout_node_ranks(&f.job, &layout), cases[i].near);
  }
  close_all(&f);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"merge", test_merge}, {"machine", test_machine},       {"machine_errors", test_machine_errors}, {"dry_run", test_dry_run},
    {"schedules", test_schedules},   {"memory", test_memory},                 {"impossible", test_impossible},
    {"nodes", test_nodes},           {"traffic", test_traffic},               {"tied", test_tied},
    {"layouts on devices", test_device_layouts}, {"measuring devices", test_device_measurements},
    {"two kinds of ranks", test_hybrid},         {"exchanges", test_exchanges},
    {"memory of exchanges", test_exchange_memory},
    CU_TEST_INFO_NULL,
  };
  return suite_run("plan", tests);
}

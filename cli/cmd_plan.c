/* trireme plan */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/planning.h"
#include "core/document.h"
#include "core/memory.h"
#include "core/printable.h"
#include "core/status.h"

static const char usage[] =
  "usage: trireme plan [CONFIG.yaml] --ranks=N [FLAG...] [--SECTION.KEY=VALUE...]\n\n"
  "Compares all layouts of a job of N ranks, data x pipeline x tensor, with each schedule and\n"
  "parallel.zero level, with and without recomputation: memory of a rank, bytes it receives in a\n"
  "step, time of a step. Runs on one process. All layouts train alike: train.batch and\n"
  "train.accumulate are not changed. With strategy.compress, and methods with local steps, only\n"
  "layouts of as many nodes or replicas do. Of local steps a step is the mean of a round.\n\n"
  "  --ranks=N         ranks of the job\n"
  "  --nodes=K         nodes, each with N / K ranks (default 1)\n"
  "  --cores=C         cores of a node (default: as here); more ranks share them\n"
  "  --memory=BYTES    memory of a rank, such as 4G; layouts that need more are marked and listed last\n"
  "  --machine=FILE    reads the figures of a node from a file instead of measuring this one\n"
  "  --calibrate=FILE  writes that file. With mpiexec -n 2, messages are measured, too; one process\n"
  "                    estimates them from the rate of memory\n"
  "  --beside=FILE     a second kind of ranks in the same job, of the machine in FILE: time of a step of\n"
  "                    each kind alone, and of both with parallel.shares=measured; whether the slow ones pay\n"
  "  --beside-ranks=N  their number\n"
  "  --beside-nodes=K  their own nodes (default: the nodes of the others)\n"
  "  --all             lists all layouts (default: the best 12), and why others are impossible\n"
  "  --json            prints one JSON object with all layouts\n\n"
  "Memory is counted array by array by a dry run of the set-up; arrays that a node shares are\n"
  "divided by its ranks. Time is modeled from kernels that are measured for two seconds, again until\n"
  "two measurements agree within 3 %, five times at most. Layouts within 5 % of the fastest are equal;\n"
  "the first of them is the one with the fewest tensor ranks and stages. The\n"
  "network is not measured: network_bytes_per_s and network_s in the file describe it.\n"
  "A device with memory of its own (device.name) is measured, too, with its transfers; layouts whose\n"
  "arrays do not fit into it are marked. Its file plans for it on machines without one.\n"
  "With parallel.layout=auto, `trireme train` takes the best layout.\n";

#define MB (1.0 / (1 << 20))
#define NOISE 0.05 /* spread of measurements above which layouts within 5 % may be others */

struct plan_flags {
  int64_t ranks, nodes, cores, memory, beside_ranks, beside_nodes;
  const char *machine, *calibrate, *beside;
  bool all, json;
};
#define AT(field) offsetof(struct plan_flags, field)
static const struct trm_option flags[] = {{"ranks", TRM_OPTION_INT, AT(ranks), NULL, RANGE(1, 1 << 20)},
                                          {"nodes", TRM_OPTION_INT, AT(nodes), "1", RANGE(1, 1 << 20)},
                                          {"cores", TRM_OPTION_INT, AT(cores), NULL, RANGE(1, 1 << 20)},
                                          {"memory", TRM_OPTION_BYTES, AT(memory), NULL, RANGE(1, 1e18)},
                                          {"machine", TRM_OPTION_TEXT, AT(machine), NULL, NO_RANGE},
                                          {"calibrate", TRM_OPTION_TEXT, AT(calibrate), NULL, NO_RANGE},
                                          {"beside", TRM_OPTION_TEXT, AT(beside), NULL, NO_RANGE},
                                          {"beside-ranks", TRM_OPTION_INT, AT(beside_ranks), NULL, RANGE(1, 1 << 20)},
                                          {"beside-nodes", TRM_OPTION_INT, AT(beside_nodes), NULL, RANGE(1, 1 << 20)},
                                          {"all", TRM_OPTION_BOOL, AT(all), NULL, NO_RANGE},
                                          {"json", TRM_OPTION_BOOL, AT(json), NULL, NO_RANGE},
                                          END_OF_FLAGS};

/* -- as a table */

static void cmd_plan_print_head(const struct planning *planning)
{
  const struct trm_planner *p = &planning->planner;
  const struct trm_layout_job *job = &p->job;
  const struct trm_machine *m = p->machine;
  char *model = trm_printable(strlen(p->full_model.text) > 200 ? job->options->model : p->full_model.text);
  printf("%s, %zu parameters; batches of %lld samples, %lld micro-batches\n", model, trm_model_size(&p->full_model),
         (long long)job->options->train.batch, (long long)job->options->train.accumulate);
  trm_free(model);
  printf("%d rank%s on %d node%s of %d core%s, %d thread%s each; ", job->ranks, job->ranks == 1 ? "" : "s", job->nodes,
         job->nodes == 1 ? "" : "s", job->cores, job->cores == 1 ? "" : "s", job->threads,
         job->threads == 1 ? "" : "s");
  if (planning->bench.spent > 0)
    printf("machine measured %d times in %.1f s\n", p->rounds, planning->bench.spent);
  else
    printf("machine from a file\n");
  printf("messages: %.1f us and %.1f GB/s on a node (%s)", 1e6 * m->message_latency_s, 1e-9 * m->message_bytes_per_s,
         m->messages_measured ? "measured" : "not measured: from the rate of memory; mpiexec -n 2 measures");
  if (job->nodes > 1)
    printf(", %.1f us and %.1f GB/s between nodes (given)", 1e6 * m->network_latency_s, 1e-9 * m->network_bytes_per_s);
  if (m->device_bytes > 0) {
    char *device = trm_printable(m->device);
    printf("\ndevice: %s, %.0f MB of its own, one for each rank; other memory is the host's", device,
           m->device_bytes * MB);
    trm_free(device);
  }
  printf("\n\n");
}

static void cmd_plan_print_row(const struct trm_planned *planned)
{
  const struct trm_layout_memory *memory = &planned->memory;
  const struct trm_layout_time *time = &planned->time;
  printf("%9.2f  %7.1f%c ", 1e3 * time->step_s, (memory->total + memory->device) * MB, planned->fits ? ' ' : '!');
  for (int i = 0; i < TRM_LAYOUT_PARTS; i++)
    printf(" %6.1f", memory->part[i] * MB);
  printf("  %7.2f %7.2f %7.2f %7.2f   %s\n", time->traffic[TRM_AXIS_DATA] * MB, time->traffic[TRM_AXIS_PIPELINE] * MB,
         time->traffic[TRM_AXIS_TENSOR] * MB, time->between_nodes * MB, trm_layout_text(&planned->layout));
}

/* " in 100.0 MB of a rank, 80000.0 MB of its device". */
static const char *cmd_plan_limits(const struct trm_planner *p, char *text, size_t bytes)
{
  size_t used = 0;
  text[0] = '\0';
  if (p->limit > 0)
    used = (size_t)snprintf(text, bytes, " in %.1f MB of a rank", p->limit * MB);
  if (p->machine->device_bytes > 0)
    snprintf(text + used, bytes - used, " in %.1f MB of its device", p->machine->device_bytes * MB);
  return text;
}

/* How sure the best one is. */
static void cmd_plan_print_certainty(const struct trm_planner *p)
{
  if (p->equals > 0)
    printf("%d other%s within 5 %% of the fastest: the one with the fewest tensor ranks and stages is taken\n",
           p->equals, p->equals == 1 ? " is" : "s are");
  if (p->rounds > 0)
    printf("measurements differ by %.1f %%\n", 100 * p->spread);
  if (p->rounds > 0 && p->spread > NOISE)
    printf("too noisy: other work takes this machine's time; measure it idle, with --calibrate\n");
}

static void cmd_plan_print_table(const struct planning *planning, bool all)
{
  enum { BEST = 12 };
  const struct trm_planner *p = &planning->planner;
  const int shown = all || p->count < BEST ? p->count : BEST;
  int unfit = 0;
  char limits[128];
  cmd_plan_print_head(planning);
  printf("     step    MB of a rank: of that                                               MB a step from others    "
         "to nodes\n");
  printf("       ms      all    param   grad states activ. buffer   data progr.     data    pipe  tensor  (sums)   "
         "layout\n");
  for (int i = 0; i < p->count; i++) {
    unfit += !p->planned[i].fits;
    if (i < shown)
      cmd_plan_print_row(&p->planned[i]);
  }
  if (shown < p->count)
    printf("and %d more (--all)\n", p->count - shown);
  if (unfit)
    printf("! %d of %d do not fit%s\n", unfit, p->count, cmd_plan_limits(p, limits, sizeof limits));
  for (int i = 0; all && i < p->refusals; i++)
    printf("not possible: %s: %s\n", trm_layout_text(&p->refused[i].layout), p->refused[i].reason);
  const struct trm_layout *best = &p->planned[0].layout;
  if (p->planned[0].fits)
    printf("\nbest: %s\n  --parallel.data=%d --parallel.pipeline=%d --parallel.tensor=%d --parallel.zero=%d "
           "--parallel.recompute=%s%s%s\n", trm_layout_text(best), best->size[TRM_AXIS_DATA],
           best->size[TRM_AXIS_PIPELINE], best->size[TRM_AXIS_TENSOR], best->zero, best->recompute,
           best->size[TRM_AXIS_PIPELINE] > 1 ? " --parallel.schedule=" : "",
           best->size[TRM_AXIS_PIPELINE] > 1 ? trm_choice_text("parallel.schedule", best->schedule) : "");
  cmd_plan_print_certainty(p);
}

/* -- a second kind of ranks */

/* The job of both kinds, planned by rank 0. */
struct plan_beside {
  struct trm_machine machine; /* of the second kind */
  struct trm_rank_kind kind[TRM_KINDS];
  struct trm_hybrid hybrid;
};

static int cmd_plan_open_beside(struct plan_beside *b, const struct planning *planning, const struct plan_flags *f)
{
  const struct trm_layout_job *job = &planning->planner.job;
  const bool together = f->beside_nodes == 0;
  const int nodes = together ? job->nodes : (int)f->beside_nodes, ranks = (int)f->beside_ranks;
  *b = (struct plan_beside){.hybrid = {.step_s = 0}};
  TRM_CHECK(trm_machine_read(&b->machine, f->beside));
  TRM_CHECK(trm_machine_require_model(&b->machine, job->full_model, "plan: --beside"));
  if (ranks < 1 || ranks % nodes != 0)
    return trm_error(TRM_USAGE, "plan: --beside-ranks: %d ranks on %d nodes: each has to have the same number of ranks, "
                     "at least 1", ranks, nodes);
  b->kind[0] = (struct trm_rank_kind){planning->planner.machine, job->ranks, job->nodes, job->cores, job->threads};
  b->kind[1] = (struct trm_rank_kind){&b->machine, ranks, nodes, b->machine.cores, b->machine.threads};
  return trm_hybrid_plan(job, b->kind, together, planning->planner.limit, &b->hybrid);
}

static void cmd_plan_print_beside(const struct plan_beside *b)
{
  const struct trm_hybrid *h = &b->hybrid;
  const int fast = h->fast, slow = 1 - fast;
  printf("\ntwo kinds of ranks, data parallel        samples of     passes  sum, update       MB of a rank\n"
         "        ranks  ms a step alone   share      a rank         ms           ms    host  device\n");
  for (int k = 0; k < TRM_KINDS; k++) {
    const struct trm_hybrid_kind *kind = &h->kind[k];
    char *device = trm_printable(b->kind[k].machine->device);
    printf("%6d %-12s %9.2f    %5.0f   %9zu  %9.2f    %9.2f  %6.1f  %6.1f%s\n", b->kind[k].ranks,
           device, 1e3 * kind->alone_s, kind->share, kind->rows, 1e3 * kind->passes_s,
           1e3 * kind->update_s, kind->memory.total * MB, kind->memory.device * MB, kind->fits ? "" : " ! does not fit");
    trm_free(device);
  }
  char *device = trm_printable(b->kind[slow].machine->device);
  printf("both: %.2f ms a step, without the %s ranks %.2f ms: they %s\n", 1e3 * h->step_s, device,
         1e3 * h->kind[fast].alone_s, h->pays ? "pay" : "do not pay");
  trm_free(device);
}

static void cmd_plan_beside_json(struct trm_json *json, const struct plan_beside *b)
{
  const struct trm_hybrid *h = &b->hybrid;
  trm_json_object(json, "both");
  trm_json_number(json, "both_s", h->step_s);
  trm_json_bool(json, "pays", h->pays);
  trm_json_list(json, "kinds");
  for (int k = 0; k < TRM_KINDS; k++) {
    const struct trm_hybrid_kind *kind = &h->kind[k];
    trm_json_object(json, NULL);
    trm_json_text(json, "device", b->kind[k].machine->device);
    trm_json_integer(json, "ranks", b->kind[k].ranks);
    trm_json_number(json, "alone_s", kind->alone_s);
    trm_json_number(json, "share", kind->share);
    trm_json_integer(json, "rows", (int64_t)kind->rows);
    trm_json_number(json, "passes_s", kind->passes_s);
    trm_json_number(json, "update_s", kind->update_s);
    trm_json_number(json, "host_bytes", round(kind->memory.total));
    trm_json_number(json, "device_bytes", round(kind->memory.device));
    trm_json_bool(json, "fits", kind->fits);
    trm_json_end(json);
  }
  trm_json_end(json);
  trm_json_end(json);
}

/* -- as JSON */

/* Opens the object of a layout. */
static void cmd_plan_open_layout(struct trm_json *json, const struct trm_layout *layout)
{
  const int *size = layout->size;
  trm_json_object(json, NULL);
  trm_json_integer(json, "data", size[TRM_AXIS_DATA]);
  trm_json_integer(json, "pipeline", size[TRM_AXIS_PIPELINE]);
  trm_json_integer(json, "tensor", size[TRM_AXIS_TENSOR]);
  trm_json_text(json, "schedule",
                size[TRM_AXIS_PIPELINE] > 1 ? trm_choice_text("parallel.schedule", layout->schedule) : NULL);
}

static void cmd_plan_planned_json(struct trm_json *json, const struct trm_planned *planned)
{
  static const char *const axis[TRM_AXES] = {"data", "pipeline", "tensor"};
  const struct trm_layout *layout = &planned->layout;
  cmd_plan_open_layout(json, layout);
  trm_json_integer(json, "chunks", layout->chunks);
  trm_json_integer(json, "zero", layout->zero);
  trm_json_text(json, "recompute", layout->recompute);
  trm_json_bool(json, "fits", planned->fits);
  trm_json_object(json, "bytes");
  for (int i = 0; i < TRM_LAYOUT_PARTS; i++)
    trm_json_number(json, trm_layout_part_name[i], round(planned->memory.part[i]));
  trm_json_number(json, "total", round(planned->memory.total));
  trm_json_number(json, "device", round(planned->memory.device));
  trm_json_number(json, "resident", round(planned->memory.resident));
  trm_json_end(json);
  trm_json_object(json, "traffic_bytes");
  for (int a = 0; a < TRM_AXES; a++)
    trm_json_number(json, axis[a], round(planned->time.traffic[a]));
  trm_json_end(json);
  trm_json_number(json, "between_nodes_bytes", round(planned->time.between_nodes));
  trm_json_number(json, "step_s", planned->time.step_s);
  trm_json_number(json, "compute_s", planned->time.compute_s);
  trm_json_object(json, "axis_s");
  for (int a = 0; a < TRM_AXES; a++)
    trm_json_number(json, axis[a], planned->time.axis_s[a]);
  trm_json_end(json);
  trm_json_end(json);
}

/* beside: NULL: there is one kind of ranks. */
static void cmd_plan_print_json(const struct planning *planning, const struct plan_beside *beside)
{
  const struct trm_planner *p = &planning->planner;
  struct trm_json json;
  trm_json_open(&json, stdout);
  trm_json_object(&json, NULL);
  trm_json_text(&json, "model", p->job.options->model);
  trm_json_integer(&json, "parameters", (int64_t)trm_model_size(&p->full_model));
  trm_json_integer(&json, "ranks", p->job.ranks);
  trm_json_integer(&json, "nodes", p->job.nodes);
  trm_json_text(&json, "device", p->machine->device);
  trm_json_number(&json, "device_bytes", p->machine->device_bytes);
  trm_json_integer(&json, "cores", p->job.cores);
  trm_json_integer(&json, "threads", p->job.threads);
  trm_json_number(&json, "limit_bytes", p->limit > 0 ? p->limit : NAN);
  trm_json_bool(&json, "messages_measured", p->machine->messages_measured);
  trm_json_integer(&json, "measurements", p->rounds);
  trm_json_number(&json, "spread", p->rounds > 0 ? p->spread : NAN);
  trm_json_integer(&json, "equal_to_best", p->equals);
  trm_json_list(&json, "layouts");
  for (int i = 0; i < p->count; i++)
    cmd_plan_planned_json(&json, &p->planned[i]);
  trm_json_end(&json);
  trm_json_list(&json, "impossible");
  for (int i = 0; i < p->refusals; i++) {
    cmd_plan_open_layout(&json, &p->refused[i].layout);
    trm_json_text(&json, "reason", p->refused[i].reason);
    trm_json_end(&json);
  }
  trm_json_end(&json);
  if (beside)
    cmd_plan_beside_json(&json, beside);
  trm_json_end(&json);
}

/* -- the command */

static int cmd_plan_print(const struct planning *planning, const struct plan_flags *f)
{
  const struct trm_planner *p = &planning->planner;
  if (f->calibrate)
    TRM_CHECK(trm_machine_write(p->machine, f->calibrate));
  struct plan_beside beside = {.hybrid = {.step_s = 0}};
  const int status = f->beside ? cmd_plan_open_beside(&beside, planning, f) : TRM_OK;
  if (status == TRM_OK && f->json)
    cmd_plan_print_json(planning, f->beside ? &beside : NULL);
  else if (status == TRM_OK)
    cmd_plan_print_table(planning, f->all);
  if (status == TRM_OK && f->beside && !f->json)
    cmd_plan_print_beside(&beside);
  trm_machine_free(&beside.machine);
  TRM_CHECK(status);
  char limits[128];
  if (!p->planned[0].fits)
    return trm_error(TRM_FAILED, "plan: no layout fits%s", cmd_plan_limits(p, limits, sizeof limits));
  return TRM_OK;
}

static int cmd_plan_run(const struct call *call)
{
  const struct plan_flags *f = call->values;
  struct trm_comm *comm = call->job->modules.comm;
  const struct trm_planner_request request = {
    .ranks = (int)f->ranks, .nodes = (int)f->nodes, .cores = (int)f->cores, .limit = (double)f->memory};
  if (f->ranks == 0)
    return trm_error(TRM_USAGE, "plan: --ranks: no number of ranks given; --ranks=N");
  if (f->machine && f->calibrate)
    return trm_error(TRM_USAGE, "plan: --machine, --calibrate: only one of them: one reads what the other writes");
  if (!f->beside != (f->beside_ranks == 0) || (f->beside_nodes && !f->beside))
    return trm_error(TRM_USAGE, "plan: --beside, --beside-ranks: one needs the other");
  if (f->beside && strcmp(call->job->options.parallel.shares, "measured") == 0) /* layouts are of the first kind alone */
    TRM_CHECK(trm_options_set(&call->job->options, "parallel.shares", "equal"));
  struct planning planning;
  int status = planning_open(&planning, call->job, request, f->machine);
  if (status == TRM_OK)
    status = trm_agree(comm, comm->rank == 0 ? cmd_plan_print(&planning, f) : TRM_OK);
  planning_close(&planning);
  return status;
}

const struct command cmd_plan = {
  .name = "plan", .help = "compare the layouts of a job: memory, messages, time",
  .usage = usage, .flags = flags, .bytes = sizeof(struct plan_flags), .max_args = 1,
  .job = JOB_OF_RANKS, .config = true, .run = cmd_plan_run,
};

/* Simulation of pipeline schedules: no deadlock, every pass after its inputs, and the bubble of trm_schedule_bubble. */
#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "nn/partition.h"
#include "suite.h"
#include "train/pipeline_schedule.h"

enum { STAGES = 8, MICROS = 40, PIECES = STAGES * 4, DEPTH = 2 };

/* The stages' actions, and the time at which each pass of each chunk ended; negative: unknown. */
struct simulation {
  struct trm_schedule schedule;
  struct trm_action *action[STAGES];
  int count[STAGES], next[STAGES];
  double free_at[STAGES];
  double ended[2][PIECES][MICROS];
  double took[2]; /* duration of the forward and the backward pass of a chunk */
};

static int piece_of(const struct simulation *s, int stage, int chunk)
{
  return chunk * s->schedule.stages + stage;
}

/* Returns the earliest start of a stage's next action; negative: unknown. */
static double may_begin(const struct simulation *s, int stage, const struct trm_action *a)
{
  const int piece = piece_of(s, stage, a->chunk), pieces = s->schedule.stages * s->schedule.chunks;
  double at = s->free_at[stage], needed = 0;
  if (a->kind == TRM_FORWARD && piece > 0)
    needed = s->ended[TRM_FORWARD][piece - 1][a->micro];
  if (a->kind == TRM_BACKWARD)
    needed = piece + 1 < pieces ? s->ended[TRM_BACKWARD][piece + 1][a->micro] : s->ended[TRM_FORWARD][piece][a->micro];
  return needed < 0 ? -1 : fmax(at, needed);
}

/* With few buffers, a send must wait until the receiver has computed the micro-batch 2 * DEPTH earlier. */
static bool has_room(const struct simulation *s, int stage, const struct trm_action *a)
{
  const int piece = piece_of(s, stage, a->chunk), pieces = s->schedule.stages * s->schedule.chunks;
  const int to = a->kind == TRM_FORWARD ? piece + 1 : piece - 1, earlier = a->micro - 2 * DEPTH;
  return to < 0 || to >= pieces || earlier < 0 || s->ended[a->kind][to][earlier] >= 0;
}

/* Runs all stages. Returns the duration, or -1 on a deadlock. */
static double simulate(struct simulation *s, int batches, bool few_buffers)
{
  for (int kind = 0; kind < 2; kind++)
    for (int p = 0; p < PIECES; p++)
      for (int m = 0; m < MICROS; m++)
        s->ended[kind][p][m] = -1;
  int left = 0;
  for (int stage = 0; stage < s->schedule.stages; stage++) {
    s->action[stage] = trm_schedule_actions(&s->schedule, stage, batches, &s->count[stage]);
    left += s->count[stage];
    s->next[stage] = 0;
    s->free_at[stage] = 0;
  }
  double end = 0;
  for (bool moved = true; moved && left;) {
    moved = false;
    for (int stage = 0; stage < s->schedule.stages; stage++) {
      if (s->next[stage] == s->count[stage])
        continue;
      const struct trm_action *a = &s->action[stage][s->next[stage]];
      const double begin = may_begin(s, stage, a);
      if (begin < 0 || (few_buffers && !has_room(s, stage, a)))
        continue;
      const double ends = begin + s->took[a->kind];
      s->ended[a->kind][piece_of(s, stage, a->chunk)][a->micro] = s->free_at[stage] = ends;
      end = fmax(end, ends);
      s->next[stage]++;
      left--;
      moved = true;
    }
  }
  return left ? -1 : end;
}

static void simulation_end(struct simulation *s)
{
  for (int stage = 0; stage < s->schedule.stages; stage++)
    trm_free(s->action[stage]);
}

/* Each chunk runs each micro-batch once forward and once backward, both in ascending order, with at most `slots` in
 * flight. */
static bool list_is_right(const struct simulation *s, int stage, int micros)
{
  int forward[TRM_MAX_CHUNKS] = {0}, backward[TRM_MAX_CHUNKS] = {0}, most = 0;
  for (int i = 0; i < s->count[stage]; i++) {
    const struct trm_action *a = &s->action[stage][i];
    int *next = a->kind == TRM_FORWARD ? forward : backward;
    if (a->chunk < 0 || a->chunk >= s->schedule.chunks || a->micro != next[a->chunk]++ ||
        backward[a->chunk] > forward[a->chunk])
      return false;
    const int under_way = forward[a->chunk] - backward[a->chunk];
    most = under_way > most ? under_way : most;
  }
  for (int c = 0; c < s->schedule.chunks; c++)
    if (forward[c] != micros || backward[c] != micros)
      return false;
  return most <= trm_schedule_slots(&s->schedule, stage);
}

static struct simulation sim;

static void check(enum trm_schedule_name name, int stages, int chunks, int micros, int batches)
{
  CU_ASSERT_FATAL(trm_schedule_create(&sim.schedule, name, stages, chunks, micros) == TRM_OK);
  sim.took[TRM_FORWARD] = 1;
  for (int times = 1; times <= 2; times++) {
    sim.took[TRM_BACKWARD] = times;
    const double end = simulate(&sim, batches, false);
    CU_ASSERT_FATAL(end > 0);
    for (int stage = 0; stage < stages; stage++)
      CU_ASSERT_FATAL(list_is_right(&sim, stage, batches * micros));
    const double busy = (1 + times) * sim.schedule.chunks * (double)(micros * batches);
    if (sim.schedule.chunks == 1 || micros % stages == 0) /* without flush: one warm-up and one drain in all */
      CU_ASSERT_DOUBLE_EQUAL(1 - busy / end, trm_schedule_bubble(&sim.schedule, batches), 1e-12);
    simulation_end(&sim);
  }
  CU_ASSERT_FATAL(simulate(&sim, batches, true) > 0);
  simulation_end(&sim);
}

static void test_gpipe(void)
{
  for (int stages = 1; stages <= STAGES; stages++)
    for (int micros = 1; micros <= 17; micros++) {
      check(TRM_GPIPE, stages, 1, micros, 1);
      CU_ASSERT_EQUAL(trm_schedule_slots(&sim.schedule, 0), micros);
    }
}

static void test_1f1b(void)
{
  for (int stages = 1; stages <= STAGES; stages++)
    for (int micros = 1; micros <= 17; micros++) {
      check(TRM_1F1B, stages, 1, micros, 1);
      for (int s = 0; s < stages; s++)
        CU_ASSERT_EQUAL(trm_schedule_slots(&sim.schedule, s), micros < stages - s ? micros : stages - s);
    }
}

static void test_interleaved(void)
{
  for (int stages = 1; stages <= STAGES; stages++)
    for (int chunks = 2; chunks <= 4; chunks++)
      for (int micros = 1; micros <= 24; micros++)
        check(TRM_INTERLEAVED, stages, chunks, micros, 1);
  struct trm_schedule s;
  CU_ASSERT_EQUAL(trm_schedule_create(&s, TRM_INTERLEAVED, 4, 2, 8), TRM_OK);
  CU_ASSERT_DOUBLE_EQUAL(trm_schedule_bubble(&s, 1), 3.0 / 19, 1e-15);
  CU_ASSERT_EQUAL(trm_schedule_create(&s, TRM_INTERLEAVED, 1, 2, 8), TRM_OK);
  CU_ASSERT_EQUAL(s.chunks, 1);
}

static void test_without_flush(void)
{
  for (int stages = 1; stages <= STAGES; stages++)
    for (int batches = 1; batches <= 5; batches++) {
      check(TRM_PIPEDREAM, stages, 1, 1, batches);
      for (int micros = stages > 1 ? stages - 1 : 1; micros <= 8; micros++)
        check(TRM_2BW, stages, 1, micros, batches);
    }
  struct trm_schedule s;
  CU_ASSERT_EQUAL(trm_schedule_create(&s, TRM_2BW, 4, 1, 3), TRM_OK);
  CU_ASSERT_DOUBLE_EQUAL(trm_schedule_bubble(&s, 5), 3.0 / 18, 1e-15);
  CU_ASSERT_DOUBLE_EQUAL(trm_schedule_bubble(&s, 2.5), (3 + 3) / (3 + 3 + 15.0), 1e-15); /* groups of 2 and 3 */
  CU_ASSERT_EQUAL(trm_schedule_slots(&s, 0), 4);
  CU_ASSERT_EQUAL(trm_schedule_slots(&s, 3), 1);
}

/* When a stage starts batch t, it has completed batch t - 2: two versions suffice. */
static void test_two_versions(void)
{
  for (int stages = 1; stages <= STAGES; stages++)
    for (int micros = stages > 1 ? stages - 1 : 1; micros <= 8; micros++) {
      struct trm_schedule s;
      CU_ASSERT_FATAL(trm_schedule_create(&s, TRM_2BW, stages, 1, micros) == TRM_OK);
      for (int stage = 0; stage < stages; stage++) {
        int count, back = 0;
        struct trm_action *a = trm_schedule_actions(&s, stage, 4, &count);
        for (int i = 0; i < count; i++) {
          if (a[i].kind == TRM_BACKWARD)
            back++;
          else
            CU_ASSERT_FATAL(back >= (a[i].micro / micros - 1) * micros);
        }
        trm_free(a);
      }
    }
}

static void test_forward(void)
{
  for (int chunks = 2; chunks <= 3; chunks++)
    for (int micros = 0; micros <= 7; micros++) {
      struct trm_schedule s;
      CU_ASSERT_FATAL(trm_schedule_create(&s, TRM_INTERLEAVED, 3, chunks, 1) == TRM_OK);
      int count, next[3] = {0};
      struct trm_action *a = trm_schedule_forward(&s, micros, &count);
      CU_ASSERT_EQUAL(count, micros * chunks);
      for (int i = 0; i < count; i++) {
        CU_ASSERT_EQUAL(a[i].kind, TRM_FORWARD);
        CU_ASSERT_EQUAL(a[i].micro, next[a[i].chunk]++);
        CU_ASSERT(a[i].chunk == 0 || next[a[i].chunk] <= next[a[i].chunk - 1]);
      }
      trm_free(a);
    }
}

static void refused(enum trm_schedule_name name, int stages, int chunks, int micros, const char *word)
{
  struct trm_schedule s;
  CU_ASSERT_EQUAL(trm_schedule_create(&s, name, stages, chunks, micros), TRM_USAGE);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), word));
}

static void test_refused(void)
{
  refused(TRM_INTERLEAVED, 2, 1, 4, "parallel.chunks");
  refused(TRM_INTERLEAVED, 2, TRM_MAX_CHUNKS + 1, 4, "parallel.chunks");
  refused(TRM_2BW, 4, 1, 2, "train.accumulate is at least 3");
}

int main(void)
{
  CU_TestInfo tests[] = {{"gpipe", test_gpipe},
                         {"1f1b", test_1f1b},
                         {"interleaved", test_interleaved},
                         {"without flush", test_without_flush},
                         {"two versions suffice", test_two_versions},
                         {"forward only", test_forward},
                         {"refused", test_refused},
                         CU_TEST_INFO_NULL};
  return suite_run("schedules", tests);
}

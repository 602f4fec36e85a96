/* Losses and plateaus are PyTorch's, balanced class weights scikit-learn's (tests/reference/make_losses.py). Weights
 * and draws of a data set depend on the position in the epoch alone. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"
#include "datasets/datasets.h"
#include "datasets/format.h"
#include "suite.h"
#include "support/reference.h"
#include "train/dataset.h"

/* -- losses */

static float *floats(const struct reference *r, const char *name, size_t *count)
{
  const int a = reference_array(r, "", name);
  float *values = trm_alloc(r->array[a].count * sizeof *values, name);
  *count = r->array[a].count;
  for (size_t i = 0; i < *count; i++)
    values[i] = (float)r->array[a].values[i];
  return values;
}

static void loss_check(struct trm_device *device, const struct reference *r)
{
  const size_t *size = r->array[reference_array(r, "", "scores")].size, rows = size[0], c = size[1];
  const char *name = reference_setting(r, "loss");
  const bool classes = strcmp(name, "softmax_cross_entropy") == 0, delta = strcmp(name, "huber") == 0;
  size_t scores, targets, weights;
  float *z = floats(r, "scores", &scores), *t = floats(r, "target", &targets), *row_weight = NULL, *class_weight = NULL;
  int32_t *class = trm_alloc(targets * sizeof *class, "targets");
  for (size_t i = 0; i < targets; i++)
    class[i] = (int32_t)t[i];
  if (classes) {
    double sum = 0, mean = 0;
    class_weight = floats(r, "weight", &weights);
    row_weight = trm_alloc(rows * sizeof *row_weight, "weights");
    for (size_t k = 0; k < c; k++)
      mean += (double)class_weight[k] / (double)c;
    for (size_t k = 0; k < c; k++)
      class_weight[k] = (float)((double)class_weight[k] / mean);
    for (size_t i = 0; i < rows; i++)
      sum += (double)class_weight[class[i]];
    for (size_t i = 0; i < rows; i++)
      row_weight[i] = (float)((double)rows / sum);
  }
  const struct trm_shape shape = {.dims = 1, .size = {c}};
  const struct trm_input_spec spec = {
    .shape = shape, .target = classes ? TRM_TARGET_CLASS : TRM_TARGET_VALUE, .classes = c};
  const struct trm_loss *loss = trm_loss_find(name, &shape, &spec);
  CU_ASSERT_PTR_NOT_NULL_FATAL(loss);
  CU_ASSERT_EQUAL(loss->check(loss, &shape, &spec), TRM_OK);
  const struct trm_input input = {.rows = rows, .target_class = device_bytes(device, class, targets * sizeof *class),
                                  .target_value = device_floats(device, t, targets)};
  float *row_loss = device_nan(device, rows), *correct = device_nan(device, rows), *dz = device_nan(device, scores);
  loss->run(&(struct trm_loss_call){
    .device = device, .input = &input, .rows = rows, .classes = c, .ld = c, .scores = device_floats(device, z, scores),
    .scale = 1 / (float)rows, .smoothing = classes ? strtof(reference_setting(r, "smoothing"), NULL) : 0,
    .delta = delta ? strtof(reference_setting(r, "delta"), NULL) : 0,
    .row_weight = row_weight ? device_floats(device, row_weight, rows) : NULL,
    .class_weight = class_weight ? device_floats(device, class_weight, c) : NULL, .row_loss = row_loss,
    .row_correct = correct, .gradient = dz});
  const float *of_row = read_floats(device, row_loss, rows), *right = read_floats(device, correct, rows);
  double sum = 0;
  for (size_t i = 0; i < rows; i++) {
    size_t agree = 0;
    sum += (double)of_row[i];
    for (size_t k = 0; k < c && loss->labels; k++)
      agree += (z[i * c + k] > 0) == (t[i * c + k] > 0);
    CU_ASSERT(!loss->labels || right[i] == (agree == c));
  }
  const float value = (float)(sum / (double)rows);
  reference_check_array(r, reference_array(r, "", "value"), &value, 1e-6);
  reference_check_array(r, reference_array(r, "", "gradient"), read_floats(device, dz, scores), 1e-6);
  trm_free(z);
  trm_free(t);
  trm_free(class);
  trm_free(row_weight);
  trm_free(class_weight);
}

static void losses(struct trm_device *device)
{
  FILE *file = reference_open("losses.txt");
  struct reference r;
  int cases = 0;
  while (reference_next(file, &r)) {
    const char *loss = reference_setting(&r, "loss");

    if (strcmp(loss, "plateau") != 0 && strcmp(loss, "balanced") != 0) {
      loss_check(device, &r);
      cases++;
    }
    reference_free(&r);
  }
  fclose(file);
  CU_ASSERT_EQUAL(cases, 5);
}

static void test_losses(void)
{
  on_devices(losses);
}

/* -- plateaus */

static void test_plateau(void)
{
  FILE *file = reference_open("losses.txt");
  struct reference r;
  int cases = 0, changes = 0;
  while (reference_next(file, &r)) {
    if (strcmp(reference_setting(&r, "loss"), "plateau") == 0) {
      const struct trm_options options = {.optim = {
        .gamma = strtod(reference_setting(&r, "gamma"), NULL),
        .final = strtod(reference_setting(&r, "final"), NULL),
        .threshold = strtod(reference_setting(&r, "threshold"), NULL),
        .patience = strtol(reference_setting(&r, "patience"), NULL, 10)}};
      const double rate = strtod(reference_setting(&r, "rate"), NULL);
      const int a = reference_array(&r, "", "losses"), b = reference_array(&r, "", "rates");
      struct trm_plateau plateau = {.factor = 1, .best = INFINITY};
      for (size_t i = 0; i < r.array[a].count; i++) {
        changes += trm_plateau_add(&plateau, &options, r.array[a].values[i]);
        const double want = r.array[b].values[i]; /* PyTorch leaves out changes below 1e-8 */
        CU_ASSERT(fabs(plateau.factor * rate - want) <= 1e-8 * want + 1e-8);
      }
      cases++;
    }
    reference_free(&r);
  }
  fclose(file);
  CU_ASSERT_EQUAL(cases, 3);
  CU_ASSERT(changes > 6);
}

/* -- data sets */

static char made[64]; /* of this process */

static void make_set(const int32_t *class, size_t rows)
{
  struct trm_data_writer *writer;
  float *x = trm_alloc(rows * sizeof *x, "samples");
  for (size_t i = 0; i < rows; i++)
    x[i] = (float)i;
  const struct trm_data_spec spec = {.kind = TRM_DATA_VECTOR, .element = TRM_ELEMENT_FLOAT,
                                     .shape = {.dims = 1, .size = {1}}, .scale = 1, .target = TRM_TARGET_CLASS,
                                     .classes = 4, .source = "test"};
  CU_ASSERT_EQUAL_FATAL(trm_data_writer_open(&writer, made, &spec), TRM_OK);
  CU_ASSERT_EQUAL(trm_data_writer_split(writer, "train"), TRM_OK);
  CU_ASSERT_EQUAL(trm_data_writer_append(writer, &(struct trm_data_rows){.rows = rows, .floats = x,
                                                                         .target_class = class}), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(trm_data_writer_finish(writer, 0), TRM_OK);
  trm_free(x);
}

static int open_set(struct trm_dataset **data, const char *weights, bool balance, bool shuffle)
{
  const struct trm_options options = {
    .data = {.shuffle = shuffle, .balance = balance, .memory = 1 << 30, .validation = (char *)"0"},
    .train = {.batch = 8, .class_weights = (char *)weights}, .parallel = {.share = TRM_SHARE_NODE}, .run = {.seed = 3}};
  return trm_dataset_hdf5.open(data, made, TRM_SPLIT_TRAIN, &options, trm_comm_self());
}

/* The weights of the rows of a batch, with those of their classes, have the mean 1, and their ratios are those of the
 * classes, whatever part is fetched. */
static void check_weights(const char *weights, const double *want, size_t rows)
{
  struct trm_dataset *data;
  struct trm_host_batch batch = {0}, part = {0};
  CU_ASSERT_EQUAL_FATAL(open_set(&data, weights, false, true), TRM_OK);
  for (size_t low = 0; low < rows; low += 8) {
    const size_t high = low + 8 < rows ? low + 8 : rows;
    double sum = 0, of_classes = 0, mean = 0;
    CU_ASSERT_EQUAL_FATAL(data->ops->fetch(data, 1, low, high, &batch), TRM_OK);
    CU_ASSERT_FATAL(batch.weighted);
    for (size_t i = 0; i < batch.rows; i++)
      of_classes += want[batch.target_class[i]];
    for (size_t i = 0; i < batch.rows; i++) {
      const double expected = want[batch.target_class[i]] * (double)batch.rows / of_classes;
      const double got = (double)batch.row_weight[i] * (double)batch.class_weight[batch.target_class[i]];
      sum += got;
      CU_ASSERT(fabs(got - expected) <= 1e-6 * expected);
    }
    CU_ASSERT(fabs(sum - (double)batch.rows) < 1e-5);
    for (int k = 0; k < 4; k++)
      mean += (double)batch.class_weight[k] / 4;
    CU_ASSERT(fabs(mean - 1) < 1e-6);
    CU_ASSERT_EQUAL(data->ops->fetch(data, 1, low + 1, high, &part), TRM_OK);
    CU_ASSERT(memcmp(part.row_weight, batch.row_weight + 1, part.rows * sizeof(float)) == 0);
  }
  trm_host_batch_free(&batch);
  trm_host_batch_free(&part);
  data->ops->close(data);
}

/* A class is drawn as often as another, and a row as often as another of its class. */
static void check_draws(const int32_t *class, size_t rows)
{
  struct trm_dataset *data;
  struct trm_host_batch batch = {0};
  double drawn[4] = {0}, *of_row = trm_alloc(rows * sizeof *of_row, "draws"), epochs = 400;
  size_t count[4] = {0};
  float first = -1;
  for (size_t i = 0; i < rows; i++)
    count[class[i]]++;
  CU_ASSERT_EQUAL_FATAL(open_set(&data, "", true, true), TRM_OK);
  for (uint64_t epoch = 0; epoch < (uint64_t)epochs; epoch++) {
    CU_ASSERT_EQUAL_FATAL(data->ops->fetch(data, epoch, 0, rows, &batch), TRM_OK);
    CU_ASSERT(!batch.weighted);
    CU_ASSERT(epoch == 0 || batch.dense[0] != first || batch.dense[1] != batch.dense[0]);
    first = epoch == 0 ? batch.dense[0] : first;
    for (size_t i = 0; i < rows; i++) {
      const size_t row = (size_t)batch.dense[i];
      CU_ASSERT_EQUAL(batch.target_class[i], class[row]);
      drawn[batch.target_class[i]]++;
      of_row[row]++;
    }
  }
  for (size_t k = 0; k < 4; k++) {
    const double want = epochs * (double)rows / 4;
    CU_ASSERT(fabs(drawn[k] - want) < 5 * sqrt(want));
  }
  for (size_t i = 0; i < rows; i++) {
    const double want = epochs * (double)rows / 4 / (double)count[class[i]];
    CU_ASSERT(fabs(of_row[i] - want) < 5 * sqrt(want));
  }
  trm_host_batch_free(&batch);
  data->ops->close(data);
  trm_free(of_row);
}

static void test_sets(void)
{
  static const double listed[] = {1, 2.5, 0.5, 4};
  struct trm_dataset *data;
  FILE *file = reference_open("losses.txt");
  struct reference r;
  snprintf(made, sizeof made, "test_losses.%ld.h5", (long)getpid());
  while (reference_next(file, &r) && strcmp(reference_setting(&r, "loss"), "balanced") != 0)
    reference_free(&r);
  fclose(file);
  const int t = reference_array(&r, "", "target"), w = reference_array(&r, "", "weight");
  const size_t rows = r.array[t].count;
  int32_t *class = trm_alloc(rows * sizeof *class, "classes");
  for (size_t i = 0; i < rows; i++)
    class[i] = (int32_t)r.array[t].values[i];
  make_set(class, rows);
  check_weights("balanced", r.array[w].values, rows);
  check_weights("1, 2.5, 0.5,4", listed, rows);
  check_draws(class, rows);
  static const char *const wrong[] = {"1,2,3", "1,2,3,4,5", "1,2,0,1", "1,2,-1,1", "1,2,nan,1", "1,2,x,1", "1e16,1,1,1",
                                      "equal"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    CU_ASSERT_EQUAL(open_set(&data, wrong[i], false, true), TRM_USAGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "train.class_weights"));
  }
  CU_ASSERT_EQUAL(open_set(&data, "", true, false), TRM_USAGE);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "data.balance"));
  unlink(made);
  trm_free(class);
  reference_free(&r);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"losses and gradients", test_losses},
    {"plateaus", test_plateau},
    {"class weights and draws by class", test_sets},
    CU_TEST_INFO_NULL,
  };
  return suite_run("losses", tests);
}

/* Training samples by class: weights of their losses, and draws that favor no class. */
#include "class_balance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/random.h"
#include "core/status.h"
#include "loader.h"

/* Returns the class of a row of the data set, which is in memory. */
static size_t balance_class(const struct loader *loader, uint64_t row)
{
  int32_t class;
  memcpy(&class, loader->store.y + loader_file_row(loader, row) * loader->y_bytes, sizeof class);
  return (size_t)class;
}

/* Reads one weight a class from a list such as "1, 2.5, 1". */
static int balance_parse_weights(const struct loader *loader, const char *list, double *weight)
{
  const size_t classes = loader->head.classes;
  const char *at = list;
  size_t count = 0;
  for (; *(at += strspn(at, " ,\t")); count++) {
    char *end;
    const double value = strtod(at, &end);
    if (end == at || (*end && !strchr(" ,\t", *end)) || !(value >= 1e-15 && value <= 1e15))
      return trm_error(TRM_USAGE, "train.class_weights is '%s', must be balanced or a list of numbers from 1e-15 to "
                       "1e15, one for each class", list);
    if (count < classes)
      weight[count] = value;
    at = end;
  }
  if (count == classes)
    return TRM_OK;
  return trm_error(TRM_USAGE, "train.class_weights: %zu numbers are given, %s has %zu classes", count, loader->path,
                   classes);
}

/* Counts the rows of each class: count (classes). */
static void balance_count(const struct loader *loader, size_t *count)
{
  for (uint64_t row = 0; row < loader->rows; row++)
    count[balance_class(loader, row)]++;
}

/* The rule of scikit-learn's class_weight="balanced": rows / (classes * rows of the class). A class without rows has no
 * weight to give, and does not count. */
static void balance_equal_weights(const struct loader *loader, const size_t *count, double *weight)
{
  double present = 0;
  for (size_t k = 0; k < loader->head.classes; k++)
    present += count[k] > 0;
  for (size_t k = 0; k < loader->head.classes; k++)
    weight[k] = count[k] ? (double)loader->rows / (present * (double)count[k]) : 1;
}

/* Sets the weights in use to `weight` (classes), divided by its mean. */
static void balance_set_weights(struct class_balance *balance, const double *weight, size_t classes)
{
  double sum = 0;
  balance->weight = trm_alloc(classes * sizeof *balance->weight, "class weights");
  for (size_t k = 0; k < classes; k++)
    sum += weight[k];
  for (size_t k = 0; k < classes; k++)
    balance->weight[k] = (float)(weight[k] * (double)classes / sum);
}

/* Lists the rows class by class. */
static void balance_list_rows(const struct loader *loader, const size_t *count, struct class_balance *balance)
{
  const size_t classes = loader->head.classes;
  size_t *end = trm_alloc(classes * sizeof *end, "classes"), begin = 0;
  balance->row = trm_alloc(loader->rows * sizeof *balance->row, "rows by class");
  balance->first = trm_alloc((classes + 1) * sizeof *balance->first, "classes");
  for (size_t k = 0; k < classes; k++) {
    end[k] = begin;
    if (count[k])
      balance->first[balance->drawn++] = begin;
    begin += count[k];
  }
  balance->first[balance->drawn] = begin;
  for (uint64_t row = 0; row < loader->rows; row++)
    balance->row[end[balance_class(loader, row)]++] = (uint32_t)row;
  trm_free(end);
}

static int balance_check(const struct loader *loader, const char *option)
{
  if (loader->head.kind == TRM_DATA_TOKENS || loader->head.target != TRM_TARGET_CLASS)
    return trm_error(TRM_USAGE, "%s: is for samples of one class each, the targets of %s are %s", option, loader->path,
                     loader->head.kind == TRM_DATA_TOKENS ? "tokens" : "values");
  if (loader->mode != LOADER_IN_MEMORY || loader->rows > UINT32_MAX)
    return trm_error(TRM_USAGE, "%s: needs the classes of all training samples in memory, and those of %s do not fit "
                     "into data.memory", option, loader->path);
  return TRM_OK;
}

int class_balance_open(struct loader *loader, enum trm_split split, const struct trm_options *options)
{
  struct class_balance *balance = &loader->balance;
  const char *weights = options->train.class_weights;
  const bool weighs = weights && *weights, draws = options->data.balance;
  if (split != TRM_SPLIT_TRAIN || (!weighs && !draws))
    return TRM_OK;
  if (draws && !options->data.shuffle)
    return trm_error(TRM_USAGE, "data.balance: draws the samples, and data.shuffle=no keeps their order");
  TRM_CHECK(balance_check(loader, draws ? "data.balance" : "train.class_weights"));
  const size_t classes = loader->head.classes;
  size_t *count = trm_alloc(classes * sizeof *count, "classes");
  int status = TRM_OK;
  balance_count(loader, count);
  if (weighs) {
    double *weight = trm_alloc(classes * sizeof *weight, "class weights");
    if (strcmp(weights, "balanced") == 0)
      balance_equal_weights(loader, count, weight);
    else
      status = balance_parse_weights(loader, weights, weight);
    balance->batch = (size_t)options->train.batch;
    balance_set_weights(balance, weight, classes);
    trm_free(weight);
  }
  if (draws)
    balance_list_rows(loader, count, balance);
  trm_free(count);
  return status;
}

void class_balance_free(struct class_balance *balance)
{
  trm_free(balance->weight);
  trm_free(balance->row);
  trm_free(balance->first);
  *balance = (struct class_balance){0};
}

/* Returns floor(n word / 2^64) of the 64-bit word (high, low), n < 2^32. */
static uint64_t balance_scale(uint64_t n, uint32_t high, uint32_t low)
{
  return (n * high + (n * low >> 32)) >> 32;
}

uint64_t class_balance_row(const struct loader *loader, uint64_t epoch, uint64_t position)
{
  const struct class_balance *balance = &loader->balance;
  uint32_t word[4];
  trm_random_block(loader->order.seed, TRM_RANDOM_BALANCE, (uint32_t)epoch, position, word);
  const size_t *first = balance->first + balance_scale(balance->drawn, word[0], word[1]);
  return balance->row[first[0] + balance_scale(first[1] - first[0], word[2], word[3])];
}

/* Returns rows / sum(w) of a global batch of the epoch, whose rows are in the loader's order. */
static double balance_factor(struct loader *loader, uint64_t epoch, uint64_t number)
{
  struct class_balance *balance = &loader->balance;
  if (balance->latest.known && balance->latest.epoch == epoch && balance->latest.number == number)
    return balance->latest.factor;
  const uint64_t low = number * balance->batch, left = loader->rows - low;
  const size_t rows = left < balance->batch ? (size_t)left : balance->batch;
  double sum = 0;
  for (size_t i = 0, some; i < rows; i += some) {
    uint64_t row[64];
    some = rows - i < 64 ? rows - i : 64;
    loader_rows_at(loader, &loader->order_epoch, low + i, some, row);
    for (size_t n = 0; n < some; n++)
      sum += (double)balance->weight[balance_class(loader, row[n])];
  }
  balance->latest.known = true;
  balance->latest.epoch = epoch;
  balance->latest.number = number;
  balance->latest.factor = (double)rows / sum;
  return balance->latest.factor;
}

void class_balance_weigh(struct loader *loader, uint64_t epoch, uint64_t low, uint64_t high,
                         struct trm_host_batch *batch)
{
  const struct class_balance *balance = &loader->balance;
  const size_t rows = (size_t)(high - low);
  batch->row_weight = trm_grow(batch->row_weight, &batch->weight_capacity, 0, rows, sizeof *batch->row_weight,
                               "a batch: weights");
  for (size_t i = 0; i < rows; i++)
    batch->row_weight[i] = (float)balance_factor(loader, epoch, (low + i) / balance->batch);
  batch->class_weight = balance->weight;
  batch->weighted = true;
}

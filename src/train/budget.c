#include "train/budget.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"

/* Shape of the warm-up products: factors that fill the buffers of the BLAS libraries, few rows of A. */
enum { ROWS = 16, COLUMNS = 1024, INNER = 512 };

/* Computes the products of a layer's step, so that threads and the BLAS library allocate their buffers before they are
 * measured: twice, since an allocator may keep the memory of the first ones, and give the others more. */
static int budget_warm_up(struct trm_device *device)
{
  const size_t elements[] = {ROWS * INNER, INNER * COLUMNS, ROWS * COLUMNS};
  float *array[3] = {NULL};
  int status = TRM_OK;
  for (int i = 0; i < 3 && status == TRM_OK; i++)
    status = device->ops->alloc(device, elements[i] * sizeof(float), TRM_MEMORY_BUFFERS, (void **)&array[i]);
  if (status == TRM_OK) {
    for (uint32_t i = 0; i < 8; i++) {
      const uint32_t a = i >> 1 & 1, b = i & 1;
      device->ops->gemm(device, &(struct trm_gemm){
        .m = ROWS, .n = COLUMNS, .k = INNER, .alpha = 1, .a = array[0], .lda = a ? ROWS : INNER, .b = array[1],
        .ldb = b ? INNER : COLUMNS, .c = array[2], .ldc = COLUMNS, .transpose_a = a, .transpose_b = b});
    }
    status = device->ops->sync(device);
  }
  for (int i = 0; i < 3; i++)
    device->ops->release(device, array[i]);
  return status;
}

int trm_budget_begin(struct trm_budget *budget, struct trm_device *device, bool warms_up)
{
  memset(budget, 0, sizeof *budget);
  if (warms_up)
    TRM_CHECK(budget_warm_up(device));
  budget->held = trm_memory_allocated();
  budget->part[TRM_BUDGET_PROGRAM] = trm_memory_resident();
  return TRM_OK;
}

void trm_budget_charge(struct trm_budget *budget, enum trm_budget_part part)
{
  const size_t held = trm_memory_allocated();
  budget->part[part] += held > budget->held ? held - budget->held : 0;
  budget->held = held;
}

void trm_budget_charge_data(struct trm_budget *budget)
{
  trm_budget_charge(budget, TRM_BUDGET_DATA);
  const size_t resident = trm_memory_resident(), data = budget->part[TRM_BUDGET_DATA];
  if (resident > budget->part[TRM_BUDGET_PROGRAM] + data)
    budget->part[TRM_BUDGET_PROGRAM] = resident - data;
}

/* Returns the elements of the operands of the largest product: an activation and a weight tensor. */
static size_t budget_largest_operands(const struct trm_model *model)
{
  size_t value = model->max_rows * trm_shape_count(&model->spec.shape), tensor = 0, begin = 0;
  for (int i = 0; i < model->layers; i++) {
    const struct trm_layer *layer = &model->layer[i];
    const size_t vectors = model->max_rows * trm_layer_output_vectors(layer);
    const size_t rows = layer->is_output && model->loss_chunk && model->loss_chunk < vectors ? model->loss_chunk
                                                                                           : vectors;
    const size_t count = rows * (trm_shape_count(&layer->out) / trm_layer_output_vectors(layer));
    value = count > value ? count : value;
  }
  for (int i = 0; i < model->tensors; begin = model->tensor[i++].end)
    tensor = model->tensor[i].end - begin > tensor ? model->tensor[i].end - begin : tensor;
  return value + tensor;
}

void trm_budget_first_step(struct trm_budget *budget, const struct trm_model *model)
{
  const struct trm_input_spec *spec = &model->spec;
  const size_t sample = (spec->sparse ? 0 : trm_shape_count(&spec->shape)) + model->targets;
  budget->part[TRM_BUDGET_DATA] += 2 * model->max_rows * sample * sizeof(float); /* on the host, on the device */
  const bool rounds = model->device->blas->matmul != TRM_MATMUL_F32, rounded = model->values != TRM_VALUES_F32;
  if (rounds) /* copies of operands */
    budget->part[TRM_BUDGET_ACTIVATIONS] += sizeof(trm_bf16) * budget_largest_operands(model);
  if (rounded && !rounds) /* operands and result */
    budget->part[TRM_BUDGET_ACTIVATIONS] += 2 * sizeof(float) * budget_largest_operands(model);
}

size_t trm_budget_total(const struct trm_budget *budget)
{
  size_t bytes = 0;
  for (int i = 0; i < TRM_BUDGET_PARTS; i++)
    bytes += budget->part[i];
  return bytes;
}

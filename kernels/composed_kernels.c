#include "kernels/composed_kernels.h"

void composed_linear_forward(struct trm_device *device, const struct trm_linear_forward *call)
{
  device->ops->gemm(device, &(struct trm_gemm){
    .transpose_b = true, .m = call->b, .n = call->n, .k = call->k, .alpha = 1, .a = call->x, .lda = call->k,
    .b = call->w, .ldb = call->k, .c = call->y, .ldc = call->ld, .type_ab = call->type, .type_c = call->type});
  if (call->bias)
    device->ops->bias_add(device, &(struct trm_bias_add){
      .y = call->y, .bias = call->bias, .b = call->b, .n = call->n, .type = call->type});
  if (call->z)
    device->ops->activation_forward(device, &(struct trm_activation_forward){
      .kind = call->kind, .x = call->y, .y = call->z, .n = call->b * call->n, .type = call->type});
}

void composed_linear_backward_weights(struct trm_device *device, const struct trm_linear_backward *call)
{
  device->ops->gemm(device, &(struct trm_gemm){
    .transpose_a = true, .m = call->n, .n = call->k, .k = call->b, .alpha = 1, .a = call->dy, .lda = call->ld,
    .b = call->x, .ldb = call->k, .beta = call->beta, .c = call->dw, .ldc = call->k, .type_ab = call->type});
  if (call->db)
    device->ops->bias_backward(device, &(struct trm_bias_backward){
      .dy = call->dy, .beta = call->beta, .db = call->db, .b = call->b, .n = call->n, .type = call->type});
}

void composed_linear_backward_input(struct trm_device *device, const struct trm_linear_backward *call)
{
  device->ops->gemm(device, &(struct trm_gemm){
    .m = call->b, .n = call->k, .k = call->n, .alpha = 1, .a = call->dy, .lda = call->ld, .b = call->w, .ldb = call->k,
    .c = call->dx, .ldc = call->k, .type_ab = call->type, .type_c = call->type});
  if (call->through)
    device->ops->activation_backward(device, &(struct trm_activation_backward){
      .kind = call->kind, .x = call->u, .y = call->x, .dy = call->dx, .dx = call->dx, .n = call->b * call->k,
      .type = call->type});
}

void composed_linear_backward(struct trm_device *device, const struct trm_linear_backward *call)
{
  if (call->dw)
    composed_linear_backward_weights(device, call);
  if (call->dx)
    composed_linear_backward_input(device, call);
}

void composed_add_norm_forward(struct trm_device *device, const struct trm_add_norm_forward *call)
{
  const size_t n = call->norm.r * call->norm.d;
  const bool masked = call->mask.rate > 0;

  if (masked)
    device->ops->dropout(device, &(struct trm_dropout){
      .mask = call->mask, .x = call->b, .y = call->s, .b = n / call->f, .f = call->f, .type = call->norm.type});
  device->ops->add(device, &(struct trm_add){
    .a = call->a, .b = masked ? call->s : call->b, .y = call->s, .n = n, .type = call->norm.type});
  if (!call->norm.y)
    return;
  struct trm_norm_forward norm = call->norm;
  norm.x = call->s;
  device->ops->norm_forward(device, &norm);
}

void composed_add_norm_backward(struct trm_device *device, const struct trm_add_norm_backward *call)
{
  const struct trm_norm_backward *norm = &call->norm;

  device->ops->norm_backward(device, norm);
  device->ops->add(device, &(struct trm_add){
    .a = call->other, .b = norm->dx, .y = call->sum, .n = norm->r * norm->d, .type = norm->type});
}

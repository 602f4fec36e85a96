/* Fused kernels against the calls that they replace, bit for bit. */
#include "core/bfloat16.h"
#include "kernels.h"

/* Arrays of n values on the device. */
static void *fused_values(struct trm_device *device, size_t n, uint32_t stream, enum trm_value_type type)
{
  float *x = host_random(n, stream);
  trm_bf16 *narrow = (trm_bf16 *)host_floats(n / 2 + 1);

  trm_bf16_narrow(narrow, x, n);
  return device_bytes(device, type == TRM_VALUES_BF16 ? (void *)narrow : x, n * trm_value_bytes(type));
}

/* Compares n values on the device. */
static void fused_same(struct trm_device *device, const char *what, const void *got, const void *want, size_t n,
                       enum trm_value_type type)
{
  const size_t words = (n * trm_value_bytes(type) + sizeof(float) - 1) / sizeof(float);
  float *one = host_floats(words), *other = host_floats(words);

  device->ops->download(device, one, got, n * trm_value_bytes(type));
  device->ops->download(device, other, want, n * trm_value_bytes(type));
  check_same(what, one, other, words);
  read_floats(device, got, words - n % 2); /* for the digest */
}

struct fused_case {
  size_t r, d, f; /* rows of the norm; of the mask (R D / F) */
  float rate;
  bool rms, in_place, norm;
};

static void fused_forward(struct trm_device *device, const struct fused_case *it, enum trm_value_type type)
{
  const size_t n = it->r * it->d;
  const struct trm_mask mask = {
    .seed = 5, .stream = 1, .first_row = 77, .rate = it->rate, .stride = it->f + 9, .offset = 5};
  void *a = fused_values(device, n, 1, type), *b = fused_values(device, n, 2, type);
  void *s = fused_values(device, n, 3, type), *y = fused_values(device, n, 4, type);
  void *want_s = fused_values(device, n, 5, type), *want_y = fused_values(device, n, 6, type);
  float *row[4];

  for (int i = 0; i < 4; i++)
    row[i] = device_nan(device, it->r);
  struct trm_norm_forward norm = {
    .x = want_s, .gain = device_floats(device, host_random(it->d, 7), it->d),
    .bias = it->rms ? NULL : device_floats(device, host_random(it->d, 8), it->d), .epsilon = 1e-5f, .y = want_y,
    .mean = it->rms ? NULL : row[0], .scale = row[1], .r = it->r, .d = it->d, .type = type};

  if (it->rate > 0)
    device->ops->dropout(device, &(struct trm_dropout){
      .mask = mask, .x = b, .y = want_s, .b = n / it->f, .f = it->f, .type = type});
  device->ops->add(device, &(struct trm_add){
    .a = a, .b = it->rate > 0 ? want_s : b, .y = want_s, .n = n, .type = type});
  if (it->norm)
    device->ops->norm_forward(device, &norm);
  norm.x = s = it->in_place ? b : s;
  norm.y = it->norm ? y : NULL;
  norm.mean = it->rms ? NULL : row[2];
  norm.scale = row[3];
  device->ops->add_norm_forward(device, &(struct trm_add_norm_forward){
    .a = a, .b = b, .mask = mask, .f = it->f, .s = s, .norm = norm});
  fused_same(device, "sum", s, want_s, n, type);
  if (!it->norm)
    return;
  fused_same(device, "norm of the sum", y, want_y, n, type);
  check_same("its scales", read_floats(device, row[3], it->r), read_floats(device, row[1], it->r), it->r);
  if (!it->rms)
    check_same("its means", read_floats(device, row[2], it->r), read_floats(device, row[0], it->r), it->r);
}

static void fused_backward(struct trm_device *device, const struct fused_case *it, enum trm_value_type type)
{
  const size_t n = it->r * it->d;
  void *x = fused_values(device, n, 1, type), *dy = fused_values(device, n, 2, type);
  void *other = fused_values(device, n, 3, type), *want = fused_values(device, n, 4, type);
  void *to = fused_values(device, n, 5, type), *sum = it->in_place ? other : to;
  float *gain[4];

  for (int i = 0; i < 4; i++)
    gain[i] = device_floats(device, host_random(it->d, 6), it->d);
  struct trm_norm_backward norm = {
    .x = x, .dy = dy, .gain = device_floats(device, host_random(it->d, 7), it->d),
    .mean = it->rms ? NULL : device_floats(device, host_random(it->r, 8), it->r),
    .scale = device_floats(device, host_random(it->r, 9), it->r), .dx = want, .beta = 1, .dgain = gain[0],
    .dbias = it->rms ? NULL : gain[1], .r = it->r, .d = it->d, .type = type};

  device->ops->norm_backward(device, &norm);
  device->ops->add(device, &(struct trm_add){.a = other, .b = want, .y = want, .n = n, .type = type});
  norm.dx = to;
  norm.dgain = gain[2];
  norm.dbias = it->rms ? NULL : gain[3];
  device->ops->add_norm_backward(device, &(struct trm_add_norm_backward){.norm = norm, .other = other, .sum = sum});
  fused_same(device, "gradient of a sum and its norm", sum, want, n, type);
  check_same("its gain", read_floats(device, gain[2], it->d), read_floats(device, gain[0], it->d), it->d);
  check_same("its bias", read_floats(device, gain[3], it->d), read_floats(device, gain[1], it->d), it->d);
}

void fused_add_norm(struct trm_device *device)
{
  static const struct fused_case cases[] = {
    {1, 1, 1, 0, false, false, true},
    {3, 17, 17, 0.3f, false, false, true},
    {70, 131, 131 * 7, 0.3f, true, true, true},
    {5, 1030, 1030, 0, true, true, true},
    {9, 64, 64, 0.5f, false, true, true},
    {6, 33, 33 * 2, 0.2f, false, false, false},
    {4, 260, 13, 0.4f, false, false, true},
    {7, 40, 40, 0, false, true, false}};

  for (size_t c = 0; c < COUNT(cases); c++)
    for (enum trm_value_type type = TRM_VALUES_F32; type <= TRM_VALUES_BF16; type++) {
      fused_forward(device, &cases[c], type);
      fused_backward(device, &cases[c], type);
    }
}

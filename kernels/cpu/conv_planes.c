/* Convolutions with the channels last that oneDNN has no kernel for: by way of planes, which our kernels compute. */
#include "core/device_arrays.h"
#include "core/memory.h"
#include "kernels/cpu/conv.h"
#include "kernels/kernels.h"

/* to (images, columns, rows) = from (images, rows, columns). */
struct transposition {
  void *to;
  const void *from;
  size_t rows, columns;
  enum trm_value_type type;
};

CPU_INLINE void conv_planes_transpose(enum trm_value_type type, const struct transposition *it, size_t low, size_t high)
{
  const size_t size = it->rows * it->columns;

  for (size_t image = low; image < high; image++)
    for (size_t row = 0; row < it->rows; row++)
      for (size_t column = 0; column < it->columns; column++)
        cpu_set(type, it->to, image * size + column * it->rows + row,
                cpu_value(type, it->from, image * size + row * it->columns + column));
}

CPU_BODY_BY_TYPE(conv_planes_transpose, transposition)

/* Images of a call: (b, channels, positions), or with the channels last. */
struct images {
  struct trm_device *device;
  enum trm_value_type type;
  size_t b, channels, positions;
  bool last;
};

static void *conv_planes_alloc(const struct images *it)
{
  return trm_alloc(it->b * it->channels * it->positions * trm_value_bytes(it->type), "images as planes");
}

/* Copies between images and planes. */
static void conv_planes_copy(const struct images *it, void *to, const void *from, bool to_planes)
{
  const size_t rows = !it->last ? 1 : to_planes ? it->positions : it->channels;
  const struct transposition copy = {to, from, rows, it->channels * it->positions / rows, it->type};

  cpu_for(it->device, it->b, 1, (double)(it->channels * it->positions), conv_planes_transpose_body, &copy);
}

static struct images conv_planes_of(struct trm_device *device, const struct trm_conv2d *conv, enum trm_value_type type,
                                    size_t b, bool output)
{
  const size_t *size = output ? conv->window.out : conv->window.in;

  return (struct images){device, type, b, output ? conv->units : conv->channels, size[0] * size[1],
                         output ? conv->y_last : conv->x_last};
}

void conv_planes_forward(struct trm_device *device, const struct trm_conv2d_forward *call)
{
  const struct images in = conv_planes_of(device, &call->conv, call->type, call->b, false),
                      out = conv_planes_of(device, &call->conv, call->type, call->b, true);
  struct trm_conv2d_forward planes = *call;
  void *x = conv_planes_alloc(&in), *y = conv_planes_alloc(&out);

  conv_planes_copy(&in, x, call->x, true);
  planes.conv.x_last = planes.conv.y_last = false;
  planes.x = x;
  planes.y = y;
  cpu_conv2d_forward(device, &planes);
  conv_planes_copy(&out, call->y, y, false);
  trm_free(x);
  trm_free(y);
}

void conv_planes_backward(struct trm_device *device, const struct trm_conv2d_backward *call)
{
  const struct images in = conv_planes_of(device, &call->conv, call->type, call->b, false),
                      out = conv_planes_of(device, &call->conv, call->type, call->b, true);
  struct trm_conv2d_backward planes = *call;
  void *x = call->dw ? conv_planes_alloc(&in) : NULL, *dx = call->dx ? conv_planes_alloc(&in) : NULL;
  void *dy = conv_planes_alloc(&out);

  if (x)
    conv_planes_copy(&in, x, call->x, true);
  conv_planes_copy(&out, dy, call->dy, true);
  planes.conv.x_last = planes.conv.y_last = false;
  planes.x = x;
  planes.dy = dy;
  planes.dx = dx;
  cpu_conv2d_backward(device, &planes);
  if (dx)
    conv_planes_copy(&in, call->dx, dx, false);
  trm_free(x);
  trm_free(dx);
  trm_free(dy);
}

/* Reads and writes a model's weights as a safetensors file. */
#include "safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "core/atomic_file.h"
#include "core/memory.h"
#include "core/signature.h"
#include "core/status.h"
#include "exchange/exchange.h"
#include "nn/param_load.h"

/* Sets to (columns, rows) to the transpose of from (rows, columns). */
static void safetensors_transpose(const float *from, float *to, size_t rows, size_t columns)
{
  for (size_t i = 0; i < rows; i++)
    for (size_t j = 0; j < columns; j++)
      to[j * rows + i] = from[i * columns + j];
}

/* Returns a parameter's shape in the file. */
static struct trm_shape safetensors_stored_shape(const struct trm_parameter *parameter,
                                                 const struct trm_param_name *name)
{
  struct trm_shape shape = parameter->shape;
  if (name->transposed) {
    shape.size[0] = parameter->shape.size[1];
    shape.size[1] = parameter->shape.size[0];
  }
  return shape;
}

/* -- reading */

static int safetensors_read_parameter(struct safetensors *file, const struct safetensors_tensor *tensor,
                                      struct trm_param_load *load, int number, float *host_w)
{
  const struct trm_parameter *parameter = trm_model_parameter(load->model, number);
  const struct trm_param_name *name = &load->names.name[number];
  const struct trm_shape shape = safetensors_stored_shape(parameter, name);
  float *to = host_w + parameter->offset;
  bool same = tensor->dims == shape.dims, reads;
  for (int d = 0; same && d < shape.dims; d++)
    same = tensor->size[d] == shape.size[d];
  TRM_CHECK(trm_param_load_take(load, number, tensor->name, same, safetensors_shape_text(tensor),
                                trm_shape_text(&shape), &reads));
  if (!reads)
    return TRM_OK;
  if (tensor->type == SAFETENSORS_OTHER)
    return trm_error(TRM_USAGE, "%s: tensor %s is of type %s; weights are F32, F64, F16 or BF16", file->path,
                     tensor->name, tensor->type_name);
  if (!name->transposed)
    return safetensors_read_values(file, tensor, to);
  float *stored = trm_alloc(parameter->count * sizeof *stored, "a tensor");
  const int status = safetensors_read_values(file, tensor, stored);
  if (status == TRM_OK)
    safetensors_transpose(stored, to, shape.size[0], shape.size[1]);
  trm_free(stored);
  return status;
}

static int safetensors_read_weights(struct safetensors *file, struct trm_param_load *load, float *host_w)
{
  for (size_t i = 0; i < file->tensors; i++) {
    const struct safetensors_tensor *tensor = &file->tensor[i];
    int number;
    TRM_CHECK(trm_param_load_find(load, tensor->name, &number));
    if (number >= 0)
      TRM_CHECK(safetensors_read_parameter(file, tensor, load, number, host_w));
  }
  return trm_param_load_end(load);
}

int trm_weights_check_format(const char *path)
{
  const char *end = strrchr(path, '.');
  if (!end || (strcmp(end, ".pt") && strcmp(end, ".pth") && strcmp(end, ".bin")))
    return TRM_OK;
  const int stem = (int)(end - path);
  return trm_error(TRM_USAGE,
                   "%s: a file of PyTorch's pickle format, which only Python can read; convert it: python3 -c 'import "
                   "torch, safetensors.torch as s; w = torch.load(\"%s\", map_location=\"cpu\", weights_only=True); "
                   "s.save_file({k: v.contiguous() for k, v in w.items()}, \"%.*s.safetensors\")'", path, path, stem,
                   path);
}

int trm_safetensors_load(struct trm_param_load *load, float *host_w)
{
  TRM_CHECK(trm_weights_check_format(load->path));
  TRM_CHECK(signature_verify(load->path));
  struct safetensors file;
  memset(host_w, 0, load->model->parameters * sizeof *host_w);
  int status = safetensors_open(&file, load->path);
  if (status == TRM_OK)
    status = safetensors_read_weights(&file, load, host_w);
  safetensors_close(&file);
  return status;
}

int trm_safetensors_read(const char *path, const struct trm_model *model, float *host_w)
{
  struct trm_param_load load;
  trm_param_load_create(&load, path, model, NULL);
  const int status = trm_safetensors_load(&load, host_w);
  trm_param_load_free(&load);
  return status;
}

/* -- writing */

static void safetensors_put_le(unsigned char *to, uint64_t word, int bytes)
{
  for (int i = 0; i < bytes; i++)
    to[i] = (unsigned char)(word >> 8 * i);
}

/* Returns the header, padded with spaces so that tensors start at a multiple of 8. Caller frees with free(). */
static char *safetensors_header_text(const struct trm_model *model, const struct trm_param_names *names, size_t *bytes)
{
  char *text = NULL;
  FILE *stream = open_memstream(&text, bytes);
  if (!stream)
    return NULL;
  struct trm_json json;
  trm_json_open(&json, stream);
  trm_json_object(&json, NULL);
  trm_json_object(&json, "__metadata__");
  trm_json_text(&json, "format", "pt"); /* expected by readers of PyTorch weights */
  trm_json_text(&json, "model", model->text);
  trm_json_end(&json);
  int64_t at = 0;
  for (int p = 0; p < trm_model_parameter_count(model); p++) {
    const struct trm_parameter *parameter = trm_model_parameter(model, p);
    const struct trm_shape shape = safetensors_stored_shape(parameter, &names->name[p]);
    trm_json_object(&json, names->name[p].text);
    trm_json_text(&json, "dtype", "F32");
    trm_json_list(&json, "shape");
    for (int d = 0; d < shape.dims; d++)
      trm_json_integer(&json, NULL, (int64_t)shape.size[d]);
    trm_json_end(&json);
    trm_json_list(&json, "data_offsets");
    trm_json_integer(&json, NULL, at);
    trm_json_integer(&json, NULL, at += (int64_t)(parameter->count * sizeof(float)));
    trm_json_end(&json);
    trm_json_end(&json);
  }
  trm_json_end(&json);
  fflush(stream);
  for (size_t n = *bytes; n % 8; n++)
    fputc(' ', stream);
  if (fclose(stream) == 0)
    return text;
  free(text);
  return NULL;
}

static bool safetensors_put_floats(FILE *stream, const float *values, size_t count)
{
  unsigned char block[1 << 16];
  while (count) {
    const size_t some = count < sizeof block / 4 ? count : sizeof block / 4;
    for (size_t i = 0; i < some; i++) {
      uint32_t word;
      memcpy(&word, &values[i], 4);
      safetensors_put_le(block + 4 * i, word, 4);
    }
    if (fwrite(block, 4, some, stream) != some)
      return false;
    values += some;
    count -= some;
  }
  return true;
}

static bool safetensors_put_parameter(FILE *stream, const struct trm_parameter *parameter,
                                      const struct trm_param_name *name, const float *values)
{
  if (!name->transposed)
    return safetensors_put_floats(stream, values, parameter->count);
  float *transposed = trm_alloc(parameter->count * sizeof *transposed, "a tensor");
  safetensors_transpose(values, transposed, parameter->shape.size[0], parameter->shape.size[1]);
  const bool good = safetensors_put_floats(stream, transposed, parameter->count);
  trm_free(transposed);
  return good;
}

static bool safetensors_put_file(FILE *stream, const struct trm_model *model, const struct trm_param_names *names,
                                 const float *host_w)
{
  size_t bytes = 0;
  char *header = safetensors_header_text(model, names, &bytes);
  unsigned char first[8];
  safetensors_put_le(first, bytes, 8);
  bool good = header && fwrite(first, 1, 8, stream) == 8 && fwrite(header, 1, bytes, stream) == bytes;
  free(header);
  for (int p = 0; good && p < trm_model_parameter_count(model); p++) {
    const struct trm_parameter *parameter = trm_model_parameter(model, p);
    good = safetensors_put_parameter(stream, parameter, &names->name[p], host_w + parameter->offset);
  }
  return good;
}

int safetensors_write(const char *path, const struct trm_model *model, const float *host_w)
{
  struct trm_param_names names;
  trm_param_names_create(&names, model);
  struct atomic_file file;
  int status = atomic_file_open_secret(&file, path);
  if (status == TRM_OK)
    status = atomic_file_close(&file, safetensors_put_file(file.stream, model, &names, host_w));
  trm_param_names_free(&names);
  return status;
}

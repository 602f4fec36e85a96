/* The safetensors format (private to src/exchange), as huggingface.co/docs/safetensors describes it:
 *
 *   8 bytes    N, the length of the header, little-endian
 *   N bytes    the header, JSON: {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [BEGIN, END]}, ...,
 *              "__metadata__": {"KEY": "TEXT", ...}}
 *   the rest   the tensors, row-major, little-endian; the offsets count from here. Each byte belongs to exactly one
 *              tensor. */
#pragma once

#include <stdio.h>

#include "core/document.h"
#include "nn/model.h"

#define SAFETENSORS_MAX_HEADER ((uint64_t)100000000) /* largest length of a header, the format's own limit */
#define SAFETENSORS_MAX_DIMS 8

enum safetensors_type { SAFETENSORS_F32, SAFETENSORS_F64, SAFETENSORS_F16, SAFETENSORS_BF16, SAFETENSORS_OTHER };

struct safetensors_tensor {
  const char *name; /* owned by the header's tree */
  enum safetensors_type type;
  const char *type_name;
  int dims;
  uint64_t size[SAFETENSORS_MAX_DIMS];
  uint64_t count, begin, end; /* elements; bytes from the start of the data */
};

struct safetensors {
  const char *path;
  FILE *stream;
  struct trm_node *header;
  struct safetensors_tensor *tensor; /* (tensors) in order of begin */
  size_t tensors;
  uint64_t data_offset; /* where in the file the tensors begin */
};

/* Opens the file and checks all that its header says. Errors name the file and the tensor. safetensors_close in any
 * case. */
int safetensors_open(struct safetensors *file, const char *path);
void safetensors_close(struct safetensors *file);
/* Reads the tensor as floats into values (tensor->count); they must be finite. Not for SAFETENSORS_OTHER. */
int safetensors_read_values(struct safetensors *file, const struct safetensors_tensor *tensor, float *values);
const char *safetensors_shape_text(const struct safetensors_tensor *tensor); /* "(2, 3)"; trm_context_text */

int safetensors_write(const char *path, const struct trm_model *model, const float *host_w);

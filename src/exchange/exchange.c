/* The table of formats. */
#include "exchange/exchange.h"

#include "onnx.h"
#include "safetensors.h"

const struct trm_export trm_export_table[] = {
  {"safetensors", "weights alone, under the names that PyTorch programs use", safetensors_write},
  {"onnx", "the whole model, for programs that run it", onnx_write},
  {NULL, NULL, NULL},
};

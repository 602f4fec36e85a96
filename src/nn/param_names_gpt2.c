/* Parameter names of GPT-2 in Hugging Face's transformers. */
#include "nn/param_names_private.h"

static bool gpt2_name_block(struct trm_name_cursor *n, int block)
{
  if (!trm_name_assign(n, "layer_norm", "h.%d.ln_1", block) ||
      !trm_name_assign(n, "linear", "h.%d.attn.c_attn", block) || !trm_name_skip(n, "attention") ||
      !trm_name_assign(n, "linear", "h.%d.attn.c_proj", block))
    return false;
  trm_name_skip(n, "dropout");
  if (!trm_name_skip(n, "add") || !trm_name_assign(n, "layer_norm", "h.%d.ln_2", block) ||
      !trm_name_assign(n, "linear", "h.%d.mlp.c_fc", block) ||
      (!trm_name_skip(n, "gelu") && !trm_name_skip(n, "gelu_tanh")) ||
      !trm_name_assign(n, "linear", "h.%d.mlp.c_proj", block))
    return false;
  trm_name_skip(n, "dropout");
  return trm_name_skip(n, "add");
}

bool trm_param_names_gpt2(struct trm_name_cursor *n)
{
  if (!trm_name_assign(n, "embedding", "wte") || !trm_name_assign(n, "position", "wpe"))
    return false;
  trm_name_skip(n, "dropout");
  for (int block = 0; !trm_name_is(n, 1, "head"); block++)
    if (!gpt2_name_block(n, block))
      return false;
  return trm_name_assign(n, "layer_norm", "ln_f") && trm_name_assign(n, "head", "lm_head") &&
         n->layer == n->model->layers;
}

/* GPT-2 as Hugging Face's transformers call its parts. */
#include "nn/names_private.h"

static bool block_take(struct trm_naming *n, int block)
{
  if (!trm_naming_take(n, "layer_norm", "h.%d.ln_1", block) ||
      !trm_naming_take(n, "linear", "h.%d.attn.c_attn", block) || !trm_naming_pass(n, "attention") ||
      !trm_naming_take(n, "linear", "h.%d.attn.c_proj", block))
    return false;
  trm_naming_pass(n, "dropout");
  if (!trm_naming_pass(n, "add") || !trm_naming_take(n, "layer_norm", "h.%d.ln_2", block) ||
      !trm_naming_take(n, "linear", "h.%d.mlp.c_fc", block) ||
      (!trm_naming_pass(n, "gelu") && !trm_naming_pass(n, "gelu_tanh")) ||
      !trm_naming_take(n, "linear", "h.%d.mlp.c_proj", block))
    return false;
  trm_naming_pass(n, "dropout");
  return trm_naming_pass(n, "add");
}

bool trm_names_gpt2(struct trm_naming *n)
{
  if (!trm_naming_take(n, "embedding", "wte") || !trm_naming_take(n, "position", "wpe"))
    return false;
  trm_naming_pass(n, "dropout");
  for (int block = 0; !trm_naming_is(n, 1, "head"); block++)
    if (!block_take(n, block))
      return false;
  return trm_naming_take(n, "layer_norm", "ln_f") && trm_naming_take(n, "head", "lm_head") &&
         n->layer == n->model->layers;
}

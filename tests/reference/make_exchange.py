#!/usr/bin/env python3
"""Writes gpt2.safetensors and resnet.safetensors for tests/unit/test_exchange.c, with the safetensors library.

Element `at` of a tensor is ((sum of the bytes of its name + 37 at) % 251 - 125) / 64, which is exact in every type.
Needs torch and safetensors: python3 tests/reference/make_exchange.py
"""
import os

import torch
from safetensors.torch import save_file

here = os.path.dirname(os.path.abspath(__file__))


def tensor(name, *shape):
    at = torch.arange(torch.tensor(shape).prod().item())
    return (((sum(name.encode()) + 37 * at) % 251 - 125) / 64).float().reshape(shape)


def gpt2(layers=2, dim=8, context=5, vocabulary=7):
    shapes = {"wte.weight": (vocabulary, dim), "wpe.weight": (context, dim), "ln_f.weight": (dim,), "ln_f.bias": (dim,)}
    for n in range(layers):
        for norm in "ln_1", "ln_2":
            shapes[f"h.{n}.{norm}.weight"] = shapes[f"h.{n}.{norm}.bias"] = (dim,)
        for name, k, units in (("attn.c_attn", dim, 3 * dim), ("attn.c_proj", dim, dim), ("mlp.c_fc", dim, 4 * dim),
                               ("mlp.c_proj", 4 * dim, dim)):
            shapes[f"h.{n}.{name}.weight"] = (k, units)
            shapes[f"h.{n}.{name}.bias"] = (units,)
    types = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
    state = {"transformer." + name: tensor(name, *shape).to(types[i % 4])
             for i, (name, shape) in enumerate(shapes.items())}
    for n in range(layers):
        state[f"transformer.h.{n}.attn.bias"] = torch.ones(1, 1, context, context, dtype=torch.bool).tril()
        state[f"transformer.h.{n}.attn.masked_bias"] = torch.tensor(-1e4)
    state["lm_head.weight"] = state["transformer.wte.weight"].clone()
    return state


def resnet(channels=3, classes=5, image=2):
    state = {"fc.weight": tensor("fc.weight", classes, channels), "fc.bias": tensor("fc.bias", classes)}
    for conv, norm, inputs in ("conv1", "bn1", image), ("layer1.0.conv1", "layer1.0.bn1", channels), \
            ("layer1.0.conv2", "layer1.0.bn2", channels):
        state[conv + ".weight"] = tensor(conv + ".weight", channels, inputs, 3, 3)
        for part in "weight", "bias", "running_mean", "running_var":
            state[f"{norm}.{part}"] = tensor(f"{norm}.{part}", channels)
        state[norm + ".num_batches_tracked"] = torch.tensor(17)
    return state


save_file(gpt2(), os.path.join(here, "gpt2.safetensors"), metadata={"format": "pt"})
save_file(resnet(), os.path.join(here, "resnet.safetensors"))

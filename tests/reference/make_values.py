#!/usr/bin/env python3
"""Records results of PyTorch's operators on bfloat16 tensors, for tests/unit/test_reference_values.c.

    python3 make_values.py [FOLDER]      writes values.txt (default: beside this script)

Same format as make_reference.py, arrays flat. Scores of the loss are widened first: PyTorch would round the logarithms.
"""
import os
import sys

import torch
import torch.nn.functional as F

from make_reference import Writer

torch.manual_seed(11)


def bf16(*shape):
    return torch.randn(*shape).bfloat16()


def record(out, name, inputs, y, results):
    """Inputs, y, a gradient dy, and the gradients of `results`."""
    dy = bf16(*y.shape) if y.dtype == torch.bfloat16 else torch.ones_like(y)
    gradients = torch.autograd.grad(y, [inputs[r] for r in results], dy)
    for key, value in inputs.items():
        out.array(f"{name}.{key}", value.flatten())
    out.array(f"{name}.y", y.flatten())
    out.array(f"{name}.dy", dy.flatten())
    for key, value in zip(results, gradients):
        out.array(f"{name}.d{key}", value.flatten())


def leaves(**tensors):
    return {k: v.requires_grad_() if v.is_floating_point() else v for k, v in tensors.items()}


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    out = Writer(os.path.join(folder, "values.txt"), "Operators on bfloat16 tensors.")
    out.case("0", model="operators", loss="none")
    p = leaves(x=bf16(20, 65), w=bf16(33, 65), b=bf16(33))
    record(out, "linear", p, F.linear(p["x"], p["w"], p["b"]), ["x", "w", "b"])
    p = leaves(x=2 * bf16(400))
    record(out, "gelu", p, F.gelu(p["x"]), ["x"])
    p = leaves(x=bf16(12, 40), gain=1 + 0.2 * bf16(40), bias=bf16(40))
    record(out, "norm", p, F.layer_norm(p["x"], (40,), p["gain"], p["bias"]), ["x", "gain", "bias"])
    p = leaves(z=3 * bf16(12, 30), target=torch.randint(30, (12,)))
    record(out, "softmax", p, F.cross_entropy(p["z"].float(), p["target"], reduction="none"), ["z"])
    p = leaves(qkv=bf16(1, 70, 3, 2, 8))
    q, k, v = (t.transpose(1, 2) for t in p["qkv"].unbind(2))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
    record(out, "attention", p, y, ["qkv"])


if __name__ == "__main__":
    main()

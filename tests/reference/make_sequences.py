#!/usr/bin/env python3
"""Records results of PyTorch for token models, for tests/unit/test_reference_sequences.c.

    python3 make_sequences.py [FOLDER]      writes sequences.txt (default: beside this script)

Same format and rules as make_reference.py: float64, with float32 weights. A model is built from its text, layer by
layer, with PyTorch's functions.
"""
import os
import sys

import torch
import torch.nn.functional as F

from make_reference import Writer, rounded, usual_groups

torch.manual_seed(7)


def gpt(layers, heads, dim):
    """The text of a preset."""
    block = (f"mark a | layer_norm | linear {3 * dim} init=gpt2 | attention heads={heads} | "
             f"linear {dim} init=gpt2 residuals={2 * layers} | add a | mark b | layer_norm | "
             f"linear {4 * dim} init=gpt2 | gelu tanh | linear {dim} init=gpt2 residuals={2 * layers} | add b")
    return " | ".join(["embedding %d | position" % dim] + layers * [block] + ["layer_norm | head tied"])


class Net(torch.nn.Module):
    """The layers of a text; parameters are named layerN.weight and layerN.bias."""

    def __init__(self, text, context, vocabulary):
        super().__init__()
        self.items, self.p, dim, marks = [item.split() for item in text.split(" | ")], {}, None, {}
        for n, (name, *rest) in enumerate(self.items):
            options = dict(word.split("=") for word in rest if "=" in word)
            if name == "embedding":
                dim = int(rest[0])
                self.add(n, "weight", torch.randn(vocabulary, dim))
            elif name == "position":
                self.add(n, "weight", torch.randn(context, dim))
            elif name in ("layer_norm", "rms_norm"):
                self.add(n, "weight", 1 + 0.2 * torch.randn(dim))
                if name == "layer_norm":
                    self.add(n, "bias", 0.2 * torch.randn(dim))
            elif name == "linear" or (name == "head" and "tied" not in rest):
                units = vocabulary if name == "head" else int(rest[0])
                self.add(n, "weight", 0.5 * torch.randn(units, dim) / dim ** 0.5)
                if options.get("bias") != "no":
                    self.add(n, "bias", 0.2 * torch.randn(units))
                dim = units
            elif name == "attention":
                dim //= 3
            elif name == "swiglu":
                dim //= 2
            elif name == "mark":
                marks[rest[0]] = dim
            elif name == "at":
                dim = marks[rest[0]]

    def add(self, number, name, value):
        self.p[f"layer{number}.{name}"] = torch.nn.Parameter(rounded(value))

    def get(self, number, name):
        return self.p.get(f"layer{number}.{name}")

    def forward(self, tokens):
        x, marks = None, {}
        for n, (name, *rest) in enumerate(self.items):
            options = dict(word.split("=") for word in rest if "=" in word)
            w, b = self.get(n, "weight"), self.get(n, "bias")
            if name == "embedding":
                x = F.embedding(tokens, w)
            elif name == "position":
                x = x + w
            elif name == "layer_norm":
                x = F.layer_norm(x, x.shape[-1:], w, b, 1e-5)
            elif name == "rms_norm":
                x = F.rms_norm(x, x.shape[-1:], w, 1e-5)
            elif name in ("linear", "head"):
                x = F.linear(x, self.get(0, "weight") if "tied" in rest else w, b)
            elif name == "attention":
                x = attention(x, int(options["heads"]), options.get("causal") != "no")
            elif name == "rotary":
                x = rotary(x, int(options["heads"]))
            elif name == "gelu":
                x = F.gelu(x, approximate="tanh")
            elif name == "swiglu":
                gate, value = x.chunk(2, -1)
                x = F.silu(gate) * value
            elif name == "mark":
                marks[rest[0]] = x
            elif name == "at":
                x = marks[rest[0]]
            elif name == "add":
                x = x + marks[rest[0]]
        return x


def split_heads(x, heads):
    """(B, T, 3 D) to three of (B, H, T, E)"""
    return [z.unflatten(-1, (heads, -1)).transpose(1, 2) for z in x.chunk(3, -1)]


def attention(x, heads, causal):
    q, k, v = split_heads(x, heads)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).flatten(2)


def rotary(x, heads):
    """As in LLaMA: pairs are elements of the two halves of a head."""
    q, k, v = split_heads(x, heads)
    half = q.shape[-1] // 2
    angle = torch.arange(q.shape[2])[:, None] * 10000.0 ** (-torch.arange(half) / half)
    cosine, sine = torch.cat(2 * [angle.cos()], -1), torch.cat(2 * [angle.sin()], -1)

    def turn(z):
        return z * cosine + torch.cat([-z[..., half:], z[..., :half]], -1) * sine

    return torch.cat([z.transpose(1, 2).flatten(2) for z in (turn(q), turn(k), v)], -1)


LLAMA = ("embedding 8 | mark a | rms_norm | linear 24 bias=no | rotary heads=2 | attention heads=2 | linear 8 bias=no "
         "| add a | mark b | rms_norm | linear 24 bias=no | swiglu | linear 8 bias=no | add b | rms_norm "
         "| head bias=no")
BOTH_WAYS = "embedding 6 | position | linear 18 | attention heads=1 causal=no | head"

CASES = [  # (name in our text, items, label smoothing)
    ("gpt layers=2 heads=2 dim=8 context=16", gpt(2, 2, 8), 0),
    ("gpt layers=6 heads=2 dim=4 context=16", gpt(6, 2, 4), 0.1),
    (LLAMA, LLAMA, 0),
    (BOTH_WAYS, BOTH_WAYS, 0),
]


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    writer = Writer(os.path.join(folder, "sequences.txt"),
                    "Models of tokens: one batch, and twenty updates with AdamW.")
    steps, batch, batches, context, vocabulary = 20, 3, 4, 16, 11
    for number, (name, text, smoothing) in enumerate(CASES):
        net = Net(text, context, vocabulary)
        x = torch.randint(vocabulary, (batch * batches, context))
        t = torch.randint(vocabulary, (batch * batches, context))
        parameters = list(net.p.values())

        def loss(z, target):
            return F.cross_entropy(z.flatten(0, 1), target.flatten(), label_smoothing=smoothing)

        writer.case(f"{number}", model=name, loss="softmax_cross_entropy", vocabulary=vocabulary, smoothing=smoothing,
                    steps=steps, batch=batch, **{"optim.name": "adamw", "optim.lr": 0.01, "optim.decay": 0.1})
        writer.array("x", x)
        writer.array("targets", t)
        for key, p in net.p.items():
            writer.array(key, p)
        scores = net(x[:batch])
        loss(scores, t[:batch]).backward()
        writer.array("scores", scores.flatten(0, 1))
        for key, p in net.p.items():
            writer.array("gradient." + key, p.grad)
        optimizer, values = torch.optim.AdamW(usual_groups(parameters, 0.1), 0.01), []
        for step in range(steps):
            rows = slice(step % batches * batch, (step % batches + 1) * batch)
            optimizer.zero_grad()
            value = loss(net(x[rows]), t[rows])
            value.backward()
            optimizer.step()
            values.append(value.item())
        writer.array("values", torch.tensor(values))


if __name__ == "__main__":
    main()

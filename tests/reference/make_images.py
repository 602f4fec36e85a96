#!/usr/bin/env python3
"""Records results of PyTorch for convolutional networks, for tests/unit/test_reference_images.c.

    python3 make_images.py [FOLDER]         writes images.txt (default: beside this script)

The format is make_reference.py's. Weights, samples and targets are not recorded: both sides compute them with the same
function of integers (`numbers`). Recorded are each tensor's norm, and its inner products with 8 vectors of random
signs: the mean square of such products is the squared norm, so those of a difference estimate how large the difference
is (Achlioptas 2003). A ReLU whose argument is nearly zero has another gradient in another order of additions: the
samples are the first ones of which none is. Parameters are numbered in the order of the layers, statistics included.
--float32 also prints the difference between PyTorch's float32 and float64.
"""
import math
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

from make_reference import Writer

CLASSES, STEPS, SIGNS = 10, 20, 8
MARGIN = 1e-5  # of the arguments of ReLU in the first step


def numbers(stream, count):
    """In [-1, 1), exact in float32."""
    mask = 0xffffffff
    h = (torch.arange(count, dtype=torch.int64) * 2654435761 + stream * 2246822519 + 12345) & mask
    h = ((h ^ (h >> 15)) * 2221713035) & mask
    h = h ^ (h >> 13)
    h = (h * 3266489917) & mask
    h = h ^ (h >> 16)
    return (h >> 8).to(torch.float64) / 8388608.0 - 1


class Block(nn.Module):
    """Two 3 x 3 convolutions, with the identity or a 1 x 1 convolution as shortcut."""

    def __init__(self, channels, units, stride):
        super().__init__()
        self.main = nn.Sequential(nn.Conv2d(channels, units, 3, stride, 1, bias=False), nn.BatchNorm2d(units),
                                  nn.ReLU(), nn.Conv2d(units, units, 3, 1, 1, bias=False), nn.BatchNorm2d(units))
        self.beside = nn.Sequential() if channels == units else nn.Sequential(
            nn.Conv2d(channels, units, 1, stride, bias=False), nn.BatchNorm2d(units))
        self.last = nn.ReLU()

    def forward(self, x):
        return self.last(self.main(x) + self.beside(x))


def lenet5():
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                         nn.Linear(84, CLASSES)), (1, 28, 28)


def resnet20():
    layers, channels = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()], 16
    for units, stride in (16, 1), (32, 2), (64, 2):
        for k in range(3):
            layers.append(Block(channels, units, 1 if k else stride))
            channels = units
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES)), (3, 16, 16)


def odd():
    """All kinds of windows and groups; batch norm of images and vectors."""
    return nn.Sequential(nn.Conv2d(4, 6, (3, 2), (1, 2), (2, 1), groups=2), nn.ReLU(),
                         nn.MaxPool2d(3, (2, 1), 1), nn.Conv2d(6, 9, (1, 5), (2, 1), (0, 3), groups=3, bias=False),
                         nn.BatchNorm2d(9, 1e-3, 0.3), nn.ReLU(), nn.AvgPool2d(2, 1, 1), nn.Flatten(),
                         nn.Linear(360, 12, bias=False), nn.BatchNorm1d(12), nn.ReLU(),
                         nn.Linear(12, CLASSES)), (4, 9, 13)


ODD_TEXT = ("conv2d 6 3x2 stride=1x2 pad=2x1 groups=2 | relu | max_pool 3 stride=2x1 pad=1 | "
            "conv2d 9 1x5 stride=2x1 pad=0x3 groups=3 bias=no | batch_norm epsilon=0.001 momentum=0.3 | relu | "
            "avg_pool 2 stride=1 pad=1 | flatten | linear 12 bias=no | batch_norm | relu | linear 10")


def tensors(model):
    """(number, tensor) in the order of the layers, statistics included."""
    return list(enumerate(t for name, t in model.state_dict(keep_vars=True).items() if "num_batches" not in name))


def fill(model):
    modules = dict(model.named_modules())
    with torch.no_grad():
        names = [name for name in model.state_dict() if "num_batches" not in name]
        for number, name in enumerate(names):
            module, kind = modules[name.rpartition(".")[0]], name.rpartition(".")[2]
            tensor = getattr(module, kind)
            value = numbers(number, tensor.numel()).reshape(tensor.shape)
            if kind.startswith("running"):
                continue
            if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
                value = 1 + value / 4 if kind == "weight" else value / 8
            elif kind == "bias":
                value = value / 16
            else:
                bound, inputs = 1.0, tensor[0].numel()
                while bound * bound * inputs > 6:
                    bound /= 2
                value = value * bound
            tensor.copy_(value)


def digest(tensor):
    """The norm, and inner products with random signs."""
    flat = tensor.detach().flatten().to(torch.float64)
    signs = [1 - 2 * (numbers(2000 + k, flat.numel()) < 0).to(torch.float64) for k in range(SIGNS)]
    return torch.stack([flat.norm()] + [flat @ s for s in signs])


def samples(stream, rows, shape, dtype):
    return numbers(stream, rows * math.prod(shape)).reshape(rows, *shape).to(dtype)


def choose(make, batch):
    """The stream of samples: the first without arguments of ReLU near zero in the first step."""
    model, shape = make()
    model = model.to(torch.float64)
    fill(model)
    least = []
    for module in model.modules():
        if isinstance(module, nn.ReLU):
            module.register_forward_hook(lambda module, inputs, output: least.append(inputs[0].abs().min().item()))
    for stream in range(3000, 3100):
        least.clear()
        model(samples(stream, batch, shape, torch.float64))
        if min(least) > MARGIN:
            return stream
    raise SystemExit("no samples far from the kinks of ReLU")


def run(make, batch, batches, rate, stream, dtype):
    """All recorded values, by name."""
    model, shape = make()
    model = model.to(dtype)
    fill(model)
    rows = batch * batches
    x = samples(stream, rows, shape, dtype)
    t = ((numbers(1001, rows) + 1) / 2 * CLASSES).to(torch.int64)
    found, values = {}, []
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.9)
    for step in range(STEPS):
        part = slice(step % batches * batch, (step % batches + 1) * batch)
        optimizer.zero_grad()
        scores = model(x[part])
        value = F.cross_entropy(scores, t[part])
        value.backward()
        if step == 0:
            found["scores"] = scores.detach().clone()
            for number, tensor in tensors(model):
                if tensor.grad is not None:
                    found[f"gradient.{number}"] = digest(tensor.grad)
        optimizer.step()
        if step == 0:  # statistics after one update, and inference with them
            for number, tensor in tensors(model):
                if tensor.grad is None:
                    found[f"once.{number}"] = digest(tensor)
            with torch.no_grad():
                found["inferred"] = model.eval()(x[part])
            model.train()
        values.append(value.item())
    found["values"] = torch.tensor(values)
    return found


CASES = [("lenet5", lenet5, "lenet5", 8, 4, 0.05), ("resnet20", resnet20, "resnet20", 4, 2, 0.0003),
         ("odd", odd, ODD_TEXT, 8, 4, 0.05)]


def main():
    words = [word for word in sys.argv[1:] if word != "--float32"]
    folder = words[0] if words else os.path.dirname(os.path.abspath(__file__))
    writer = Writer(os.path.join(folder, "images.txt"), "Convolutional networks: one batch, and twenty updates.")
    for name, make, text, batch, batches, rate in CASES:
        stream = choose(make, batch)
        exact = run(make, batch, batches, rate, stream, torch.float64)
        model, shape = make()
        writer.case(name, model=text, loss="softmax_cross_entropy", input="x".join(map(str, shape)), classes=CLASSES,
                    batch=batch, batches=batches, samples=stream, steps=STEPS,
                    **{"optim.name": "momentum", "optim.lr": rate})
        for key, value in exact.items():
            writer.array(key, value)
        if "--float32" in sys.argv:
            rough, worst = run(make, batch, batches, rate, stream, torch.float32), {}
            for key, value in exact.items():
                distance = ((rough[key].to(torch.float64) - value).norm() / value.norm()).item()
                kind = key.split(".")[0]
                worst[kind] = max(worst.get(kind, (0, "")), (distance, key))
            print(name, {kind: f"{d:.2g} ({key})" for kind, (d, key) in worst.items()})


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Records losses, weights of classes and plateaus of PyTorch and scikit-learn, for tests/unit/test_losses.c.

    python3 make_losses.py [FOLDER]      writes losses.txt (default: beside this script)

Same format as make_reference.py, float64 throughout from rounded inputs.
"""
import os
import sys

import numpy as np
import sklearn
import torch
import torch.nn.functional as F
from sklearn.utils.class_weight import compute_class_weight


class Writer:
    def __init__(self, path):
        self.file = open(path, "w")
        self.file.write("# Losses, weights of classes and plateaus.\n# Made with PyTorch "
                        f"{torch.__version__.split('+')[0]} and scikit-learn {sklearn.__version__}.\n")

    def case(self, name, **settings):
        self.file.write(f"case {name}\n")
        for key, value in settings.items():
            self.file.write(f"set {key} {value}\n")

    def array(self, name, values):
        values = np.asarray(values, dtype=np.float64)
        self.file.write(" ".join(["array", name, *map(str, values.shape)]) + "\n")
        text = [f"{v:.9g}" for v in values.flatten()]
        for i in range(0, len(text), 10):
            self.file.write(" ".join(text[i:i + 10]) + "\n")


def loss(out, name, settings, z, target, function, weight=None):
    z = z.to(torch.float32).to(torch.float64).requires_grad_()
    value = function(z, target)
    value.backward()
    out.case(name, **settings)
    out.array("scores", z.detach())
    out.array("target", target)
    if weight is not None:
        out.array("weight", weight)
    out.array("value", [value.item()])
    out.array("gradient", z.grad)


def plateau(out, name, losses, rate, **settings):
    w = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=rate)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=settings["gamma"], patience=settings["patience"], threshold=settings["threshold"],
        min_lr=settings["final"] * rate)
    rates = []
    for value in losses:
        scheduler.step(value)
        rates.append(optimizer.param_groups[0]["lr"])
    out.case(name, loss="plateau", rate=rate, **settings)
    out.array("losses", losses)
    out.array("rates", rates)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    torch.manual_seed(3)
    random = np.random.default_rng(3)
    out = Writer(os.path.join(folder, "losses.txt"))
    for delta in (1, 0.25):
        t = torch.randn(7, 3).to(torch.float64)
        t = t.to(torch.float32).to(torch.float64)
        z = 2 * torch.randn(7, 3).to(torch.float64)
        z[0, 0] = t[0, 0] + delta
        z[1, 1] = t[1, 1]
        loss(out, f"huber {delta}", dict(loss="huber", delta=delta), z, t, torch.nn.HuberLoss(delta=delta))
    t = torch.randint(2, (9, 4)).to(torch.float64)
    z = 3 * torch.randn(9, 4).to(torch.float64)
    z[0] = torch.tensor([40.0, -40.0, 0.0, 100.0])
    loss(out, "labels", dict(loss="binary_cross_entropy"), z, t, F.binary_cross_entropy_with_logits)
    for smoothing in (0, 0.1):
        t = torch.tensor(random.choice(5, size=20, p=[0.5, 0.2, 0.1, 0.1, 0.1]))
        w = torch.tensor([0.5, 1, 2, 4.25, 3], dtype=torch.float64)
        z = torch.randn(20, 5).to(torch.float64)
        loss(out, f"class weights, smoothing {smoothing}", dict(loss="softmax_cross_entropy", smoothing=smoothing), z, t,
             torch.nn.CrossEntropyLoss(weight=w, label_smoothing=smoothing), w)
    t = random.choice(4, size=50, p=[0.6, 0.2, 0.15, 0.05])
    out.case("balanced", loss="balanced")
    out.array("target", t)
    out.array("weight", compute_class_weight("balanced", classes=np.arange(4), y=t))
    losses = np.round(np.concatenate([np.linspace(2, 1, 6), 1 + random.normal(size=30) / 50, [0.5], np.full(20, 0.5)]), 6)
    plateau(out, "plateau", losses, 0.5, gamma=0.5, patience=3, threshold=0.0001, final=0)
    plateau(out, "plateau, lowest rate", losses, 0.25, gamma=0.1, patience=0, threshold=0.01, final=0.05)
    plateau(out, "plateau, not a number", [1, float("nan"), float("nan"), 1.5, 0.9, 0.9], 0.5, gamma=0.5, patience=1,
            threshold=0, final=0)


if __name__ == "__main__":
    main()

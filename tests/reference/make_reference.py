#!/usr/bin/env python3
"""Records results of PyTorch, for tests/unit/test_reference.c.

    python3 make_reference.py [FOLDER]      writes gradients.txt and training.txt (default: in this folder)

The values in the repository were made with PyTorch 2.13.0 on a CPU, in float64, from inputs that are float32 numbers.
A file is a sequence of entries; lines that begin with '#' are comments:

    set NAME TEXT...                        a setting of the case
    case NAME                               begins a case, which ends at the next one
    array NAME DIMENSION...                 followed by the values, row-major, %.9g
"""
import copy
import os
import re
import sys

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(20)

ACTIVATIONS = {
    "relu": torch.nn.ReLU(),
    "gelu": torch.nn.GELU(),
    "gelu_tanh": torch.nn.GELU(approximate="tanh"),
    "tanh": torch.nn.Tanh(),
    "sigmoid": torch.nn.Sigmoid(),
    "silu": torch.nn.SiLU(),
    "leaky_relu": torch.nn.LeakyReLU(),
}
LOSSES = {  # mean over the batch
    "softmax_cross_entropy": F.cross_entropy,
    "mean_squared_error": F.mse_loss,
    "logistic": lambda z, t: F.soft_margin_loss(z, t),
    "hinge": lambda z, t: F.relu(1 - t * z).mean(),
}


def rounded(tensor):
    """Rounds to float32, so that recorded values are exact."""
    return tensor.to(torch.float32).to(torch.float64)


class Writer:
    def __init__(self, path, about):
        self.file = open(path, "w")
        self.file.write(f"# {about}\n# Made with PyTorch {torch.__version__.split('+')[0]}.\n")

    def case(self, name, **settings):
        self.file.write(f"case {name}\n")
        for key, value in settings.items():
            self.file.write(f"set {key} {value}\n")

    def array(self, name, tensor):
        tensor = tensor.detach()
        self.file.write(" ".join(["array", name, *map(str, tensor.shape)]) + "\n")
        values = [f"{v:.9g}" for v in tensor.flatten().tolist()]
        for i in range(0, len(values), 10):
            self.file.write(" ".join(values[i:i + 10]) + "\n")

    def parameters(self, prefix, model, what):
        for number, layer in enumerate(model):
            for name, p in layer.named_parameters():
                self.array(f"{prefix}layer{number}.{name}", what(p))


def model_of(text, inputs):
    """A torch.nn.Sequential with one module per layer of the model's text."""
    layers = []
    for item in text.split(" | "):
        words = item.split()
        if words[0] == "linear":
            layers.append(torch.nn.Linear(inputs, int(words[1]), bias="bias=no" not in words))
            inputs = int(words[1])
        else:
            layers.append(ACTIVATIONS[words[0]])
    model = torch.nn.Sequential(*layers)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(rounded(p))
    return model


def targets_of(loss, rows, outputs):
    if loss == "softmax_cross_entropy":
        return torch.randint(outputs, (rows,))
    if loss == "mean_squared_error":
        return rounded(torch.randn(rows, outputs))
    return torch.randint(2, (rows, 1)) * 2.0 - 1


def samples_of(rows, inputs):
    """About a third zeros, for use as sparse rows, too."""
    return rounded(torch.randn(rows, inputs)) * (torch.rand(rows, inputs) < 0.7)


def outputs_of(model):
    return [m for m in model if isinstance(m, torch.nn.Linear)][-1].out_features


def gradients(writer):
    cases = [(f"linear 8 | {a} | linear 7 | {a} | linear 5", "softmax_cross_entropy")
             for a in ("relu", "gelu", "gelu_tanh", "tanh", "sigmoid")]
    cases += [(f"linear 8 | {a} | linear {o}", loss) for a, loss, o in (
        ("gelu", "mean_squared_error", 3), ("tanh", "logistic", 1), ("relu", "hinge", 1))]
    cases += [("linear 5", "softmax_cross_entropy"), ("linear 1", "logistic"),
              ("linear 6 bias=no | gelu_tanh | sigmoid | linear 3 | tanh", "mean_squared_error")]
    for number, (text, loss) in enumerate(cases):
        rows, inputs = 9, 6 + number
        model = model_of(text, inputs)
        x, t = samples_of(rows, inputs), targets_of(loss, rows, outputs_of(model))
        scores = model(x)
        value = LOSSES[loss](scores, t)
        value.backward()
        writer.case(f"{number}", model=text, loss=loss)
        writer.array("x", x)
        writer.array("targets", t)
        writer.parameters("", model, lambda p: p)
        writer.array("scores", scores)
        writer.array("value", value)
        writer.parameters("gradient.", model, lambda p: p.grad)


SCHEDULES = {  # of (optimizer, steps, steps per epoch)
    "constant": lambda o, steps, epoch: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 1.0),
    "step 0.5,0.75": lambda o, steps, epoch: torch.optim.lr_scheduler.MultiStepLR(o, [steps // 2, steps * 3 // 4], 0.3),
    "step 2,4": lambda o, steps, epoch: torch.optim.lr_scheduler.MultiStepLR(o, [2 * epoch, 4 * epoch], 0.3),
    "cosine": lambda o, steps, epoch: torch.optim.lr_scheduler.CosineAnnealingLR(o, steps, 0.1 * o.defaults["lr"]),
    "linear": lambda o, steps, epoch: torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.1, steps),
}


def rates_of(schedule, rate, warmup, steps, epoch):
    """Each step's rate from PyTorch's schedulers, times the warm-up."""
    def run(make, base):
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], base)
        scheduler, rates = make(optimizer), []
        for _ in range(steps):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        return rates
    if schedule == "onecycle":
        return run(lambda o: torch.optim.lr_scheduler.OneCycleLR(
            o, rate, total_steps=steps, pct_start=warmup / steps if warmup else 0.3, cycle_momentum=False,
            final_div_factor=0.4), rate)
    rates = run(lambda o: SCHEDULES[schedule](o, steps, epoch), rate)
    if not warmup:
        return rates
    factors = run(lambda o: torch.optim.lr_scheduler.LinearLR(o, 1 / warmup, 1.0, warmup - 1), 1.0)
    return [r * f for r, f in zip(rates, factors)]


class Lars(torch.optim.Optimizer):
    """You, Gitman & Ginsburg 2017, algorithm 1; no decay and scaling for tensors of one dimension."""

    def __init__(self, parameters, rate, momentum, decay, trust, decay_all):
        super().__init__(parameters, dict(lr=rate, momentum=momentum, decay=decay, trust=trust, decay_all=decay_all))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                decay = group["decay"] if w.ndim > 1 or group["decay_all"] else 0
                local = group["trust"] * w.norm() / (w.grad.norm() + decay * w.norm()) if w.ndim > 1 else 1
                v = self.state[w].setdefault("v", torch.zeros_like(w))
                v.mul_(group["momentum"]).add_(group["lr"] * local * (w.grad + decay * w))
                w.sub_(v)


class Lamb(torch.optim.Optimizer):
    """You et al. 2020, algorithm 2, phi the identity; no decay and scaling for tensors of one dimension."""

    def __init__(self, parameters, rate, betas, epsilon, l2, decay):
        super().__init__(parameters, dict(lr=rate, betas=betas, epsilon=epsilon, l2=l2, decay=decay, t=0))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            group["t"] += 1
            beta1, beta2 = group["betas"]
            for w in group["params"]:
                g = w.grad + group["l2"] * w
                m = self.state[w].setdefault("m", torch.zeros_like(w))
                v = self.state[w].setdefault("v", torch.zeros_like(w))
                m.mul_(beta1).add_((1 - beta1) * g)
                v.mul_(beta2).add_((1 - beta2) * g * g)
                u = m / (1 - beta1 ** group["t"]) / ((v / (1 - beta2 ** group["t"])).sqrt() + group["epsilon"])
                if w.ndim > 1:
                    u = u + group["decay"] * w
                w.sub_(group["lr"] * (w.norm() / u.norm() if w.ndim > 1 else 1) * u)


def usual_groups(parameters, decay):
    """Decay, except for tensors of one dimension."""
    parameters = list(parameters)
    return [{"params": [p for p in parameters if p.ndim > 1], "weight_decay": decay},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0}]


class Muon:
    """Muon for the matrices between the first and the last, AdamW for the rest; the iterations in float64."""

    def __init__(self, parameters, settings):
        parameters, decay = list(parameters), settings.get("decay", 0)
        hidden = [p for p in parameters if p.ndim > 1][1:-1]
        rest = [p for p in parameters if all(p is not h for h in hidden)]
        self.muon = torch.optim.Muon(hidden, settings["lr"], decay, settings.get("momentum", 0.95))
        self.adamw = torch.optim.AdamW(usual_groups(rest, decay), settings["adamw_lr"], weight_decay=decay)
        self.param_groups = self.muon.param_groups
        self.fraction = settings["adamw_lr"] / settings["lr"]

    def zero_grad(self):
        self.muon.zero_grad()
        self.adamw.zero_grad()

    def step(self):
        for group in self.adamw.param_groups:
            group["lr"] = self.param_groups[0]["lr"] * self.fraction
        self.adamw.step()
        bfloat16, torch.Tensor.bfloat16 = torch.Tensor.bfloat16, torch.Tensor.clone
        self.muon.step()
        torch.Tensor.bfloat16 = bfloat16


def grouped(model, settings):
    """The optimizer with a group for each parameter, whose factors are those of the first pattern of groups in its name;
    and these factors of the rate."""
    def factors(name):
        for group in settings["groups"].split(";"):
            pattern, _, values = group.strip().rpartition(":")
            if re.search(pattern, name):
                return {k: float(v) for k, v in (value.split("=") for value in values.split())}
        return {}
    optimizer = optimizer_of(model.parameters(), {k: v for k, v in settings.items() if k != "groups"})
    decays = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    base, groups, rates = optimizer.param_groups[0], [], []
    for name, p in model.named_parameters():
        number, kind = name.split(".")
        factor = factors(f"layer{number}.{kind}")
        groups.append({"params": [p], "weight_decay": decays[id(p)] * factor.get("decay", 1)})
        rates.append(factor.get("rate", 1))
    rest = {k: v for k, v in base.items() if k not in ("params", "weight_decay")}
    return type(optimizer)([{**rest, **group} for group in groups]), rates


def optimizer_of(parameters, settings):
    name, rate, l2, decay = settings["name"], settings["lr"], settings.get("l2", 0), settings.get("decay", 0)
    epsilon, decay_all = settings.get("epsilon", 1e-8), settings.get("decay_all") == "yes"
    if name in ("sgd", "momentum", "nesterov"):
        return torch.optim.SGD(parameters, rate, settings.get("momentum", 0), weight_decay=l2,
                               nesterov=name == "nesterov")
    betas = (settings.get("beta1", 0.9), settings.get("beta2", 0.999))
    if name == "adam":
        return torch.optim.Adam(parameters, rate, betas, epsilon, weight_decay=l2)
    if name == "muon":
        return Muon(parameters, settings)
    if name == "nadamw":
        return torch.optim.NAdam(parameters if decay_all else usual_groups(parameters, decay), rate, betas, epsilon,
                                 weight_decay=decay, decoupled_weight_decay=True)
    if name == "adagrad":
        return torch.optim.Adagrad(parameters, rate, weight_decay=l2, eps=epsilon)
    if name == "lars":
        return Lars(parameters, rate, settings["momentum"], l2, settings["trust"], decay_all)
    if name == "lamb":
        return Lamb(parameters, rate, betas, epsilon, l2, decay)
    return torch.optim.AdamW(parameters if decay_all else usual_groups(parameters, decay), rate, betas, epsilon,
                             weight_decay=decay)


TRAINING = [  # (optimizer, schedule, warm-up steps, activation, loss)
    (dict(name="sgd", lr=0.5), "constant", 0, "relu", "softmax_cross_entropy"),
    (dict(name="sgd", lr=0.5, l2=0.02, clip=0.2), "step 0.5,0.75", 0, "tanh", "softmax_cross_entropy"),
    (dict(name="sgd", lr=0.3, momentum=0.9), "cosine", 5, "gelu", "softmax_cross_entropy"),
    (dict(name="momentum", lr=0.2, momentum=0.8, l2=0.05), "linear", 0, "sigmoid", "mean_squared_error"),
    (dict(name="momentum", lr=0.2, momentum=0.9, clip=0.3), "step 2,4", 3, "gelu_tanh", "hinge"),
    (dict(name="nesterov", lr=0.2, momentum=0.9), "constant", 4, "relu", "logistic"),
    (dict(name="nesterov", lr=0.2, momentum=0.9, l2=0.03, clip=0.25), "cosine", 5, "tanh", "softmax_cross_entropy"),
    (dict(name="adam", lr=0.02), "constant", 0, "gelu", "softmax_cross_entropy"),
    (dict(name="adam", lr=0.02, l2=0.05, clip=0.2), "linear", 6, "tanh", "mean_squared_error"),
    (dict(name="adam", lr=0.03, beta1=0.8, beta2=0.95, epsilon=1e-5), "step 0.5,0.75", 0, "relu", "logistic"),
    (dict(name="adamw", lr=0.02, decay=0.3), "cosine", 5, "gelu_tanh", "softmax_cross_entropy"),
    (dict(name="adamw", lr=0.03, decay=0.2, clip=0.1, beta2=0.98), "step 2,4", 3, "sigmoid", "hinge"),
    (dict(name="adamw", lr=0.02, decay=0.3, decay_all="yes", ema=0.99), "constant", 0, "relu", "softmax_cross_entropy"),
    (dict(name="lars", lr=2, momentum=0.8, l2=0.05, trust=0.02), "linear", 5, "tanh", "softmax_cross_entropy"),
    (dict(name="lars", lr=0.5, momentum=0.9, l2=0.1, trust=0.05, clip=0.2, decay_all="yes", ema=0.5), "step 2,4", 0,
     "gelu", "mean_squared_error"),
    (dict(name="lamb", lr=0.05, decay=0.1), "cosine", 4, "gelu_tanh", "softmax_cross_entropy"),
    (dict(name="lamb", lr=0.03, decay=0.2, l2=0.02, clip=0.2, beta1=0.8, beta2=0.98, epsilon=1e-6, ema=0.3),
     "linear", 0, "sigmoid", "logistic"),
    (dict(name="adagrad", lr=0.1, l2=0.02, clip=0.2, epsilon=1e-6), "cosine", 3, "gelu", "softmax_cross_entropy"),
    (dict(name="nadamw", lr=0.02, decay=0.3, beta1=0.99, clip=0.3), "linear", 3, "tanh", "softmax_cross_entropy"),
    (dict(name="nadamw", lr=0.03, epsilon=1e-6), "constant", 0, "gelu", "mean_squared_error"),
    (dict(name="muon", lr=0.02, adamw_lr=0.01, decay=0.1, clip=0.3), "cosine", 3, "tanh", "softmax_cross_entropy"),
    (dict(name="muon", lr=0.05, adamw_lr=0.001, momentum=0.9), "constant", 0, "gelu", "mean_squared_error"),
    (dict(name="momentum", lr=0.2, momentum=0.9, l2=0.05, clip=0.3, groups="bias: decay=0; ^layer4: rate=3 decay=0.5"),
     "cosine", 3, "gelu", "softmax_cross_entropy"),
    (dict(name="adam", lr=0.02, l2=0.1, groups="^layer0: rate=0.1; bias$: rate=2 decay=0"), "step 0.5,0.75", 0, "tanh",
     "mean_squared_error"),
    (dict(name="adamw", lr=0.02, decay=0.3, groups="^layer(0|2)[.]: rate=0; weight: rate=2 decay=2"), "linear", 4, "tanh",
     "softmax_cross_entropy"),
    (dict(name="adagrad", lr=0.1, l2=0.05, groups="4.weight: rate=4 decay=3"), "constant", 0, "gelu", "logistic"),
    (dict(name="nadamw", lr=0.02, decay=0.3, groups="weight: rate=0.5 decay=3"), "constant", 0, "gelu", "hinge"),
    (dict(name="momentum", lr=0.3, momentum=0.9), "onecycle", 0, "silu", "softmax_cross_entropy"),
    (dict(name="adam", lr=0.03), "onecycle", 8, "leaky_relu", "mean_squared_error"),
]


def training(writer):
    steps, batch, batches, inputs = 20, 8, 4, 9
    for number, (settings, schedule, warmup, activation, loss) in enumerate(TRAINING):
        outputs = {"softmax_cross_entropy": 5, "mean_squared_error": 3}.get(loss, 1)
        widths = (6, 13, 8) if settings["name"] == "muon" else (10, 7)
        text = " | ".join(f"linear {w} | {activation}" for w in widths) + f" | linear {outputs}"
        model = model_of(text, inputs)
        x, t = samples_of(batch * batches, inputs), targets_of(loss, batch * batches, outputs)
        rates = rates_of(schedule, settings["lr"], warmup, steps, batches)
        options = {"schedule": schedule.split()[0], "warmup": warmup, "gamma": 0.3, "final": 0.1,
                   "milestones": (schedule.split() + [""])[1]}
        writer.case(f"{number}", model=text, loss=loss, steps=steps, batch=batch,
                    **{f"optim.{k}": v for k, v in {**settings, **options}.items() if v != ""})
        writer.array("x", x)
        writer.array("targets", t)
        writer.parameters("", model, lambda p: p)
        optimizer, values = optimizer_of(model.parameters(), settings) if "groups" not in settings else None, []
        factors = []
        if "groups" in settings:
            optimizer, factors = grouped(model, settings)
        average = copy.deepcopy(model)
        for step in range(steps):
            rows = slice(step % batches * batch, (step % batches + 1) * batch)
            optimizer.zero_grad()
            value = LOSSES[loss](model(x[rows]), t[rows])
            value.backward()
            if "clip" in settings:
                torch.nn.utils.clip_grad_norm_(model.parameters(), settings["clip"])
            for number, group in enumerate(optimizer.param_groups):
                group["lr"] = rates[step] * (factors[number] if factors else 1)
            optimizer.step()
            keep = min(settings.get("ema", 0), (2 + step) / (11 + step))
            for a, p in zip(average.parameters(), model.parameters()):
                a.data.mul_(keep).add_((1 - keep) * p.data)
            values.append(value.item())
        writer.array("rates", torch.tensor(rates))
        writer.array("values", torch.tensor(values))
        writer.parameters("final.", model, lambda p: p)
        if "ema" in settings:
            writer.parameters("average.", average, lambda p: p)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    gradients(Writer(os.path.join(folder, "gradients.txt"), "Scores, loss and gradients of one batch."))
    training(Writer(os.path.join(folder, "training.txt"), "Twenty updates with every optimizer and schedule."))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The same training work in PyTorch: whole steps (forward, loss, backward, update) on samples in memory.

usage: torch_peer.py mlp|lenet5|resnet20|resnet18|vgg11|gptchar|gpt2-124m [--batch B] [--compile] [--parts]
                     [--dtype f32|bf16] [--threads T] [--ranks R [--rank N]] [--steps S] [--warmup W]
       torch_peer.py sequence --model TEXT --input SHAPE [...]

sequence: layers as Trireme names them: conv2d N K [stride=S] [pad=P], batch_norm, relu, max_pool K, dropout P, flatten,
linear N. Cross entropy; SGD with momentum 0.9, for GPTs AdamW; B samples per rank. bf16: autocast. --compile: the
compiled model, too, and the faster of the two counts. --parts: seconds of an eager step's operations, as PyTorch's
profiler has them, named as `trireme bench step` names its parts. Ranks above 1: DistributedDataParallel over gloo, one process per
rank; with --rank this process is one of them, at MASTER_ADDR. Prints one JSON line: median seconds per step, samples
(GPTs: tokens) per second over all ranks, peak memory of rank 0. As `trireme bench step`.
"""
import argparse
import json
import os
import resource
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


LENET5 = ("conv2d 6 5 pad=2 | relu | max_pool 2 | conv2d 16 5 | relu | max_pool 2 | flatten | linear 120 | relu | "
          "linear 84 | relu | linear 10")
VGG11 = " | ".join(["max_pool 2" if units == 0 else f"conv2d {units} 3 pad=1 | relu"
                    for units in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0)] +
                   ["flatten", "linear 4096", "relu", "dropout 0.5", "linear 4096", "relu", "dropout 0.5", "linear 10"])


def sequence(text, shape):
    """The layers of a text on samples of a shape."""
    layers = []
    for item in text.split("|"):
        words = [word for word in item.split() if "=" not in word]
        options = {key: int(value) for key, value in (word.split("=") for word in item.split() if "=" in word)}
        name, numbers = words[0], [float(word) for word in words[1:]]
        count = int(numbers[0]) if numbers else 0
        stride, pad = options.get("stride", 1), options.get("pad", 0)
        layers.append({
            "conv2d": lambda: nn.Conv2d(shape[0], count, int(numbers[1]), stride, pad),
            "linear": lambda: nn.Linear(shape[0], count), "batch_norm": lambda: nn.BatchNorm2d(shape[0]),
            "relu": nn.ReLU, "flatten": nn.Flatten, "max_pool": lambda: nn.MaxPool2d(count),
            "dropout": lambda: nn.Dropout(numbers[0])}[name]())
        with torch.no_grad():
            shape = tuple(layers[-1].eval()(torch.zeros((1,) + shape)).shape[1:])
    return nn.Sequential(*layers).train()


class Residual(nn.Module):
    def __init__(self, channels, units, stride):
        super().__init__()
        self.c1 = nn.Conv2d(channels, units, 3, stride, 1, bias=False)
        self.b1 = nn.BatchNorm2d(units)
        self.c2 = nn.Conv2d(units, units, 3, 1, 1, bias=False)
        self.b2 = nn.BatchNorm2d(units)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != units:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, units, 1, stride, bias=False), nn.BatchNorm2d(units))

    def forward(self, x):
        y = self.b2(self.c2(F.relu(self.b1(self.c1(x)))))
        return F.relu(y + self.shortcut(x))


def resnet20():
    layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    channels = 16
    for units, stride in ((16, 1), (32, 2), (64, 2)):
        for block in range(3):
            layers.append(Residual(channels, units, 1 if block else stride))
            channels = units
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def resnet18(classes=10):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for units, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for block in range(2):
            layers.append(Residual(channels, units, 1 if block else stride))
            channels = units
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, d // self.heads).transpose(1, 2)
                   for z in self.qkv(self.norm1(x)).split(d, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers, heads, width, context, vocabulary):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.token.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, i):
        x = self.token(i) + self.position(torch.arange(i.shape[1], device=i.device))
        return self.head(self.norm(self.blocks(x)))


def work_of(a):
    """Model, shape of a sample, classes, samples per rank."""
    texts = {"mlp": ("linear 2048 | relu | linear 2048 | relu | linear 10", (784,), 256),
             "lenet5": (LENET5, (1, 28, 28), 64), "vgg11": (VGG11, (3, 224, 224), 8),
             "sequence": (a.model, tuple(int(side) for side in a.input.split("x")), 128)}
    if a.work in texts:
        text, shape, batch = texts[a.work]
        return sequence(text, shape), shape, 10, batch
    return {"resnet20": lambda: (resnet20(), (3, 32, 32), 10, 128),
            "resnet18": lambda: (resnet18(), (3, 224, 224), 10, 16),
            "gptchar": lambda: (GPT(6, 6, 384, 256, 65), (256,), 65, 16),
            "gpt2-124m": lambda: (GPT(12, 12, 768, 256, 50257), (256,), 50257, 2)}[a.work]()


def stepper(model, optimizer, a, shape, classes, batch):
    """A function that makes a step and returns its seconds."""
    tokens = a.work.startswith("gpt")

    def step():
        x = torch.randint(0, classes, (batch,) + shape) if tokens else torch.randn((batch,) + shape)
        y = torch.randint(0, classes, (batch,) + (shape if tokens else ()))
        if a.ranks > 1:
            torch.distributed.barrier()
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=a.dtype == "bf16"):
            z = model(x)
            loss = F.cross_entropy(z.reshape(-1, z.shape[-1]), y.reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return time.perf_counter() - begin

    return step


def measure(step, a):
    """Median seconds of a step."""
    return statistics.median([step() for _ in range(a.warmup + a.steps)][a.warmup:])


PARTS = (("attention", ("scaled_dot_product", "flash_attention")), ("normalization", ("layer_norm", "batch_norm")),
         ("convolution", ("convolution",)), ("products", ("aten::mm", "aten::addmm", "aten::bmm", "linear")),
         ("embedding, loss", ("embedding", "log_softmax", "nll_loss", "cross_entropy")))


def within(event, word):
    """Whether the event or one around it has the word in its name."""
    return event is not None and (word in event.name or within(event.cpu_parent, word))


def parts_of(step, steps):
    """Seconds of a step in each part; what no other has, casts and copies too, is element-wise."""
    seconds = {}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(steps):
            step()
    for event in profile.events():
        part = "optimizer" if within(event, "Optimizer") else next(
            (name for name, words in PARTS if any(word in event.name for word in words)), "element-wise")
        seconds[part] = seconds.get(part, 0) + 1e-6 * event.self_cpu_time_total / steps
    return seconds


def run(rank, a):
    torch.set_num_threads(a.threads)
    torch.manual_seed(1 + rank)
    if a.ranks > 1:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29511")
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        torch.distributed.init_process_group("gloo", rank=rank, world_size=a.ranks)
    model, shape, classes, batch = work_of(a)
    batch = a.batch or batch
    tokens = a.work.startswith("gpt")
    if a.ranks > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = (torch.optim.AdamW(model.parameters(), 3e-4, fused=True) if tokens else  # the fastest of its forms
                 torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, fused=True))
    step = stepper(model, optimizer, a, shape, classes, batch)
    eager = measure(step, a)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    parts = {name: {"part_s": s} for name, s in parts_of(step, a.steps).items()} if a.parts else None
    compiled = measure(stepper(torch.compile(model), optimizer, a, shape, classes, batch), a) if a.compile else None
    median = min(eager, compiled or eager)
    if rank == 0:
        print(json.dumps({"work": a.work, "peer": "pytorch " + torch.__version__, "dtype": a.dtype, "ranks": a.ranks,
                          "threads": a.threads, "batch": batch, "params": sum(p.numel() for p in model.parameters()),
                          "step_s": median, "eager_s": eager, "compiled_s": compiled,
                          "items_per_s": batch * (shape[0] if tokens else 1) * a.ranks / median,
                          "max_resident_bytes": memory, "parts": parts}), flush=True)
    if a.ranks > 1:
        torch.distributed.barrier()
        os._exit(0)  # now and then the threads of gloo abort a process that ends in the usual way


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("work", choices=[
        "mlp", "lenet5", "resnet20", "resnet18", "vgg11", "gptchar", "gpt2-124m", "sequence"])
    p.add_argument("--model", default="")
    p.add_argument("--input", default="1")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--parts", action="store_true")
    p.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    p.add_argument("--batch", type=int, default=0)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--ranks", type=int, default=1)
    p.add_argument("--rank", type=int)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--warmup", type=int, default=5)
    a = p.parse_args()
    if a.ranks == 1 or a.rank is not None:
        run(a.rank or 0, a)
    else:
        torch.multiprocessing.spawn(run, (a,), a.ranks)

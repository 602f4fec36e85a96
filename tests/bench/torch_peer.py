#!/usr/bin/env python3
"""The same training work in PyTorch: whole steps (forward, loss, backward, update) of a perceptron.

usage: torch_peer.py mlp [--sizes 784-2048-2048-10] [--batch B] [--threads T] [--ranks R] [--steps S] [--warmup W]

Linear and ReLU layers, cross entropy, SGD with momentum 0.9, float32; B samples a rank. Ranks above 1:
DistributedDataParallel over gloo, one process a rank. Prints one JSON line: median seconds of a step, samples per
second summed over the ranks. What `trireme bench step` does.
"""
import argparse
import json
import os
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def perceptron(sizes):
    layers = []
    for inputs, units in zip(sizes, sizes[1:]):
        layers += [nn.Linear(inputs, units), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def run(rank, a):
    torch.set_num_threads(a.threads)
    torch.manual_seed(1 + rank)
    if a.ranks > 1:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29511")
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        torch.distributed.init_process_group("gloo", rank=rank, world_size=a.ranks)
    sizes = [int(size) for size in a.sizes.split("-")]
    model = perceptron(sizes)
    if a.ranks > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    times = []
    for step in range(a.warmup + a.steps):
        x = torch.randn(a.batch, sizes[0])
        y = torch.randint(0, sizes[-1], (a.batch,))
        if a.ranks > 1:
            torch.distributed.barrier()
        begin = time.perf_counter()
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step >= a.warmup:
            times.append(time.perf_counter() - begin)
    median = statistics.median(times)
    if rank == 0:
        print(json.dumps({"work": a.work, "peer": "pytorch " + torch.__version__, "dtype": "f32", "ranks": a.ranks,
                          "threads": a.threads, "batch": a.batch, "params": sum(p.numel() for p in model.parameters()),
                          "step_s": median, "items_per_s": a.batch * a.ranks / median}), flush=True)
    if a.ranks > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("work", choices=["mlp"])
    p.add_argument("--sizes", default="784-2048-2048-10")
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--ranks", type=int, default=1)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--warmup", type=int, default=5)
    a = p.parse_args()
    if a.ranks == 1:
        run(0, a)
    else:
        torch.multiprocessing.spawn(run, (a,), a.ranks)

#!/usr/bin/env python3
"""The model of layouts_vs_torch.sh with PyTorch's kinds of parallelism: whole steps, from forward to the update.

usage: torch_layouts.py ddp|fsdp|fully_shard|tensor|sequence|pipeline [--batch B] [--micros M] [--ranks R] [--threads T]
                        [--steps S] [--warmup W]

A GPT of 6 layers, 384 wide, 6 heads, context 256, 65 characters; B rows per step in all; AdamW; float32; gloo, one
process per rank. ddp: DistributedDataParallel. fsdp: FullyShardedDataParallel; fully_shard: its successor; units:
blocks, the rest. tensor: torch.distributed.tensor.parallel; sequence: with norms and residuals sharded by position.
pipeline: torch.distributed.pipelining, Schedule1F1B over M micro-batches; one stage per rank. In the last three the
head is not tied. Prints one JSON line: median seconds per step, peak memory of any rank.
"""
import argparse
import functools
import json
import os
import resource
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from torch_peer import GPT, Block

LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY = 6, 6, 384, 256, 65


def loss_of(scores, y):
    return F.cross_entropy(scores.reshape(-1, VOCABULARY), y.reshape(-1))


def data_step(a, model):
    def step(x, y):
        loss_of(model(x), y).backward()
    return model, step, a.batch // a.ranks


def ddp(a, rank):
    return data_step(a, nn.parallel.DistributedDataParallel(GPT(LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY)))


def fsdp(a, rank):
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
    blocks = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    model = GPT(LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY)
    return data_step(a, FullyShardedDataParallel(model, auto_wrap_policy=blocks, device_id=torch.device("cpu")))


def sharded(a, rank):
    from torch.distributed.fsdp import fully_shard
    model = GPT(LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY)
    mesh = dist.init_device_mesh("cpu", (a.ranks,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return data_step(a, fully_shard(model, mesh=mesh))


class Attention(nn.Module):
    """The heads of this rank."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        q, k, v = (z.view(*z.shape[:2], -1, WIDTH // HEADS).transpose(1, 2) for z in (self.q(x), self.k(x), self.v(x)))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        return self.out(y.reshape(*y.shape[:2], -1))


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Divisible(nn.Module):
    """A block whose layers can be sharded."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.perceptron = Attention(), Perceptron()

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.perceptron(self.norm2(x))


class Untied(nn.Module):
    """Blocks [low, high), with embeddings before the first and the head after the last."""

    def __init__(self, block, low=0, high=LAYERS):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH) if low == 0 else None
        self.position = nn.Embedding(CONTEXT, WIDTH) if low == 0 else None
        self.blocks = nn.ModuleList(block() for _ in range(low, high))
        self.norm = nn.LayerNorm(WIDTH) if high == LAYERS else None
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False) if high == LAYERS else None
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, x):
        if self.token:
            x = self.token(x) + self.position(torch.arange(CONTEXT)[None])
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)) if self.head else x


def tensor(a, rank, by_positions=False):
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel,
                                                   SequenceParallel, parallelize_module)
    mesh = dist.init_device_mesh("cpu", (a.ranks,))
    model = Untied(Divisible)
    between = Shard(1) if by_positions else Replicate()
    plan = {"token": RowwiseParallel(input_layouts=Replicate(), output_layouts=between)}
    if by_positions:
        plan["position"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=between)
        plan["norm"] = SequenceParallel()
        plan["head"] = PrepareModuleInput(input_layouts=between, desired_input_layouts=Replicate(),
                                          use_local_output=True)
    for i in range(LAYERS):
        block = f"blocks.{i}."
        if by_positions:
            plan |= {block + "norm1": SequenceParallel(), block + "norm2": SequenceParallel()}
            plan |= {block + part: PrepareModuleInput(input_layouts=between, desired_input_layouts=Replicate())
                     for part in ("attention", "perceptron")}
        plan |= {block + name: ColwiseParallel()
                 for name in ("attention.q", "attention.k", "attention.v", "perceptron.up")}
        plan |= {block + name: RowwiseParallel(output_layouts=between) for name in ("attention.out", "perceptron.down")}
    model = parallelize_module(model, mesh, plan)
    _, step, _ = data_step(a, model)
    return model, step, a.batch


def pipeline(a, rank):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    model = Untied(lambda: Block(WIDTH, HEADS), rank * LAYERS // a.ranks, (rank + 1) * LAYERS // a.ranks)
    schedule = Schedule1F1B(PipelineStage(model, rank, a.ranks, torch.device("cpu")), a.micros, loss_of)

    def step(x, y):
        schedule.step(*([x] if rank == 0 else []), **({"target": y} if rank == a.ranks - 1 else {}))
    return model, step, a.batch


WAYS = {"ddp": ddp, "fsdp": fsdp, "fully_shard": sharded, "tensor": tensor,
        "sequence": functools.partial(tensor, by_positions=True), "pipeline": pipeline}


def run(rank, a):
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29512")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", rank=rank, world_size=a.ranks)
    model, compute, rows = WAYS[a.how](a, rank)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
    times = []
    for step in range(a.warmup + a.steps):
        x = torch.randint(0, VOCABULARY, (rows, CONTEXT))
        y = torch.randint(0, VOCABULARY, (rows, CONTEXT))
        dist.barrier()
        begin = time.perf_counter()
        compute(x, y)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        dist.barrier()
        if step >= a.warmup:
            times.append(time.perf_counter() - begin)
    most = torch.tensor([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024])
    dist.all_reduce(most, dist.ReduceOp.MAX)
    if rank == 0:
        print(json.dumps({"how": a.how, "peer": "pytorch " + torch.__version__, "ranks": a.ranks, "threads": a.threads,
                          "batch": a.batch, "step_s": statistics.median(times), "max_resident_bytes": most.item()}),
              flush=True)
    dist.barrier()
    os._exit(0)  # the threads of FSDP may crash at exit otherwise


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("how", choices=list(WAYS))
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--micros", type=int, default=8)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--warmup", type=int, default=2)
    a = p.parse_args()
    torch.multiprocessing.spawn(run, (a,), a.ranks)

#!/usr/bin/env python3
"""All-reduce of PyTorch over gloo, on arrays that are in no cache and change every round, as `trireme bench allreduce`.

usage: allreduce_gloo.py RANKS BYTES ROUNDS POOL_BYTES

One process and thread per rank. A batch of rounds fills the pool anew; each round takes an array of its first half.
Prints one JSON line: median and quartiles of the slowest rank's seconds after a barrier, and the rounds.
"""
import json
import os
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def measure(rank, ranks, size, rounds, pool_bytes, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    n = size // 4
    arrays = max(1, pool_bytes // 2 // size)
    pool = torch.empty(max(pool_bytes // 4, n))
    seconds = []
    for k in range(rounds + 1):
        if k % arrays == 0:
            pool.fill_(rank + 1.0)
        data = pool[k % arrays * n:][:n]
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(data)
        seconds.append(time.perf_counter() - begin)
        if k == 0:
            assert bool((data == ranks * (ranks + 1) / 2).all()), "a wrong sum"
    slowest = torch.tensor(seconds[1:], dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    if rank == 0:
        values = slowest.tolist()
        low, _, high = statistics.quantiles(values, n=4) if len(values) > 1 else 3 * values
        print(json.dumps({"library": "gloo", "bytes": size, "ranks": ranks, "rounds": rounds,
                          "median_s": statistics.median(values), "low_s": low, "high_s": high}), flush=True)
    dist.destroy_process_group()


def main():
    ranks, size, rounds, pool_bytes = map(int, sys.argv[1:5])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(measure, (ranks, size, rounds, pool_bytes, port), nprocs=ranks)


if __name__ == "__main__":
    main()

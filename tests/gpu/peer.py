#!/usr/bin/env python3
"""PyTorch's rows of the tables of tests/gpu/run: products, and whole training steps (forward, loss, backward, update).

usage: peer.py --shapes MxNxK[:TT],... [--seconds S] [--mock] < ROWS        ROWS: lines "WORK BATCH VALUES"; VALUES f32 or bf16

The models of tests/bench/torch_peer.py, and ResNet-18 and GPT-2 (124 million parameters). A step is measured as it comes,
in a CUDA graph, and both compiled (torch.compile); attention is scaled_dot_product_attention. bf16: autocast; f32: no
TF32. Each row is a JSON object with "peer" and "mode". Compiling takes long: the last rows come first, and none begins
after --seconds. A mode that fails has a line on stderr; a work of which all modes fail ends the program with status 1.
--mock: on the CPU, for tests without a GPU.
"""
import argparse
import json
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import torch_peer  # noqa: E402

PEER = "pytorch " + torch.__version__


def sequence(text, shape):
    return torch_peer.sequence(text, shape), shape, 10, False


# Model, shape of a sample, classes, whether samples are tokens.
WORK = {
    "mlp": lambda: sequence("linear 2048 | relu | linear 2048 | relu | linear 10", (784,)),
    "lenet5": lambda: sequence(torch_peer.LENET5, (1, 28, 28)),
    "resnet20": lambda: (torch_peer.resnet20(), (3, 32, 32), 10, False),
    "resnet18": lambda: (torch_peer.resnet18(1000), (3, 224, 224), 1000, False),
    "gptchar": lambda: (torch_peer.GPT(6, 6, 384, 256, 65), (256,), 65, True),
    "gpt2-124m": lambda: (torch_peer.GPT(12, 12, 768, 1024, 50257), (1024,), 50257, True),
}
MOCK = {
    "mlp": lambda: sequence("linear 8 | relu | linear 10", (16,)),
    "lenet5": WORK["lenet5"],
    "gptchar": lambda: (torch_peer.GPT(1, 2, 16, 16, 65), (16,), 65, True),
}


class Step:
    """One training step on fixed inputs: random ones, four batches in turn, are copied into them."""

    def __init__(self, work, batch, values, device, compiled):
        torch.manual_seed(1)
        model, shape, classes, self.tokens = work
        self.device, self.values, self.shape = device, values, shape
        model = model.to(device)
        capturable = {"capturable": True} if device == "cuda" and self.tokens else {}
        fused = {"fused": True} if device == "cuda" else {}
        self.optimizer = (torch.optim.AdamW(model.parameters(), 3e-4, **capturable, **fused) if self.tokens else
                          torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, **fused))
        self.model = torch.compile(model) if compiled else model
        values_of = (lambda: torch.randint(0, classes, (batch,) + shape, device=device)) if self.tokens else (
            lambda: torch.randn((batch,) + shape, device=device))
        self.batches = [(values_of(), torch.randint(0, classes, (batch,) + (shape if self.tokens else ()), device=device))
                        for _ in range(4)]
        self.x, self.y = (t.clone() for t in self.batches[0])

    def run(self):
        with torch.autocast(self.device, torch.bfloat16, enabled=self.values == "bf16"):
            z = self.model(self.x)
            loss = F.cross_entropy(z.reshape(-1, z.shape[-1]), self.y.reshape(-1))
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def feed(self, number):
        x, y = self.batches[number % 4]
        self.x.copy_(x)
        self.y.copy_(y)


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def captured(step):
    """A function that replays the step as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step.run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step.run()
    return graph.replay


def median_seconds(run, feed, device, warmup, steps):
    times = []
    for number in range(warmup + steps):
        feed(number)
        wait(device)
        begin = time.perf_counter()
        run()
        wait(device)
        if number >= warmup:
            times.append(time.perf_counter() - begin)
    return statistics.median(times)


def measure_step(name, batch, values, mode, a):
    step = Step((MOCK if a.mock else WORK)[name](), batch, values, a.device, "compiled" in mode)
    run = captured(step) if "graph" in mode else step.run
    seconds = median_seconds(run, step.feed, a.device, a.warmup, a.steps)
    items = batch * (step.shape[0] if step.tokens else 1)
    print(json.dumps({"bench": "step", "work": name, "peer": PEER, "mode": mode, "values": values, "batch": batch,
                      "step_s": seconds, "items_per_s": items / seconds,
                      "device_bytes": torch.cuda.max_memory_allocated() if a.device == "cuda" else 0},
                     separators=(",", ":")), flush=True)


def measure_product(shape, values, a):
    sizes, _, transposes = shape.partition(":")
    m, n, k = (int(size) for size in sizes.split("x"))
    transposes = transposes or "nn"
    dtype = torch.bfloat16 if values == "bf16" else torch.float32
    x = torch.randn((k, m) if transposes[0] == "t" else (m, k), device=a.device, dtype=dtype)
    y = torch.randn((n, k) if transposes[1] == "t" else (k, n), device=a.device, dtype=dtype)
    z = torch.empty((m, n), device=a.device, dtype=dtype)
    left, right = (x.t() if transposes[0] == "t" else x), (y.t() if transposes[1] == "t" else y)
    seconds = median_seconds(lambda: torch.mm(left, right, out=z), lambda _: None, a.device, 3, 10)
    print(json.dumps({"bench": "gemm", "peer": PEER, "mode": "torch.mm", "values": values, "m": m, "n": n, "k": k,
                      "transposes": transposes, "product_s": seconds, "gflop_per_s": 2e-9 * m * n * k / seconds},
                     separators=(",", ":")), flush=True)


def try_step(name, batch, values, mode, a):
    """Measures a step; False: this version or machine does not have the mode, or not the memory."""
    try:
        measure_step(name, batch, values, mode, a)
        return True
    except Exception as error:
        print(f"{name}, {batch}, {values}, {mode}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr)
        return False
    finally:
        if a.device == "cuda":
            torch.compiler.reset()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shapes", required=True)
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--mock", action="store_true")
    a = parser.parse_args()
    a.device = "cpu" if a.mock else "cuda"
    a.warmup, a.steps = (1, 1) if a.mock else (5, 20)
    begin = time.perf_counter()
    rows = [line.split() for line in sys.stdin]
    for values in ("f32", "bf16"):
        for shape in a.shapes.split(","):
            measure_product(shape, values, a)
    done = set()
    plain, compiled = (["as it comes"], []) if a.mock else (["as it comes", "graph"], ["compiled", "compiled, graph"])
    for modes, order in ((plain, rows), (compiled, rows[::-1])):
        for name, batch, values in order:
            for mode in modes:
                if modes is compiled and time.perf_counter() - begin > a.seconds:
                    print(f"{name}, {batch}, {values}, {mode}: no time left", file=sys.stderr)
                elif try_step(name, int(batch), values, mode, a):
                    done.add((name, batch, values))
    failed = any((name, batch, values) not in done for name, batch, values in rows)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

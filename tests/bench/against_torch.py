"""The same training step on PyTorch and on troupe, in turn and on the same pinned CPUs.

usage: against_torch.py STEP_PROGRAM [--rounds N] [--threads 1,2] [--json FILE] [--only LxCxTxB]

STEP_PROGRAM is tests/bench's `train_step`. The model is GPT-2's (pre-norm, biases, tanh GELU, tied
head), written as a PyTorch user writes it; both run forward, backward, clip and AdamW in f32. Each
round measures both, one after the other; a row is the median of the rounds and the ratio of the
medians. Exit code 0, or 1 when troupe is slower somewhere.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

SHAPES = ["2x64x64x16", "4x128x64x12", "4x128x256x8", "6x384x256x4"]
VOCABULARY = 256


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step_program")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--json")
    parser.add_argument("--only")
    return parser.parse_args()


def torch_worker(shape, threads):
    """Reads how many steps to make, a line each, and prints their median in milliseconds."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.sched_setaffinity(0, set(range(threads)))
    import torch
    import torch.nn as nn
    from torch_gpt import Gpt

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    layers, channels, context, batch = (int(part) for part in shape.split("x"))
    heads = max(1, channels // 32 if channels < 384 else channels // 64)

    model = Gpt(layers, heads, channels, context, VOCABULARY)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, foreach=True)
    tokens = torch.randint(0, VOCABULARY, (batch, context))
    targets = torch.randint(0, VOCABULARY, (batch, context))

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(tokens, targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    for _ in range(3):
        step()
    print(torch.__version__, flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = time.perf_counter()
            step()
            times.append(1e3 * (time.perf_counter() - start))
        print(statistics.median(times), flush=True)


class Peer:
    """A process that makes steps when it is told to."""

    def __init__(self, command):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.version = self.process.stdout.readline().strip()
        if not self.version:
            raise SystemExit(f"{command[0]} ended with code {self.process.wait()}")

    def measure(self, steps):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=30)


def compare(options, shape, threads):
    ours = Peer([options.step_program, shape, str(threads)])
    theirs = Peer([sys.executable, __file__, "--worker", shape, str(threads)])
    try:
        first = theirs.measure(2)
        steps = max(3, int(400 / max(first, 0.1)))
        pairs = [(ours.measure(steps), theirs.measure(steps)) for _ in range(options.rounds)]
    finally:
        ours.close()
        theirs.close()
    mine, other = (statistics.median(column) for column in zip(*pairs))
    ratios = sorted(b / a for a, b in pairs)
    return {
        "name": "train_step_cpu",
        "shape": shape,
        "threads": threads,
        "unit": "ms",
        "value": mine,
        "torch": other,
        "ratio": statistics.median(ratios),
        "spread": (ratios[-1] - ratios[0]) / statistics.median(ratios),
        "torch_version": theirs.version,
    }


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "--worker":
        return torch_worker(sys.argv[2], int(sys.argv[3]))
    options = parse()
    rows = []
    print(f"{'layers x channels x context x batch':36} threads   troupe    torch   torch/troupe  spread")
    for threads in (int(part) for part in options.threads.split(",")):
        if threads > os.cpu_count():
            continue
        for shape in [options.only] if options.only else SHAPES:
            row = compare(options, shape, threads)
            rows.append(row)
            print(
                f"{shape:36} {threads:7} {row['value']:8.1f} {row['torch']:8.1f} "
                f"{row['ratio']:14.2f} {row['spread']:7.0%}",
                flush=True,
            )
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"rows": rows}, file, indent=1)
    return 0 if all(row["ratio"] >= 1.0 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

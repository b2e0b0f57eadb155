#!/usr/bin/env python3
"""Steps of GPT-2 124M by troupe and by torch.compile, in turn on one device.

usage: bench_torch.py STEP_PROGRAM [--device cpu|cuda] [--type bf16|f32|tf32] [--size gpt2|tiny] [--batch B] [--rounds N]

STEP_PROGRAM is `device_bench`. Both make forward, backward, clip and AdamW; torch in bf16 by autocast, as its users do.
tf32: torch rounds the operands of products, troupe computes in f32. Prints one JSON object: tokens a second of both,
medians of the rounds, and the median of the rounds' ratios. In bf16 the ratio has to reach 0.6 (the tiny size is not
judged). Where PyTorch is not there it says so, and measures troupe alone.
exit codes: 0; 1 when a side failed; 3 when the ratio is below its bar; 77 without PyTorch on a CUDA device.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bench"))

BAR = {"bf16": 0.6}
SIZES = {  # layers, heads, channels, time, vocabulary, batch
    "gpt2": (12, 12, 768, 1024, 50257, 8),
    "tiny": (2, 2, 16, 8, 33, 2),
}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step_program")
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--type", default="bf16", choices=["bf16", "f32", "tf32"])
    parser.add_argument("--size", default="gpt2", choices=sorted(SIZES))
    parser.add_argument("--batch", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worker", action="store_true", help="torch's side")
    return parser.parse_args()


def worker(options):
    """Reads how many steps to make, a line each, and prints their median in milliseconds."""
    import torch
    import torch.nn as nn
    from torch_gpt import Gpt

    layers, heads, channels, context, vocabulary, batch = SIZES[options.size]
    batch = options.batch or batch
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high" if options.type == "tf32" else "highest")

    on_cuda = options.device == "cuda"
    model = Gpt(layers, heads, channels, context, vocabulary).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=on_cuda)
    compiled = torch.compile(model) if on_cuda else model
    text = torch.randint(0, vocabulary, (batch, context + 1), device=options.device)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(options.device, dtype=torch.bfloat16, enabled=options.type == "bf16"):
            loss = compiled(text[:, :-1].contiguous(), text[:, 1:].contiguous())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()  # troupe's steps read their loss, too

    for _ in range(5):
        step()
    print("torch", torch.__version__, flush=True)
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
        self.name = self.process.stdout.readline().strip()
        if not self.name:
            raise SystemExit(f"{command[0]} ended with code {self.process.wait()}")

    def measure(self, steps):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name}: ended with code {self.process.wait()}")
        return float(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=30)


def has_torch(device):
    code = "import sys, torch; sys.exit(sys.argv[1] == 'cuda' and not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", code, device], stderr=subprocess.DEVNULL).returncode == 0


def main():
    options = parse()
    if options.worker:
        worker(options)
        return 0
    with_torch = has_torch(options.device)
    if not with_torch:
        print("bench_torch: there is no PyTorch here that has the device; troupe is measured alone", file=sys.stderr)
    *_, context, _, batch = SIZES[options.size]
    batch = options.batch or batch
    shared = ["--device", options.device, "--size", options.size, "--batch", str(batch)]
    own_type = "f32" if options.type == "tf32" else options.type
    peers = [Peer([options.step_program, "step", *shared, "--type", own_type])]
    if with_torch:
        peers.append(Peer([sys.executable, "-W", "ignore", __file__, options.step_program, "--worker",
                           "--type", options.type, *shared]))
    steps = max(3, min(50, int(2000 / max(peers[0].measure(1), 1))))
    if options.size == "tiny":
        steps = 3
    rounds = [[peer.measure(steps) for peer in peers] for _ in range(options.rounds)]
    names = [peer.name for peer in peers]
    for peer in peers:
        peer.close()
    rates = [batch * context / statistics.median(column) * 1e3 for column in zip(*rounds)]
    ratios = sorted(row[1] / row[0] for row in rounds) if with_torch else []
    ratio = statistics.median(ratios) if ratios else None
    bar = BAR.get(options.type) if options.size == "gpt2" else None
    reached = None if ratio is None or bar is None else ratio >= bar
    print(json.dumps({
        "operation": "step", "size": options.size, "type": options.type, "batch": batch, "device": names[0],
        "tokens_per_s": round(rates[0]), "torch": names[1] if with_torch else None,
        "torch_tokens_per_s": round(rates[1]) if with_torch else None, "ratio": ratio,
        "spread": (ratios[-1] - ratios[0]) / ratio if ratios else None, "bar": bar, "reached": reached,
    }, separators=(",", ":")))
    if not with_torch and options.device == "cuda":
        return 77
    return 3 if reached is False else 0


if __name__ == "__main__":
    sys.exit(main())

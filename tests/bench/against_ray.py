"""The workloads of `bench core objects` on Ray, with the same definitions, and both columns side by side.

    against_ray.py [--quick] [--only NAME] [--rounds N] --troupe REPORT.json [--json FILE]

Measures each row in the placements that the report has, on the same CPUs (everything that Ray starts inherits
them), and prints a table; FILE gets the report with a member "ray" in each row that both have. What is measured
is what core.cpp measures under that name; the counts are smaller, since Ray takes longer.
"""

import argparse
import json
import os
import statistics
import time

import ray


@ray.remote
def echo(x):
    return x


@ray.remote
class Echo:
    def say(self, x):
        return x


def median_call(calls, call):
    """Seconds of one call: the median of ten batches."""
    batches = []
    each = max(1, calls // 10)
    for _ in range(10):
        start = time.perf_counter()
        for i in range(each):
            call(i)
        batches.append((time.perf_counter() - start) / each)
    return statistics.median(batches)


def in_flight(calls, call):
    """Calls a second, each with a ref of its own, which is read."""
    start = time.perf_counter()
    refs = [call(i) for i in range(calls)]
    for i, ref in enumerate(refs):
        assert ray.get(ref) == i
    return calls / (time.perf_counter() - start)


def said(call, i):
    assert ray.get(call(i)) == i


def make_actor():
    actor = Echo.options(num_cpus=0).remote()
    for i in range(20):
        said(actor.say.remote, i)
    return actor


def create_actor(i):
    actor = Echo.options(num_cpus=0).remote()
    said(actor.say.remote, i)
    ray.kill(actor)


def wait_1000(rounds):
    refs = [echo.remote(i) for i in range(1000)]
    ray.get(refs)
    start = time.perf_counter()
    for _ in range(rounds):
        ready, _rest = ray.wait(refs, num_returns=1000, timeout=60)
        assert len(ready) == 1000
    return (time.perf_counter() - start) / rounds / 1000 * 1e6


def put_small(calls):
    refs = []
    return 1e9 * median_call(calls, lambda i: refs.append(ray.put(i)))


def get_small(calls):
    ref = echo.remote(7)
    assert ray.get(ref) == 7
    return 1e9 * median_call(calls, lambda _: ray.get(ref))


def workloads(quick):
    def n(full, few):
        return few if quick else full

    def actor_sync():
        actor = make_actor()
        return 1e6 * median_call(n(2000, 20), lambda i: said(actor.say.remote, i))

    def actor_inflight():
        return in_flight(n(10_000, 100), make_actor().say.remote)

    return {
        "task_sync": lambda: 1e6 * median_call(n(2000, 20), lambda i: said(echo.remote, i)),
        "task_inflight": lambda: in_flight(n(10_000, 100), echo.remote),
        "actor_sync": actor_sync,
        "actor_inflight": actor_inflight,
        "actor_create": lambda: 1e3 * median_call(10, create_actor),
        "put_small": lambda: put_small(n(5000, 50)),
        "get_small": lambda: get_small(n(5000, 50)),
        "wait_1000": lambda: wait_1000(n(5, 1)),
    }


def one_placement(cpus, names, options):
    """Values by row: the median of the rounds, each in a cluster of its own."""
    os.sched_setaffinity(0, cpus)
    values = {name: [] for name in names}
    for _ in range(options.rounds):
        start = time.perf_counter()
        ray.init(num_cpus=1, include_dashboard=False, logging_level="error", log_to_driver=False)
        if "embedded_start" in names:
            values["embedded_start"].append(1e3 * (time.perf_counter() - start))
        for i in range(20):
            said(echo.remote, i)
        for name, measure in workloads(options.quick).items():
            if name in names:
                values[name].append(measure())
        ray.shutdown()
    return {name: statistics.median(all_of) for name, all_of in values.items() if all_of}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--troupe", required=True)
    parser.add_argument("--json")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    with open(options.troupe) as file:
        report = json.load(file)
    cpus = sorted(os.sched_getaffinity(0))
    known = set(workloads(True)) | {"embedded_start"}
    for placement, mine in (("one_cpu", cpus[:1]), ("two_cpus", cpus[:2])):
        rows = [row for row in report["rows"] if row["placement"] == placement and row["name"] in known]
        rows = [row for row in rows if options.only in row["name"]]
        if not rows or len(mine) < (1 if placement == "one_cpu" else 2):
            continue
        values = one_placement(set(mine), {row["name"] for row in rows}, options)
        for row in rows:
            row["ray"] = values[row["name"]]
    os.sched_setaffinity(0, set(cpus))
    report["ray_version"] = ray.__version__
    print(f"{'name':19} {'placement':9} {'troupe':>12} {'ray ' + ray.__version__:>12} {'unit':8} {'times':>8}")
    for row in report["rows"]:
        if "ray" not in row:
            continue
        faster = row["value"] / row["ray"] if row["unit"].endswith("/s") else row["ray"] / row["value"]
        print(f"{row['name']:19} {row['placement']:9} {row['value']:12.4g} {row['ray']:12.4g} {row['unit']:8} {faster:7.1f}x")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Runs the chaos program and appends what came of it to runs.json; or shows what all runs came to.

    ./dev chaos --ledger --minutes 10 --seed 7 --only worker_killed,control_killed
    ./dev chaos --ledger --show [--all]

An entry holds for the sources that it names by their hash: the product and the chaos program. It says of each kind how
often it was injected, what went wrong, and the times until all worked again, in ms to two digits and how many had each.
"""
import argparse
import hashlib
import json
import math
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNS = ROOT / "tests" / "chaos" / "runs.json"
SOURCES = ["runtime", "objectstore", "actors", "tests/chaos"]
WRONG = ["lost", "duplicated", "hung", "wrong"]


def hash_of_sources():
    digest = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".cpp", ".hpp", ".capnp"):
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def two_digits(ms):
    if ms < 1:
        return 1
    unit = 10 ** max(0, math.floor(math.log10(ms)) - 1)
    return int(round(ms / unit) * unit)


def entry_of(sources, report):
    kinds = {}
    for name, row in report["kinds"].items():
        if row["injected"] == 0 and not any(row[w] for w in WRONG):
            continue
        times = {}
        for ms in row["recovery_ms"]:
            key = str(two_digits(ms))
            times[key] = times.get(key, 0) + 1
        kinds[name] = {"injected": row["injected"], **{w: row[w] for w in WRONG if row[w]},
                       "ms": dict(sorted(times.items(), key=lambda item: int(item[0])))}
    return {"hash": sources, "seed": report["seed"], "seconds": round(report["seconds"]), "nodes": report["nodes"],
            "clusters": report["clusters"], "operations": report["tasks"] + report["calls"],
            "cpu_percent": round(report["cpu_percent"]), "kinds": kinds, "bad": report["bad"][:20]}


def quantile(times, q):
    values = sorted((int(ms), count) for ms, count in times.items())
    rank = q * sum(count for _, count in values)
    seen = 0
    for ms, count in values:
        seen += count
        if seen >= rank:
            return ms
    return 0


def show(runs):
    total = {}
    for run in runs:
        for name, row in run["kinds"].items():
            sums = total.setdefault(name, {"injected": 0, "ms": {}, **{w: 0 for w in WRONG}})
            for key in ["injected", *WRONG]:
                sums[key] += row.get(key, 0)
            for ms, count in row["ms"].items():
                sums["ms"][ms] = sums["ms"].get(ms, 0) + count
    print(f"{len(runs)} runs, {sum(r['seconds'] for r in runs) / 60:.0f} minutes, "
          f"{sum(r['clusters'] for r in runs)} clusters, {sum(r['operations'] for r in runs)} operations")
    print(f"{'KIND':22} {'TIMES':>6} {'LOST':>5} {'DUPL':>5} {'HUNG':>5} {'WRONG':>5} {'P50 MS':>7} {'P99 MS':>7}")
    for name in sorted(total):
        row = total[name]
        print(f"{name:22} {row['injected']:6} {row['lost']:5} {row['duplicated']:5} {row['hung']:5} {row['wrong']:5} "
              f"{quantile(row['ms'], 0.5):7} {quantile(row['ms'], 0.99):7}")


def main():
    parser = argparse.ArgumentParser(prog="./dev chaos --ledger", description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--show", action="store_true", help="what the runs of these sources came to")
    parser.add_argument("--all", action="store_true", help="... of all sources")
    options, arguments = parser.parse_known_args()
    runs = json.loads(RUNS.read_text()) if RUNS.exists() else []
    sources = hash_of_sources()
    code = 0
    if not options.show:
        with tempfile.NamedTemporaryFile() as report:
            code = subprocess.run([options.program, *arguments, "--report", report.name]).returncode
            text = pathlib.Path(report.name).read_text()
        runs = json.loads(RUNS.read_text()) if RUNS.exists() else []  # read again: another run may have ended
        if not text:  # the program itself died
            runs.append({"hash": sources, "seconds": 0, "clusters": 0, "operations": 0, "kinds": {},
                         "bad": [f"{' '.join(arguments)}: ended with code {code}"]})
            code = code or 1
        else:
            runs.append(entry_of(sources, json.loads(text)))
        RUNS.write_text("[\n" + ",\n".join("  " + json.dumps(run) for run in runs) + "\n]\n")
    show([run for run in runs if options.all or run["hash"] == sources])
    sys.exit(code)


if __name__ == "__main__":
    main()

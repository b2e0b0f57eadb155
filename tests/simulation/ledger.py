#!/usr/bin/env python3
"""Runs seeds of the simulated clusters and appends what came of them to ledger.json.

    ./dev simulate --ledger --seeds 10000

An entry holds for the sources that it names by their hash: the cores and the simulator. A run goes on where the same
sources got to. The file is a list of entries: {hash, world, from, seeds, counted, calls, kinds, violations}.
"""
import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LEDGER = ROOT / "tests" / "simulation" / "ledger.json"
SOURCES = ["runtime/agent", "runtime/base", "runtime/client", "runtime/control", "runtime/net", "runtime/scheduling",
           "runtime/wire", "runtime/schema", "tests/simulation/cluster", "tests/simulation/kernel"]


def hash_of_sources():
    digest = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".cpp", ".hpp", ".capnp"):
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def main():
    parser = argparse.ArgumentParser(prog="./dev simulate --ledger")
    parser.add_argument("program")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--from", dest="first", type=int, default=0, help="default: where these sources got to")
    options = parser.parse_args()
    ledger = json.loads(LEDGER.read_text()) if LEDGER.exists() else []
    sources = hash_of_sources()
    first = options.first or max([e["from"] + e["seeds"] for e in ledger if e["hash"] == sources] + [1_000_001])
    with tempfile.NamedTemporaryFile() as report:
        done = subprocess.run([options.program, "--seeds", str(options.seeds), "--from", str(first), "--no-shrink",
                               "--report", report.name])
        entry = json.loads(pathlib.Path(report.name).read_text())
    ledger.append({"hash": sources, **entry})
    LEDGER.write_text("[\n" + ",\n".join("  " + json.dumps(e) for e in ledger) + "\n]\n")
    total = sum(e["seeds"] for e in ledger)
    print(f"{LEDGER.relative_to(ROOT)}: {total} schedules in all, "
          f"{sum(e['seeds'] for e in ledger if e['hash'] == sources)} of these sources")
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()

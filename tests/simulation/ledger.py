#!/usr/bin/env python3
"""Runs seeds of the simulated clusters and adds the results to ledger.json.

    ./dev simulate --ledger --seeds 100000        # in slices, each of which is written when it is done
    ./dev simulate --ledger --show                # the runs of these sources; --all: of all sources

An entry names the sources that it ran by their hash: the cores and the simulator. A run continues after the last seed of
the same sources. It may be ended at any time, and only the slice under way is lost then. The file is a list of entries
{hash, world, from, seeds, counted, calls, kinds, violations, failed, faults}; `failed` names the seeds that broke a
promise, `faults` says how often each kind struck.
"""
import argparse
import collections
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LEDGER = ROOT / "tests" / "simulation" / "ledger.json"
SOURCES = ["runtime/agent", "runtime/base", "runtime/client", "runtime/control", "runtime/net", "runtime/scheduling",
           "runtime/wire", "runtime/schema", "tests/simulation/cluster", "tests/simulation/kernel"]
FIRST = 1_000_001


def hash_of_sources():
    digest = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".cpp", ".hpp", ".capnp"):
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def read():
    return json.loads(LEDGER.read_text()) if LEDGER.exists() else []


def add(sources, slice_):
    """Extends the entry that ends where the slice begins, or adds one. The file is replaced as a whole."""
    ledger = read()
    entry = next((e for e in ledger if e["hash"] == sources and "faults" in e
                  and e["from"] + e["seeds"] == slice_["from"]), None)
    if entry is None:
        entry = {"hash": sources, "world": slice_["world"], "from": slice_["from"], "seeds": 0, "counted": 0,
                 "calls": 0, "kinds": 0, "violations": 0, "failed": [], "faults": {}}
        ledger.append(entry)
    for name in ("seeds", "counted", "calls", "failed"):
        entry[name] += slice_[name]
    for kind, times in slice_["faults"].items():
        entry["faults"][kind] = entry["faults"].get(kind, 0) + times
    entry["kinds"] = sum(1 for times in entry["faults"].values() if times)
    entry["violations"] = len(entry["failed"])
    fresh = LEDGER.with_suffix(".new")
    fresh.write_text("[\n" + ",\n".join("  " + json.dumps(e) for e in ledger) + "\n]\n")
    os.replace(fresh, LEDGER)


def show(sources, everything):
    entries = [e for e in read() if everything or e["hash"] == sources]
    faults = collections.Counter()
    for entry in entries:
        faults.update(entry.get("faults", {}))
    total = {name: sum(e[name] for e in entries) for name in ("seeds", "counted", "calls", "violations")}
    print(f"{'all sources' if everything else 'sources ' + sources}: {total['seeds']} schedules, of which "
          f"{total['counted']} count; {total['calls']} calls, {total['violations']} violations; kinds of fault that "
          f"struck at least 1, 100, 1000 times: "
          + ", ".join(str(sum(1 for n in faults.values() if n >= least)) for least in (1, 100, 1000)))
    width = max([len(kind) for kind in faults], default=0)
    rows = [f"{kind:{width}} {times:>9}" for kind, times in faults.most_common() if times]
    for at in range(0, len(rows), 3):
        print("  " + "    ".join(rows[at:at + 3]))
    for entry in entries:
        if entry.get("failed"):
            print(f"  {entry['hash']} broke a promise at", *entry["failed"])


def main():
    parser = argparse.ArgumentParser(prog="./dev simulate --ledger")
    parser.add_argument("program")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--from", dest="first", type=int, default=0, help="default: where these sources got to")
    parser.add_argument("--slice", type=int, default=500, help="seeds between two lines written")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--all", action="store_true", help="with --show: of all sources")
    options = parser.parse_args()
    sources = hash_of_sources()
    if options.show:
        return show(sources, options.all)
    first = options.first or max([e["from"] + e["seeds"] for e in read() if e["hash"] == sources] + [FIRST])
    left, failed, child = options.seeds, False, None

    def end(*_):
        if child is not None:
            child.kill()
        sys.exit(f"ended; the next run goes on from seed {first}")

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    with tempfile.TemporaryDirectory(prefix="troupe-ledger-") as folder:
        # Runs a copy, since the build folder may get another program meanwhile.
        program = shutil.copy2(options.program, folder)
        report = pathlib.Path(folder) / "report.json"
        while left > 0:
            count = min(options.slice, left)
            child = subprocess.Popen([program, "--seeds", str(count), "--from", str(first), "--no-shrink", "--report",
                                      str(report)], stdout=subprocess.PIPE, text=True, start_new_session=True)
            text = child.communicate()[0]
            if child.returncode not in (0, 1, 3):
                sys.exit(text + f"the simulator ended with code {child.returncode}")
            done = json.loads(report.read_text())
            add(sources, done)
            first, left = first + done["seeds"], left - done["seeds"]
            print("".join(line + "\n" for line in text.splitlines() if "FAILED" in line), end="")
            print(f"{text.splitlines()[0]}", flush=True)
            failed = failed or bool(done["failed"])
    show(sources, False)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

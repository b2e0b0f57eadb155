#!/usr/bin/env python3
"""Plants each bug of this folder in the simulated clusters, which must find it.

    ./dev simulate --mutants                      # all of them, a table at the end
    ./dev simulate --mutants calls_out_of_order   # one

A patch is one small mistake in one unit of one core. That unit alone is compiled, as the build folder compiles it, and
linked before the archive that has the right one, in a folder of the mutant's own in the build folder; nothing else
there or in the tree changes. A mutant counts as found when a seed breaks a promise that all seeds keep without it.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PROGRAM = "cluster_simulate"


def run(command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)


def link_command(build):
    """How the program is linked, and where from."""
    makefile = build / "tests" / "CMakeFiles" / f"{PROGRAM}.dir" / "link.txt"
    if makefile.exists():
        return makefile.read_text().strip(), build / "tests"
    lines = run(["ninja", "-C", str(build), "-t", "commands", PROGRAM]).stdout.splitlines()
    return lines[-1], build


def compile_command(build, source):
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if entry["file"] == str(source):
            return shlex.split(entry["command"]), entry["directory"]
    sys.exit(f"{build} does not compile {source}")


def plant(patch, build, folder):
    """The program with the bug; an error in words instead."""
    unit = re.search(r"^\+\+\+ b/(\S+)", patch.read_text(), re.M)[1]
    copy = folder / unit
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(ROOT / unit, copy)
    if run(["patch", "-p1", "--quiet", "-N", "-i", str(patch)], cwd=folder).returncode != 0:
        return None, "the patch does not apply"
    command, directory = compile_command(build, ROOT / unit)
    planted = folder / "unit.o"
    command[command.index("-o") + 1] = str(planted)
    command = [str(copy) if word == str(ROOT / unit) else word for word in command]
    if shutil.which("ccache"):  # a mutant of a unit that has not changed since is there at once
        command.insert(0, "ccache")
    built = run(command + ["-w"], cwd=directory)
    if built.returncode != 0:
        return None, "does not compile: " + built.stdout[-300:]
    line, directory = link_command(build)
    program = folder / PROGRAM
    line, replaced = re.subn(r"-o \S*" + PROGRAM + r"\b", f"{planted} -o {program}", line)
    linked = run(["sh", "-c", line], cwd=directory)
    if replaced != 1 or linked.returncode != 0:
        return None, "does not link: " + linked.stdout[-300:]
    return program, ""


def find(name, options, build):
    """The seed, counted from 1, at which it is found, or 0; and the promise that it broke, or what went wrong."""
    folder = build / "mutants" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    begun = time.monotonic()
    program, why = plant(HERE / f"{name}.patch", build, folder)
    if not program:
        return 0, why
    planted = time.monotonic()
    done = run([str(program), "--seeds", str(options.seeds), "--from", str(options.first), "--no-shrink",
                "--first-failure"])
    program.unlink()
    found = re.search(r"FAILED seed (\d+): ([^\n:]*)", done.stdout)
    took = f"  ({planted - begun:.0f} s to plant, {time.monotonic() - planted:.0f} s to look)"
    return (int(found[1]) - options.first + 1, found[2] + took) if found else (0, "MISSED" + took)


def main():
    parser = argparse.ArgumentParser(prog="./dev simulate --mutants")
    parser.add_argument("names", nargs="*", help="without .patch; default: all")
    parser.add_argument("--build", required=True, help="the build folder, which has the program")
    parser.add_argument("--seeds", type=int, default=2000, help="within which it must be found")
    parser.add_argument("--from", dest="first", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    build = pathlib.Path(options.build).resolve()
    names = options.names or sorted(p.stem for p in HERE.glob("*.patch"))
    seen = {}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        under_way = {pool.submit(find, name, options, build): name for name in names}
        for done in concurrent.futures.as_completed(under_way):
            name, (seed, why) = under_way[done], done.result()
            seen[name] = seed
            print(f"{name:40} {f'seed {seed}' if seed else '':12} {why}", flush=True)
    print("\n| Seed | Found at that seed, counted from 1 |\n|---|---|")
    for seed in sorted(set(seen.values()), key=lambda n: (n == 0, n)):
        print(f"| {seed or f'not in {options.seeds}'} | " +
              ", ".join(f"`{name}`" for name in sorted(seen) if seen[name] == seed) + " |")
    found = sum(1 for seed in seen.values() if seed)
    print(f"{found} of {len(names)} mutants found within {options.seeds} seeds")
    sys.exit(0 if found == len(names) else 1)


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    main()

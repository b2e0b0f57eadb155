#!/usr/bin/env python3
"""Plants each bug of this folder in the simulated clusters, which must find it.

    ./dev simulate --mutants                      # all mutants, with a table at the end
    ./dev simulate --mutants calls_out_of_order   # one
    ./dev simulate --mutants --unit-tests         # also says which of them the unit tests find
    ./dev simulate --mutants --record             # also writes the seed of each at the head of its patch

A patch is one small mistake in one unit of one core. Only that unit is compiled, in the way of the build folder. Its object
is linked before the archive with the correct one, in a folder of the mutant in the build folder. Nothing else changes, in
the build folder or in the tree. A mutant counts as found when a seed breaks a promise that all seeds keep without it. The
line "Seed: N" at the head of a patch names the first such seed. That seed is tried before the others, unless --search is
given. A second line "World: machine" plants it in the world of one machine, and "World: machine, 3 nodes" in that of three.
"Seed: rare" marks a mutant that needs too many seeds: it is planted only when it is named.

With --unit-tests, every unit test that links the core runs with the mutant in it. The tests find a mutant when a test fails
twice with it and passes without it.
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
UNIT_TESTS = {"runtime/control": ["runtime_control_test"], "runtime/net": ["runtime_net_test", "runtime_agent_test"]}
UNIT_TESTS_OF_OTHERS = ["runtime_scheduling_test", "runtime_client_test", "runtime_agent_test"]


def run(command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)


def link_command(build, program):
    """Returns the command that links the program, and the folder in which it runs."""
    makefile = build / "tests" / "CMakeFiles" / f"{program}.dir" / "link.txt"
    if makefile.exists():
        return makefile.read_text().strip(), build / "tests"
    lines = run(["ninja", "-C", str(build), "-t", "commands", program]).stdout.splitlines()
    return next(line for line in reversed(lines) if f"-o bin/{program} " in line), build


def compile_command(build, source):
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if entry["file"] == str(source):
            return shlex.split(entry["command"]), entry["directory"]
    sys.exit(f"{build} does not compile {source}")


def plant(patch, build, folder):
    """Compiles the unit with the bug. Returns its object and its source's name, or None and an error in words."""
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
    command.insert(0, str(ROOT / "runtime" / "cmake" / "cached.sh"))  # has a mutant of an unchanged unit at once
    built = run(command + ["-w"], cwd=directory)
    if built.returncode != 0:
        return None, "does not compile: " + built.stdout[-300:]
    return (planted, unit), ""


def link(build, planted, name, program):
    """Links the program with the planted unit. Returns it, or None and an error in words."""
    line, directory = link_command(build, name)
    line, replaced = re.subn(r"-o \S*" + name + r"\b", f"{planted} -o {program}", line)
    linked = run(["sh", "-c", line], cwd=directory)
    if replaced != 1 or linked.returncode != 0:
        return None, "does not link: " + linked.stdout[-300:]
    return program, ""


def failing(program, folder, only="*"):
    """Returns the tests of this program that fail, or in which it crashes or hangs."""
    report = folder / f"{program.name}.json"
    report.unlink(missing_ok=True)
    done = run(["timeout", "300", str(program), f"--gtest_filter={only}", f"--gtest_output=json:{report}"], cwd=folder)
    named = set(re.findall(r"\[  FAILED  \] ([\w/]+\.[\w/]+)", done.stdout))
    if not report.exists():
        named |= set(re.findall(r"\[ RUN      \] ([\w/]+\.[\w/]+)", done.stdout)[-1:])
    return named


def in_unit_tests(build, planted, unit):
    """Runs the unit tests with the mutant, and returns the result in words."""
    for name in UNIT_TESTS.get(str(pathlib.Path(unit).parent), UNIT_TESTS_OF_OTHERS):
        # In the folder of the other programs, where it finds its plug-ins.
        program, why = link(build, planted, name, build / "bin" / f"{name}.{planted.parent.name}")
        if not program:
            return why
        try:
            failed = failing(program, planted.parent)
            if failed:
                failed &= failing(program, planted.parent, ":".join(sorted(failed)))
            if failed:
                failed -= failing(build / "bin" / name, planted.parent, ":".join(sorted(failed)))
        finally:
            program.unlink()
        if failed:
            return f"unit tests find it ({min(failed)})"
    return "unit tests miss it"


def world_of(text):
    """Returns the program's arguments that choose the world of a patch."""
    machine = re.search(r"^World: machine(?:, (\d+) nodes)?$", text, re.M)
    return [] if not machine else ["--machine"] + (["--nodes", machine[1]] if machine[1] else [])


def look(program, world, first, seeds):
    """Returns a match with the first of these seeds that fails and its reason, or None."""
    done = run([str(program), *world, "--seeds", str(seeds), "--from", str(first), "--no-shrink", "--first-failure"])
    return re.search(r"FAILED seed (\d+): ([^\n:]*)", done.stdout)


def find(name, options, build):
    """Returns the seed that finds the mutant, or 0; the promise that it broke, or an error; and the result of the
    unit tests."""
    folder = build / "mutants" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    begun = time.monotonic()
    made, why = plant(HERE / f"{name}.patch", build, folder)
    if not made:
        return 0, why, ""
    program, why = link(build, made[0], PROGRAM, folder / PROGRAM)
    if not program:
        return 0, why, ""
    planted = time.monotonic()
    text = (HERE / f"{name}.patch").read_text()
    recorded = re.match(r"Seed: (\d+)\n", text)
    world = world_of(text)
    found = look(program, world, int(recorded[1]), 1) if recorded and not options.search else None
    found = found or look(program, world, options.first, options.seeds)
    program.unlink()
    took = f"  ({planted - begun:.0f} s to plant, {time.monotonic() - planted:.0f} s to look)"
    unit = in_unit_tests(build, *made) if options.unit_tests else ""
    return (int(found[1]), found[2] + took, unit) if found else (0, "MISSED" + took, unit)


def record(patch, seed):
    text = patch.read_text()
    if not text.startswith("Seed: rare"):
        patch.write_text(re.sub(r"^(Seed: .*\n)?", f"Seed: {seed}\n", text, count=1))


def main():
    parser = argparse.ArgumentParser(prog="./dev simulate --mutants")
    parser.add_argument("names", nargs="*", help="without .patch; default: all")
    parser.add_argument("--build", required=True, help="the build folder, which has the program")
    parser.add_argument("--seeds", type=int, default=2000, help="within which it must be found")
    parser.add_argument("--from", dest="first", type=int, default=1)
    parser.add_argument("--search", action="store_true", help="from the first seed on, whatever the patches say")
    parser.add_argument("--record", action="store_true", help="write the seeds at the heads of the patches")
    parser.add_argument("--unit-tests", action="store_true", help="run the unit tests with each, too")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    build = pathlib.Path(options.build).resolve()
    names = options.names or sorted(p.stem for p in HERE.glob("*.patch") if not p.read_text().startswith("Seed: rare"))
    seen, missed = {}, []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        under_way = {pool.submit(find, name, options, build): name for name in names}
        for done in concurrent.futures.as_completed(under_way):
            name, (seed, why, unit) = under_way[done], done.result()
            seen[name] = seed
            missed += [name] if seed and unit == "unit tests miss it" else []
            if options.record and seed:
                record(HERE / f"{name}.patch", seed)
            print(f"{name:40} {f'seed {seed}' if seed else '':12} {why} {unit}", flush=True)
    print("\n| Seed | Found at that seed |\n|---|---|")
    for seed in sorted(set(seen.values()), key=lambda n: (n == 0, n)):
        print(f"| {seed or f'not in {options.seeds}'} | " +
              ", ".join(f"`{name}`" for name in sorted(seen) if seen[name] == seed) + " |")
    found = sum(1 for seed in seen.values() if seed)
    print(f"{found} of {len(names)} mutants found within {options.seeds} seeds")
    if options.unit_tests:
        cores = sorted({name.split("_")[0] for name in seen})
        print("\n| Core | Mutants | Not found by unit tests |\n|---|---|---|")
        for core in cores:
            of_core = [name for name in missed if name.split("_")[0] == core]
            print(f"| {core} | {sum(1 for name in seen if name.split('_')[0] == core)} | "
                  f"{len(of_core)}: " + ", ".join(f"`{name}`" for name in sorted(of_core)) + " |")
    sys.exit(0 if found == len(names) else 1)


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    main()

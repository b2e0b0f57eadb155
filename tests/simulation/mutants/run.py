#!/usr/bin/env python3
"""Plants each bug of this folder in a copy of the tree; the simulated clusters must find it.

    ./dev simulate --mutants                      # all of them, a table at the end
    ./dev simulate --mutants calls_out_of_order   # one

A patch is one small mistake in one core. The copy is built once; each mutant costs a unit and a link. A mutant
counts as found when a seed breaks a promise that all seeds keep without it.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]


def run(command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)


def copy_tree(to):
    for name in ("CMakeLists.txt", "dev", "runtime", "objectstore", "actors", "train", "tune", "kernels", "examples",
                 "tests", "README.md", "LICENSE"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, symlinks=True)
        elif source.exists():
            shutil.copy2(source, to / name)


def main():
    parser = argparse.ArgumentParser(prog="./dev simulate --mutants")
    parser.add_argument("names", nargs="*", help="without .patch; default: all")
    parser.add_argument("--jobs", default="2")
    parser.add_argument("--seeds", type=int, default=1000, help="within which it must be found")
    parser.add_argument("--from", dest="first", type=int, default=1)
    parser.add_argument("--keep", help="build in this folder and leave it there")
    options = parser.parse_args()
    names = options.names or sorted(p.stem for p in HERE.glob("*.patch"))
    folder = pathlib.Path(options.keep or tempfile.mkdtemp(prefix="troupe-mutants-"))
    tree, build = folder / "tree", folder / "build"
    if not tree.exists():
        folder.mkdir(exist_ok=True)
        tree.mkdir()
        copy_tree(tree)
    configured = run(["cmake", "-S", str(tree), "-B", str(build), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                      "-DTROUPE_BUILD_TESTS=ON", "-DTROUPE_WITH_CUDA=OFF"])
    if configured.returncode != 0:
        sys.exit(configured.stdout)

    def compile_it():
        return run(["cmake", "--build", str(build), "--parallel", options.jobs, "--target", "cluster_simulate"])

    def simulate():
        return run([str(build / "bin" / "cluster_simulate"), "--seeds", str(options.seeds), "--from",
                    str(options.first), "--no-shrink", "--first-failure"])

    built = compile_it()
    if built.returncode != 0:
        sys.exit(built.stdout[-4000:])
    rows, missed = [], 0
    for name in names:
        patch = HERE / f"{name}.patch"
        apply = ["patch", "-p1", "--quiet", "-i", str(patch)]
        if run(apply, cwd=tree).returncode != 0:
            rows.append((name, "the patch does not apply", ""))
            missed += 1
            continue
        built = compile_it()
        if built.returncode != 0:
            rows.append((name, "does not compile", built.stdout[-300:]))
            missed += 1
        else:
            done = simulate()
            found = re.search(r"FAILED seed (\d+): ([^\n:]*)", done.stdout)
            rows.append((name, f"found by seed {found[1]}" if found else "MISSED", found[2] if found else ""))
            missed += 0 if found else 1
        run(apply + ["-R"], cwd=tree)
        print(f"{rows[-1][0]:44} {rows[-1][1]:24} {rows[-1][2]}", flush=True)
    if not options.keep:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(rows) - missed} of {len(rows)} mutants found within {options.seeds} seeds")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    main()

#!/usr/bin/env python3
"""Runs the CUDA plug-in's kernels on the host, and the tests that compare them with the CPU's.

    ./dev build kernels_test
    tests/gpu/emulator/run.py build [--filter '*Cuda*layer_norm*'] [--cuda /usr/local/cuda]
    tests/gpu/emulator/run.py build --then build/bin/golden --data tests/golden --device cuda

Translates launches of kernels/plugin into calls of emulator.hpp, compiles them with g++, and starts
kernels_test with that as plug-in and driver; --then another program (--filter= leaves kernels_test
out). Needs the toolkit's headers, no device. Products are the plain kernel's, not cuBLASLt's.
Attention takes minutes. Exit code: that of the first program that failed; 77 without the headers.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PLUGIN = HERE.parents[2] / "kernels" / "plugin"
LAUNCH = re.compile(r"(\w+_kernel(?:<[\w, ]+>)?)<<<(.*?)>>>\((.*?)\);", re.DOTALL)
HEADERS = {
    "#include <cuda_runtime.h>": '#include "emulator.hpp"',
    "#include <cub/device/device_radix_sort.cuh>": "",
}


def arguments(text):
    """The parts of a list between commas that are in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "(<") - (letter in ")>")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def call(match):
    name, (grid, team, *_) = match[1], arguments(match[2])
    meet = "false" if name == "each_kernel" else "true"
    return f"emulator::launch(dim3({grid}), dim3({team}), {meet}, [&] {{ {name}({match[3]}); }});"


def translate(folder):
    for path in PLUGIN.iterdir():
        text = path.read_text()
        for header, ours in HEADERS.items():
            text = text.replace(header, ours)
        name = path.stem + ".cpp" if path.suffix == ".cu" else path.name
        (folder / name).write_text(LAUNCH.sub(call, text))


def is_new(plugin):
    """Whether nothing that it is made of has changed since."""
    sources = [path for folder in (HERE, PLUGIN.parent) for path in folder.rglob("*") if path.is_file()]
    return plugin.exists() and plugin.stat().st_mtime > max(path.stat().st_mtime for path in sources)


def build(folder, include, cuda, launcher):
    plugin = folder / "libtroupe_cuda.so"
    if is_new(plugin):
        return plugin
    translate(folder)
    flags = ["-w", "-std=c++20", "-O1", "-fPIC", "-ffp-contract=off"]
    flags += [f"-I{HERE}", f"-I{folder}", f"-I{include}", f"-I{cuda}/include"]
    sources = [HERE / "emulator.cpp", *sorted(folder.glob("*.cpp"))]
    objects = [folder / (source.stem + ".o") for source in sources]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(subprocess.run, [*launcher, "g++", *flags, "-c", str(source), "-o", str(target)], check=True)
            for source, target in zip(sources, objects)
        ]
        for job in jobs:
            job.result()
    part = folder / "part.so"
    subprocess.run(["g++", "-shared", *map(str, objects), "-o", str(part)], check=True)
    part.rename(plugin)
    driver = folder / "libcuda.so.1"
    driver.unlink(missing_ok=True)
    driver.symlink_to(plugin)
    return plugin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--filter", default="*Cuda*")
    parser.add_argument("--cuda", default="/usr/local/cuda")
    parser.add_argument("--launcher", action="append", default=[], help="what starts the compiler, such as a cache")
    parser.add_argument("--then", nargs=argparse.REMAINDER, default=[])
    options = parser.parse_args()
    if not pathlib.Path(options.cuda, "include", "cuda_runtime.h").exists():
        print(f"emulator: the toolkit's headers are not in {options.cuda}/include", file=sys.stderr)
        return 77
    folder = options.build.resolve() / "emulator"
    folder.mkdir(exist_ok=True)
    plugin = build(folder, options.build.resolve() / "include", options.cuda, options.launcher)
    environment = os.environ | {"LD_LIBRARY_PATH": str(folder), "TROUPE_CUDA_PLUGIN": str(plugin)}
    commands = [options.then] if options.then else []
    if options.filter:
        commands.insert(0, [options.build.resolve() / "bin" / "kernels_test", f"--gtest_filter={options.filter}"])
    for command in commands:
        code = subprocess.run(command, env=environment).returncode
        if code != 0:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())

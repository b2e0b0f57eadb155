#!/usr/bin/env python3
"""Runs the CUDA plug-in's kernels on the host, and the tests that compare them with the CPU's.

    ./dev build kernels_test
    tests/gpu/emulator/run.py build [--filter '*Cuda*layer_norm*'] [--cuda /usr/local/cuda]

Translates launches of kernels/plugin into calls of emulator.hpp, compiles them with g++, and starts
kernels_test with that as plug-in and driver. Needs the toolkit's headers, no device. Products are
the plain kernel's, not cuBLASLt's. Attention takes minutes.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PLUGIN = HERE.parents[2] / "kernels" / "plugin"
LAUNCH = re.compile(r"(\w+_kernel)<<<(.*?)>>>\((.*?)\);", re.DOTALL)
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


def build(folder, include, cuda):
    command = ["g++", "-w", "-std=c++20", "-O1", "-fPIC", "-shared", "-ffp-contract=off"]
    command += [f"-I{HERE}", f"-I{folder}", f"-I{include}", f"-I{cuda}/include"]
    command += [str(HERE / "emulator.cpp"), *map(str, sorted(folder.glob("*.cpp")))]
    plugin = folder / "libtroupe_cuda.so"
    subprocess.run([*command, "-o", str(plugin)], check=True)
    driver = folder / "libcuda.so.1"
    driver.unlink(missing_ok=True)
    driver.symlink_to(plugin)
    return plugin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--filter", default="*Cuda*")
    parser.add_argument("--cuda", default="/usr/local/cuda")
    options = parser.parse_args()
    folder = options.build.resolve() / "emulator"
    folder.mkdir(exist_ok=True)
    translate(folder)
    plugin = build(folder, options.build.resolve() / "include", options.cuda)
    environment = os.environ | {"LD_LIBRARY_PATH": str(folder), "TROUPE_CUDA_PLUGIN": str(plugin)}
    test = options.build.resolve() / "bin" / "kernels_test"
    return subprocess.run([test, f"--gtest_filter={options.filter}"], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())

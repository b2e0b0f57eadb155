#!/usr/bin/env python3
"""Says which programs hold the tests that are asked for, before those programs are built.

    targets.py BUILD REGEX        prints the targets whose tests a name of the form REGEX (as for ctest -R) may mean;
                                  nothing where it cannot say
    targets.py BUILD --of FILE    prints the unit test program of a source file's room, and the gtest filter of the
                                  file's own tests

BUILD/tests/targets.txt, which CMake writes, has a line for each program: prefix of its tests | targets | folder of its
sources. The names of tests stand in the sources. A name that is made at run time may be missed, so the tests that ctest
knows from an earlier build count too.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
GTEST = re.compile(r"\b(TYPED_)?TEST(_F|_P)?\s*\(\s*(\w+)\s*,\s*(\w+)\s*\)")
INSTANCE = re.compile(r"INSTANTIATE_TEST_SUITE_P\s*\(\s*(\w+)\s*,\s*(\w+)")
PROGRAM = re.compile(r'"([a-z0-9_]+)"')


def rows(build: pathlib.Path) -> list[tuple[str, list[str], str]]:
    lines = (build / "tests" / "targets.txt").read_text().splitlines()
    return [(prefix, targets.split(), folder) for prefix, targets, folder in (line.split("|") for line in lines)]


def suites(text: str) -> set[str]:
    return {match[3] for match in GTEST.finditer(text)}


def names(prefix: str, folder: str) -> set[str]:
    """The names, or beginnings of names, of a program's tests."""
    found = {prefix}
    pattern = "*.cpp" if prefix.startswith("programs.") else "*_test.cpp"
    for path in (ROOT / folder).glob(pattern):
        text = path.read_text()
        if prefix.startswith("programs."):
            found |= {prefix + name + end for name in PROGRAM.findall(text) for end in ("", ".nodes3")}
        instances: dict[str, list[str]] = {}
        for instance, suite in INSTANCE.findall(text):
            instances.setdefault(suite, []).append(instance)
        for match in GTEST.finditer(text):
            suite, name = match[3], match[4]
            found.add(f"{prefix}{suite}.{name}")
            found.add(f"{prefix}{suite}/0.{name}")
            found |= {f"{prefix}{instance}/{suite}.{name}/0" for instance in instances.get(suite, [])}
    return found


def known(build: pathlib.Path, regex: str) -> list[str]:
    """The tests that ctest knows from what was built before."""
    shown = subprocess.run(["ctest", "--test-dir", build, "-N", "-R", regex], capture_output=True, text=True)
    return re.findall(r"^ *Test +#\d+: (\S+)", shown.stdout, re.MULTILINE)


def targets_of(build: pathlib.Path, regex: str) -> list[str]:
    pattern = re.compile(regex)
    table = rows(build)
    wanted: dict[str, None] = {}
    for prefix, targets, folder in table:
        if any(pattern.search(name) for name in (names(prefix, folder) if folder else {prefix})):
            wanted.update(dict.fromkeys(targets))
    for name in known(build, regex):
        fitting = [row for row in table if name.startswith(row[0])]
        if fitting:
            wanted.update(dict.fromkeys(max(fitting, key=lambda row: len(row[0]))[1]))
    return [] if "all" in wanted else list(wanted)


def of_file(build: pathlib.Path, file: str) -> tuple[str, str]:
    path = pathlib.PurePosixPath(file)
    folders = {folder: targets[0] for _, targets, folder in rows(build) if folder}
    inside = path if path.parts[0] == "tests" else pathlib.PurePosixPath("tests", path)
    places = [str(place) for place in inside.parents if str(place) in folders]
    if not places and path.parts[0] == "runtime":  # the top of runtime/ and detail/ are the front
        places = ["tests/runtime/front"]
    if not places:
        sys.exit(f"targets: no unit tests belong to {file}; those of ./dev test -R NAME may")
    stem = path.stem.removesuffix("_test")
    own = ROOT / places[0] / f"{stem}_test.cpp"
    filters = sorted(suites(own.read_text())) if own.exists() else []
    return folders[places[0]], ":".join(f"*{suite}*.*" for suite in filters) or "*"


def main() -> int:
    if len(sys.argv) == 4 and sys.argv[2] == "--of":
        print(*of_file(pathlib.Path(sys.argv[1]), sys.argv[3]))
    elif len(sys.argv) == 3:
        print(*targets_of(pathlib.Path(sys.argv[1]), sys.argv[2]), sep="\n", end="")
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

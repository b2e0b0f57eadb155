#!/usr/bin/env python3
"""Runs clang-tidy on files of the tree and remembers which passed. `./dev check` calls it.

    cd TREE && tests/checks/tidy.py --build FOLDER [--memory FOLDER] [--jobs N] [--minutes M] [--tool NAME]
                                    [--left FILE] FILE...

The files are looked at in the order given. FOLDER/compile_commands.json has their commands. Files without one are skipped.
A file with several different commands is looked at once for each. No clang-tidy begins after M minutes. The names of the
files left go to --left. The exit code is 1 when clang-tidy objects to a file or crashes, and 0 otherwise.

A pass has a record in the memory folder. The record's name is a hash of the tool, of every .clang-tidy, of the command and
of this script. The record holds the hash of each file that the compiler read, the system's headers included. It is used
when all of them have these hashes now. Paths below the tree and the build folder are relative, so other clones share it.
Only a run that ended with 0, without output, is recorded. A file that changed since this script began prevents that, too.
Anything wrong with the folder or a record costs time and never the result.

A new file of the tree may come earlier in the include path, or be what a __has_include looks for. So a record also lists
the files of the tree that have the name of a file read or looked for. New files of the system are not covered, except
another version of GCC. A __has_include of a macro is not covered, nor are configuration files of clang's driver.
"""
import argparse
import collections
import contextlib
import functools
import glob
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib

BEGIN = time.time_ns() - 20_000_000  # the clock of a file system lags by a tick
DAY = 24 * 60 * 60
KEPT_DAYS, KEPT, TRIED = 60, 8000, 8  # limits of all records; how many records of one name are compared
QUIET = ("unknown-warning-option", "ignored-gch", "deprecated-declarations")
LOOKED_FOR = re.compile(rb'__has_include(?:_next)?\s*\(\s*[<"]([^>"\n]+)')
NOISE = re.compile(r"^\d+ warnings? (generated|treated).*\n?", re.M)
Unit = collections.namedtuple("Unit", "file entry command")  # the command is in the form that all clones share


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


class Tree:
    """The files that the compiler may read, each read once. "{root}" and "{build}" stand for the folders in their names."""

    def __init__(self, root: str, build: str):
        places = sorted([(root, "{root}"), (build, "{build}")], key=lambda place: -len(place[0]))
        self.places = [(re.compile(re.escape(path) + r"(?![\w.-])"), path, mark) for path, mark in places]
        self.shared, self.content = functools.cache(self.shared), functools.cache(self.content)
        self.twins: dict[str, list[str]] = collections.defaultdict(list)
        self.configs = [path for above in pathlib.Path(root).parents if os.path.exists(path := f"{above}/.clang-tidy")]
        for top in (root, f"{build}/include"):
            for folder, below, files in os.walk(top):
                below[:] = [name for name in below if not name.startswith(".") and f"{folder}/{name}" != build
                            and not os.path.exists(f"{folder}/{name}/CMakeCache.txt")]
                for name in (name for name in files if not name.endswith(".cpp")):
                    self.twins[name].append(self.shared(f"{folder}/{name}"))
                self.configs += [f"{folder}/.clang-tidy"] if ".clang-tidy" in files else []

    def shared(self, text: str) -> str:
        """Replaces the folders in a path or a command."""
        for pattern, _, mark in self.places:
            text = pattern.sub(lambda _, mark=mark: mark, text)
        return text

    def content(self, name: str) -> tuple[str, frozenset[str]]:
        """Returns a file's hash ("" if it cannot be read), its last name, and the last names that it looks for."""
        path = next((path + name[len(mark):] for _, path, mark in self.places if name.startswith(mark + "/")), name)
        try:
            data = pathlib.Path(path).read_bytes()
        except OSError:
            return "", frozenset()
        names = [name, *map(os.fsdecode, LOOKED_FOR.findall(data))]
        return digest(data), frozenset(map(os.path.basename, names))

    def twins_of(self, names) -> list[str]:
        wanted = frozenset().union(*(self.content(name)[1] for name in names))
        return sorted(twin for name in wanted for twin in self.twins.get(name, ()))

    def units(self, build: str, root: str, files: list[str]) -> list[Unit]:
        entries = collections.defaultdict(list)
        for entry in json.loads(pathlib.Path(build, "compile_commands.json").read_text()):
            entries[os.path.normpath(os.path.join(entry["directory"], entry["file"]))].append(entry)
        units = {}
        for file in files:
            for entry in entries.get(f"{root}/{file}", ()):
                command = self.shared(entry.get("command") or shlex.join(entry["arguments"]))
                command = re.sub(r" -o (\\.|\S)+", "", command)  # clang-tidy writes no object
                units.setdefault((file, command), Unit(file, entry, command))
        return list(units.values())


class Memory:
    """The records of passes. A folder of no use makes it remember nothing."""

    def __init__(self, folder: str, tree: Tree, root: str, build: str, tool: str):
        self.folder, self.tree, self.usable, self.trouble, self.hits = folder, tree, False, "", set()
        self.records: dict[str, list[tuple[float, str]]] = collections.defaultdict(list)
        try:
            os.makedirs(folder, exist_ok=True)
            if os.stat(folder).st_uid not in (0, os.geteuid()):
                raise PermissionError(f"{folder} belongs to another user")
            with os.scandir(folder) as entries:
                for entry in entries:
                    self.records[entry.name.split(".")[0]].append((entry.stat().st_mtime, entry.path))
            binary = os.path.realpath(tool)
            libraries = subprocess.run(["ldd", binary], capture_output=True, text=True).stdout
            headers = glob.glob(f"{os.path.dirname(binary)}/../lib/clang/*/include/**/*.h", recursive=True)
            self.fixed = [binary, *re.findall(r"=> (\S*(?:clang|LLVM)\S*)", libraries), *sorted(headers), *tree.configs]
            about = [[tree.shared(file), digest(pathlib.Path(file).read_bytes())] for file in (*self.fixed, __file__)]
            about += [sorted(glob.glob("/usr/lib/gcc*/*/*")), os.environ.get("CPATH"), os.environ.get("CPLUS_INCLUDE_PATH")]
            # HeaderFilterRegex sees the whole path of a header, so the clone's own path may matter.
            about.append(sorted({*root.split("/")} & {*os.listdir(root)}))
            self.about = digest(json.dumps(about).encode())
            self.fixed.append(f"{build}/compile_commands.json")
            self.usable = True
        except OSError as error:
            self.say(error)

    def say(self, error: Exception) -> None:
        if not self.trouble:
            print(f"clang-tidy: not every pass is remembered: {error}", file=sys.stderr, flush=True)
        self.trouble = str(error)

    def name(self, unit: Unit) -> str:
        return digest(json.dumps([self.about, unit.file, self.tree.shared(unit.entry["directory"]), unit.command]).encode())

    def knows(self, unit: Unit) -> bool:
        """Returns whether the unit passed when all its files were as they are now."""
        for used, path in sorted(self.records.get(self.name(unit), ()), reverse=True)[:TRIED] if self.usable else ():
            with contextlib.suppress(OSError, ValueError, zlib.error):
                check, _, packed = pathlib.Path(path).read_bytes().partition(b"\n")
                if check != digest(packed).encode():
                    continue
                record = json.loads(zlib.decompress(packed))
                if all(self.tree.content(name)[0] == then for name, then in record["files"].items()) and \
                        self.tree.twins_of(record["files"]) == record["twins"]:
                    self.hits.add(path)
                    if time.time() - used > DAY:
                        with contextlib.suppress(OSError):
                            os.utime(path)
                    return True
        return False

    def add(self, unit: Unit, dependencies: pathlib.Path) -> None:
        """Records a pass, unless a file that matters changed meanwhile or is not known."""
        if not self.usable or re.search(r"\s@|-include-pch", unit.command):
            return
        try:
            words = re.findall(r"(?:\\[ #]|\\(?!\n)|[^\s\\])+", dependencies.read_text())[1:]
            words = [re.sub(r"\\([ #])", r"\1", word).replace("$$", "$") for word in words]
            paths = [os.path.join(unit.entry["directory"], word) for word in words]
            files = {name: self.tree.content(name)[0] for name in map(self.tree.shared, paths)}
            if any(os.stat(path).st_ctime_ns >= BEGIN for path in paths + self.fixed) or not all(files.values()) or \
                    "{root}/" + unit.file not in files:
                return
            packed = zlib.compress(json.dumps({"files": files, "twins": self.tree.twins_of(files)}).encode(), 1)
            draft = pathlib.Path(self.folder, f"draft.{os.getpid()}")
            try:
                draft.write_bytes(digest(packed).encode() + b"\n" + packed)
                draft.rename(f"{self.folder}/{self.name(unit)}.{digest(packed)[:8]}")
            finally:
                draft.unlink(missing_ok=True)
        except (OSError, ValueError) as error:
            self.say(error)

    def forget_old(self) -> None:
        """Deletes the records that were not used for long, and those that are too many."""
        records = sorted((record for same in self.records.values() for record in same), reverse=True)
        with contextlib.suppress(OSError):
            for place, (used, path) in enumerate(records):
                if path not in self.hits and (place >= KEPT or time.time() - used > KEPT_DAYS * DAY):
                    os.unlink(path)


class Runs:
    """The clang-tidy processes."""

    def __init__(self, tool: str, memory: Memory | None, work: str):
        self.tool, self.memory, self.work, self.running, self.failed = tool, memory, work, {}, False

    def start(self, unit: Unit) -> None:
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.work))
        (folder / "compile_commands.json").write_text(json.dumps([unit.entry]))
        flags = ["-p", str(folder), "--quiet", *(f"--extra-arg=-Wno-{name}" for name in QUIET)]
        flags += [f"--extra-arg=-Wp,-MD,{folder}/read"] if self.memory else []
        with open(folder / "out", "wb") as out, open(folder / "err", "wb") as err:
            process = subprocess.Popen([self.tool, *flags, unit.file], stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        self.running[process.pid] = process, unit, folder

    def finish_one(self) -> None:
        pid, status = os.wait()
        process, unit, folder = self.running.pop(pid)
        process.returncode = code = os.waitstatus_to_exitcode(status)
        out = (folder / "out").read_text(errors="replace")
        err = NOISE.sub("", (folder / "err").read_text(errors="replace"))
        print(out, end="", flush=True)
        print(err, end="", file=sys.stderr, flush=True)
        if code != 0:
            print(f"clang-tidy: {unit.file}: {'exit code' if code > 0 else 'ended by signal'} {abs(code)}", flush=True)
            self.failed = True
        elif self.memory and not out and not err:
            self.memory.add(unit, folder / "read")
        shutil.rmtree(folder)

    def end(self) -> None:
        for process, *_ in self.running.values():
            process.kill()
            process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--memory")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--tool", default="clang-tidy-19")
    parser.add_argument("--left", default=os.devnull)
    parser.add_argument("files", nargs="*")
    given = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    tool, root, build = shutil.which(given.tool), os.getcwd(), os.path.abspath(given.build)
    if not tool:
        sys.exit(f"clang-tidy: there is no {given.tool}")
    tree = Tree(root, build)
    memory = Memory(given.memory, tree, root, build, tool) if given.memory else None
    units = tree.units(build, root, given.files)
    waiting = collections.deque(unit for unit in units if not (memory and memory.knows(unit)))
    missed = len({unit.file for unit in waiting})
    with tempfile.TemporaryDirectory() as work:
        runs = Runs(tool, memory, work)
        try:
            while runs.running or (waiting and in_time(given.minutes)):
                while waiting and len(runs.running) < given.jobs and in_time(given.minutes):
                    runs.start(waiting.popleft())
                if runs.running:
                    runs.finish_one()
        finally:
            runs.end()
    if memory:
        memory.forget_old()
    left = list(dict.fromkeys(unit.file for unit in waiting))
    pathlib.Path(given.left).write_text("".join(f"{file}\n" for file in left))
    print(f"clang-tidy: {missed - len(left)} files looked at, {len({unit.file for unit in units}) - missed} passed before, "
          f"{len(left)} not looked at", flush=True)
    return int(runs.failed)


def in_time(minutes: float) -> bool:
    return (time.time_ns() - BEGIN) / 60e9 < minutes


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Runs tidy.py on a small tree in a temporary folder.

Most tests use a fake tool. It reads the files that #include "FILE" lines name, and words in a unit say what else it does.
Each start of a tool adds a line to a file, so the tests see whether a pass was remembered. One test needs clang-tidy-19.
Where that is missing, the exit code is 77 if the others pass.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import zlib

REAL = shutil.which("clang-tidy-19")
SCRIPT = pathlib.Path(__file__).with_name("tidy.py")
FAKE = r"""#!/usr/bin/env bash
# A fake clang-tidy.
echo >>"$STARTS"
unit=${@: -1}
reads=
for word in "$@"; do case $word in *-MD,*) reads=${word#*-MD,} ;; esac; done
files=$(sed -n "s,^#include \"\\([^/].*\\)\",$PWD/\\1,p; s,^#include \"\\(/.*\\)\",\\1,p" "$unit")
[[ -z $reads ]] || echo "unit.o: $PWD/$unit" $files >"$reads"
echo '7 warnings generated.' >&2
case $(<"$unit") in
  *OBJECT*) echo "$unit:1:1: error: bad [check]"; exit 1 ;;
  *WARN*) echo "$unit:1:1: warning: not good [check]" ;;
  *CRASH*) kill -SEGV $$ ;;
  *EDIT*) for file in $files; do echo "// $EPOCHREALTIME" >>"$file"; done ;;
  *SLEEP*) echo $$ >"$STARTS" && exec sleep 30 ;;
esac
exit 0
"""


class Tidy(unittest.TestCase):
    def setUp(self) -> None:
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.work = pathlib.Path(os.path.realpath(work.name))
        self.memory = self.work / "memory"
        self.system = self.work / "system" / "system.hpp"
        self.write(self.system, "inline int two() { return 2; }\n")
        self.tool = self.work / "tool"
        self.write(self.tool, FAKE)
        self.tool.chmod(0o755)
        self.root = self.plant("tree")

    def plant(self, name: str) -> pathlib.Path:
        root = self.work / name
        self.write(root / ".clang-tidy", "Checks: '-*,modernize-use-nullptr'\nWarningsAsErrors: '*'\nHeaderFilterRegex: '.*'\n")
        self.write(root / "room/one.hpp", "inline int one() { return 1; }\n")
        (root / "build/include").mkdir(parents=True)
        (root / "build/include/room").symlink_to(root / "room")
        self.unit(root, f'#include "build/include/room/one.hpp"\n#include "{self.system}"\n')
        return root

    def write(self, path: pathlib.Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        time.sleep(0.03)  # tidy.py does not trust files as new as itself

    def unit(self, root: pathlib.Path, text: str, flags: str = "", names: tuple[str, ...] = ("room/unit.cpp",)) -> None:
        entries = []
        for name in names:
            command = f"g++ -I{root}/build/include -isystem {self.system.parent} {flags} -o {name}.o -c {root}/{name}"
            entries.append({"directory": f"{root}/build", "command": command, "file": f"{root}/{name}"})
            self.write(root / name, text)
        self.write(root / "build/compile_commands.json", json.dumps(entries))

    def command(self, *more: str, files: tuple[str, ...] = ("room/unit.cpp",), root: pathlib.Path | None = None) -> dict:
        command = [sys.executable, SCRIPT, "--build", (root or self.root) / "build", "--tool", self.tool, *more]
        environment = os.environ | {"STARTS": str(self.work / "starts")}
        return {"args": command + ["--memory", self.memory] * ("--memory" not in more) + [*files], "cwd": root or self.root,
                "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": environment}

    def run_tidy(self, starts: int, *more: str, code: int = 0, **where) -> str:
        """Expects that so many clang-tidy start, and this exit code. Returns what is printed."""
        log = self.work / "starts"
        log.write_text("")
        done = subprocess.run(**self.command(*more, **where))
        self.assertEqual(done.returncode, code, done.stdout)
        self.assertEqual(len(log.read_text()), starts, done.stdout)
        return done.stdout

    def test_a_pass_is_remembered(self) -> None:
        self.assertEqual(self.run_tidy(1), "clang-tidy: 1 files looked at, 0 passed before, 0 not looked at\n")
        self.assertEqual(self.run_tidy(0), "clang-tidy: 0 files looked at, 1 passed before, 0 not looked at\n")
        self.run_tidy(0, root=self.plant("another/tree"))

    def test_each_change_is_seen_and_each_state_remembered(self) -> None:
        self.run_tidy(1)
        for path in (self.root / "room/one.hpp", self.system, self.root / ".clang-tidy", self.tool):
            with self.subTest(path=path.name):
                before = path.read_text()
                self.write(path, before + "# another\n")
                self.run_tidy(1)
                self.run_tidy(0)
                self.write(path, before)
                self.run_tidy(0)
        self.unit(self.root, (self.root / "room/unit.cpp").read_text(), flags="-DX")
        self.run_tidy(1)
        self.write(self.root / "room/below/.clang-tidy", "InheritParentConfig: true\n")
        self.run_tidy(1)

    def test_a_new_file_that_an_include_could_mean_is_seen(self) -> None:
        self.write(self.system, '#if __has_include( <room/maybe.hpp>)\n#endif\n')
        self.run_tidy(1)
        self.write(self.root / "room/other.hpp", "")
        self.run_tidy(0)
        self.write(self.root / "tests/one.hpp", "")
        self.run_tidy(1)
        self.write(self.root / "room/maybe.hpp", "")
        self.run_tidy(1)
        self.run_tidy(0)

    def test_only_a_silent_pass_is_remembered(self) -> None:
        for word, code, says in (("OBJECT", 1, "error: bad"), ("WARN", 0, "warning: not good"), ("CRASH", 1, "signal 11")):
            with self.subTest(word=word):
                self.unit(self.root, f"// {word}\n")
                for _ in range(2):
                    self.assertIn(says, self.run_tidy(1, code=code))
        self.assertEqual(list(self.memory.iterdir()), [])

    def test_a_file_that_changes_meanwhile_prevents_a_record(self) -> None:
        self.unit(self.root, '#include "room/one.hpp"\n// EDIT\n')
        self.run_tidy(1)
        self.run_tidy(1)

    def test_a_damaged_record_is_a_miss(self) -> None:
        self.run_tidy(1)
        record, = self.memory.iterdir()
        good = record.read_bytes()
        forged = b"?\n" + zlib.compress(b'{"files": {}, "twins": []}')
        for bad in (b"", good[:-5], good[:60] + b"?" + good[61:], b"\xff\n{}", forged):
            record.write_bytes(bad)
            self.run_tidy(1)
            self.assertEqual(record.read_bytes(), good)
        self.run_tidy(0)

    def test_a_memory_of_no_use_costs_time_alone(self) -> None:
        file = self.work / "file"
        self.write(file, "")
        for folder in (file, file / "below", "/proc/none"):
            for _ in range(2):
                self.assertIn("not every pass is remembered", self.run_tidy(1, "--memory", str(folder)))
        self.memory.mkdir(mode=0o555)
        self.run_tidy(1)
        if os.geteuid() != 0:
            self.run_tidy(1)
        else:
            os.chown(self.memory, 1, 1)
            self.assertIn("another user", self.run_tidy(1))

    def test_old_records_are_deleted(self) -> None:
        self.run_tidy(1)
        record, = self.memory.iterdir()
        stranger = self.memory / "stranger"
        stranger.write_text("")
        for path in (record, stranger):
            os.utime(path, (1, 1))
        self.run_tidy(0)
        self.assertEqual(list(self.memory.iterdir()), [record])
        self.assertLess(time.time() - record.stat().st_mtime, 60)

    def test_time_order_and_files_without_a_command(self) -> None:
        names = ("b.cpp", "a.cpp")
        self.unit(self.root, "", names=names)
        left = self.work / "left"
        self.run_tidy(1, files=("a.cpp",))
        says = self.run_tidy(0, "--minutes", "0", "--left", str(left), files=("none.cpp", *names))
        self.assertEqual(says, "clang-tidy: 0 files looked at, 1 passed before, 1 not looked at\n")
        self.assertEqual(left.read_text(), "b.cpp\n")
        self.run_tidy(1, "--minutes", "1", "--jobs", "2", "--left", str(left), files=names)
        self.assertEqual(left.read_text(), "")

    def test_a_file_is_looked_at_once_for_each_different_command(self) -> None:
        commands = self.root / "build/compile_commands.json"
        entry, = json.loads(commands.read_text())
        others = [entry | {"command": entry["command"].replace("-o ", text)} for text in ("-DX -o ", "-o other/")]
        self.write(commands, json.dumps([entry, *others]))
        self.assertIn("1 files looked at", self.run_tidy(2))
        self.assertIn("1 passed before", self.run_tidy(0))

    def test_a_signal_ends_the_children(self) -> None:
        self.unit(self.root, "// SLEEP\n")
        with subprocess.Popen(**self.command()) as process:
            log = self.work / "starts"
            while not log.exists() or not log.read_text().strip():
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=10)
        self.assertEqual(process.returncode, 130)
        self.assertRaises(ProcessLookupError, os.kill, int(log.read_text()), 0)

    @unittest.skipUnless(REAL, "clang-tidy-19 is not installed")
    def test_the_real_tool(self) -> None:
        self.write(self.tool, f'#!/usr/bin/env bash\necho >>"$STARTS"\nexec {REAL} "$@"\n')
        source = '#include "room/one.hpp"\n#include <system.hpp>\nint main() { return one() + two() + VALUE; }\n'
        self.unit(self.root, source, flags="-DVALUE=0")
        self.assertNotIn("generated", self.run_tidy(1))
        self.run_tidy(0)
        self.write(self.system, "inline int two() { return 3; }\n")
        self.run_tidy(1)
        self.write(self.root / "room/one.hpp", "inline int one() { return 1; }\nint* const none = 0;\n")
        for _ in range(2):
            self.assertIn("use nullptr", self.run_tidy(1, code=1))
        self.write(self.root / "room/one.hpp", "inline int one() { return 1; }\n")
        self.run_tidy(0)
        copy = self.plant("copy")
        self.unit(copy, source, flags="-DVALUE=0")
        self.run_tidy(0, root=copy)


if __name__ == "__main__":
    passed = unittest.main(exit=False).result.wasSuccessful()
    sys.exit(1 if not passed else 0 if REAL else 77)

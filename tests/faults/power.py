"""A disk that loses power: what it may hold afterwards, from a trace of what was asked of it.

strace writes down every write, truncation, sync, creation and removal, bytes
included.  Replaying the first n of them gives what a disk was told up to a
moment; of that, only what was synced is certain to be there after a power loss.
Of the rest any sector of 512 bytes may have been written or not, a truncation
may have happened or not, and of the changes to a folder any first few.
"""

import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.strace import ROOT, environment

SECTOR_BYTES = 512

CALLS = "openat,pwrite64,write,writev,ftruncate,fdatasync,fsync,?unlink,unlinkat"

_LINE = re.compile(r"(\d+) +(.*)")
_RESUMED = re.compile(r"<\.\.\. \w+ resumed>(.*)")
_CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+)(.*)", re.DOTALL)
_LAST_NUMBER = re.compile(r", (\d+)$")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_DESCRIPTOR = re.compile(r"\d+<((?:\\x[0-9a-f]{2})*)>")


class Asked(NamedTuple):
    """One thing a process asked of its disk, or said.

    *what* is create, write, truncate, sync, remove or say; *name* the file's, or
    "" for the folder itself.
    """

    what: str
    name: str = ""
    offset: int = 0
    data: bytes = b""


def traced(job: dict[str, Any], log: Path) -> list[Asked]:
    """Run a job in a child of its own and return all it asked of the disk, in order."""
    command = ["strace", "-f", "-qq", "-y", "-xx", "-s", "10000000", "-o", str(log)]
    command += ["-e", "signal=none", "-e", f"trace={CALLS}"]
    command += [sys.executable, "-m", "tests.faults.child"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(),
        input=json.dumps(job).encode() + b"\n",
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == {"end": 0}, done.stdout
    return list(_asked(log, Path(job["path"]).parent))


def _asked(log: Path, folder: Path) -> Iterator[Asked]:
    for call, arguments, result, rest in _calls(log):
        opened = _DESCRIPTOR.match(arguments) if call != "openat" else _DESCRIPTOR.search(rest)
        strings = [_bytes(string) for string in _STRING.findall(arguments)]
        if result < 0:
            continue
        if call == "writev" and arguments.startswith("1<"):
            yield Asked("say", data=strings[0])
            continue
        path = Path((_bytes(opened[1]) if opened else strings[0]).decode())
        name = "" if path == folder else path.name
        # The index of the log is shared memory, and made anew after a power loss.
        if folder in (path, path.parent) and not name.endswith("-shm"):
            yield from _changes(call, name, arguments, strings, result)


def _changes(
    call: str, name: str, arguments: str, strings: list[bytes], result: int
) -> Iterator[Asked]:
    """Yield what one call changes about a file of the folder, or the folder itself."""
    last = _LAST_NUMBER.search(arguments)
    match call:
        case "openat" if "O_CREAT" in arguments:
            yield Asked("create", name)
        case "pwrite64":
            assert last
            yield Asked("write", name, int(last[1]), strings[0][:result])
        case "write":
            # To a log of events, which is only ever appended to.
            yield Asked("write", name, -1, strings[0][:result])
        case "ftruncate":
            assert last
            yield Asked("truncate", name, int(last[1]))
        case "fsync" | "fdatasync":
            yield Asked("sync", name)
        case "unlink" | "unlinkat":
            yield Asked("remove", name)


def _calls(log: Path) -> Iterator[tuple[str, str, int, str]]:
    """Yield calls in the order in which they ended: name, arguments, result, what follows."""
    unfinished: dict[str, str] = {}
    for line in log.read_text("ascii").splitlines():
        match = _LINE.match(line)
        assert match, line
        pid, text = match.groups()
        if text.endswith("<unfinished ...>"):
            unfinished[pid] = text.removesuffix("<unfinished ...>")
            continue
        if resumed := _RESUMED.match(text):
            text = unfinished.pop(pid) + resumed[1]
        if call := _CALL.match(text):
            yield call[1], call[2], int(call[3]), call[4]


def _bytes(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("\\x", ""))


@dataclass(slots=True, eq=False)
class _File:
    """What is certainly there, and what was asked since the last sync."""

    certain: bytearray = field(default_factory=bytearray)
    asked: list[Asked] = field(default_factory=list)

    def content(self) -> bytearray:
        content = bytearray(self.certain)
        for asked in self.asked:
            _do(content, asked)
        return content

    def sync(self) -> None:
        self.certain, self.asked = self.content(), []

    def after_power_loss(self, chance: random.Random, share: float) -> bytes:
        content = bytearray(self.certain)
        for asked in self.asked:
            if asked.what == "truncate":
                if chance.random() < share:
                    _do(content, asked)
                continue
            for start in range(0, len(asked.data), SECTOR_BYTES):
                if chance.random() < share:
                    sector = asked.data[start : start + SECTOR_BYTES]
                    _do(content, asked._replace(offset=asked.offset + start, data=sector))
        return bytes(content)


def _do(content: bytearray, asked: Asked) -> None:
    if asked.what == "truncate":
        content[asked.offset :] = bytes(max(0, asked.offset - len(content)))
        return
    end = asked.offset + len(asked.data)
    content.extend(bytes(max(0, end - len(content))))
    content[asked.offset : end] = asked.data


class Disk:
    """A folder on a disk."""

    def __init__(self, folder: Path) -> None:
        self.said: list[dict[str, Any]] = []
        self._names = {f.name: _File(bytearray(f.read_bytes())) for f in folder.iterdir()}
        self._certain_names = dict(self._names)
        self._asked_names: list[tuple[str, _File | None]] = []

    def ask(self, asked: Asked) -> None:
        """Do one thing; it is certain to last once what it is about was synced."""
        what, name = asked.what, asked.name
        if what == "say":
            self.said.append(json.loads(asked.data))
        elif what == "create":
            if name not in self._names:
                self._name(name, _File())
        elif what == "remove":
            self._name(name, None)
        elif what == "sync" and name:
            self._names[name].sync()
        elif what == "sync":
            self._certain_names, self._asked_names = dict(self._names), []
        else:
            file = self._names[name]
            if asked.offset < 0:
                asked = asked._replace(offset=len(file.content()))
            file.asked.append(asked)

    def _name(self, name: str, file: _File | None) -> None:
        self._asked_names.append((name, file))
        _rename(self._names, name, file)

    def lose_power(self, folder: Path, chance: random.Random, share: float) -> None:
        """Write what may be left into an empty folder; *share* of what was not synced is."""
        names = dict(self._certain_names)
        kept = round(share * len(self._asked_names) * 2 * chance.random())
        for name, file in self._asked_names[:kept]:
            _rename(names, name, file)
        for name, file in names.items():
            (folder / name).write_bytes(file.after_power_loss(chance, share))


def _rename(names: dict[str, _File], name: str, file: _File | None) -> None:
    if file is None:
        names.pop(name, None)
    else:
        names[name] = file

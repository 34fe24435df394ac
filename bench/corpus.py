"""Real English sentences that any machine with the dev install already has.

A benchmark of retrieval needs text that none of us wrote or chose.  The
standard library and the packages pinned in requirements/dev.txt carry about a
hundred thousand sentences: docstrings, comments, messages, manuals.  Only
pinned packages are read, so that what else happens to be installed beside them
changes nothing.

The order is that of the sha256 of each sentence with case and blanks
evened out: the same on every machine, and a shuffle, so that any prefix is a
fair sample of the whole and held-out queries come from the same distribution.
"""

import ast
import hashlib
import json
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from bench.machine import CACHE, ROOT

SENTENCE_CHARS_MIN = 50
SENTENCE_CHARS_MAX = 400
_WORDS_MIN = 8
_LETTERS_SHARE = 0.75

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)
_PARAGRAPH = re.compile(r"\n[^\w\n]*\n")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`'\"(*])")
_TEXT_SUFFIXES = {".md", ".rst", ".txt"}
_TEXT_NAMES = {"COPYING", "LICENSE", "METADATA", "README"}


def sentences() -> list[str]:
    """Return all sentences, deduplicated, in their one order; kept in the cache."""
    sources = [("stdlib", _stdlib_files()), *((n, _package_files(n)) for n in _pinned())]
    versions = [sys.version, *(f"{name} {_version(name)}" for name, _ in sources[1:])]
    code = Path(__file__).read_bytes()
    key = hashlib.sha256(code + "\n".join(versions).encode()).hexdigest()[:16]
    cached = CACHE / f"sentences-{key}.json"
    if cached.exists():
        found: list[str] = json.loads(cached.read_text("utf-8"))
        return found
    by_digest: dict[bytes, str] = {}
    for _, files in sources:
        for sentence in _read(files):
            even = " ".join(sentence.casefold().split())
            by_digest.setdefault(hashlib.sha256(even.encode()).digest(), sentence)
    ordered = [by_digest[digest] for digest in sorted(by_digest)]
    CACHE.mkdir(parents=True, exist_ok=True)
    cached.write_text(json.dumps(ordered), "utf-8")
    return ordered


def _pinned() -> list[str]:
    pins = (ROOT / "requirements" / "dev.txt").read_text("utf-8")
    return sorted({*_PIN.findall(pins), "pip", "setuptools"})


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "absent"


def _stdlib_files() -> Iterator[Path]:
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*")):
        if "site-packages" not in path.parts:
            yield path


def _package_files(name: str) -> Iterator[Path]:
    try:
        files = metadata.distribution(name).files or []
    except metadata.PackageNotFoundError:
        return
    for file in sorted(files, key=str):
        yield Path(str(file.locate()))


def _read(files: Iterable[Path]) -> Iterator[str]:
    for path in files:
        is_code = path.suffix in {".py", ".pyi"}
        is_text = path.suffix in _TEXT_SUFFIXES or path.stem in _TEXT_NAMES
        if not (is_code or is_text) or not path.is_file():
            continue
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        for prose in _prose(text) if is_code else [text]:
            yield from _sentences(prose)


def _prose(source: str) -> Iterator[str]:
    """Yield the docstrings, other strings and comments of a module."""
    with warnings.catch_warnings():
        # Test files of the standard library hold escapes that Python warns about.
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    block: list[str] = []
    for line in source.split("\n"):
        stripped = line.strip()
        if stripped.startswith("#"):
            block.append(stripped.strip("#!: "))
        elif block:
            yield "\n".join(block)
            block = []


def _sentences(prose: str) -> Iterator[str]:
    """Yield sentences; a short one is joined with what follows it in its paragraph."""
    for paragraph in _PARAGRAPH.split(prose):
        text = ""
        for part in _SENTENCE_END.split(" ".join(paragraph.split())):
            text = f"{text} {part}".strip()
            if len(text) < SENTENCE_CHARS_MIN:
                continue
            if len(text) <= SENTENCE_CHARS_MAX and _is_english(text):
                yield text
            text = ""


def _is_english(text: str) -> bool:
    """Tell prose from code and tables, roughly."""
    if not text.isprintable():
        return False
    letters = sum(c.isascii() and (c.isalpha() or c == " ") for c in text)
    return letters >= _LETTERS_SHARE * len(text) and len(text.split()) >= _WORDS_MIN

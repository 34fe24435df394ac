"""Rules about the source tree itself; each failure says how to mend it.

The layers are checked by import-linter (`make lint`).  What it cannot see stands here: sizes,
names, reads of the environment, SQL, calls that do I/O without an import, pins and the wheel.
"""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import amv

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "amv"
CORE = PACKAGE / "memory"
STORES = PACKAGE / "stores"

LINES_PER_MODULE_MAX = 500
LINES_PER_FUNCTION_MAX = 70
NAMES_THAT_SAY_NOTHING = {"utils.py", "helpers.py", "manager.py", "base.py"}
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
SQL = re.compile(
    r"\b(SELECT\s.*\bFROM|INSERT\s+(OR\s+\w+\s+)?INTO|REPLACE\s+INTO|UPDATE\s+\S+\s+SET"
    r"|DELETE\s+FROM|(CREATE|DROP|ALTER)\s+(\w+\s+)?(TABLE|INDEX|VIEW|TRIGGER)"
    r"|PRAGMA\s+\w+|BEGIN\s+(IMMEDIATE|EXCLUSIVE)|SAVEPOINT\s+\w+)\b",
    re.DOTALL,
)
ADDRESS = re.compile(
    r"://|\bfile:[./]|^\s*-(-index-url|-extra-index-url|i\b|-find-links|f\b)|\s@\s"
)
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;]+)", re.MULTILINE)

Finder = Callable[[ast.Module], Iterator[tuple[int, str]]]


def modules(*folders: Path) -> list[Path]:
    """Return the Python files below *folders*, in one order everywhere, but none of a cache."""
    paths = (path for folder in folders for path in folder.rglob("*.py"))
    return sorted(path for path in paths if ".cache" not in path.relative_to(ROOT).parts)


def places(find: Finder, paths: list[Path]) -> list[str]:
    """Return what *find* yields in *paths*, each as `file:line what`."""
    return [
        f"{path.relative_to(ROOT)}:{line} {what}"
        for path in paths
        for line, what in find(ast.parse(path.read_text("utf-8")))
    ]


def long_functions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > LINES_PER_FUNCTION_MAX:
            yield node.lineno, f"{node.name} ({lines} lines)"


def environment_reads(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr=name) if name in ENVIRONMENT:
                yield node.lineno, f"os.{name}"
            case ast.ImportFrom(module="os", names=names):
                for alias in names:
                    if alias.name in ENVIRONMENT:
                        yield node.lineno, f"from os import {alias.name}"
            case ast.keyword(arg="envvar"):
                yield node.lineno, "envvar="


def sql_strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in prose and SQL.search(text):
                yield node.lineno, repr(text[:60])


def hidden_effects(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="open" | "print" | "input" | "breakpoint" as name)):
                yield node.lineno, f"{name}()"
            case ast.Attribute(
                value=ast.Name(id="datetime" | "date") | ast.Attribute(attr="datetime" | "date"),
                attr="now" | "utcnow" | "today" as name,
            ):
                yield node.lineno, f"datetime.{name}"
            case ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="random"):
                yield node.lineno, "numpy.random"
            case ast.ImportFrom(module="numpy", names=names) if any(
                alias.name == "random" for alias in names
            ):
                yield node.lineno, "numpy.random"
            case ast.ImportFrom(module=str(module)) if module.startswith("numpy.random"):
                yield node.lineno, "numpy.random"


@pytest.mark.parametrize(
    ("find", "broken", "sound"),
    [
        (long_functions, "def f():\n" + "    x = 1\n" * 70, "def f():\n" + "    x = 1\n" * 69),
        (environment_reads, "import os\nos.environ['A']", "import os\nos.getpid()"),
        (environment_reads, "from os import getenv", "from os import getpid"),
        (environment_reads, "typer.Option(envvar='A')", "typer.Option(help='A')"),
        (sql_strings, "q = 'SELECT id\\nFROM item'", "q = 'Select one from the list'"),
        (sql_strings, "q = f'DELETE FROM {t}'", "'DELETE FROM t, as prose'"),
        (sql_strings, "q = 'PRAGMA data_version'", "q = 'UPDATE pending'"),
        (hidden_effects, "with open('x') as f: pass", "store.open('x')"),
        (hidden_effects, "datetime.now(UTC)", "clock.now()"),
        (hidden_effects, "np.random.default_rng()", "rng.random()"),
        (hidden_effects, "from numpy import random", "from numpy import float32"),
        (hidden_effects, "from numpy.random import default_rng", "import numpy as np"),
    ],
)
def test_each_rule_finds_what_it_forbids_and_nothing_else(
    find: Finder, broken: str, sound: str
) -> None:
    """A rule that finds nothing passes for ever; this is its positive control."""
    assert list(find(ast.parse(broken)))
    assert not list(find(ast.parse(sound)))


def test_modules_are_short() -> None:
    sizes = {
        path.relative_to(ROOT): len(path.read_text("utf-8").splitlines())
        for path in modules(PACKAGE, ROOT / "bench", ROOT / "demo")
    }

    long = [f"{path} ({n} lines)" for path, n in sizes.items() if n > LINES_PER_MODULE_MAX]
    assert not long, (
        f"longer than {LINES_PER_MODULE_MAX} lines: {long}; "
        "split off the part that has its own reason to change, under a name that says it"
    )


def test_functions_fit_a_screen() -> None:
    found = places(long_functions, modules(PACKAGE, ROOT / "bench", ROOT / "demo"))

    assert not found, (
        f"longer than {LINES_PER_FUNCTION_MAX} lines: {found}; "
        "give the steps names: one function each, called in order"
    )


def test_no_module_has_a_name_that_says_nothing() -> None:
    found = [
        str(path.relative_to(ROOT))
        for path in modules(PACKAGE, ROOT / "tests", ROOT / "bench", ROOT / "demo")
        if path.name in NAMES_THAT_SAY_NOTHING
    ]

    assert not found, f"{found}: name a module after what is in it, or move that to its callers"


def test_only_config_reads_the_environment() -> None:
    found = places(environment_reads, [p for p in modules(PACKAGE) if p != PACKAGE / "config.py"])

    assert not found, f"{found}: make it a field of Settings in amv/config.py and pass it in"


def test_sql_stays_in_the_stores() -> None:
    found = places(sql_strings, [p for p in modules(PACKAGE) if not p.is_relative_to(STORES)])

    assert not found, f"{found}: move the statement below amv/stores/, behind a method of the port"


def test_the_core_has_no_effects_that_need_no_import() -> None:
    found = places(hidden_effects, [*modules(CORE), PACKAGE / "errors.py"])

    assert not found, f"{found}: the core computes; take the result, or a generator, as an argument"


REQUIREMENTS = sorted((ROOT / "requirements").glob("*.txt"))
RIVALS = sorted((ROOT / "requirements" / "rivals").glob("*.txt"))


@pytest.mark.parametrize("path", [*REQUIREMENTS, *RIVALS], ids=lambda path: path.stem)
def test_pins_name_versions_and_hashes_and_no_address(path: Path) -> None:
    """Where packages come from is the choice of whoever installs, and no business of ours."""
    text = path.read_text("utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and line.lstrip()[0] != "#"]

    loose = [line for line in lines if not PIN.match(line) or "--hash=sha256:" not in line]
    addressed = [line for line in text.splitlines() if ADDRESS.search(line)]
    assert lines
    assert not loose, f"without version or hash: {loose}; write it anew with `make pins`"
    assert not addressed, f"with an address: {addressed}; write it anew with `make pins`"


def test_the_same_package_has_the_same_pin_everywhere() -> None:
    """One environment holds several of these files, so they must not undo each other."""
    pins: dict[str, set[str]] = {}
    for path in REQUIREMENTS:
        for name, version in PIN.findall(path.read_text("utf-8")):
            pins.setdefault(name, set()).add(version)

    torn = {name: versions for name, versions in pins.items() if len(versions) > 1}
    assert not torn, f"{torn}: write all of requirements/ anew with `make pins`"


def test_the_version_is_the_same_in_pyproject_and_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    assert amv.__version__ == project["version"]


def test_the_wheel_carries_every_file_of_the_package(tmp_path: Path) -> None:
    """Without its .sql files a store cannot open, and without its vocabulary the embedder."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())

    needed = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.suffix in {".py", ".sql", ".txt", ".typed"}
    }
    assert {Path(name).suffix for name in needed} == {".py", ".sql", ".txt", ".typed"}
    assert needed <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)

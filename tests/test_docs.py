"""The code in README and docs runs, in order, as a reader would run it.

Where a page speaks to a gateway, one is served for it, and its shell commands run, too.  YAML that
begins with a version is the page's `policy.yaml`.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from inspect import signature
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

import amv
from amv.client.sending import LOCAL
from amv.config import ServerSettings
from amv.imports import chats
from amv.server.routes import ROUTES
from tests.server.conftest import SRC, Running, running

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(python|console|yaml)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")
#: A command, with the lines that it goes on to.
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)$", re.MULTILINE)
#: What a page's shell runs: the gateway is there already, and make would run these tests again.
RUN = re.compile(r"export |amv (?!serve\b)" + ("|curl " if shutil.which("curl") else ""))
#: What a gateway answers besides the routes of a memory.
OPEN_PATHS = {"/health", "/metrics", "/docs", "/openapi.json"}


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the language and the text of each block, in order."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def named(pages: list[Path]) -> dict[str, Path]:
    return {str(page.relative_to(ROOT)): page for page in pages}


def speaks_to_a_gateway(page: Path) -> bool:
    return any(LOCAL in text for _, text in blocks(page))


SERVED = named([page for page in PAGES if speaks_to_a_gateway(page)])
PLAIN = named(
    [p for p in PAGES if not speaks_to_a_gateway(p) and any(k == "python" for k, _ in blocks(p))]
)


def session() -> dict[str, object]:
    """Return the names that the blocks of a page share, as a later one uses an earlier one's."""
    return {"__name__": "__main__"}


def policy_of(page: Path) -> object:
    """Write the policy of a page down, and return it; None if it has none."""
    texts = [t for kind, t in blocks(page) if kind == "yaml" and t.startswith("version:")]
    if not texts:
        return None
    (text,) = texts
    Path("policy.yaml").write_text(text, "utf-8")
    return yaml.safe_load(text)


def run_python(page: Path, text: str, names: dict[str, object]) -> None:
    exec(compile(text, str(page), "exec"), names)


@pytest.mark.parametrize("page", PLAIN.values(), ids=PLAIN)
def test_the_code_on_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    policy_of(page)

    run_python(page, "\n".join(t for kind, t in blocks(page) if kind == "python"), session())


class Shell:
    """Runs a page's commands in one folder; what one block exports, the next one has."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        programs = folder / "programs"
        programs.mkdir()
        program = programs / "amv"
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m amv "$@"\n', "utf-8")
        program.chmod(0o755)
        patch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        patch.setenv("PYTHONPATH", str(SRC))
        patch.setenv("NO_PROXY", "127.0.0.1")
        self._folder = folder
        self._patch = patch

    def run(self, commands: list[str]) -> None:
        # Without these, curl ends well whatever the answer is.
        script = ["set -eo pipefail", 'curl() { command curl -sS --fail-with-body "$@"; }']
        script += [*commands, "env -0 >environment"]
        done = subprocess.run(
            ["bash", "-c", "\n".join(script)], cwd=self._folder, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
        for line in (self._folder / "environment").read_text("utf-8").split("\0"):
            name, _, value = line.partition("=")
            if name.startswith("AMV_"):
                self._patch.setenv(name, value)


@pytest.fixture
def served(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A gateway over the file that `amv` opens in the current folder, with the page's policy."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("AMV_")]:
        monkeypatch.delenv(name)
    with running(tmp_path / "amv.db", policy=policy_of(page)) as found:
        yield found


@pytest.mark.parametrize("page", SERVED.values(), ids=SERVED)
def test_the_code_on_a_page_about_the_gateway_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: Running
) -> None:
    """Shell and Python take turns as on the page, and share the environment."""
    shell, names = Shell(tmp_path, monkeypatch), session()

    for kind, text in blocks(page):
        text = text.replace(LOCAL, served.url)
        served.forget_keys()
        if kind == "python":
            run_python(page, text, names)
        elif commands := [c for c in COMMAND.findall(text) if RUN.match(c)]:
            shell.run(commands)


@pytest.mark.parametrize("page", SERVED.values(), ids=SERVED)
def test_every_address_on_a_page_is_a_route(page: Path) -> None:
    shapes = [re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)) for path in paths()]
    found = re.findall(rf"{LOCAL}(/[^\s'\"`]*)", page.read_text(encoding="utf-8"))

    assert [
        address
        for address in found
        if not any(re.fullmatch(shape, urlsplit(address).path) for shape in shapes)
    ] == []


def paths() -> set[str]:
    return {route.path for route in ROUTES} | OPEN_PATHS


def test_pages_with_and_without_a_gateway_are_told_apart() -> None:
    assert {"README.md", "docs/how-to/serve.md", "docs/reference/http.md"} <= set(SERVED)
    assert {"docs/tutorial.md", "docs/reference/settings.md"} <= set(PLAIN)


@pytest.mark.parametrize("kind", [amv.Settings, amv.MemorySettings, amv.Endpoint, ServerSettings])
def test_every_setting_is_documented(kind: type) -> None:
    text = (ROOT / "docs" / "reference" / "settings.md").read_text("utf-8")

    assert [f.name for f in fields(kind) if not re.search(rf"[`.]{f.name}`", text)] == []


def test_each_block_of_the_readme_runs_on_its_own() -> None:
    """A reader copies one of them, and not all that came before it."""
    texts = [t for kind, t in blocks(ROOT / "README.md") if kind == "python"]

    assert len(texts) > 2
    assert [t for t in texts if re.search(r"\bamv\.[A-Z]", t) and "import amv\n" not in t] == []


def test_the_how_to_of_imports_names_what_can_be_passed_and_what_is_read() -> None:
    text = (ROOT / "docs" / "how-to" / "import.md").read_text("utf-8")
    named = set(re.findall(r"`(\w+)`", text))

    assert set(signature(amv.import_file).parameters) - {"memory", "file"} <= named
    assert {*chats._TIMES, *chats._CONVERSATION_IDS} <= named


def test_every_environment_variable_is_documented() -> None:
    known = set(re.findall(r"\bAMV_[A-Z_]+", (SRC / "amv" / "config.py").read_text("utf-8")))
    reference = ROOT / "docs" / "reference"
    told = [ROOT / "README.md", reference / "settings.md", reference / "cli.md"]

    assert known
    for page in told:
        assert known - set(re.findall(r"\bAMV_[A-Z_]+", page.read_text("utf-8"))) == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))

    assert [link for link in links if not (page.parent / link).exists()] == []

"""The package itself: what `import amv` offers, and what it costs."""

import pkgutil
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import amv


@pytest.mark.parametrize("name", amv.__all__)
def test_every_name_it_offers_is_there(name: str) -> None:
    """Each is imported once it is used, by a table that could lack one."""
    assert getattr(amv, name) is getattr(amv, name)
    assert name in dir(amv)


def test_it_offers_nothing_else() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Remoter'"):
        amv.Remoter  # noqa: B018


MODULES = sorted(one.name for one in pkgutil.iter_modules(amv.__path__) if one.name[0] != "_")
ROOT = Path(__file__).parents[1]
DOCS = "".join(file.read_text() for file in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
NAMED = {found for found in re.findall(r"\bamv\.(\w+)", DOCS) if found in MODULES}


@pytest.mark.parametrize("name", sorted(NAMED | {"errors", "config", "embedders", "guard"}))
def test_a_module_that_docs_name_is_reached_at_once(name: str) -> None:
    """Whatever was used before it, as nothing else may have imported it."""
    code = f"import amv; print(amv.{name}.__name__)"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert run.stdout == f"amv.{name}\n"


@pytest.mark.parametrize("name", MODULES)
def test_every_module_is_reached(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module(f"amv.{name}")
    monkeypatch.delattr(amv, name)

    assert getattr(amv, name) is module


@pytest.mark.parametrize("name", ["__main__", "_loading", "config.x", "", "\ud800", "loadin"])
def test_what_is_no_module_of_it_is_not_there(name: str) -> None:
    """Above all `amv.__main__`, which would run the program."""
    assert not hasattr(amv, name)


def test_importing_it_loads_nothing_heavy() -> None:
    """Nor does a name that needs none of it: a program may use errors alone."""
    code = (
        "import sys, amv; amv.ConfigError, amv.Settings; "
        "print(sorted({'apsw', 'usearch', 'httpx', 'onnxruntime'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert run.stdout == "[]\n"

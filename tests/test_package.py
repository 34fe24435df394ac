"""The package itself: what `import amv` offers, and what it costs."""

import subprocess
import sys

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


def test_importing_it_loads_nothing_heavy() -> None:
    """Nor does a name that needs none of it: a program may use errors alone."""
    code = (
        "import sys, amv; amv.ConfigError, amv.Settings; "
        "print(sorted({'apsw', 'usearch', 'httpx', 'onnxruntime'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert run.stdout == "[]\n"

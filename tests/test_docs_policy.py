"""docs/reference/policy.md names every field of a policy with its default, and no other."""

import re
from typing import Any

import msgspec
import pytest
import yaml
from msgspec.structs import FieldInfo, fields

from amv.guard import policy
from amv.guard.judge import PLANNERS
from amv.guard.presets import PRESETS
from tests.test_docs import BLOCK, ROOT

PAGE = (ROOT / "docs" / "reference" / "policy.md").read_text("utf-8")
PARTS: dict[str, tuple[type[policy.Rule], ...]] = {
    "The whole": (policy.Policy,),
    "Defaults": (policy.Defaults,),
    "A verifier": (policy.VerifierRule,),
    "An action": (policy.ActionRule,),
    "Losses": (policy.Loss,),
    "A premise": (policy.PremiseRule,),
    "A common cause": (policy.Cause,),
    "Idempotency": (policy.Idempotency,),
    "A budget": (policy.Budget,),
    "What an action takes of it": (policy.Spending,),
}


def rows(title: str) -> dict[str, str]:
    """Return what the table below a heading says is the default of each field."""
    found = re.search(rf"^## {title}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/reference/policy.md has no heading {title!r}"
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", found[1], re.MULTILINE))


def default_of(field: FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def test_every_part_of_a_policy_has_its_table() -> None:
    named = {kind for kinds in PARTS.values() for kind in kinds}

    assert named == set(policy.Rule.__subclasses__())


@pytest.mark.parametrize("title", PARTS)
def test_every_field_is_there_with_its_default_and_no_other(title: str) -> None:
    told, known = rows(title), [field for kind in PARTS[title] for field in fields(kind)]

    assert list(told) == [field.name for field in known]
    for field in known:
        default, said = default_of(field), told[field.name]
        if field.required:
            assert said == "needed", field.name
        elif default is None or default is msgspec.UNSET:
            assert said == "none", field.name
        elif isinstance(default, msgspec.Struct):
            assert said == "as below", field.name
        else:
            assert yaml.safe_load(said.strip("`")) == default, field.name


def test_presets_and_planners_are_named() -> None:
    assert [name for name in (*PRESETS, *PLANNERS) if f"`{name}`" not in PAGE] == []


def test_the_example_is_a_policy() -> None:
    text = next(text for kind, text in BLOCK.findall(PAGE) if kind == "yaml")

    assert set(policy.parse(yaml.safe_load(text)).actions) == {
        "cancel_order",
        "refund",
        "get_order",
    }

"""The twin test: that another tenant is there changes no byte of what a tenant is told."""

import json
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from amv.server import api, wire
from tests.server.cases import sound, told
from tests.server.conftest import running

Asked = dict[str, Any]

OTHER = ["other"]
TEXTS = ("tea with Bob", "Bob moved", "the cat is grey", "rent is due", "x")
LAST = (api.forget_item, api.forget_namespace)


def added(item_id: str, content: str, **fields: object) -> Asked:
    return {
        "method": "POST",
        "url": "/v1/items",
        "json": {"id": item_id, "content": content, **fields},
    }


def lives_in(city: object) -> dict[str, object]:
    return {"subject": "alice", "attribute": "city", "value": city}


def script() -> Iterator[Asked]:
    """Yield what one tenant asks for, also where it has no business, ending with what forgets."""
    for number, text in enumerate(TEXTS):
        yield added(f"a{number}", text)
    yield added("c0", "in Rome", claim=lives_in("Rome"), namespace=["tenant"])
    yield added("c1", "in Pisa", claim=lives_in("Pisa"), namespace=["tenant"])
    yield added("c2", "in Bari", claim=lives_in("Bari"), namespace=["tenant", "sub"])
    for route in api.ROUTES:
        for namespace in (None, ["tenant"], ["tenant", "sub"], OTHER, ["nobody"]):
            for item_id in ("a0", "c1", "b0", "none"):
                if route.handler not in LAST:
                    yield sound(route, namespace, item_id)
    for words in ("Bob", "cat", "secret", "Rome", ""):
        body = {"query": words, "k": 5, "cold": True}
        yield {"method": "POST", "url": "/v1/search", "json": body}
    for item_id in ("a1", "b0", "none", "a1"):
        yield {"method": "DELETE", "url": f"/v1/items/{item_id}"}
    for name in ("other", "nobody", "tenant%2Fsub", "tenant"):
        yield {"method": "DELETE", "url": f"/v1/namespaces/{name}"}


def counting() -> Callable[[], str]:
    """Return what makes item ids that are the same in both worlds."""
    numbers = count()
    return lambda: f"new{next(numbers)}"


def replies(path: Path, *, has_other: bool) -> list[tuple[Any, ...]]:
    """Run the script on a new gateway, with or without another tenant at work in between."""
    seen = []
    with running(path) as here:
        admin, http = here.http(here.key()), here.http(here.key(("tenant",)))
        for number, asked in enumerate(script()):
            if has_other and number % 3 == 0:
                here.key(("other",))
                text, claim = f"secret of Bob, cat {number}", lives_in(number)
                theirs = added(f"b{number // 3}", text, claim=claim, namespace=OTHER)
                assert admin.request(**theirs).status_code == 201
                admin.post("/v1/search", json={"query": "secret Bob", "namespace": OTHER})
            seen.append(told(http.request(**asked, headers={"idempotency-key": f"k{number}"})))
    return seen


def is_a_page(asked: Asked, reply: tuple[Any, ...]) -> bool:
    return bool(asked["method"] == "GET" and asked["url"] == "/v1/items" and reply[0] == 200)


def test_another_tenant_changes_no_byte_of_a_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only cursors differ, and these are sealed with what only the one server knows."""
    monkeypatch.setattr("amv.wiring.new_id", counting())
    alone = replies(tmp_path / "alone.db", has_other=False)
    monkeypatch.setattr("amv.wiring.new_id", counting())
    beside = replies(tmp_path / "beside.db", has_other=True)

    cursors = []
    for asked, one, other in zip(script(), alone, beside, strict=True):
        if is_a_page(asked, one):
            pages = [json.loads(reply[2]) for reply in (one, other)]
            cursors.append([page.pop("cursor") for page in pages])

            assert (*one[:2], pages[0]) == (*other[:2], pages[1]), asked
        else:
            assert one == other, asked
    assert {reply[0] for reply in alone} == {200, 201, 403, 404, 409}
    assert {len(cursor) for pair in cursors for cursor in pair if cursor is not None} == {32}


def test_the_twin_test_sees_a_leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its positive control: with the size of the store told to a tenant, it must fail."""
    monkeypatch.setattr("amv.wiring.new_id", counting())
    told_to_all = wire.stats_out
    monkeypatch.setattr(wire, "stats_out", lambda stats, of_all: told_to_all(stats, of_all=True))
    alone = replies(tmp_path / "alone.db", has_other=False)
    monkeypatch.setattr("amv.wiring.new_id", counting())

    assert alone != replies(tmp_path / "beside.db", has_other=True)

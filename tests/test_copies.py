"""What callers get is copied and pickled whole: it goes to other threads, processes and logs."""

import copy
import io
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import amv
from amv import errors
from amv.client import Refused
from amv.guard.decision import Decision
from amv.imports.fields import Wrong
from amv.imports.writing import BadLine
from amv.memory.results import ForgetReceipt


def pickled(protocol: int) -> Callable[[Any], Any]:
    return lambda value: pickle.loads(pickle.dumps(value, protocol))


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{f"pickle {number}": pickled(number) for number in range(pickle.HIGHEST_PROTOCOL + 1)},
}
DECISION = Decision(
    id="d1",
    tool="cancel",
    digest="ab",
    verdict="ABSTAIN",
    code="risk",
    reason="not sure enough",
    mode="enforce",
    namespace=("alice",),
    voi={},
    values={"status": amv.NOT_FOUND},
    approval_id="r1",
)


def every_error() -> Iterator[Exception]:
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, amv.AmvError):
            carries_decision = issubclass(kind, amv.ActionAbstained)
            yield kind(DECISION) if carries_decision else kind("need one, got 2", 2)
    yield Refused("a key is needed")
    yield BadLine(3, "need a string, got 5", "[2].content")
    yield Wrong("[2].content", "need a string, got 5")


def every_value() -> Iterator[object]:
    """Yield one of each class that the package offers, most as calls return them."""
    with amv.Memory.open(":memory:", embedder="hashing:64") as memory:
        claim, owner = amv.Claim("alice", "city", "Rome"), ("alice",)
        item = memory.add("in Rome", namespace=owner, claim=claim, metadata={"a": {"b": [1]}})
        found = memory.search("Rome", namespace=owner)
        yield from (item, claim, item.status, item.tier, found, found.hits[0], found.scanned)
        yield memory.context("Rome", namespace=owner)
        yield memory.list(namespace=owner)
        yield memory.history(item.id)[0]
        yield memory.stats()
        yield memory.sweep()
        with io.BytesIO(b'{"role": "user", "content": "In Rome"}') as file:
            yield amv.import_file(memory, file, namespace=owner)
        yield memory.forget(item.id)
    yield amv.Action("cancel", {"order_id": "o1", "lines": [{"n": 1}]}, namespace=owner)
    yield from (DECISION, amv.NOT_FOUND)
    yield from (amv.Settings(), amv.MemorySettings(), amv.Budget(), amv.CellSettings())
    yield amv.PRESETS["default"]
    yield amv.Endpoint(url="http://127.0.0.1:9/v1")


ERRORS, VALUES = list(every_error()), list(every_value())


def test_each_class_that_is_offered_is_copied_below() -> None:
    classes = {kind for name in amv.__all__ if isinstance(kind := getattr(amv, name), type)}
    handles = {amv.Memory, amv.Guard, amv.RemoteEmbedder, amv.Embedder}

    assert classes - handles <= {type(one) for one in [*ERRORS, *VALUES]}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_copied_with_all_it_carries(error: Exception, how: str) -> None:
    """A pool of processes raises it again from its pickle, and fails if there is none."""
    error.add_note("in worker 3")
    found = COPIES[how](error)

    assert type(found) is type(error)
    assert (str(found), found.args, vars(found)) == (str(error), error.args, vars(error))


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_is_copied_whole(value: object, how: str) -> None:
    found = COPIES[how](value)

    assert type(found) is type(value)
    assert found == value
    assert repr(found) == repr(value)


@pytest.mark.parametrize("how", COPIES)
def test_what_is_not_found_is_so_in_every_copy(how: str) -> None:
    """The gate asks whether a reading is that one, and not whether it is like it."""
    assert COPIES[how](amv.NOT_FOUND) is amv.NOT_FOUND
    assert COPIES[how]({"value": [amv.NOT_FOUND]})["value"][0] is amv.NOT_FOUND
    assert COPIES[how](DECISION).values["status"] is amv.NOT_FOUND


class Disk:
    """Erases once it is free; can be neither copied nor pickled, as a store can't."""

    def __init__(self) -> None:
        self.is_free = False
        self._lock = threading.RLock()

    def erase(self) -> bool:
        with self._lock:
            return self.is_free


@pytest.mark.parametrize("how", COPIES)
def test_a_receipt_looks_on_unless_it_left_the_process(how: str) -> None:
    disk = Disk()
    receipt = ForgetReceipt(item_ids=("i1",), namespace=("alice",), erase=disk.erase)
    seen = [receipt.erased]
    found = COPIES[how](receipt)
    disk.is_free = True
    seen += [found.erased, receipt.erased, COPIES[how](receipt).erased]

    is_live = how in ("copy", "deepcopy")
    assert seen == [False, is_live, True, True]
    assert (found.reason == "") == is_live
    assert (found.item_ids, found.namespace, found.count) == (("i1",), ("alice",), 1)

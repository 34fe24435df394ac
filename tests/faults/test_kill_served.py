"""What the gateway has acknowledged survives `kill -9` of it, wherever that strikes.

`amv serve` is killed at every sync, truncation, unlink and other write (also
those that wake the loop or carry a reply), at the writes to the database around
every sync, and at a spread of its others, while a client adds, changes and
forgets over HTTP.  A server that is started again then has all that was
acknowledged; of the request under way, all or nothing; that request, sent
again, takes place once; the others follow, and the file is sound.
"""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

import amv
from tests.faults.strace import Child, Run, Scene, injecting, needs_strace, spread
from tests.faults.workloads import ALICE, BOB, OLD, adds, adds_many, numbered, text_of
from tests.server.conftest import client_of

pytestmark = [
    pytest.mark.faults,
    pytest.mark.long,
    needs_strace("a write that the gateway has acknowledged survives kill -9 of the gateway"),
]

CALLS = ("pwrite64", "write", "fdatasync", "fsync", "ftruncate", "unlink")
SYNCS = ("fdatasync", "fsync")
OTHERS = 6
"""At how many writes to the database that are near no sync a thread is struck."""

Said = Mapping[str, Any]

Kept = Counter[tuple[str, str, str]]
"""Every item of a memory: namespace, status, content, and how often that is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request that changes something: what is there only before it, and only after it."""

    method: str
    url: str
    body: Any = None
    key: str = ""
    gone: Kept = field(default_factory=Kept)
    come: Kept = field(default_factory=Kept)

    def send(self, http: httpx.Client) -> httpx.Response:
        headers = {"idempotency-key": self.key} if self.key else {}
        return http.request(self.method, self.url, json=self.body, headers=headers)

    def done_to(self, kept: Kept) -> Kept:
        assert self.gone <= kept
        return kept - self.gone + self.come


def kept(item_id: str, owner: tuple[str, ...] = ALICE, status: str = "live") -> Kept:
    return Kept([("/".join(owner), status, text_of(item_id))])


def add(key: str, owner: tuple[str, ...] = ALICE, **fields: Any) -> Ask:
    body = {"content": text_of(key), "namespace": owner, **fields}
    return Ask(method="POST", url="/v1/items", body=body, key=key, come=kept(key, owner))


def add_several(key: str, count: int) -> Ask:
    body, come = [], Kept()
    for number, name in enumerate(numbered(key, count)):
        owner = (ALICE, BOB)[number % 2]
        body.append({"content": text_of(name), "namespace": owner})
        come += kept(name, owner)
    return Ask(method="POST", url="/v1/items", body=body, key=key, come=come)


def change(item_id: str, name: str) -> Ask:
    body = {"content": text_of(name)}
    url, gone = f"/v1/items/{item_id}", kept(item_id)
    return Ask(method="PATCH", url=url, body=body, gone=gone, come=kept(name))


def forget(item_id: str) -> Ask:
    return Ask(method="DELETE", url=f"/v1/items/{item_id}", gone=kept(item_id))


def claim(value: str) -> dict[str, str]:
    return {"subject": "alice", "attribute": "city", "value": value}


OLDEST = numbered("old", 12)
BEFORE = sum((kept(name, (ALICE, BOB)[n % 2]) for n, name in enumerate(OLDEST)), kept("city0"))


def asks() -> list[Ask]:
    """Return the requests of one run, in order."""
    moved = add("city1", claim=claim("after"))
    replaced = kept("city0", status="superseded")
    moved = replace(moved, gone=kept("city0"), come=moved.come + replaced)
    first = [
        add("single"),
        add_several("several", 6),
        change(OLDEST[2], "renewed"),
        forget(OLDEST[4]),
        moved,
        add("other", BOB),
        forget(OLDEST[6]),
    ]
    there = BEFORE
    for ask in first:
        there = ask.done_to(there)
    of_bob = Kept({what: count for what, count in there.items() if what[0] == "bob/work"})
    everything = Ask(method="DELETE", url="/v1/namespaces/bob%2Fwork", gone=of_bob)
    return [*first, everything, add("last", BOB)]


ASKS = asks()
WORLDS = [BEFORE]
"""What is there before and after each request."""
for _ask in ASKS:
    WORLDS.append(_ask.done_to(WORLDS[-1]))


def kept_by(http: httpx.Client) -> Kept:
    """Return all that a gateway tells of."""
    found = Kept()
    for name in http.get("/v1/namespaces").json()["namespaces"]:
        query = {"namespace": "/".join(name), "status": "all", "limit": "1000"}
        page = http.get("/v1/items", params=query).json()
        assert page["cursor"] is None
        found.update(("/".join(i["namespace"]), i["status"], i["content"]) for i in page["items"])
    return found


def stop(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


@dataclass(slots=True)
class Story:
    """One file: a server that may be struck, then another that is not."""

    path: Path
    acknowledged: int = 0
    wrong: list[str] = field(default_factory=list)

    def begin(self, line: Said) -> None:
        """Send all requests in order, until the server is gone or none is left."""
        with client_of(line["url"]) as http, suppress(httpx.TransportError):
            for ask in ASKS:
                reply = ask.send(http)
                assert reply.is_success, reply.text
                self.acknowledged += 1
        stop(line["pid"])

    def go_on(self, line: Said) -> None:
        """Look at what is there, send again what was not acknowledged, then all that follow."""
        done = self.acknowledged
        with client_of(line["url"]) as http:
            there = kept_by(http)
            self._compare(f"after {done} requests", there, WORLDS[done : done + 2])
            for number, ask in enumerate(ASKS):
                if number < done and not (ask.key and ask.come <= there):
                    continue
                reply = ask.send(http)
                is_gone = number == done and ask.method == "DELETE" and reply.status_code == 404
                if not (reply.is_success or is_gone):
                    self.wrong.append(f"request {number}, sent again: {reply.text}")
                if number in (done, len(ASKS) - 1):
                    # No more often, as the fault strikes a thread that makes too many calls.
                    then = kept_by(http)
                    self._compare(
                        f"after request {number}, sent again,", then, [WORLDS[number + 1]]
                    )
        stop(line["pid"])

    def end(self) -> None:
        """Look at the file that the second server has closed."""
        settings = amv.Settings(upkeep_interval_s=None)
        with amv.Memory.open(str(self.path), embedder=OLD, settings=settings) as memory:
            self.wrong += memory.check()
            for namespace, _, text in [*WORLDS[-1], *(gone for ask in ASKS for gone in ask.gone)]:
                hits = memory.search(text, namespace=tuple(namespace.split("/")), k=3).hits
                is_found = text in [hit.item.content for hit in hits]
                if is_found != ((namespace, "live", text) in WORLDS[-1]):
                    self.wrong.append(f"{text!r} of {namespace} was found: {is_found}")

    def _compare(self, when: str, there: Kept, worlds: list[Kept]) -> None:
        if there not in worlds:
            lost = [dict(world - there) for world in worlds]
            more = [dict(there - world) for world in worlds]
            self.wrong.append(f"{when} {lost} are not there, and {more} are")


def once_it_answers(do: Callable[[Said], None]) -> Callable[[Said], None]:
    """Return what hears the lines of a server and has that done once it tells its address."""

    def hear(line: Said) -> None:
        if "url" in line:
            do(line)

    return hear


def told(
    child: Child, scene: Scene, job: Mapping[str, Any], *, early: bool = False
) -> tuple[Run, list[str]]:
    """Run one story; return how the first server fared, and what is wrong after all.

    *early* counts a request as acknowledged that was not, as a positive control.
    """
    with scene.copied() as path:
        story = Story(path)
        given = {"path": str(path), **job}
        run = child.do(given, once_it_answers(story.begin))
        if not run.was_killed and (run.exit_code or run.crash):
            story.wrong.append(f"the first server ended with {run.exit_code}: {run.crash}")
        story.acknowledged += early
        again = child.do({**given, "nth": 0}, once_it_answers(story.go_on))
        if again.exit_code or again.crash:
            story.wrong.append(f"the second server ended with {again.exit_code}: {again.crash}")
        else:
            story.end()
    return run, story.wrong


NO_FAULT = {"aim": "loop", "call": "pwrite64", "nth": 0}


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    folder = tmp_path_factory.mktemp("kill-served")
    with injecting("signal=KILL", CALLS, folder, module="tests.faults.served") as child:
        yield child


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("scene") / "served"
    folder.mkdir()
    settings = amv.Settings(upkeep_interval_s=None)
    with amv.Memory.open(str(folder / "amv.db"), embedder=OLD, settings=settings) as memory:
        adds_many(OLDEST, ALICE, BOB).run(memory)
        adds("city0", claim=amv.Claim("alice", "city", "before")).run(memory)
    return Scene("served", folder, {})


def points(run: Run, aim: str) -> list[tuple[str, int]]:
    """Return where to strike a thread, known from a run that ended well."""
    pid = next(line["pid"] for line in run.said if "pid" in line)
    threads = Counter(thread for thread, call in run.trail if call in SYNCS and thread != pid)
    thread = pid if aim == "loop" else threads.most_common(1)[0][0]
    calls = [call for made_by, call in run.trail if made_by == thread]
    near = {n + by for n, call in enumerate(calls) if call in SYNCS for by in (-1, 0, 1)}
    far = [n for n, call in enumerate(calls) if call == "pwrite64" and n not in near]
    near.update(far[n - 1] for n in spread(len(far), OTHERS))
    near.update(n for n, call in enumerate(calls) if call != "pwrite64")
    counts, found = Counter[str](), []
    for number, call in enumerate(calls):
        counts[call] += 1
        if number in near:
            found.append((call, counts[call]))
    return found


@pytest.mark.parametrize("aim", ["write", "loop"])
def test_what_the_gateway_has_acknowledged_is_there_after_a_kill(
    child: Child, scene: Scene, aim: str, record_property: Callable[[str, object], None]
) -> None:
    control, wrong = told(child, scene, {**NO_FAULT, "aim": aim})
    assert (control.exit_code, control.crash, wrong) == (0, "", [])
    killed, where = 0, points(control, aim)

    for call, nth in where:
        run, found = told(child, scene, {"aim": aim, "call": call, "nth": nth})
        killed += run.was_killed
        wrong += [f"killed at {call} {nth}: {what}" for what in found]

    record_property("faults_injected", killed)
    assert wrong == []
    assert killed > 0.9 * len(where) > 10


def test_control_a_reply_before_the_commit_is_found_out(child: Child, scene: Scene) -> None:
    """A check that can not fail proves nothing: here it must."""
    _, wrong = told(child, scene, {"aim": "write", "call": "fdatasync", "nth": 1}, early=True)

    assert any("are not there" in what for what in wrong)

"""A model behind HTTP: nothing it answers is believed, and nothing but its failures asked again."""

import gc
import logging
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import amv
from amv import wiring
from amv.config import from_environment
from amv.embedders.hashing import Hashing
from amv.embedders.remote import BACK_OFF_S, RemoteEmbedder
from amv.errors import ConfigError, EmbedderChanged, EmbedderError, InvalidInput
from amv.testing import FakeClock
from tests.embedders.endpoint_server import (
    DIMENSION,
    Endpoints,
    Fault,
    cut,
    dripping,
    dripping_headers,
    dropped,
    giving,
    hanging,
    in_base64,
    refusing,
    right,
    serving,
)

KEY = "sk-0123456789abcdef"
NS = ("alice",)
NOW_S = 1_700_000_000.0
TEXTS = ["Alice moved to Rome", "Bob plays the cello", "the cat sat on the mat"]


@pytest.fixture
def server() -> Iterator[Endpoints]:
    with serving() as found:
        yield found


class Slept(list[float]):
    """Takes the place of `sleep`, and remembers how long."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture
def slept() -> Slept:
    return Slept()


def embedder(server: Endpoints, slept: Slept | None = None, **options: Any) -> RemoteEmbedder:
    """Return an embedder that waits for nothing."""
    endpoint = amv.Endpoint(url=server.url, **options)
    slept = Slept() if slept is None else slept
    return RemoteEmbedder(
        "some-model", endpoint, sleep=slept, jitter=lambda: 0.0, now=lambda: NOW_S
    )


def settings_for(server: Endpoints, **options: Any) -> amv.Settings:
    endpoint = amv.Endpoint(url=server.url, **{"tries": 1, **options})
    return amv.Settings(upkeep_interval_s=None, synchronous="NORMAL", remote=endpoint)


# What it asks, and what it makes of the answer


def test_texts_are_embedded_in_order_and_at_unit_length(server: Endpoints) -> None:
    with embedder(server, api_key=KEY) as model:
        found = model.embed(TEXTS)

    np.testing.assert_allclose(found, Hashing(dimension=DIMENSION).embed(TEXTS), atol=1e-6)
    assert (str(found.dtype), model.id) == ("float32", "remote:some-model")
    assert model.dimension == DIMENSION
    ((path, headers, body),) = server.asked
    assert path == "/v1/embeddings"
    assert headers["authorization"] == f"Bearer {KEY}"
    assert body == {"model": "some-model", "input": TEXTS, "encoding_format": "float"}


@pytest.mark.parametrize("end", ["", "/", "/embeddings", "/embeddings/"])
def test_the_address_may_be_given_in_any_usual_way(server: Endpoints, end: str) -> None:
    with RemoteEmbedder("m", amv.Endpoint(url=server.url + end)) as model:
        model.embed(["a"])

    assert [path for path, _, _ in server.asked] == ["/v1/embeddings"]
    assert "authorization" not in {name.lower() for name in server.asked[0][1]}


def test_a_dimension_is_sent_where_that_was_asked_for(server: Endpoints) -> None:
    with embedder(server, dimension=DIMENSION, sends_dimension=True, encoding="base64") as model:
        model.embed(["a"])

    body = server.asked[0][2]
    assert (body["dimensions"], body["encoding_format"]) == (DIMENSION, "base64")


def reverse(body: dict[str, Any]) -> None:
    body["data"].reverse()


def unnumber(body: dict[str, Any]) -> None:
    for entry in body["data"]:
        del entry["index"]


@pytest.mark.parametrize("change", [reverse, in_base64, unnumber])
def test_an_answer_may_come_in_any_order_and_encoding(server: Endpoints, change: Any) -> None:
    server.always = giving(change)

    with embedder(server) as model:
        found = model.embed(TEXTS)

    np.testing.assert_allclose(found, Hashing(dimension=DIMENSION).embed(TEXTS), atol=1e-6)


def test_numbers_whose_squares_overflow_still_have_a_direction(server: Endpoints) -> None:
    server.always = giving(lambda body: {"data": [{"embedding": [3e300, 4e300], "index": 0}]})

    with embedder(server) as model:
        np.testing.assert_allclose(model.embed(["a"]), [[0.6, 0.8]], rtol=1e-6)


def test_a_batch_has_at_most_so_many_texts_and_bytes(server: Endpoints) -> None:
    texts = ["aa", "bb", "cc", "d" * 9, "ee", "é" * 2, "ff", "gg"]

    with embedder(server, batch_texts_max=3, batch_bytes_max=8) as model:
        found = model.embed(texts)

    # A text that is too large by itself goes alone.
    assert server.texts == [["aa", "bb", "cc"], ["d" * 9], ["ee", "éé", "ff"], ["gg"]]
    np.testing.assert_allclose(found, Hashing(dimension=DIMENSION).embed(texts), atol=1e-6)
    assert model.embed([]).shape == (0, DIMENSION)


def test_of_a_long_text_the_first_tokens_are_sent(server: Endpoints) -> None:
    """A server would refuse it, or cut it where nobody knows."""
    long = "One short sentence. " * 40

    with embedder(server, max_tokens=64) as model:
        model.embed([long])
        spans = model.passages(long)

    ((sent,),) = server.texts
    assert long.startswith(sent)
    assert sent == long[slice(*spans[0])]
    assert len(spans) > 1
    assert (spans[0][0], spans[-1][1]) == (0, len(long))


# What is asked again


@pytest.mark.parametrize(
    "fault",
    [refusing(429), refusing(500), refusing(502), refusing(503), refusing(599), cut, dropped],
)
def test_what_may_pass_is_asked_again_and_each_time_later(
    server: Endpoints, slept: Slept, fault: Fault
) -> None:
    server.faults = [fault, fault, fault]

    with embedder(server, slept) as model:
        found = model.embed(TEXTS)

    assert len(server.asked) == 4
    assert slept == [BACK_OFF_S, 2 * BACK_OFF_S, 4 * BACK_OFF_S]
    np.testing.assert_allclose(found, Hashing(dimension=DIMENSION).embed(TEXTS), atol=1e-6)


@pytest.mark.parametrize("fault", [refusing(500), cut, dropped])
def test_in_the_end_it_gives_up(server: Endpoints, slept: Slept, fault: Fault) -> None:
    server.always = fault

    with embedder(server, slept, tries=3) as model, pytest.raises(EmbedderError) as caught:
        model.embed(["a"])

    assert (len(server.asked), len(slept)) == (3, 2)
    assert "remote:some-model at " in str(caught.value)
    assert "tried 3 times" in str(caught.value)


def test_a_server_that_hangs_is_left(server: Endpoints, slept: Slept) -> None:
    server.faults = [hanging]

    with embedder(server, slept, timeout_s=0.05) as model:
        assert model.embed(["a"]).shape == (1, DIMENSION)

    assert slept == [BACK_OFF_S]


@pytest.mark.parametrize("fault", [dripping, dripping_headers])
def test_a_server_that_gives_a_byte_now_and_then_is_left(server: Endpoints, fault: Fault) -> None:
    """Each read comes in time, so that only the clock of the whole can tell."""
    server.always = fault
    clock = FakeClock()

    def ticking() -> float:
        clock.advance(4.0)
        return clock()

    endpoint = amv.Endpoint(url=server.url, tries=2)
    with (
        RemoteEmbedder("m", endpoint, sleep=Slept(), clock=ticking) as model,
        pytest.raises(EmbedderError, match="gave no whole answer in 10 s; tried 2 times"),
    ):
        model.embed(["a"])


def test_nobody_at_the_address(slept: Slept) -> None:
    with serving() as gone:
        pass

    with embedder(gone, slept, tries=2) as model, pytest.raises(EmbedderError, match="reached"):
        model.embed(["a"])

    assert slept == [BACK_OFF_S]


@pytest.mark.parametrize(
    ("told", "waited"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("Tue, 14 Nov 2023 22:13:32 GMT", 12.0),
        ("Tue, 14 Nov 2023 22:13:32 -0000", 12.0),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 0.0),
        ("soon", BACK_OFF_S),
        ("-1", BACK_OFF_S),
        ("Tue, 14 Nov 99999999999999999999 22:13:32 GMT", BACK_OFF_S),
        ("Tue, 99999999999999999999 Nov 2023 22:13:32 GMT", BACK_OFF_S),
        ("Tue, 14 Nov 2023 99999999999999999999:13:32 GMT", BACK_OFF_S),
        ("Tue, 14 Nov 2023 22:13:32 +99999999999999999999", BACK_OFF_S),
        ("Sat, 01 Jan 0001 00:00:00 +2359", 0.0),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_it_waits_as_long_as_it_is_told(
    server: Endpoints, slept: Slept, told: str, waited: float, status: int
) -> None:
    server.faults = [refusing(status, retry_after=told)]

    with embedder(server, slept) as model:
        model.embed(["a"])

    assert slept == [waited]


def test_it_does_not_wait_for_an_hour(server: Endpoints, slept: Slept) -> None:
    server.faults = [refusing(429, retry_after="3600")]

    with embedder(server, slept) as model, pytest.raises(EmbedderError, match="for 3600 s"):
        model.embed(["a"])

    assert (slept, len(server.asked)) == ([], 1)


def test_waiting_is_spread_and_bounded(server: Endpoints, slept: Slept) -> None:
    server.faults = [refusing(500)] * 9
    endpoint = amv.Endpoint(url=server.url, tries=10, wait_max_s=2.0)

    with RemoteEmbedder("m", endpoint, sleep=slept, jitter=lambda: 0.8) as model:
        model.embed(["a"])

    assert slept[:2] == [BACK_OFF_S * 1.2, 2 * BACK_OFF_S * 1.2]
    assert max(slept) == slept[-1] == 2.0


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 418])
def test_what_will_not_pass_is_not_asked_again(
    server: Endpoints, slept: Slept, status: int
) -> None:
    server.always = refusing(status, {"error": {"message": "no such\n model"}})

    with embedder(server, slept) as model, pytest.raises(EmbedderError) as caught:
        model.embed(["a"])

    assert f"answered {status}: no such model" in str(caught.value)
    assert (len(server.asked), slept) == (1, [])


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_no_redirect_is_followed(server: Endpoints, status: int) -> None:
    """Texts and key would go where nobody sent them."""
    with serving() as elsewhere:
        server.always = refusing(status, location=elsewhere.url + "/embeddings")

        with embedder(server, api_key=KEY) as model, pytest.raises(EmbedderError, match="redirect"):
            model.embed(["a"])

        assert (len(server.asked), elsewhere.asked) == (1, [])


# What is not believed


def other(key: str, value: object) -> Fault:
    """Answer with another value at a key of the second entry."""
    return giving(lambda body: body["data"][1].__setitem__(key, value))


DEEP = b'{"error": ' + b"[" * 100_000 + b"]" * 100_000 + b', "data": []}'

WRONG = {
    "fewer": giving(lambda body: body["data"].pop()),
    "more": giving(lambda body: body["data"].append(body["data"][0])),
    "none": giving(lambda body: {"data": []}),
    "another dimension": other("embedding", [1.0] * (DIMENSION + 1)),
    "no numbers": other("embedding", []),
    "zero": other("embedding", [0.0] * DIMENSION),
    "NaN": other("embedding", [float("nan")] * DIMENSION),
    "infinite": other("embedding", [float("inf")] * DIMENSION),
    "too large a number": giving(lambda b: b'{"data": [{"embedding": [1e999]}]}'),
    "NaN in base64": other("embedding", "AADAfw=="),
    "all NaN in base64": other("embedding", "AADAfwAAwH8AAMB/" * (DIMENSION // 3) + "AADAfwAAwH8="),
    "no base64": other("embedding", "###"),
    "half a float": other("embedding", "AAAA"),
    "words": other("embedding", ["a"] * DIMENSION),
    "null": other("embedding", None),
    "an index twice": other("index", 0),
    "an index beyond": other("index", 3),
    "an index below": other("index", -1),
    "an index missing": other("index", None),
    "no JSON": giving(lambda body: b"<html>it works</html>"),
    "nested deeply": giving(lambda body: DEEP),
    "nothing": giving(lambda body: b""),
    "no UTF-8": giving(lambda body: b'{"data": "\xff"}'),
    "another shape": giving(lambda body: {"embeddings": body["data"]}),
    "an error with status 200": giving(lambda body: {"error": {"message": "busy"}}),
    "compressed badly": lambda request, texts: request.answer(b"abc", content_encoding="gzip"),
}


def test_a_refusal_that_is_nested_deeply_is_told_as_it_came(server: Endpoints) -> None:
    server.always = refusing(400, DEEP)

    with embedder(server) as model, pytest.raises(EmbedderError, match=r"answered 400: .*\[\["):
        model.embed(["a"])


def test_a_first_answer_without_numbers_says_how_many_there_may_be(server: Endpoints) -> None:
    server.always = giving(lambda body: {"data": [{"embedding": []}]})

    with embedder(server) as model, pytest.raises(EmbedderError, match="1 to 65536, got 0"):
        model.embed(["a"])


@pytest.mark.parametrize("fault", WRONG.values(), ids=WRONG)
def test_a_wrong_answer_is_refused_and_not_asked_for_again(
    server: Endpoints, slept: Slept, fault: Fault
) -> None:
    server.always = fault

    with embedder(server, slept) as model, pytest.raises(EmbedderError, match="some-model"):
        model.embed(TEXTS)

    assert (len(server.asked), slept) == (1, [])


@pytest.mark.parametrize("fault", WRONG.values(), ids=WRONG)
def test_a_wrong_answer_adds_nothing(server: Endpoints, tmp_path: Path, fault: Fault) -> None:
    settings = settings_for(server)

    with amv.Memory.open(str(tmp_path / "a.db"), embedder="remote:m", settings=settings) as memory:
        memory.add("here", namespace=NS)
        server.always = fault
        with pytest.raises(EmbedderError):
            memory.add_many({"content": text, "namespace": NS} for text in TEXTS)
        server.always = right

        assert [item.content for item in memory.list(namespace=NS).items] == ["here"]
        assert memory.check() == []


def test_an_answer_that_is_too_long_is_left(
    server: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amv.embedders.remote.ANSWER_BYTES_MAX", 1000)
    server.always = giving(lambda body: b" " * 1001)

    with embedder(server) as model, pytest.raises(EmbedderError, match="more than 1000 bytes"):
        model.embed(["a"])


def test_a_dimension_that_changes_on_the_way_is_refused(server: Endpoints) -> None:
    with embedder(server) as model:
        model.embed(["a"])
        server.dimension = 64

        with pytest.raises(EmbedderError, match="dimension 32, got 64"):
            model.embed(["a"])


def test_a_dimension_that_is_not_the_one_asked_for_is_refused(server: Endpoints) -> None:
    with (
        embedder(server, dimension=16) as model,
        pytest.raises(EmbedderError, match="dimension 16, got 32"),
    ):
        model.embed(["a"])


# The key


def test_the_key_is_shown_nowhere(
    server: Endpoints, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    server.faults = [
        right,
        refusing(500),
        refusing(401, f"bad key {'x' * 150} {KEY} here".encode()),
    ]

    with embedder(server, api_key=KEY) as model:
        model.embed(["a"])
        with pytest.raises(EmbedderError, match=r"\*\*\*") as caught:
            model.embed(["a"])
        said = "".join(traceback.format_exception(caught.value))
        told = repr(model) + repr(settings_for(server, api_key=KEY)) + str(model)

    assert server.asked[-1][1]["authorization"] == f"Bearer {KEY}"
    captured = capsys.readouterr()
    for text in (said, told, caplog.text, captured.out, captured.err):
        assert KEY not in text
        assert KEY[:10] not in text


@pytest.mark.parametrize("key", [KEY + "\n", f"a {KEY}", KEY + "é", "", KEY.encode()])
def test_a_key_that_is_refused_is_not_shown(key: Any) -> None:
    with pytest.raises(InvalidInput, match="api_key") as caught:
        amv.Endpoint(url="http://127.0.0.1/v1", api_key=key)

    assert KEY not in "".join(traceback.format_exception(caught.value, limit=0))


@pytest.mark.parametrize(
    "url", [f"http://u:{KEY}@h/v1", f"https://h/v1?key={KEY}", f"http://h#{KEY}"]
)
def test_a_key_in_the_address_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InvalidInput, match="AMV_EMBEDDER_KEY") as caught:
        amv.Endpoint(url=url)

    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "localhost:80"},
        {"url": ""},
        {"url": "ftp://h/v1"},
        {"url": "http:///v1"},
        {"url": "http://h:port/v1"},
        {"url": "http://[::1/v1"},
        {"url": "http://h/a b"},
        {"url": None},
        {"dimension": 0},
        {"dimension": 65_537},
        {"sends_dimension": True},
        {"encoding": "int8"},
        {"max_tokens": 7},
        {"batch_texts_max": 0},
        {"batch_bytes_max": 0},
        {"timeout_s": 0.0},
        {"timeout_s": float("nan")},
        {"tries": 0},
        {"wait_max_s": -1.0},
    ],
)
def test_an_endpoint_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        amv.Endpoint(**{"url": "http://h/v1", **wrong})


@pytest.mark.parametrize("model", ["", " m", "a\nb", "x" * 201, None])
def test_a_model_that_cannot_be_is_refused(model: Any) -> None:
    with pytest.raises(InvalidInput, match="name of a model"):
        RemoteEmbedder(model, amv.Endpoint(url="http://h/v1"))
    with pytest.raises(InvalidInput, match=r"amv\.Endpoint"):
        RemoteEmbedder("m", "http://h/v1")  # type: ignore[arg-type]


# A memory of it


def test_a_memory_of_a_remote_model_finds_and_asks_once_for_a_query(
    server: Endpoints, tmp_path: Path
) -> None:
    path, settings = str(tmp_path / "a.db"), settings_for(server)

    with amv.Memory.open(path, embedder="remote:m", settings=settings) as memory:
        memory.add_many({"content": text, "namespace": NS} for text in TEXTS)
        asked = len(server.asked)
        for _ in range(3):
            hits = memory.search("where did Alice move to", namespace=NS).hits
        assert len(server.asked) == asked + 1

    assert hits[0].item.content == TEXTS[0]
    # The file knows name and dimension, so that it is opened without a question.
    asked = len(server.asked)
    with amv.Memory.open(path, settings=settings) as memory:
        assert memory.stats().embedder == "remote:m"
        assert memory.stats().dimension == DIMENSION
        assert len(server.asked) == asked
        assert memory.search("Bob and a cello", namespace=NS).hits[0].item.content == TEXTS[1]


def test_a_search_whose_query_cannot_be_embedded_says_so_and_the_next_one_works(
    server: Endpoints, tmp_path: Path
) -> None:
    path, settings = str(tmp_path / "a.db"), settings_for(server)

    with amv.Memory.open(path, embedder="remote:m", settings=settings) as memory:
        memory.add(TEXTS[0], namespace=NS)
        server.faults = [refusing(503, b"loading")]
        with pytest.raises(EmbedderError, match="answered 503: loading"):
            memory.search("Alice", namespace=NS)

        assert len(memory.search("Alice", namespace=NS).hits) == 1


def test_another_model_of_the_same_dimension_is_refused(server: Endpoints, tmp_path: Path) -> None:
    """Their vectors can be compared, and mean nothing to each other."""
    path, settings = str(tmp_path / "a.db"), settings_for(server)
    with amv.Memory.open(path, embedder="remote:one", settings=settings) as memory:
        memory.add(TEXTS[0], namespace=NS)

    for name in ("remote:two", f"hashing:{DIMENSION}"):
        with pytest.raises(EmbedderChanged, match=r"remote:one \(32 dimensions\).*reembed"):
            amv.Memory.open(path, embedder=name, settings=settings)
    wider = settings_for(server, dimension=64)
    with pytest.raises(EmbedderChanged, match=r"opened with remote:one \(64 dimensions\)"):
        amv.Memory.open(path, embedder="remote:one", settings=wider)
    with pytest.raises(EmbedderChanged):
        amv.Memory.open(path, settings=wider)


def test_a_model_that_changed_its_dimension_is_refused_by_the_first_text(
    server: Endpoints, tmp_path: Path
) -> None:
    path, settings = str(tmp_path / "a.db"), settings_for(server)
    with amv.Memory.open(path, embedder="remote:m", settings=settings) as memory:
        memory.add(TEXTS[0], namespace=NS)
    server.dimension = 64

    for embedder in ("remote:m", RemoteEmbedder("m", amv.Endpoint(url=server.url))):
        with (
            amv.Memory.open(path, embedder=embedder, settings=settings) as memory,
            pytest.raises(EmbedderError, match="dimension 32, got 64"),
        ):
            memory.add("x", namespace=NS)


def test_without_an_address_it_says_what_is_missing(server: Endpoints, tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")

    with pytest.raises(InvalidInput, match="AMV_EMBEDDER_URL"):
        amv.Memory.open(path, embedder="remote:m")
    assert not Path(path).exists()
    with amv.Memory.open(path, embedder="remote:m", settings=settings_for(server)):
        pass
    with pytest.raises(InvalidInput, match="AMV_EMBEDDER_URL"):
        amv.Memory.open(path)


def test_an_address_where_nobody_is_makes_no_file(tmp_path: Path) -> None:
    with serving() as gone:
        settings = settings_for(gone)

    with pytest.raises(EmbedderError, match=r"^remote:m at http://\S+ can't be reached: "):
        amv.Memory.open(str(tmp_path / "a.db"), embedder="remote:m", settings=settings)

    assert list(tmp_path.iterdir()) == []
    # A file of another embedder's vectors is left alone, too.
    path = str(tmp_path / "b.db")
    amv.Memory.open(path, embedder="hashing").close()
    with pytest.raises(EmbedderError, match=r"^remote:m at http://\S+ can't be reached: "):
        amv.Memory.open(path, embedder="remote:m", settings=settings)


@pytest.mark.parametrize("body", [b"", b" \n", b"no"])
def test_a_refusal_without_words_has_no_colon_before_them(
    server: Endpoints, slept: Slept, body: bytes
) -> None:
    server.always = refusing(500, body)

    with embedder(server, slept, tries=2) as model, pytest.raises(EmbedderError) as caught:
        model.embed(["a"])

    told = f"answered 500{': no' if body.strip() else ''}; tried 2 times"
    assert str(caught.value).endswith(told)


def test_changing_over_to_a_remote_model_and_back_goes_on_where_it_failed(
    server: Endpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amv.memory.reembed.PAGE", 4)
    path, settings = str(tmp_path / "a.db"), settings_for(server, dimension=DIMENSION)
    with amv.Memory.open(path, embedder="hashing:64", settings=settings) as memory:
        memory.add_many({"content": f"thing {n}", "namespace": NS} for n in range(10))
    server.faults = [right, refusing(500)]

    with pytest.raises(EmbedderError, match="answered 500"):
        wiring.reembed(path, settings, "remote:m", lambda done, total: None)
    with amv.Memory.open(path, settings=settings) as memory:
        assert memory.stats().embedder == "hashing-64"
        assert len(memory.search("thing 3", namespace=NS, k=3).hits) == 3
    server.asked.clear()
    assert wiring.reembed(path, settings, "remote:m", lambda done, total: None) == 6
    assert [len(texts) for texts in server.texts] == [4, 2]

    with amv.Memory.open(path, settings=settings) as memory:
        assert memory.stats().embedder == "remote:m"
        assert memory.search("thing 3", namespace=NS).hits[0].item.content == "thing 3"
        assert memory.check() == []
    assert wiring.reembed(path, settings, "hashing:64", lambda done, total: None) == 10
    with amv.Memory.open(path, settings=settings) as memory:
        assert memory.search("thing 3", namespace=NS).hits[0].item.content == "thing 3"


def test_connections_are_used_again_and_closed(server: Endpoints, tmp_path: Path) -> None:
    """A socket left open is a warning, which fails a test, as soon as it is collected."""
    model = embedder(server)
    model.embed(["a"])
    model.close()
    model.embed(["b"])
    del model
    with amv.Memory.open(embedder="remote:m", settings=settings_for(server)) as memory:
        memory.add("x", namespace=NS)
    gc.collect()


def test_several_threads_may_use_one(server: Endpoints) -> None:
    texts = [f"text {n}" for n in range(40)]
    with embedder(server) as model, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda text: model.embed([text])[0], texts))

    np.testing.assert_allclose(found, Hashing(dimension=DIMENSION).embed(texts), atol=1e-6)


# Settings


def test_the_environment_says_where_it_is() -> None:
    environ = {
        "AMV_EMBEDDER": "remote:m",
        "AMV_EMBEDDER_URL": "https://h/v1",
        "AMV_EMBEDDER_KEY": KEY,
        "AMV_EMBEDDER_DIMENSION": "64",
    }

    settings = from_environment(environ)

    assert settings.embedder == "remote:m"
    assert settings.remote == amv.Endpoint(url="https://h/v1", api_key=KEY, dimension=64)
    assert KEY not in repr(settings)
    assert from_environment({"AMV_EMBEDDER_KEY": KEY}).remote is None
    assert replace(settings, remote=None).remote is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AMV_EMBEDDER_URL", "nowhere"),
        ("AMV_EMBEDDER_KEY", KEY + "\n"),
        ("AMV_EMBEDDER_DIMENSION", "many"),
        ("AMV_EMBEDDER_DIMENSION", "0"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        from_environment({"AMV_EMBEDDER_URL": "http://h/v1", name: value})

    assert KEY not in str(caught.value)


def test_the_package_knows_no_other_lazy_name() -> None:
    assert amv.RemoteEmbedder is RemoteEmbedder
    with pytest.raises(AttributeError, match="Remoter"):
        amv.Remoter  # noqa: B018

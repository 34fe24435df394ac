"""A model behind HTTP: whatever answers `POST {url}/embeddings` as OpenAI's API does.

Hosted APIs, and servers such as vLLM, llama.cpp, Ollama and text-embeddings-inference, speak it.
Of such an answer nothing is believed: as many vectors as texts, each index once, the dimension
that was agreed on, finite numbers; only then are they scaled to unit length and kept.

A request is made again after 429, 5xx and failures of the connection, each time later, or when
the server says; never after another 4xx, nor where an answer came and is wrong.  No redirect is
followed, since texts and key would go where nobody sent them.
"""

import base64
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import msgspec
import numpy as np
import numpy.typing as npt

from amv.checks import shown
from amv.closing import Closing
from amv.embedders import REMOTE
from amv.embedders.deadline import Deadline
from amv.embedders.endpoint import DIMENSION_MAX, Endpoint
from amv.embedders.passages import split
from amv.errors import EmbedderError, InvalidInput
from amv.memory.context import estimate_tokens

MODEL_BYTES_MAX = 200
ANSWER_BYTES_MAX = 64 << 20
BACK_OFF_S = 0.25
"""How long to wait before the second try; twice as long before each further one."""

_TOLD_BYTES_MAX = 64 << 10
_TOLD_CHARS_MAX = 200
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


class _Entry(msgspec.Struct):
    embedding: list[float] | str
    index: int | None = None


class _Answer(msgspec.Struct):
    data: list[_Entry]


class _Reply(msgspec.Struct):
    status: int
    headers: httpx.Headers
    body: bytes


class RemoteEmbedder(Closing):
    """The embedder *model* of an endpoint.  Safe for use by several threads.

    *clock* and *now* return seconds, monotonic and unix; *jitter* a number in [0, 1).
    """

    def __init__(
        self,
        model: str,
        endpoint: Endpoint,
        *,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        is_name = isinstance(model, str) and model.isprintable() and model.strip() == model
        if not (is_name and model and len(model.encode()) <= MODEL_BYTES_MAX):
            raise InvalidInput(
                f"need the name of a model, of at most {MODEL_BYTES_MAX} bytes, got {shown(model)}"
            )
        if not isinstance(endpoint, Endpoint):
            raise InvalidInput(f"need an amv.Endpoint, got {type(endpoint).__name__}")
        self._model = model
        self._endpoint = endpoint
        self._dimension = endpoint.dimension
        self._sleep, self._clock, self._now, self._jitter = sleep, clock, now, jitter
        self._lock = threading.Lock()
        self._deadline = Deadline()
        self._http: httpx.Client | None = None

    def __repr__(self) -> str:
        return f"RemoteEmbedder({self._model!r}, {self._endpoint!r})"

    @property
    def id(self) -> str:
        """The name of the model; the same wherever it is served."""
        return REMOTE + self._model

    @property
    def dimension(self) -> int:
        """Length of a vector; if nobody said, the endpoint is asked once.

        Raises EmbedderError.
        """
        if self._dimension is None:
            self.embed(["dimension"])
        assert self._dimension is not None
        return self._dimension

    @property
    def max_tokens(self) -> int:
        """How many tokens of a text one vector reads, by estimate."""
        return self._endpoint.max_tokens

    def expect(self, dimension: int) -> None:
        """Hold every answer to *dimension*, unless the endpoint's is set."""
        with self._lock:
            if self._dimension is None:
                self._dimension = dimension

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return unit-length rows of shape (len(texts), dimension).

        Of a longer text only the first `max_tokens` are read; see `passages`.  Raises
        EmbedderError.
        """
        rows = [
            row
            for batch in self._batches([self._first(text) for text in texts])
            for row in self._vectors(self._asked(batch), len(batch))
        ]
        return np.stack(rows) if rows else np.zeros((0, self.dimension), dtype=np.float32)

    def passages(self, text: str) -> list[tuple[int, int]]:
        """Return character spans that cover *text*, of about `max_tokens` tokens at most."""
        return split(text, capacity=self.max_tokens, count=estimate_tokens)

    def _check_open(self) -> None:
        """Raise nothing: what was closed opens again."""

    def close(self) -> None:
        """Close all connections; the next text opens one again."""
        with self._lock:
            http, self._http = self._http, None
        if http is not None:
            http.close()

    # Asking

    def _first(self, text: str) -> str:
        # No text has more tokens than bytes.
        if len(text.encode()) <= self.max_tokens:
            return text
        begin, end = self.passages(text)[0]
        return text[begin:end]

    def _batches(self, texts: Sequence[str]) -> Iterator[list[str]]:
        batch: list[str] = []
        size = 0
        for text in texts:
            own = len(text.encode())
            is_full = len(batch) == self._endpoint.batch_texts_max
            if batch and (is_full or size + own > self._endpoint.batch_bytes_max):
                yield batch
                batch, size = [], 0
            batch.append(text)
            size += own
        if batch:
            yield batch

    def _asked(self, texts: Sequence[str]) -> bytes:
        """Return the body of the answer to *texts*, asked for again where that may help."""
        body: dict[str, Any] = {
            "model": self._model,
            "input": texts,
            "encoding_format": self._endpoint.encoding,
        }
        if self._endpoint.sends_dimension:
            body["dimensions"] = self._endpoint.dimension
        content = msgspec.json.encode(body)
        tried = 0
        while True:
            tried += 1
            told_s: float | None = None
            cause: httpx.HTTPError | None = None
            try:
                reply = self._posted(content)
            except httpx.TransportError as error:
                cause = error
                why = self._unreached(error)
            except httpx.HTTPError as error:
                raise self._failure(f"gave an answer that can't be read: {error}") from error
            else:
                if reply.status == 200:
                    return reply.body
                why = self._refusal(reply)
                if reply.status != 429 and reply.status < 500:
                    raise self._failure(why)
                told_s = self._retry_after_s(reply)
            if told_s is not None and told_s > self._endpoint.wait_max_s:
                raise self._failure(f"{why}; it asks to be left alone for {told_s:g} s")
            if tried == self._endpoint.tries:
                raise self._failure(f"{why}; tried {tried} times") from cause
            self._sleep(self._wait_s(tried, told_s))

    def _posted(self, content: bytes) -> _Reply:
        """Return one answer, within the time-out as a whole and up to the size it may have."""
        until_s = self._clock() + self._endpoint.timeout_s
        with (
            self._deadline.set(lambda: until_s - self._clock()),
            self._client().stream("POST", self._endpoint.address, content=content) as response,
        ):
            most = ANSWER_BYTES_MAX if response.status_code == 200 else _TOLD_BYTES_MAX
            parts: list[bytes] = []
            size = 0
            for part in response.iter_bytes():
                parts.append(part)
                size += len(part)
                if size > most:
                    break
            if size > most and response.status_code == 200:
                raise self._failure(f"gave an answer of more than {most} bytes")
            return _Reply(response.status_code, response.headers, b"".join(parts))

    def _client(self) -> httpx.Client:
        with self._lock:
            if self._http is None:
                endpoint = self._endpoint
                headers = {"content-type": "application/json", "accept": "application/json"}
                if endpoint.api_key is not None:
                    headers["authorization"] = f"Bearer {endpoint.api_key}"
                self._http = httpx.Client(
                    headers=headers,
                    timeout=endpoint.timeout_s,
                    follow_redirects=False,
                    # No proxy leads to this machine; and what isn't TLS needs no certificates.
                    trust_env=endpoint.host not in _THIS_MACHINE,
                    verify=endpoint.url.startswith("https:"),
                )
                self._deadline.hold(self._http)
                # Whoever lets go of an embedder without closing it leaves no socket behind.
                weakref.finalize(self, self._http.close)
            return self._http

    def _failure(self, why: str) -> EmbedderError:
        return EmbedderError(f"{self.id} at {self._endpoint.address} {why}")

    def _unreached(self, error: httpx.TransportError) -> str:
        if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout):
            return f"gave no whole answer in {self._endpoint.timeout_s:g} s"
        return f"can't be reached: {str(error) or type(error).__name__}"

    def _refusal(self, reply: _Reply) -> str:
        if 300 <= reply.status < 400:
            return f"answered {reply.status}, a redirect, and none is followed; give the url itself"
        text = reply.body.decode("utf-8", "replace")
        try:
            told = msgspec.json.decode(reply.body)
            error = told["error"]
            text = str(error["message"] if isinstance(error, dict) else error)
        except (msgspec.DecodeError, RecursionError, KeyError, TypeError):
            pass  # told as it came
        # Some servers repeat the key that they refuse.
        if self._endpoint.api_key is not None:
            text = text.replace(self._endpoint.api_key, "***")
        text = " ".join(text.split())
        if len(text) > _TOLD_CHARS_MAX:
            text = text[: _TOLD_CHARS_MAX - 1] + "…"
        hint = "; is AMV_EMBEDDER_KEY right?" if reply.status in (401, 403) else ""
        return f"answered {reply.status}{text and f': {text}'}{hint}"

    def _retry_after_s(self, reply: _Reply) -> float | None:
        """Return how many seconds the server says to wait, None if it does not say."""
        told = reply.headers.get("retry-after", "").strip()
        if told.isascii() and told.isdecimal():
            return float(told[:12])
        try:
            moment = parsedate_to_datetime(told)
            aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            return max(0.0, aware.timestamp() - self._now())
        except (ValueError, OverflowError):
            return None  # no date, or none there is

    def _wait_s(self, tried: int, told_s: float | None) -> float:
        """Return how long to wait: as the server says, or longer each time; never all at once."""
        least_s = BACK_OFF_S * 2.0 ** (tried - 1) if told_s is None else told_s
        return min(self._endpoint.wait_max_s, least_s * (1.0 + self._jitter() / 4.0))

    # What came

    def _vectors(self, body: bytes, count: int) -> list[npt.NDArray[np.float32]]:
        """Return the unit vectors of an answer, in the order of the texts."""
        try:
            entries = msgspec.json.decode(body, type=_Answer).data
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            began = shown(body[:60])
            raise self._failure(f"gave no embeddings: {error}; it begins {began}") from error
        if len(entries) != count:
            raise self._failure(f"gave {len(entries)} vectors for {count} texts")
        if all(entry.index is None for entry in entries):
            ordered = entries
        else:
            by_index = {entry.index: entry for entry in entries}
            if by_index.keys() != set(range(count)):
                got = shown([entry.index for entry in entries])
                raise self._failure(f"must give each index from 0 to {count - 1} once, got {got}")
            ordered = [by_index[number] for number in range(count)]
        return [self._vector(entry.embedding) for entry in ordered]

    def _vector(self, embedding: list[float] | str) -> npt.NDArray[np.float32]:
        vector = self._numbers(embedding)
        with self._lock:
            if self._dimension is None and 1 <= len(vector) <= DIMENSION_MAX:
                self._dimension = len(vector)
            wanted = self._dimension
        if len(vector) != wanted:
            need = f"1 to {DIMENSION_MAX}" if wanted is None else wanted
            raise self._failure(f"must give vectors of dimension {need}, got {len(vector)}")
        peak = float(np.abs(vector).max())
        # Written positively, so that NaN is refused too.
        if not 0.0 < peak < np.inf:
            raise self._failure("gave a vector that is not finite, or all zero")
        # Scaled first, so that no square overflows.
        scaled = vector / peak
        unit: npt.NDArray[np.float32] = (scaled / np.linalg.norm(scaled)).astype(np.float32)
        return unit

    def _numbers(self, embedding: list[float] | str) -> npt.NDArray[np.float64]:
        if not isinstance(embedding, str):
            return np.array(embedding, dtype=np.float64)
        try:
            data = base64.b64decode(embedding, validate=True)
            return np.frombuffer(data, "<f4").astype(np.float64)
        except ValueError as error:
            raise self._failure(f"gave a vector that is no base64 of float32: {error}") from error

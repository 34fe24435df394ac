"""Where a remote embedder is reached, and how it is asked; checked, without a connection.

It is kept apart from what connects, as settings hold it whether or not anything is embedded.
"""

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from amv.checks import check_fields, shown
from amv.errors import InvalidInput

PATH = "/embeddings"
DIMENSION_MAX = 65_536
_ASKED_MAX_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An address that answers `POST {url}/embeddings` as OpenAI's does.

    *api_key* is sent as a bearer token, and shown nowhere.  *dimension* is what every vector must
    have; None takes it from the file, or from the first answer.  With *sends_dimension* the
    request asks for that many, which few models can do.  *encoding* is how vectors are asked for;
    both are understood whatever was asked for.

    A text is read up to *max_tokens*, by a careful estimate; longer content is split.  A request
    carries at most *batch_texts_max* texts and about *batch_bytes_max* bytes of them, and may take
    *timeout_s*.  It is made up to *tries* times; between two of them pass at most *wait_max_s*.
    """

    url: str
    api_key: str | None = field(default=None, repr=False)
    dimension: int | None = None
    sends_dimension: bool = False
    encoding: Literal["float", "base64"] = "float"
    max_tokens: int = 512
    batch_texts_max: int = 32
    batch_bytes_max: int = 256 << 10
    timeout_s: float = 10.0
    tries: int = 4
    wait_max_s: float = 30.0

    def __post_init__(self) -> None:
        key = self.api_key
        if key is not None and not (
            isinstance(key, str) and key and key.isascii() and key.isprintable() and " " not in key
        ):
            # What it is instead may be most of a key, so it is not shown.
            raise InvalidInput("api_key must be one word of printable ASCII, and this one is not")
        check_fields(self)
        _check_url(self.url)
        for need, holds in (
            (
                f"1 <= dimension <= {DIMENSION_MAX}",
                self.dimension is None or 1 <= self.dimension <= DIMENSION_MAX,
            ),
            ("a dimension to send", not self.sends_dimension or self.dimension is not None),
            ("8 <= max_tokens", self.max_tokens >= 8),
            ("1 <= batch_texts_max <= 2048", 1 <= self.batch_texts_max <= 2048),
            ("1 <= batch_bytes_max", self.batch_bytes_max >= 1),
            (f"0 < timeout_s <= {_ASKED_MAX_S:g}", 0.0 < self.timeout_s <= _ASKED_MAX_S),
            ("1 <= tries <= 100", 1 <= self.tries <= 100),
            (f"0 <= wait_max_s <= {_ASKED_MAX_S:g}", 0.0 <= self.wait_max_s <= _ASKED_MAX_S),
        ):
            if not holds:
                raise InvalidInput(f"an endpoint needs {need}, got {self!r}")

    @property
    def address(self) -> str:
        """Where requests go."""
        return self.url.rstrip("/").removesuffix(PATH) + PATH

    @property
    def host(self) -> str:
        """The host that the address names."""
        return urlsplit(self.url).hostname or ""


def _check_url(url: str) -> None:
    """Raise InvalidInput unless *url* is an address and nothing else; a secret is not repeated."""
    try:
        parts = urlsplit(url)
        has_host, _ = bool(parts.hostname), parts.port
    except ValueError as error:
        raise InvalidInput(f"an endpoint's url is not one: {error}") from error
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise InvalidInput(
            "an endpoint's url must hold no user, password, query or fragment; "
            "a key belongs into api_key (AMV_EMBEDDER_KEY)"
        )
    if parts.scheme not in ("http", "https") or not has_host or not url.isascii() or " " in url:
        raise InvalidInput(
            f"an endpoint needs a url such as http://localhost:11434/v1, got {shown(url)}"
        )

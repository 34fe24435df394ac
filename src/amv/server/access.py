"""Keys: who may do what, and where.

A key is `amv_<id>_<secret>` with 256 random bits in the secret.  It is shown
once; the store keeps an HMAC of it, made with a pepper that lies beside the
database and not in it, so that a copy of the database alone opens nothing.  A
key is scoped to the namespaces that begin with its own, and to a level:

- ``read``   searches, reads and lists
- ``write``  also adds, changes, forgets, and notes what was used
- ``admin``  also forgets whole namespaces, sweeps, and reads totals of all

Outside its namespaces a key gets the same answer whether anything is there or
not.
"""

import hmac
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha256

from amv.errors import AmvError, ConfigError, ItemNotFound
from amv.memory.item import ID_ALPHABET, Namespace, check_namespace
from amv.memory.ports import KeyRow, Store, Writer

_ID_CHARS = 8
_SECRET_CHARS = 52
PEPPER_BYTES = 32
FRESH_S = 1.0
"""How long a server trusts what it read of a key; a revocation takes that long at most."""

_CACHED_MAX = 4096
_NOBODY = KeyRow(key_id="", mac=bytes(32), namespace=(), level=0, created_s=0.0, revoked_s=0.0)


class Level(IntEnum):
    """What a key may do; each level includes those before it."""

    READ = 1
    WRITE = 2
    ADMIN = 3


class Unauthorised(AmvError):
    """There is no key in the request, or none that is known."""


class Forbidden(AmvError):
    """The key is known and does not reach that far."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever makes a request: the namespaces that begin with *prefix*, up to a level."""

    key_id: str
    prefix: Namespace
    level: Level

    def check_level(self, level: Level) -> None:
        """Raise Forbidden unless this principal may do what needs *level*."""
        if self.level < level:
            raise Forbidden(f"this needs a key of level {level.name.lower()}")

    def namespace(self, asked: Namespace | None) -> Namespace | None:
        """Return the namespace meant: the one asked for, or else the key's own.

        None only for a principal that is not bound to one.  Raises Forbidden
        outside the key's namespaces, whether anything is there or not.
        """
        if asked is None:
            return self.prefix or None
        name = check_namespace(asked)
        if name[: len(self.prefix)] != self.prefix:
            raise Forbidden("this key does not reach that namespace")
        return name


ANYONE = Principal(key_id="", prefix=(), level=Level.ADMIN)
"""Whoever asks, on a loopback address and while no key has been made."""


class Keys:
    """The keys of one store."""

    def __init__(self, store: Store, pepper: Callable[[], bytes]) -> None:
        self._store = store
        self._pepper = pepper

    def create(self, namespace: Namespace, level: Level, now_s: float) -> tuple[str, KeyRow]:
        """Make a key; return it, which is the only time it is told, and what is kept of it.

        An empty namespace reaches all.
        """
        if namespace:
            check_namespace(namespace)
        key_id = _random(_ID_CHARS)
        token = f"amv_{key_id}_{_random(_SECRET_CHARS)}"
        row = KeyRow(
            key_id=key_id,
            mac=_mac(self._pepper(), token),
            namespace=namespace,
            level=int(level),
            created_s=now_s,
            revoked_s=None,
        )
        self._store.write(lambda tx: tx.put_key(row))
        return token, row

    def list(self) -> list[KeyRow]:
        """Return all keys, revoked ones too, oldest first."""
        with self._store.read() as reader:
            return reader.keys()

    def revoke(self, key_id: str, now_s: float) -> KeyRow:
        """Revoke a key for ever; raises ItemNotFound if there is none of this id."""

        def work(tx: Writer) -> KeyRow:
            row = tx.key(key_id)
            if row is None:
                raise ItemNotFound(f"there is no key {key_id!r}")
            if row.revoked_s is None:
                row = row._replace(revoked_s=now_s)
                tx.put_key(row)
            return row

        return self._store.write(work)


class Gatekeeper:
    """Tells who makes a request, by the token in it."""

    def __init__(self, store: Store, pepper: Callable[[], bytes]) -> None:
        self._store = store
        self._pepper = pepper
        self._known: dict[str, tuple[KeyRow | None, float]] = {}
        self._any: tuple[bool, float] = (False, -FRESH_S)
        self._read_pepper: bytes | None = None

    def principal(self, token: str | None) -> Principal:
        """Return who a token belongs to; without any key in the store, everyone is `ANYONE`.

        Raises Unauthorised.
        """
        if not self.has_keys():
            return ANYONE
        if token is None:
            raise Unauthorised("send a key: Authorization: Bearer amv_...")
        prefix, _, rest = token.partition("_")
        key_id = rest.partition("_")[0]
        is_one = prefix == "amv" and len(key_id) == _ID_CHARS
        row = (self._key(key_id) if is_one else None) or _NOBODY
        # Compared in any case, so that the time taken tells nothing.
        is_right = hmac.compare_digest(row.mac, _mac(self._own_pepper(), token))
        if not is_right or row.revoked_s is not None:
            raise Unauthorised("this key is not known, or was revoked")
        return Principal(row.key_id, row.namespace, Level(row.level))

    def has_keys(self) -> bool:
        """Return whether any key was ever made: from then on each request needs one."""
        has, read_s = self._any
        now_s = time.monotonic()
        if not has and now_s - read_s >= FRESH_S:
            with self._store.read() as reader:
                has = bool(reader.keys())
            self._any = (has, now_s)
        return has

    def secret(self) -> bytes | None:
        """Return what only this server knows; None while no key has been made."""
        return self._own_pepper() if self.has_keys() else None

    def _own_pepper(self) -> bytes:
        if self._read_pepper is None:
            self._read_pepper = self._pepper()
        return self._read_pepper

    def _key(self, key_id: str) -> KeyRow | None:
        now_s = time.monotonic()
        row, read_s = self._known.get(key_id, (None, -FRESH_S))
        if now_s - read_s >= FRESH_S:
            with self._store.read() as reader:
                row = reader.key(key_id)
            if len(self._known) >= _CACHED_MAX:
                self._known.clear()
            self._known[key_id] = (row, now_s)
        return row


def pepper_beside(path: str) -> bytes:
    """Return the pepper that lies beside a database; made at first use, readable by its owner.

    Raises ConfigError if it can't be read or made.
    """
    beside = f"{path}.pepper"
    try:
        try:
            with open(beside, "rb") as file:
                pepper = file.read(PEPPER_BYTES + 1)
        except FileNotFoundError:
            pepper = secrets.token_bytes(PEPPER_BYTES)
            half_written = f"{beside}.{secrets.token_hex(8)}"
            descriptor = os.open(half_written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(pepper)
                    file.flush()
                    os.fsync(file.fileno())
                os.link(half_written, beside)
            except FileExistsError:
                return pepper_beside(path)
            finally:
                os.unlink(half_written)
    except OSError as error:
        raise ConfigError(f"can't read or make {beside!r}: {error.strerror}") from error
    if len(pepper) != PEPPER_BYTES:
        raise ConfigError(f"{beside!r} must hold {PEPPER_BYTES} bytes, and does not")
    return pepper


def _mac(pepper: bytes, token: str) -> bytes:
    return hmac.digest(pepper, token.encode("utf-8", "surrogateescape"), sha256)


def _random(chars: int) -> str:
    return "".join(ID_ALPHABET[byte & 31] for byte in secrets.token_bytes(chars))

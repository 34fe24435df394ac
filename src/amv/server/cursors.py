"""Cursors that tell nothing: a page ends at a number that counts the items of all.

So a cursor is sealed with a secret of the server before it leaves: encrypted
and authenticated, the nonce being the authentication itself (as in SIV, RFC
5297, with HMAC-SHA256 for both halves).  The same place has the same cursor;
one of another namespace, or made up, is refused.
"""

import base64
import binascii
import hmac
import json
from hashlib import sha256

from amv.errors import InvalidInput
from amv.memory.item import Namespace
from amv.memory.results import decode_cursor, encode_cursor

_KEY_BYTES = 8
_TAG_BYTES = 16


def sealed(cursor: str, namespace: Namespace, secret: bytes) -> str:
    """Return a memory's cursor as the gateway gives it to a caller."""
    key = decode_cursor(cursor).to_bytes(_KEY_BYTES, "big")
    tag = _tag(key, namespace, secret)
    return base64.urlsafe_b64encode(tag + _masked(key, tag, secret)).decode()


def opened(given: str, namespace: Namespace, secret: bytes) -> str:
    """Return the cursor behind a sealed one; raises InvalidInput for any other text."""
    try:
        data = base64.b64decode(given.encode(), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput("a cursor comes from an earlier page of the same list") from error
    tag, hidden = data[:_TAG_BYTES], data[_TAG_BYTES:]
    key = _masked(hidden, tag, secret)
    is_ours = len(hidden) == _KEY_BYTES and hmac.compare_digest(tag, _tag(key, namespace, secret))
    if not is_ours:
        raise InvalidInput("a cursor comes from an earlier page of the same list")
    return encode_cursor(int.from_bytes(key, "big"))


def _tag(key: bytes, namespace: Namespace, secret: bytes) -> bytes:
    bound = b"cursor tag " + key + json.dumps(namespace).encode()
    return hmac.digest(secret, bound, sha256)[:_TAG_BYTES]


def _masked(key: bytes, tag: bytes, secret: bytes) -> bytes:
    mask = hmac.digest(secret, b"cursor mask " + tag, sha256)
    return bytes(a ^ b for a, b in zip(key, mask, strict=False))

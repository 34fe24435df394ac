"""What is raised for a row or a blob that can't be decoded."""

import msgspec

from amv.errors import StoreDamaged

#: What decoding damaged data raises, by numpy, msgspec, apsw (for text) and our own types.
UNDECODABLE = (ValueError, TypeError, LookupError, OverflowError, msgspec.DecodeError)


def damaged(what: str) -> StoreDamaged:
    """Return the error to raise for *what*, from what decoding it raised.

    >>> damaged("a vector")
    StoreDamaged('a vector is damaged; run `amv doctor`')
    """
    return StoreDamaged(f"{what} is damaged; run `amv doctor`")

"""Every error AMV raises on purpose.

    AmvError
    ├─ InvalidInput (ValueError)      the caller can never succeed with this
    │  ├─ InvalidNamespace
    │  └─ DimensionMismatch
    │     └─ EmbedderChanged         the store holds another embedder's vectors
    ├─ ItemNotFound (LookupError)
    ├─ Conflict                       the item is not in the state the call needs
    ├─ StoreError                     driver error in __cause__
    │  ├─ StoreUnavailable            safe to retry
    │  ├─ StoreClosed
    │  ├─ OutcomeUnknown              the write may or may not have happened
    │  ├─ StoreDamaged                what is in the file can't be read
    │  └─ SchemaMismatch
    ├─ EmbedderError
    ├─ PolicyError (InvalidInput)     the policy says something that can't be
    ├─ PermitRefused                  no permit, or one for something else, used or expired
    │  ├─ PolicyChanged
    │  └─ MemoryChanged
    ├─ ActionAbstained                carries the decision
    ├─ RepairNeeded                   carries the decision, with the value that was read
    └─ ConfigError

A message says what was needed and what came, and what to do next where there
is something to do.
"""

from typing import Any


class AmvError(Exception):
    """Base of every error in this package.

    Errors are copied and pickled with all they carry, so that they reach another process whole.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        # Without __init__, which takes other arguments than the message it makes of them.
        return _remade, (type(self), self.args), self.__dict__


def _remade(kind: type[AmvError], args: tuple[object, ...]) -> AmvError:
    return kind.__new__(kind, *args)


class InvalidInput(AmvError, ValueError):
    """The caller can never succeed with this input."""


class InvalidNamespace(InvalidInput):
    """A namespace is not a tuple of one to eight non-empty strings."""


class DimensionMismatch(InvalidInput):
    """A vector has another dimension, or comes from another model, than the store's."""


class EmbedderChanged(DimensionMismatch):
    """The store holds vectors of another embedder than the one it was opened with."""


class ItemNotFound(AmvError, LookupError):
    """No item has this id, or it was forgotten."""


class Conflict(AmvError):
    """The item is not in the state that the call needs."""


class StoreError(AmvError):
    """The store failed; the driver's error is in ``__cause__``."""


class StoreUnavailable(StoreError):
    """The store could not be reached or was busy; nothing was written, a retry is safe."""


class StoreClosed(StoreError):
    """The memory was closed before this call."""


class OutcomeUnknown(StoreError):
    """The write may or may not have happened; repeat it with the same item id."""


class StoreDamaged(StoreError):
    """What is in the file can't be read as what it should be."""


class SchemaMismatch(StoreError):
    """The file is not an AMV database, or one of a newer version."""


class EmbedderError(AmvError):
    """The embedding model could not be loaded or run."""


class PolicyError(InvalidInput):
    """The policy says something that can't be."""


class PermitRefused(AmvError):
    """No permit, or one for another action, used already, or expired; nothing was done."""

    code = "not_redeemed"


class PolicyChanged(PermitRefused):
    """The permit was given under another policy; decide about the action again."""

    code = "policy_changed"


class MemoryChanged(PermitRefused):
    """The permit rests on what is remembered otherwise by now; decide about the action again."""

    code = "memory_changed"


class ActionAbstained(AmvError):
    """The gate does not let the action go ahead; ``decision`` says why.

    Where a person can let it go ahead, ``approval_id`` names the request.
    """

    def __init__(self, decision: Any) -> None:
        asks = f"; a person can approve request {decision.approval_id}"
        super().__init__(decision.says + (asks if decision.approval_id else ""))
        self.decision = decision

    @property
    def approval_id(self) -> str:
        """The request to a person, to be approved or rejected; empty if nobody is asked."""
        return str(self.decision.approval_id)


class RepairNeeded(ActionAbstained):
    """The action rests on a claim that was refuted; ``decision`` has the value that was read."""


class ConfigError(AmvError):
    """A setting or an environment variable is not usable."""

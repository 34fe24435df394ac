"""Decisions: what the gate answers, and what it keeps to answer the same again."""

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec

from amv.checks import shown
from amv.guard.bind import Premise
from amv.guard.judge import Case, Evidence, Judgement
from amv.guard.suggest import Suggestion


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """A check to be made: which verifier, with which arguments, and until when it may answer."""

    verifier: str
    arguments: dict[str, Any]
    premises: tuple[str, ...]
    cost: float
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """Leave to execute one action once, until *expires_s* (unix seconds)."""

    token: str
    digest: str
    expires_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PremiseView:
    """A premise as a decision tells of it; *before* and *after* are P(violated)."""

    name: str
    subject: str
    attribute: str
    remembered: Any
    is_critical: bool
    theta: float
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckView:
    """A check that was made, as a decision tells of it.

    *ended* is "answered", or else "inconclusive" (it read nothing), "failed",
    "timed_out", "refused" (not independent) or "not_asked"; *problem* says more.
    *found* holds what it found of each premise: confirmed, refuted, inconclusive.
    """

    verifier: str
    ended: str
    found: dict[str, str]
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the gate answers about one action.

    *verdict* is PROCEED, VERIFY, REPAIR or ABSTAIN, *code* why in one word, and
    *reason* in a sentence.  *risk* is R, the expected loss of executing, *harm*
    H, *expected_loss* that of the plan.  *voi* is the value of information of
    each check.  *check* is the one to make if the verdict is VERIFY, *permit*
    is there if it is PROCEED, *values* holds what verifiers read, by premise,
    *checks* which were made and how each ended.  *suggestions* are claims that
    arguments nobody checks may have come from; they weigh nothing.  *arguments*
    are the action's, until they are forgotten.  *certificate* says what the
    certificate is to it: "in_force", "stale", "withdrawn", or nothing without one.
    """

    id: str
    tool: str
    digest: str
    verdict: str
    code: str
    reason: str
    mode: str
    namespace: tuple[str, ...]
    risk: float = 0.0
    harm: float = 0.0
    expected_loss: float = 0.0
    premises: tuple[PremiseView, ...] = ()
    voi: dict[str, float]
    planner: str = ""
    check: CheckRequest | None = None
    permit: Permit | None = None
    values: dict[str, Any]
    approval_id: str = ""
    checks: tuple[CheckView, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    arguments: dict[str, Any] = field(default_factory=dict)
    certificate: str = ""

    @property
    def call(self) -> str:
        """The action as a call, its arguments shortened; none are left of one that is forgotten."""
        given = (f"{name}={shown(value)}" for name, value in self.arguments.items())
        return f"{self.tool}({', '.join(given)})"

    @property
    def is_unjudged(self) -> bool:
        """Whether no loss is known of the action."""
        return self.code in ("unknown_tool", "gate_error")

    @property
    def says(self) -> str:
        """The verdict with its reason."""
        return f"{self.verdict} {self.tool}: {self.reason}"


class Ground(NamedTuple):
    """What decisions are made on: the digests of the policy's rules and of the calibration."""

    rules: str
    calibration: str


class Screen(msgspec.Struct, frozen=True, kw_only=True):
    """The certificate by which a decision is screened; see `amv.guard.standing`.

    It certifies that with the screen *harm_max* at most *epsilon* of the actions
    that go ahead do harm.
    """

    id: str
    state: Literal["in_force", "stale", "withdrawn"]
    harm_max: float
    epsilon: float


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What was answered, where that is not what the plan says; the reason is in `Words`.

    *approval_id* is the request to a person that came with it, if one did.
    """

    verdict: str
    code: str
    approval_id: str = ""


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """The first record of a decision: the case, and hashes of what it is about.

    *audit* is the probability with which it was drawn to be audited, *is_audited*
    whether it was.  *screen* is there if a certificate was.  *answer* and *words*
    are those of the moment: what was answered, and the keyed hash of the words
    that were kept then; so are those of `Observed`.  *owner* is the keyed hash of
    the principal, *key* the idempotency key.
    """

    at_s: float
    tool: str
    digest: str
    policy: str
    rules: str = ""
    calibration: str
    mode: str
    code: str
    key: str = ""
    audit: float = 0.0
    is_audited: bool = False
    screen: Screen | None = None
    owner: str = ""
    case: Case | None
    judgement: Judgement | None
    premises: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    answer: Answer | None = None
    words: str = ""

    @property
    def ground(self) -> Ground:
        """What the decision is made on."""
        return Ground(self.rules, self.calibration)


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """A record of what a check found, and of the plan after it.

    *is_evidence* is false where something went wrong; *ended* says in a word what
    (see `CheckView`), and `Words` says more.
    """

    at_s: float
    evidence: Evidence
    is_evidence: bool = True
    ended: str = ""
    reading: str = ""
    judgement: Judgement
    answer: Answer | None = None
    words: str = ""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A record of what became of a grant, or of a request to a person.

    *what* is the state it came to, *name* the idempotency key or the request, and
    *row* the hash of all that is kept of it.  *by* says who decided a request, and
    *by_key* with which key, if that was told over HTTP.
    """

    at_s: float
    what: str
    name: str = ""
    row: str = ""
    by: str = ""
    by_key: str = ""


class Labelled(msgspec.Struct, frozen=True, kw_only=True):
    """A record of what was true: of each premise named, whether it was violated.

    *weight* is one over the probability with which the decision was looked into.
    """

    at_s: float
    violated: dict[str, bool]
    weight: float = 1.0
    by: str = ""


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept beside the records, and can be forgotten.

    *found* are the items that say what checks read; *problems* tells, by check,
    why it was no evidence, *unjudged* why the action could not be judged, and
    *answered* why it was answered what the plan does not say.
    """

    namespace: tuple[str, ...]
    session: str
    principal: str
    arguments: dict[str, Any]
    premises: tuple[Premise, ...]
    values: dict[str, Any] = {}
    found: tuple[str, ...] = ()
    problems: dict[str, str] = {}
    suggestions: tuple[Suggestion, ...] = ()
    unjudged: str = ""
    answered: str = ""


def plain(decision: Decision) -> dict[str, Any]:
    """Return a decision as plain data, for JSON."""
    data = msgspec.to_builtins(decision)
    assert isinstance(data, dict)
    return data

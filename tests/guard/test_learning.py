"""Learning: from labels to a calibration, and decisions that are made with it."""

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import amv
from amv.guard.calibration import PRIOR, Calibration, Calibrator, Label
from amv.guard.labels import Told
from amv.guard.learning import Online, learn
from amv.guard.policy import VerifierRule
from amv.guard.ports import Finding
from amv.guard.prior import Features, LogisticPrior
from amv.guard.reliability import Answer, Reliability
from amv.guard.state import loaded
from amv.guard.survival import Aged, Survival
from amv.retelling import retold
from amv.testing import FakeClock
from amv.verifiers import Verifiers
from amv.verifiers import lifetime_s as lifetime_of
from tests.guard.gates import CANCEL, OWNER, VERIFIER, cancel, opened, policy_of, remember

P = LogisticPrior()


def told_of(aged: Aged, number: int = 1) -> Told:
    said = P(aged.features)
    return Told(number, aged.features, aged.kind, said, aged.is_violated, aged.weight, "checked")


def drawn(count: int, seed: int, chance_of: Callable[[str, float], float]) -> list[Told]:
    """Return labels of two kinds, wrong with the chance that is given for kind and age."""
    draw, found = random.Random(seed), []
    for number in range(1, count + 1):
        kind, age_h = draw.choice(["a", "b"]), draw.uniform(0.0, 700.0)
        is_violated = draw.random() < chance_of(kind, age_h)
        found.append(told_of(Aged(Features(age_h=age_h, trust=0.8), kind, is_violated), number))
    return found


def by_hazard(kind: str, age_h: float) -> float:
    return 1.0 - math.exp(-age_h * {"a": 1.0 / 50.0, "b": 1.0 / 2000.0}[kind])


def by_ramp(kind: str, age_h: float) -> float:
    return min(0.9, 20.0 * P(Features(age_h=age_h, trust=0.8)))


def test_hazards_are_learned_where_they_say_more_than_the_ramp() -> None:
    found = learn(drawn(600, 1, by_hazard), [], P, through=9)
    survival = found.calibration.survival

    assert found.ages["hazards by kind"] < found.ages["published ramp"]
    assert survival.kinds["a"] == pytest.approx(1.0 / 50.0, rel=0.4)
    assert survival.kinds["b"] == pytest.approx(1.0 / 2000.0, rel=0.4)
    assert found.calibration.through == 9
    fresh, old = (
        found.calibration.said(P, Features(age_h=age, trust=0.8), "a") for age in (1.0, 200.0)
    )
    assert fresh < 0.15
    assert old > 0.9


def test_the_ramp_stays_where_it_is_as_good() -> None:
    """Of a true ramp, hazards can only be worse; what it says is calibrated all the same."""
    found = learn(drawn(800, 3, by_ramp), [], P)

    assert found.ages["published ramp"] < found.ages["hazards by kind"]
    assert found.calibration.survival == Survival()
    assert found.fitted.calibrator.sort != "identity"


def test_too_little_teaches_nothing() -> None:
    few = [one for one in drawn(60, 4, by_hazard) if not one.is_violated]
    found = learn(few, [], P)

    assert (found.ages, found.fitted.losses) == ({}, {})
    assert found.calibration.digest() == PRIOR
    assert learn([], [], P).calibration == Calibration()


def test_what_was_told_again_teaches_hazards_beside_the_labels() -> None:
    """Labels choose what is better; what the memory was told again makes it firmer."""
    labels = drawn(120, 5, by_hazard)
    draw = random.Random(6)
    again = [
        Aged(Features(age_h=age, trust=0.8), "b", draw.random() < by_hazard("b", age))
        for age in (draw.uniform(0.0, 4000.0) for _ in range(3000))
    ]
    alone, both = (learn(labels, [], P, retold=more).calibration.survival for more in ([], again))

    assert both.kinds["b"] == pytest.approx(1.0 / 2000.0, rel=0.15)
    assert both.kinds["b"] != alone.kinds["b"]


def test_checks_are_learned_of_only_where_enough_was_told() -> None:
    right = [Answer("desk", True, True)] * 50
    found = learn([], [*right, Answer("phone", True, True)], P).calibration

    assert found.verifiers["desk"].sensitivity is not None
    assert found.verifiers["phone"].sensitivity is None
    assert found.digest() != PRIOR


# ---------------------------------------------------------------- one label after another


def test_without_a_label_nothing_is_moved() -> None:
    assert Online().calibrator() == Calibrator(sort="platt", numbers=(1.0, 0.0))


def test_labels_move_what_is_said_to_what_is_so() -> None:
    draw, online = random.Random(7), Online()
    for _ in range(3000):
        p = draw.uniform(0.001, 0.2)
        z = 0.7 * math.log(p / (1.0 - p)) + 1.5
        online.update(Label(p, draw.random() < 1.0 / (1.0 + math.exp(-z))))

    slope, offset = online.calibrator().numbers
    assert slope == pytest.approx(0.7, abs=0.15)
    assert offset == pytest.approx(1.5, abs=0.4)


def test_one_label_of_great_weight_throws_nothing_far() -> None:
    """A step along the gradient would: by weight times error."""
    online = Online()
    online.update(Label(0.01, True, 1e6))

    assert 0.5 < online.calibrator()(0.01) < 0.9999
    assert all(math.isfinite(number) for number in online.calibrator().numbers)


# ---------------------------------------------------------------- a gate that learns

SORTS = {"fresh": (0.0, 0.02), "week": (168.0, 0.05), "month": (720.0, 0.55)}
"""By how old orders are: the age in hours, and how many are wrong."""


def lived(guard: amv.Guard, clock: FakeClock, count: int, seed: int) -> float:
    """Have a gate decide of orders whose truth is known; return how many of them are wrong."""
    draw = random.Random(seed)
    wrong: dict[str, bool] = {}
    guard.verifier("order_status")(lambda order_id: "delivered" if wrong[order_id] else "pending")
    for number in range(count):
        name, (age_h, share) = f"{seed}-{number}", draw.choice(list(SORTS.values()))
        remember(guard, order_id=name, source_trust=1.0)
        clock.advance(age_h * 3600.0)
        wrong[name] = draw.random() < share
        guard.decide(cancel(name))
    return sum(wrong.values()) / count


def gate(clock: FakeClock, seed: int, audit: float, **how: Any) -> amv.Guard:
    """Open a gate that only checks what is old, and audits a share of the rest."""
    policy = policy_of(
        verifiers={"order_status": {**VERIFIER, "cost": 1.0, "sensitivity": 0.999}},
        defaults={"audit": audit},
    )
    return opened(policy=policy, clock=clock, chance=random.Random(seed).random, **how)


def mean_said(found: Calibration) -> float:
    said = [
        found.said(P, Features(age_h=age_h, trust=1.0), "status") for age_h, _ in SORTS.values()
    ]
    return sum(said) / len(said)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_by_weights_what_is_said_of_all_is_as_often_so(seed: int) -> None:
    """Of known truth: what a plan checks is what looks doubtful, and is no fair sample."""
    clock = FakeClock()
    with gate(clock, seed, 0.15) as guard:
        truth = lived(guard, clock, 900, seed)
        told = guard.labels()
        found = guard.learn()

    sources = {
        source: sum(one.source == source for one in told) for source in ("checked", "audited")
    }
    assert min(sources.values()) > 50
    plain = Online()
    for one in told:
        plain.update(Label(one.said, one.is_violated))
    unweighted = Calibration(steps=(plain.calibrator(),))

    assert mean_said(found) == pytest.approx(truth, abs=0.04)
    assert abs(mean_said(found) - truth) < abs(mean_said(unweighted) - truth)


def test_decisions_are_made_with_what_was_learned_and_each_replays() -> None:
    clock = FakeClock()
    with gate(clock, 4, 0.3) as guard:
        lived(guard, clock, 60, 4)
        assert guard.calibration.digest() == PRIOR
        before = guard.decide(cancel("4-0"), run_checks=False)

        found = guard.learn()

        assert guard.calibration == found
        assert found.digest() != PRIOR
        remember(guard, order_id="new", source_trust=1.0)
        after = guard.decide(cancel("new"), run_checks=False)
        p = found.said(P, Features(age_h=0.0, trust=1.0), "status")
        assert after.premises[0].before == pytest.approx(p, rel=1e-6)
        assert guard.replay() == []
        assert before.id != after.id

        # Learning again begins where it began before: it counts no label twice.
        guard.learn()
        assert guard.calibration == found


def test_a_calibration_from_a_file_is_learned_on_top_of(tmp_path: Path) -> None:
    """Labels up to *through* are in it already."""
    clock, path = FakeClock(), str(tmp_path / "amv.db")
    with gate(clock, 5, 0.5, path=path) as guard:
        lived(guard, clock, 40, 5)
        last = guard.labels()[-1].number
    given = Calibration(survival=Survival(hazard=0.001), through=last)
    with gate(clock, 5, 0.5, path=path, calibration=given) as guard:
        assert guard.learn() == given

        lived(guard, clock, 40, 6)
        assert guard.learn(namespace=("nobody",)) == given
        found = guard.learn(namespace=OWNER)

        assert found.survival == given.survival
        assert len(found.steps) == 1
        assert found.through > last
        assert guard.replay() == []


def told(guard: amv.Guard, count: int, seed: int, *, audit: float = 0.0) -> None:
    """Have orders decided about and the truth told, where the check errs in one of five."""
    draw, truth = random.Random(seed), dict[str, bool]()

    def look(order_id: str) -> str:
        says_wrong = truth[order_id] != (draw.random() < 0.2)
        return "delivered" if says_wrong else "pending"

    guard.verifier("order_status")(look)
    for number in range(count):
        name = f"{seed}-{number}"
        truth[name] = draw.random() < 0.5
        remember(guard, order_id=name, source_trust=0.6 if not audit else 1.0)
        decided = guard.decide(cancel(name))
        guard.label(decided.id, {"status": truth[name]}, by="ann")


def test_how_reliable_checks_are_is_learned_as_decisions_are_told(tmp_path: Path) -> None:
    """In one pass, on top of what a file knew, and used from the next decision on."""
    path, policy = str(tmp_path / "amv.db"), policy_of(defaults={"audit": 1.0})
    with opened(path, policy) as guard:
        told(guard, 200, 1)
        first = guard.learn()
        own = first.verifiers["order_status"]
        assert own.sensitivity == pytest.approx(0.8, abs=0.1)
        assert own.specificity == pytest.approx(0.8, abs=0.1)
        assert guard.learn() == first
        remember(guard, order_id="next", source_trust=0.6)
        used = guard.decide(cancel("next"), run_checks=False)
        with guard._store.read() as reader:
            (check,) = loaded(reader, used.id).case.checks
        assert (check.sensitivity, check.specificity) == (own.sensitivity, own.specificity)
        assert guard.replay() == []
    # What the check says is not worth its price any more, so that an audit asks for it.
    audit = policy_of(defaults={"audit": 1.0})
    with opened(path, audit, calibration=first, chance=lambda: 0.0) as guard:
        assert guard.learn() == first
        told(guard, 50, 2)

        own, before = guard.learn().verifiers["order_status"], own

        assert own.violated + own.held == pytest.approx(before.violated + before.held + 50.0)
        assert guard.replay() == []


def test_answers_that_only_an_audit_asked_for_stand_for_as_many_as_it_was_drawn_from() -> None:
    policy = policy_of(
        verifiers={"order_status": {**VERIFIER, "cost": 50.0}}, defaults={"audit": 0.25}
    )
    with opened(policy=policy, chance=lambda: 0.1) as guard:
        told(guard, 5, 3, audit=0.25)

        assert [one.weight for one in guard.log().answers] == [4.0] * 5


def test_answers_alone_are_learned_of() -> None:
    """Where no claim had a probability of its own, checks are known by what was told."""
    with opened(policy=policy_of(defaults={"audit": 1.0})) as guard:
        guard.verifier("order_status")(lambda order_id: "pending")
        for number in range(40):
            decided = guard.decide(cancel(f"unknown{number}"))
            guard.label(decided.id, {"status": False})
        assert guard.labels() == []

        found = guard.learn()

        assert found.steps == ()
        assert found.through > 0
        assert found.verifiers["order_status"].specificity is not None


def test_a_stuck_check_is_found_without_a_label() -> None:
    """Where it is known what checks are like; its word is taken for no claim, and told truth is."""
    others = {
        f"k{n}": Reliability(
            sensitivity=0.99, specificity=0.99, violated=200.0, held=200.0,
            caught=0.0 if n == 0 else 200.0, passed=200.0,
        )
        for n in range(10)
    }  # fmt: skip
    survival = Survival(hazard=1.0 / 720.0)
    clock = FakeClock()
    given = Calibration(survival=survival, verifiers=others)
    with opened(calibration=given, clock=clock) as guard:
        guard.verifier("order_status")(lambda order_id: "pending")
        for number in range(40):
            remember(guard, order_id=f"W{number}")
        clock.advance(150 * 3600.0)
        for number in range(40):
            guard.decide(cancel(f"W{number}"))

        found = guard.learn(claims=False)
        guess = found.verifiers["order_status"].supposed
        assert guess is not None
        assert guess.sensitivity < 0.3
        assert (found.steps, found.verifiers["k1"]) == ((), others["k1"])
        assert found.digest() != given.digest()
        assert guard.learn().steps != ()
        assert guard.replay() == []


def reliable(**how: Any) -> Calibration:
    return Calibration(verifiers={"order_status": Reliability(**how)})


def test_how_reliable_a_check_proved_is_what_its_answer_weighs() -> None:
    said = {}
    for sensitivity in (0.99, 0.6):
        with opened(calibration=reliable(sensitivity=sensitivity)) as guard:
            remember(guard, source_trust=0.6)
            asked = guard.decide(cancel(), run_checks=False)
            said[sensitivity] = guard.evidence(asked.id, "order_status", "pending").harm
            assert guard.replay() == []

    assert said[0.99] < said[0.6]


@pytest.mark.parametrize(
    "how",
    [
        {"sensitivity": 0.4, "specificity": 0.6},
        {"sensitivity": 0.3, "specificity": 0.3},
        # One is learned, and the other as declared: 0.95.
        {"sensitivity": 0.05},
        {"specificity": 0.01},
    ],
)
def test_a_check_that_proved_to_tell_nothing_is_not_made(how: dict[str, float]) -> None:
    rule = {**CANCEL, "loss": {"wrong": 1000.0, "abstain": 5.0}}
    policy = policy_of(actions={"cancel_order": rule})
    for calibration, is_asked in ((Calibration(), True), (reliable(**how), False)):
        with opened(policy=policy, calibration=calibration) as guard:
            asked: list[str] = []
            guard.verifier("order_status")(lambda order_id, asked=asked: asked.append(order_id))
            remember(guard, source_trust=0.6)

            decided = guard.decide(cancel())

            assert bool(asked) is is_asked
            assert decided.verdict == "ABSTAIN"
            assert guard.replay() == []


@pytest.mark.parametrize(
    ("hazard", "declared_s", "used_s"),
    [
        (1.0, 36_000.0, 3600.0),
        # What was declared is the most for which a person vouched; 0 keeps no reading at all.
        (0.01, 36_000.0, 36_000.0),
        (1.0, 0.0, 0.0),
        (None, 36_000.0, 36_000.0),
    ],
)
def test_what_was_learned_makes_a_reading_old_sooner_and_never_later(
    hazard: float | None, declared_s: float, used_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = []

    def run(name: str, rule: VerifierRule, arguments: Any, *, worth: float) -> Finding:
        used.append(rule.fresh_s)
        return Finding("pending")

    monkeypatch.setattr(Verifiers, "run", staticmethod(run))
    policy = policy_of(verifiers={"order_status": {**VERIFIER, "fresh_s": declared_s}})
    learned = Calibration(survival=Survival(hazard=hazard, bias=4.0))
    with opened(policy=policy, calibration=learned) as guard:
        remember(guard)
        guard.decide(cancel())

    assert used == [used_s]


@pytest.mark.parametrize(("check_weight", "lifetime_s"), [(1.0, 0.6), (2.0, 1.2), (0.0, 0.0)])
def test_a_reading_is_used_for_as_long_as_a_new_check_would_cost_more(
    check_weight: float, lifetime_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 120 at stake, 0.02 buys 3,600 s x 0.02 / 120; where checks weigh twice, twice that."""
    used = []

    def run(name: str, rule: VerifierRule, arguments: Any, *, worth: float) -> Finding:
        used.append(lifetime_of(rule, worth))
        return Finding("pending")

    monkeypatch.setattr(Verifiers, "run", staticmethod(run))
    policy = policy_of(
        verifiers={"order_status": {**VERIFIER, "fresh_s": 3600.0}},
        defaults={"check_weight": check_weight},
    )
    with opened(policy=policy) as guard:
        remember(guard, source_trust=0.9)
        guard.decide(cancel())

    assert used == pytest.approx([lifetime_s])


def test_the_fastest_of_several_kinds_says_when_a_reading_is_old() -> None:
    both = Calibration(survival=Survival(hazard=0.01, kinds={"fast": 1.0}))

    assert both.changes_s(["fast", "slow"]) == 3600.0
    assert both.changes_s(["slow"]) == 360_000.0
    assert Calibration().changes_s(["any"]) is None


# ---------------------------------------------------------------- what a memory was told again


def test_what_the_memory_was_told_again_says_how_long_claims_last() -> None:
    clock = FakeClock()
    with opened(clock=clock) as guard:
        remember(guard, "pending")
        clock.advance(3600.0)
        remember(guard, "pending")
        clock.advance(7200.0)
        remember(guard, "delivered")
        # Not of this: another attribute, no claim, an untrusted source, whom nobody asked about.
        other = amv.Claim("order/W1", "colour", "red")
        for trust in (0.9, 0.9):
            guard.memory.add("red", namespace=OWNER, claim=other, source_trust=trust)
        guard.memory.add("no claim", namespace=OWNER)
        clock.advance(60.0)
        remember(guard, "lost", source_trust=0.1)

        found = retold(guard.memory, guard.policy, namespace=OWNER)

        seen = [(one.kind, one.features.age_h, one.is_violated) for one in found]
        assert seen == [("status", 1.0, False), ("status", 2.0, True)]
        assert retold(guard.memory, guard.policy) == found
        assert retold(guard.memory, guard.policy, namespace=("bob",)) == []
    with opened(policy={"version": 1}) as guard:
        remember(guard)
        assert retold(guard.memory, guard.policy) == []


def test_a_kind_that_the_policy_names_is_that_of_what_was_told_again() -> None:
    clock = FakeClock()
    premise = {**CANCEL["rests_on"]["status"], "kind": "order_status"}
    policy = policy_of(actions={"cancel_order": {**CANCEL, "rests_on": {"status": premise}}})
    with opened(policy=policy, clock=clock) as guard:
        for value in ("pending", "delivered"):
            remember(guard, value)
            clock.advance(3600.0)

        assert [one.kind for one in retold(guard.memory, guard.policy)] == ["order_status"]


def test_more_than_one_page_of_memory_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amv.retelling.LISTED_MAX", 2)
    clock = FakeClock()
    with opened(clock=clock) as guard:
        for number in range(5):
            remember(guard, f"value {number}")
            clock.advance(3600.0)

        assert len(retold(guard.memory, guard.policy)) == 4

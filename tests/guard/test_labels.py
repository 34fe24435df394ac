"""Labels: which checks count, of which claims."""

from typing import Any

import pytest

import amv
from amv.guard.labels import read_label
from amv.loading import load_policy

NS = ("a",)
POLICY: dict[str, Any] = {
    "version": 1,
    "verifiers": {"desk": {"cost": 0.01}, "phone": {"cost": 0.02}},
    "actions": {
        "cancel": {
            "loss": {"wrong": 1000, "abstain": 5},
            "rests_on": {
                "status": {
                    "claim": "order/{id}/status",
                    "require": "pending",
                    "verify_with": ["desk", "phone"],
                }
            },
        }
    },
}
CANCEL = amv.Action(tool="cancel", arguments={"id": "1"}, namespace=NS)


@pytest.fixture
def memory() -> Any:
    with amv.Memory.open(":memory:", embedder="hashing") as found:
        yield found


def guard_of(memory: amv.Memory, *answers: object) -> amv.Guard:
    guard, left = amv.Guard(load_policy(POLICY), memory), list(answers)
    for name in ("desk", "phone"):
        guard.verifier(name)(lambda id: left.pop(0))
    return guard


def remember(memory: amv.Memory, value: str = "pending", trust: float = 0.6) -> None:
    claim = amv.Claim("order/1", "status", value)
    memory.add("x", namespace=NS, claim=claim, source_trust=trust)


@pytest.mark.parametrize(("read", "is_violated"), [("pending", False), ("delivered", True)])
def test_the_first_check_that_tells_something_is_the_label(
    memory: amv.Memory, read: str, is_violated: bool
) -> None:
    remember(memory)
    guard = guard_of(memory, None, read, read)
    decision = guard.decide(CANCEL)

    (told,) = guard.labels()
    assert told.number == guard.number_of(decision.id)
    assert told.said == decision.premises[0].before
    assert told.is_violated is is_violated
    assert (told.kind, told.weight, told.source) == ("status", 1.0, "checked")
    assert told.features.trust == 0.6


def test_what_nobody_checked_or_ruled_makes_no_label(memory: amv.Memory) -> None:
    remember(memory)
    guard = guard_of(memory, None, None)
    guard.decide(CANCEL)
    guard.decide(amv.Action(tool="unknown", namespace=NS))

    assert guard.labels() == []


@pytest.mark.parametrize(("value", "trust"), [("delivered", 0.9), ("pending", 0.1), (None, 0.9)])
def test_what_was_given_no_probability_of_its_own_makes_no_label(
    memory: amv.Memory, value: str | None, trust: float
) -> None:
    """Unknown, of an untrusted source, or no support of the action."""
    if value is not None:
        remember(memory, value, trust)
    guard = guard_of(memory, "pending", "pending")
    state = guard.decide(CANCEL, run_checks=False)
    if state.check is not None:
        guard.evidence(state.id, state.check.verifier, "pending")

    assert guard.labels() == []


def test_a_claim_that_did_not_support_its_action_makes_no_label(memory: amv.Memory) -> None:
    """It was checked, but what was said of it is not that it is wrong."""
    remember(memory, "delivered", 0.9)
    rules = load_policy({**POLICY, "defaults": {"planner": "always_verify"}})
    guard = amv.Guard(rules, memory)
    guard.verifier("desk")(lambda id: "delivered")
    guard.decide(CANCEL)

    assert guard.decisions()[0][1].values == {"status": "delivered"}
    assert guard.labels() == []


def test_the_number_of_a_decision_that_is_not_there_is_told(memory: amv.Memory) -> None:
    guard = guard_of(memory)
    first = guard.decide(CANCEL).id

    assert guard.number_of(first) == 1
    with pytest.raises(amv.ItemNotFound):
        guard.number_of("none")


def test_what_was_forgotten_makes_no_label(memory: amv.Memory) -> None:
    remember(memory)
    guard = guard_of(memory, "pending", "pending")
    decided = guard.decide(CANCEL).id
    assert len(guard.labels()) == 1

    memory.forget_namespace(NS)

    assert guard.labels() == []
    assert guard.log().decisions == 0
    assert "The words of this decision were forgotten" in guard.explain(decided)


# ---------------------------------------------------------------- what somebody tells


def test_what_was_told_is_the_truth_whatever_a_check_said(memory: amv.Memory) -> None:
    remember(memory)
    guard = guard_of(memory, "pending")
    decided = guard.decide(CANCEL).id

    guard.label(decided, {"status": True}, weight=4, by="bob")

    log = guard.log()
    (told,), (answer,) = log.labels, log.answers
    assert (told.is_violated, told.source, told.weight) == (True, "checked", 1.0)
    assert (answer.verifier, answer.is_refuted, answer.is_violated) == ("desk", False, True)
    assert answer.weight == 4.0
    assert "in truth, status was violated, says bob" in guard.explain(decided)
    assert guard.replay() == []

    # Who was wrong says so later.
    guard.label(decided, {"status": False})
    assert [one.is_violated for one in guard.labels()] == [False]
    assert "in truth, status held" in guard.explain(decided)


def test_what_was_told_without_a_check_counts_by_its_weight(memory: amv.Memory) -> None:
    remember(memory)
    guard = guard_of(memory, None, None)
    decided = guard.decide(CANCEL).id
    guard.label(decided, {"status": True}, weight=2.5)

    (told,) = guard.labels()
    assert (told.is_violated, told.source, told.weight) == (True, "told", 2.5)
    assert guard.log().answers == []


def test_where_audits_draw_the_sample_what_was_told_besides_is_left_out(
    memory: amv.Memory,
) -> None:
    """It would count twice; but of what can't be checked, no audit tells anything."""
    remember(memory)
    rules = {**POLICY, "defaults": {"audit": 0.5}}
    guard = amv.Guard(load_policy(rules), memory, chance=lambda: 0.9)
    decided = guard.decide(CANCEL, run_checks=False).id
    guard.label(decided, {"status": True})
    assert guard.labels() == []

    guard = amv.Guard(load_policy(blind(audit=0.5)), memory, chance=lambda: 0.9)
    decided = guard.decide(CANCEL).id
    guard.label(decided, {"status": True}, weight=3.0)
    (told,) = guard.labels()
    assert (told.source, told.weight) == ("told", 3.0)


def blind(**defaults: Any) -> dict[str, Any]:
    """Return the policy in which nothing can check the claim."""
    rule = POLICY["actions"]["cancel"]
    premise = {**rule["rests_on"]["status"], "verify_with": []}
    actions = {"cancel": {**rule, "rests_on": {"status": premise}}}
    return {**POLICY, "actions": actions, "defaults": defaults}


@pytest.mark.parametrize(
    ("violated", "more", "why"),
    [
        ({}, {}, "need what was true"),
        ([], {}, "need what was true"),
        ({"status": 1}, {}, "need a bool"),
        ({"owner": True}, {}, "no premise"),
        ({"status": True}, {"weight": 0.5}, "one over a probability"),
        ({"status": True}, {"weight": 1e7}, "one over a probability"),
        ({"status": True}, {"weight": float("nan")}, "one over a probability"),
        ({"status": True}, {"weight": True}, "one over a probability"),
        ({"status": True}, {"weight": "2"}, "one over a probability"),
        ({"status": True}, {"by": 5}, "who says so"),
    ],
)
def test_what_is_no_truth_is_refused(
    memory: amv.Memory, violated: Any, more: dict[str, Any], why: str
) -> None:
    remember(memory)
    guard = guard_of(memory, "pending")
    decided = guard.decide(CANCEL).id

    with pytest.raises(amv.InvalidInput, match=why):
        guard.label(decided, violated, **more)
    assert guard.log().answers == []


def test_the_truth_of_what_has_no_premise_or_is_not_there_is_refused(memory: amv.Memory) -> None:
    guard = guard_of(memory)
    decided = guard.decide(amv.Action(tool="unknown", namespace=NS)).id

    with pytest.raises(amv.InvalidInput, match="there is none"):
        guard.label(decided, {"status": True})
    with pytest.raises(amv.ItemNotFound):
        guard.label("none", {"status": True})


def resting(memory: amv.Memory, desk: object, phone: object) -> amv.Guard:
    """Return a gate whose action rests on a status that itself rests on who owns the order."""
    claim = {"claim": "order/{id}/status", "require": "pending", "verify_with": ["desk"]}
    owner = {"claim": "order/{id}/owner", "verify_with": ["phone"]}
    rules = {
        **POLICY,
        "defaults": {"audit": 1.0},
        "actions": {
            "cancel": {
                "loss": POLICY["actions"]["cancel"]["loss"],
                "rests_on": {"status": {**claim, "rests_on": ["owner"]}, "owner": owner},
            }
        },
    }
    remember(memory)
    memory.add("x", namespace=NS, claim=amv.Claim("order/1", "owner", "alice"), source_trust=0.6)
    guard = amv.Guard(load_policy(rules), memory, chance=lambda: 0.0)
    guard.verifier("desk")(lambda id: desk)
    guard.verifier("phone")(lambda id: phone)
    return guard


def kinds(guard: amv.Guard) -> dict[str, bool]:
    return {one.kind: one.is_violated for one in guard.labels()}


def test_what_falls_with_its_foundation_says_nothing_of_its_own_claim(memory: amv.Memory) -> None:
    """Else what comes from below counts twice: in what is learned, and in each decision."""
    guard = resting(memory, "delivered", "bob")
    decided = guard.decide(CANCEL)

    assert kinds(guard) == {"owner": True}
    guard.label(decided.id, {"status": True, "owner": True})
    assert kinds(guard) == {"owner": True}
    # What was told counts, whatever a check said.
    guard.label(decided.id, {"owner": False})
    assert kinds(guard) == {"owner": False, "status": True}


def test_what_stands_on_firm_ground_is_a_label(memory: amv.Memory) -> None:
    guard = resting(memory, "delivered", "alice")
    decided = guard.decide(CANCEL)

    assert kinds(guard) == {"owner": False, "status": True}
    guard.label(decided.id, {"owner": True})
    assert kinds(guard) == {"owner": True}


def test_where_nothing_is_known_of_its_foundation_a_claim_is_a_label(memory: amv.Memory) -> None:
    guard = resting(memory, "delivered", None)
    guard.decide(CANCEL)

    assert kinds(guard) == {"status": True}


def test_what_checks_said_where_nobody_told_the_truth_is_kept(memory: amv.Memory) -> None:
    guard = resting(memory, "delivered", "alice")
    decided = guard.decide(CANCEL)
    before = {view.name: view.before for view in decided.premises}

    assert {(one.p, one.refuted) for one in guard.log().heard} == {
        (before["status"], (("desk", True),)),
        (before["owner"], (("phone", False),)),
    }
    guard.label(decided.id, {"owner": False})
    (left,) = guard.log().heard
    assert left.refuted == (("desk", True),)


def test_of_what_was_not_remembered_no_answer_is_kept(memory: amv.Memory) -> None:
    """How likely it was violated is not known there."""
    guard = guard_of(memory, "delivered", "delivered")
    guard.decide(CANCEL)

    assert guard.log().heard == ()


# ---------------------------------------------------------------- for a certificate


def audited(memory: amv.Memory, answers: list[object], **verifiers: Any) -> amv.Guard:
    rules = {**POLICY, "defaults": {"audit": 0.5}}
    rules["verifiers"] = {"desk": {"cost": 9.0}, "phone": {"cost": 9.0}, **verifiers}
    guard = amv.Guard(load_policy(rules), memory, chance=lambda: 0.0)
    for name in ("desk", "phone"):
        guard.verifier(name)(lambda id: answers.pop(0))
    return guard


@pytest.mark.parametrize(("read", "is_harmful"), [("pending", False), ("delivered", True)])
def test_an_audited_decision_is_an_instance(
    memory: amv.Memory, read: str, is_harmful: bool
) -> None:
    remember(memory, trust=1.0)
    guard = audited(memory, [read, read])
    decided = guard.decide(CANCEL).id

    log = guard.log()
    (drawn,) = log.drawn
    assert (drawn.instance.is_harmful, drawn.instance.weight, drawn.is_told) == (
        is_harmful,
        2.0,
        False,
    )
    assert set(drawn.instance.answers) == {"desk", "phone"}
    assert (log.decisions, log.incomplete) == (1, 0)

    guard.label(decided, {"status": not is_harmful})
    (drawn,) = guard.log().drawn
    assert (drawn.instance.is_harmful, drawn.is_told) == (not is_harmful, True)


def test_it_is_known_which_answers_are_about_the_same(memory: amv.Memory) -> None:
    """By that it is found which checks err together."""
    remember(memory, trust=1.0)
    guard = audited(memory, ["pending", "delivered", "pending", "pending"])
    for _ in range(2):
        guard.label(guard.decide(CANCEL).id, {"status": False})

    about = [(one.about, one.verifier) for one in guard.log().answers]
    first, second = {key for key, _ in about}
    assert sorted(about) == sorted(
        (key, name) for key in (first, second) for name in ("desk", "phone")
    )


def test_one_source_answers_under_each_of_its_names(memory: amv.Memory) -> None:
    remember(memory, trust=1.0)
    both = {"cost": 9.0, "group": "shop"}
    guard = audited(memory, ["pending"], desk=both, phone=both)
    guard.decide(CANCEL)

    (drawn,) = guard.log().drawn
    assert drawn.instance.answers["phone"].outcomes == drawn.instance.answers["desk"].outcomes


def test_what_lacks_an_answer_is_counted_and_left_out(memory: amv.Memory) -> None:
    remember(memory, trust=1.0)
    guard = audited(memory, [])
    asked = guard.decide(CANCEL, run_checks=False)
    guard.evidence(asked.id, "desk", "pending")

    assert (guard.log().drawn, guard.log().incomplete) == ([], 1)


def test_what_nothing_can_check_is_drawn_by_who_tells_the_truth(memory: amv.Memory) -> None:
    remember(memory, trust=1.0)
    guard = amv.Guard(load_policy(blind()), memory)
    decided = guard.decide(CANCEL).id
    assert guard.log().incomplete == 1
    guard.label(decided, {"status": False}, weight=5.0)

    (drawn,) = guard.log().drawn
    assert (drawn.instance.weight, drawn.instance.is_harmful) == (5.0, False)


# ---------------------------------------------------------------- from a file


def test_a_label_in_a_file_is_read() -> None:
    told = read_label('{"age_h": 5, "trust": 0.8, "is_violated": true, "weight": 4}')

    assert (told.kind, told.features.age_h, told.is_violated) == ("", 5.0, True)
    assert (told.weight, told.source) == (4.0, "told")
    assert 0.0 < told.said < 0.1

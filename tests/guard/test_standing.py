"""The certificate in force: adopted, used, watched, withdrawn, also across restarts."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import amv
from amv.guard.calibration import Calibration, Calibrator
from amv.guard.certificate import ALPHA, Certificate
from amv.guard.decision import Ground
from amv.guard.policy import parse
from amv.guard.record import FIRST
from amv.guard.standing import CERTIFICATES, STRICTEST
from amv.guard.state import loaded
from tests.guard.gates import CANCEL, OWNER, VERIFIER, cancel, opened, policy_of, remember

DEAR = {**VERIFIER, "cost": 50.0}
LOSS = {"wrong": 60.0, "abstain": 5.0}
RULE = {**CANCEL, "loss": LOSS}
SURE, UNSURE = (
    Calibration(steps=(Calibrator(sort="platt", numbers=(0.0, offset)),)) for offset in (-4.5, -2.6)
)
"""Calibrations by which every claim is wrong with a probability of 0.01, and of 0.07."""

FOUND = Certificate(epsilon=0.05, delta=0.1, threshold=0.02, executed=100, instances=100)


def policy(**parts: Any) -> dict[str, Any]:
    """Return a policy with a check that never pays, so that the screen alone decides."""
    return policy_of(
        **{
            "verifiers": {"order_status": DEAR},
            "actions": {"cancel_order": RULE, "look": {"effect": "read"}},
            **parts,
        }
    )


@pytest.fixture(params=["file", "process"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "amv.db") if request.param == "file" else ":memory:"


@pytest.fixture
def guard(path: str) -> Iterator[amv.Guard]:
    with opened(path, policy()) as found:
        yield found


def adopt(guard: amv.Guard, threshold: float | None = 0.02, **fields: Any) -> str:
    found = Certificate(epsilon=0.05, delta=0.1, threshold=threshold, **fields)
    return guard.adopt(found, guard.ground, by="ann").id


_numbers = iter(range(10**9))


def decide(guard: amv.Guard, trust: float = 0.8, **how: Any) -> amv.Decision:
    """Decide about an order of its own, whose claim is wrong with the probability of its trust."""
    name = f"o{next(_numbers)}"
    remember(guard, order_id=name, source_trust=trust)
    return guard.decide(cancel(name), **how)


def case_of(guard: amv.Guard, decision: amv.Decision) -> Any:
    with guard._store.read() as reader:
        return loaded(reader, decision.id).case


def harm(guard: amv.Guard, count: int) -> list[amv.Decision]:
    """Have so many actions go ahead, each of which harms."""
    made = [decide(guard) for _ in range(count)]
    for decision in made:
        assert decision.verdict == "PROCEED"
        guard.label(decision.id, {"status": True}, by="ann")
    return made


def withdraw(guard: amv.Guard) -> None:
    """Have the certificate withdrawn by harm, and by nothing else."""
    made = 0
    while (standing := guard.certificate()) is not None and not standing.ended:
        harm(guard, 1)
        made += 1
        assert made < 50


# ---------------------------------------------------------------- what it does while it stands


def test_without_a_certificate_the_policys_screen_holds(guard: amv.Guard) -> None:
    decision = decide(guard)

    assert guard.certificate() is None
    assert decision.certificate == ""
    assert case_of(guard, decision).harm_max == 0.05


@pytest.mark.parametrize(("threshold", "verdict"), [(0.004, "ABSTAIN"), (0.3, "PROCEED")])
def test_its_threshold_is_the_screen_looser_or_stricter(
    guard: amv.Guard, threshold: float, verdict: str
) -> None:
    guard._calibration = SURE if threshold < 0.05 else UNSURE
    before = decide(guard)
    adopt(guard, threshold)

    decision = decide(guard)

    assert {before.verdict, decision.verdict} == {"PROCEED", "ABSTAIN"}
    assert (decision.verdict, decision.certificate) == (verdict, "in_force")
    assert case_of(guard, decision).harm_max == threshold
    assert guard.replay() == []


def test_it_makes_no_action_looser_than_its_own_rule() -> None:
    rule = {**RULE, "harm_max": 0.0}
    with opened(policy=policy(actions={"cancel_order": rule})) as guard:
        adopt(guard, 0.3)

        decision = decide(guard)

        assert (decision.verdict, decision.certificate) == ("ABSTAIN", "in_force")
        assert case_of(guard, decision).harm_max == 0.0


@pytest.mark.parametrize("threshold", [0.01, 0.3])
def test_under_another_policy_it_makes_the_screen_stricter_at_most(
    tmp_path: Path, threshold: float
) -> None:
    path = str(tmp_path / "amv.db")
    with opened(path, policy()) as guard:
        adopt(guard, threshold)
    dearer = policy(actions={"cancel_order": {**RULE, "loss": {**LOSS, "wrong": 61.0}}})
    with opened(path, dearer) as guard:
        decision = decide(guard)

        assert decision.certificate == "stale"
        assert "under another policy or calibration: certify anew" in decision.reason
        assert case_of(guard, decision).harm_max == min(0.05, threshold)
    # What makes no plan another leaves it in force.
    for part in (
        {"mode": "shadow"},
        {"defaults": {"audit": 0.5, "harm_max": 0.01}},
        {"actions": {"cancel_order": {**RULE, "audit": 0.1}, "look": {"effect": "read"}}},
    ):
        with opened(path, policy(**part)) as guard:
            assert decide(guard).certificate == "in_force"
    with opened(
        path, policy(), calibration=Calibration(steps=(Calibrator(sort="platt", numbers=(1, 0)),))
    ) as guard:
        assert decide(guard).certificate == "stale"


def test_what_nobody_certified_is_not_adopted(guard: amv.Guard) -> None:
    with pytest.raises(amv.InvalidInput, match="nothing is certified: too few"):
        adopt(guard, None, why="too few")
    with pytest.raises(amv.InvalidInput, match="who says so"):
        guard.adopt(FOUND, guard.ground, by="x" * 300)
    for wrong in (
        {"epsilon": 0.0},
        {"epsilon": float("nan")},
        {"delta": 1.0},
        {"threshold": -0.1},
        {"threshold": 1.1},
        {"threshold": float("nan")},
        {"threshold": True},
    ):
        bad: Any = {"epsilon": 0.05, "delta": 0.1, "threshold": 0.02, **wrong}
        with pytest.raises(amv.InvalidInput):
            guard.adopt(Certificate(**bad), guard.ground)
    assert guard.certificate() is None
    assert guard.last_hash() == FIRST


def test_read_only_and_unknown_tools_have_no_screen(guard: amv.Guard) -> None:
    adopt(guard)

    for tool, verdict in (("look", "PROCEED"), ("unheard_of", "ABSTAIN")):
        decision = guard.decide(amv.Action(tool, namespace=OWNER))
        assert (decision.verdict, decision.certificate) == (verdict, "")


# ---------------------------------------------------------------- from the log to the screen


def live(guard: amv.Guard, count: int, share: float, seed: int = 3) -> None:
    """Have the gate decide about orders, all audited, of which a share is wrong."""
    draw, world = random.Random(seed), dict[str, str]()
    guard.verifier("order_status")(lambda order_id: world[order_id])
    for number in range(count):
        name = f"{seed}-{number}"
        world[name] = "delivered" if draw.random() < share else "pending"
        remember(guard, order_id=name, source_trust=0.8)
        guard.decide(cancel(name))


AUDITED = {"defaults": {"audit": 1.0}}


def test_it_is_made_of_the_log_used_and_withdrawn_by_audits_alone(tmp_path: Path) -> None:
    """The whole chain, through restarts, and with nobody telling anything."""
    path = str(tmp_path / "amv.db")
    with opened(path, policy(**AUDITED)) as guard:
        live(guard, 120, 0.0)
        found = guard.certify(epsilon=0.05, delta=0.1, by="ann")
        assert found.threshold is not None
    with opened(path, policy(**AUDITED)) as guard:
        standing = guard.certificate()
        assert standing is not None
        assert (standing.certificate, standing.by, standing.executed) == (found, "ann", 0)
        live(guard, 30, 0.0, seed=4)
        quiet = guard.certificate()
        assert quiet is not None
        assert (quiet.executed, quiet.harmed, quiet.ended) == (30, 0, "")
        live(guard, 200, 0.5, seed=5)
    with opened(path, policy(**AUDITED)) as guard:
        over = guard.certificate()
        assert over is not None
        assert over.ended == "withdrawn"
        assert over.evidence >= 1.0 / ALPHA
        assert over.executed < 230
        assert over.harmed < over.executed
        assert decide(guard, run_checks=False).certificate == "withdrawn"
        assert guard.replay() == []


def test_only_decisions_made_like_the_last_one_are_certified_by(tmp_path: Path) -> None:
    path = str(tmp_path / "amv.db")
    with opened(path, policy(**AUDITED)) as guard:
        live(guard, 60, 1.0)
    dearer = policy(actions={"cancel_order": {**RULE, "loss": {**LOSS, "wrong": 61.0}}}, **AUDITED)
    with opened(path, dearer) as guard:
        live(guard, 60, 0.0, seed=4)
        sample = guard.log().sample()

        assert (len(sample.instances), sample.told) == (60, 0)
        assert guard.certify().threshold is not None
        assert decide(guard).certificate == "in_force"


def test_where_nothing_can_be_certified_nothing_changes(guard: amv.Guard) -> None:
    found = guard.certify()

    assert (found.threshold, guard.certificate()) == (None, None)
    assert "at most 0 actions go ahead" in found.why


def test_what_rests_on_nothing_critical_makes_nothing_look_better() -> None:
    rule = {**RULE, "loss": {"wrong": 1.0, "abstain": 5.0}}
    with opened(policy=policy(actions={"cancel_order": rule}, **AUDITED)) as guard:
        live(guard, 60, 0.0)

        assert guard.log().sample().instances == []


def test_a_call_that_is_tried_again_counts_once(path: str) -> None:
    """It is refused, so that it says nothing of what goes ahead; nor does it calm the alarm."""
    with opened(path, policy(**AUDITED)) as guard:
        adopt(guard)
        ran = list[str]()

        @guard.action("cancel_order")
        def cancel_order(order_id: str) -> None:
            ran.append(order_id)

        guard.verifier("order_status")(lambda order_id: "pending")
        remember(guard, source_trust=0.8)
        cancel_order("W1")
        for _ in range(60):
            with pytest.raises(amv.ActionAbstained, match="granted to this very action before"):
                cancel_order("W1")

        standing = guard.certificate()
        assert standing is not None
        assert (ran, standing.executed) == (["W1"], 1)
        assert guard.certify().why == "at most 1 actions go ahead, and a bound needs 45 of them"


def test_a_key_tried_again_in_shadow_mode_counts_once_as_well() -> None:
    with opened(policy=policy(mode="shadow", **AUDITED)) as guard:
        guard.verifier("order_status")(lambda order_id: "pending")
        remember(guard, source_trust=0.8)
        for number in range(60):
            guard.decide(cancel(note=str(number)))

        assert len(guard.log().sample().instances) == 60
        assert guard.certify().why == "at most 1 actions go ahead, and a bound needs 45 of them"


def test_what_is_certified_is_what_was_seen() -> None:
    """Of what is more doubtful than all that went ahead nobody knows how often it harms."""
    with opened(policy=policy(**AUDITED)) as guard:
        live(guard, 60, 0.0)
        found = guard.certify()
        seen = max(decision.premises[0].before for _, decision in guard.decisions())

        assert found.executed == 60
        assert found.threshold == seen
        assert decide(guard, trust=0.5, run_checks=False).verdict != "PROCEED"


# ---------------------------------------------------------------- the alarm


def test_harm_withdraws_it_and_only_what_is_surest_goes_ahead_after_that(path: str) -> None:
    with opened(path, policy()) as guard:
        adopt(guard, 0.3)
        assert decide(guard, 0.5).verdict == "PROCEED"

        withdraw(guard)

        standing = guard.certificate()
        assert standing is not None
        assert standing.evidence >= 1.0 / ALPHA
        assert standing.executed == standing.harmed < 20
        decision = decide(guard)
        assert (decision.verdict, decision.certificate) == ("ABSTAIN", "withdrawn")
        assert "was withdrawn as more harm was done than it allows: certify anew" in decision.reason
        assert "withdrawn" in guard.explain(decision.id)
        assert case_of(guard, decision).harm_max == STRICTEST
        assert guard.rank([cancel("x")])[0].certificate == "withdrawn"
        assert guard.replay() == []


def test_a_check_that_confirms_lets_go_ahead_what_the_strictest_screen_does_not() -> None:
    """To withdraw is to check, and not to stop."""
    checks = {"order_status": {**VERIFIER, "sensitivity": 0.999, "specificity": 0.999}}
    with opened(policy=policy(verifiers=checks)) as guard:
        guard.verifier("order_status")(lambda order_id: "pending")
        adopt(guard, 0.3)
        withdraw(guard)

        decision = decide(guard)

        assert len(decision.checks) == 1
        assert (decision.verdict, decision.certificate) == ("PROCEED", "withdrawn")


def test_what_held_is_no_alarm(guard: amv.Guard) -> None:
    adopt(guard)
    for _ in range(60):
        guard.label(decide(guard).id, {"status": False})

    standing = guard.certificate()
    assert standing is not None
    assert (standing.executed, standing.harmed, standing.ended) == (60, 0, "")
    assert standing.evidence < 1.0 / ALPHA / 10


def test_each_action_counts_once_as_it_was_told_last(guard: amv.Guard) -> None:
    """Telling it again adds nothing, and what was told wrongly can be put right."""
    adopt(guard)
    made = harm(guard, 5)
    first = guard.certificate()
    assert first is not None
    for decision in made:
        guard.label(decision.id, {"status": True})
    assert guard.certificate() == first

    for decision in made:
        guard.label(decision.id, {"status": False})
    put_right = guard.certificate()
    assert put_right is not None
    assert (put_right.executed, put_right.harmed) == (5, 0)
    for decision in made:
        guard.label(decision.id, {"status": True})
    again = guard.certificate()
    assert again is not None
    assert (again.executed, again.harmed) == (5, 5)
    assert again.evidence == pytest.approx(first.evidence)


def test_what_did_not_go_ahead_under_it_is_no_sign_of_it(guard: amv.Guard) -> None:
    before = decide(guard)
    adopt(guard)
    guard.label(before.id, {"status": True})
    stopped = guard.decide(cancel("unknown"))
    assert stopped.verdict == "ABSTAIN"
    guard.label(stopped.id, {"status": True})

    standing = guard.certificate()
    assert standing is not None
    assert (standing.executed, standing.evidence) == (0, 0.0)


def test_of_several_premises_one_that_was_violated_is_harm_and_all_must_have_held() -> None:
    premise = CANCEL["rests_on"]["status"]
    rule = {
        **RULE,
        "rests_on": {
            "status": premise,
            "owner": {"claim": "order/{order_id}/user", "require": "ann"},
            "note": {"claim": "order/{order_id}/note", "wrong": 0.1},
        },
    }
    with opened(policy=policy(actions={"cancel_order": rule})) as guard:
        adopt(guard, 0.3)

        def known() -> tuple[int, int]:
            standing = guard.certificate()
            assert standing is not None
            return standing.executed, standing.harmed

        def decided() -> str:
            name = f"two{next(_numbers)}"
            claim = amv.Claim(f"order/{name}", "user", "ann")
            guard.memory.add("of ann", namespace=OWNER, claim=claim, source_trust=0.8)
            remember(guard, order_id=name, source_trust=0.8)
            decision = guard.decide(cancel(name))
            assert decision.verdict == "PROCEED"
            return decision.id

        one, other = decided(), decided()
        guard.label(one, {"status": False, "note": True})
        assert known() == (0, 0)
        guard.label(one, {"owner": False})
        assert known() == (1, 0)
        guard.label(other, {"owner": True})
        assert known() == (2, 1)


def test_an_approved_action_is_no_sign_of_it(path: str) -> None:
    """A person took the place of the screen."""
    rule = {**RULE, "approval": True}
    with opened(path, policy(actions={"cancel_order": rule})) as guard:
        guard.verifier("order_status")(lambda order_id: "pending")
        adopt(guard, 0.0)
        remember(guard, source_trust=0.8)
        request = guard.decide(cancel()).approval_id
        guard.approve(request, by="ann")
        done = guard.decide(cancel(), approval_id=request)
        assert (done.verdict, done.code) == ("PROCEED", "approved")
        guard.label(done.id, {"status": True})

        standing = guard.certificate()
        assert standing is not None
        assert standing.executed == 0
        # Nor does a withdrawal undo what a person has let go ahead.
        assert done.permit is not None
        guard.drop_certificate()
        guard.redeem(done.permit.token, cancel())


# ---------------------------------------------------------------- what is under way meanwhile


def test_a_decision_that_waits_for_evidence_is_granted_nothing_by_what_is_withdrawn() -> None:
    checks = {"order_status": VERIFIER, "other": VERIFIER}
    with opened(policy=policy(verifiers=checks)) as guard:
        adopt(guard, 0.3)
        waiting = decide(guard, 0.5, run_checks=False)
        assert waiting.verdict == "VERIFY"
        assert waiting.check is not None
        guard.drop_certificate()

        done = guard.evidence(waiting.id, waiting.check.verifier, "pending")

        assert (done.verdict, done.code, done.permit) == ("ABSTAIN", "certificate_changed", None)
        assert guard.replay() == []


def test_a_permit_by_a_certificate_that_was_withdrawn_is_refused(path: str) -> None:
    with opened(path, policy()) as guard:
        remember(guard, source_trust=0.8)
        remember(guard, order_id="W2", source_trust=0.8)
        plain = guard.decide(cancel("W2"))
        adopt(guard)
        first = guard.decide(cancel())
        assert first.permit is not None
        assert plain.permit is not None
        withdraw(guard)

        with pytest.raises(amv.PermitRefused, match="withdrawn or replaced"):
            guard.redeem(first.permit.token, cancel())
        # It was given by the policy's own screen.
        guard.redeem(plain.permit.token, cancel("W2"))
        assert guard.replay() == []


def test_a_permit_by_a_certificate_that_stands_is_good(guard: amv.Guard) -> None:
    adopt(guard)
    remember(guard, source_trust=0.8)
    decision = guard.decide(cancel())
    assert decision.permit is not None

    guard.redeem(decision.permit.token, cancel())


def test_what_one_process_withdraws_is_withdrawn_in_all(tmp_path: Path) -> None:
    """Nothing of it is kept in a process: each decision, grant and redeeming looks."""
    path = str(tmp_path / "amv.db")
    with opened(path, policy()) as one, opened(path, policy()) as other:
        adopt(one, 0.3)
        remember(other, source_trust=0.8)
        granted = other.decide(cancel())
        assert granted.certificate == "in_force"
        assert granted.permit is not None
        withdraw(one)

        assert decide(other).certificate == "withdrawn"
        with pytest.raises(amv.PermitRefused, match="withdrawn or replaced"):
            other.redeem(granted.permit.token, cancel())
        assert other.certificate() == one.certificate()
        assert other.replay() == []


def test_it_is_looked_up_once_and_again_only_where_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot for each decision costs as much as half of the rate."""
    path, looked = str(tmp_path / "amv.db"), []
    with opened(path, policy()) as one, opened(path, policy()) as other:
        look = one.certificate
        monkeypatch.setattr(one, "certificate", lambda: looked.append(1) or look())  # type: ignore[func-returns-value]
        assert [decide(one).certificate for _ in range(5)] == [""] * 5
        assert len(looked) == 1

        adopt(other)

        assert [decide(one).certificate for _ in range(5)] == ["in_force"] * 5
        assert len(looked) == 2
        # What is only foreseen has no transaction to find it out.
        other.drop_certificate()
        assert one.rank([cancel("x")])[0].certificate == ""
        assert one.decided() == 10
        assert one.replay() == []


@pytest.mark.parametrize("told", range(3))
def test_32_that_tell_the_truth_at_once_count_each_action_once(path: str, told: int) -> None:
    with opened(path, policy()) as guard:
        adopt(guard)
        made = [decide(guard) for _ in range(8)]

        def tell(number: int) -> None:
            guard.label(made[number % 8].id, {"status": told > 0 and number % 8 < told})

        with ThreadPoolExecutor(32) as pool:
            list(pool.map(tell, range(32)))

        standing = guard.certificate()
        assert standing is not None
        assert (standing.executed, standing.harmed) == (8, told)
        assert guard.replay() == []


def test_what_can_not_be_written_down_whole_is_not_at_all(tmp_path: Path) -> None:
    """On a full disk: neither a label without its alarm, nor a decision with a permit."""
    with opened(str(tmp_path / "amv.db"), policy()) as guard:
        adopt(guard)
        made = [decide(guard) for _ in range(40)]
        remember(guard, source_trust=0.8)
        remember(guard, order_id="W2", source_trust=0.8)
        granted = guard.decide(cancel("W2"))
        assert granted.permit is not None
        store: Any = guard.memory.store
        pages = store.write(lambda tx: tx.execute("PRAGMA page_count").get)
        store.write(lambda tx: tx.execute(f"PRAGMA max_page_count = {pages}").get)
        failed, told = 0, 0

        for _ in range(200):
            known = guard.last_hash()
            decision = guard.decide(cancel(note="x" * 900))
            if decision.code == "gate_error":
                assert (decision.verdict, decision.permit) == ("ABSTAIN", None)
                assert guard.last_hash() == known
                failed += 1
            if failed == 5:
                break
        # There is room left for something smaller than a decision.
        for one in made:
            before = (guard.last_hash(), guard.certificate())
            try:
                guard.label(one.id, {"status": True}, by="x" * 256)
            except amv.StoreError:
                assert (guard.last_hash(), guard.certificate()) == before
                break
            told += 1
        assert failed == 5
        assert told < len(made)
        store.write(lambda tx: tx.execute("PRAGMA max_page_count = 1000000").get)

        guard.redeem(granted.permit.token, cancel("W2"))
        guard.label(made[told].id, {"status": True})
        after = guard.certificate()
        assert after is not None
        assert after.executed == told + 1
        assert guard.replay() == []


# ---------------------------------------------------------------- anew, and dropped


def test_another_one_takes_its_place_and_begins_anew(guard: amv.Guard) -> None:
    first = adopt(guard)
    withdraw(guard)
    second = adopt(guard, 0.1)

    standing = guard.certificate()
    assert standing is not None
    assert (standing.id, standing.ended, standing.executed) == (second, "", 0)
    assert first != second
    made = harm(guard, 2)
    guard.label(made[0].id, {"status": False})
    after = guard.certificate()
    assert after is not None
    # Those of the one before are not among them.
    assert (after.executed, after.harmed) == (2, 1)
    assert decide(guard).certificate == "in_force"


def test_what_is_dropped_leaves_the_policys_screen(guard: amv.Guard) -> None:
    with pytest.raises(amv.Conflict, match="there is none to drop"):
        guard.drop_certificate()
    adopt(guard, 0.004)
    assert decide(guard).verdict == "ABSTAIN"

    guard.drop_certificate()

    assert guard.certificate() is None
    assert decide(guard).verdict == "PROCEED"
    with pytest.raises(amv.Conflict):
        guard.drop_certificate()


def test_its_records_are_no_decision_and_are_of_the_chain(path: str) -> None:
    with opened(path, policy()) as guard:
        adopt(guard)
        harm(guard, 2)

        assert CERTIFICATES not in [decision.id for _, decision in guard.decisions()]
        assert len(guard.decisions()) == guard.decided() == 2
        for ask in (guard.get, guard.number_of, guard.explain):
            with pytest.raises(amv.ItemNotFound, match="no decision"):
                ask(CERTIFICATES)
        with pytest.raises(amv.ItemNotFound):
            guard.label(CERTIFICATES, {"status": True})
        assert guard.replay() == []


def test_the_newest_decision_says_on_what_ground_it_was_made(path: str) -> None:
    with opened(path, policy()) as guard:
        assert guard.last_ground() == guard.ground
        decide(guard)
        adopt(guard)
        guard._policy = parse(policy_of())

        assert guard.last_ground() != guard.ground
        assert isinstance(guard.last_ground(), Ground)

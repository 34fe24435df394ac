"""Binding: which claims an action rests on, and what remembered ones are worth."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amv.errors import InvalidInput
from amv.guard.actions import Action, equal
from amv.guard.bind import Premise, case_of, filled, premises_of, required_by
from amv.guard.judge import judge
from amv.guard.policy import ActionRule, Policy, PremiseRule, claim_fields, parse
from amv.guard.ports import GuardWriter, Remembered, Shown
from amv.guard.prior import P_MAX, UNKNOWN, Features, LogisticPrior
from amv.guard.reliability import Reliability

NOW_S = 1_800_000_000.0
HOUR_S = 3600.0
CASES = 5_000

LOSS = {"wrong": 120, "abstain": 5, "repair": 1}
VERIFIERS = {"look": {"cost": 0.02}, "ask": {"cost": 0.5}}


class FakeClaims:
    """Claims in a list, of which the most trusted is believed and, of those, the newest."""

    def __init__(self, *claims: tuple[str, str, Remembered]) -> None:
        self.claims = list(claims)

    def find(self, namespace: tuple[str, ...], subject: str, attribute: str) -> Remembered | None:
        found = [one for s, a, one in self.claims if (s, a) == (subject, attribute)]
        return max(found, key=lambda one: (one.trust, one.since_s), default=None)

    def find_in(
        self, tx: GuardWriter, namespace: tuple[str, ...], subject: str, attribute: str
    ) -> Remembered | None:
        return self.find(namespace, subject, attribute)

    def telling(self, namespace: tuple[str, ...], shown: Sequence[Shown]) -> Any:
        raise NotImplementedError

    def used(self, namespace: tuple[str, ...], item_ids: Sequence[str]) -> None:
        raise NotImplementedError


def prior(features: Features, kind: str) -> float:
    return LogisticPrior()(features)


def remembered(value: object, *, trust: float = 0.8, age_h: float = 1.0, **more: Any) -> Remembered:
    return Remembered(
        item_id=f"i-{value}",
        value=value,
        since_s=NOW_S - age_h * HOUR_S,
        trust=trust,
        is_contradicted=more.get("is_contradicted", False),
        is_trusted=trust >= 0.5,
    )


def policy(rests_on: Mapping[str, Any], **rule: Any) -> Policy:
    return parse(
        {
            "version": 1,
            "verifiers": VERIFIERS,
            "actions": {"cancel": {"loss": LOSS, "rests_on": rests_on, **rule}},
        }
    )


def bound(
    rules: Policy, claims: FakeClaims | None = None, **arguments: Any
) -> tuple[list[Premise], ActionRule]:
    rule = rules.actions["cancel"]
    action = Action(tool="cancel", arguments=arguments)
    return premises_of(action, rule, claims or FakeClaims(), prior, NOW_S), rule


STATUS = {"claim": "order/{order_id}/status", "require": "pending", "verify_with": ["look"]}


def test_a_template_names_the_claim_of_these_arguments() -> None:
    assert filled("order/{order_id}/status", {"order_id": "W1"}) == ("order/W1", "status")
    assert filled("order/{order_id}/status", {"order_id": 7}) == ("order/7", "status")
    assert filled("user/{kind}", {"kind": "mail"}) == ("user", "mail")
    assert filled("a/{{x}}/b", {}) == ("a/{x}", "b")


@pytest.mark.parametrize("value", [None, True, 1.5, ["W1"], {"a": 1}])
def test_an_argument_that_names_nothing_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="needs the argument 'order_id' as a string"):
        filled("order/{order_id}/status", {"order_id": value})


def test_an_argument_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidInput, match="needs the argument 'order_id'"):
        filled("order/{order_id}/status", {"other": "W1"})


def test_an_argument_can_not_reach_into_another_claim() -> None:
    """Who chooses an id must not choose the attribute, nor fill in another argument."""
    template = "order/{order_id}/status"

    assert filled(template, {"order_id": "1/paid"}) == ("order/1/paid", "status")
    assert filled(template, {"order_id": "{order_id}"}) == ("order/{order_id}", "status")
    assert filled(template, {"order_id": "{0.__class__}"}) == ("order/{0.__class__}", "status")


def test_of_several_arguments_only_the_last_may_hold_a_slash() -> None:
    """Else a=1/2, b=3 and a=1, b=2/3 would be the same claim."""
    template = "{a}/{b}/{what}"

    assert filled(template, {"a": "1", "b": "2/3", "what": "x"}) == ("1/2/3", "x")
    with pytest.raises(InvalidInput, match="where 'a' ends"):
        filled(template, {"a": "1/2", "b": "3", "what": "x"})


@given(
    template=st.sampled_from(
        ["{a}/{b}/x", "{a}-{b}/x", "o{a}--{b}-{c}/x", "x/{a}_{b}", "{a}{{{b}/{c}", "{a}-{b}-{a}/x"]
    ),
    each=st.lists(
        st.fixed_dictionaries({name: st.text("1-_/{", max_size=4) for name in "abc"}),
        min_size=2,
        max_size=2,
    ),
)
def test_other_arguments_make_another_claim(template: str, each: list[dict[str, str]]) -> None:
    """Else who chooses them could have an action rest on what is remembered of another one."""
    found = []
    for arguments in each:
        try:
            found.append(filled(template, arguments))
        except InvalidInput as error:
            assert "ends with" in str(error)  # noqa: PT017  The other one may be fine.
    own = [{name: one[name] for name in claim_fields(template)} for one in each]
    assert own[0] == own[1] or len(set(found)) == len(found)


def test_what_stands_between_two_arguments_is_in_none_but_the_last() -> None:
    template = "cart/{user}-{item}/state"

    assert filled(template, {"user": "al", "item": "b-1"}) == ("cart/al-b-1", "state")
    with pytest.raises(InvalidInput, match="where 'user' ends with '-' in it"):
        filled(template, {"user": "al-b", "item": "1"})


def test_what_is_required_is_a_value_an_argument_or_one_of_several() -> None:
    def required(require: Any) -> Any:
        return required_by(PremiseRule(claim="a/b", require=require), {"to": "bob"})

    assert required("pending") == ("pending",)
    assert required(None) == (None,)
    assert required({"argument": "to"}) == ("bob",)
    assert required({"one_of": ["a", None]}) == ("a", None)
    assert required(msgspec.UNSET) is msgspec.UNSET
    with pytest.raises(InvalidInput, match="requires the argument 'from', which is not there"):
        required({"argument": "from"})


def test_a_premise_holds_for_values_of_the_same_type_only() -> None:
    (status,), _ = bound(policy({"s": {**STATUS, "require": 5}}), order_id="1")

    assert status.holds_for(5)
    assert not status.holds_for("5")


def test_without_a_requirement_the_world_must_show_what_is_remembered() -> None:
    rules = policy({"s": {"claim": "order/{order_id}/total"}})
    (known,), _ = bound(rules, FakeClaims(("order/1", "total", remembered(5))), order_id="1")
    (unknown,), _ = bound(rules, order_id="1")

    assert known.holds_for(5)
    assert not known.holds_for("5")
    # Even the value that stands for "not remembered".
    assert not unknown.holds_for(None)


def test_a_remembered_claim_is_as_likely_wrong_as_the_prior_says() -> None:
    claims = FakeClaims(("order/1", "status", remembered("pending", age_h=720.0)))
    (status,), _ = bound(policy({"s": STATUS}), claims, order_id="1")

    assert status.p == pytest.approx(0.036967, abs=1e-6)
    assert (status.age_h, status.item_id) == (720.0, "i-pending")
    assert (status.subject, status.attribute) == ("order/1", "status")
    assert status.theta == 120.0


def test_a_claim_from_the_future_is_new() -> None:
    claims = FakeClaims(("order/1", "status", remembered("pending", age_h=-5.0)))
    (status,), _ = bound(policy({"s": STATUS}), claims, order_id="1")

    assert status.age_h == 0.0


def test_a_memory_that_says_otherwise_makes_a_violation_likely() -> None:
    claims = FakeClaims(("order/1", "status", remembered("delivered", age_h=0.0)))
    (status,), _ = bound(policy({"s": STATUS}), claims, order_id="1")
    aged = FakeClaims(("order/1", "status", remembered("delivered", trust=0.5, age_h=9e3)))
    (contradicted,), _ = bound(policy({"s": {**STATUS, "confidence": 0.1}}), aged, order_id="1")

    assert status.p == pytest.approx(1.0 - 0.004451, abs=1e-6)
    # However little such a memory is worth, it is no reason to go ahead.
    assert contradicted.p >= UNKNOWN


@pytest.mark.parametrize(
    "claims",
    [FakeClaims(), FakeClaims(("order/1", "status", remembered("pending", trust=0.4, age_h=0.0)))],
)
def test_what_nobody_trusted_says_is_unknown(claims: FakeClaims) -> None:
    (status,), _ = bound(policy({"s": STATUS}), claims, order_id="1")

    assert status.p == UNKNOWN


def test_an_argument_that_no_rule_speaks_of_is_a_premise_nobody_verified() -> None:
    rules = policy(
        {"s": STATUS, "t": {"claim": "user/mail", "require": {"argument": "to"}}},
        free=["note"],
        idempotency={"key": ["request"]},
    )
    arguments: dict[str, Any] = {
        "order_id": "1",
        "to": "bob",
        "note": "x",
        "request": "r",
        "amount": 5,
    }
    premises, _ = bound(rules, **arguments)

    assert [one.name for one in premises] == ["s", "t", "argument.amount"]
    assert (premises[-1].p, premises[-1].theta) == (UNKNOWN, 120.0)


def test_arguments_of_what_only_reads_need_no_rule() -> None:
    rules = parse({"version": 1, "actions": {"cancel": {"effect": "read"}}})

    assert bound(rules, order_id="1")[0] == []


def test_a_case_holds_the_critical_premises_and_their_checks() -> None:
    rests_on = {
        "a": {**STATUS, "verify_with": ["look", "ask", "look"]},
        "b": {"claim": "x/b", "wrong": 4.0, "verify_with": ["ask"]},
        "c": {"claim": "x/c", "verify_with": ["look"]},
    }
    rules = policy(
        rests_on,
        causes=[{"premises": ["b", "c"], "probability": 0.2}],
        risk_max=50.0,
        harm_max=0.1,
    )
    premises, rule = bound(rules, order_id="1")
    case = case_of(premises, rule, rules, "exact")

    assert [one.name for one in case.premises] == ["a", "c"]
    assert {one.name: one.premises for one in case.checks} == {"look": (0, 1), "ask": (0,)}
    assert [one.premises for one in case.causes] == [(1,)]
    assert (case.abstain, case.repair, case.harm_max) == (5.0, 1.0, 0.1)
    assert (case.risk_max, case.planner) == (50.0, "exact")
    assert judge(case, []).planner == "exact"


def test_a_check_is_as_reliable_as_it_proved_and_else_no_better_than_others_are() -> None:
    """Whatever was declared of it: others had been declared something, too."""
    rules = policy({"a": {**STATUS, "verify_with": ["look", "ask"]}})
    premises, rule = bound(rules, order_id="1")
    learned = {"look": Reliability(sensitivity=0.99, specificity=0.98, group="one")}

    def reliable(others: Reliability) -> dict[str, tuple[float, float]]:
        case = case_of(premises, rule, rules, "default", learned, others)
        return {one.name: (one.sensitivity, one.specificity) for one in case.checks}

    plain, worse, better = (
        reliable(Reliability(sensitivity=s, specificity=s)) for s in (None, 0.8, 0.999)
    )
    assert plain["look"] == worse["look"] == better["look"] == (0.99, 0.98)
    assert plain["ask"] == better["ask"]
    assert worse["ask"] == (0.8, 0.8)


def test_a_case_says_what_the_call_itself_says() -> None:
    """A repair puts what was read into it; a premise that is nobody's is not of a claim at all."""
    rests_on = {
        "a": {**STATUS, "require": {"argument": "order_id"}},
        "b": {**STATUS, "require": {"one_of": ["pending", "new"]}},
        "c": {"claim": "x/c"},
    }
    rules = policy(rests_on)
    premises, rule = bound(rules, order_id="1", amount=5)
    case = case_of(premises, rule, rules, "default")

    told = {one.name: one.in_call for one in case.premises}
    assert told == {"a": True, "b": False, "c": False, "argument.amount": False}


def test_what_errs_together_is_one_group_as_declared_or_else_as_learned() -> None:
    rules = policy({"a": {**STATUS, "verify_with": ["look", "ask"]}})
    premises, rule = bound(rules, order_id="1")
    learned = {name: Reliability(group="both") for name in ("look", "ask")}
    declared = dict(rules.verifiers, ask=msgspec.structs.replace(rules.verifiers["ask"], group="x"))
    told = msgspec.structs.replace(rules, verifiers=declared)

    cases = [case_of(premises, rule, one, "default", learned) for one in (rules, told)]
    assert [one.group for one in cases[0].checks] == ["both", "both"]
    assert [one.group for one in cases[1].checks] == ["both", "x"]


def test_a_cause_of_premises_that_are_not_critical_is_left_out() -> None:
    rests_on = {name: {"claim": f"x/{name}", "wrong": 1.0} for name in ("a", "b")}
    rules = policy(rests_on, causes=[{"premises": ["a", "b"], "probability": 0.2}])
    premises, rule = bound(rules)
    case = case_of(premises, rule, rules, "default")

    assert (case.causes, case.premises, case.risk_max) == ((), (), None)
    assert judge(case, []).verdict == "PROCEED"


def test_what_a_critical_premise_rests_on_is_critical_too() -> None:
    """However little it loses by itself: with it fails what loses much."""
    rests_on = {
        "address": {"claim": "x/address", "rests_on": ["customer"]},
        "customer": {"claim": "x/customer", "wrong": 0.0, "rests_on": ["login"]},
        "login": {"claim": "x/login", "wrong": 0.0},
        "colour": {"claim": "x/colour", "wrong": 0.0, "rests_on": ["login"]},
    }
    rules = policy(rests_on)
    premises, rule = bound(rules)
    case = case_of(premises, rule, rules, "default")

    assert [one.name for one in case.premises] == ["address", "customer", "login"]
    assert [one.rests_on for one in case.premises] == [(1,), (2,), ()]
    assert judge(case, []).before[0] == pytest.approx(1.0 - 0.5**3)


def test_a_probability_is_never_certain() -> None:
    claims = FakeClaims(("order/1", "status", remembered("delivered")))
    rules = policy({"s": STATUS})
    rule = rules.actions["cancel"]
    action = Action(tool="cancel", arguments={"order_id": "1"})
    (status,) = premises_of(action, rule, claims, lambda features, kind: -5.0, NOW_S)

    assert status.p == P_MAX


names = st.sampled_from(["a", "b", "c"])
values = st.sampled_from(["pending", "delivered", 5, "5", None])


@st.composite
def claims(draw: st.DrawFn, low: float, high: float) -> tuple[str, str, Remembered]:
    """Draw a claim of a source trusted from *low* to *high*."""
    found = remembered(
        draw(values),
        trust=draw(st.floats(min_value=low, max_value=high)),
        age_h=draw(st.sampled_from([0.0, 1.0, 100.0, 5000.0])),
        is_contradicted=draw(st.booleans()),
    )
    return "x", draw(names), found


def contradicted(
    claim: tuple[str, str, Remembered], by: list[tuple[str, str, Remembered]]
) -> tuple[str, str, Remembered]:
    """Return a claim as the memory holds it after others of another value came in."""
    subject, attribute, found = claim
    others = [other.value for s, a, other in by if (s, a) == (subject, attribute)]
    is_flagged = any(not equal(value, found.value) for value in others)
    return subject, attribute, found._replace(is_contradicted=found.is_contradicted or is_flagged)


requirements = st.sampled_from(
    [{}, {"require": "pending"}, {"require": {"one_of": [5, "delivered"]}}]
)


@pytest.mark.long
@settings(deadline=None, max_examples=CASES)
@given(
    trusted=st.lists(claims(0.5, 1.0), max_size=3),
    poison=st.lists(claims(0.0, 0.499), min_size=1, max_size=4),
    rules=st.lists(requirements, min_size=1, max_size=3),
    theta=st.sampled_from([6.0, 120.0]),
    checked=st.booleans(),
    flags=st.booleans(),
)
def test_untrusted_claims_never_help(
    trusted: list[tuple[str, str, Remembered]],
    poison: list[tuple[str, str, Remembered]],
    rules: list[dict[str, Any]],
    theta: float,
    checked: bool,
    flags: bool,
) -> None:
    """Whoever can write into the memory what nobody trusts must not open the gate with it.

    Neither by what it says nor, where it *flags*, by contradicting what others said.
    """
    rests_on = {
        name: {"claim": f"x/{name}", "wrong": theta, "verify_with": ["look"][:checked], **require}
        for name, require in zip("abc", rules, strict=False)
    }
    asked = policy(rests_on)
    clean, rule = bound(asked, FakeClaims(*trusted))
    told = [contradicted(one, poison) for one in trusted] if flags else trusted
    dirty, _ = bound(asked, FakeClaims(*told, *poison))
    before = judge(case_of(clean, rule, asked, "default"), [])
    after = judge(case_of(dirty, rule, asked, "default"), [])

    assert all(one.p >= other.p for one, other in zip(dirty, clean, strict=True))
    assert after.harm >= before.harm - 1e-12
    assert after.proceed >= before.proceed - 1e-9
    assert after.verdict != "PROCEED" or before.verdict == "PROCEED"


@pytest.mark.parametrize("says", [-2.5, 2.5])
def test_a_contradiction_makes_no_premise_less_likely_to_be_violated(says: float) -> None:
    """Whatever a calibration may have learned of contradictions."""
    model = LogisticPrior(contradicted=says)
    for value in ("pending", "delivered"):
        found = []
        for flag in (False, True):
            claims = FakeClaims(("order/1", "status", remembered(value, is_contradicted=flag)))
            rules = policy({"s": STATUS})
            action = Action(tool="cancel", arguments={"order_id": "1"})
            found += premises_of(
                action, rules.actions["cancel"], claims, lambda f, kind: model(f), NOW_S
            )
        alone, flagged = found

        assert flagged.p >= alone.p

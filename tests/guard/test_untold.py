"""How far checks can be relied on, by their answers alone."""

import random

import msgspec
import pytest

from amv.errors import InvalidInput
from amv.guard.bind import Premise, case_of
from amv.guard.calibration import Calibration
from amv.guard.policy import parse
from amv.guard.reliability import LEARNED_FROM, TYPICAL_FROM, Reliability, Supposed, typical
from amv.guard.untold import Heard, supposed

Truth = tuple[float, float]


def known(size: int = 20) -> dict[str, Reliability]:
    """Return checks known by the truth: half never err, one is stuck, the rest err now and then."""
    found = {}
    for n in range(size):
        of_s, of_t = (1.0, 1.0) if n % 2 else (0.0, 1.0) if n == 0 else (0.92, 0.92)
        found[f"k{n:02}"] = Reliability(
            sensitivity=0.5, specificity=0.5, violated=200.0, held=200.0,
            caught=200.0 * of_s, passed=200.0 * of_t,
        )  # fmt: skip
    return found


def heard(
    checks: dict[str, Truth], count: int, seed: int, *, p: float = 0.25, bad: float = 0.25
) -> list[Heard]:
    """Return what checks of the same premises said, violated with *bad*, as is thought with *p*."""
    draw, found = random.Random(seed), []
    for _ in range(count):
        is_violated = draw.random() < bad
        said = []
        for name, (s, t) in checks.items():
            is_refuted = draw.random() < s if is_violated else draw.random() >= t
            said.append((name, is_refuted))
        found.append(Heard(p, tuple(said)))
    return found


def guess_of(found: dict[str, Reliability], name: str) -> Supposed:
    guess = found[name].supposed
    assert guess is not None
    return guess


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_check_that_never_refutes_is_stuck_rather_than_lucky(seed: int) -> None:
    alone = supposed(heard({"stuck": (0.0, 1.0)}, 60, seed), known())
    sound = supposed(heard({"sound": (1.0, 1.0)}, 60, seed), known())

    assert guess_of(alone, "stuck").sensitivity < 0.1
    assert guess_of(sound, "sound").sensitivity > typical(known().values()).sensitivity  # type: ignore[operator]


def test_where_little_is_likely_to_be_wrong_silence_tells_little() -> None:
    expected = typical(known().values()).sensitivity
    found = supposed(heard({"quiet": (0.0, 1.0)}, 20, 1, p=0.002), known())

    assert guess_of(found, "quiet").sensitivity == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_checks_that_agree_vouch_for_each_other(seed: int) -> None:
    """And who contradicts the two of them errs, though it refutes as often as they do."""
    checks = {"one": (1.0, 1.0), "other": (1.0, 1.0), "shaky": (0.7, 0.9)}
    found = supposed(heard(checks, 80, seed), known())
    one, other, shaky = (guess_of(found, name) for name in checks)

    assert min(one.sensitivity, other.sensitivity) > 0.97
    assert min(one.specificity, other.specificity) > 0.97
    assert shaky.sensitivity < 0.93
    assert shaky.specificity < 0.96


def test_a_check_known_by_the_truth_tells_of_others_and_keeps_what_is_known() -> None:
    oracle = Reliability(
        sensitivity=0.999, specificity=0.999, violated=99.0, held=99.0, caught=99.0, passed=99.0
    )
    rows = [Heard(0.25, (("oracle", n % 4 == 0), ("poor", n % 8 == 0))) for n in range(80)]
    found = supposed(rows, {**known(), "oracle": oracle})

    assert found["oracle"].sensitivity == 0.999
    assert guess_of(found, "poor").sensitivity == pytest.approx(0.5, abs=0.12)


def test_what_was_told_of_it_counts_as_well() -> None:
    """Twenty answers are too few to go by, but not nothing."""
    poor = Reliability(violated=20.0, held=0.0, caught=10.0, passed=0.0)
    rows = heard({"desk": (1.0, 1.0)}, 5, 1)
    fresh = guess_of(supposed(rows, known()), "desk")
    told = guess_of(supposed(rows, {**known(), "desk": poor}), "desk")

    assert told.sensitivity < fresh.sensitivity - 0.1


def test_nothing_is_supposed_before_it_is_known_what_checks_are_like() -> None:
    few = known(TYPICAL_FROM - 1)

    assert supposed(heard({"stuck": (0.0, 1.0)}, 60, 1), few) == few
    assert supposed([], known()) == known()


def test_what_was_supposed_before_is_gone_on_from() -> None:
    rows = heard({"stuck": (0.0, 1.0), "sound": (1.0, 1.0)}, 60, 1)
    at_once = supposed(rows, known())
    half = supposed(rows[:30], known())
    later = supposed(rows[30:], half)

    for name in ("stuck", "sound"):
        one, other = guess_of(at_once, name), guess_of(later, name)
        assert other.sensitivity == pytest.approx(one.sensitivity, abs=0.05)
        assert other.violated + other.held == pytest.approx(60.0)
    assert supposed(rows[:1], half)["stuck"] != known().get("stuck")


def test_few_answers_make_no_check_better_than_it_was_declared() -> None:
    policy = parse(
        {
            "version": 1,
            "verifiers": {"desk": {"cost": 0.1, "sensitivity": 0.9, "specificity": 0.93}},
            "actions": {
                "act": {
                    "loss": {"wrong": 10, "abstain": 1},
                    "rests_on": {"it": {"claim": "a/b", "verify_with": ["desk"]}},
                }
            },
        }
    )
    premise = Premise(
        name="it", subject="a", attribute="b", is_remembered=True, p=0.2, theta=10.0,
        verify_with=("desk",),
    )  # fmt: skip

    def believed(own: Supposed | msgspec.UnsetType, told: float | None = None) -> Truth:
        learned = {"desk": Reliability(guess=own, sensitivity=told)}
        others = Reliability(sensitivity=0.7, specificity=0.7)
        (check,) = case_of(
            [premise], policy.actions["act"], policy, "default", learned, others
        ).checks
        return check.sensitivity, check.specificity

    assert believed(msgspec.UNSET) == (0.7, 0.7)
    assert believed(Supposed(sensitivity=0.99, specificity=0.8)) == (0.9, 0.8)
    assert believed(Supposed(sensitivity=0.99, specificity=0.8), 0.97) == (0.97, 0.8)
    enough = Supposed(sensitivity=0.99, specificity=0.8, violated=5.0, held=LEARNED_FROM - 5.0)
    assert believed(enough) == (0.99, 0.8)
    assert believed(enough, 0.97) == (0.97, 0.8)


def test_a_calibration_without_suppositions_keeps_its_digest() -> None:
    """What was certified under one that was written before there were any stays in force."""
    one = Reliability(sensitivity=0.9, violated=40.0, caught=36.0)
    guess = Supposed(sensitivity=0.8, specificity=0.9, violated=2.0, caught=1.0)
    plain, more = (
        Calibration(verifiers={"a": found})
        for found in (one, msgspec.structs.replace(one, guess=guess))
    )

    assert b"guess" not in msgspec.json.encode(plain)
    assert plain.digest() != more.digest()
    assert msgspec.json.decode(msgspec.json.encode(more), type=Calibration) == more


@pytest.mark.parametrize(
    "how", [{"sensitivity": 1.0}, {"specificity": 0.0}, {"violated": 1.0, "caught": 2.0}]
)
def test_a_supposition_that_can_t_be_is_refused(how: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        Supposed(**{"sensitivity": 0.9, "specificity": 0.9, **how})

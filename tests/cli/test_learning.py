"""What the gate learns of its own record: calibrate and certify, on the command line."""

import json
import math
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import amv as package
from amv.cli import reliability
from amv.errors import ConfigError, InvalidInput
from amv.guard.calibration import PRIOR, STEPS_MAX, Calibration, Calibrator, Label
from amv.guard.prior import Features, LogisticPrior
from amv.loading import load_calibration
from amv.testing import FakeClock
from tests.cli.conftest import Cli

POLICY: dict[str, Any] = {
    "version": 1,
    "verifiers": {
        "desk": {"cost": 0.01, "sensitivity": 0.99, "specificity": 0.99},
        "other": {"cost": 0.01},
    },
    "actions": {
        "cancel": {
            "loss": {"wrong": 1000, "abstain": 5},
            "rests_on": {
                "status": {
                    "claim": "order/{id}/status",
                    "require": "pending",
                    "verify_with": ["desk"],
                }
            },
        }
    },
}
CASE: dict[str, Any] = {
    "premises": [{"name": "status", "p": 0.01, "theta": 100.0}],
    "checks": [
        {
            "name": "desk",
            "premises": [0],
            "cost": 0.1,
            "sensitivity": 0.99,
            "specificity": 0.99,
            "group": "desk",
        }
    ],
    "abstain": 5.0,
    "harm_max": 0.05,
}
ANSWERS = {"desk": {"check": "desk", "outcomes": ["confirmed"]}}
INSTANCE = json.dumps({"case": CASE, "answers": ANSWERS, "is_harmful": False})


def decide_often(path: Path, count: int, calibration: Calibration | None = None) -> str:
    """Have the gate check so many orders, of which many more are wrong than it thinks."""
    draw, clock = random.Random(5), FakeClock()
    settings = package.Settings(upkeep_interval_s=None, synchronous="NORMAL")
    last = ""
    with package.Guard.open(
        str(path),
        policy=POLICY,
        namespace=("shop",),
        settings=settings,
        clock=clock,
        embedder="hashing",
        calibration=calibration,
    ) as guard:
        world: dict[str, str] = {}
        guard.verifier("desk")(lambda id: world[id])
        for number in range(count):
            name = f"o{number}" + ("" if calibration is None else "b")
            guard.memory.add(
                name,
                namespace=("shop",),
                claim=package.Claim(f"order/{name}", "status", "pending"),
                source_trust=draw.choice([0.5, 0.8, 1.0]),
            )
            clock.advance(draw.choice([3600, 86400]))
            world[name] = "delivered" if draw.random() < 0.3 else "pending"
            action = package.Action(tool="cancel", arguments={"id": name}, namespace=("shop",))
            last = guard.decide(action).id
    return last


def test_what_checks_found_is_learned_and_drawn_and_used(amv: Cli) -> None:
    decide_often(amv.folder / "amv.db", 120)

    run = amv(
        *["guard", "calibrate", "--out", "c.json", "--plot", "r.png", "--html", "r.html"], "--json"
    )

    told = run.json
    assert (run.code, told["labels"], told["decisions"], told["weight"]) == (0, 120, 120, 120.0)
    assert told["sources"] == {"checked": 120, "audited": 0, "told": 0}
    assert 20 <= told["wrong"] <= 50
    assert told["log_loss"][told["chosen"]] <= told["log_loss"]["identity"]
    fitted = load_calibration("c.json")
    assert fitted.digest() == told["calibration"] != PRIOR
    said = fitted.said(LogisticPrior(), Features(age_h=12.0, trust=0.8), "status")
    assert 0.15 < said < 0.5
    assert (amv.folder / "r.png").read_bytes().startswith(b"\x89PNG")
    page = (amv.folder / "r.html").read_text("utf-8")
    assert "Memories are wrong more often than the gate says" in page
    assert 'name="viewport"' in page
    # It loads nothing from elsewhere: all that looks like an address names a kind of XML.
    assert not re.search(r"(?:src|href)=\"(?!#)(?!http://www\.w3\.org)", page)
    assert "url(http" not in page

    # What was said under the calibration is learned from as well: its features are in the log.
    decision = decide_often(amv.folder / "amv.db", 30, fitted)
    anew = amv("guard", "calibrate", "--json").json
    assert (anew["labels"], anew["decisions"]) == (150, 150)
    assert amv("guard", "explain", decision).code == 0
    assert amv("guard", "replay").code == 0


def test_of_whose_memory_to_learn_can_be_asked(amv: Cli) -> None:
    decide_often(amv.folder / "amv.db", 30)

    assert amv("guard", "calibrate", "-n", "shop", "--json").json["labels"] == 30
    assert amv("guard", "calibrate", "-n", "another", "--json").json["labels"] == 0
    certified = amv("guard", "certify", "-n", "another", "--json")
    assert (certified.code, certified.json["decisions"]) == (1, 0)


def test_people_are_told_what_was_learned(amv: Cli) -> None:
    decide_often(amv.folder / "amv.db", 100)

    run = amv("guard", "calibrate")

    assert "100 of 100 decisions: 100 labels (100 checked)" in run.err
    assert "they stand for 100 memories" in run.err
    assert "chosen" in run.out
    assert "identity" in run.out


def learnable(path: Path) -> dict[str, Any]:
    """Have a gate see two kinds of claims change; return its policy."""
    kinds = {"status": 1.0 / 30.0, "address": 1.0 / 4000.0}
    verifiers = {f"ask_{kind}": {"cost": 2.0} for kind in kinds}
    actions = {
        f"change_{kind}": {
            "loss": {"wrong": 60, "abstain": 5},
            "rests_on": {
                kind: {"claim": f"o/{{id}}/{kind}", "require": "a", "verify_with": [f"ask_{kind}"]}
            },
        }
        for kind in kinds
    }
    policy = {
        "version": 1,
        "defaults": {"audit": 0.5},
        "verifiers": verifiers,
        "actions": actions,
    }
    draw, clock, world = random.Random(3), FakeClock(), dict[str, str]()
    with package.Guard.open(
        str(path),
        policy=policy,
        namespace=("shop",),
        settings=package.Settings(upkeep_interval_s=None, synchronous="NORMAL"),
        clock=clock,
        embedder="hashing",
        chance=draw.random,
    ) as guard:
        for name in verifiers:
            guard.verifier(name)(lambda id: world[id])
        for number in range(400):
            kind, name = draw.choice(list(kinds)), f"o{number}"
            claim = package.Claim(f"o/{name}", kind, "a")
            guard.memory.add(name, namespace=("shop",), claim=claim, source_trust=0.9)
            age_h = draw.expovariate(1.0 / 80.0)
            clock.advance(age_h * 3600.0)
            is_wrong = draw.random() > math.exp(-kinds[kind] * age_h)
            world[name] = "b" if is_wrong else "a"
            action = package.Action(
                tool=f"change_{kind}", arguments={"id": name}, namespace=("shop",)
            )
            decided = guard.decide(action)
            guard.label(decided.id, {kind: is_wrong}, by="shop")
        for value in ("a", "b"):
            again = package.Claim("o/again", "status", value)
            guard.memory.add(value, namespace=("shop",), claim=again, source_trust=0.9)
            clock.advance(3600.0)
    return policy


def test_hazards_checks_and_audits_are_learned_of_and_told(amv: Cli) -> None:
    policy = learnable(amv.folder / "amv.db")
    (amv.folder / "p.yaml").write_text(json.dumps(policy), "utf-8")

    run = amv(
        *["guard", "calibrate", "--policy", "p.yaml", "--out", "c.json"],
        *["--plot", "r.png", "--html", "r.html"],
    )

    assert run.code == 0
    assert re.search(r"of 400 decisions: \d+ labels \(.*\d+ audited\), \d+ of them wrong", run.err)
    assert "that the memory was told again" in run.err
    assert "half stay true for" in run.out
    assert "any other" in run.out
    assert re.search(r"ask_address +as declared +(0\.9\d\d|1\.000) ", run.out)
    assert "any other" in run.out.partition("errs with")[2]
    assert "as declared" in run.out
    learned = load_calibration("c.json")
    assert learned.survival.kinds["status"] > 10.0 * learned.survival.kinds["address"]
    assert "ask_address" in learned.verifiers
    page = (amv.folder / "r.html").read_text("utf-8")
    assert "half stay true for" in page
    data = amv("guard", "calibrate", "--json").json
    assert data["weight"] > data["labels"]
    assert data["hazard_per_h"]["status"] > data["hazard_per_h"]["*"]
    assert data["retold"] == 0

    certified = amv("guard", "certify", "--json").json
    assert certified["decisions"] == 400
    assert certified["told"] == certified["instances"]
    assert certified["weight"] == pytest.approx(400, rel=0.2)
    said = amv("guard", "certify", "--epsilon", "0.2")
    assert "were drawn for an audit" in said.err
    assert "by their weights they stand for" in said.err


def audited_often(path: Path, count: int, *, is_wrong: bool = False) -> list[str]:
    """Have the gate decide about so many orders, all audited; return the decisions."""
    policy = {**POLICY, "defaults": {"audit": 1.0}}
    settings = package.Settings(upkeep_interval_s=None, synchronous="NORMAL")
    with package.Guard.open(
        str(path),
        policy=policy,
        namespace=("shop",),
        settings=settings,
        # All are decided about at the same age: on a slow machine some would else be
        # less certain than any that the certificate counts.
        clock=FakeClock(),
        embedder="hashing",
    ) as guard:
        for name in ("desk", "other"):
            guard.verifier(name)(lambda id: "delivered" if is_wrong else "pending")
        made = []
        for _ in range(count):
            name = f"o{guard.decided()}"
            claim = package.Claim(f"order/{name}", "status", "pending")
            guard.memory.add(name, namespace=("shop",), claim=claim, source_trust=0.9)
            action = package.Action(tool="cancel", arguments={"id": name}, namespace=("shop",))
            made.append(guard.decide(action).id)
    return made


def test_a_certificate_is_adopted_shown_withdrawn_and_dropped(amv: Cli) -> None:
    path = amv.folder / "amv.db"
    audited_often(path, 60)
    assert amv("guard", "certificate", "--json").json == {"state": "none"}
    assert "the policy's own screen holds" in amv("guard", "certificate").err
    assert not amv("guard", "certify", "--json").json["adopted"]
    assert amv("guard", "certificate", "--json").json == {"state": "none"}

    run = amv("guard", "certify", "--adopt", "--by", "ann")

    assert run.code == 0
    assert "the gate screens by it from now on" in run.err
    told = amv("guard", "certificate", "--json").json
    assert (told["state"], told["by"], told["executed"]) == ("in_force", "ann", 0)
    assert (told["epsilon"], told["withdrawn_at"], told["withdrawn_from"]) == (0.05, None, 1000.0)
    made = audited_often(path, 20)
    assert amv("guard", "certificate", "--json").json["executed"] == 20
    shown = amv("guard", "certificate").out
    assert "In force." in shown
    assert "Of 20 that went ahead the truth is known since, 0 did harm" in shown

    for decision in made:
        amv("guard", "label", decision, "status=violated", "--by", "bob")

    over = amv("guard", "certificate", "--json").json
    assert over["state"] == "withdrawn"
    assert over["withdrawn_at"]
    shown = amv("guard", "certificate").out
    assert "Withdrawn: more harm became known than it allows" in shown
    assert "certify --adopt" in shown
    assert amv("guard", "replay").code == 0

    assert "screen holds" in amv("guard", "certificate", "--drop").err
    assert amv("guard", "certificate", "--json").json == {"state": "none"}
    assert amv("guard", "certificate", "--drop").code == 1


def test_a_certificate_of_another_ground_is_shown_as_stale(amv: Cli) -> None:
    audited_often(amv.folder / "amv.db", 60)
    assert amv("guard", "certify", "--adopt").code == 0
    decide_often(amv.folder / "amv.db", 1)
    assert amv("guard", "certificate", "--json").json["state"] == "in_force"
    other = Calibration(steps=(Calibrator(sort="platt", numbers=(1.0, 0.1)),))
    decide_often(amv.folder / "amv.db", 1, other)

    assert amv("guard", "certificate").out.startswith("Stale: decisions are made under another")
    anew = amv("guard", "certify", "--adopt")
    assert anew.code == 1
    assert "60 under another policy or calibration are left out" in anew.err
    assert amv("guard", "certificate", "--json").json["state"] == "stale"


def test_what_is_adopted_is_of_the_whole_database(amv: Cli) -> None:
    assert amv("guard", "certify", "i.jsonl", "--adopt").code == 2
    assert amv("guard", "certify", "-n", "a", "--adopt").code == 2


LABEL = '{"kind": "status", "age_h": %d, "trust": 0.8, "is_violated": %s, "weight": 2}'


def test_labels_of_a_file_are_learned_from(amv: Cli) -> None:
    lines = [LABEL % (n, "true" if n % 4 == 0 else "false") for n in range(80)]
    (amv.folder / "l.jsonl").write_text("\n".join([*lines, ""]), "utf-8")

    told = amv("guard", "calibrate", "l.jsonl", "--json").json

    assert (told["labels"], told["wrong"], told["weight"]) == (80, 20, 160.0)
    assert told["sources"] == {"checked": 0, "audited": 0, "told": 80}
    assert told["log_loss"]
    assert "'l.jsonl': 80 labels (80 told)" in amv("guard", "calibrate", "l.jsonl").err


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "{}",
        '{"age_h": 1, "trust": 2, "is_violated": true}',
        '{"age_h": -1, "trust": 0.5, "is_violated": true}',
        '{"age_h": 1, "trust": 0.5, "is_violated": 1}',
        '{"age_h": 1, "trust": 0.5, "is_violated": true, "weight": 0}',
        '{"age_h": 1, "trust": 0.5, "is_violated": true, "surprise": 0}',
    ],
)
def test_a_line_that_is_no_label_is_named(amv: Cli, line: str) -> None:
    (amv.folder / "l.jsonl").write_text(f"{LABEL % (1, 'true')}\n{line}\n", "utf-8")

    run = amv("guard", "calibrate", "l.jsonl")

    assert (run.code, run.out) == (1, "")
    assert "line 2" in run.err
    assert "is no label" in run.err


def test_a_file_is_read_in_place_of_the_log_and_not_beside_it(amv: Cli) -> None:
    for options in (["-n", "a"], ["--policy", "p.yaml"]):
        assert amv("guard", "calibrate", "l.jsonl", *options).code == 2
    assert amv("guard", "certify", "i.jsonl", "-n", "a").code == 2
    assert amv("guard", "calibrate", "nowhere.jsonl").code == 1
    (amv.folder / "l.jsonl").write_text("\n", "utf-8")
    assert "there is no label" in amv("guard", "calibrate", "l.jsonl").err


def test_what_was_true_can_be_told(amv: Cli) -> None:
    decision = decide_often(amv.folder / "amv.db", 1)

    run = amv("guard", "label", decision, "status=violated", "--by", "bob", "--weight", "3")

    assert (run.code, run.err) == (0, f"noted of decision {decision}\n")
    assert "in truth, status was violated, says bob" in amv("guard", "explain", decision).out
    told = amv("guard", "label", decision, "status=held", "--json").json
    assert told == {"decision_id": decision, "violated": {"status": False}, "weight": 1.0}
    assert amv("guard", "replay").code == 0


@pytest.mark.parametrize("truth", ["status", "=held", "status=wrong", "status="])
def test_what_is_no_truth_is_refused(amv: Cli, truth: str) -> None:
    decision = decide_often(amv.folder / "amv.db", 1)

    assert amv("guard", "label", decision, truth).code == 2
    assert amv("guard", "label", decision, "owner=held").code == 1
    assert amv("guard", "label", "none", "status=held").code == 1


@pytest.mark.parametrize(
    ("shares", "title"),
    [
        ((0.1, 0.1), "What the gate says is about what happens"),
        ((0.1, 0.5), "Memories are wrong more often than the gate says"),
        ((0.5, 0.1), "Memories are wrong less often than the gate says"),
        # None of a hundred may be chance.
        ((0.02, 0.0), "What the gate says is about what happens"),
    ],
)
def test_the_title_of_the_plot_says_what_it_shows(shares: tuple[float, float], title: str) -> None:
    said, was = shares
    labels = [Label(said, n < 100 * was) for n in range(100)]

    shown = reliability.picture(labels, labels, {"x" * 30: 1.0, "": 0.1})

    assert shown.title == title
    assert [name for name, _ in shown.kinds] == ["x" * 23 + "…", "no kind"]


def test_names_of_kinds_are_drawn_as_they_are() -> None:
    """Some of what a text may hold would be read as a formula, or as markup."""
    labels = [Label(0.3, n % 3 == 0) for n in range(60)]
    shown = reliability.picture(labels, labels, {"$x$ <b>": 1.0, "$\\frac": 0.1})

    assert reliability.png(shown).startswith(b"\x89PNG")
    assert b"$x$ &lt;b&gt;" in reliability.page(shown)


@pytest.mark.parametrize(
    ("hours", "text"),
    [
        (0.05, "3 min"), (0.5, "30 min"), (7.0, "7 h"), (47.0, "47 h"), (60.0, "2.5 days"),
        (2160.0, "90 days"), (87660.0, "10 years"),
    ],
)  # fmt: skip
def test_times_are_told_as_people_say_them(hours: float, text: str) -> None:
    assert reliability.lasting(hours) == text


def test_too_little_to_learn_from_is_told(amv: Cli) -> None:
    decide_often(amv.folder / "amv.db", 5)

    run = amv("guard", "calibrate", "--out", "c.json")

    assert run.code == 0
    assert "too few to learn from" in run.err
    assert load_calibration("c.json").digest() == PRIOR


def test_nothing_to_draw_is_an_error(amv: Cli) -> None:
    amv("add", "x", "-n", "a")

    run = amv("guard", "calibrate", "--plot", "r.png")

    assert run.code == 1
    assert "nothing to draw" in run.err
    assert not (amv.folder / "r.png").exists()


def test_a_file_that_can_not_be_written_is_an_error(amv: Cli) -> None:
    amv("add", "x", "-n", "a")

    assert amv("guard", "calibrate", "--out", "no/where.json").code == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"steps": [{"sort": "strange"}]}',
        '{"steps": [{"sort": "platt", "numbers": [1]}]}',
        '{"steps": [{"sort": "isotonic", "numbers": []}]}',
        '{"steps": [{"sort": "isotonic", "numbers": [0.2, 0.1, 0.1, 0.2]}]}',
        '{"steps": [{"sort": "platt", "numbers": [1, 1e999]}]}',
        '{"surprise": 1}',
        json.dumps({"steps": [{"sort": "identity"}] * (STEPS_MAX + 1)}),
    ],
)
def test_what_is_no_calibration_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)

    with pytest.raises(ConfigError, match="can't use the calibration"):
        load_calibration(path)
    with pytest.raises(ConfigError):
        package.Guard.open(":memory:", policy=POLICY, calibration=str(path))


def test_a_calibration_is_a_file_or_one() -> None:
    with pytest.raises(ConfigError):
        load_calibration("nowhere.json")
    with pytest.raises(InvalidInput):
        load_calibration(5)  # type: ignore[arg-type]
    assert load_calibration(None)(0.3) == 0.3
    one = Calibration(steps=(Calibrator(sort="platt", numbers=(1.0, 1.0)),))
    assert load_calibration(one)(0.3) > 0.3


# ---------------------------------------------------------------- certify


def certify(amv: Cli, *instances: str, options: tuple[str, ...] = ()) -> Any:
    (amv.folder / "i.jsonl").write_text("".join(f"{one}\n" for one in instances), "utf-8")
    return amv("guard", "certify", "i.jsonl", *options)


def test_what_does_no_harm_is_certified_in_words(amv: Cli) -> None:
    run = certify(amv, *[INSTANCE] * 60, "")

    assert run.code == 0
    assert "at most 5 in 100 actions" in run.out
    assert "60" in run.out
    data = certify(amv, *[INSTANCE] * 60, options=("--json",)).json
    assert (data["executed"], data["harmed"], data["coverage"]) == (60, 0, 1.0)


def test_too_few_certify_nothing_and_say_so(amv: Cli) -> None:
    run = certify(amv, *[INSTANCE] * 10)

    assert run.code == 1
    assert run.out.startswith("Nothing is certified: at most 10 actions go ahead")


def test_instances_of_unequal_weight_have_a_bound_of_their_own(amv: Cli) -> None:
    heavy = json.dumps({**json.loads(INSTANCE), "weight": 2.0})

    assert certify(amv, *[INSTANCE] * 150, *[heavy] * 50).code == 0


def broken(change: Callable[[dict[str, Any]], object]) -> str:
    data = json.loads(INSTANCE)
    change(data)
    return json.dumps(data)


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        broken(lambda d: d.pop("is_harmful")),
        broken(lambda d: d.update(answers={})),
        broken(lambda d: d["answers"]["desk"].update(check="other")),
        broken(lambda d: d["answers"]["desk"].update(outcomes=[])),
        broken(lambda d: d["answers"]["desk"].update(outcomes=["perhaps"])),
        broken(lambda d: d["case"].update(planner="strange")),
        broken(lambda d: d["case"].update(harm_max=2.0)),
        broken(lambda d: d["case"]["premises"][0].update(p=-0.1)),
        broken(lambda d: d["case"]["premises"][0].update(theta=-1.0)),
        broken(lambda d: d["case"]["checks"][0].update(premises=[1])),
        broken(lambda d: d["case"]["checks"][0].update(sensitivity=0.01)),
        broken(lambda d: d.update(weight=0.0)),
    ],
)
def test_a_line_that_is_no_instance_is_named(amv: Cli, line: str) -> None:
    run = certify(amv, INSTANCE, line)

    assert (run.code, run.out) == (1, "")
    assert "line 2" in run.err


def test_no_instances_and_bounds_that_are_none_are_errors(amv: Cli) -> None:
    assert certify(amv).code == 1
    assert amv("guard", "certify", "nowhere.jsonl").code == 1
    assert certify(amv, INSTANCE, options=("--epsilon", "0")).code == 1
    assert certify(amv, INSTANCE, options=("--delta", "1.5")).code == 1


def test_marks_whose_texts_would_touch_are_left_out() -> None:
    marks = [(0.0, 1.0), (0.05, 2.0), (0.5, 3.0), (0.94, 4.0), (1.0, 5.0)]

    assert reliability._apart(marks, 0.1) == [2.0, 3.0, 5.0]
    assert reliability._apart([], 0.1) == []

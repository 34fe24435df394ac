"""What the gate learns of its own record: calibrate and certify, on the command line."""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import amv as package
from amv.errors import ConfigError, InvalidInput
from amv.guard.calibration import PRIOR, STEPS_MAX, Calibration, Calibrator, Label
from amv.guard.labels import Told
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
    assert (run.code, told["labels"], told["passed_over"]) == (0, 120, 0)
    assert 20 <= told["wrong"] <= 50
    assert told["chosen"] != "identity"
    assert told["log_loss"][told["chosen"]] < told["log_loss"]["identity"]
    fitted = load_calibration("c.json")
    assert fitted.digest() == told["calibration"] != PRIOR
    assert 0.15 < fitted(0.01) < 0.5
    assert (amv.folder / "r.png").read_bytes().startswith(b"\x89PNG")
    page = (amv.folder / "r.html").read_text("utf-8")
    assert "Memories are wrong more often than the gate says" in page
    assert 'name="viewport"' in page
    # It loads nothing from elsewhere: all that looks like an address names a kind of XML.
    assert not re.search(r"(?:src|href)=\"(?!#)(?!http://www\.w3\.org)", page)
    assert "url(http" not in page

    # What was said under the calibration is fitted on top of it, together with what came before.
    decision = decide_often(amv.folder / "amv.db", 30, fitted)
    anew = amv("guard", "calibrate", "--calibration", "c.json", "--json").json
    assert (anew["labels"], anew["passed_over"]) == (150, 0)
    plain = amv("guard", "calibrate", "--json").json
    assert (plain["labels"], plain["passed_over"]) == (120, 30)
    assert amv("guard", "explain", decision).code == 0
    assert amv("guard", "replay").code == 0


def test_people_are_told_what_was_learned(amv: Cli) -> None:
    decide_often(amv.folder / "amv.db", 100)

    run = amv("guard", "calibrate")

    assert "100 memories were checked" in run.err
    assert "chosen" in run.out
    assert "identity" in run.out


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


def test_labels_said_under_another_calibration_are_left_out() -> None:
    from amv.cli.learning import comparable

    base = Calibration(steps=(Calibrator(sort="platt", numbers=(1.0, 1.0)),))
    label = Label(0.3, True)
    told = [Told(PRIOR, label), Told(base.digest(), label), Told("another", label)]

    assert comparable(told, base) == [Label(base(0.3), True), label]
    assert comparable(told, Calibration()) == [label]


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

"""The demonstration, on a shop small enough to be made here."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from demo import retail
from demo.stage import Stage

NAMES = ("Mia Garcia", "Yusuf Rossi", "Ava Nguyen", "Chen Silva")


def user(number: int, name: str) -> dict[str, Any]:
    first, last = name.split()
    card = {"source": "credit_card", "id": f"card_{number}", "brand": "visa", "last_four": "4242"}
    return {
        "user_id": f"{first}_{last}_{number}".lower(),
        "name": {"first_name": first, "last_name": last},
        "email": f"{first}.{last}{number}@example.com".lower(),
        "payment_methods": {card["id"]: card},
        "address": {
            "address1": f"{number} Elm Street",
            "address2": f"Suite {number}00",
            "city": "Denver",
            "state": "CO",
            "zip": f"8027{number}",
            "country": "USA",
        },
    }


def order(number: int, owner: dict[str, Any]) -> dict[str, Any]:
    lamp = {"name": "Desk Lamp", "options": {"color": "black"}, "price": 40.5 + number}
    return {
        "order_id": f"#W100{number}",
        "user_id": owner["user_id"],
        "address": owner["address"],
        "items": [lamp],
        "status": "pending",
    }


def task(task_id: str, bought: dict[str, Any], owner: dict[str, Any]) -> dict[str, Any]:
    order_id = bought["order_id"]
    return {
        "id": task_id,
        "user_scenario": {
            "instructions": {
                "known_info": f"You are {owner['name']['first_name']}, {owner['email']}.",
                "reason_for_call": f"You no longer want the lamp of order {order_id}.",
            }
        },
        "evaluation_criteria": {
            "actions": [{"name": "cancel_pending_order", "arguments": {"order_id": order_id}}]
        },
    }


@pytest.fixture
def data(tmp_path: Path) -> Path:
    users = [user(number, name) for number, name in enumerate(NAMES)]
    orders = [order(number, owner) for number, owner in enumerate(users)]
    shown = zip(retail.SHOWN, orders, users, strict=True)
    lamp = {"product_id": "7", "name": "Desk Lamp"}
    variants = {"1": {"available": True, "price": 40.5, "options": {"color": "black"}}}
    tables = {
        "users": {one["user_id"]: one for one in users},
        "orders": {one["order_id"]: one for one in orders},
        "products": {"7": {**lamp, "variants": variants}},
    }
    (tmp_path / "db.json").write_text(json.dumps(tables))
    (tmp_path / "tasks.json").write_text(json.dumps([task(*three) for three in shown]))
    return tmp_path


def test_every_step_runs_and_every_check_holds(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = retail.main(["--data", str(data), "--embedder", "hashing"])

    printed = capsys.readouterr().out
    assert code == 0, printed
    assert "5. Forget a customer" in printed
    assert "6. Guard what acts on it" in printed
    assert "ABSTAIN: cancel_order" in printed
    assert "PROCEED: cancel_order" in printed
    assert "FAILED" not in printed


def test_a_file_that_exists_is_left_alone(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = data / "kept.db"
    kept.write_text("mine")

    with pytest.raises(SystemExit, match="2"):
        retail.main(["--data", str(data), "--db", str(kept)])

    assert "needs a new file" in capsys.readouterr().err
    assert kept.read_text() == "mine"


def test_missing_data_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        retail.main(["--data", str(tmp_path)])

    assert "db.json" in capsys.readouterr().err


def test_one_check_that_fails_makes_the_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage(Console())
    stage.step("Two checks")
    stage.check("this holds", holds=True)
    stage.check("this does not", holds=False)

    assert stage.finish() == 1
    assert "1 of 2 checks passed." in capsys.readouterr().out

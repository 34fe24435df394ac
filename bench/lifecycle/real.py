"""Real conversations (LoCoMo): turns in the order they were said, questions as their evidence ages.

The file is not part of this repository and nothing of it is copied into it or
into results: rows hold ages and counts.  Whoever has it gives its path.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from bench.lifecycle.ops import DAY_S, Op, Workload
from bench.lifecycle.script import UPKEEP_S

WHERE = (
    "LoCoMo (Maharana et al. 2024, CC BY-NC 4.0) is at github.com/snap-research/locomo: "
    "data/locomo10.json; give its path with --locomo"
)
ANSWERABLE = (1, 2, 3, 4)
"""Categories of questions that have an answer; the fifth has none."""

AGES_S = (0.1 * DAY_S, DAY_S, 7 * DAY_S, 30 * DAY_S, 90 * DAY_S)
TURN_S = 20.0


class NoConversations(Exception):
    """The file is absent or holds something else."""


def conversations(path: Path | None) -> list[Any]:
    """Return the conversations of a file; raises NoConversations, which says where to get them."""
    if path is None or not path.is_file():
        raise NoConversations(f"{'no file was given' if path is None else f'no {path}'}: {WHERE}")
    found = json.loads(path.read_text("utf-8"))
    if not (isinstance(found, list) and found and "conversation" in found[0]):
        raise NoConversations(f"{path} holds no conversations: {WHERE}")
    return found


def real(seed: int, told: Sequence[Any], *, most: int | None = None) -> Workload:
    """Return a workload of conversations, each a user of its own, the first *most* of them.

    A question is asked once its last evidence has one of `AGES_S`.
    """
    rng = np.random.default_rng([seed, 43])
    ops: list[Op] = []
    began_s = min(_session_s(one["conversation"], 1) for one in told[:most])
    for user, one in enumerate(told[:most]):
        said: dict[str, tuple[str, float]] = {}
        for op, turn in _turns(one["conversation"], user, began_s):
            ops.append(op)
            said[turn] = (op.ids[0], op.at_s)
        for asked in one["qa"]:
            evidence = [turn for turn in dict.fromkeys(asked["evidence"]) if turn in said]
            if asked["category"] not in ANSWERABLE or not evidence:
                continue
            last_s = max(said[turn][1] for turn in evidence)
            age_s = float(rng.choice(AGES_S))
            ops.append(
                Op(
                    at_s=last_s + age_s,
                    kind="question",
                    user=user,
                    texts=[str(asked["question"])],
                    needs=[said[turn][0] for turn in evidence],
                    age_s=age_s,
                )
            )
    until_s = max(op.at_s for op in ops)
    for at_s in np.arange(UPKEEP_S, until_s, UPKEEP_S).tolist():
        ops += [Op(at_s=at_s, kind="stats"), Op(at_s=at_s, kind="sweep")]
    ops.sort(key=lambda op: op.at_s)
    about: dict[str, object] = {
        "days": round(until_s / DAY_S, 1),
        "conversations": len(told[:most]),
    }
    return Workload("real", seed, ops, embedder="minilm", about=about)


def _turns(talk: Mapping[str, Any], user: int, began_s: float) -> list[tuple[Op, str]]:
    found = []
    numbers = sorted(
        int(name.removeprefix("session_"))
        for name, turns in talk.items()
        if name.removeprefix("session_").isdigit() and turns
    )
    for number in numbers:
        start_s = _session_s(talk, number) - began_s
        for place, turn in enumerate(talk[f"session_{number}"]):
            text = f"{turn['speaker']}: {turn['text']}"
            item_id = f"u{user}-{turn['dia_id'].replace(':', '-')}"
            op = Op(
                at_s=start_s + place * TURN_S, kind="write", user=user, ids=[item_id], texts=[text]
            )
            found.append((op, str(turn["dia_id"])))
    return found


def _session_s(talk: Mapping[str, Any], number: int) -> float:
    said = str(talk[f"session_{number}_date_time"])
    return datetime.strptime(said, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC).timestamp()

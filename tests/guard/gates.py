"""A gate over one policy, with what its tests need beside it."""

from collections.abc import Mapping
from typing import Any

import amv
from amv.testing import FakeClock

OWNER = ("alice",)
LOSS = {"wrong": 120.0, "abstain": 5.0, "repair": 1.0}

CANCEL: dict[str, Any] = {
    "loss": LOSS,
    "rests_on": {
        "status": {
            "claim": "order/{order_id}/status",
            "require": "pending",
            "verify_with": ["order_status"],
        }
    },
    "idempotency": {"key": ["order_id"]},
    "free": ["note"],
}
VERIFIER: dict[str, Any] = {"cost": 0.02, "args": {"order_id": "$order_id"}}


def policy_of(**parts: Any) -> dict[str, Any]:
    """Return a policy in which an order is cancelled if it is pending."""
    return {
        "version": 1,
        "verifiers": {"order_status": VERIFIER},
        "actions": {"cancel_order": CANCEL, "look": {"effect": "read"}},
        **parts,
    }


def cancel(order_id: object = "W1", **more: Any) -> amv.Action:
    """Return the action that most tests are about."""
    arguments = {"order_id": order_id, **more}
    return amv.Action(tool="cancel_order", arguments=arguments, namespace=OWNER)


def opened(
    path: str = ":memory:",
    policy: Mapping[str, Any] | None = None,
    clock: FakeClock | None = None,
    **how: Any,
) -> amv.Guard:
    """Open a gate whose memory embeds by hashing."""
    return amv.Guard.open(
        path,
        policy=policy_of() if policy is None else policy,
        namespace=OWNER,
        clock=clock or FakeClock(),
        embedder="hashing:64",
        **how,
    )


def remember(
    guard: amv.Guard, value: str = "pending", order_id: object = "W1", **fields: Any
) -> str:
    """Have the memory hold the status of an order; return the item's id."""
    claim = amv.Claim(f"order/{order_id}", "status", value)
    text = f"order {order_id} is {value}"
    return guard.memory.add(text, namespace=OWNER, claim=claim, **fields).id

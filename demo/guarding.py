"""Step 6 of the demonstration: actions on what is remembered, behind the gate."""

from collections.abc import Callable

import amv
from amv.loading import load_policy
from demo.shop import SHOP, Shop
from demo.stage import Stage

POLICY = {
    "version": 1,
    "verifiers": {"order_status": {"cost": 0.02, "sensitivity": 0.99, "specificity": 0.995}},
    "actions": {
        "cancel_order": {
            "loss": {"wrong": 120, "abstain": 5},
            "rests_on": {
                "status": {
                    "claim": "order/{order_id}/status",
                    "require": "pending",
                    "verify_with": ["order_status"],
                }
            },
            "idempotency": {"key": ["order_id"]},
        }
    },
}


def guard_actions(stage: Stage, memory: amv.Memory, shop: Shop, clock: Callable[[], float]) -> None:
    """Cancel two orders that are remembered as pending, one of which was delivered since."""
    stage.step("Guard what acts on it")
    ids = [i for i, order in shop.orders.items() if order["status"] == "pending"]
    moved, still = [i for i in ids if shop.orders[i]["user_id"] != shop.leaver.user_id][:2]
    # The shop's own records, which have gone on; nobody has told the memory.
    world: dict[str, str] = {i: str(order["status"]) for i, order in shop.orders.items()}
    world[moved] = "delivered"
    stage.say(
        f"Orders {moved} and {still} were pending three months ago, says the memory.  The shop has "
        f"delivered {moved} meanwhile.  To cancel a delivered order costs 120, to ask a person 5, "
        "to look it up 0.02."
    )
    guard = amv.Guard(load_policy(POLICY), memory, namespace=SHOP, clock=clock)
    asked: list[str] = []

    @guard.verifier("order_status")
    def order_status(order_id: str) -> str:
        asked.append(order_id)
        return world[order_id]

    @guard.action("cancel_order")
    def cancel_order(order_id: str) -> None:
        world[order_id] = "cancelled"

    refused = None
    try:
        cancel_order(moved)
    except amv.ActionAbstained as error:
        refused = error.decision
    stage.check(
        f"{moved} is looked up, and not cancelled: it says what was read",
        refused is not None
        and refused.values == {"status": "delivered"}
        and world[moved] == "delivered",
    )
    if refused is not None:
        stage.say(guard.explain(refused.id), "dim")
    claim = memory.find_claim(SHOP, f"order/{moved}", "status")
    stage.check(
        "the memory knows it now",
        claim is not None and claim.claim is not None and claim.claim.value == "delivered",
    )
    cancel_order(still)
    stage.check(
        f"{still} is looked up, and cancelled", world[still] == "cancelled" and still in asked
    )
    stage.say(guard.explain(guard.decisions()[-1][1].id), "dim")
    stage.check("every decision is judged the same again from its record", guard.replay() == [])

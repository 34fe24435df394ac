"""The process that a gate's faults are injected into; run as a module, under strace.

It cancels orders, each once, and says how far it has come.  That an order was
cancelled is said at the moment at which the world would know.
"""

from contextlib import suppress
from typing import Any

import amv
from amv.guard.ports import State
from tests.faults.child import say, serve_jobs, take_aim
from tests.guard.gates import OWNER, cancel, opened

ORDERS = ("W1", "W2", "W3")


def cancel_all(guard: amv.Guard, *, broken: str = "") -> list[str]:
    """Cancel the orders that the gate lets be cancelled; return which these are.

    *broken* on purpose: "acts_early", before that is written down, or
    "tells_early", the memory before the log.
    """
    done = []
    for order_id in ORDERS:
        if broken == "tells_early":
            claim = guard.memory.find_claim(OWNER, f"order/{order_id}", "status")
            assert claim is not None
            guard.memory.confirm(claim.id, namespace=OWNER)
        decision = guard.decide(cancel(order_id))
        say(order=order_id, decided=decision.verdict)
        if decision.permit is None:
            continue
        if broken == "acts_early":
            say(order=order_id, cancelled=True)
        key = guard.redeem(decision.permit.token, cancel(order_id))
        say(order=order_id, reserved=True)
        guard.dispatched(key)
        if broken != "acts_early":
            say(order=order_id, cancelled=True)
        done.append(order_id)
        guard.settle(key, State.SUCCEEDED)
        say(order=order_id, settled=True)
    return done


def run(job: dict[str, Any]) -> None:
    """Cancel all orders with a fault at one call."""
    take_aim(job["call"], job["nth"])
    with suppress(amv.PermitRefused), opened(job["path"]) as guard:
        guard.verifier("order_status")(lambda order_id: "pending")
        cancel_all(guard, broken=job["broken"])


if __name__ == "__main__":
    serve_jobs(run)

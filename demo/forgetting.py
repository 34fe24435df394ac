"""Step 5 of the demonstration: forget a customer, and look for what could be left."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

import amv
from demo.shop import SHOP, Shop, calls_of, named
from demo.stage import Stage, table


def items_about(memory: amv.Memory, user_id: str) -> list[amv.Item]:
    """Return all that the shop remembers of a customer, superseded items too."""
    about: list[amv.Item] = []
    page = memory.list(namespace=SHOP, limit=1000, status=None)
    while True:
        about += [one for one in page.items if one.metadata.get("user_id") == user_id]
        if page.cursor is None:
            return about
        page = memory.list(namespace=SHOP, limit=1000, status=None, cursor=page.cursor)


def bytes_found(path: Path, texts: Sequence[str]) -> list[int]:
    """Return how often each text stands in the files of the database, in whatever case."""
    files = [file.read_bytes().lower() for file in path.parent.glob(f"{path.name}*")]
    return [sum(file.count(text.lower().encode()) for file in files) for text in texts]


def forget(stage: Stage, memory: amv.Memory, path: Path, shop: Shop) -> None:
    """Forget a customer, and look for what could be left."""
    stage.step("Forget a customer")
    task, user = shop.leaver, shop.users[shop.leaver.user_id]
    about = items_about(memory, task.user_id)
    said = memory.list(namespace=task.calls).items
    needles = {
        "email": user["email"],
        "user id": task.user_id,
        "home": f"{user['address']['address1']}, {user['address']['address2']}",
        "payment": next(iter(user["payment_methods"])),
        "order": task.cancels[0].removeprefix("#"),
        "a call": task.reason[:44],
    }
    before = bytes_found(path, list(needles.values()))
    began_s = time.perf_counter()
    receipts = [memory.forget(one.id, namespace=SHOP) for one in about]
    receipts.append(memory.forget_namespace(task.calls))
    took_ms = 1e3 * (time.perf_counter() - began_s)
    after = bytes_found(path, list(needles.values()))
    count, erased = sum(r.count for r in receipts), all(r.erased for r in receipts)
    stage.say(
        f"{named(user)} leaves: {len(about)} items of the shop, superseded ones among them, and "
        f"{len(said)} of {task.calls}.  That takes {took_ms:,.0f} ms.  The receipts: "
        f"{count} items forgotten, erased: {erased}."
    )
    stage.check(
        "the receipts are for all of them, and say that the bytes are gone",
        erased and count == len(about) + len(said),
    )
    _show_gone(stage, memory, user, about)
    gone = table("in the files, byte by byte", "", "before", "after", right=("before", "after"))
    for (what, text), old, new in zip(needles.items(), before, after, strict=True):
        gone.add_row(what, Text(text), f"{old:,}", f"{new:,}")
    stage.show(gone)
    stage.check("each of these texts was in the files before", min(before) > 0)
    stage.check("none is in any file of the database now", max(after) == 0)


def _show_gone(
    stage: Stage, memory: amv.Memory, user: dict[str, Any], about: Sequence[amv.Item]
) -> None:
    user_id, ids = user["user_id"], {one.id for one in about}
    asked = [named(user), user["email"], *(one.content for one in about)]
    hits = [
        hit.item.id
        for question in asked
        for hit in memory.search(question, namespace=SHOP, k=50, cold=True).hits
    ]
    stage.check(
        f"{len(asked)} searches, by name, by email and by the exact words of each item, find none",
        ids.isdisjoint(hits),
    )
    stage.check(
        "ids, claims, lists and the customer's own namespace lead nowhere",
        not any(_is_there(memory, one) for one in about)
        and not items_about(memory, user_id)
        and calls_of(user_id) not in memory.namespaces(),
    )
    exported = (json.dumps(one) for one in memory.export_items())
    stage.check("an export does not name the customer", not any(user_id in one for one in exported))


def _is_there(memory: amv.Memory, one: amv.Item) -> bool:
    assert one.claim is not None
    if memory.find_claim(SHOP, one.claim.subject, one.claim.attribute) is not None:
        return True
    try:
        memory.get(one.id, namespace=SHOP)
    except amv.ItemNotFound:
        return False
    return True

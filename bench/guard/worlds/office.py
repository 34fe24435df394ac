"""The office: mail, banking, a shop, calendar and files, with twenty tools that change them.

Nothing is fitted on it: policies decide with what they learned of the phone, and
of its verifiers they know what the policy declares.

What each tool itself enforces, and refuses otherwise: `transfer` and
`pay_invoice` that the balance covers it, `order_item` that there is stock,
`create_event` that the room is free, `share_file` and `move_file` that the drive
is on, and each that the row it is about is there.
"""

from pathlib import Path
from random import Random
from typing import Any

from bench.guard.world import Kind, Scene, State, World, is_over, need, note, row_of

NAMES = ("Abe", "Bea", "Cy", "Dee", "Eli", "Fay", "Gil", "Hal", "Ida", "Jo", "Kai", "Lou")
ADDRESSES = tuple(f"{name.lower()}@{host}.example" for name in NAMES for host in ("corp", "home"))
IBANS = tuple(f"IT{n:02d} X054 2811 1010 {n * 37:04d}" for n in range(11, 60))
ZONES = ("UTC", "Europe/Rome", "America/Lima", "Asia/Tokyo")
CURRENCIES = ("EUR", "USD", "GBP", "CHF")
TEAMS = tuple(f"the team of {name}" for name in NAMES)
TITLES = ("budget", "review", "offsite", "hiring", "launch", "audit", "contract")
PRICES = tuple(range(20, 400, 19))
GRADES = ("public", "internal", "secret")
COLOURS = ("red", "green", "blue", "grey")
STREETS = tuple(f"{n} Long Street" for n in range(1, 60, 4))
AT = ("09:00", "11:30", "14:00", "16:30")


def person_of(state: State, address: str) -> str:
    """Return who reads an address."""
    found = [key for key, row in sorted(state["person"].items()) if row["address"] == address]
    return found[0] if found else "a stranger"


def audience(state: State, folder: str) -> str:
    """Return who sees a folder: the team of its owner."""
    row = state["drive"].get(folder)
    return "nobody" if row is None else f"the team of {row['owner']}"


def attendees(state: State, event: str) -> str:
    """Return who comes to an event: the team of whoever chairs it."""
    row = state["chair"].get(event)
    return "nobody" if row is None else f"the team of {row['owner']}"


def _shown(state: State, table: str, key: str, name: str) -> Any:
    computed = {("folder", "audience"): audience, ("event", "attendees"): attendees}
    return state[table][key].get(name) or computed[table, name](state, key)


def _spend(state: State, account: str, amount: int) -> dict[str, Any]:
    row = row_of(state, "account", account)
    need(row["balance"] >= amount, "the balance does not cover it")
    row["balance"] -= amount
    return row


# Mail


def send_mail(state: State, person: str, address: str, text: str) -> None:
    """Send a mail to an address."""
    row = row_of(state, "person", person)
    note(state, "sent", to=person_of(state, address), clearance=row["clearance"], text=text)


def mail_by_name(state: State, name: str, text: str) -> None:
    """Send a mail to whoever was added last under a name."""
    found = sorted(key for key, row in state["person"].items() if row["name"] == name)
    need(bool(found), f"nobody is called {name}")
    note(state, "sent", to=found[-1], text=text)


def forward_mail(state: State, mail: str, person: str) -> None:
    """Forward a mail to a person."""
    row, to = row_of(state, "mail", mail), row_of(state, "person", person)
    note(state, "sent", to=to["address"], subject=row["subject"], clearance=to["clearance"])


def set_auto_reply(state: State, zone: str, at: str) -> None:
    """Have mail answered until a time, in the zone of the mailbox."""
    box = state["mailbox"]["me"]
    note(state, "log", replies_until=at if box["zone"] == zone else f"{at} in {box['zone']}")


def add_to_list(state: State, list: str, person: str) -> None:
    """Put a person on a mailing list."""
    row, who = row_of(state, "list", list), row_of(state, "person", person)
    note(state, "log", added=who["name"], read_by=row["owner"], clearance=who["clearance"])


# Banking


def transfer(state: State, account: str, payee: str, iban: str, amount: int) -> None:
    """Transfer money; the balance must cover it."""
    row, to = _spend(state, account, amount), row_of(state, "payee", payee)
    reached = to["name"] if to["iban"] == iban else "a stranger"
    note(
        state, "log", paid=f"{amount} {row['currency']}", to=reached, iban=iban,
        approved=to["approved"],
    )  # fmt: skip


def pay_invoice(state: State, invoice: str, account: str, amount: int) -> None:
    """Pay an invoice; the balance must cover it."""
    row = row_of(state, "invoice", invoice)
    _spend(state, account, amount)
    due, late = row["amount"], is_over(state, "invoice", invoice)
    note(state, "log", paid=amount, open=due - amount, late=late, to=row["owner"])


def raise_limit(state: State, account: str, amount: int) -> None:
    """Raise what an account may spend, in its currency."""
    row = row_of(state, "account", account)
    row["limit"] = amount
    note(state, "log", limit=f"{amount} {row['currency']}", of=row["owner"])


def stop_order(state: State, standing: str) -> None:
    """Stop a standing order."""
    row = row_of(state, "standing", standing)
    note(state, "log", stopped=row["purpose"], late=is_over(state, "standing", standing))
    del state["standing"][standing]


# Shop


def order_item(state: State, item: str, price: int) -> None:
    """Order an item at the price of the day; there must be stock."""
    row = row_of(state, "item", item)
    need(row["stock"] == "on", "out of stock")
    note(state, "log", ordered=item, wanted=price, pays=row["price"], seller=row["owner"])


def cancel_order(state: State, order: str) -> None:
    """Cancel an order; one that is on its way comes back at the buyer's cost."""
    row = row_of(state, "order", order)
    note(state, "log", cancelled=row["item"], late=is_over(state, "order", order))
    row["cancelled"] = True


def change_address(state: State, order: str, street: str) -> None:
    """Have an order sent to a street."""
    row, home = row_of(state, "order", order), row_of(state, "home", "me")["street"]
    row["street"] = street
    at_home, late = street == home, is_over(state, "order", order)
    note(state, "log", sent_to=street, at_home=at_home, late=late)


def return_item(state: State, order: str) -> None:
    """Send an order back; after its time there is no money for it."""
    row = row_of(state, "order", order)
    note(state, "log", returned=row["item"], refunded=not is_over(state, "order", order))


# Calendar


def create_event(state: State, room: str, at: str, zone: str) -> None:
    """Book a room, in the zone of the calendar; it must be free."""
    row = row_of(state, "room", room)
    need(row["free"] == "on", "the room is taken")
    own = state["calendar"]["me"]["zone"]
    reads = at if own == zone else f"{at} in {own}"
    note(state, "booked", room=room, at=reads, of=row["owner"])


def move_event(state: State, event: str, at: str) -> None:
    """Move an event; all who come are told."""
    row = row_of(state, "event", event)
    row["at"] = at
    told = _shown(state, "event", event, "attendees")
    chair = row_of(state, "chair", event)["owner"]
    note(state, "log", moved=row["title"], told=told, chair=chair)


def cancel_event(state: State, event: str) -> None:
    """Cancel an event."""
    row = row_of(state, "event", event)
    note(state, "log", cancelled=row["title"], chair=row_of(state, "chair", event)["owner"])
    del state["event"][event]


def invite(state: State, event: str, person: str) -> None:
    """Invite a person to an event."""
    row, who = row_of(state, "event", event), row_of(state, "person", person)
    note(state, "sent", to=who["address"], about=row["title"], clearance=who["clearance"])


# Files


def share_file(state: State, file: str, folder: str) -> None:
    """Put a file where a folder's audience sees it; the drive must be on."""
    need(state["service"]["drive"]["state"] == "on", "the drive is off")
    row, lead = row_of(state, "file", file), row_of(state, "drive", folder)["owner"]
    seen = _shown(state, "folder", folder, "audience")
    note(state, "log", shared=row["title"], grade=row["grade"], seen_by=seen, lead=lead)


def move_file(state: State, file: str, folder: str) -> None:
    """Move a file to a folder; the drive must be on."""
    need(state["service"]["drive"]["state"] == "on", "the drive is off")
    row, lead = row_of(state, "file", file), row_of(state, "drive", folder)["owner"]
    row["folder"] = folder
    note(state, "log", moved=row["title"], lead=lead, may=row["access"])


def delete_file(state: State, file: str) -> None:
    """Delete a file; without versions, for ever."""
    row = row_of(state, "file", file)
    kept = state["service"]["versions"]["state"] == "on"
    note(state, "log", deleted=row["title"], kept=kept, owner=row["owner"])
    del state["file"][file]


def rename_file(state: State, file: str, title: str) -> None:
    """Rename a file."""
    row = row_of(state, "file", file)
    note(state, "log", was=row["title"], owner=row["owner"], may=row["access"])
    row["title"] = title


_TOOLS = (
    send_mail, mail_by_name, forward_mail, set_auto_reply, add_to_list, transfer, pay_invoice,
    raise_limit, stop_order, order_item, cancel_order, change_address, return_item, create_event,
    move_event, cancel_event, invite, share_file, move_file, delete_file, rename_file,
)  # fmt: skip


def _base(rng: Random) -> State:
    names, until_h = rng.sample(NAMES, 4), round(rng.uniform(9000.0, 12000.0), 1)
    colour = {"colour": rng.choice(COLOURS)}
    return {
        "clock": {"now": {"h": 8760.0}},
        "person": {
            f"p{n}": {
                "name": name,
                "address": f"{name.lower()}@corp.example",
                "clearance": "granted",
                **colour,
            }
            for n, name in enumerate(names, 1)
        },
        "mail": {"m1": {"subject": rng.choice(TITLES), **colour}},
        "mailbox": {"me": {"zone": rng.choice(ZONES)}},
        "list": {"l1": {"owner": rng.choice(NAMES), **colour}},
        "account": {
            "a1": {"owner": "me", "balance": 5000, "limit": 500, "currency": rng.choice(CURRENCIES)}
        },
        "payee": {
            "y1": {"name": rng.choice(NAMES), "iban": rng.choice(IBANS), "approved": "granted"}
        },
        "invoice": {
            "v1": {"amount": rng.choice(PRICES), "owner": rng.choice(NAMES), "until_h": until_h}
        },
        "standing": {"s1": {"purpose": rng.choice(TITLES), "until_h": until_h, **colour}},
        "item": {
            "i1": {"price": rng.choice(PRICES), "stock": "on", "owner": rng.choice(NAMES), **colour}
        },
        "order": {"o1": {"item": rng.choice(TITLES), "until_h": until_h, **colour}},
        "home": {"me": {"street": rng.choice(STREETS)}},
        "room": {"r1": {"free": "on", "owner": rng.choice(NAMES), **colour}},
        "calendar": {"me": {"zone": rng.choice(ZONES)}},
        "event": {"e1": {"title": rng.choice(TITLES), "at": rng.choice(AT), **colour}},
        "chair": {"e1": {"owner": rng.choice(NAMES)}},
        "folder": {"d1": {**colour}},
        "drive": {"d1": {"owner": rng.choice(NAMES)}},
        "file": {
            "f1": {
                "title": rng.choice(TITLES),
                "grade": rng.choice(GRADES),
                "owner": "me",
                "access": "granted",
                **colour,
            }
        },
        "service": {"drive": {"state": "on"}, "versions": {"state": "on"}},
        "sent": {},
        "booked": {},
        "log": {},
    }


def _scene(tool: str, rng: Random) -> Scene:
    """Draw an office and what an agent that has read it would do with a tool."""
    state = _base(rng)
    person, text = rng.choice(sorted(state["person"])), f"see item {rng.randint(1, 9)}"
    row, payee = state["person"][person], state["payee"]["y1"]
    arguments: dict[str, dict[str, Any]] = {
        "send_mail": {"person": person, "address": row["address"], "text": text},
        "mail_by_name": {"name": row["name"], "text": text},
        "forward_mail": {"mail": "m1", "person": person},
        "set_auto_reply": {"zone": state["mailbox"]["me"]["zone"], "at": rng.choice(AT)},
        "add_to_list": {"list": "l1", "person": person},
        "transfer": {
            "account": "a1",
            "payee": "y1",
            "iban": payee["iban"],
            "amount": rng.choice(PRICES),
        },
        "pay_invoice": {
            "invoice": "v1",
            "account": "a1",
            "amount": state["invoice"]["v1"]["amount"],
        },
        "raise_limit": {"account": "a1", "amount": 1000},
        "stop_order": {"standing": "s1"},
        "order_item": {"item": "i1", "price": state["item"]["i1"]["price"]},
        "cancel_order": {"order": "o1"},
        "change_address": {"order": "o1", "street": state["home"]["me"]["street"]},
        "return_item": {"order": "o1"},
        "create_event": {
            "room": "r1",
            "at": rng.choice(AT),
            "zone": state["calendar"]["me"]["zone"],
        },
        "move_event": {"event": "e1", "at": rng.choice(AT)},
        "cancel_event": {"event": "e1"},
        "invite": {"event": "e1", "person": person},
        "share_file": {"file": "f1", "folder": "d1"},
        "move_file": {"file": "f1", "folder": "d1"},
        "delete_file": {"file": "f1"},
        "rename_file": {"file": "f1", "title": rng.choice(TITLES)},
    }
    return Scene(state, arguments[tool])


KINDS = {
    "address": Kind(hazard=1 / 620, families={"value_changed": 0.9, "entity_deleted": 0.1}),
    "name": Kind(hazard=1 / 200, families={"entity_duplicated": 0.6, "value_changed": 0.4}),
    "permission": Kind(hazard=1 / 420, families={"permission_revoked": 0.9, "entity_deleted": 0.1}),
    "setting": Kind(hazard=1 / 300, families={"precondition_flipped": 1.0}),
    "service": Kind(hazard=1 / 4000, families={"precondition_flipped": 1.0}),
    "owner": Kind(hazard=1 / 480, families={"owner_transferred": 0.6, "value_changed": 0.4}),
    "deadline": Kind(hazard=1 / 240, families={"deadline_passed": 0.9, "entity_deleted": 0.1}),
    "unit": Kind(hazard=1 / 1000, families={"unit_changed": 1.0}),
    "content": Kind(hazard=1 / 330, families={"value_changed": 0.9, "entity_deleted": 0.1}),
    "membership": Kind(hazard=1 / 600, families={"value_changed": 1.0}),
    "label": Kind(hazard=1 / 60, families={"value_changed": 1.0}),
}
"""How fast each sort of attribute changes here: about as on the phone, which is all that is known.

Each hazard is that of the phone within a factor of 1.4.
"""

OFFICE = World(
    name="office",
    policy_path=Path(__file__).with_suffix(".yaml"),
    tools={tool.__name__: tool for tool in _TOOLS},
    scenes={
        tool.__name__: lambda rng, name=tool.__name__: _scene(name, rng)  # type: ignore[misc]
        for tool in _TOOLS
    },
    kinds=KINDS,
    pools={
        **{
            (table, "colour"): COLOURS
            for table in (
                "person", "mail", "list", "standing", "item", "order", "room", "event", "folder",
                "file",
            )
        },
        **{
            (table, "owner"): NAMES
            for table in ("list", "account", "invoice", "item", "room", "chair", "drive", "file")
        },
        ("person", "address"): ADDRESSES,
        ("person", "name"): NAMES,
        ("name", "person"): ("p1", "p2", "p3", "p4"),
        ("mail", "subject"): TITLES,
        ("mailbox", "zone"): ZONES,
        ("account", "currency"): CURRENCIES,
        ("payee", "name"): NAMES,
        ("payee", "iban"): IBANS,
        ("invoice", "amount"): PRICES,
        ("standing", "purpose"): TITLES,
        ("item", "price"): PRICES,
        ("order", "item"): TITLES,
        ("home", "street"): STREETS,
        ("calendar", "zone"): ZONES,
        ("event", "title"): TITLES,
        ("event", "attendees"): TEAMS,
        ("folder", "audience"): TEAMS,
        ("file", "title"): TITLES,
        ("file", "grade"): GRADES,
    },
    computed={
        **{
            (table, "state"): lambda s, key, t=table: "over" if is_over(s, t, key) else "open"  # type: ignore[misc]
            for table in ("invoice", "standing", "order")
        },
        ("folder", "audience"): audience,
        ("event", "attendees"): attendees,
    },
    indexes={"name": ("person", "name")},
    event=frozenset({"setting", "unit"}),
    event_chance=0.03,
    ages_h=(4.0, 400.0),
)  # fmt: skip

"""The retail database of tau2, read from its files and turned into items to remember."""

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import amv

SHOP = ("retail",)
"""What the shop knows.  What a customer says in a call goes to a namespace of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One call: what the customer says, and what the right actions need to know.

    *known* says who calls, *reason* why.  The ids are those in the task's right
    actions that the database has; *actions* is how many actions there are.
    """

    id: str
    known: str
    reason: str
    user_id: str
    order_ids: tuple[str, ...]
    cancels: tuple[str, ...]
    actions: int

    @property
    def call(self) -> str:
        """All that the customer says."""
        return f"{self.known} {self.reason}"

    @property
    def calls(self) -> tuple[str, ...]:
        """The namespace of what this customer said in calls."""
        return calls_of(self.user_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """Users, orders and products by their ids; the calls of which a customer is known.

    *tasks_read* counts the others too.
    """

    users: dict[str, Any]
    orders: dict[str, Any]
    products: dict[str, Any]
    tasks: tuple[Task, ...]
    tasks_read: int

    @property
    def leaver(self) -> Task:
        """The simplest call that cancels an order; its customer is forgotten in the end."""
        return min((task for task in self.tasks if task.cancels), key=lambda task: task.actions)


def calls_of(user_id: str) -> tuple[str, ...]:
    """Return the namespace of what one customer said in calls."""
    return (*SHOP, "calls", user_id)


def data_folder() -> Path | None:
    """Return where the data lies; tau2 is not imported, since what it needs is not installed."""
    spec = importlib.util.find_spec("tau2")
    places = (spec.submodule_search_locations if spec else None) or []
    folders = [Path(place) / "data/tau2/domains/retail" for place in places]
    return next((folder for folder in folders if (folder / "db.json").is_file()), None)


def load(folder: Path) -> Shop:
    """Read database and tasks."""
    tables = json.loads((folder / "db.json").read_text("utf-8"))
    tasks = json.loads((folder / "tasks.json").read_text("utf-8"))
    read = [_task(task, tables["users"], tables["orders"]) for task in tasks]
    known = tuple(task for task in read if task is not None)
    return Shop(**tables, tasks=known, tasks_read=len(tasks))


def _task(task: dict[str, Any], users: dict[str, Any], orders: dict[str, Any]) -> Task | None:
    """Return a task, or None if its right actions are about no customer."""
    said = task["user_scenario"]["instructions"]
    actions = task["evaluation_criteria"]["actions"]
    order_ids = [action["arguments"].get("order_id") for action in actions]
    order_ids = [order_id for order_id in dict.fromkeys(order_ids) if order_id in orders]
    owners = [orders[order_id]["user_id"] for order_id in order_ids]
    owners += [i for action in actions for i in _users_named(action["arguments"], users)]
    if not owners:
        return None
    cancelled = [a["arguments"] for a in actions if a["name"] == "cancel_pending_order"]
    return Task(
        id=task["id"],
        known=said["known_info"].strip(),
        reason=said["reason_for_call"].strip(),
        user_id=owners[0],
        order_ids=tuple(order_ids),
        cancels=tuple(arguments["order_id"] for arguments in cancelled),
        actions=len(actions),
    )


def _users_named(arguments: dict[str, Any], users: dict[str, Any]) -> Iterator[str]:
    """Yield the users that the arguments of an action name by id, email, or name and zip code."""
    said = {str(value) for value in arguments.values()}
    for user_id, user in users.items():
        full = {user["name"]["first_name"], user["name"]["last_name"], user["address"]["zip"]}
        if user_id in said or user["email"] in said or full <= said:
            yield user_id


def shop_items(shop: Shop) -> Iterator[dict[str, Any]]:
    """Yield all there is to remember, as arguments of `Memory.add`."""
    for product in shop.products.values():
        yield _product(product)
    for user in shop.users.values():
        yield from _user(user)
    for order in shop.orders.values():
        yield from _order(order, shop.users[order["user_id"]])
    for task in shop.tasks:
        yield {
            "content": task.call,
            "namespace": task.calls,
            "id": f"call/{task.id}",
            "source": "customer",
            "source_trust": 0.6,
            "metadata": {"kind": "call", "user_id": task.user_id},
        }


def status_item(order_id: str, status: str, user: dict[str, Any]) -> dict[str, Any]:
    """Return what is remembered of where an order stands."""
    content = f"Order {order_id} of {named(user)} is {status}."
    ids = {"user_id": user["user_id"], "order_id": order_id}
    return _item(f"order/{order_id}", "status", status, content, status=status, **ids)


def named(user: dict[str, Any]) -> str:
    """Return a customer's name and id."""
    return f"{_full_name(user)} ({user['user_id']})"


def _item(
    subject: str, attribute: str, value: str | float, content: str, **metadata: object
) -> dict[str, Any]:
    """Return one memory of the shop; its id is what it is about."""
    return {
        "content": content,
        "namespace": SHOP,
        "id": f"{subject}/{attribute}",
        "claim": amv.Claim(subject, attribute, value),
        "source": "retail database",
        "source_trust": 0.95,
        "metadata": {"kind": subject.partition("/")[0], **metadata},
    }


def _product(product: dict[str, Any]) -> dict[str, Any]:
    variants = [variant for variant in product["variants"].values() if variant["available"]]
    prices = [variant["price"] for variant in variants] or [0.0]
    options = sorted({option for variant in variants for option in variant["options"]})
    content = (
        f"The shop has {len(variants)} variants of {product['name']} in stock, "
        f"${min(prices):.2f} to ${max(prices):.2f}, which differ in {', '.join(options)}."
    )
    subject = f"product/{product['product_id']}"
    return _item(subject, "in stock", len(variants), content, price=min(prices))


def _user(user: dict[str, Any]) -> Iterator[dict[str, Any]]:
    who, home, email = named(user), _address(user["address"]), user["email"]
    subject, ids = f"user/{user['user_id']}", {"user_id": user["user_id"]}
    profile = f"{who} is a customer with the email address {email}."
    yield _item(subject, "email", email, profile, **ids)
    yield _item(subject, "address", home, f"{who} lives at {home}.", **ids)
    for method in user["payment_methods"].values():
        means = _payment(method)
        yield _item(
            subject, f"payment/{method['id']}", means, f"{who} can pay with {means}.", **ids
        )


def _order(order: dict[str, Any], user: dict[str, Any]) -> Iterator[dict[str, Any]]:
    order_id, who, home = order["order_id"], _full_name(user), _address(order["address"])
    subject, ids = f"order/{order_id}", {"user_id": user["user_id"], "order_id": order_id}
    total = round(sum(thing["price"] for thing in order["items"]), 2)
    goods = "; ".join(
        f"{thing['name']} ({', '.join(thing['options'].values())}) at ${thing['price']:.2f}"
        for thing in order["items"]
    )
    paid = f"{who} paid ${total:.2f} for order {order_id}."
    yield _item(subject, "items", goods, f"{who} ordered in {order_id}: {goods}.", **ids)
    yield _item(subject, "total", total, paid, price=total, **ids)
    yield _item(subject, "address", home, f"Order {order_id} of {who} goes to {home}.", **ids)
    yield status_item(order_id, order["status"], user)


def _full_name(user: dict[str, Any]) -> str:
    return f"{user['name']['first_name']} {user['name']['last_name']}"


def _address(place: dict[str, str]) -> str:
    street = f"{place['address1']}, {place['address2']}"
    return f"{street}, {place['city']}, {place['state']} {place['zip']}, {place['country']}"


def _payment(method: dict[str, Any]) -> str:
    if method["source"] == "credit_card":
        return f"a {method['brand']} ending in {method['last_four']} ({method['id']})"
    if method["source"] == "gift_card":
        return f"a gift card of ${method['balance']:.2f} ({method['id']})"
    return f"PayPal ({method['id']})"

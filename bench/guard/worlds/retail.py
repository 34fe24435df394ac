"""The shop of tau2: its orders, customers and products, and its seven writing tools.

What each tool itself enforces, and refuses otherwise: that the order is pending
or delivered, that the goods named are in it, that a new item is in stock and
that the means of payment is the customer's.  All else it does not ask: whose
order that is by now, what else is in it, what the new goods cost, where the
money goes back to.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.guard.world import Kind, State, World
from bench.guard.worlds import tau2
from bench.guard.worlds.tau2 import Write

TABLES = {"order": "orders", "user": "users", "product": "products"}
NAMES = ("Ava Hill", "Ben Cole", "Cora Wood", "Dan Reed", "Eva Stone", "Finn Lake")


def cut(tables: Mapping[str, Any], write: Write) -> State:
    """Return the customer, the order and the products that a write is about."""
    arguments = write.arguments
    orders: dict[str, Any] = {}
    products: dict[str, Any] = {}
    user_id = str(arguments.get("user_id"))
    if "order_id" in arguments:
        order = tables["orders"][arguments["order_id"]]
        orders[arguments["order_id"]] = order
        user_id = order["user_id"]
        for item in order["items"]:
            products[item["product_id"]] = tables["products"][item["product_id"]]
    # Somebody whose the order might be as well.
    other = next(one for one in sorted(tables["users"]) if one != user_id)
    users = {one: tables["users"][one] for one in (user_id, other)}
    state: State = {"order": orders, "user": users, "product": products, "quote": {}, "log": {}}
    if "new_item_ids" in arguments:
        state["quote"][arguments["order_id"]] = {
            "old": arguments["item_ids"],
            "new": arguments["new_item_ids"],
        }
    return state


def goods(state: State, order_id: str) -> str:
    """Return what is in an order."""
    return ", ".join(sorted(item["item_id"] for item in state["order"][order_id]["items"]))


def _set_goods(state: State, order_id: str, value: str) -> None:
    # One thing less, or another one: the customer has changed the order meanwhile.
    items = state["order"][order_id]["items"]
    if value == "fewer" and len(items) > 1:
        items.pop()
    else:
        items[-1] = {**items[-1], "item_id": f"{items[-1]['item_id'][:-1]}x"}


def paid_with(state: State, order_id: str) -> str:
    """Return what an order was paid with at first, where money goes back to."""
    return str(state["order"][order_id]["payment_history"][0]["payment_method_id"])


def _set_paid_with(state: State, order_id: str, _: str) -> None:
    order = state["order"][order_id]
    methods = state["user"].get(order["user_id"], {"payment_methods": {}})["payment_methods"]
    others = sorted(set(methods) - {paid_with(state, order_id)})
    if not others:
        new = "credit_card_0000001"
        methods[new] = {"source": "credit_card", "id": new, "brand": "visa", "last_four": "0001"}
        others = [new]
    for payment in order["payment_history"]:
        payment["payment_method_id"] = others[0]


def _set_owner(state: State, order_id: str, _: str) -> None:
    # The order goes to another account, with what it was paid with.
    order = state["order"][order_id]
    old = order["user_id"]
    new = next(one for one in sorted(state["user"]) if one != old)
    methods = state["user"][new]["payment_methods"]
    methods |= {k: dict(v) for k, v in state["user"][old]["payment_methods"].items()}
    order["user_id"] = new


def _variants(state: State, order_id: str) -> list[Any]:
    quote = state["quote"][order_id]
    variants = {
        k: v for product in state["product"].values() for k, v in product["variants"].items()
    }
    return [variants[one] for one in quote["new"] if one in variants]


def price(state: State, order_id: str) -> float:
    """Return what the goods an order is to have instead cost now."""
    return round(float(sum(one["price"] for one in _variants(state, order_id))), 2)


def _set_price(state: State, order_id: str, factor: float) -> None:
    for one in _variants(state, order_id):
        one["price"] = round(one["price"] * factor, 2)


def stock(state: State, order_id: str) -> str:
    """Return whether all goods an order is to have instead are there."""
    return "on" if all(one["available"] for one in _variants(state, order_id)) else "off"


def _set_stock(state: State, order_id: str, value: str) -> None:
    for one in _variants(state, order_id):
        one["available"] = value == "on"


def full_name(state: State, user_id: str) -> str:
    """Return what a customer is called."""
    name = state["user"][user_id]["name"]
    return f"{name['first_name']} {name['last_name']}"


def _set_name(state: State, user_id: str, value: str) -> None:
    first, _, last = value.partition(" ")
    state["user"][user_id]["name"] = {"first_name": first, "last_name": last}


def street(state: State, order_id: str) -> str:
    """Return where an order goes."""
    return str(state["order"][order_id]["address"]["address1"])


def _set_street(state: State, order_id: str, value: str) -> None:
    state["order"][order_id]["address"]["address1"] = value


def _of_order(*names: str) -> Any:
    """Return what a call that returned an order means."""

    def means(state: State, order: Any) -> Any:
        found = {"customer": order["user_id"], "goods": [i["item_id"] for i in order["items"]]}
        return found | {name: order[name] for name in names}

    return means


def _of_user(state: State, user: Any) -> Any:
    return {"customer": user["user_id"], "name": user["name"], "mail": user["email"]}


_MEANS = {
    "cancel_pending_order": _of_order("payment_history"),
    "exchange_delivered_order_items": _of_order("exchange_price_difference"),
    "modify_pending_order_items": _of_order("payment_history"),
    "modify_pending_order_address": lambda state, order: {
        "customer": order["user_id"],
        "name": full_name(state, order["user_id"]),
    },
    "modify_pending_order_payment": _of_order("payment_history"),
    "return_delivered_order_items": _of_order("return_payment_method_id"),
    "modify_user_address": _of_user,
}

KINDS = {
    "address": Kind(hazard=1 / 620, families={"value_changed": 0.9, "entity_deleted": 0.1}),
    "owner": Kind(hazard=1 / 480, families={"owner_transferred": 0.6, "value_changed": 0.4}),
    "deadline": Kind(hazard=1 / 240, families={"deadline_passed": 0.9, "entity_deleted": 0.1}),
    "service": Kind(hazard=1 / 4000, families={"precondition_flipped": 1.0}),
    "content": Kind(hazard=1 / 330, families={"value_changed": 1.0}),
    "label": Kind(hazard=1 / 60, families={"value_changed": 1.0}),
}
"""How fast each sort of attribute changes: as in the office."""


def recipient(state: State, order_id: str) -> str:
    """Return the name of the customer of an order."""
    return full_name(state, state["order"][order_id]["user_id"])


RETAIL = tau2.stated(
    World(
        name="retail",
        policy_path=Path(__file__).with_suffix(".yaml"),
        tools={name: tau2.tool_of("retail", name, TABLES, m) for name, m in _MEANS.items()},
        scenes=tau2.scenes("retail", _MEANS, TABLES, cut),
        kinds=KINDS,
        pools={
            ("order", "status"): ("processed", "return requested", "cancelled"),
            ("order", "goods"): ("fewer", "other"),
            ("order", "paid_with"): ("another",),
            ("order", "user_id"): ("another",),
            ("order", "recipient"): NAMES,
            ("order", "street"): ("1 New Road", "2 New Road"),
            ("user", "full_name"): NAMES,
            ("user", "email"): ("new@example.com", "newer@example.com"),
            ("quote", "price"): (1.1, 1.25, 0.9),
        },
        computed={
            ("order", "goods"): goods,
            ("order", "paid_with"): paid_with,
            ("order", "recipient"): recipient,
            ("order", "street"): street,
            ("user", "full_name"): full_name,
            ("quote", "price"): price,
            ("quote", "stock"): stock,
        },
        written={
            ("order", "goods"): _set_goods,
            ("order", "paid_with"): _set_paid_with,
            ("order", "user_id"): _set_owner,
            ("order", "recipient"): lambda state, key, value: _set_name(
                state, state["order"][key]["user_id"], value
            ),
            ("order", "street"): _set_street,
            ("user", "full_name"): _set_name,
            ("quote", "price"): _set_price,
            ("quote", "stock"): _set_stock,
        },
        ages_h=(4.0, 400.0),
    )
)

"""The airline of tau2: its reservations, customers and flights, and its six writing tools.

What each tool itself enforces, and refuses otherwise: that a new flight is there
with enough seats, that what is paid adds up and the means of payment is the
customer's, and that as many passengers fly as before.  All else it does not ask:
whose reservation that is by now, whether its flights have left, what was insured.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.guard.world import Kind, State, World
from bench.guard.worlds import tau2
from bench.guard.worlds.tau2 import Write

TABLES = {"reservation": "reservations", "user": "users", "flight": "flights"}
NAMES = ("Ava Hill", "Ben Cole", "Cora Wood", "Dan Reed", "Eva Stone", "Finn Lake")


def cut(tables: Mapping[str, Any], write: Write) -> State:
    """Return the customer, the reservation and the flights that a write is about."""
    arguments = write.arguments
    reservations, user_id = {}, arguments.get("user_id")
    legs = [(leg["flight_number"], leg["date"]) for leg in arguments.get("flights", [])]
    if "reservation_id" in arguments:
        reservation = tables["reservations"][arguments["reservation_id"]]
        reservations[arguments["reservation_id"]] = reservation
        user_id = reservation["user_id"]
        legs += [(leg["flight_number"], leg["date"]) for leg in reservation["flights"]]
    other = next(one for one in sorted(tables["users"]) if one != user_id)
    flights: dict[str, Any] = {}
    for number, date in legs:
        flight = tables["flights"][number]
        own = flights.setdefault(number, {**flight, "dates": {}})
        own["dates"][date] = flight["dates"][date]
    state: State = {
        "reservation": reservations,
        "user": {one: tables["users"][one] for one in (str(user_id), other)},
        "flight": flights,
        "quote": {},
        "log": {},
    }
    if "flights" in arguments:
        key = arguments.get("reservation_id") or arguments["user_id"]
        state["quote"][key] = {"legs": arguments["flights"], "cabin": arguments["cabin"]}
    return state


def route(state: State, reservation_id: str) -> str:
    """Return the flights of a reservation."""
    legs = state["reservation"][reservation_id]["flights"]
    return ", ".join(f"{leg['flight_number']} on {leg['date']}" for leg in legs)


def _set_route(state: State, reservation_id: str, _: str) -> None:
    # The customer has moved a flight by a day meanwhile, at another price.
    legs = state["reservation"][reservation_id]["flights"]
    day = legs[-1]["date"][:-2] + f"{(int(legs[-1]['date'][-2:]) % 28) + 1:02d}"
    legs[-1] = {**legs[-1], "date": day, "price": legs[-1]["price"] + 40}


def names(state: State, reservation_id: str) -> str:
    """Return who flies."""
    each = state["reservation"][reservation_id]["passengers"]
    return ", ".join(f"{one['first_name']} {one['last_name']}" for one in each)


def _set_names(state: State, reservation_id: str, value: str) -> None:
    first, _, last = value.partition(" ")
    each = state["reservation"][reservation_id]["passengers"]
    each.append({"first_name": first, "last_name": last, "dob": "1990-01-01"})


def stage(state: State, reservation_id: str) -> str:
    """Return how far the first flight of a reservation is."""
    leg = state["reservation"][reservation_id]["flights"][0]
    dates = state["flight"][leg["flight_number"]]["dates"]
    return str(dates[leg["date"]]["status"]) if leg["date"] in dates else "unknown"


def _set_stage(state: State, reservation_id: str, value: str) -> None:
    leg = state["reservation"][reservation_id]["flights"][0]
    at = f"{leg['date']}T08:00:00"
    times = {"actual_departure_time_est": at, "actual_arrival_time_est": at}
    dates = state["flight"].setdefault(leg["flight_number"], {"dates": {}})["dates"]
    dates[leg["date"]] = {"status": value} | (times if value == "landed" else {})


def level(state: State, reservation_id: str) -> str:
    """Return the membership of a reservation's customer, on which free baggage rests."""
    return str(state["user"][state["reservation"][reservation_id]["user_id"]]["membership"])


def _set_level(state: State, reservation_id: str, value: str) -> None:
    state["user"][state["reservation"][reservation_id]["user_id"]]["membership"] = value


def _set_owner(state: State, reservation_id: str, _: str) -> None:
    # The reservation goes to another account, with what it was paid with.
    row = state["reservation"][reservation_id]
    old = row["user_id"]
    new = next(one for one in sorted(state["user"]) if one != old)
    methods = state["user"][new]["payment_methods"]
    methods |= {k: dict(v) for k, v in state["user"][old]["payment_methods"].items()}
    row["user_id"] = new


def _dates(state: State, key: str) -> list[Any]:
    legs = state["quote"][key]["legs"]
    return [state["flight"][leg["flight_number"]]["dates"][leg["date"]] for leg in legs]


def price(state: State, key: str) -> int:
    """Return what the flights of a quote cost a passenger now."""
    cabin = state["quote"][key]["cabin"]
    return int(sum(one["prices"][cabin] for one in _dates(state, key) if "prices" in one))


def _set_price(state: State, key: str, factor: float) -> None:
    cabin = state["quote"][key]["cabin"]
    for one in _dates(state, key):
        if "prices" in one:
            one["prices"][cabin] = round(one["prices"][cabin] * factor)


def seats(state: State, key: str) -> str:
    """Return whether the flights of a quote have seats."""
    cabin = state["quote"][key]["cabin"]
    each = [one.get("available_seats", {cabin: 9})[cabin] for one in _dates(state, key)]
    return "on" if min(each) > 0 else "off"


def _set_seats(state: State, key: str, value: str) -> None:
    cabin = state["quote"][key]["cabin"]
    for one in _dates(state, key):
        if "available_seats" in one:
            one["available_seats"][cabin] = 9 if value == "on" else 0


def full_name(state: State, user_id: str) -> str:
    """Return what a customer is called."""
    name = state["user"][user_id]["name"]
    return f"{name['first_name']} {name['last_name']}"


def _set_name(state: State, user_id: str, value: str) -> None:
    first, _, last = value.partition(" ")
    state["user"][user_id]["name"] = {"first_name": first, "last_name": last}


def _of_reservation(*parts: str) -> Any:
    """Return what a call that returned a reservation means."""
    kept = {"stage": stage, "level": level}

    def means(state: State, row: Any) -> Any:
        found: dict[str, Any] = {"customer": row["user_id"]}
        for part in parts:
            found[part] = kept[part](state, row["reservation_id"]) if part in kept else row[part]
        return found

    return means


_MEANS: dict[str, Any] = {
    "cancel_reservation": _of_reservation("flights", "insurance", "stage"),
    "update_reservation_flights": _of_reservation("flights", "passengers", "payment_history"),
    "update_reservation_baggages": _of_reservation("level", "payment_history"),
    "update_reservation_passengers": _of_reservation("flights", "passengers"),
    "book_reservation": lambda state, row: {
        "customer": full_name(state, row["user_id"]),
        "level": state["user"][row["user_id"]]["membership"],
        "flights": row["flights"],
    },
    "send_certificate": lambda state, said: {
        "customers": {
            key: (row["name"], row["membership"]) for key, row in sorted(state["user"].items())
        },
        "said": said,
    },
}

KINDS = {
    "owner": Kind(hazard=1 / 480, families={"owner_transferred": 0.6, "value_changed": 0.4}),
    "permission": Kind(hazard=1 / 420, families={"permission_revoked": 0.9, "entity_deleted": 0.1}),
    "deadline": Kind(hazard=1 / 240, families={"deadline_passed": 1.0}),
    "service": Kind(hazard=1 / 4000, families={"precondition_flipped": 1.0}),
    "content": Kind(hazard=1 / 330, families={"value_changed": 1.0}),
    "label": Kind(hazard=1 / 60, families={"value_changed": 1.0}),
}
"""How fast each sort of attribute changes: as in the office."""

AIRLINE = tau2.stated(
    World(
        name="airline",
        policy_path=Path(__file__).with_suffix(".yaml"),
        tools={name: tau2.tool_of("airline", name, TABLES, m) for name, m in _MEANS.items()},
        scenes=tau2.scenes("airline", _MEANS, TABLES, cut),
        kinds=KINDS,
        pools={
            ("reservation", "user_id"): ("another",),
            ("reservation", "route"): ("moved",),
            ("reservation", "names"): NAMES,
            ("reservation", "insurance"): ("yes", "no"),
            ("reservation", "stage"): ("cancelled", "landed"),
            ("reservation", "level"): ("regular", "silver", "gold"),
            ("reservation", "nonfree_baggages"): (0, 1, 2, 3),
            ("reservation", "total_baggages"): (0, 1, 2, 3, 4),
            ("user", "full_name"): NAMES,
            ("user", "membership"): ("regular", "silver", "gold"),
            ("quote", "price"): (1.1, 1.25, 0.9),
        },
        computed={
            ("reservation", "route"): route,
            ("reservation", "names"): names,
            ("reservation", "stage"): stage,
            ("reservation", "level"): level,
            ("user", "full_name"): full_name,
            ("quote", "price"): price,
            ("quote", "seats"): seats,
        },
        written={
            ("reservation", "route"): _set_route,
            ("reservation", "names"): _set_names,
            ("reservation", "stage"): _set_stage,
            ("reservation", "level"): _set_level,
            ("reservation", "user_id"): _set_owner,
            ("user", "full_name"): _set_name,
            ("quote", "price"): _set_price,
            ("quote", "seats"): _set_seats,
        },
        ages_h=(4.0, 400.0),
    )
)

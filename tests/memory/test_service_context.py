"""Context: a block for a prompt, under its cap, and what was in it counts as used."""

from dataclasses import replace
from typing import Any

import pytest

from amv.errors import InvalidInput, ItemNotFound
from amv.memory.item import Claim
from amv.memory.value import PRESETS
from tests.memory.worlds import ALICE, BOB, World


def test_the_best_items_are_packed_in_order_of_rank(world: World) -> None:
    """With their dates, and the ids of what is in the block."""
    for content in ("Alice likes jazz", "Alice plays jazz on Mondays", "Bob sells boats"):
        world.add(content)

    context = world.memory.context("jazz Alice likes", namespace=ALICE)

    assert context.item_ids[0] == "i1"
    assert context.text.splitlines()[0] == "- [2023-11-14] Alice likes jazz"
    assert len(context.item_ids) == len(context.text.splitlines())
    assert 0 < context.tokens <= 800


def test_the_block_marks_what_is_contradicted(world: World) -> None:
    """Both sides, until one is confirmed; and what is not in doubt is left alone."""
    old, _ = (world.add(f"The server listens on port {port}") for port in (8080, 8081))
    world.add("The server runs Debian 13")
    world.memory.confirm(old.id)

    lines = world.memory.context("server", namespace=ALICE).text.splitlines()

    assert {line.removeprefix("- [2023-11-14] ") for line in lines} == {
        "The server listens on port 8080",
        "(contradicted?) The server listens on port 8081",
        "The server runs Debian 13",
    }


def test_the_block_keeps_to_its_cap(world: World) -> None:
    """Counted by whoever knows the tokenizer."""
    world.fill(30)

    context = world.memory.context(
        "thing1", namespace=ALICE, token_budget=100, count_tokens=lambda text: len(text)
    )

    assert context.tokens == len(context.text) <= 100
    assert 1 <= len(context.item_ids) < 10


@pytest.mark.parametrize(("k_max", "fits"), [(256, True), (48, False), (8, False)])
def test_what_fits_is_found_behind_many_that_do_not(world: World, k_max: int, fits: bool) -> None:
    """A short item is better than an empty block, as far as a search may look."""
    words = " ".join(f"word{n}" for n in range(80))
    long = [f"jazz note number {n}: {words}" for n in range(60)]
    world.memory.add_many([{"content": text, "namespace": ALICE} for text in long])
    world.add("a short note")
    memory = world.another(replace(world.settings, k_max=k_max))

    context = memory.context("jazz note number", namespace=ALICE, token_budget=40)

    assert (context.text == "- [2023-11-14] a short note") == fits
    assert bool(context.item_ids) == fits


def test_what_was_packed_counts_as_contributed(world: World) -> None:
    """What did not fit was not used; nothing is written on the way."""
    world.add("short note on jazz")
    world.add("a very long note on jazz " * 50)
    version = world.row().version

    context = world.memory.context("jazz note", namespace=ALICE, token_budget=50)

    assert context.item_ids == ("i1",)
    assert world.row().version == version
    world.memory.flush()
    assert world.memory.get("i1").contributed_count == 1
    assert world.memory.get("i2").contributed_count == 0


def test_the_best_of_a_prompt_gains_most(world: World) -> None:
    """And those after it by their place, also where one before them is gone by then."""
    model = PRESETS["default"]
    memory = world.memory = world.another(replace(world.settings, value_model=model))
    for content in ("jazz", "jazz likes", "jazz likes Alice", "jazz likes Alice well"):
        world.add(content)

    packed = memory.context("jazz", namespace=ALICE).item_ids
    assert len(packed) == 4
    memory.forget(packed[1])
    memory.flush()

    for place, item_id in enumerate(packed):
        if place != 1:
            gained = memory.get(item_id).value - model.initial
            assert gained == pytest.approx(model.contributed_gain / (1 + place), rel=1e-6)
        else:
            with pytest.raises(ItemNotFound):
                memory.get(item_id)


def test_what_was_used_gains_alike_whatever_its_place(world: World) -> None:
    """Whoever says which items were used has chosen them; none of them is a guess."""
    model = PRESETS["default"]
    memory = world.memory = world.another(replace(world.settings, value_model=model))
    ids = [world.add(content).id for content in ("one", "two", "three")]

    memory.reinforce(ids, namespace=ALICE)
    memory.flush()

    values = [memory.get(item_id).value for item_id in ids]
    assert values == pytest.approx([model.initial + model.contributed_gain] * 3, rel=1e-6)


def test_items_used_in_contexts_become_hot(world: World) -> None:
    """That is the loop that keeps what is needed near."""
    world.add("Alice likes jazz")
    world.fill(10)
    for _ in range(3):
        world.memory.context("Alice jazz", namespace=ALICE, token_budget=25)
    world.memory.maintain()

    assert world.tier("i1").name == "HOT"


@pytest.mark.parametrize("query", ["", "  "])
def test_a_blank_query_is_an_empty_block(world: World, query: str) -> None:
    world.fill(2)
    context = world.memory.context(query, namespace=ALICE)

    assert (context.text, context.item_ids, context.tokens) == ("", (), 0)


def test_a_namespace_that_is_not_there_is_an_empty_block(world: World) -> None:
    context = world.memory.context("x", namespace=("nobody",))

    assert (context.text, context.item_ids) == ("", ())
    assert world.memory.namespaces() == []


def test_a_filter_and_a_vector_are_passed_on(world: World) -> None:
    world.fill(3)
    world.add("tagged", metadata={"tag": "x"})
    vector = world.embedder.embed(["thing2"])[0]

    assert world.memory.context("thing1", namespace=ALICE, filter={"tag": "x"}).item_ids == ("i4",)
    assert world.memory.context("", namespace=ALICE, vector=vector).item_ids[0] == "i3"


def test_only_what_is_believed_now_gets_into_a_prompt(world: World) -> None:
    """Of the owner asked for."""
    world.claim("Oslo")
    world.clock.advance(1.0)
    world.claim("Rome")
    world.memory.refute(world.add("lives on Mars", claim=Claim("x", "y", 1)).id)
    world.add("lives in Atlantis", expires_at=world.clock() + 1.0)
    world.memory.add("lives in Bonn", namespace=BOB)
    world.clock.advance(1.0)

    assert world.memory.context("lives in", namespace=ALICE).item_ids == ("i2",)


@pytest.mark.parametrize("budget", [0, -1, 1.5, 5.0, "5", True, None])
def test_a_token_budget_is_a_whole_number(world: World, budget: Any) -> None:
    with pytest.raises(
        InvalidInput, match="token_budget must be a whole number of at least 1, got"
    ):
        world.memory.context("x", namespace=ALICE, token_budget=budget)

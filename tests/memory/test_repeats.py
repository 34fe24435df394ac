"""Repeats: what is told again becomes no second item, and what differs stays apart."""

from itertools import product
from typing import Any

import pytest

from amv.errors import Conflict
from amv.memory.item import Claim
from amv.memory.ports import Store
from amv.memory.repeats import digest
from amv.memory.settings import MemorySettings
from amv.memory.tiers import Tier
from tests.memory.worlds import ALICE, BOB, DIMENSION, MONTH_S, WordByWord, World

TEXT = "The server listens on port 8080"


@pytest.fixture
def world(store: Store) -> World:
    """Give a world over each store that runs by the settings that ship."""
    return World(store, MemorySettings())


def test_recalled_text_told_again_fifty_times_grows_nothing(world: World) -> None:
    """Neither the store nor the ranking, nor its value: an echo is no evidence."""
    world.fill(10)
    first = world.add(TEXT)
    world.memory.flush()
    before, found = world.row(), world.found(TEXT, k=5)
    value = world.memory.get(first.id).value
    echoes = [world.add(TEXT) for _ in range(25)]
    echoes += world.memory.add_many([{"content": TEXT, "namespace": ALICE}] * 25)
    after = world.row()

    assert {item.id for item in echoes} == {first.id}
    assert (after.live, after.vectors, after.length) == (11, before.vectors, before.length)
    assert world.found(TEXT, k=5) == found
    assert world.memory.get(first.id).value == value
    assert world.store.check() == []


def test_a_recalled_block_told_again_fifty_times_grows_nothing(world: World) -> None:
    """Whoever writes back what was recalled, as it was packed, says nothing new by it."""
    world.fill(5)
    world.claim("Rome")
    world.add("first line\n\n- [2026-11-30] second line\r\nthird", source="ann", pinned=True)
    world.add("no break\u2028here \x0b nor here", metadata={"session": 1})
    world.add("(contradicted?) so it says")
    world.add("The server listens on port 8080")
    assert world.add("The server listens on port 8081").contradicted
    live = world.row().live
    block = world.memory.context("first line of Rome", namespace=ALICE, token_budget=4000)

    ways = [
        block.text,
        f"\n  {block.text}\n\n",
        f"\ufeff{block.text}",
        block.text.replace("\n", "\r\n"),
        block.text.replace("\n- [", "\n\n- ["),
    ]
    for way, source in product(ways * 5, (None, "agent")):
        assert world.add(way, source=source).id == block.item_ids[0]
    assert world.add(block.text, valid_from=world.clock()).id == block.item_ids[0]

    assert len(block.item_ids) == live
    assert world.row().live == live
    assert world.memory.context("first line of Rome", namespace=ALICE, token_budget=4000) == block


def test_hits_joined_and_told_again_grow_nothing(world: World) -> None:
    """Sentences below each other that are all there say nothing new; a list does."""
    world.add("Ann likes green tea")
    world.add("Ann lives in Rome")
    world.add("tea")
    world.add("rice")

    for _ in range(50):
        hits = world.memory.search("Ann likes living in Rome", namespace=ALICE, k=2).hits
        joined = "\n".join(hit.item.content for hit in hits)
        assert world.add(joined).id == hits[0].item.id
        assert world.add(f"{joined}\n\n").id == hits[0].item.id

    assert world.row().live == 4
    world.add("tea\nrice")
    world.add("Ann likes green tea\nAnn lives in Oslo")
    assert world.row().live == 6


def test_a_block_of_one_batch_repeats_what_came_before_it(world: World) -> None:
    day = world.memory.add("a", namespace=BOB).created_at.date()
    texts = ["tea", "rice", f"- [{day}] rice\n- [{day}] tea"]
    items = world.memory.add_many([{"content": text, "namespace": ALICE} for text in texts])

    assert [item.id for item in items] == [items[0].id, items[1].id, items[1].id]


@pytest.mark.parametrize(
    "fields",
    [
        {"content": "- [{day}] tea\n- [{day}] rice\n- [{day}] salt"},
        {"content": "- [{day}] tea\n- [2001-01-01] rice"},
        {"content": "- [{day}] tea\nand rice"},
        {"content": "I know:\n- [{day}] tea"},
        {"content": "\n".join(["- [{day}] tea"] * 1001)},
        {"namespace": BOB},
        {"id": "mine"},
        {"metadata": {"session": 2}},
        {"context": "another room"},
        {"claim": Claim("larder", "holds", "tea")},
        {"pinned": True},
        {"expires_at": 4e9},
        {"valid_until": 4e9},
        {"valid_from": 4e9},
    ],
    ids=lambda fields: str(fields)[:40],
)
def test_a_block_that_says_more_is_an_item(world: World, fields: dict[str, Any]) -> None:
    day = str(world.add("tea").created_at.date())
    world.add("rice")
    fields = {"content": "- [{day}] tea\n- [{day}] rice", "namespace": ALICE, **fields}
    content = fields["content"].replace("{day}", day)

    assert world.memory.add(**{**fields, "content": content}).content == content


def test_a_block_that_quotes_what_is_over_is_an_item(world: World) -> None:
    """What it quotes was true once; that it is believed now is news."""
    tea = world.add("tea")
    over = world.add("rice", valid_until=world.clock() + 1.0)
    block = world.memory.context("tea rice", namespace=ALICE, token_budget=400).text
    world.clock.advance(2.0)

    assert world.add(block).id not in (tea.id, over.id)
    world.memory.forget(tea.id)
    assert world.add(f"- [{tea.created_at.date()}] tea").content.startswith("- [")


def test_equal_texts_of_one_batch_become_one_item(world: World) -> None:
    """Each answer names it, so that the caller can go on with any."""
    texts = [TEXT, "another", f"  {TEXT.replace(' ', '  ')}\n", "another", TEXT]
    items = world.memory.add_many([{"content": text, "namespace": ALICE} for text in texts])

    assert [item.id for item in items] == [items[0].id, items[1].id] * 2 + [items[0].id]
    assert items[2].content == TEXT
    assert world.row().live == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"content": "The server listens on port 8081"},
        {"content": TEXT.lower()},
        {"namespace": BOB},
        {"id": "mine"},
        {"source": "ann"},
        {"source_trust": 0.9},
        {"metadata": {"session": 2}},
        {"context": "another room"},
        {"claim": Claim("server", "port", 8080)},
        {"pinned": True},
        {"expires_at": 4e9},
        {"valid_until": 4e9},
        {"valid_from": 10.0},
        {"vector": [0.0, 1.0] * (DIMENSION // 2)},
    ],
    ids=str,
)
def test_what_says_more_or_says_it_otherwise_stays_apart(
    world: World, fields: dict[str, Any]
) -> None:
    """A digit, an owner, a source, a mark to filter by: all of it would be lost."""
    first = world.add(TEXT, metadata={"session": 1})
    other = world.memory.add(**{"content": TEXT, "namespace": ALICE, **fields})

    assert other.id != first.id
    assert world.memory.get(first.id, namespace=ALICE).content == TEXT
    assert world.memory.stats().live == 2


def test_what_says_less_is_a_repeat(world: World) -> None:
    """Metadata, context and a pin stay as they are where the repeat has none."""
    first = world.add(TEXT, metadata={"a": 1}, context="near", pinned=True, source="ann")
    again = world.add(TEXT, source="ann")

    assert again.id == first.id
    assert (again.metadata, again.context, again.pinned) == ({"a": 1}, "near", True)
    assert again.created_at == first.created_at


def test_an_echo_of_what_a_trusted_source_or_a_claim_said_is_no_item(world: World) -> None:
    """It would outlive what it repeats: the claim is superseded, and the echo is not."""
    claim = world.claim("Rome")
    said = world.add(TEXT, source="ann", source_trust=0.9)

    assert world.add(claim.content).id == claim.id
    assert world.add(claim.content, source=claim.source, source_trust=claim.source_trust).id == (
        claim.id
    )
    assert world.add(TEXT).id == said.id
    assert world.add(TEXT, source_trust=0.9).id == said.id


def test_what_is_said_again_with_more_trust_or_another_name_is_an_item(world: World) -> None:
    """What somebody less trusted said is not what the caller says."""
    doubtful = world.add(TEXT, source="web", source_trust=0.1)
    plain = world.add(TEXT)
    named = world.add(TEXT, source="bob")

    assert len({doubtful.id, plain.id, named.id}) == 3
    assert world.add(TEXT).id == plain.id


def test_of_many_that_a_filter_tells_apart_each_is_repeated(world: World) -> None:
    """A log is read again in which the same was said often."""
    said = [{"content": "User: ok", "namespace": ALICE, "metadata": {"n": n}} for n in range(60)]
    first = world.memory.add_many(said)

    assert [item.id for item in world.memory.add_many(said)] == [item.id for item in first]
    assert world.row().live == 60


def test_an_item_with_an_id_is_repeated_by_one_without(world: World) -> None:
    """An id of the caller's own always becomes an item, and is then what others repeat."""
    one, two = world.add(TEXT, id="one"), world.add(TEXT, id="two")

    assert (one.id, two.id, world.row().live) == ("one", "two", 2)
    assert world.add(TEXT).id == "one"
    batch = [{"content": "new", "namespace": ALICE, "id": "three"}]
    batch += [{"content": "new", "namespace": ALICE}]
    assert [item.id for item in world.memory.add_many(batch)] == ["three", "three"]


def test_an_id_made_for_a_request_is_no_id_of_the_callers(world: World) -> None:
    """Each sending has one of its own: by it, nothing would ever be a repeat."""
    said = {"content": TEXT, "namespace": ALICE}
    (first,) = world.memory.add_under([(said, "made0")])
    block = f"- [{first.created_at.date()}] {TEXT}"
    for sending in range(1, 26):
        told = [(said, f"a{sending}"), ({**said, "content": block}, f"b{sending}")]
        for again in world.memory.add_under(told):
            assert again.id == first.id

    assert (first.id, world.row().live) == ("made0", 1)
    assert world.add(TEXT, id="mine").id == "mine"


@pytest.mark.parametrize("fields", [{}, {"claim": Claim("server", "port", 8080)}], ids=str)
def test_a_request_made_again_finds_what_it_added_or_repeated(
    world: World, fields: dict[str, Any]
) -> None:
    """Whatever was added in between, also where an id of its own was given or two are alike."""
    request: list[tuple[dict[str, Any], str | None]] = [
        ({"content": content, "namespace": ALICE, **own}, made_id)
        for content, own, made_id in (
            (TEXT, fields, "m0"),
            ("another", {}, "m1"),
            ("another", {}, "m2"),
            ("named", {"id": "mine"}, "m3"),
            ("of nobody", {}, None),
        )
    ]
    world.add("another")
    first = world.memory.add_under(request)
    assert [item.id for item in first] == ["m0", "i1", "i1", "mine", "i2"]
    live = world.row().live
    world.add(f" {TEXT}")
    world.add(TEXT, id="other")

    assert [item.id for item in world.memory.add_under(request)] == [item.id for item in first]
    assert world.row().live == live + 1


def test_a_made_id_used_for_other_content_is_a_conflict(world: World) -> None:
    world.add("another")
    world.memory.add_under([({"content": TEXT, "namespace": ALICE}, "made")])

    with pytest.raises(Conflict, match="another content"):
        world.memory.add_under([({"content": "another", "namespace": ALICE}, "made")])


def test_what_is_not_live_is_told_anew(world: World) -> None:
    """What was superseded, refuted, forgotten, over or not begun says nothing by now."""
    old = world.claim("Oslo")
    world.clock.advance(1.0)
    world.claim("Rome")
    world.clock.advance(1.0)
    assert world.claim("Oslo").id != old.id
    refuted, forgotten = world.add("a thing"), world.add("another thing")
    world.memory.refute(refuted.id)
    world.memory.forget(forgotten.id)
    later = world.add("a third thing", valid_from=world.clock() + 100.0)
    ended = world.add("a fourth thing", valid_until=world.clock() + 1.0)
    world.clock.advance(2.0)

    for item in (refuted, forgotten, later, ended):
        assert world.add(item.content).id != item.id


def test_a_claim_told_again_is_an_observation_of_its_own(world: World) -> None:
    """The gate learns by it how long such claims last, and goes by when one was said last."""
    first = world.claim("Rome")
    world.clock.advance(MONTH_S)
    again = world.claim("Rome")

    assert again.id != first.id
    assert world.memory.get(first.id).superseded_by is None
    assert world.add(first.content).id in (first.id, again.id)


def test_a_cold_item_told_again_is_worth_what_a_new_one_is(world: World) -> None:
    """It is news again; one that is near already gains nothing."""
    first = world.add(TEXT)
    world.fill(world.settings.probation_max)
    world.clock.advance(12 * MONTH_S)
    world.memory.sweep()
    assert world.tier(first.id) is Tier.COLD
    again = world.add(TEXT)

    assert (again.id, again.tier) == (first.id, Tier.HOT)
    assert again.value == pytest.approx(world.settings.value_model.initial)
    assert world.add(TEXT).value == again.value
    assert world.store.check() == []


def test_changed_content_is_what_is_repeated(world: World) -> None:
    """And what it said before is not."""
    item = world.add(TEXT)
    world.memory.update(item.id, content="something else")

    assert world.add("something else").id == item.id
    assert world.add(TEXT).id != item.id


def test_contents_that_share_a_number_are_compared(world: World) -> None:
    """The number has 32 bits, so that two texts of many share one."""
    one, other = "plumless", "buckeroo"
    assert digest(one) == digest(other)

    assert world.add(one).id != world.add(other).id


def test_texts_of_several_passages_are_compared_passage_by_passage(store: Store) -> None:
    """A vector of the caller's own stands for a text as a whole: that is another item."""
    world = World(store, MemorySettings(), embedder=WordByWord(dimension=DIMENSION))
    first = world.add("one two three")

    assert world.add("one two three").id == first.id
    assert world.add("one two three", vector=[1.0] * DIMENSION).id != first.id

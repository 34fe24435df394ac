"""A call of each method of a writer, for the contract to undo or to keep apart."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from amv.memory.item import Protection
from amv.memory.ports import Change, HistoryRow, NewPostings, Place, Writer
from amv.memory.tiers import Tier
from amv.memory.value import SCALE_BEFORE, Scale
from amv.testing.samples import (
    HALF_LIFE_S,
    NOW_S,
    Scene,
    gateway_key,
    ids,
    members,
    pairs,
    rich,
    spots,
    state,
    unit,
    vector_id,
    vectors,
)

Action = Callable[[Writer, Scene], object]


def _put_namespace(writer: Writer, scene: Scene) -> None:
    row = writer.namespace_by_id(scene.ns_id)
    assert row is not None
    writer.put_namespace(replace(row, version=2, live=99))


def _log_change(writer: Writer, scene: Scene) -> None:
    _put_namespace(writer, scene)
    writer.log_change(scene.ns_id, 2, Change(items=[7]))


def _insert(writer: Writer, scene: Scene) -> None:
    (key,) = writer.insert([rich(scene.ns_id, "another")])
    writer.add_vectors(scene.ns_id, vectors(vector_id(key)))


def _move_vectors(writer: Writer, scene: Scene) -> None:
    found = writer.indexed_ids(scene.ns_id)
    writer.move_vectors(found, pairs(*[(scene.second_id, scene.cell_id)] * len(found)))


ACTIONS: Mapping[str, Action] = MappingProxyType(
    {
        "set_meta": lambda w, s: w.set_meta("embedder", "new"),
        "put_key": lambda w, s: w.put_key(gateway_key("another", *s.name)),
        "create_namespace": lambda w, s: w.create_namespace(("created",), HALF_LIFE_S),
        "put_namespace": _put_namespace,
        "rekey": lambda w, s: w.rekey(s.ns_id, 1.5),
        "rescale": lambda w, s: w.rescale(s.ns_id, SCALE_BEFORE, Scale(2.0, 0.01, 0.1)),
        "log_change": _log_change,
        "insert": _insert,
        "update": lambda w, s: w.update(replace(rich(s.ns_id, "plain"), key=s.keys[0])),
        "put_states": lambda w, s: w.put_states(
            [(key, state(Tier.COLD, 2.0, Protection.PROBATION)) for key in s.keys]
        ),
        "add_history": lambda w, s: w.add_history(
            s.keys[4], HistoryRow(NOW_S, "updated", "it was Paris", None)
        ),
        "stage_vectors": lambda w, s: w.stage_vectors(vectors(vector_id(s.keys[1]))),
        "clear_stage": lambda w, s: w.clear_stage(),
        "add_vectors": lambda w, s: w.add_vectors(s.ns_id, vectors(vector_id(s.keys[5]))),
        "retire_vectors": lambda w, s: w.retire_vectors(ids(vector_id(s.keys[1]))),
        "drop_vectors": lambda w, s: w.drop_vectors(w.vector_ids(s.keys)),
        "place": lambda w, s: w.place(ids(vector_id(s.keys[0])), spots(Place(s.second_id))),
        "move_vectors": _move_vectors,
        "add_cell": lambda w, s: w.add_cell(s.ns_id, unit(5), members(vector_id(s.keys[1]))),
        "extend_cells": lambda w, s: w.extend_cells({s.cell_id: members(vector_id(s.keys[1]))}),
        "remove_members": lambda w, s: w.remove_members(s.cell_id, ids(vector_id(s.keys[0]))),
        "drop_cell": lambda w, s: w.drop_cell(s.cell_id),
        "put_cell_snapshot": lambda w, s: w.put_cell_snapshot(s.ns_id, None),
        "add_postings": lambda w, s: w.add_postings(
            s.ns_id, [NewPostings(s.keys[5], {"rome": 3, "%": 1}, 4)]
        ),
        "remove_postings": lambda w, s: w.remove_postings(s.ns_id, s.keys[0], ["rome", "john_doe"]),
        "clear_index": lambda w, s: w.clear_index(s.ns_id),
        "delete": lambda w, s: w.delete(s.keys[:5]),
        "drop_namespace": lambda w, s: w.drop_namespace(s.ns_id),
    }
)
"""A call of each method of `Writer` that changes a populated namespace, gentle ones first."""

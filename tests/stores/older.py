"""Files as an AMV of before left them: those of today, turned back."""

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import numpy as np

from amv.stores.sqlite.codec import ENTRY
from amv.stores.sqlite.lean import with_centroids
from amv.stores.sqlite.migrate import APPLICATION_ID, add_functions, migrations
from amv.stores.sqlite.reader import PARTS_MAX

SMALLER = next(n for n, script in migrations().items() if "narrowed_postings" in script)
"""The schema version since which a posting takes 7 bytes, and a saved index has no centroids."""

SCALED = next(n for n, script in migrations().items() if "contributed_gain" in script)
"""The schema version since which a namespace says what its value keys were made of."""

THIRD_CELL = next(n for n, script in migrations().items() if "third_id" in script)
"""The schema version since which a vector is in up to three cells."""


def turn_back(path: Path, version: int) -> None:
    """Make a closed file one of an earlier schema, with what that has no room for left out."""
    now = path.with_suffix(".now")
    path.rename(now)
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("PRAGMA page_size = 8192; PRAGMA journal_mode = WAL")
        add_functions(connection)
        for number in range(1, version + 1):
            connection.execute(migrations()[number])
        widened: Any = _widened
        connection.create_scalar_function("widened", widened, 1)
        connection.execute("ATTACH ? AS now", (str(now),))
        with connection:
            _copy(connection)
            if version < SMALLER:
                connection.execute("UPDATE main.term SET tail = widened(tail)")
                connection.execute("UPDATE main.posting SET data = widened(data)")
                _whole_indexes(connection)
            if version < THIRD_CELL:
                _two_cells(connection)
        connection.execute("DETACH now")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    now.unlink()


def _copy(connection: apsw.Connection) -> None:
    # Copying into the others changes sqlite_sequence.
    tables = connection.execute(
        "SELECT name FROM main.sqlite_schema WHERE type = 'table' ORDER BY name = 'sqlite_sequence'"
    ).fetchall()
    for (table,) in tables:
        columns = ", ".join(
            name for _, name, *_ in connection.execute(f"PRAGMA main.table_info({table})")
        )
        connection.execute(f"DELETE FROM main.{table}")
        connection.execute(
            f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM now.{table}"
        )


def _two_cells(connection: apsw.Connection) -> None:
    """Take vectors out of their third cell."""
    places = {
        vector_id: {cell_id, second_id}
        for vector_id, cell_id, second_id in connection.execute(
            "SELECT id, cell_id, second_id FROM main.placement"
        )
    }
    parts: list[tuple[Any, ...]] = connection.execute(
        "SELECT id, members, data FROM main.cell_part"
    ).fetchall()
    for part_id, count, data in parts:
        ids = np.frombuffer(data[: 8 * count], dtype="<i8")
        codes = np.frombuffer(data[8 * count :], dtype=np.uint8).reshape(count, -1)
        stays = np.asarray([part_id // PARTS_MAX in places[i] for i in ids.tolist()], dtype=bool)
        connection.execute("DELETE FROM main.cell_part WHERE id = ?", (part_id,))
        if stays.any():
            connection.execute(
                "INSERT INTO main.cell_part VALUES (?, ?, ?)",
                (part_id, int(stays.sum()), ids[stays].tobytes() + codes[stays].tobytes()),
            )


def _whole_indexes(connection: apsw.Connection) -> None:
    """Put the centroids back into saved indexes."""
    saved: list[Any] = connection.execute(
        "SELECT ns_id, data, cell_ids FROM now.cell_snapshot"
    ).fetchall()
    held = "SELECT cell_id, centroid FROM now.cell UNION SELECT cell_id, centroid FROM now.waypoint"
    held_ones: list[Any] = connection.execute(held).fetchall()
    centroids = dict(held_ones)
    for ns_id, data, cell_ids in saved:
        whole = with_centroids(data, np.frombuffer(cell_ids, np.int64), centroids)
        connection.execute("UPDATE main.cell_snapshot SET data = ? WHERE ns_id = ?", (whole, ns_id))


def _widened(data: bytes) -> bytes:
    entries = np.frombuffer(data, ENTRY)
    wide = np.dtype([("offset", "<u4"), ("tf", "<u2"), ("length", "<u2")])
    return entries.astype(wide).tobytes()

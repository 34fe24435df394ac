-- The first schema.  Sizes matter here: a sentence of 200 bytes with a vector
-- of 384 components should take about 2.3 KB, everything included.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY NOT NULL,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- name is a JSON array, so that ("a/b",) and ("a", "b") are two namespaces.
CREATE TABLE namespace (
    ns_id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name          TEXT NOT NULL UNIQUE,
    version       INTEGER NOT NULL,
    half_life_s   REAL NOT NULL,
    live          INTEGER NOT NULL,
    length        INTEGER NOT NULL,
    hot           INTEGER NOT NULL,
    pinned        INTEGER NOT NULL,
    vectors       INTEGER NOT NULL,
    pending       INTEGER NOT NULL,
    cells         INTEGER NOT NULL,
    cells_changed INTEGER NOT NULL,
    next_due_s    REAL
) STRICT;
CREATE INDEX namespace_due ON namespace (next_due_s) WHERE next_due_s IS NOT NULL;

-- AUTOINCREMENT: a key is never used again, so a stale one finds nothing.
-- What may be long stands last, so that the rest is read without it.
-- status: 0 live, 1 superseded, 2 refuted.  valid_from_s NULL: same as
-- created_s.  metadata NULL: empty.  claim_value: JSON.
CREATE TABLE item (
    key              INTEGER PRIMARY KEY AUTOINCREMENT,
    ns_id            INTEGER NOT NULL,
    id               TEXT NOT NULL,
    status           INTEGER NOT NULL,
    expires_s        REAL,
    created_s        REAL NOT NULL,
    valid_from_s     REAL,
    valid_until_s    REAL,
    last_verified_s  REAL,
    contradicted     INTEGER NOT NULL,
    pinned           INTEGER NOT NULL,
    length           INTEGER NOT NULL,
    source           TEXT,
    source_trust     REAL NOT NULL,
    supersedes       TEXT,
    superseded_by    TEXT,
    subject          TEXT,
    attribute        TEXT,
    claim_value      TEXT,
    metadata         TEXT,
    context          TEXT NOT NULL,
    content          TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX item_by_id ON item (id, ns_id);
CREATE INDEX item_by_namespace ON item (ns_id);
CREATE INDEX item_lasting ON item (ns_id) WHERE status = 0 AND expires_s IS NULL;
CREATE INDEX item_expiring ON item (ns_id, expires_s) WHERE expires_s IS NOT NULL;
CREATE INDEX item_by_source ON item (ns_id, source) WHERE source IS NOT NULL;
CREATE INDEX item_by_claim ON item (ns_id, subject, attribute)
    WHERE subject IS NOT NULL AND status = 0;
CREATE INDEX item_by_past ON item (ns_id, valid_until_s, coalesce(valid_from_s, created_s))
    WHERE status = 1;
CREATE INDEX item_by_supersedes ON item (ns_id, supersedes) WHERE supersedes IS NOT NULL;
CREATE INDEX item_by_superseded_by ON item (ns_id, superseded_by) WHERE superseded_by IS NOT NULL;

-- Often written, hence apart from the wide row.  A sweep is a range scan of its
-- index, which holds live items only.
CREATE TABLE item_state (
    key         INTEGER PRIMARY KEY,
    ns_id       INTEGER NOT NULL,
    live        INTEGER NOT NULL,
    protection  INTEGER NOT NULL,
    tier        INTEGER NOT NULL,
    value_key   REAL NOT NULL,
    exposed     INTEGER NOT NULL,
    contributed INTEGER NOT NULL
) STRICT;
CREATE INDEX item_state_by_value ON item_state (ns_id, protection, tier, value_key) WHERE live = 1;

-- What filters look at, of live items only.  kind: n number, s string, b boolean, z null.
CREATE TABLE entry (
    ns_id INTEGER NOT NULL,
    path  TEXT NOT NULL,
    kind  TEXT NOT NULL,
    value ANY NOT NULL,
    key   INTEGER NOT NULL,
    PRIMARY KEY (ns_id, path, kind, value, key)
) STRICT, WITHOUT ROWID;

-- id is key * 2^20 + the number of the event, from 1.
CREATE TABLE history (
    id      INTEGER PRIMARY KEY,
    at_s    REAL NOT NULL,
    event   TEXT NOT NULL,
    content TEXT NOT NULL,
    claim   TEXT
) STRICT;

CREATE TABLE change (
    ns_id   INTEGER NOT NULL,
    version INTEGER NOT NULL,
    payload BLOB NOT NULL,
    PRIMARY KEY (ns_id, version)
) STRICT, WITHOUT ROWID;

-- id is key * 4096 + the number of the passage.
CREATE TABLE vector_data (
    id   INTEGER PRIMARY KEY,
    data BLOB NOT NULL
) STRICT;

-- Vectors of another embedder, kept aside until every item has one.
CREATE TABLE staged_vector (
    id   INTEGER PRIMARY KEY,
    data BLOB NOT NULL
) STRICT;

-- cell_id: the nearest cell; 0 pending, -1 retired.  The index tells the three apart,
-- whatever the cell.  second_id: the other cell that the vector is in, or 0.
CREATE TABLE placement (
    id        INTEGER PRIMARY KEY,
    ns_id     INTEGER NOT NULL,
    cell_id   INTEGER NOT NULL,
    second_id INTEGER NOT NULL
) STRICT;
CREATE INDEX placement_by_namespace ON placement (ns_id, min(cell_id, 1));

CREATE TABLE cell (
    cell_id  INTEGER PRIMARY KEY AUTOINCREMENT,
    ns_id    INTEGER NOT NULL,
    centroid BLOB NOT NULL
) STRICT;
CREATE INDEX cell_by_namespace ON cell (ns_id);

-- id is cell_id * 256 + the number of the part: a cell grows by a part, not by being rewritten.
CREATE TABLE cell_part (
    id      INTEGER PRIMARY KEY,
    members INTEGER NOT NULL,
    data    BLOB NOT NULL
) STRICT;

CREATE TABLE cell_snapshot (
    ns_id INTEGER PRIMARY KEY,
    data  BLOB NOT NULL
) STRICT;

-- The newest postings of a term stand in its own row (tail, keys counted from
-- base); full ones move to a chunk.  So a rare term is one row, and an item
-- that is added touches one row a term.  term_id is given with the first chunk.
CREATE TABLE term (
    ns_id     INTEGER NOT NULL,
    term      TEXT NOT NULL,
    term_id   INTEGER,
    frequency INTEGER NOT NULL,
    base      INTEGER NOT NULL,
    tail      BLOB NOT NULL,
    PRIMARY KEY (ns_id, term)
) STRICT, WITHOUT ROWID;

CREATE TABLE posting (
    term_id   INTEGER NOT NULL,
    first_key INTEGER NOT NULL,
    data      BLOB NOT NULL,
    PRIMARY KEY (term_id, first_key)
) STRICT, WITHOUT ROWID;

-- Keys to the gateway: an HMAC of each, never the key.  namespace is a JSON array.
CREATE TABLE api_key (
    key_id    TEXT PRIMARY KEY NOT NULL,
    mac       BLOB NOT NULL,
    namespace TEXT NOT NULL,
    level     INTEGER NOT NULL,
    created_s REAL NOT NULL,
    revoked_s REAL
) STRICT, WITHOUT ROWID;

-- How far each log of value events has been folded in.
CREATE TABLE event_offset (
    log    TEXT PRIMARY KEY NOT NULL,
    offset INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

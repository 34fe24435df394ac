-- What the gate writes down.  Records are append-only, and chained by their hashes.
CREATE TABLE guard_record (
    number      INTEGER PRIMARY KEY,
    decision_id TEXT NOT NULL,
    kind        TEXT NOT NULL,
    before      TEXT NOT NULL,
    hash        TEXT NOT NULL,
    body        BLOB NOT NULL
) STRICT;
CREATE INDEX guard_record_by_decision ON guard_record (decision_id);

-- At most one grant a key.  permit_hash: the SHA-256 of a permit, never the permit.
CREATE TABLE guard_ledger (
    key         TEXT PRIMARY KEY NOT NULL,
    digest      TEXT NOT NULL,
    state       TEXT NOT NULL,
    permit_hash TEXT NOT NULL UNIQUE,
    expires_s   REAL NOT NULL,
    decision_id TEXT NOT NULL,
    changed_s   REAL NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX guard_ledger_by_state ON guard_ledger (state, changed_s);
CREATE INDEX guard_ledger_by_decision ON guard_ledger (decision_id);

-- The words behind the hashes in records; they go when what they are about is forgotten.
CREATE TABLE guard_text (
    decision_id TEXT PRIMARY KEY NOT NULL,
    namespace   TEXT NOT NULL,
    body        BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX guard_text_by_namespace ON guard_text (namespace);

CREATE TABLE guard_text_item (
    item_id     TEXT NOT NULL,
    namespace   TEXT NOT NULL,
    decision_id TEXT NOT NULL,
    PRIMARY KEY (item_id, namespace, decision_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX guard_text_item_by_decision ON guard_text_item (decision_id);

CREATE TRIGGER guard_forget_text AFTER DELETE ON guard_text BEGIN
    DELETE FROM guard_text_item WHERE decision_id = old.decision_id;
END;

CREATE TRIGGER guard_forget_item AFTER DELETE ON item BEGIN
    DELETE FROM guard_text WHERE decision_id IN (
        SELECT t.decision_id FROM guard_text_item t JOIN namespace n ON n.name = t.namespace
        WHERE t.item_id = old.id AND n.ns_id = old.ns_id);
END;

CREATE TRIGGER guard_forget_namespace AFTER DELETE ON namespace BEGIN
    DELETE FROM guard_text WHERE namespace = old.name;
END;

-- Requests to a person.  state: pending, approved, rejected, used.
CREATE TABLE guard_approval (
    approval_id TEXT PRIMARY KEY NOT NULL,
    decision_id TEXT NOT NULL,
    digest      TEXT NOT NULL,
    state       TEXT NOT NULL,
    created_s   REAL NOT NULL,
    expires_s   REAL NOT NULL,
    decided_by  TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX guard_approval_by_state ON guard_approval (state, created_s);

-- The approval by which a permit was given; it is used up when the permit is redeemed.
ALTER TABLE guard_ledger ADD COLUMN approval_id TEXT NOT NULL DEFAULT '';

-- Permits that a later one of the same key took the place of.
CREATE TABLE guard_replaced (
    permit_hash TEXT PRIMARY KEY NOT NULL,
    digest      TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- A vector is in up to three cells, which are larger and divided otherwise.  Cells of
-- before are no more; totals still tell of them, so whoever meets a namespace that had
-- some finds its index lacking and makes it anew.
-- third_id: one more cell that the vector is in, or 0.
ALTER TABLE placement ADD COLUMN third_id INTEGER NOT NULL DEFAULT 0;
UPDATE placement SET cell_id = 0, second_id = 0 WHERE cell_id > 0;
DELETE FROM cell_part;
DELETE FROM cell;
DELETE FROM cell_snapshot;

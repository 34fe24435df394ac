-- A vector is in up to three cells, which are larger and divided otherwise.  Cells of
-- before are no more: their vectors wait, and the first search puts them into new ones.
-- third_id: one more cell that the vector is in, or 0.
ALTER TABLE placement ADD COLUMN third_id INTEGER NOT NULL DEFAULT 0;
UPDATE placement SET cell_id = 0, second_id = 0 WHERE cell_id > 0;
DELETE FROM cell_part;
DELETE FROM cell;
DELETE FROM cell_snapshot;
UPDATE namespace SET cells = 0, cells_changed = 0, pending = (
    SELECT count(*) FROM placement p WHERE p.ns_id = namespace.ns_id AND min(p.cell_id, 1) = 0
);

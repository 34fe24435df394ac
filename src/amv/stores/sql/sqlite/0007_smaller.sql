-- A saved index over centroids holds copies of those in cell.  They are left out of data,
-- and cell_ids, of 8 bytes each, says whose stood where.  last_id: the newest cell in it.
ALTER TABLE cell_snapshot ADD COLUMN last_id INTEGER NOT NULL DEFAULT 0;
ALTER TABLE cell_snapshot ADD COLUMN cell_ids BLOB NOT NULL DEFAULT x'';

-- Centroids of cells that were dropped since: the saved index still leads through them.
CREATE TABLE waypoint (
    cell_id  INTEGER PRIMARY KEY,
    ns_id    INTEGER NOT NULL,
    centroid BLOB NOT NULL
) STRICT;
CREATE INDEX waypoint_by_namespace ON waypoint (ns_id);

-- A posting takes 7 bytes instead of 8: how often a term occurs in an item is kept up to 255.
UPDATE term SET tail = narrowed_postings(tail);
UPDATE posting SET data = narrowed_postings(data);

-- Waypoints are looked up by namespace and cell, so that this is their key, and no index beside it.
ALTER TABLE waypoint RENAME TO waypoint_before;
CREATE TABLE waypoint (
    ns_id    INTEGER NOT NULL,
    cell_id  INTEGER NOT NULL,
    centroid BLOB NOT NULL,
    PRIMARY KEY (ns_id, cell_id)
) STRICT, WITHOUT ROWID;
INSERT INTO waypoint SELECT ns_id, cell_id, centroid FROM waypoint_before;
DROP TABLE waypoint_before;

-- What the value keys of a namespace were made of, so that they can be made anew under other
-- constants: the most that there is, what is new, what one use adds.  Until the default got
-- constants of its own these were the same in both presets, and the next write or sweep makes
-- the keys anew where they are others by now.
ALTER TABLE namespace ADD COLUMN value_max REAL NOT NULL DEFAULT 1.0;
ALTER TABLE namespace ADD COLUMN initial REAL NOT NULL DEFAULT 0.5;
ALTER TABLE namespace ADD COLUMN contributed_gain REAL NOT NULL DEFAULT 0.2;
-- For a while files had the new constants and did not say so: there what was never used is
-- worth nowhere near 0.5 at the time it was written, but 0.005.
UPDATE namespace SET initial = 0.005, contributed_gain = 0.02 WHERE 0.05 > (
    SELECT exp(max(s.value_key - ln(2.0) / namespace.half_life_s * i.created_s))
    FROM item i JOIN item_state s ON s.key = i.key
    WHERE i.ns_id = namespace.ns_id AND s.protection <> 3 AND (s.exposed, s.contributed) = (0, 0)
);
UPDATE namespace SET next_due_s = 0.0;

-- A flagged item that ends is no reason any more to doubt what it was flagged for; the sweep
-- finds it here.
CREATE INDEX item_doubted ON item (ns_id, valid_until_s)
    WHERE status = 0 AND contradicted = 1 AND valid_until_s IS NOT NULL;
-- Until this version such flags stayed.
UPDATE namespace SET next_due_s = 0.0;

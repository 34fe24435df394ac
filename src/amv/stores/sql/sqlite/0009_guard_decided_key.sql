-- The id of the key with which a request to a person was decided over HTTP.
ALTER TABLE guard_approval ADD COLUMN decided_key TEXT NOT NULL DEFAULT '';

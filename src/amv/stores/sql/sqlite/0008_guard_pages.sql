-- Pages of what the gate lists are ranges of an index: a decision stands in its namespace, and in
-- each above, by the number of the record that opened it; a request to a person, by its time.
CREATE INDEX guard_record_opened ON guard_record (kind) WHERE kind = 'opened';

CREATE TABLE guard_within (
    prefix      TEXT NOT NULL,
    number      INTEGER NOT NULL,
    decision_id TEXT NOT NULL,
    PRIMARY KEY (prefix, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX guard_within_by_decision ON guard_within (decision_id);

CREATE TABLE guard_approval_within (
    prefix      TEXT NOT NULL,
    created_s   REAL NOT NULL,
    approval_id TEXT NOT NULL,
    state       TEXT NOT NULL,
    decision_id TEXT NOT NULL,
    PRIMARY KEY (prefix, created_s, approval_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX guard_approval_within_by_state
    ON guard_approval_within (prefix, state, created_s, approval_id);
CREATE INDEX guard_approval_within_by_decision ON guard_approval_within (decision_id);

DROP INDEX guard_approval_by_state;
CREATE INDEX guard_approval_by_state ON guard_approval (state, created_s, approval_id);
CREATE INDEX guard_approval_by_time ON guard_approval (created_s, approval_id);

CREATE TRIGGER guard_forget_within AFTER DELETE ON guard_text BEGIN
    DELETE FROM guard_within WHERE decision_id = old.decision_id;
    DELETE FROM guard_approval_within WHERE decision_id = old.decision_id;
END;

CREATE TEMP TABLE guard_prefix AS
    SELECT t.decision_id, (SELECT json_group_array(value) FROM (
        SELECT e.value FROM json_each(t.namespace) e WHERE e.key <= p.key ORDER BY e.key)) AS prefix
    FROM guard_text t, json_each(t.namespace) p;
INSERT INTO guard_within
    SELECT p.prefix, r.number, p.decision_id FROM guard_prefix p
    JOIN guard_record r ON r.decision_id = p.decision_id AND r.kind = 'opened';
INSERT INTO guard_approval_within
    SELECT p.prefix, a.created_s, a.approval_id, a.state, a.decision_id FROM guard_prefix p
    JOIN guard_approval a ON a.decision_id = p.decision_id;
DROP TABLE guard_prefix;

-- Requests to a person are found by the action they are for, and by whose decision asked.
CREATE INDEX guard_approval_by_digest ON guard_approval (digest, state, created_s);
CREATE INDEX guard_approval_by_decision ON guard_approval (decision_id);

-- What grants have taken of a purse: one holder's share of one budget, by its hash.
CREATE TABLE guard_spent (
    purse  TEXT NOT NULL,
    key    TEXT NOT NULL,
    amount REAL NOT NULL,
    at_s   REAL NOT NULL,
    PRIMARY KEY (purse, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX guard_spent_by_time ON guard_spent (purse, at_s);

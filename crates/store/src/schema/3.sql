-- What people add to a run. It is no part of the run's document, and stays when the run is exported.
CREATE TABLE annotation (
    run  TEXT PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
    note TEXT NOT NULL,
    tags TEXT NOT NULL    -- JSON: a list of words in their order
) STRICT, WITHOUT ROWID;

-- The first layout. Never edit a published layout: add the next file and a step in schema/mod.rs.
CREATE TABLE run (
    id              TEXT PRIMARY KEY,
    schema          INTEGER NOT NULL,   -- of the document, not of this file
    kagiri          TEXT NOT NULL,
    name            TEXT NOT NULL,
    workload        TEXT NOT NULL,
    state           TEXT NOT NULL,
    failure         TEXT,
    started_at      TEXT NOT NULL,      -- RFC 3339, exact
    started_us      INTEGER NOT NULL,   -- the same in us since 1970: texts with and without fractions do not sort
    ended_at        TEXT,
    capacity_value  REAL,               -- NULL: unknown
    capacity_unit   TEXT NOT NULL,
    limit_resource  TEXT NOT NULL,
    environment     TEXT NOT NULL,      -- the rest of the document, as JSON
    plan            TEXT NOT NULL,
    capacity        TEXT NOT NULL,
    limit_found     TEXT NOT NULL,
    saturation      TEXT NOT NULL,
    variants        TEXT NOT NULL,
    requirements    TEXT NOT NULL,
    doubts          TEXT NOT NULL,
    owner_pid       INTEGER,            -- the process that measures; NULL for an imported run
    owner_start     INTEGER,            -- its start in clock ticks after boot, since process ids are used again
    owner_boot      TEXT,               -- which boot
    owner_pid_space TEXT                -- which pid namespace: ids of another one say nothing here
) STRICT;
CREATE INDEX run_by_start ON run (started_us, id);

CREATE TABLE trial (
    run         TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    number      INTEGER NOT NULL,
    variant     TEXT NOT NULL,
    repetition  INTEGER NOT NULL,
    phase       TEXT NOT NULL,
    load        REAL NOT NULL,
    verdict     TEXT NOT NULL,
    started_at  TEXT NOT NULL,
    hold_from_s REAL NOT NULL,
    hold_to_s   REAL NOT NULL,
    reasons     TEXT NOT NULL,          -- JSON
    doubts      TEXT NOT NULL,          -- JSON
    PRIMARY KEY (run, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE metric (
    run   TEXT NOT NULL,
    trial INTEGER NOT NULL,
    name  TEXT NOT NULL,
    value REAL,                         -- NULL: could not be read
    PRIMARY KEY (run, trial, name),
    FOREIGN KEY (run, trial) REFERENCES trial (run, number) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE series (
    run      TEXT NOT NULL,
    trial    INTEGER NOT NULL,
    position INTEGER NOT NULL,
    name     TEXT NOT NULL,
    unit     TEXT NOT NULL,
    at_s     BLOB NOT NULL,             -- 64-bit IEEE 754 numbers, little-endian, one after the other
    value    BLOB NOT NULL,             -- the same; NaN where the value is unknown
    PRIMARY KEY (run, trial, position),
    FOREIGN KEY (run, trial) REFERENCES trial (run, number) ON DELETE CASCADE
) STRICT;

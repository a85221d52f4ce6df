-- What a workload says of a trial in its own words.
ALTER TABLE trial ADD COLUMN account TEXT NOT NULL DEFAULT '{}';  -- JSON

"""Tables of the index, version 1.

`chunks` describes content, `places` says which tier holds it, `tiers` keeps totals by triggers, so that asking how full
a tier is costs one row. `pins`, `tags` and `schedule` are what operators said; only these cannot be rebuilt from files.
"""

VERSION = 1
FILE_NAME = f"index.v{VERSION}.sqlite"
"""The version is in the name too, so that two releases sharing a store do not replace each other's index."""

SCHEMA = (
    """CREATE TABLE tiers (
        name TEXT PRIMARY KEY, chunks INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0,
        clock REAL NOT NULL DEFAULT 0
    ) WITHOUT ROWID""",
    """CREATE TABLE chunks (
        key TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, codec TEXT NOT NULL, tokens INTEGER NOT NULL,
        raw_bytes INTEGER NOT NULL, saved_s REAL NOT NULL, created REAL NOT NULL, last_used REAL NOT NULL,
        hits INTEGER NOT NULL, seconds_saved REAL NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE places (
        tier TEXT NOT NULL, key TEXT NOT NULL, bytes INTEGER NOT NULL, priority REAL NOT NULL DEFAULT 0,
        PRIMARY KEY (tier, key)
    ) WITHOUT ROWID""",
    "CREATE INDEX places_by_key ON places (key)",
    "CREATE INDEX places_by_priority ON places (tier, priority)",
    "CREATE INDEX chunks_by_use ON chunks (last_used)",
    """CREATE TABLE pins (
        key TEXT NOT NULL, owner TEXT NOT NULL, until REAL NOT NULL, PRIMARY KEY (key, owner)
    ) WITHOUT ROWID""",
    "CREATE TABLE tags (tag TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (tag, key)) WITHOUT ROWID",
    """CREATE TABLE schedule (
        key TEXT NOT NULL, verb TEXT NOT NULL, tier TEXT NOT NULL, due REAL NOT NULL, PRIMARY KEY (key, verb)
    ) WITHOUT ROWID""",
    "CREATE INDEX schedule_by_due ON schedule (due)",
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value REAL NOT NULL) WITHOUT ROWID",
    """CREATE TRIGGER place_added AFTER INSERT ON places BEGIN
        INSERT INTO tiers (name) VALUES (new.tier) ON CONFLICT DO NOTHING;
        UPDATE tiers SET chunks = chunks + 1, bytes = bytes + new.bytes WHERE name = new.tier;
    END""",
    """CREATE TRIGGER place_removed AFTER DELETE ON places BEGIN
        UPDATE tiers SET chunks = chunks - 1, bytes = bytes - old.bytes WHERE name = old.tier;
    END""",
    """CREATE TRIGGER place_changed AFTER UPDATE OF bytes ON places BEGIN
        UPDATE tiers SET bytes = bytes - old.bytes + new.bytes WHERE name = new.tier;
    END""",
)

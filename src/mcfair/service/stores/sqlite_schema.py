"""The tables of a store in SQLite."""

APPLICATION = 0x6D634661  # "mcFa": identifies our files to us and to `file`
SCHEMA_VERSION = 4

HISTORY = """
CREATE TABLE summaries (query INTEGER PRIMARY KEY, booked INTEGER NOT NULL, seq INTEGER NOT NULL,
                        version INTEGER NOT NULL, time INTEGER NOT NULL, visits INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE history (resolution INTEGER NOT NULL, start INTEGER NOT NULL, lists INTEGER NOT NULL,
                      clicks INTEGER NOT NULL, retracted INTEGER NOT NULL, body BLOB, PRIMARY KEY (resolution, start))
    WITHOUT ROWID;
"""

SCHEMA = f"""
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE versions (number INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE keys (id TEXT PRIMARY KEY, digest BLOB NOT NULL, name TEXT NOT NULL, scopes TEXT NOT NULL,
                   created INTEGER NOT NULL, revoked INTEGER) WITHOUT ROWID;
CREATE TABLE queries (number INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB NOT NULL UNIQUE,
                      base INTEGER NOT NULL DEFAULT 0);
CREATE TABLE orphans (low INTEGER PRIMARY KEY, high INTEGER NOT NULL);
CREATE TABLE items (query INTEGER NOT NULL, row INTEGER NOT NULL, id TEXT, grp TEXT, erased INTEGER,
                    PRIMARY KEY (query, row)) WITHOUT ROWID;
CREATE INDEX items_by_id ON items (id) WHERE id IS NOT NULL;
CREATE INDEX items_by_erasure ON items (query, erased) WHERE erased IS NOT NULL;
CREATE TABLE deletions (number INTEGER PRIMARY KEY AUTOINCREMENT, item TEXT NOT NULL, cursor INTEGER NOT NULL);
CREATE TABLE exemptions (deletion INTEGER NOT NULL, query INTEGER NOT NULL, PRIMARY KEY (deletion, query))
    WITHOUT ROWID;
CREATE TABLE log (query INTEGER NOT NULL, seq INTEGER NOT NULL, time INTEGER NOT NULL, kind INTEGER NOT NULL,
                  version INTEGER NOT NULL, candidates INTEGER, body BLOB NOT NULL, bits BLOB, PRIMARY KEY (query, seq))
    WITHOUT ROWID;
CREATE TABLE candidates (query INTEGER NOT NULL, number INTEGER NOT NULL, n INTEGER NOT NULL, body BLOB NOT NULL,
                         PRIMARY KEY (query, number)) WITHOUT ROWID;
CREATE TABLE snapshots (query INTEGER NOT NULL, seq INTEGER NOT NULL, time INTEGER NOT NULL, body BLOB NOT NULL,
                        PRIMARY KEY (query, seq)) WITHOUT ROWID;
CREATE TABLE arms (experiment INTEGER NOT NULL, arm INTEGER NOT NULL, bucket INTEGER NOT NULL, lists INTEGER NOT NULL,
                   clicks INTEGER NOT NULL, ndcg INTEGER NOT NULL, unfairness INTEGER NOT NULL,
                   PRIMARY KEY (experiment, arm, bucket)) WITHOUT ROWID;
CREATE TABLE requests (number INTEGER PRIMARY KEY, query INTEGER NOT NULL, key BLOB NOT NULL, digest BLOB NOT NULL,
                       seq INTEGER NOT NULL, time INTEGER NOT NULL, UNIQUE (query, key));
{HISTORY.strip()}
"""

MIGRATIONS: dict[int, str] = {3: HISTORY}
"""SQL that migrates each schema version to the next."""

QUERY_TABLES = {
    "log": ("query, seq", 1),
    "candidates": ("query, number", 16),
    "snapshots": ("query, seq", 16),
    "items": ("query, row", 1),
    "summaries": ("query", 1),
    "queries": ("number", 1),
}
"""Tables with rows of queries, in the order in which they are purged: their primary keys, and how large their rows are.
Idempotency keys are digests; those of a deleted query expire like all others."""

NEWEST_DELETED = "coalesce((SELECT high FROM orphans WHERE low = 0), 0)"
"""The last number that a reset deleted: queries up to it do not exist, even if their rows are still stored."""

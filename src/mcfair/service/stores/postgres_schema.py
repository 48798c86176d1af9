"""The tables of a store in PostgreSQL, created and migrated by the first instance that needs them."""

from __future__ import annotations

import secrets
from typing import Any

from ...errors import StoreError
from .errors import StoreUnavailableError

SCHEMA_VERSION = 2

ADMINISTRATION, LEADERSHIP = 0x6D6346610001, 0x6D6346610002
"""Advisory locks: every transaction that writes holds the first, administration alone; one instance holds the second
for as long as it is connected, and compacts."""

HISTORY = """
CREATE TABLE summaries (query bigint PRIMARY KEY, booked bigint NOT NULL, seq bigint NOT NULL, version bigint NOT NULL,
                        time bigint NOT NULL, visits bigint NOT NULL, body bytea NOT NULL) WITH (fillfactor = 80);
CREATE TABLE history (resolution bigint NOT NULL, start bigint NOT NULL, lists bigint NOT NULL, clicks bigint NOT NULL,
                      retracted bigint NOT NULL, body bytea, PRIMARY KEY (resolution, start));
"""

SCHEMA = f"""
CREATE TABLE meta (name text PRIMARY KEY, value bytea NOT NULL);
CREATE TABLE generation (number bigint NOT NULL);
CREATE TABLE versions (number bigint PRIMARY KEY, body bytea NOT NULL);
CREATE TABLE keys (id text PRIMARY KEY, digest bytea NOT NULL, name bytea NOT NULL, scopes text NOT NULL,
                   created bigint NOT NULL, revoked bigint);
CREATE SEQUENCE query_numbers AS bigint INCREMENT BY 100 START WITH 1;
CREATE TABLE queries (number bigint PRIMARY KEY, key bytea NOT NULL UNIQUE, base bigint NOT NULL DEFAULT 0,
                      revision bigint NOT NULL DEFAULT 0) WITH (fillfactor = 80);
CREATE TABLE orphans (query bigint PRIMARY KEY);
CREATE TABLE items (query bigint NOT NULL, row bigint NOT NULL, id bytea, grp bytea, erased bigint,
                    PRIMARY KEY (query, row));
CREATE INDEX items_by_erasure ON items (query, erased) WHERE erased IS NOT NULL;
CREATE INDEX items_by_id ON items (id, query) WHERE id IS NOT NULL;
CREATE SEQUENCE deletion_numbers AS bigint;
CREATE TABLE deletions (number bigint PRIMARY KEY, item bytea NOT NULL, cursor bigint NOT NULL);
CREATE TABLE exemptions (deletion bigint NOT NULL, query bigint NOT NULL, PRIMARY KEY (deletion, query));
CREATE TABLE log (query bigint NOT NULL, seq bigint NOT NULL, time bigint NOT NULL, kind smallint NOT NULL,
                  version bigint NOT NULL, candidates bigint, body bytea NOT NULL, bits bytea,
                  PRIMARY KEY (query, seq)) WITH (fillfactor = 90);
CREATE TABLE candidates (query bigint NOT NULL, number bigint NOT NULL, n bigint NOT NULL, body bytea NOT NULL,
                         PRIMARY KEY (query, number));
CREATE TABLE snapshots (query bigint NOT NULL, seq bigint NOT NULL, time bigint NOT NULL, body bytea NOT NULL,
                        PRIMARY KEY (query, seq));
ALTER TABLE snapshots ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE TABLE arms (experiment bigint NOT NULL, arm bigint NOT NULL, bucket bigint NOT NULL, lists bigint NOT NULL,
                   clicks bigint NOT NULL, ndcg bigint NOT NULL, unfairness bigint NOT NULL,
                   PRIMARY KEY (experiment, arm, bucket)) WITH (fillfactor = 50);
CREATE TABLE requests (query bigint NOT NULL, key bytea NOT NULL, digest bytea NOT NULL, seq bigint NOT NULL,
                       time bigint NOT NULL, PRIMARY KEY (query, key));
CREATE INDEX requests_by_time ON requests (time);
{HISTORY.strip()}
"""
"""Texts of callers are stored as bytes: PostgreSQL's text cannot hold every character. Snapshots are compressed
already. Query numbers are handed out in blocks of the sequence's increment."""

MIGRATIONS: dict[int, str] = {1: HISTORY}
"""SQL that migrates each schema version to the next."""

QUERY_TABLES = {"log": 1, "candidates": 16, "snapshots": 16, "items": 1, "summaries": 1}
"""Tables with rows of queries, in the order in which they are purged, and how large their rows are."""


def prepare(db: Any, name: str, *, reading: bool) -> bytes:
    """Create or migrate the tables, and return the secret of the store.

    An advisory lock serialises instances that start at the same time; a migration and its version are one transaction.

    Raises
    ------
    StoreError
        If the store was written by a newer version, or only reading is allowed and there is nothing to read.
    """
    version = schema_version(db)
    if version is None or version < SCHEMA_VERSION:
        if reading:
            raise StoreError(f"{name} has no store of this version: `mcfair serve` creates or migrates it")
        with db.transaction():
            db.execute("SELECT pg_advisory_xact_lock(%s)", (ADMINISTRATION,))
            version = schema_version(db)
            if version is None:
                if db.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'mcfair'").fetchone() is None:
                    db.execute("CREATE SCHEMA mcfair")  # it may exist where a user is not allowed to create one
                db.execute(SCHEMA, prepare=False)
                db.execute("INSERT INTO meta VALUES ('secret', %s)", (secrets.token_bytes(32),))
                db.execute("INSERT INTO generation VALUES (%s)", (secrets.randbits(48),))
                version = SCHEMA_VERSION
            for step in range(version, SCHEMA_VERSION):
                db.execute(MIGRATIONS[step], prepare=False)
                db.execute("UPDATE generation SET number = number + 1")
            db.execute(
                "INSERT INTO meta VALUES ('schema', %s) ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value",
                (b"%d" % SCHEMA_VERSION,),
            )
    elif version > SCHEMA_VERSION:
        raise StoreError(
            f"{name} was written by a newer mcfair (schema {version}; this one supports up to {SCHEMA_VERSION}): "
            "update mcfair"
        )
    (secret,) = db.execute("SELECT value FROM meta WHERE name = 'secret'").fetchone()
    return bytes(secret)


def check_same(meta: dict[str, bytes], secret: bytes, name: str) -> None:
    """Check the metadata of a store that was opened before.

    Raises
    ------
    StoreUnavailableError
        If it is another store now, such as a new one or the target of a migration, or has another schema.
    """
    if meta.get("secret") != secret or "migration" in meta:
        raise StoreUnavailableError(f"{name} was replaced by another store: restart this instance")
    if (version := int(meta["schema"])) != SCHEMA_VERSION:
        raise StoreUnavailableError(
            f"{name} was migrated to schema {version} while this instance, which supports schema {SCHEMA_VERSION}, was "
            "running: update mcfair"
        )


def schema_version(db: Any) -> int | None:
    """Return the version of the schema; None if there are no tables.

    The catalogue is read as a table: functions such as `to_regclass` may not see what another instance has created
    while this one waited for the lock.
    """
    if db.execute("SELECT 1 FROM pg_tables WHERE schemaname = 'mcfair' AND tablename = 'meta'").fetchone() is None:
        return None
    # With the name of its schema, because a schema that this user may not use is left out of the search path.
    row = db.execute("SELECT value FROM mcfair.meta WHERE name = 'schema'").fetchone()
    return None if row is None else int(row[0])

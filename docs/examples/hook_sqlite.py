"""A policy hook: the allow-list is a table in SQLite, and changes without a reload.

    create table allowed (user text, host text, port integer,
                          primary key (user, host, port)) without rowid;
    insert into allowed values ('alice', 'api.example.com', 443);
    insert into allowed values ('*', '.example.org', 443);

The user * stands for every user; .example.org is that host and all below it. Run with

    ALLOW_LIST=allow.db PYTHONPATH=docs/examples \\
        cutthrough serve --policy-hook hook_sqlite:decide

The proxy caches an answer for a minute, so a change takes effect within that time. If
the database cannot be read, the hook raises, and every request is refused.
"""

import asyncio
import os
import sqlite3
from urllib.parse import quote

from cutthrough import Decision, Request

TTL = 60.0
QUERY = ("select 1 from allowed where user in (?, '*') and port = ? and host in ({}) "
         "limit 1")


async def decide(request: Request) -> Decision:
    # In a thread, because a slow disk must not stop the event loop.
    if await asyncio.to_thread(is_allowed, request.user, request.host, request.port):
        return Decision(True, "in the table", ttl=TTL)
    return Decision(False, "not in the table", ttl=TTL)


def is_allowed(user: str, host: str, port: int) -> bool:
    """Whether a row of the table matches. Raises sqlite3.Error."""
    hosts = [host, *suffixes(host)]
    query = QUERY.format(", ".join("?" * len(hosts)))
    # mode=ro: a wrong path is an error, not a new and empty database. One connection
    # for each question is enough, because the proxy caches the answer for its ttl.
    path = quote(os.environ["ALLOW_LIST"])
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return database.execute(query, (user, port, *hosts)).fetchone() is not None
    finally:
        database.close()


def suffixes(host: str) -> list[str]:
    """For a.b.c: .a.b.c, .b.c and .c. For an address: nothing."""
    if ":" in host or host.rpartition(".")[2].isdigit():
        return []
    labels = host.split(".")
    return ["." + ".".join(labels[i:]) for i in range(len(labels))]

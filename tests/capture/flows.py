"""Rows of the store as a worker's records would make them, and flows of them."""

import contextlib
import sqlite3

from cutthrough.config.database import is_url
from cutthrough.exchange.columns import COLUMNS
from cutthrough.exchange.flow import Flow

HEAD = "GET /a?b=c%20d HTTP/1.1\r\nHost: a.test\r\nAccept: */*\r\n\r\n"
REPLY = ("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n"
         "Location: /next\r\n\r\n")


def row(number=1, **fields):
    """A GET with a response of five bytes."""
    usual = dict.fromkeys(COLUMNS) | {
        "request": f"0-{number}", "begun_us": 1_700_000_000_000_000 + number,
        "ended_us": 1_700_000_000_020_000 + number, "kind": "request", "method": "GET",
        "host": "a.test", "port": 80, "url": "http://a.test/a?b=c%20d", "status": 200,
        "reason": "ok", "rule": "here", "reported": 0, "user": "ann",
        "client": "127.0.0.1", "client_port": 5000, "peer": "192.0.2.1",
        "peer_port": 80, "reused": 0, "retried": 0, "bytes_up": 60, "bytes_down": 100,
        "head_us": 100, "auth_us": 10, "dns_us": 2000, "connect_us": 3000,
        "send_us": 50, "wait_us": 10_000, "receive_us": 500, "total_us": 15_700,
        "ech": 0, "request_head_bytes": len(HEAD), "response_head_bytes": len(REPLY),
        "request_body_bytes": 0, "response_body_bytes": 5, "request_content_bytes": 0,
        "response_content_bytes": 5, "bytes": 500, "request_head": HEAD,
        "response_head": REPLY, "request_body": "", "response_body": "hello"}
    assert fields.keys() <= usual.keys()
    return tuple((usual | fields).values())


def flow(number=1, **fields):
    return Flow(dict(zip(("id", *COLUMNS), (number, *row(number, **fields)),
                         strict=True)))


def drop_columns(path, names):
    """Makes the table one of a program that knew no such columns."""
    if is_url(path):
        import psycopg

        connection = psycopg.connect(path)
    else:
        connection = sqlite3.connect(path)
    with contextlib.closing(connection) as base:
        table = "cutthrough.flows" if is_url(path) else "flows"
        if not is_url(path):
            base.execute("DROP VIEW unpacked")
        for name in names:
            base.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
        base.commit()

"""Generates docs/accesslog.schema.json, the JSON Schema of the access log and /events.

Its enumerations come from the program's own tables. `python -m
cutthrough.tools.log_schema` prints it. A test compares the committed file with it, and
every log line that a test reads is validated by it.
"""

import json
from typing import Any

from cutthrough.outcome import TABLE as OUTCOMES
from cutthrough.wire.openings import PROTOCOLS

MS = {"type": "number", "minimum": 0}
COUNT = {"type": "integer", "minimum": 0}
JA4 = {"type": "string", "pattern": "^t..[di][0-9]{4}.._[0-9a-f]{12}_[0-9a-f]{12}$"}
JA3 = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
# In the order in which they follow each other
PHASES = {
    "head_ms": "from the first byte of the request to the end of its head",
    "auth_ms": "until the credentials were known to be right or wrong; null: there "
               "were none, or the head was refused before",
    "dns_ms": "the look-up of the name, also from the cache; null: the host was an "
              "address, or a pooled connection was used",
    "connect_ms": "until the connection was made; null: none was dialled",
    "first_byte_ms": "from the connection to the first byte of the response, the "
                     "request's body included; null: a tunnel, or no connection",
}
REQUIRED: dict[str, dict[str, Any]] = {
    "time": {"type": "string", "description": "of the end, in UTC",
             "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"},
    "id": {"type": "string", "pattern": r"^\d+-\d+$",
           "description": "of the request; never reused"},
    "client": {"type": "string", "description": "its address; unix:UID: the user "
               "of a unix socket; -: none"},
    "user": {"type": ["string", "null"], "maxLength": 256,
             "description": "the authenticated user"},
    "kind": {"enum": ["request", "tunnel"],
             "description": "tunnel: bytes were relayed unread; a refused CONNECT is a "
                            "request"},
    "method": {"type": "string", "pattern": "^[!-~]{1,32}$",
               "description": "-: it could not be read"},
    "host": {"type": ["string", "null"],
             "description": "canonical; null: it could not be read"},
    "port": {"type": "integer", "minimum": 0, "maximum": 65535,
             "description": "0: it could not be read"},
    "url": {"type": "string", "description": "host:port of a CONNECT"},
    "status": {"type": "integer", "minimum": 0, "maximum": 999,
               "description": "of the client's response; 0: none was begun"},
    "reason": {"enum": [row.label for row in OUTCOMES],
               "description": "docs/endings.md describes each"},
    "peer": {"type": ["string", "null"],
             "description": "the origin's address, or the last address dialled"},
    "bytes_up": COUNT | {"description": "from the client to the origin"},
    "bytes_down": COUNT | {"description": "to the client"},
    **{name: {"description": text, "type": ["number", "null"], "exclusiveMinimum": 0}
       for name, text in PHASES.items()},
    "total_ms": MS | {"description": "from the first byte of the request to the end, "
                                     "including the life of a tunnel"},
    "path": {"enum": ["copy", "splice"]},
    "worker": COUNT,
}
OPTIONAL: dict[str, dict[str, Any]] = {
    "tried_user": {"type": "string", "maxLength": 256,
                   "description": "the name in credentials that are wrong, or were not "
                                  "verified; user is null then"},
    "proxied_by": {"type": "string", "description": "the address of the load balancer "
                   "that named the client, by a PROXY header"},
    "proxy_tlvs": {"type": "object", "additionalProperties": {"type": "string"},
                   "description": "values of that header, by name: "
                                  "docs/load-balancers.md"},
    "source": {"type": "string", "maxLength": 64, "description": "the name of the "
               "source that the connection to the origin comes from"},
    "source_address": {"type": "string", "description": "its address; absent: no "
                       "connection was made"},
    "origin": {"type": "string", "description": "the named origin and the server that "
               "the request went to: NAME/HOST:PORT; absent: it was for none"},
    "parent": {"type": "string", "description": "the parent that the request went "
               "through; absent: directly"},
    "parent_status": COUNT | {"description": "the status or SOCKS code with which the "
                              "parent refused; absent: it did not"},
    "client_http": {"const": "2", "description": "the client spoke HTTP/2; absent: "
                    "HTTP/1, or none"},
    "origin_http": {"const": "2", "description": "the origin spoke HTTP/2; the same"},
    "peer_tls_version": {"enum": ["1.2", "1.3"], "description": "of the TLS connection "
                         "to the origin of an interception, or to a parent"},
    "peer_cipher": {"type": "string", "description": "its suite, as IANA names it"},
    "changed": {"enum": ["request", "response", "both"], "description": "a filter or "
                "an operator has changed this, or its body"},
    "breakpoint": {"const": True, "description": "a breakpoint held it for an "
                   "operator"},
    "held_ms": MS | {"description": "filters and breakpoints had its messages, after "
                     "the request's head; that is hook_ms"},
    "client_tls_ms": MS | {"description": "the client's TLS handshake; in the first "
                           "request behind it, or the CONNECT that was intercepted"},
    "origin_tls_ms": MS | {"description": "the TLS handshakes with parents and origin, "
                           "a phase after connect_ms; absent: none was made"},
    "client_rtt_ms": MS | {"description": "of a tunnel, smoothed, at the end"},
    "client_retransmits": COUNT | {"description": "retransmitted segments of a "
                                                  "tunnel"},
    "origin_rtt_ms": MS, "origin_retransmits": COUNT,
    "rule": {"type": ["string", "null"],
             "description": "of the policy; default: no rule matched"},
    "report": {"const": True, "description": "a report rule matched: the request was "
                                             "allowed, but would be refused"},
    "upgrade": {"const": True,
                "description": "the request offered to upgrade: UPGRADE in rules"},
    "client_tls_version": {"enum": ["1.2", "1.3"],
                           "description": "of the client's TLS connection to this "
                                          "proxy; absent: none, or no whole handshake"},
    "client_cipher": {"type": "string", "description": "its suite, as IANA names it"},
    "client_sni": {"type": "string", "maxLength": 2000,
                   "description": "the server name that the client sent to this proxy"},
    "client_alpn": {"type": "string", "description": "the protocol of ALPN in use"},
    "client_resumed": {"const": True,
                       "description": "the handshake resumed an earlier session"},
    "client_certificate": {"type": "string", "description": "the name in the client's "
                           "certificate, which was verified"},
    "client_ja4": JA4 | {"description": "of the connection that the request came by, "
                                        "if somebody asks for it"},
    "client_ja3": JA3,
    "http2_fingerprint": {"type": "string", "maxLength": 252,
                          "description": "Akamai's, of the same connection"},
    "tcp_fingerprint": {"type": "string", "maxLength": 256,
                        "description": "p0f's, of the same connection's SYN, if the "
                                       "listener has `tcp_fingerprint`"},
    "tunnel_protocol": {"enum": [word for word in PROTOCOLS if word],
                        "description": "of a tunnel, by its first bytes; silent: none "
                                       "came in time. Absent: no look was asked for"},
    "sni": {"type": "string", "maxLength": 2000,
            "description": "the ClientHello's server name, canonical; as it came if it "
                           "is no host name"},
    "alpn": {"type": "string", "description": "protocols that it offers, with commas "
                                              "between"},
    "tls_version": {"enum": ["ssl3", "1.0", "1.1", "1.2", "1.3"],
                    "description": "the highest that it offers"},
    "ech": {"const": True, "description": "it has an encrypted_client_hello extension; "
                                          "most browsers always send one"},
    "ja4": JA4,
    "ja3": JA3,
    "intercepted": {"const": True, "description": "a request inside an intercepted "
                    "connection, or its CONNECT"},
    "pinned": {"const": True, "description": "a tunnel that passed unopened, because "
               "a client of its network had rejected our certificate"},
    "hook": {"type": "string", "description": "the reason that the policy's hook or a "
             "filter gave, or libssl's: why the origin's certificate was not accepted, "
             "or why the handshake with it failed"},
    "hook_ms": MS | {"description": "the wait for the hook, a phase after auth_ms; "
                                    "absent: its decision was cached"},
}


def schema() -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "cutthrough: a line of the access log in JSON, an event of /events",
        "description": "Generated by `make docs` from cutthrough/tools/log_schema.py. "
                       "Times are durations in milliseconds. A phase begins at the "
                       "end of the phase before it; a phase that did not begin is "
                       "null. The phase in which the request ended lasts until then.",
        "type": "object",
        "properties": REQUIRED | OPTIONAL,
        "required": list(REQUIRED),
        "additionalProperties": False,
        "if": {"required": ["tried_user"]},
        "then": {"properties": {"user": {"type": "null"}}},
    }


def render() -> str:
    """Returns the file."""
    return json.dumps(schema(), indent=1) + "\n"


if __name__ == "__main__":
    print(render(), end="")

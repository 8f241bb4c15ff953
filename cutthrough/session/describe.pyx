# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Open connections, described one at a time, and an operator's way to end one.

For people: no request passes through here. A connection may end after it was listed; then
there is nothing to describe, and nothing to cut.
"""

from libc.string cimport memchr
from cutthrough.net.address cimport ADDRESS_TEXT, Address, print_address
from cutthrough.net.buffers cimport bytes_of
from cutthrough.net.sysio cimport clock_us
from cutthrough.outcome cimport CUT
from cutthrough.policy.parents cimport Standing
from cutthrough.policy.parents import DIRECT
from cutthrough.session.model.client cimport (
    Client, carries_tunnel, is_between_requests, own_opening, parent_of, peer_of, user_of,
    worker_of_id)
from cutthrough.session.model.context cimport Context
from cutthrough.session.model.counters import METHODS
from cutthrough.session.model.flight_recorder cimport told
from cutthrough.session.model.inside cimport prints_of
from cutthrough.session.model.prints cimport Prints
from cutthrough.session.model.state cimport CLOSED, LINGER
from cutthrough.session.stages.proxied cimport sender_of
from cutthrough.session.model.states import KINDS, WORDS
from cutthrough.wire.clienthello cimport version_text
from cutthrough.wire.openings cimport TLS, Opening, alpn_of, protocol_text, server_name

_tunnel, _request, _idle = KINDS


def clients(Context context):
    """Every client of the worker, newest first; quick, for many of them."""
    cdef Client client = <Client>context.newest
    connections = []
    while client is not None:
        connections.append(client)
        client = client.older
    return connections


def describe(Client client, int worker):
    """A dict of one connection, with the JSON log's names; None: it has closed.

    `kind` is tunnel, request, or idle: no request in hand. An idle connection has the id of
    its last request, or "". `age` is the request's in seconds, 0 without a request."""
    cdef bint busy = client.stamps.start_us != 0
    cdef bint known = client.key is not None and client.request.port != 0
    cdef size_t key_len
    if client.state == CLOSED:
        return None
    key_len = len(client.key) - 2 if known else 0
    user = user_of(client)
    name = parent_of(client)
    through = {} if name is None else {
        "origin" if client.request.for_origin else "parent": name.decode()}
    proxied = {} if sender_of(client) == NULL else {"proxied_by": text_of(sender_of(client))}
    return {
        "id": (f"{worker_of_id(client, worker)}-{client.request_id}"
               if client.request_id else ""),
        "worker": worker,
        "client": text_of(&client.address),
        **proxied,
        "user": user.decode("utf-8", "replace") if user is not None else None,
        "method": method_of(client) if busy else None,
        "host": client.key[:key_len].decode("ascii", "replace") if known else None,
        "port": client.request.port if known else None,
        "state": WORDS[client.state],
        "kind": _tunnel if carries_tunnel(client) else _request if busy else _idle,
        "age": (clock_us() - client.stamps.start_us) / 1e6 if busy else 0.0,
        "bytes_up": client.relay.up.moved if busy else 0,
        "bytes_down": client.relay.down.moved if busy else 0,
        "peer": text_of(peer_of(client)) if peer_of(client) != NULL else None,
        **({} if own_opening(client) == NULL else describe_opening(own_opening(client))),
        **through,
        **({} if prints_of(client) is None else describe_prints(prints_of(client))),
    }


cdef dict describe_opening(const Opening *opening):
    """The log's fields of a tunnel's first bytes; those that are absent are left out."""
    cdef dict about = {"tunnel_protocol": protocol_text(opening).decode()}
    if opening.protocol == TLS:
        about |= {
            "sni": server_name(opening)[:opening.name_len].decode("ascii", "replace"),
            "alpn": alpn_of(opening)[:opening.alpn_len].decode("ascii", "replace"),
            "tls_version": version_text(opening.version).decode(),
            "ech": bool(opening.offers_ech), "ja4": (<bytes>opening.ja4).decode(),
            "ja3": (<bytes>opening.ja3).decode()}
    return {name: value for name, value in about.items() if value}


cdef dict describe_prints(Prints prints):
    about = {"client_ja4": prints.ja4, "client_ja3": prints.ja3,
             "http2_fingerprint": prints.http2, "tcp_fingerprint": prints.tcp}
    return {name: value.decode() for name, value in about.items() if value is not None}


def trace(Client client, int worker):
    """The same with its latest `events`, see flight_recorder, and whether they begin
    `at_accept`. None: it has closed."""
    about = describe(client, worker)
    if about is not None:
        about["events"], about["at_accept"] = told(client.context.recorder, <void *>client)
        for event in about["events"]:
            if event["event"] == "parent":
                number = event.pop("number")
                event["name"] = (<Standing>client.context.parents.standings[number]
                                 ).name.decode() if number else DIRECT
    return about


def cut(Client client):
    """Ends it now: a tunnel by a reset of both sides, a request by a reply if one can still
    be made. False: there was nothing to end, or it is on its way to another worker (frozen:
    no descriptor), and only that worker can end it."""
    if client.state == CLOSED or client.state == LINGER or not client.is_open:
        return False
    client.poller.take_time()
    try:
        if is_between_requests(client):
            client.close()
        else:
            client.request.persistent = False   # a reply is the connection's last
            client.refuse(CUT)
    except BaseException:
        client.poller.contain(client)
    return True


cdef object text_of(const Address *address):
    cdef char text[ADDRESS_TEXT]
    if address.family == 0:
        return None
    return text[:print_address(address, text)].decode()


cdef object method_of(Client client):
    """The method as the client wrote it, if the rewritten head is still there."""
    cdef const char *data
    cdef const char *end
    if client.head == NULL or client.head.end == 0:
        return METHODS[client.request.method] if client.request.method else None
    data = bytes_of(client.head)
    end = <const char *>memchr(data, b" ", client.head.end)
    return data[:end - data].decode("ascii", "replace") if end != NULL else None

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The END of an exchange, from its session: everything that the log knows, but texts
of rule, user and head.

It reads, and changes nothing: an END can be made of an exchange that goes on.
"""

from libc.stdint cimport UINT64_MAX, int64_t, uint16_t, uint32_t
from libc.string cimport strlen
from cutthrough.net.multiplex cimport is_stream
from cutthrough.net.transport cimport KERNEL, Agreed, Socket, transport_of
from cutthrough.session.model.chunked_body cimport scan_of
from cutthrough.session.model.client cimport Client, carries_tunnel
from cutthrough.session.model.inside cimport is_intercepted
from cutthrough.session.model.prints cimport Prints
from cutthrough.session.model.request cimport Request
from cutthrough.session.model.stamps cimport Stamps, end_last_phase
from cutthrough.session.transfer.filtering cimport Filtering, filtering_of
from cutthrough.tape.end_record cimport (
    DOWN_CHUNKED, DOWN_CUT, HAS_UPGRADE, IS_INTERCEPTED, IS_PINNED, IS_REPORTED, IS_REUSED,
    IS_TUNNEL, IS_WEBSOCKET, OFFERS_ECH, T_ALPN, T_CLIENT_JA3, T_CLIENT_JA4, T_CLIENT_JA4_O,
    T_CLIENT_JA4_R, T_CLIENT_JA4_RO, T_HTTP2, T_JA4, T_SNI, UP_CHUNKED, UP_CUT, WAS_RETRIED,
    EndRecord, point)
from cutthrough.tape.record cimport FRAMES_UP
from cutthrough.wire.http1 cimport HTTP_11
from cutthrough.wire.names cimport M_CONNECT
from cutthrough.wire.openings cimport Opening, alpn_of, server_name


cdef void fill_in(EndRecord *end, Client c, int64_t now_us) noexcept:
    cdef const Request *r = &c.request
    cdef Stamps stamps = c.stamps
    end.end_us = unix_us()
    end_last_phase(&stamps, c.state, now_us)
    end.total_us = now_us - stamps.start_us
    end.first_byte_us = stamps.first_byte_us
    if stamps.first_byte_us:
        end.receive_us = max(<int64_t>0, end.total_us - stamps.mark_us)
    end.head_us = stamps.head_us
    end.auth_us = stamps.auth_us
    end.hook_us = stamps.hook_us
    end.dns_us = stamps.dns_us
    end.connect_us = stamps.connect_us
    end.send_us = stamps.send_us
    end.origin_tls_us = stamps.origin_tls_us
    end.client_tls_us = stamps.client_tls_us
    if c.extras.filtering is not None:
        leave_out_holding(end, filtering_of(c))
    end.bytes_up = c.relay.up.moved
    end.bytes_down = c.relay.down.moved
    end.status = r.status
    end.port = r.port
    end.client_port = c.address.port
    end.method = r.method
    end.host_kind = r.host_kind
    if r.method <= M_CONNECT:           # the others came by another protocol
        end.client_http = 20 if is_stream(&c.sock) else 10 + r.minor
    if c.origin is not None and is_stream(&c.origin.sock):
        end.origin_http = 20
    if carries_tunnel(c):
        end.flags |= IS_TUNNEL
    if c.origin is not None and c.origin.reused:
        end.flags |= IS_REUSED
    if r.reported:
        end.flags |= IS_REPORTED
    if r.has_upgrade:
        end.flags |= HAS_UPGRADE
    if r.tries:
        end.flags |= WAS_RETRIED
    if is_intercepted(c):
        end.flags |= IS_INTERCEPTED
    elif r.pinned:
        end.flags |= IS_PINNED


cdef void leave_out_holding(EndRecord *end, Filtering f) noexcept:
    """The time in which filters have a message is no sending, and no receiving."""
    cdef uint32_t up_us = <uint32_t>min(<int64_t>f.up_held_us, end.first_byte_us)
    end.first_byte_us -= up_us
    end.send_us -= min(up_us, end.send_us)
    end.receive_us -= min(<int64_t>f.down_held_us, end.receive_us)
    end.held_us = f.up_held_us + f.down_held_us


cdef void fill_bodies(EndRecord *end, Client c, const Exchange *exchange) noexcept:
    end.body_up = end.body_down = UINT64_MAX
    if exchange == NULL:
        return
    if c.extras.filtering is None or not filtering_of(c).hides_body:
        end.body_up = exchange.up.seen
    if c.relay.down.tap != NULL:
        end.body_down = exchange.down.seen
    if scan_of(&c.relay.up) != NULL or exchange.up.tap.is_chunked:
        end.flags |= UP_CHUNKED
    if exchange.down.tap.is_chunked or (
            scan_of(&c.relay.down) != NULL and c.request.minor == HTTP_11):
        end.flags |= DOWN_CHUNKED
    if exchange.up.kind == FRAMES_UP:
        end.flags |= IS_WEBSOCKET
    if exchange.up.was_cut:
        end.flags |= UP_CUT
    if exchange.down.was_cut:
        end.flags |= DOWN_CUT


cdef void fill_opening(EndRecord *end, const char **texts, const Opening *opening) noexcept:
    end.protocol = opening.protocol
    end.tls_version = opening.version
    if opening.offers_ech:
        end.flags |= OFFERS_ECH
    texts[T_SNI] = server_name(opening)
    end.lengths[T_SNI] = opening.name_len
    texts[T_ALPN] = alpn_of(opening)
    end.lengths[T_ALPN] = opening.alpn_len
    texts[T_JA4] = &opening.ja4[0]
    end.lengths[T_JA4] = <uint32_t>strlen(opening.ja4)


cdef void fill_prints(EndRecord *end, const char **texts, Prints prints) noexcept:
    """Points to the texts of `prints`, which live as long as `prints`."""
    point(end, texts, T_CLIENT_JA4, prints.ja4)
    point(end, texts, T_CLIENT_JA3, prints.ja3)
    point(end, texts, T_CLIENT_JA4_R, prints.ja4_r)
    point(end, texts, T_CLIENT_JA4_O, prints.ja4_o)
    point(end, texts, T_CLIENT_JA4_RO, prints.ja4_ro)
    point(end, texts, T_HTTP2, prints.http2)


cdef const Agreed *agreed_of(const Socket *s, Agreed *out) noexcept:
    if s.kind == KERNEL or transport_of(s).describe == NULL:
        return NULL
    return out if transport_of(s).describe(s, out) else NULL


cdef void fill_tls(const Agreed *agreed, uint16_t *version, const char **cipher,
                   uint32_t *cipher_len) noexcept:
    if agreed == NULL:
        return
    version[0] = <uint16_t>agreed.version
    cipher[0] = agreed.cipher
    if agreed.cipher != NULL:
        cipher_len[0] = <uint32_t>strlen(agreed.cipher)

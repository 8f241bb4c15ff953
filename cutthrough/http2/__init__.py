"""HTTP/2 below sessions, which read and write HTTP/1.1 alone.

    carrier ─> demux ─> stream ──────────────────────────────> a session
               nghttp2   fields ─> a head, by wire/http2_request
                         (of a client) or wire/http2_response
    carrier <─ frames <─ outgoing, outgoing_request (our head),
               nghttp2   outgoing_trailers <───────────────── a session

`transport` has the rows by which `net` and `session` use this: a client's carrier is
run by session/stages/streams, one to an origin by session/model/origin_streams.
"""

/* One connection: connect, CONNECT, TLS, a request, its answer checked.
 *
 *     CLOSED -> CONNECTING -> [TUNNELLING -> [SHAKING ->]] READY -> HEAD -> BODY -> READY
 *                                                                                \-> CLOSING -> CLOSED
 * A request body is sent while the answer is read, so that both directions can be full at once. Response bodies are
 * counted and discarded in the kernel (MSG_TRUNC), except through TLS. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>
#include "conn.h"
#ifdef WITH_TLS
#include <openssl/ssl.h>
static SSL_CTX *tls;
#endif

enum {
    HEAD_MAX = 16 << 10,
    SCRATCH = 256 << 10,
    ERRORS_MAX = 100,  /* then the run is void anyway */
};

static const char greeting[] = {5, 1, 0};  /* SOCKS5, one method: no credentials (RFC 1928, section 3) */
static char connect_head[1024], credentials[600], scratch[SCRATCH];
static const char zeros[SCRATCH];
static size_t connect_bytes;
static struct sockaddr_in proxy;

uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void conn_close(struct conn *c) {
    if (c->fd < 0) return;
#ifdef WITH_TLS
    if (c->ssl) SSL_free(c->ssl), c->ssl = NULL;
#endif
    close(c->fd);
    c->fd = -1;
    c->phase = CLOSED;
    c->stashed = 0;
    c->up_left = 0;
    active--;
}

void fail(struct conn *c, const char *format, ...) {
    if (!errors++) {
        va_list values;
        va_start(values, format);
        vsnprintf(first_error, sizeof first_error, format, values);
        va_end(values);
    }
    if (errors >= ERRORS_MAX) stopping = true;
    conn_close(c);
}

/* By edges: the kernel need not look again at each socket that was read (with Reno
 * instead of BBR: 0.2 to 0.8 µs of 6.5 to 8 a request). OpenSSL reads record by record and would leave some
 * behind, so TLS goes by levels. */
static void watch(struct conn *c, int op, bool out) {
    struct epoll_event e = {EPOLLIN | EPOLLRDHUP | (out ? EPOLLOUT : 0) | (opt.tls ? 0 : EPOLLET), {.ptr = c}};
    c->watching_out = out;
    if (epoll_ctl(epfd, op, c->fd, &e)) fail(c, "epoll_ctl:%s", strerrorname_np(errno));
}

/* ---- bytes, plain or through TLS: > 0, 0 at the end, -1 with errno ---- */

static bool more;  /* may the last read have left something? */

static ssize_t take(struct conn *c, char *to, size_t most) {
#ifdef WITH_TLS
    if (c->ssl) {
        int n = SSL_read(c->ssl, to ? to : scratch, (int)(to || most < SCRATCH ? most : SCRATCH));
        if (n > 0) return n;
        int why = SSL_get_error(c->ssl, n);
        if (why == SSL_ERROR_ZERO_RETURN) return 0;
        errno = why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? EAGAIN : EPROTO;
        return -1;
    }
#endif
    ssize_t n = recv(c->fd, to, most, to ? 0 : MSG_TRUNC);
    more = n > 0 && ((size_t)n == most || c->ended) && !opt.tls;
    return n;
}

static ssize_t give(struct conn *c, const char *from, size_t bytes) {
#ifdef WITH_TLS
    if (c->ssl) {
        int n = SSL_write(c->ssl, from, (int)bytes);
        return n > 0 ? n : (errno = EPROTO, -1);
    }
#endif
    return send(c->fd, from, bytes, MSG_NOSIGNAL);
}

/* ---- sending ---- */

/* A head goes whole: it always fits an empty socket buffer. */
static bool give_head(struct conn *c, const char *head, size_t bytes) {
    ssize_t n = give(c, head, bytes);
    if (n == (ssize_t)bytes) return true;
    if (n < 0 && errno == EAGAIN && c->phase == CONNECTING) return false;
    fail(c, "send:%s", n < 0 ? strerrorname_np(errno) : "short");
    return false;
}

static void give_body(struct conn *c) {
    while (c->up_left) {
        ssize_t n = give(c, zeros, c->up_left < SCRATCH ? c->up_left : SCRATCH);
        if (n < 0 && errno == EAGAIN) break;
        if (n < 0) return fail(c, "send_body:%s", strerrorname_np(errno));
        c->up_left -= (uint64_t)n;
        up_bytes += (uint64_t)n;
    }
    if (c->watching_out != !!c->up_left) watch(c, EPOLL_CTL_MOD, c->up_left);
}

void conn_send(struct conn *c, struct request *r, uint64_t began_ns) {
    c->request = r;
    c->began_ns = began_ns;
    c->up_left = r->up;
    if (!give_head(c, r->head, r->bytes)) return;
    c->phase = HEAD;
    if (c->up_left) give_body(c);
}

static void be_ready(struct conn *c) {
    c->phase = READY;
    on.on_ready(c);
}

/* ---- opening ---- */

static void shake(struct conn *c) {
#ifdef WITH_TLS
    int n = SSL_do_handshake(c->ssl);
    if (n == 1) return be_ready(c);
    int why = SSL_get_error(c->ssl, n);
    if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) fail(c, "tls_handshake:%d", why);
#else
    fail(c, "no_tls_in_this_build");
#endif
}

static void on_path(struct conn *c) {  /* the tunnel stands, or none is wanted */
    if (!opt.tls) return be_ready(c);
    c->phase = SHAKING;
#ifdef WITH_TLS
    c->ssl = SSL_new(tls);
    SSL_set_fd(c->ssl, c->fd);
    SSL_set_connect_state(c->ssl);
#endif
    shake(c);
}

static bool on_connected(struct conn *c) {
    if (opt.tunnel && !opt.blind) {
        c->greeted = false;
        if (!(opt.socks ? give_head(c, greeting, sizeof greeting) : give_head(c, connect_head, connect_bytes)))
            return false;
        c->phase = TUNNELLING;
        return true;
    }
    if (send(c->fd, "", 0, MSG_NOSIGNAL) < 0) {  /* connected yet? */
        if (errno != EAGAIN) fail(c, "connect:%s", strerrorname_np(errno));
        return false;
    }
    on_path(c);
    return true;
}

void conn_open(struct conn *c) {
    c->phase = CONNECTING;
    c->began_ns = now_ns();
    c->stashed = 0;
    c->ended = false;
    active++;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (c->fd < 0) {
        active--;
        errors++;
        stopping = true;
        snprintf(first_error, sizeof first_error, "socket:%s", strerrorname_np(errno));
        return;
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    setsockopt(c->fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);  /* nothing is lost here, and BBR paces each send */
    /* What one request is asked of: the head carries the handshake's last acknowledgement (HAProxy's
     * tcp-smart-connect), 2 µs of 48 less. */
    if (!opt.keep && !opt.hold) setsockopt(c->fd, IPPROTO_TCP, TCP_QUICKACK, &(int){0}, sizeof(int));
    if (connect(c->fd, (struct sockaddr *)&proxy, sizeof proxy) && errno != EINPROGRESS)
        return fail(c, "connect:%s", strerrorname_np(errno));
    watch(c, EPOLL_CTL_ADD, false);
    /* On loopback the handshake is over when connect returns, so the first head can go at once. */
    if (c->fd >= 0 && !on_connected(c) && c->fd >= 0) watch(c, EPOLL_CTL_MOD, true);
}

/* ---- answers ---- */

static int parse_status(const char *head, size_t bytes) {
    bool http1 = bytes >= 13 && !memcmp(head, "HTTP/1.", 7) && head[8] == ' ';
    return http1 ? atoi(head + 9) : -1;
}

static int64_t parse_length(const char *head, const char *end) {
    static const char name[] = "\r\ncontent-length:";
    for (const char *line = head; (line = memchr(line, '\r', (size_t)(end - line))); line++)
        if (!strncasecmp(line, name, sizeof name - 1)) return atoll(line + sizeof name - 1);
    return -1;
}

static void on_body_end(struct conn *c) {
    if (c->up_left) return fail(c, "answered_before_body:%llu_left", (unsigned long long)c->up_left);
    histogram_add(&latency, now_ns() - c->began_ns);
    done++;
    more = c->ended;  /* else silence is due; a surplus would stand where the next head is expected */
    c->phase = c->request->close ? CLOSING : READY;
    on.on_response(c);
}

/* A whole head lies at scratch; `surplus` bytes follow it. */
static void on_head(struct conn *c, size_t bytes, size_t surplus) {
    int status = parse_status(scratch, bytes);
    if (status != 200) return fail(c, "%s_status:%d", c->phase == TUNNELLING ? "connect" : "response", status);
    if (c->phase == TUNNELLING) {
        if (surplus) return fail(c, "surplus_after_connect:%zu", surplus);
        return on_path(c);
    }
    struct request *r = c->request;
    int64_t announced = parse_length(scratch, scratch + bytes);
    if (r->length < 0) r->length = announced;
    if (announced < 0 || announced != r->length) return fail(c, "content_length:%lld", (long long)announced);
    if (surplus > (uint64_t)announced) return fail(c, "surplus:%zu", surplus - (size_t)announced);
    body_bytes += surplus;
    c->body_left = (uint64_t)announced - surplus;
    c->phase = BODY;
    if (!c->body_left) on_body_end(c);
}

static void read_head(struct conn *c) {
    if (c->stashed) memcpy(scratch, c->stash, c->stashed);
    ssize_t n = take(c, scratch + c->stashed, SCRATCH - 1 - HEAD_MAX);
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) return fail(c, "recv:%s", strerrorname_np(errno));
    if (n == 0) return fail(c, "eof_before_%s", c->phase == TUNNELLING ? "connect_reply" : "response");
    size_t have = c->stashed + (size_t)n;
    scratch[have] = 0;  /* ends the scans of a hostile head */
    const char *end = memmem(scratch, have, "\r\n\r\n", 4);
    if (end) {
        c->stashed = 0;
        return on_head(c, (size_t)(end + 4 - scratch), have - (size_t)(end + 4 - scratch));
    }
    if (have > HEAD_MAX) return fail(c, "head_too_long");
    if (!c->stash && !(c->stash = malloc(HEAD_MAX))) die("no memory");
    memcpy(c->stash, scratch, have);
    c->stashed = (uint32_t)have;
}

/* A reply of SOCKS5; a server sends it at once, so it arrives whole. */
static void read_reply(struct conn *c) {
    ssize_t bytes = c->greeted ? 10 : 2, n = take(c, scratch, SCRATCH);
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) return fail(c, "recv:%s", strerrorname_np(errno));
    if (n != bytes || scratch[0] != 5 || scratch[1] != 0) return fail(c, "socks_reply:%zd_bytes_%d", n, scratch[1]);
    if (c->greeted) return on_path(c);
    c->greeted = true;
    give_head(c, connect_head, connect_bytes);
}

static void read_body(struct conn *c) {
    ssize_t n = take(c, NULL, c->body_left);
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) return fail(c, "recv:%s", strerrorname_np(errno));
    if (n == 0) return fail(c, "short_body:%llu_missing", (unsigned long long)c->body_left);
    body_bytes += (uint64_t)n;
    c->body_left -= (uint64_t)n;
    if (!c->body_left) on_body_end(c);
}

/* CLOSING: the server's EOF is due. READY: silence is; TLS may bring a session ticket. */
static void read_end(struct conn *c) {
    ssize_t n = take(c, scratch, SCRATCH);
    if (n < 0 && errno == EAGAIN) return;
    if (n == 0 && c->phase == CLOSING) {
        conn_close(c);
        return on.on_closed(c);
    }
    fail(c, c->phase == READY ? "%s_ended:%s" : "%s_after_response:%s", opt.tunnel ? "tunnel" : "connection",
         n > 0 ? "surplus" : n == 0 ? "eof" : strerrorname_np(errno));
}

static void on_readable(struct conn *c) {
    switch (c->phase) {
    case SHAKING: shake(c); break;
    case TUNNELLING: opt.socks ? read_reply(c) : read_head(c); break;
    case HEAD: read_head(c); break;
    case BODY: read_body(c); break;
    case READY:
    case CLOSING: read_end(c); break;
    case CLOSED:
    case CONNECTING: break;
    }
}

void conn_event(struct conn *c, uint32_t events) {
    if (c->fd < 0) return;  /* closed earlier in this batch */
    if (c->phase == CONNECTING) {
        if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP) && on_connected(c) && c->fd >= 0 && !c->up_left)
            watch(c, EPOLL_CTL_MOD, false);
        return;
    }
    if (events & EPOLLOUT && c->up_left) give_body(c);
    if (c->fd < 0 || !(events & ~(uint32_t)EPOLLOUT)) return;
    c->ended = events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);
    do {
        more = false;
        on_readable(c);
    } while (more && c->fd >= 0);
#ifdef WITH_TLS
    /* What OpenSSL has already decrypted wakes nobody. */
    while (c->fd >= 0 && c->ssl && (c->phase == HEAD || c->phase == BODY) && SSL_pending(c->ssl)) on_readable(c);
#endif
}

/* ---- heads ---- */

static void build_base64(const char *from, char *to) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t left = strlen(from); left; from += 3) {
        size_t used = left < 3 ? left : 3;
        uint32_t v = (uint32_t)(uint8_t)from[0] << 16;
        if (used > 1) v |= (uint32_t)(uint8_t)from[1] << 8;
        if (used > 2) v |= (uint8_t)from[2];
        for (size_t i = 0; i < 4; i++) *to++ = i <= used ? digits[v >> (18 - 6 * i) & 63] : '=';
        left -= used;
    }
    *to = 0;
}

struct request build_request(const char *path, uint64_t up, int64_t length, bool close) {
    char head[2048], body[64] = "";
    bool absolute = opt.absolute && !opt.blind;
    if (up) snprintf(body, sizeof body, "Content-Length: %llu\r\n", (unsigned long long)up);
    int n = snprintf(head, sizeof head, "%s %s%s%s HTTP/1.1\r\nHost: %s\r\n%s%s%s\r\n", opt.post ? "POST" : "GET",
                     absolute ? "http://" : "", absolute ? opt.target : "", path, opt.target,
                     absolute ? credentials : "", body, close ? "Connection: close\r\n" : "");
    if (n >= (int)sizeof head) die("a request is too long");
    return (struct request){strdup(head), (size_t)n, up, length, close};
}

/* RFC 1928, section 4: CONNECT to an IPv4 address. */
static size_t build_socks_request(char *to) {
    char host[sizeof "255.255.255.255"];
    const char *colon = strrchr(opt.target, ':');
    if (!colon || colon - opt.target >= (long)sizeof host) die("--target must be IPV4:PORT");
    snprintf(host, sizeof host, "%.*s", (int)(colon - opt.target), opt.target);
    memcpy(to, "\5\1\0\1", 4);
    if (inet_pton(AF_INET, host, to + 4) != 1) die("--target must be IPV4:PORT");
    memcpy(to + 8, &(uint16_t){htons((uint16_t)atoi(colon + 1))}, 2);
    return 10;
}

void conn_setup(void) {
    char token[512];
    if (opt.user && strlen(opt.user) > 300) die("--user is too long");
    if (opt.user && !opt.blind) {
        build_base64(opt.user, token);
        snprintf(credentials, sizeof credentials, "Proxy-Authorization: Basic %s\r\n", token);
    }
    connect_bytes = (size_t)snprintf(connect_head, sizeof connect_head, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n",
                                     opt.target, opt.target, credentials);
    if (connect_bytes >= sizeof connect_head) die("--target is too long");
    if (opt.socks) connect_bytes = build_socks_request(connect_head);
    proxy = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port)};
    if (inet_pton(AF_INET, opt.host, &proxy.sin_addr) != 1) die("--host must be an IPv4 address");
    if (!opt.tls) return;
#ifdef WITH_TLS
    if (!(tls = SSL_CTX_new(TLS_client_method()))) die("no TLS");
    SSL_CTX_set_verify(tls, SSL_VERIFY_NONE, NULL);  /* the origin's certificate is made for each run */
    SSL_CTX_set_mode(tls, SSL_MODE_RELEASE_BUFFERS);
#else
    die("built without OpenSSL's headers (libssl-dev)");
#endif
}

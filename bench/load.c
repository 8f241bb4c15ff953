/* load: the client for what wrk and siege cannot do: tunnels. Single-threaded, closed loop, level-triggered epoll.
 *
 *     load MODE --port N [--target HOST:PORT] [--user NAME:PASSWORD] [--path /P] [--length N] [--blind]
 *          [--conns N] [--seconds S | --requests N]
 *
 *     connect-setup   a connection, CONNECT, one request in the tunnel with Connection: close, EOF; and again
 *     ping            small requests in long tunnels
 *     bulk            large responses in long tunnels; bodies are counted and discarded in the kernel (MSG_TRUNC)
 *     plain-new       a connection, one absolute-form request with Connection: close, EOF; and again
 *     idle            a tunnel per connection, one request in each, then "READY"; holds them until stdin ends
 *
 * --blind leaves out CONNECT and absolute form: for a blind relay, or the origin itself.
 * A wrong status, a length other than --length (without it: than the first response's), a short read, a surplus byte,
 * a tunnel that ends: each is an error, and errors make the exit status 1. At the end of the time no request is begun
 * and those in flight are awaited: what is counted here is what the origin must have counted.
 * Connection: close must be obeyed: were the client the first to close, its ports would stay in TIME_WAIT, and the
 * search for a free one would be measured (seen: 14 100 connections a second at most, a port each, half of the range).
 * The one line printed is key=value; bytes are those of response bodies; latency runs from connect (connect-setup,
 * plain-new) or from the request (ping, bulk) to the last byte of the response. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include "histogram.h"

enum {
    BATCH = 256,
    HEAD_MAX = 16 << 10,
    SCRATCH = 256 << 10,
    OPENING = 128,          /* idle: tunnels being set up at once, so that no listen queue overflows */
    STALL_NS = 1000000000,  /* times STALLS without one response: what is in flight has failed */
    STALLS = 10,
    ERRORS_MAX = 100,       /* then the run is void anyway */
};

enum phase { CONNECTING, TUNNELLING, HEAD, BODY, CLOSING, RESTING };

struct conn {
    int fd;
    enum phase phase;
    uint32_t stashed;    /* bytes of an incomplete head */
    uint64_t body_left;
    uint64_t began_ns;
    char *stash;
};

static const struct mode {
    const char *name;
    bool tunnel, keep, absolute, hold;
} modes[] = {
    {"connect-setup", .tunnel = true},
    {"ping", .tunnel = true, .keep = true},
    {"bulk", .tunnel = true, .keep = true},
    {"plain-new", .absolute = true},
    {"idle", .tunnel = true, .keep = true, .hold = true},
};

static const struct mode *mode;
static bool blind, stopping;
static long port, conns = 1, requests_max = -1;
static int64_t length = -1;
static double seconds = 3;
static const char *target = "127.0.0.1:80", *user, *path = "/index.html";

static char connect_head[1024], request_head[2048], scratch[SCRATCH];
static size_t connect_bytes, request_bytes;
static struct sockaddr_in proxy;
static int epfd;
static long begun, done, errors, active, resting;
static uint64_t body_bytes;
static char first_error[128] = "none";
static struct histogram latency;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void die(const char *reason) {
    fprintf(stderr, "load: %s\n", reason);
    exit(2);
}

/* ---- one connection ---- */

static void close_conn(struct conn *c) {
    if (c->fd < 0) return;
    if (c->phase == RESTING) resting--;
    close(c->fd);
    c->fd = -1;
    c->stashed = 0;
    active--;
}

__attribute__((format(printf, 2, 3))) static void fail(struct conn *c, const char *format, ...) {
    if (!errors++) {
        va_list values;
        va_start(values, format);
        vsnprintf(first_error, sizeof first_error, format, values);
        va_end(values);
    }
    if (errors >= ERRORS_MAX) stopping = true;
    close_conn(c);
}

static bool may_begin(void) {
    return !stopping && (requests_max < 0 || begun < requests_max);
}

static void watch(struct conn *c, int op, uint32_t events) {
    struct epoll_event e = {events, {.ptr = c}};
    if (epoll_ctl(epfd, op, c->fd, &e)) fail(c, "epoll_ctl:%s", strerrorname_np(errno));
}

/* Sends a head whole (it always fits an empty socket buffer). False while the connection is not made, or failed. */
static bool try_send(struct conn *c, const char *head, size_t bytes) {
    ssize_t n = send(c->fd, head, bytes, MSG_NOSIGNAL);
    if (n == (ssize_t)bytes) return true;
    if (n < 0 && errno == EAGAIN && c->phase == CONNECTING) return false;
    fail(c, "send:%s", n < 0 ? strerrorname_np(errno) : "short");
    return false;
}

static void send_request(struct conn *c) {
    if (mode->keep) c->began_ns = now_ns();
    if (try_send(c, request_head, request_bytes)) c->phase = HEAD;
}

static bool send_first(struct conn *c) {
    bool tunnel = mode->tunnel && !blind;
    if (!try_send(c, tunnel ? connect_head : request_head, tunnel ? connect_bytes : request_bytes)) return false;
    c->phase = tunnel ? TUNNELLING : HEAD;
    return true;
}

static void open_conn(struct conn *c) {
    c->phase = CONNECTING;
    c->began_ns = now_ns();
    active++;
    begun++;  /* its first request; a tunnel's others are counted as they are sent */
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (c->fd < 0) return fail(c, "socket:%s", strerrorname_np(errno));
    if (connect(c->fd, (struct sockaddr *)&proxy, sizeof proxy) && errno != EINPROGRESS)
        return fail(c, "connect:%s", strerrorname_np(errno));
    /* On loopback the handshake is over when connect returns, so the first head can go at once. */
    bool sent = send_first(c);
    if (c->fd >= 0) watch(c, EPOLL_CTL_ADD, sent ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

static void on_response_end(struct conn *c) {
    histogram_add(&latency, now_ns() - c->began_ns);
    done++;
    if (mode->hold) {
        c->phase = RESTING;
        resting++;
    } else if (!mode->keep) {
        c->phase = CLOSING;
    } else if (may_begin()) {
        begun++;
        send_request(c);
    } else {
        close_conn(c);
    }
}

/* ---- heads ---- */

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

/* A whole head lies at scratch; `surplus` bytes follow it. */
static void on_head(struct conn *c, size_t bytes, size_t surplus) {
    int status = parse_status(scratch, bytes);
    if (status != 200) return fail(c, "%s_status:%d", c->phase == TUNNELLING ? "connect" : "response", status);
    if (c->phase == TUNNELLING) {
        if (surplus) return fail(c, "surplus_after_connect:%zu", surplus);
        return send_request(c);
    }
    int64_t announced = parse_length(scratch, scratch + bytes);
    if (length < 0) length = announced;
    if (announced < 0 || announced != length) return fail(c, "content_length:%lld", (long long)announced);
    if (surplus > (uint64_t)length) return fail(c, "surplus:%zu", surplus - (size_t)length);
    body_bytes += surplus;
    c->body_left = (uint64_t)length - surplus;
    c->phase = BODY;
    if (!c->body_left) on_response_end(c);
}

static void read_head(struct conn *c) {
    if (c->stashed) memcpy(scratch, c->stash, c->stashed);
    ssize_t n = recv(c->fd, scratch + c->stashed, SCRATCH - 1 - HEAD_MAX, 0);
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

static void read_body(struct conn *c) {
    ssize_t n = recv(c->fd, NULL, c->body_left, MSG_TRUNC);
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) return fail(c, "recv:%s", strerrorname_np(errno));
    if (n == 0) return fail(c, "short_body:%llu_missing", (unsigned long long)c->body_left);
    body_bytes += (uint64_t)n;
    c->body_left -= (uint64_t)n;
    if (!c->body_left) on_response_end(c);
}

/* After the response: with Connection: close the server's EOF is due; an idle tunnel must stay silent. */
static void read_end(struct conn *c) {
    ssize_t n = recv(c->fd, scratch, SCRATCH, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n == 0 && c->phase == CLOSING) return close_conn(c);
    fail(c, c->phase == RESTING ? "tunnel_ended:%s" : "after_response:%s",
         n > 0 ? "surplus" : n == 0 ? "eof" : strerrorname_np(errno));
}

static void on_event(struct conn *c, uint32_t events) {
    switch (c->phase) {
    case CONNECTING:
        if (!(events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) || !send_first(c)) break;
        watch(c, EPOLL_CTL_MOD, EPOLLIN);
        break;
    case TUNNELLING:
    case HEAD: read_head(c); break;
    case BODY: read_body(c); break;
    case CLOSING:
    case RESTING: read_end(c); break;
    }
}

/* ---- the run ---- */

static void reopen(struct conn *c) {
    if (c->fd < 0 && may_begin()) open_conn(c);
}

/* Turns the loop until every connection is closed (idle: until every tunnel rests). */
static void run(struct conn *all) {
    struct epoll_event batch[BATCH];
    uint64_t began = now_ns(), end = requests_max < 0 ? began + (uint64_t)(seconds * 1e9) : UINT64_MAX;
    long opened = 0, done_before = -1;
    int stalls = 0;
    uint64_t tick = began + STALL_NS;
    while (opened < conns || active > resting) {
        for (; opened < conns && (!mode->hold || active - resting < OPENING); opened++) reopen(&all[opened]);
        int n = epoll_wait(epfd, batch, BATCH, 100);
        for (int i = 0; i < n; i++) {
            struct conn *c = batch[i].data.ptr;
            on_event(c, batch[i].events);
            if (!mode->hold) reopen(c);
        }
        uint64_t now = now_ns();
        if (now >= end && !mode->hold) stopping = true;
        if (now < tick) continue;
        tick = now + STALL_NS;
        stalls = done == done_before ? stalls + 1 : 0;
        done_before = done;
        if (stalls < STALLS) continue;
        for (long i = 0; i < opened; i++)
            if (all[i].fd >= 0 && all[i].phase != RESTING) fail(&all[i], "no_answer_in_%d_s", STALLS);
        stopping = true;
        break;
    }
}

/* Holds the resting tunnels until stdin ends; one that says or loses anything is an error. */
static void hold(void) {
    struct epoll_event batch[BATCH], in = {EPOLLIN, {.ptr = NULL}};
    printf("READY tunnels=%ld errors=%ld\n", resting, errors);
    fflush(stdout);
    if (epoll_ctl(epfd, EPOLL_CTL_ADD, STDIN_FILENO, &in)) return;  /* a file or /dev/null: at its end already */
    for (bool held = true; held;) {
        int n = epoll_wait(epfd, batch, BATCH, -1);
        for (int i = 0; i < n; i++) {
            if (batch[i].data.ptr) on_event(batch[i].data.ptr, batch[i].events);
            else held = read(STDIN_FILENO, scratch, SCRATCH) > 0;
        }
    }
}

static void print_result(double took) {
    printf("mode=%s conns=%ld requests=%ld errors=%ld first_error=%s seconds=%.3f bytes=%llu rps=%.1f mib_per_s=%.1f",
           mode->name, conns, done, errors, first_error, took, (unsigned long long)body_bytes,
           (double)done / took, (double)body_bytes / took / (1 << 20));
    double mean = latency.count ? (double)latency.sum_ns / (double)latency.count / 1e3 : 0;
    printf(" latency_avg_us=%.1f latency_p50_us=%.1f latency_p95_us=%.1f latency_p99_us=%.1f latency_p999_us=%.1f"
           " latency_max_us=%.1f\n",
           mean, histogram_quantile_us(&latency, .50), histogram_quantile_us(&latency, .95),
           histogram_quantile_us(&latency, .99), histogram_quantile_us(&latency, .999), (double)latency.max_ns / 1e3);
}

/* ---- options ---- */

static void build_base64(const char *from, char *to) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t left = strlen(from); left; from += 3) {
        size_t take = left < 3 ? left : 3;
        uint32_t v = (uint32_t)(uint8_t)from[0] << 16;
        if (take > 1) v |= (uint32_t)(uint8_t)from[1] << 8;
        if (take > 2) v |= (uint8_t)from[2];
        for (size_t i = 0; i < 4; i++) *to++ = i <= take ? digits[v >> (18 - 6 * i) & 63] : '=';
        left -= take;
    }
    *to = 0;
}

static void build_heads(void) {
    char token[512], credentials[600] = "";
    if (user && strlen(user) > 300) die("--user is too long");
    if (user) build_base64(user, token);
    if (user && !blind) snprintf(credentials, sizeof credentials, "Proxy-Authorization: Basic %s\r\n", token);
    connect_bytes = (size_t)snprintf(connect_head, sizeof connect_head, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n",
                                     target, target, credentials);
    bool absolute = mode->absolute && !blind;
    request_bytes = (size_t)snprintf(request_head, sizeof request_head, "GET %s%s%s HTTP/1.1\r\nHost: %s\r\n%s%s\r\n",
                                     absolute ? "http://" : "", absolute ? target : "", path, target,
                                     absolute ? credentials : "", mode->keep ? "" : "Connection: close\r\n");
    if (connect_bytes >= sizeof connect_head || request_bytes >= sizeof request_head) die("a request is too long");
}

static void read_options(int argc, char **argv) {
    static const struct option options[] = {
        {"port", 1, 0, 'p'}, {"target", 1, 0, 't'}, {"user", 1, 0, 'u'}, {"path", 1, 0, 'P'}, {"length", 1, 0, 'l'},
        {"blind", 0, 0, 'b'}, {"conns", 1, 0, 'c'}, {"seconds", 1, 0, 's'}, {"requests", 1, 0, 'r'}, {0},
    };
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case 'p': port = atol(optarg); break;
        case 't': target = optarg; break;
        case 'u': user = optarg; break;
        case 'P': path = optarg; break;
        case 'l': length = atoll(optarg); break;
        case 'b': blind = true; break;
        case 'c': conns = atol(optarg); break;
        case 's': seconds = atof(optarg); break;
        case 'r': requests_max = atol(optarg); break;
        default: exit(2);
        }
    }
    for (size_t i = 0; optind < argc && i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(argv[optind], modes[i].name)) mode = &modes[i];
    if (!mode) die("name a mode: connect-setup, ping, bulk, plain-new or idle");
    if (port < 1 || port > 65535 || conns < 1) die("--port and --conns must be positive");
    if (mode->hold) requests_max = conns;
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    build_heads();
    signal(SIGPIPE, SIG_IGN);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    proxy = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    proxy.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct conn *all = calloc((size_t)conns, sizeof *all);
    if (!all || (epfd = epoll_create1(EPOLL_CLOEXEC)) < 0) die("no memory");
    for (long i = 0; i < conns; i++) all[i].fd = -1;
    uint64_t began = now_ns();
    run(all);
    double took = (double)(now_ns() - began) / 1e9;
    if (mode->hold) hold();
    print_result(took);
    return errors || !done;
}

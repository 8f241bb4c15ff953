/* The closed loop: every connection sends its next request when the last was answered; and crowds that rest. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "conn.h"

enum { OPENING = 128 };  /* idle: set up at once, so that no listen queue overflows */

static struct request *requests;
static long n_requests, next_request;
static struct conn *all;
static long opened, resting;

static bool may_begin(void) {
    return !stopping && (opt.requests_max < 0 || begun < opt.requests_max);
}

static struct request *take_request(void) {
    struct request *taken = &requests[next_request++];
    if (next_request == n_requests) next_request = 0;
    return taken;
}

/* The first request's latency counts from connect where a connection is made for each. */
static void on_ready(struct conn *c) {
    conn_send(c, take_request(), opt.keep ? now_ns() : c->began_ns);
}

static void on_response(struct conn *c) {
    if (opt.hold) {
        resting++;
    } else if (opt.keep && may_begin()) {
        begun++;
        conn_send(c, take_request(), now_ns());
    } else if (opt.keep) {
        conn_close(c);
    }
}

static void reopen(struct conn *c) {
    if (!may_begin()) return;
    begun++;  /* its first request; others of the same connection are counted as they are sent */
    conn_open(c);
}

/* Holds what rests until stdin ends; a connection that says or loses anything is an error. */
static void hold(void) {
    static struct conn in = {.fd = STDIN_FILENO};
    struct epoll_event e = {EPOLLIN, {.ptr = &in}}, batch[256];
    printf("READY tunnels=%ld errors=%ld\n", resting, errors);
    fflush(stdout);
    if (epoll_ctl(epfd, EPOLL_CTL_ADD, STDIN_FILENO, &e)) return;  /* a file or /dev/null: at its end already */
    for (bool held = true; held;) {
        char said[256];
        int n = epoll_wait(epfd, batch, 256, -1);
        for (int i = 0; i < n; i++) {
            if (batch[i].data.ptr != &in) conn_event(batch[i].data.ptr, batch[i].events);
            else held = read(STDIN_FILENO, said, sizeof said) > 0;
        }
    }
}

static void build_requests(void) {
    uint64_t up = opt.post ? (uint64_t)opt.length : 0;
    int64_t length = opt.post && opt.path[1] == 'u' ? 2 : opt.length;
    char path[1024];
    n_requests = opt.distinct ? opt.distinct : 1;
    if (!(requests = calloc((size_t)n_requests, sizeof *requests))) die("no memory");
    if (!opt.distinct) requests[0] = build_request(opt.path, up, length, !opt.keep);
    for (long i = 0; i < opt.distinct; i++) {
        snprintf(path, sizeof path, "%s?n=%06ld", opt.path, i);
        requests[i] = build_request(path, up, length, !opt.keep);
    }
}

void run_closed(void) {
    on = (struct scheduler){on_ready, on_response, reopen};
    build_requests();
    if (!(all = calloc((size_t)opt.conns, sizeof *all))) die("no memory");
    for (long i = 0; i < opt.conns; i++) all[i].fd = -1;
    uint64_t end = opt.requests_max < 0 ? now_ns() + (uint64_t)(opt.seconds * 1e9) : UINT64_MAX;
    while (opened < opt.conns || active > resting) {
        long room = opt.hold ? OPENING - (active - resting) : opt.conns;
        for (; opened < opt.conns && room > 0; room--) reopen(&all[opened++]);
        bool alive = turn(now_ns() + 100000000);
        /* A failed connection begins again, so that one error is one error and the load goes on. */
        if (errors && !opt.hold)
            for (long i = 0; i < opened; i++)
                if (all[i].fd < 0) reopen(&all[i]);
        if (now_ns() >= end && !opt.hold) stopping = true;
        if (opt.hold && stopping) break;
        if (alive) continue;
        fail_all(all, opened);
        stopping = true;
        break;
    }
    ended_ns = now_ns();
    if (opt.hold) hold();
}

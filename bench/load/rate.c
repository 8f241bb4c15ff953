/* A fixed rate without coordinated omission: request n is due at n / rate, whatever became of the others. One that
 * finds no connection free waits its turn, and its latency counts from when it was due. What is still unsent a second
 * after the end is an error: the rate was not held, so there is no latency to speak of. rate-setup makes a tunnel for
 * each request, --conns at once at most. */
#include <stdio.h>
#include <stdlib.h>
#include "conn.h"

enum { LATE_NS = 1000000000 };

static struct request request;
static struct conn *all, **idle;
static long n_idle, sent, waited, backlog_max;
static uint64_t began, end;

/* When the nth request is due, n from 1; due_by() is its inverse. */
static uint64_t due_ns(long n) {
    return began + (uint64_t)((double)n * 1e9 / opt.rate);
}

static long due_by(uint64_t now) {
    return (long)((double)((now < end ? now : end) - began) * opt.rate / 1e9);
}

static void send_due(struct conn *c) {
    begun++;
    c->due_ns = due_ns(++sent);
    if (opt.keep) conn_send(c, &request, c->due_ns);
    else conn_open(c);
}

static void be_idle(struct conn *c) {
    if (began && sent < due_by(now_ns())) {
        waited++;
        return send_due(c);
    }
    idle[n_idle++] = c;
}

static void on_ready(struct conn *c) {
    if (opt.keep) be_idle(c);
    else conn_send(c, &request, c->due_ns);
}

static void on_response(struct conn *c) {
    if (opt.keep) be_idle(c);  /* else its end is awaited */
}

static void on_closed(struct conn *c) { be_idle(c); }

static bool in_flight(void) { return active > (opt.keep ? n_idle : 0); }

void print_rate(void) {
    printf(" rate=%.1f waited=%ld backlog_max=%ld", opt.rate, waited, backlog_max);
}

void run_rate(void) {
    on = (struct scheduler){on_ready, on_response, on_closed};
    request = build_request(opt.path, 0, opt.length, !opt.keep);
    all = calloc((size_t)opt.conns, sizeof *all);
    idle = calloc((size_t)opt.conns, sizeof *idle);
    if (!all || !idle) die("no memory");
    /* All connections first: how long connecting takes is another scenario's question. */
    for (long i = 0; i < opt.conns; i++) {
        all[i].fd = -1;
        if (!opt.keep) {
            idle[n_idle++] = &all[i];
            continue;
        }
        conn_open(&all[i]);
        while (all[i].fd >= 0 && all[i].phase != READY)
            if (!turn(now_ns() + 100000000)) return fail_all(all, opt.conns);
    }
    began = now_ns();
    end = began + (uint64_t)(opt.seconds * 1e9);
    for (uint64_t now = began; !stopping && (now < end || in_flight() || sent < due_by(now)); now = now_ns()) {
        long due = due_by(now);
        if (due - sent - n_idle > backlog_max) backlog_max = due - sent - n_idle;
        while (n_idle && sent < due) {
            struct conn *c = idle[--n_idle];
            if (c->fd >= 0 || !opt.keep) send_due(c);
        }
        if (now >= end + LATE_NS && sent < due) {
            errors++;
            snprintf(first_error, sizeof first_error, "rate_not_held:%ld_of_%ld_unsent", due - sent, due);
            return;
        }
        uint64_t next = n_idle && now < end ? due_ns(sent + 1) : now + 100000000;
        if (!turn(next < end || now >= end ? next : end)) return fail_all(all, opt.conns);
    }
}

/* One connection of the load generator, and what the schedulers (closed.c, rate.c, page.c) say to it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "histogram.h"

struct request {         /* a head made once, and what its answer must be */
    char *head;
    size_t bytes;
    uint64_t up;         /* body bytes that follow the head */
    int64_t length;      /* of the response body; -1: whatever the first one had */
    bool close;          /* Connection: close was asked for, and must be obeyed */
};

enum phase { CLOSED, CONNECTING, TUNNELLING, SHAKING, READY, HEAD, BODY, CLOSING };

struct conn {
    int fd;
    enum phase phase;
    uint32_t stashed;    /* bytes of an incomplete head */
    bool watching_out, greeted, ended;  /* greeted: SOCKS; ended: the peer has said all, as far as the last event told */
    uint64_t body_left, up_left, began_ns, due_ns;  /* due_ns: of rate.c */
    struct request *request;
    char *stash;
    void *ssl, *owner;
};

struct scheduler {       /* what follows: called by a connection */
    void (*on_ready)(struct conn *c);     /* connected, tunnel and TLS made: may send */
    void (*on_response)(struct conn *c);  /* READY again, or CLOSING */
    void (*on_closed)(struct conn *c);    /* after CLOSING, as was asked for; not after a failure */
};

struct options {
    const char *host, *target, *user, *path, *pages;
    long port, conns, requests_max, processes, distinct;
    int64_t length;
    double seconds, rate;
    bool blind, tunnel, keep, absolute, hold, tls, post, socks, hang_up;
};

extern struct options opt;
extern struct scheduler on;
extern struct histogram latency;
extern bool stopping;
extern int epfd;
extern uint64_t ended_ns;                 /* when the load was over; what rests is held longer */
extern long begun, done, errors, active;  /* active: open, or being opened */
extern uint64_t body_bytes, up_bytes;
extern char first_error[128];

uint64_t now_ns(void);
_Noreturn void die(const char *reason);
__attribute__((format(printf, 2, 3))) void fail(struct conn *c, const char *format, ...);

void conn_setup(void);                    /* once: address, CONNECT head, TLS */
/* A head for `path`; POST with `up` bytes where up > 0. */
struct request build_request(const char *path, uint64_t up, int64_t length, bool close);
void conn_open(struct conn *c);
void conn_send(struct conn *c, struct request *r, uint64_t began_ns);  /* phase READY */
void conn_close(struct conn *c);
void conn_event(struct conn *c, uint32_t events);

/* Turns the loop once, at most until `until_ns`; false when nothing has answered for too long. */
bool turn(uint64_t until_ns);
void fail_all(struct conn *all, long n);

void run_closed(void);
void run_rate(void);
void run_page(void);
void print_page(double took);
void print_rate(void);

/* slow: connections that each send one byte a second of a head that never ends (slowloris). Single-threaded epoll.
 *
 *     slow --port N [--conns N] [--seconds S]
 *
 * Prints "OPEN conns=N" once all are connected, and one key=value line when the last one has been ended by the
 * proxy, or after S seconds. A reply of 408 and then EOF is the end that is wanted; every other one is an error, and
 * errors make the exit status 1. first_end_s and last_end_s are the shortest and longest life of a connection. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 256, OPENING = 128, SLICES = 100 };  /* a slice of all connections is due each 10 ms */

struct conn {
    int fd;
    unsigned at;         /* bytes sent */
    bool refused;        /* 408 has been read */
    uint64_t began_ns;
};

static const char head[] = "GET http://127.0.0.1/ HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ";
static long port, conns = 10000, opened, connected, live, ended, errors, bytes;
static double seconds = 60, first_end = 1e9, last_end;
static const char *first_error = "none";
static int epfd;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void end_conn(struct conn *c, const char *error) {
    double life = (double)(now_ns() - c->began_ns) / 1e9;
    if (error && !errors++) first_error = error;
    if (!error) {
        ended++;
        if (life < first_end) first_end = life;
        if (life > last_end) last_end = life;
    }
    close(c->fd);
    c->fd = -1;
    live--;
}

static void open_conn(struct conn *c) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct epoll_event e = {EPOLLIN, {.ptr = c}};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->began_ns = now_ns();
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    opened++;
    live++;
    if (c->fd < 0) return end_conn(c, "socket");
    if (connect(c->fd, (struct sockaddr *)&to, sizeof to)) return end_conn(c, "connect");
    connected++;
    if (epoll_ctl(epfd, EPOLL_CTL_ADD, c->fd, &e)) end_conn(c, "epoll_ctl");
}

static void send_byte(struct conn *c) {
    char byte = c->at < sizeof head - 1 ? head[c->at] : 'x';
    if (send(c->fd, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) {
        c->at++;
        bytes++;
    }   /* else it has been ended: what it was told is still to be read */
}

static void read_end(struct conn *c) {
    char reply[4096];
    ssize_t n = recv(c->fd, reply, sizeof reply, MSG_DONTWAIT);
    if (n > 12 && !memcmp(reply, "HTTP/1.1 408", 12)) c->refused = true;
    else if (n > 0) end_conn(c, "another_reply");
    else if (n == 0 || errno == ECONNRESET) end_conn(c, c->refused ? NULL : "no_reply");
    else if (errno != EAGAIN) end_conn(c, "recv");
}

int main(int argc, char **argv) {
    static const struct option options[] = {{"port", 1, 0, 'p'}, {"conns", 1, 0, 'c'}, {"seconds", 1, 0, 's'}, {0}};
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 'p') port = atol(optarg);
        else if (option == 'c') conns = atol(optarg);
        else if (option == 's') seconds = atof(optarg);
        else return 2;
    }
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    signal(SIGPIPE, SIG_IGN);
    struct conn *all = calloc((size_t)conns, sizeof *all);
    if (!all || (epfd = epoll_create1(EPOLL_CLOEXEC)) < 0) return 2;
    uint64_t end = now_ns() + (uint64_t)(seconds * 1e9), slice_ns = 1000000000u / SLICES, due = now_ns();
    bool told = false;
    for (long slice = 0; (opened < conns || live) && now_ns() < end;) {
        struct epoll_event batch[BATCH];
        for (long stop = opened + OPENING; opened < conns && opened < stop;) {
            struct conn *c = &all[opened];
            open_conn(c);
            if (c->fd >= 0) send_byte(c);
        }
        if (opened == conns && !told) {
            told = printf("OPEN conns=%ld\n", connected) > 0;
            fflush(stdout);
        }
        int n = epoll_wait(epfd, batch, BATCH, opened < conns ? 0 : 5);
        for (int i = 0; i < n; i++) read_end(batch[i].data.ptr);
        for (; now_ns() >= due; due += slice_ns, slice = (slice + 1) % SLICES)
            for (long i = slice; i < opened; i += SLICES)
                if (all[i].fd >= 0 && !all[i].refused) send_byte(&all[i]);
    }
    errors += live;
    if (live && !strcmp(first_error, "none")) first_error = "never_ended";
    printf("slow_conns=%ld slow_bytes=%ld ended_408=%ld slow_errors=%ld slow_first_error=%s first_end_s=%.2f "
           "last_end_s=%.2f\n", connected, bytes, ended, errors, first_error, ended ? first_end : 0, last_end);
    return errors || ended != conns;
}

/* sink IP PORT LOG: the origin that takes uploads, for what a web server's files cannot show. Keep-alive HTTP/1.1 on
 * one thread, level-triggered epoll. Prints "listening PORT".
 *
 *     POST /up     the body is read whole and discarded, then "ok" is answered
 *     POST /both   as many bytes are answered as the body has, from the moment the head was read
 *
 * One line for each request that was read and answered whole goes to LOG, in the form that origin.conf gives nginx:
 * "200 BODY_BYTES PATH". Anything else it is asked ends the connection, with "400 0 -" in LOG. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { BATCH = 256, HEAD_MAX = 4096, SCRATCH = 256 << 10 };

struct conn {
    int fd;
    bool writing, both, close, busy;
    unsigned long long total, in_left, out_left;
    size_t stashed, reply_left;
    char stash[HEAD_MAX], reply[128];
};

static int epfd, log_fd;
static char lines[64 << 10];
static size_t n_lines;
static const char zeros[SCRATCH];

static void flush_lines(void) {
    if (n_lines && write(log_fd, lines, n_lines) < 0) perror("sink: log");
    n_lines = 0;
}

static void put_line(int status, unsigned long long bytes, const char *path) {
    if (n_lines > sizeof lines - 256) flush_lines();
    n_lines += (size_t)snprintf(lines + n_lines, 256, "%d %llu %s\n", status, bytes, path);
}

static void end(struct conn *c) {
    close(c->fd);
    free(c);
}

static bool on_head(struct conn *c, const char *head, const char *head_end) {
    c->both = !strncmp(head, "POST /both ", 11);
    if (!c->both && strncmp(head, "POST /up ", 9)) return false;
    long long length = -1;
    c->close = false;
    for (const char *p = head; (p = memmem(p, (size_t)(head_end - p), "\r\n", 2)); p += 2) {
        if (!strncasecmp(p, "\r\ncontent-length:", 17)) length = atoll(p + 17);
        if (!strncasecmp(p, "\r\nconnection: close", 19)) c->close = true;
    }
    if (length <= 0) return false;
    c->busy = true;
    c->total = c->in_left = (unsigned long long)length;
    c->out_left = c->both ? c->total : 0;
    c->reply_left = c->both ? (size_t)snprintf(c->reply, sizeof c->reply,
                                               "HTTP/1.1 200 OK\r\nContent-Length: %llu\r\n\r\n", c->total) : 0;
    return true;
}

/* 0, 1: the connection was ended. Reads until it would block, so that a body is not a wake-up each 64 KiB. */
static int receive(struct conn *c) {
    for (int turns = 0; turns < 16; turns++) {
        if (c->busy && !c->in_left) return 0;  /* nobody pipelines here */
        ssize_t n = c->busy ? recv(c->fd, NULL, c->in_left, MSG_TRUNC)
                            : recv(c->fd, c->stash + c->stashed, HEAD_MAX - 1 - c->stashed, 0);
        if (n < 0 && errno == EAGAIN) return 0;
        if (n <= 0) return end(c), 1;
        if (c->busy) {
            c->in_left -= (unsigned long long)n;
            continue;
        }
        c->stashed += (size_t)n;
        c->stash[c->stashed] = 0;
        char *head_end = strstr(c->stash, "\r\n\r\n");
        if (!head_end && c->stashed < HEAD_MAX - 1) continue;
        if (!head_end || !on_head(c, c->stash, head_end + 2)) return put_line(400, 0, "-"), end(c), 1;
        size_t surplus = c->stashed - (size_t)(head_end + 4 - c->stash);
        if (surplus > c->in_left) return put_line(400, 0, "-"), end(c), 1;
        c->in_left -= surplus;
        c->stashed = 0;
    }
    return 0;
}

static int answer(struct conn *c) {
    if (c->busy && !c->both && !c->in_left && !c->reply_left && c->total) {
        c->reply_left = (size_t)snprintf(c->reply, sizeof c->reply, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        c->both = true;  /* from here on the same: the reply, then nothing more */
        put_line(200, c->total, "/up");
        c->total = 0;
    }
    while (c->reply_left || c->out_left) {
        size_t length = strlen(c->reply);
        ssize_t n = c->reply_left ? send(c->fd, c->reply + length - c->reply_left, c->reply_left, MSG_NOSIGNAL)
                                  : send(c->fd, zeros, c->out_left < SCRATCH ? c->out_left : SCRATCH, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) return 0;
        if (n < 0) return end(c), 1;
        if (c->reply_left) c->reply_left -= (size_t)n;
        else c->out_left -= (unsigned long long)n;
    }
    if (!c->busy || c->in_left) return 0;
    if (c->total) put_line(200, c->total, "/both");
    c->busy = false;
    c->total = 0;
    return c->close ? end(c), 1 : 0;
}

static void on_event(struct conn *c, unsigned events) {
    if (events & ~(unsigned)EPOLLOUT && receive(c)) return;
    if (answer(c)) return;
    bool writing = c->reply_left || c->out_left;
    if (writing == c->writing) return;
    c->writing = writing;
    struct epoll_event e = {writing ? EPOLLIN | EPOLLOUT : EPOLLIN, {.ptr = c}};
    epoll_ctl(epfd, EPOLL_CTL_MOD, c->fd, &e);
}

static void on_connection(int fd) {
    struct conn *c = calloc(1, sizeof *c);
    c->fd = fd;
    struct epoll_event e = {EPOLLIN, {.ptr = c}};
    if (epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &e)) end(c);
}

int main(int argc, char **argv) {
    if (argc != 4) return fprintf(stderr, "sink IP PORT LOG\n"), 2;
    signal(SIGPIPE, SIG_IGN);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    inet_pton(AF_INET, argv[1], &at.sin_addr);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), fd;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (bind(listener, (void *)&at, sizeof at) || listen(listener, 4096)) return perror("sink"), 1;
    if ((log_fd = open(argv[3], O_WRONLY | O_CREAT | O_APPEND, 0644)) < 0) return perror("sink: log"), 1;
    getsockname(listener, (void *)&at, &(socklen_t){sizeof at});
    printf("listening %d\n", ntohs(at.sin_port));
    fflush(stdout);
    epfd = epoll_create1(0);
    struct epoll_event e = {EPOLLIN, {.ptr = NULL}}, batch[BATCH];
    epoll_ctl(epfd, EPOLL_CTL_ADD, listener, &e);
    for (;;) {
        int n = epoll_wait(epfd, batch, BATCH, 50);
        for (int i = 0; i < n; i++)
            if (batch[i].data.ptr) on_event(batch[i].data.ptr, batch[i].events);
            else while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) on_connection(fd);
        if (!n) flush_lines();
    }
}

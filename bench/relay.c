/* relay LISTEN TARGET [copy|splice]: the yardstick, a blind single-threaded edge-triggered relay. Both are [IP:]PORT.
 * Each direction fills 64 KiB (or a pipe) from one socket and empties it into the other until one would block; it
 * never reads while bytes are held, and EOF becomes SHUT_WR once all before it is sent. Prints "listening PORT".
 * Built with -DPLAYS_SOCKS it first answers a greeting and a request of SOCKS5, whatever destination they name. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "bad.h"
#ifdef PLAYS_SOCKS
#define PLAYS_SOCKS 1
#else
#define PLAYS_SOCKS 0
#endif
enum { CHUNK = 64 << 10, PIPE_BYTES = 1 << 20, TURNS = 16, BATCH = 256, POOL = 256 };
struct end {  /* one socket, and the bytes read from it that its peer has not taken: len of them, in held or a pipe */
    int fd, pipe[2], readable, writable, eof, hung_up, owes;  /* owes: messages of SOCKS */
    size_t off, len;
    char *held;
    struct end *peer, *pair, *next;  /* pair: the client's end, the origin's lies behind it; next: of the dead */
} *dead;
static int epfd, splicing, pooled, pool[POOL][2];
static char scratch[CHUNK];
static struct epoll_event batch[BATCH];
static int watch(struct end *e, int op) {
    return epoll_ctl(epfd, op, e->fd, &(struct epoll_event){EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, {e}});
}
static void release(struct end *e) {  /* gives back what held bytes need; a pipe that still has some is not reused */
    if (e->pipe[0] >= 0 && !e->len && pooled < POOL) memcpy(pool[pooled++], e->pipe, sizeof e->pipe);
    else if (e->pipe[0] >= 0) close(e->pipe[0]), close(e->pipe[1]);
    free(e->held), e->held = NULL, e->pipe[0] = -1;
}
static ssize_t fill(struct end *e) {
    if (!splicing) {
        ssize_t n = recv(e->fd, scratch, CHUNK, 0);
        spoil(scratch, n, e == e->pair);
        return n;
    }
    if (pooled) memcpy(e->pipe, pool[--pooled], sizeof e->pipe);
    else if (pipe2(e->pipe, O_NONBLOCK)) return e->pipe[0] = -1, errno = ENFILE, -1;
    else fcntl(e->pipe[1], F_SETPIPE_SZ, PIPE_BYTES);  /* refused past pipe-user-pages-soft: it stays at 64 KiB */
    return splice(e->fd, NULL, e->pipe[1], NULL, PIPE_BYTES, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
}
static ssize_t empty(struct end *e) {
    return splicing ? splice(e->pipe[0], NULL, e->peer->fd, NULL, e->len, SPLICE_F_NONBLOCK | SPLICE_F_MOVE)
                    : send(e->peer->fd, (e->held ? e->held : scratch) + e->off, e->len, 0);
}
static int greet(struct end *client, struct end *origin) {  /* as pump; each message arrives whole */
    if (!client->readable || (client->owes == 1 && !origin->writable)) return 0;
    ssize_t n = recv(client->fd, scratch, CHUNK, 0);
    client->readable = 0;
    if (n <= 0 || scratch[0] != 5) return n < 0 && errno == EAGAIN ? 0 : -1;
    size_t bytes = client->owes-- == 2 ? 2 : 10;
    return send(client->fd, bytes == 2 ? "\5\0" : "\5\0\0\1\0\0\0\0\0\0", bytes, 0) == (ssize_t)bytes ? 0 : -1;
}
static int pump(struct end *from, struct end *to) {  /* 0, or -1: the pair is broken */
    if (PLAYS_SOCKS && from->owes) return greet(from, to);
    for (int turn = 0; turn < TURNS; turn++) {
        if (!to->writable || (!from->len && (!from->readable || from->eof))) return 0;
        if (!from->len) {
            ssize_t n = fill(from);
            if (n < 0) return release(from), from->readable = 0, errno == EAGAIN ? 0 : -1;
            if (n == 0) return release(from), from->eof = 1, to->eof && !to->len ? 0 : shutdown(to->fd, SHUT_WR);
            from->off = 0, from->len = n;
            if (!splicing && n < CHUNK && !from->hung_up) from->readable = 0;  /* drained: the next edge will tell */
        }
        for (ssize_t n; from->len; from->off += n, from->len -= n) {
            if ((n = empty(from)) >= 0) continue;
            if (errno != EAGAIN) return -1;
            if (to->writable = 0, splicing || from->held) return 0;
            return memcpy(from->held = malloc(from->len), scratch + from->off, from->len), from->off = 0;
        }
        release(from);
    }
    return watch(from, EPOLL_CTL_MOD);  /* others first: setting the watch again brings a fresh edge */
}
static void on_event(struct end *e, uint32_t events) {
    struct end *client = e->pair, *origin = client->peer;
    if (client->fd < 0) return;  /* closed earlier in this batch */
    e->hung_up |= !!(events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR));
    e->readable |= !!(events & ~EPOLLOUT), e->writable |= !!(events & ~(EPOLLIN | EPOLLRDHUP));
    int broken = (e->eof && events & EPOLLERR) || pump(client, origin) || pump(origin, client);
    if (!broken && (!client->eof || !origin->eof || client->len || origin->len)) return;
    release(client), release(origin), close(client->fd), close(origin->fd);
    client->fd = -1, client->next = dead, dead = client;  /* freed after the batch, which may still point here */
}
static void on_connection(int client_fd, const struct sockaddr_in *target) {
    int origin_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(origin_fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, 4);  /* accepted ones inherit the listener's */
    connect(origin_fd, (const void *)target, sizeof *target);  /* how it went arrives as an event */
    struct end *pair = malloc(2 * sizeof *pair);
    pair[0] = (struct end){.fd = client_fd, .pipe = {-1}, .peer = pair + 1, .pair = pair, .owes = PLAYS_SOCKS * 2};
    pair[1] = (struct end){.fd = origin_fd, .pipe = {-1}, .peer = pair, .pair = pair};
    if (watch(pair, EPOLL_CTL_ADD) || watch(pair + 1, EPOLL_CTL_ADD)) pair->eof = 1, on_event(pair, EPOLLERR);
}
static struct sockaddr_in address(char *text) {  /* [IP:]PORT; without IP it is loopback */
    char *colon = strchr(text, ':');
    struct sockaddr_in a = {AF_INET, htons(atoi(colon ? colon + 1 : text)), {htonl(INADDR_LOOPBACK)}, {0}};
    if (colon) *colon = 0, inet_pton(AF_INET, text, &a.sin_addr);
    return a;
}
int main(int argc, char **argv) {
    splicing = argc > 3 && !strcmp(argv[3], "splice"), signal(SIGPIPE, SIG_IGN);
    if (argc < 3) return fputs("relay LISTEN TARGET [copy|splice]\n", stderr), 2;
    struct sockaddr_in at = address(argv[1]), target = address(argv[2]);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), fd;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, 4), epfd = epoll_create1(0);
    setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &(int){1}, 4);
    if (bind(listener, (void *)&at, sizeof at) || listen(listener, 4096)) return perror("relay"), 1;
    epoll_ctl(epfd, EPOLL_CTL_ADD, listener, &(struct epoll_event){EPOLLIN, {NULL}});
    getsockname(listener, (void *)&at, &(socklen_t){sizeof at});
    printf("listening %d\n", ntohs(at.sin_port)), fflush(stdout);
    for (;;) {
        for (int i = 0, n = epoll_wait(epfd, batch, BATCH, -1); i < n; i++)
            if (batch[i].data.ptr) on_event(batch[i].data.ptr, batch[i].events);
            else while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) on_connection(fd, &target);
        for (struct end *e; (e = dead); free(e)) dead = e->next;
    }
}

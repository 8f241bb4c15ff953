/* lean LISTEN TARGET: the lean yardstick, about the least that a relay in user space costs. Both are [IP:]PORT.
 * Level-triggered epoll, one read and one write an event, a blocking connect(2); it waits for a peer that is full, and
 * an end of one direction ends both. relay.c serves everybody at once and keeps half-closed connections.
 * Prints "listening PORT". */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
enum { CHUNK = 64 << 10, BATCH = 512, FDS = 1 << 20 };
static int epfd, peers[FDS];  /* of each descriptor: its peer's; 0: it has none */
static char scratch[CHUNK];
static int pass(int to, ssize_t left) {  /* 0, or -1: the peer is gone */
    for (ssize_t n, at = 0; left; at += n, left -= n) {
        if ((n = send(to, scratch + at, left, 0)) >= 0) continue;
        if (errno != EAGAIN) return -1;
        n = 0, poll(&(struct pollfd){to, POLLOUT, 0}, 1, 1000);
    }
    return 0;
}
static void on_event(int fd) {
    int peer = peers[fd];
    if (!peer) return;  /* closed earlier in this batch */
    ssize_t n = recv(fd, scratch, CHUNK, 0);
    if (n > 0 ? !pass(peer, n) : n < 0 && errno == EAGAIN) return;
    peers[fd] = peers[peer] = 0, close(fd), close(peer);
}
static void join(int fd, int peer) {
    peers[fd] = peer;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, 4);
    epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &(struct epoll_event){EPOLLIN, {.fd = fd}});
}
static void on_connection(int client, const struct sockaddr_in *target) {
    int origin = socket(AF_INET, SOCK_STREAM, 0);
    if (origin < 0 || origin >= FDS || client >= FDS || connect(origin, (const void *)target, sizeof *target)) {
        close(client), close(origin);
        return;
    }
    fcntl(origin, F_SETFL, O_NONBLOCK);
    join(client, origin), join(origin, client);
}
static struct sockaddr_in address(char *text) {  /* [IP:]PORT; without IP it is loopback */
    char *colon = strchr(text, ':');
    struct sockaddr_in a = {AF_INET, htons(atoi(colon ? colon + 1 : text)), {htonl(INADDR_LOOPBACK)}, {0}};
    if (colon) *colon = 0, inet_pton(AF_INET, text, &a.sin_addr);
    return a;
}
int main(int argc, char **argv) {
    if (argc < 3) return fputs("lean LISTEN TARGET\n", stderr), 2;
    signal(SIGPIPE, SIG_IGN);
    struct sockaddr_in at = address(argv[1]), target = address(argv[2]);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct epoll_event batch[BATCH];
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, 4), epfd = epoll_create1(0);
    if (bind(listener, (void *)&at, sizeof at) || listen(listener, 4096)) return perror("lean"), 1;
    epoll_ctl(epfd, EPOLL_CTL_ADD, listener, &(struct epoll_event){EPOLLIN, {.fd = listener}});
    getsockname(listener, (void *)&at, &(socklen_t){sizeof at});
    printf("listening %d\n", ntohs(at.sin_port)), fflush(stdout);
    for (;;)
        for (int i = 0, n = epoll_wait(epfd, batch, BATCH, -1), fd; i < n; i++)
            if (batch[i].data.fd != listener) on_event(batch[i].data.fd);
            else while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) on_connection(fd, &target);
}

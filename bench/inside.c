// Requests over TLS inside tunnels, on CONNS connections, from one thread.
//
//     inside IP PORT SECONDS CONNS kept|new|fresh|listener HOST:PORT PATH CREDENTIALS
//
// Each connection sends CONNECT, shakes hands with HOST as the server name, and gets PATH. `kept`:
// again and again on that connection; `new`: once, and then another connection follows; `fresh`:
// likewise, to IP with a name under HOST that no connection had before. `listener`: again and again
// by the absolute URL, over TLS to IP:PORT itself. A response
// needs a Content-Length. Prints what was counted on this side. Links libssl; no certificate is
// verified, because the client's time is not the question.
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ROOM = 65536 };

struct conn {
    SSL *ssl;
    int fd, sent;   // sent: the CONNECT
    int n;          // bytes of a head, in `head`
    long left;      // of a body
    char head[8192];
};

static struct sockaddr_in to = {.sin_family = AF_INET};
static SSL_CTX *ctx;
static char host[200], connect_head[1024], request[1024];
static long done, failed, bytes;
static int keeps, fresh, direct, epoll;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void begin(struct conn *c) {
    int one = 1;
    memset(c, 0, offsetof(struct conn, head));
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (c->fd < 0 || (connect(c->fd, (struct sockaddr *)&to, sizeof to) && errno != EINPROGRESS)) {
        perror("connect");
        exit(1);
    }
    struct epoll_event e = {EPOLLIN | EPOLLOUT | EPOLLET, {.ptr = c}};
    epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &e);
}

static void finish(struct conn *c, int bad) {
    failed += bad;
    ERR_clear_error();
    SSL_free(c->ssl);
    close(c->fd);
    begin(c);
}

// 1: the tunnel is there, or not needed; 0: not yet; -1: it was refused.
static int open_tunnel(struct conn *c) {
    if (!c->sent && !direct) {
        if (send(c->fd, connect_head, strlen(connect_head), MSG_NOSIGNAL) < 0)
            return errno == EAGAIN || errno == ENOTCONN ? 0 : -1;
        c->sent = 1;
    }
    while (!direct && c->n < (int)sizeof c->head - 1) {  // no byte of what follows
        ssize_t n = recv(c->fd, c->head + c->n, 1, 0);
        if (n <= 0)
            return n < 0 && errno == EAGAIN ? 0 : -1;
        c->head[++c->n] = 0;
        if (c->n > 4 && !memcmp(c->head + c->n - 4, "\r\n\r\n", 4))
            break;
    }
    if (!direct && memcmp(c->head + 8, " 200", 4))
        return -1;
    c->n = 0;
    c->ssl = SSL_new(ctx);
    SSL_set_fd(c->ssl, c->fd);
    char name[256];
    static long names;
    snprintf(name, sizeof name, "n%ld-%d.%s", names++, getpid(), host);
    SSL_set_tlsext_host_name(c->ssl, fresh ? name : host);
    SSL_set_connect_state(c->ssl);
    return 1;
}

static int ask(struct conn *c) {
    c->n = 0;
    c->left = -1;
    return SSL_write(c->ssl, request, strlen(request)) > 0;
}

// Takes bytes of a response. 1: it has ended; 0: not yet; -1: it is none.
static int take(struct conn *c, const char *data, int n) {
    if (c->left < 0) {
        if (c->n + n >= (int)sizeof c->head)
            return -1;
        memcpy(c->head + c->n, data, n);
        c->n += n;
        c->head[c->n] = 0;
        char *end = strstr(c->head, "\r\n\r\n"), *length = strcasestr(c->head, "\ncontent-length:");
        if (!end)
            return 0;
        if (memcmp(c->head + 8, " 200", 4) || !length || length > end)
            return -1;
        c->left = atol(length + 16);
        n = c->head + c->n - end - 4;
    }
    c->left -= n;
    bytes += n;
    return c->left > 0 ? 0 : c->left ? -1 : 1;
}

static void run(struct conn *c) {
    static char data[ROOM];
    int r, why;
    if (!c->ssl) {
        if ((r = open_tunnel(c)) <= 0) {
            if (r < 0)
                finish(c, 1);
            return;
        }
    }
    if (!SSL_is_init_finished(c->ssl)) {
        if ((r = SSL_do_handshake(c->ssl)) != 1) {
            why = SSL_get_error(c->ssl, r);
            if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE)
                finish(c, 1);
            return;
        }
        if (!ask(c)) {
            finish(c, 1);
            return;
        }
    }
    while ((r = SSL_read(c->ssl, data, ROOM)) > 0) {
        r = take(c, data, r);
        done += r > 0;
        if (r < 0 || (r > 0 && (!keeps || !ask(c)))) {
            if (r > 0)
                SSL_shutdown(c->ssl);
            finish(c, r < 0 || keeps);
            return;
        }
    }
    why = SSL_get_error(c->ssl, r);
    if (why != SSL_ERROR_WANT_READ)
        finish(c, 1);
}

int main(int n, char **args) {
    if (n != 9) {
        fprintf(stderr, "usage: inside IP PORT SECONDS CONNS kept|new|fresh|listener HOST:PORT PATH CREDENTIALS\n");
        return 2;
    }
    int conns = atoi(args[4]);
    struct conn *all = calloc(conns, sizeof *all);
    struct epoll_event events[256];
    direct = !strcmp(args[5], "listener");
    keeps = direct || !strcmp(args[5], "kept");
    fresh = !strcmp(args[5], "fresh");
    to.sin_port = htons(atoi(args[2]));
    inet_pton(AF_INET, args[1], &to.sin_addr);
    snprintf(host, sizeof host, "%.*s", (int)strcspn(args[6], ":"), args[6]);
    char at[256];
    snprintf(at, sizeof at, "%s%s", fresh ? args[1] : host, strchr(args[6], ':'));
    snprintf(connect_head, sizeof connect_head,
             "CONNECT %s HTTP/1.1\r\nHost: %s\r\nProxy-Authorization: Basic %s\r\n\r\n", at, at,
             args[8]);
    if (direct)
        snprintf(request, sizeof request,
                 "GET http://%s%s HTTP/1.1\r\nHost: %s\r\nProxy-Authorization: Basic %s\r\n\r\n", at,
                 args[7], at, args[8]);
    else
        snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", args[7], at);
    ctx = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set1_groups_list(ctx, "X25519:P-256");
    epoll = epoll_create1(0);
    double began = now(), until = began + atof(args[3]);
    for (int i = 0; i < conns; i++)
        begin(&all[i]);
    while (now() < until && failed < 10000) {
        int ready = epoll_wait(epoll, events, 256, 100);
        for (int i = 0; i < ready; i++)
            run(events[i].data.ptr);
    }
    printf("requests=%ld failed=%ld bytes=%ld seconds=%.3f\n", done, failed, bytes, now() - began);
    return 0;
}

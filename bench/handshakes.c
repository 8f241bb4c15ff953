// Handshakes of TLS, one after another on each of CONNS connections, from one thread.
//
//     handshakes IP PORT SECONDS CONNS 1.2|1.3 full|resumed [SOURCE IP]
//
// Each connection shakes hands, sends its close_notify and closes; nothing else is sent. `resumed`:
// all of them have the ticket of a first connection; with TLS 1.3 they do a key exchange too
// (psk_dhe_ke), as browsers do. Prints what was counted on this side. Links libssl; no certificate
// is verified, because the client's time is not the question.
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct conn {
    SSL *ssl;
    int fd;
};

static struct sockaddr_in to, from = {.sin_family = AF_INET};
static SSL_CTX *ctx;
static SSL_SESSION *ticket;
static long done, resumed, failed;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static int keep_ticket(SSL *ssl, SSL_SESSION *session) {
    (void)ssl;
    if (ticket)
        return 0;
    ticket = session;
    return 1;
}

static int dial(int flags) {
    int fd = socket(AF_INET, SOCK_STREAM | flags, 0), one = 1;
    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (from.sin_addr.s_addr) {
        setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
        if (bind(fd, (struct sockaddr *)&from, sizeof from)) {
            close(fd);
            return -1;
        }
    }
    if (connect(fd, (struct sockaddr *)&to, sizeof to) && errno != EINPROGRESS) {
        close(fd);
        return -1;
    }
    return fd;
}

// A connection whose only purpose is its ticket, which TLS 1.3 sends behind the handshake.
static int fetch_ticket(void) {
    int fd = dial(0), r;
    char byte;
    SSL *ssl = SSL_new(ctx);
    SSL_set_fd(ssl, fd);
    if (fd < 0 || SSL_connect(ssl) != 1)
        return 0;
    for (double until = now() + 2; !ticket && now() < until;) {
        struct pollfd p = {fd, POLLIN, 0};
        if (poll(&p, 1, 100) > 0 && (fcntl(fd, F_SETFL, O_NONBLOCK), (r = SSL_read(ssl, &byte, 1)) == 0))
            break;
    }
    SSL_shutdown(ssl);
    SSL_free(ssl);
    close(fd);
    return ticket != NULL;
}

static int begin(struct conn *c, int epoll) {
    c->fd = dial(SOCK_NONBLOCK);
    if (c->fd < 0)
        return 0;
    c->ssl = SSL_new(ctx);
    SSL_set_fd(c->ssl, c->fd);
    SSL_set_connect_state(c->ssl);
    if (ticket) {  // a copy: libssl resumes a session of TLS 1.3 once
        SSL_SESSION *copy = SSL_SESSION_dup(ticket);
        SSL_set_session(c->ssl, copy);
        SSL_SESSION_free(copy);
    }
    struct epoll_event e = {EPOLLIN | EPOLLOUT | EPOLLET, {.ptr = c}};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &e) == 0;
}

static void finish(struct conn *c) {
    SSL_free(c->ssl);
    close(c->fd);
    c->fd = -1;
}

int main(int n, char **args) {
    if (n != 7 && n != 8) {
        fprintf(stderr, "usage: handshakes IP PORT SECONDS CONNS 1.2|1.3 full|resumed [SOURCE]\n");
        return 2;
    }
    double seconds = atof(args[3]);
    int conns = atoi(args[4]), epoll = epoll_create1(0);
    int version = strcmp(args[5], "1.2") ? TLS1_3_VERSION : TLS1_2_VERSION;
    int resume = !strcmp(args[6], "resumed");
    struct conn *all = calloc(conns, sizeof *all);
    struct epoll_event events[256];
    to.sin_family = AF_INET;
    to.sin_port = htons(atoi(args[2]));
    inet_pton(AF_INET, args[1], &to.sin_addr);
    if (n == 8)
        inet_pton(AF_INET, args[7], &from.sin_addr);
    ctx = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_min_proto_version(ctx, version);
    SSL_CTX_set_max_proto_version(ctx, version);
    SSL_CTX_set1_groups_list(ctx, "X25519:P-256");  // P-256: the certificate's
    if (resume) {
        SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
        SSL_CTX_sess_set_new_cb(ctx, keep_ticket);
        if (!fetch_ticket()) {
            fprintf(stderr, "no ticket\n");
            return 1;
        }
        SSL_CTX_sess_set_new_cb(ctx, NULL);
    }
    double began = now(), until = began + seconds;
    for (int i = 0; i < conns; i++)
        if (!begin(&all[i], epoll)) {
            perror("connect");
            return 1;
        }
    while (now() < until) {
        int ready = epoll_wait(epoll, events, 256, 100);
        for (int i = 0; i < ready; i++) {
            struct conn *c = events[i].data.ptr;
            int r = SSL_do_handshake(c->ssl);
            int why = r == 1 ? 0 : SSL_get_error(c->ssl, r);
            if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE)
                continue;
            if (r == 1) {
                done++;
                resumed += SSL_session_reused(c->ssl);
                SSL_shutdown(c->ssl);
            } else {
                failed++;
                ERR_clear_error();
            }
            finish(c);
            if (!begin(c, epoll)) {
                perror("connect");
                return 1;
            }
        }
    }
    printf("handshakes=%ld resumed=%ld failed=%ld seconds=%.3f\n", done, resumed, failed,
           now() - began);
    return 0;
}

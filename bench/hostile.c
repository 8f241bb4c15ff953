/* hostile MODE --port N [--host IP] [--target HOST:PORT] [--user NAME:PASSWORD-in-base64] [--path /P] [--conns N]
 *         [--every MS] [--absolute]: clients that no proxy wants, beside a load that must not feel them.
 *
 *     slow-head   --conns connections that send one byte of a request head every --every ms, and never end it
 *     slow-read   --conns connections that ask for --path and read 512 bytes of it every --every ms
 *     churn       --conns connections made every --every ms; half of a head is sent, then they are reset
 *
 * Runs until stdin ends, then prints one key=value line. A connection that the proxy ends (it may: a client that slow
 * deserves it) is counted as `ended` and made anew. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { STEP = 512 };

static struct sockaddr_in proxy;
static char head[2048];
static size_t head_bytes;
static long opened, ended, refused, bytes;

static int dial(bool small_window) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0) return refused++, -1;
    if (small_window) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &(int){4096}, sizeof(int));
    if (connect(fd, (void *)&proxy, sizeof proxy) && errno != EINPROGRESS) return close(fd), refused++, -1;
    opened++;
    return fd;
}

/* False once stdin has ended; else waits the time out. */
static bool rest(long ms) {
    struct pollfd in = {STDIN_FILENO, POLLIN, 0};
    char said[64];
    return poll(&in, 1, (int)ms) == 0 || read(STDIN_FILENO, said, sizeof said) > 0;
}

static void be_slow(long conns, long every_ms, bool reading) {
    int *fds = calloc((size_t)conns, sizeof *fds);
    size_t *at = calloc((size_t)conns, sizeof *at);
    for (long i = 0; i < conns; i++) fds[i] = -1;
    do {
        for (long i = 0; i < conns; i++) {
            if (fds[i] < 0) fds[i] = dial(reading), at[i] = 0;
            if (fds[i] < 0) continue;
            char taken[STEP];
            ssize_t n = reading && at[i] ? recv(fds[i], taken, STEP, 0)
                      : reading ? send(fds[i], head, head_bytes, MSG_NOSIGNAL)
                                : send(fds[i], head + at[i] % (head_bytes - 2), 1, MSG_NOSIGNAL);
            if (n > 0) at[i]++, bytes += n;
            bool over = n == 0 || (n < 0 && errno != EAGAIN);
            if (!over && !reading) over = recv(fds[i], taken, STEP, 0) >= 0 || errno != EAGAIN;
            if (over) close(fds[i]), fds[i] = -1, ended++;
        }
    } while (rest(every_ms));
}

static void churn(long conns, long every_ms) {
    do {
        for (long i = 0; i < conns; i++) {
            int fd = dial(false);
            if (fd < 0) continue;
            ssize_t n = send(fd, head, head_bytes / 2, MSG_NOSIGNAL);
            if (n > 0) bytes += n;
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
            close(fd);  /* a reset */
        }
    } while (rest(every_ms));
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"port", 1, 0, 'p'}, {"host", 1, 0, 'h'}, {"target", 1, 0, 't'}, {"user", 1, 0, 'u'}, {"path", 1, 0, 'P'},
        {"conns", 1, 0, 'c'}, {"every", 1, 0, 'e'}, {"absolute", 0, 0, 'a'}, {0},
    };
    const char *host = "127.0.0.1", *target = "127.0.0.1", *user = NULL, *path = "/index.html";
    long port = 0, conns = 10, every_ms = 100;
    bool absolute = false;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case 'p': port = atol(optarg); break;
        case 'h': host = optarg; break;
        case 't': target = optarg; break;
        case 'u': user = optarg; break;
        case 'P': path = optarg; break;
        case 'c': conns = atol(optarg); break;
        case 'e': every_ms = atol(optarg); break;
        case 'a': absolute = true; break;
        default: return 2;
        }
    }
    const char *name = optind < argc ? argv[optind] : "";
    bool reading = !strcmp(name, "slow-read"), churning = !strcmp(name, "churn");
    if (!port || conns < 1 || (!reading && !churning && strcmp(name, "slow-head")))
        return fprintf(stderr, "hostile slow-head|slow-read|churn --port N …\n"), 2;
    signal(SIGPIPE, SIG_IGN);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    proxy = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, host, &proxy.sin_addr);
    char credentials[600] = "";
    if (user) snprintf(credentials, sizeof credentials, "Proxy-Authorization: Basic %s\r\n", user);
    /* Slow heads repeat their fields for ever; the padding makes half of a head more than a start line. */
    head_bytes = (size_t)snprintf(head, sizeof head, "GET %s%s%s HTTP/1.1\r\nHost: %s\r\n%sX-Padding: 0123456789\r\n\r\n",
                                  absolute ? "http://" : "", absolute ? target : "", path, target, credentials);
    if (churning) churn(conns, every_ms);
    else be_slow(conns, every_ms, reading);
    printf("mode=%s opened=%ld ended=%ld refused=%ld bytes=%ld\n", name, opened, ended, refused, bytes);
    return 0;
}

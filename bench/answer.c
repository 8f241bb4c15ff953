/* answer IP PORT BYTES [PROCESSES]: says yes to whatever it is asked, at once, and asks nobody: against it the load generator shows
 * how fast it is itself. One read, one write, edge-triggered epoll; a request is taken to come in one piece. CONNECT
 * gets its 200, anything else a body of BYTES; Connection: close is obeyed. Prints "listening PORT".
 * Alone it never sleeps, for a proxy under full load does not either, and waking it would be the client's cost. So many
 * PROCESSES share the port and the cores with the client, and sleep when there is nothing to do. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { BATCH = 256, CHUNK = 64 << 10 };

static const char established[] = "HTTP/1.1 200 OK\r\n\r\n";
static char scratch[CHUNK], *response;
static size_t response_bytes;

static void on_readable(int fd) {
    ssize_t n = recv(fd, scratch, CHUNK - 1, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
        close(fd);
        return;
    }
    scratch[n] = 0;
    if (*scratch == 'C') send(fd, established, sizeof established - 1, MSG_NOSIGNAL);
    else send(fd, response, response_bytes, MSG_NOSIGNAL);
    if (n > 24 && !memcmp(scratch + n - 21, "Connection: close\r\n\r\n", 21)) close(fd);
}

/* On a core of its own, who is called there is answered there. */
static void stay_on(int listener, int core) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    if (!sched_setaffinity(0, sizeof cores, &cores))
        setsockopt(listener, SOL_SOCKET, SO_INCOMING_CPU, &core, sizeof core);
}

static int listen_at(struct sockaddr_in *at) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    setsockopt(listener, SOL_SOCKET, SO_REUSEPORT, &(int){1}, sizeof(int));
    setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));  /* those accepted inherit it */
    if (bind(listener, (struct sockaddr *)at, sizeof *at) || listen(listener, 4096)) exit((perror("answer"), 1));
    getsockname(listener, (struct sockaddr *)at, &(socklen_t){sizeof *at});
    return listener;
}

static void serve(int listener, int timeout_ms) {
    int epfd = epoll_create1(0), fd;
    struct epoll_event e = {EPOLLIN, {.fd = listener}}, batch[BATCH];
    epoll_ctl(epfd, EPOLL_CTL_ADD, listener, &e);
    for (;;) {
        int n = epoll_wait(epfd, batch, BATCH, timeout_ms);
        for (int i = 0; i < n; i++) {
            if (batch[i].data.fd != listener) {
                on_readable(batch[i].data.fd);
                continue;
            }
            while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                struct epoll_event own = {EPOLLIN | EPOLLET, {.fd = fd}};
                if (epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &own)) close(fd);
            }
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 4 && argc != 5) return fprintf(stderr, "answer IP PORT BYTES [PROCESSES]\n"), 2;
    int bytes = atoi(argv[3]), processes = argc == 5 ? atoi(argv[4]) : 0;
    response = calloc(1, (size_t)bytes + 256);
    response_bytes = (size_t)sprintf(response, "HTTP/1.1 200 OK\r\nServer: answer\r\nContent-Type: text/html\r\n"
                                               "Content-Length: %d\r\n\r\n", bytes) + (size_t)bytes;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    inet_pton(AF_INET, argv[1], &at.sin_addr);
    int listener = listen_at(&at);
    for (int i = 1; i < processes; i++) {
        if (fork()) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        stay_on(listener = listen_at(&at), i);
        serve(listener, -1);
    }
    printf("listening %d\n", ntohs(at.sin_port));
    fflush(stdout);
    if (processes) stay_on(listener, 0);
    serve(listener, processes ? -1 : 0);
}

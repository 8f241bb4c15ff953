/* load: the client for what wrk and siege cannot do. Single-threaded epoll.
 *
 *     load MODE --port N [--host IP] [--target HOST:PORT] [--user NAME:PASSWORD] [--path /P] [--length N] [--blind]
 *          [--conns N] [--seconds S | --requests N] [--rate N] [--pages FILE] [--processes N]
 *          [--distinct N] [--hang-up]
 *
 *     plain           absolute-form requests on long connections
 *     plain-new       a connection, one absolute-form request with Connection: close, EOF; and again
 *     connect-setup   a connection, CONNECT, one request in the tunnel with Connection: close, EOF; and again
 *     socks-setup     the same by SOCKS5 without credentials; --target must be an IPv4 address
 *     ping, bulk      requests in long tunnels
 *     up, both        POST of --length bytes in long tunnels; both: as many come back at the same time
 *     tls-setup       as connect-setup, with a TLS handshake in the tunnel
 *     tls-ping        as ping, through TLS
 *     idle            a tunnel per connection, one request in each, then "READY"; holds them until stdin ends
 *     crowd           the same with keep-alive connections and no tunnel
 *     rate            --rate requests a second over --conns long connections; rate-tunnel: in tunnels;
 *                     rate-setup: a tunnel for each, as connect-setup
 *     page            --conns browsers: the first line of --pages, then all others over six connections; and again
 *
 * --processes shares connections and requests out among so many, one a core: of the modes that neither hold nor time.
 * --distinct: so many paths in turn, --path with ?n=000000 and up: of the closed loop.
 * --blind leaves out CONNECT and absolute form: for a blind relay, or the origin itself.
 * A wrong status, a length other than --length (without it: than the first response's), a short read, a surplus byte,
 * a tunnel that ends: each is an error, and errors make the exit status 1. At the end of the time no request is begun
 * and those in flight are awaited: what is counted here is what the origin must have counted.
 * Connection: close must be obeyed: were the client the first to close, its ports would stay in TIME_WAIT, and the
 * search for a free one would be measured (seen: 14 100 connections a second at most, a port each, half of the range).
 * --hang-up: of page alone, for a proxy that does not obey: the client is the first to close, at the end of a page.
 * The one line printed is key=value; bytes are those of response bodies; latency runs from connect (one request a
 * connection), from the moment a request was due (rate), from the first connect (page) or from the request, to the
 * last byte of the response. */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "conn.h"

enum {
    BATCH = 256,
    STALL_NS = 1000000000,  /* times STALLS without one response: what is in flight has failed */
    STALLS = 10,
};

static const struct mode {
    const char *name;
    void (*run)(void);
    bool tunnel, keep, hold, tls, post, socks;
} modes[] = {
    {"plain", run_closed, .keep = true},
    {"plain-new", .run = run_closed},
    {"connect-setup", run_closed, .tunnel = true},
    {"socks-setup", run_closed, .tunnel = true, .socks = true},
    {"ping", run_closed, .tunnel = true, .keep = true},
    {"bulk", run_closed, .tunnel = true, .keep = true},
    {"up", run_closed, .tunnel = true, .keep = true, .post = true},
    {"both", run_closed, .tunnel = true, .keep = true, .post = true},
    {"tls-setup", run_closed, .tunnel = true, .tls = true},
    {"tls-ping", run_closed, .tunnel = true, .keep = true, .tls = true},
    {"idle", run_closed, .tunnel = true, .keep = true, .hold = true},
    {"crowd", run_closed, .keep = true, .hold = true},
    {"rate", run_rate, .keep = true},
    {"rate-tunnel", run_rate, .tunnel = true, .keep = true},
    {"rate-setup", run_rate, .tunnel = true},
    {"page", run_page, .keep = true},
};

static const struct mode *mode;

struct options opt = {.host = "127.0.0.1", .target = "127.0.0.1:80", .path = "/index.html", .conns = 1,
                      .requests_max = -1, .length = -1, .processes = 1, .seconds = 3, .rate = 100};
struct scheduler on;
struct histogram latency;
bool stopping;
int epfd;
long begun, done, errors, active;
uint64_t body_bytes, up_bytes, ended_ns;
char first_error[128] = "none";

void die(const char *reason) {
    fprintf(stderr, "load: %s\n", reason);
    exit(2);
}

/* ---- the loop ---- */

bool turn(uint64_t until_ns) {
    static uint64_t tick;
    static long done_before = -1;
    static int stalls;
    struct epoll_event batch[BATCH];
    uint64_t now = now_ns(), rest = until_ns > now ? until_ns - now : 0;
    struct timespec most = {(time_t)(rest / 1000000000), (long)(rest % 1000000000)};
    int n = epoll_pwait2(epfd, batch, BATCH, &most, NULL);
    for (int i = 0; i < n; i++) conn_event(batch[i].data.ptr, batch[i].events);
    now = now_ns();
    if (!tick) tick = now + STALL_NS;
    if (now < tick) return true;
    tick = now + STALL_NS;
    stalls = done == done_before ? stalls + 1 : 0;
    done_before = done;
    return stalls < STALLS;
}

void fail_all(struct conn *all, long n) {
    for (long i = 0; i < n; i++)
        if (all[i].fd >= 0 && all[i].phase != READY) fail(&all[i], all[i].phase == CLOSING ? "not_closed_in_%d_s" : "no_answer_in_%d_s", STALLS);
}

/* ---- several processes: each runs its share, the first one adds up ---- */

struct result {
    long done, errors;
    uint64_t body_bytes, up_bytes;
    double took;
    struct histogram latency;
    char first_error[sizeof first_error];
};

static double run_alone(void) {
    if ((epfd = epoll_create1(EPOLL_CLOEXEC)) < 0) die("no epoll");
    uint64_t began = now_ns();
    mode->run();
    return (double)((ended_ns ? ended_ns : now_ns()) - began) / 1e9;
}

static long share(long all, long n, long i) { return all / n + (i < all % n); }

static double run_shared(long n) {
    struct result *results = mmap(NULL, (size_t)n * sizeof *results, PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (results == MAP_FAILED) die("no memory");
    for (long i = 0; i < n; i++) {
        struct result *mine = &results[i];
        mine->errors = 1;  /* until it says otherwise */
        strcpy(mine->first_error, "a_process_died");
        if (fork()) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        opt.conns = share(opt.conns, n, i);
        if (opt.requests_max >= 0) opt.requests_max = share(opt.requests_max, n, i);
        mine->took = run_alone();
        mine->latency = latency;
        mine->done = done, mine->body_bytes = body_bytes, mine->up_bytes = up_bytes;
        strcpy(mine->first_error, first_error);
        mine->errors = errors;
        _exit(0);
    }
    while (wait(NULL) > 0) {}
    double took = 0;
    for (long i = 0; i < n; i++) {
        struct result *one = &results[i];
        if (one->errors && !errors) strcpy(first_error, one->first_error);
        if (one->took > took) took = one->took;
        done += one->done, errors += one->errors, body_bytes += one->body_bytes, up_bytes += one->up_bytes;
        histogram_merge(&latency, &one->latency);
    }
    return took;
}

static void print_result(double took) {
    printf("mode=%s conns=%ld requests=%ld errors=%ld first_error=%s seconds=%.3f bytes=%llu up_bytes=%llu rps=%.1f"
           " mib_per_s=%.1f",
           mode->name, opt.conns, done, errors, first_error, took, (unsigned long long)body_bytes,
           (unsigned long long)up_bytes, (double)done / took, (double)(body_bytes + up_bytes) / took / (1 << 20));
    if (mode->run == run_rate) print_rate();
    if (mode->run == run_page) print_page(took);
    double mean = latency.count ? (double)latency.sum_ns / (double)latency.count / 1e3 : 0;
    printf(" latency_min_us=%.1f latency_avg_us=%.1f latency_p50_us=%.1f latency_p95_us=%.1f latency_p99_us=%.1f"
           " latency_p999_us=%.1f latency_max_us=%.1f\n",
           (double)latency.min_ns / 1e3, mean, histogram_quantile_us(&latency, .50), histogram_quantile_us(&latency, .95),
           histogram_quantile_us(&latency, .99), histogram_quantile_us(&latency, .999), (double)latency.max_ns / 1e3);
}

/* ---- options ---- */

static void read_options(int argc, char **argv) {
    static const struct option options[] = {
        {"port", 1, 0, 'p'},  {"host", 1, 0, 'h'},   {"target", 1, 0, 't'},  {"user", 1, 0, 'u'},
        {"path", 1, 0, 'P'},  {"length", 1, 0, 'l'}, {"blind", 0, 0, 'b'},   {"conns", 1, 0, 'c'},
        {"seconds", 1, 0, 's'}, {"requests", 1, 0, 'r'}, {"rate", 1, 0, 'R'}, {"pages", 1, 0, 'g'},
        {"processes", 1, 0, 'n'}, {"distinct", 1, 0, 'd'}, {"hang-up", 0, 0, 'a'}, {0},
    };
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case 'p': opt.port = atol(optarg); break;
        case 'h': opt.host = optarg; break;
        case 't': opt.target = optarg; break;
        case 'u': opt.user = optarg; break;
        case 'P': opt.path = optarg; break;
        case 'l': opt.length = atoll(optarg); break;
        case 'b': opt.blind = true; break;
        case 'c': opt.conns = atol(optarg); break;
        case 's': opt.seconds = atof(optarg); break;
        case 'r': opt.requests_max = atol(optarg); break;
        case 'R': opt.rate = atof(optarg); break;
        case 'g': opt.pages = optarg; break;
        case 'n': opt.processes = atol(optarg); break;
        case 'd': opt.distinct = atol(optarg); break;
        case 'a': opt.hang_up = true; break;
        default: exit(2);
        }
    }
    for (size_t i = 0; optind < argc && i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(argv[optind], modes[i].name)) mode = &modes[i];
    if (!mode) die("name a mode; the head of bench/load/main.c lists them");
    if (opt.port < 1 || opt.port > 65535 || opt.conns < 1) die("--port and --conns must be positive");
    if (mode->post && opt.length < 1) die("--length must be positive");
    if (mode->run == run_rate && opt.rate <= 0) die("--rate must be positive");
    if (mode->run == run_page && !opt.pages) die("--pages must name a file");
    if (opt.processes < 1 || opt.processes > opt.conns) die("--processes must be positive, and at most --conns");
    if (opt.processes > 1 && (mode->run != run_closed || mode->hold)) die("this mode knows one process only");
    opt.tunnel = mode->tunnel, opt.absolute = !mode->tunnel, opt.keep = mode->keep;
    opt.hold = mode->hold, opt.tls = mode->tls, opt.post = mode->post, opt.socks = mode->socks;
    if (opt.hold) opt.requests_max = opt.conns;
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    conn_setup();
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_TIMERSLACK, 1000UL);  /* ns; the default, 50 µs, would be read as latency at a fixed rate */
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    print_result(opt.processes > 1 ? run_shared(opt.processes) : run_alone());
    return errors || !done;
}

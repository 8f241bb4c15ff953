/* A page as a browser fetches it: the document on one connection, then everything it names over six, each taking the
 * next resource when the last has come. The next page begins with new connections. The last six requests say
 * Connection: close, one on each connection, so that no port of the client's rests in TIME_WAIT. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "conn.h"

enum { PER_BROWSER = 6, MOST = 256 };

struct browser {
    struct conn conns[PER_BROWSER];
    int next, left;          /* resources to ask for, and to come */
    bool failed;
    uint64_t began_ns;
};

static struct request resources[MOST];
static int n_resources;
static struct browser *browsers;
static struct histogram pages;
static double sum_ms, sum_squared_ms;
static uint64_t fastest_ns = UINT64_MAX;
static long failed;

static void ask(struct conn *c) {
    struct browser *b = c->owner;
    if (b->next >= n_resources) return;
    begun++;
    conn_send(c, &resources[b->next++], now_ns());
}

static void open_page(struct browser *b) {
    if (stopping) return;
    b->next = 0;
    b->left = n_resources;
    b->failed = false;
    b->began_ns = now_ns();
    conn_open(&b->conns[0]);
}

static bool is_open(struct browser *b) {
    for (int i = 0; i < PER_BROWSER; i++)
        if (b->conns[i].fd >= 0) return true;
    return false;
}

static void on_closed(struct conn *c) {
    struct browser *b = c->owner;
    if (!b->left && !is_open(b)) open_page(b);
}

static void on_response(struct conn *c) {
    struct browser *b = c->owner;
    if (--b->left == n_resources - 1)
        for (int i = 1; i < PER_BROWSER; i++) conn_open(&b->conns[i]);
    if (!b->left) {
        uint64_t took = now_ns() - b->began_ns;
        histogram_add(&pages, took);
        if (took < fastest_ns) fastest_ns = took;
        sum_ms += (double)took / 1e6;
        sum_squared_ms += (double)took / 1e6 * ((double)took / 1e6);
    }
    if (c->phase == READY) ask(c);
    else if (opt.hang_up) {      /* CLOSING, which its server leaves to us */
        conn_close(c);
        on_closed(c);
    }
}

/* A page with a broken connection is given up; its other connections end, and the next page begins. */
static void give_up(struct browser *b) {
    failed++;
    for (int i = 0; i < PER_BROWSER; i++) conn_close(&b->conns[i]);
    open_page(b);
}

static bool is_broken(struct browser *b) {
    if (!b->left || b->next == 0) return false;
    int open = 0;
    for (int i = 0; i < PER_BROWSER; i++) open += b->conns[i].fd >= 0 && b->conns[i].phase != CLOSING;
    return open == 0 || (b->next < n_resources && open < (b->left == n_resources ? 1 : PER_BROWSER));
}

static void read_resources(void) {
    char line[512], path[400];
    long long bytes;
    FILE *file = fopen(opt.pages, "r");
    if (!file) die("cannot read --pages");
    struct { char *path; int64_t length; } rows[MOST];
    for (; n_resources < MOST && fgets(line, sizeof line, file) && sscanf(line, "%399s %lld", path, &bytes) == 2;
         n_resources++)
        rows[n_resources].path = strdup(path), rows[n_resources].length = bytes;
    fclose(file);
    if (n_resources <= PER_BROWSER) die("--pages: too few lines of PATH LENGTH");
    for (int i = 0; i < n_resources; i++)
        resources[i] = build_request(rows[i].path, 0, rows[i].length, i >= n_resources - PER_BROWSER);
}

void print_page(double took) {
    double n = (double)pages.count, mean = n ? sum_ms / n : 0;
    double variance = n > 1 ? (sum_squared_ms - n * mean * mean) / (n - 1) : 0;
    printf(" pages=%llu pages_failed=%ld pages_per_s=%.2f page_avg_ms=%.3f page_min_ms=%.3f page_max_ms=%.3f"
           " page_sd_ms=%.3f page_p95_ms=%.3f page_error_percent=%.3f",
           (unsigned long long)pages.count, failed, n / took, mean, n ? (double)fastest_ns / 1e6 : 0,
           (double)pages.max_ns / 1e6, variance > 0 ? sqrt(variance) : 0, histogram_quantile_us(&pages, .95) / 1e3,
           n + (double)failed ? 100 * (double)failed / (n + (double)failed) : 0);
}

void run_page(void) {
    on = (struct scheduler){ask, on_response, on_closed};
    read_resources();
    if (!(browsers = calloc((size_t)opt.conns, sizeof *browsers))) die("no memory");
    for (long i = 0; i < opt.conns; i++) {
        for (int j = 0; j < PER_BROWSER; j++) {
            browsers[i].conns[j].fd = -1;
            browsers[i].conns[j].owner = &browsers[i];
        }
        open_page(&browsers[i]);
    }
    uint64_t end = now_ns() + (uint64_t)(opt.seconds * 1e9);
    while (active || !stopping) {
        bool alive = turn(now_ns() + 100000000);
        if (now_ns() >= end) stopping = true;
        if (errors)
            for (long i = 0; i < opt.conns; i++)
                if (is_broken(&browsers[i])) give_up(&browsers[i]);
        if (alive && (active || !stopping)) continue;
        for (long i = 0; i < opt.conns; i++) fail_all(browsers[i].conns, PER_BROWSER);
        if (!alive) return;
    }
}

/* A latency histogram: 64 steps in every power of two of nanoseconds, so a quantile is at most 1.6 % too high. */
#pragma once
#include <stdint.h>

enum { STEP_BITS = 6, STEPS = 1 << STEP_BITS, OCTAVES = 38 };  /* up to 2^43 ns: more than two hours */

struct histogram {
    uint64_t count, sum_ns, min_ns, max_ns, at[OCTAVES * STEPS];
};

static inline void histogram_add(struct histogram *h, uint64_t ns) {
    int octave = 63 - __builtin_clzll(ns | STEPS) - STEP_BITS;  /* 0: below 2 * STEPS the steps are exact */
    uint64_t slot = (uint64_t)octave * STEPS + (ns >> octave);
    h->at[slot < OCTAVES * STEPS ? slot : OCTAVES * STEPS - 1]++;
    if (!h->count || ns < h->min_ns) h->min_ns = ns;
    h->count++;
    h->sum_ns += ns;
    if (ns > h->max_ns) h->max_ns = ns;
}

static inline void histogram_merge(struct histogram *h, const struct histogram *other) {
    for (int slot = 0; slot < OCTAVES * STEPS; slot++) h->at[slot] += other->at[slot];
    if (other->count && (!h->count || other->min_ns < h->min_ns)) h->min_ns = other->min_ns;
    h->count += other->count;
    h->sum_ns += other->sum_ns;
    if (other->max_ns > h->max_ns) h->max_ns = other->max_ns;
}

/* The latency that `part` of all did not exceed, in µs; 0 of none. */
static inline double histogram_quantile_us(const struct histogram *h, double part) {
    uint64_t below = 0, wanted = (uint64_t)(part * (double)h->count);
    for (int slot = 0; slot < OCTAVES * STEPS; slot++) {
        if ((below += h->at[slot]) <= wanted) continue;
        int octave = slot < 2 * STEPS ? 0 : slot / STEPS - 1;
        uint64_t upper = ((uint64_t)(slot - octave * STEPS + 1) << octave) - 1;
        return (double)(upper < h->max_ns ? upper : h->max_ns) / 1e3;
    }
    return (double)h->max_ns / 1e3;
}

/* One deliberate fault for the relay, so that `python -m bench compare` can show that it would be caught. Without
 * -DBAD_… there is none, and spoil() is nothing. */
#pragma once
#define USE(p) __asm__ volatile("" ::"r"(p) : "memory")  /* or the compiler would leave the fault out */

#if defined BAD_sleep
/* Every 16th read waits for 2 ms: the rate falls. */
static inline void spoil(char *bytes, ssize_t n, int is_request) {
    static unsigned calls;
    (void)bytes, (void)n, (void)is_request;
    if (!(++calls % 16)) usleep(2000);
}
#elif defined BAD_leak
/* 1 KiB a request is never given back. */
static inline void spoil(char *bytes, ssize_t n, int is_request) {
    (void)bytes;
    if (!is_request || n <= 0) return;
    char *kept = memset(malloc(1024), 1, 1024);
    USE(kept);
}
#elif defined BAD_copy
/* What was read is copied once more before it is sent. */
static inline void spoil(char *bytes, ssize_t n, int is_request) {
    static char copy[64 << 10];
    (void)is_request;
    if (n <= 0) return;
    memcpy(copy, bytes, (size_t)n);
    USE(copy);
    memcpy(bytes, copy, (size_t)n);
}
#elif defined BAD_status
/* One answer in 10 000 says 500. */
static inline void spoil(char *bytes, ssize_t n, int is_request) {
    static unsigned answers;
    if (!is_request && n > 12 && !memcmp(bytes, "HTTP/1.1 200", 12) && !(++answers % 10000)) memcpy(bytes + 9, "500", 3);
}
#else
#define spoil(bytes, n, is_request) ((void)0)
#endif

/* The little of io_uring that `sends` needs: a ring of sends, by system calls alone.
 *
 * The structures are the kernel's (include/uapi/linux/io_uring.h), declared here because a wheel is
 * built with older headers. Nothing here polls, waits, or runs in a thread of the kernel. */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    RING_SETUP = 425, RING_ENTER = 426,         /* the same numbers on every architecture but alpha */
    RING_SUBMIT_ALL = 1 << 7,                   /* one that fails does not stop those behind it */
    RING_SINGLE_MMAP = 1 << 0, RING_CQE_SKIP = 1 << 11,
    RING_OP_SEND = 26, RING_SKIP_SUCCESS = 1 << 6,
    RING_OFF_SQES = 0x10000000,
};

struct ring_params {
    uint32_t sq_entries, cq_entries, flags, sq_thread_cpu, sq_thread_idle, features, wq_fd, resv[3];
    struct { uint32_t head, tail, mask, entries, flags, dropped, array, resv; uint64_t addr; } sq;
    struct { uint32_t head, tail, mask, entries, overflow, cqes, flags, resv; uint64_t addr; } cq;
};

struct ring_sqe {
    uint8_t opcode, flags;
    uint16_t ioprio;
    int32_t fd;
    uint64_t off, addr;
    uint32_t len, msg_flags;
    uint64_t user_data, rest[3];
};

struct ring_cqe {
    uint64_t user_data;
    int32_t res;
    uint32_t flags;
};

struct ring {
    int fd;                                     /* close-on-exec; the kernel sets that */
    uint32_t *sq_head, *sq_tail, *cq_head, *cq_tail, sq_mask, cq_mask;
    struct ring_sqe *sqes;
    struct ring_cqe *cqes;
    void *rings;
    size_t rings_size, sqes_size;
};

static inline void ring_close(struct ring *r) {
    if (r->rings) munmap(r->rings, r->rings_size);
    if (r->sqes) munmap(r->sqes, r->sqes_size);
    if (r->fd >= 0) close(r->fd);
    memset(r, 0, sizeof *r);
    r->fd = -1;
}

static inline void *ring_map(int fd, size_t size, off_t at) {
    void *where = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, at);
    if (where == MAP_FAILED) return NULL;
    madvise(where, size, MADV_DONTFORK);
    return where;
}

/* 0, or -errno and no ring. */
static inline int ring_open(struct ring *r, uint32_t entries) {
    struct ring_params p;
    size_t sq_size, cq_size;
    char *base;
    memset(&p, 0, sizeof p);
    memset(r, 0, sizeof *r);
    p.flags = RING_SUBMIT_ALL;
    r->fd = (int)syscall(RING_SETUP, entries, &p);
    if (r->fd < 0) return -errno;
    if (!(p.features & RING_SINGLE_MMAP) || !(p.features & RING_CQE_SKIP)) return ring_close(r), -ENOSYS;
    sq_size = p.sq.array + p.sq_entries * sizeof(uint32_t);
    cq_size = p.cq.cqes + p.cq_entries * sizeof(struct ring_cqe);
    r->rings_size = sq_size > cq_size ? sq_size : cq_size;
    r->sqes_size = p.sq_entries * sizeof(struct ring_sqe);
    r->rings = ring_map(r->fd, r->rings_size, 0);
    r->sqes = ring_map(r->fd, r->sqes_size, RING_OFF_SQES);
    if (!r->rings || !r->sqes) return ring_close(r), -ENOMEM;
    base = r->rings;
    r->sq_head = (uint32_t *)(base + p.sq.head);
    r->sq_tail = (uint32_t *)(base + p.sq.tail);
    r->cq_head = (uint32_t *)(base + p.cq.head);
    r->cq_tail = (uint32_t *)(base + p.cq.tail);
    r->sq_mask = p.sq_entries - 1;
    r->cq_mask = p.cq_entries - 1;
    r->cqes = (struct ring_cqe *)(base + p.cq.cqes);
    for (uint32_t i = 0; i < p.sq_entries; i++) ((uint32_t *)(base + p.sq.array))[i] = i;
    return 0;
}

/* Fills the i-th entry of the next submission. MSG_WAITALL makes a short send a failure, which alone
 * is reported; MSG_DONTWAIT keeps it from being tried again later. */
static inline void ring_send(struct ring *r, uint32_t i, int fd, const void *data, uint32_t n) {
    struct ring_sqe *e = &r->sqes[(*r->sq_tail + i) & r->sq_mask];
    memset(e, 0, sizeof *e);
    e->opcode = RING_OP_SEND;
    e->flags = RING_SKIP_SUCCESS;
    e->fd = fd;
    e->addr = (uint64_t)(uintptr_t)data;
    e->len = n;
    e->msg_flags = MSG_NOSIGNAL | MSG_DONTWAIT | MSG_WAITALL;
    e->user_data = i;
}

/* Submits n entries. Returns how many the kernel has taken, all of them done; the others are
 * withdrawn. */
static inline uint32_t ring_submit(struct ring *r, uint32_t n) {
    uint32_t begin = *r->sq_tail, head;
    __atomic_store_n(r->sq_tail, begin + n, __ATOMIC_RELEASE);
    while (syscall(RING_ENTER, r->fd, n, 0, 0, NULL, 0) < 0 && errno == EINTR) {}
    head = __atomic_load_n(r->sq_head, __ATOMIC_ACQUIRE);
    __atomic_store_n(r->sq_tail, head, __ATOMIC_RELEASE);
    return head - begin;
}

/* The next report of an entry that fell short. 0: none. */
static inline int ring_report(struct ring *r, uint32_t *i, int *result) {
    uint32_t head = *r->cq_head;
    struct ring_cqe *c = &r->cqes[head & r->cq_mask];
    if (head == __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE)) return 0;
    *i = (uint32_t)c->user_data;
    *result = c->res;
    __atomic_store_n(r->cq_head, head + 1, __ATOMIC_RELEASE);
    return 1;
}

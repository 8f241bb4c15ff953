"""A robust mutex (pthreads(7)) in memory that several processes share.

If a process is killed while it holds the mutex, the next one that locks it gets EOWNERDEAD,
repairs the data that the mutex guards, and calls pthread_mutex_consistent.
"""

cdef extern from "<errno.h>" nogil:
    int EOWNERDEAD

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_mutexattr_t:
        pass
    int PTHREAD_PROCESS_SHARED, PTHREAD_MUTEX_ROBUST
    int pthread_mutexattr_init(pthread_mutexattr_t *)
    int pthread_mutexattr_setpshared(pthread_mutexattr_t *, int)
    int pthread_mutexattr_setrobust(pthread_mutexattr_t *, int)
    int pthread_mutex_init(pthread_mutex_t *, const pthread_mutexattr_t *)
    int pthread_mutex_lock(pthread_mutex_t *)
    int pthread_mutex_unlock(pthread_mutex_t *)
    int pthread_mutex_consistent(pthread_mutex_t *)

cdef extern from *:
    """
    /* A process is killed between two instructions, and the processor keeps its stores in
       program order for the process itself. So only the compiler must not reorder them. */
    #define ordered() __asm__ __volatile__("" ::: "memory")
    """
    void ordered() noexcept nogil

# Sets up a mutex in shared memory. False: the system has no robust mutexes.
cdef inline bint make_robust(pthread_mutex_t *mutex) noexcept nogil:
    cdef pthread_mutexattr_t attributes
    pthread_mutexattr_init(&attributes)
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED)
    return (pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0
            and pthread_mutex_init(mutex, &attributes) == 0)

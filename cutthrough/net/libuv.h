/* The part of libuv's interface that uv_loop needs. uvloop has libuv inside and exports it. */
#ifndef CUTTHROUGH_LIBUV_H
#define CUTTHROUGH_LIBUV_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

enum { LIBUV_IDLE = 6, LIBUV_PREPARE = 9 }; /* uv_handle_type of libuv 1.x */

typedef void (*libuv_callback)(void *handle);

struct libuv {
    int (*backend_fd)(const void *loop);
    int (*backend_timeout)(const void *loop);
    uint64_t (*now)(const void *loop);
    void (*update_time)(void *loop);
    size_t (*handle_size)(int kind);
    int (*prepare_init)(void *loop, void *handle);
    int (*prepare_start)(void *handle, libuv_callback callback);
    int (*idle_init)(void *loop, void *handle);
    int (*idle_start)(void *handle, libuv_callback callback);
    int (*idle_stop)(void *handle);
    void (*unref)(void *handle);
    void (*close)(void *handle, libuv_callback callback);
};

/* From the library at `path`, which is loaded already. 0, or -1: a function is missing. */
static int libuv_load(struct libuv *uv, const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        return -1;
#define LOAD(name) (*(void **)&uv->name = dlsym(library, "uv_" #name))
    int whole = LOAD(backend_fd) && LOAD(backend_timeout) && LOAD(now) && LOAD(update_time)
        && LOAD(handle_size) && LOAD(prepare_init) && LOAD(prepare_start) && LOAD(idle_init) && LOAD(idle_start)
        && LOAD(idle_stop) && LOAD(unref) && LOAD(close);
#undef LOAD
    dlclose(library); /* uvloop holds it */
    return whole ? 0 : -1;
}

#endif

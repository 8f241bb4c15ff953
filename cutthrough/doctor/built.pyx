# cython: language_level=3
"""The build of the compiled modules: setup.py defines the mode and the flags, the
compiler the rest."""

cdef extern from *:
    """
    #ifndef CUTTHROUGH_MODE
    #define CUTTHROUGH_MODE "unknown"
    #define CUTTHROUGH_FLAGS ""
    #define CUTTHROUGH_LIBSSL ""
    #endif
    #ifdef __VERSION__
    #define BUILT_COMPILER __VERSION__
    #else
    #define BUILT_COMPILER "unknown"
    #endif
    #ifdef __OPTIMIZE__
    #define BUILT_OPTIMISED 1
    #else
    #define BUILT_OPTIMISED 0
    #endif
    #ifdef CUTTHROUGH_DEBUG
    #define BUILT_ASSERTIONS 1
    #else
    #define BUILT_ASSERTIONS 0
    #endif
    #ifdef CYTHON_TRACE
    #define BUILT_LINE_EVENTS 1
    #else
    #define BUILT_LINE_EVENTS 0
    #endif
    #ifdef __SANITIZE_ADDRESS__
    #define BUILT_SANITIZED 1
    #else
    #define BUILT_SANITIZED 0
    #endif
    #ifdef __clang__
    #define BUILT_WITH "clang"
    #else
    #define BUILT_WITH "gcc"
    #endif
    """
    const char *CUTTHROUGH_MODE
    const char *CUTTHROUGH_FLAGS
    const char *CUTTHROUGH_LIBSSL
    const char *BUILT_COMPILER
    const char *BUILT_WITH
    int BUILT_OPTIMISED, BUILT_ASSERTIONS, BUILT_LINE_EVENTS, BUILT_SANITIZED

mode = CUTTHROUGH_MODE.decode()
flags = CUTTHROUGH_FLAGS.decode()
libssl = CUTTHROUGH_LIBSSL.decode()
compiler = f"{BUILT_WITH.decode()} {BUILT_COMPILER.decode()}"
optimised = bool(BUILT_OPTIMISED)
assertions = bool(BUILT_ASSERTIONS)
line_events = bool(BUILT_LINE_EVENTS)
sanitized = bool(BUILT_SANITIZED)

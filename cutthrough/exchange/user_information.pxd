"""User information of URLs, for stores and the log."""

cdef bint may_have_user(const char *data, size_t n) noexcept
cdef const char *user_at(const char *data, const char *at, const char *end,
                         const char **user_end) noexcept

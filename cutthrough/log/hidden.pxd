"""URLs of requests in lines of the log, without the values of configured keys (R81)."""

from cutthrough.log.text cimport Quote

# As put_escaped, with a mark; also without the user information of a URL (R80).
cdef char *put_hidden(char *p, const char *data, size_t n, Quote quote, const char *last
                      ) except NULL

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A batch as a table that SQLite reads: `INSERT INTO flows (…) SELECT … FROM given`.

It is a virtual table (https://www.sqlite.org/vtab.html) and this module is a run-time
extension (https://www.sqlite.org/loadext.html), so it uses the library that Python's sqlite3
uses, whichever that is. `executemany` takes twice as long for each row: it needs objects for
cells, looks for adapters, copies texts and takes a lock for each.
"""

from libc.stdlib cimport calloc, free

from cutthrough.tape.batch cimport BLOB, NUMBER, TEXT, Batch, Cell

cdef extern from *:
    """
    #include <sqlite3ext.h>
    SQLITE_EXTENSION_INIT1

    /* Of the connection that loads the module now. */
    static _Thread_local sqlite3 *loading;

    __attribute__((visibility("default")))
    int sqlite3_extension_init(sqlite3 *base, char **error,
                               const sqlite3_api_routines *routines) {
        (void)error;
        SQLITE_EXTENSION_INIT2(routines);
        loading = base;
        return SQLITE_OK;
    }

    """
    ctypedef long long sqlite3_int64
    ctypedef struct sqlite3:
        pass
    ctypedef struct sqlite3_context:
        pass
    ctypedef struct sqlite3_value:
        pass
    ctypedef struct sqlite3_index_info:
        double estimatedCost
    ctypedef struct sqlite3_vtab:
        pass
    ctypedef struct sqlite3_vtab_cursor:
        sqlite3_vtab *pVtab
    ctypedef struct sqlite3_module:
        int iVersion
        int (*xConnect)(sqlite3 *, void *, int, const char *const *, sqlite3_vtab **,
                        char **) noexcept nogil
        int (*xBestIndex)(sqlite3_vtab *, sqlite3_index_info *) noexcept nogil
        int (*xDisconnect)(sqlite3_vtab *) noexcept nogil
        int (*xOpen)(sqlite3_vtab *, sqlite3_vtab_cursor **) noexcept nogil
        int (*xClose)(sqlite3_vtab_cursor *) noexcept nogil
        int (*xFilter)(sqlite3_vtab_cursor *, int, const char *, int,
                       sqlite3_value **) noexcept nogil
        int (*xNext)(sqlite3_vtab_cursor *) noexcept nogil
        int (*xEof)(sqlite3_vtab_cursor *) noexcept nogil
        int (*xColumn)(sqlite3_vtab_cursor *, sqlite3_context *, int) noexcept nogil
        int (*xRowid)(sqlite3_vtab_cursor *, sqlite3_int64 *) noexcept nogil
    sqlite3 *loading
    int SQLITE_OK, SQLITE_NOMEM, SQLITE_UTF8
    int sqlite3_create_module_v2(sqlite3 *base, const char *name, const sqlite3_module *module,
                                 void *own, void (*destroy)(void *) noexcept nogil) nogil
    int sqlite3_declare_vtab(sqlite3 *base, const char *table) nogil
    void sqlite3_result_int64(sqlite3_context *to, sqlite3_int64 number) nogil
    void sqlite3_result_null(sqlite3_context *to) nogil
    void sqlite3_result_text64(sqlite3_context *to, const char *data, size_t n,
                               void (*)(void *) noexcept nogil, int encoding) nogil
    void sqlite3_result_blob64(sqlite3_context *to, const char *data, size_t n,
                               void (*)(void *) noexcept nogil) nogil

cdef enum:
    MOST_COLUMNS = 200


# What a connection's table shows now; the connection frees it
cdef struct Lent:
    const Cell *cells
    const char *bytes
    size_t n_rows
    int width
    char[MOST_COLUMNS * 5 + 20] declared

cdef struct Table:
    sqlite3_vtab base           # SQLite's part comes first
    const Lent *lent

cdef struct Cursor:
    sqlite3_vtab_cursor base
    const Lent *lent
    const Cell *row
    size_t left


cdef class BatchTable:
    """The table `given` of a connection, with the columns c0, c1, …"""
    cdef object base
    cdef Lent *lent

    def __cinit__(self, base, int width):
        """Raises what the connection raises if it loads no extensions: AttributeError,
        sqlite3.Error."""
        cdef Lent *lent
        cdef bytes declared = f"CREATE TABLE given ({', '.join(names_of(width))})".encode()
        if len(declared) >= <Py_ssize_t>sizeof(lent.declared):
            raise ValueError("too many columns")
        base.enable_load_extension(True)
        try:
            base.load_extension(__file__)
        finally:
            base.enable_load_extension(False)
        lent = <Lent *>calloc(1, sizeof(Lent))
        if lent == NULL:
            raise MemoryError
        lent.width = width
        lent.declared[:len(declared)] = declared
        if sqlite3_create_module_v2(loading, b"given", &MODULE, lent, free) != SQLITE_OK:
            raise MemoryError                       # it has freed the memory
        self.base, self.lent = base, lent

    def insert(self, str statement, Batch batch):
        """Executes a statement that reads the table, which has these rows. Returns how many
        rows it has changed. Raises sqlite3.Error."""
        if batch.width != self.lent.width:
            raise ValueError(f"{batch.width} cells for {self.lent.width} columns")
        self.lent.cells, self.lent.bytes = batch.cells + batch.begin, batch.bytes
        self.lent.n_rows = len(batch)
        try:
            return self.base.execute(statement).rowcount
        finally:
            self.lent.n_rows = 0


def names_of(width):
    """The columns of the table."""
    return [f"c{i}" for i in range(width)]


cdef int connect(sqlite3 *base, void *lent, int n, const char *const *words,
                 sqlite3_vtab **made, char **error) noexcept nogil:
    cdef Table *table = <Table *>calloc(1, sizeof(Table))
    if table == NULL:
        return SQLITE_NOMEM
    table.lent = <const Lent *>lent
    made[0] = &table.base
    return sqlite3_declare_vtab(base, table.lent.declared)


cdef int plan(sqlite3_vtab *table, sqlite3_index_info *info) noexcept nogil:
    info.estimatedCost = 1000
    return SQLITE_OK


cdef int disconnect(sqlite3_vtab *table) noexcept nogil:
    free(table)
    return SQLITE_OK


cdef int open_cursor(sqlite3_vtab *table, sqlite3_vtab_cursor **made) noexcept nogil:
    cdef Cursor *cursor = <Cursor *>calloc(1, sizeof(Cursor))
    if cursor == NULL:
        return SQLITE_NOMEM
    cursor.lent = (<Table *>table).lent
    made[0] = &cursor.base
    return SQLITE_OK


cdef int close_cursor(sqlite3_vtab_cursor *cursor) noexcept nogil:
    free(cursor)
    return SQLITE_OK


cdef int rewind(sqlite3_vtab_cursor *cursor, int index, const char *name, int n,
                sqlite3_value **values) noexcept nogil:
    cdef Cursor *own = <Cursor *>cursor
    own.row = own.lent.cells
    own.left = own.lent.n_rows
    return SQLITE_OK


cdef int step(sqlite3_vtab_cursor *cursor) noexcept nogil:
    cdef Cursor *own = <Cursor *>cursor
    own.row += own.lent.width
    own.left -= 1
    return SQLITE_OK


cdef int is_over(sqlite3_vtab_cursor *cursor) noexcept nogil:
    return (<Cursor *>cursor).left == 0


cdef int show(sqlite3_vtab_cursor *cursor, sqlite3_context *to, int column) noexcept nogil:
    cdef Cursor *own = <Cursor *>cursor
    cdef const Cell *cell = own.row + column
    # The memory stays as it is until the statement ends
    if cell.kind == NUMBER:
        sqlite3_result_int64(to, cell.number)
    elif cell.kind == TEXT:
        sqlite3_result_text64(to, own.lent.bytes + cell.number, cell.n, NULL, SQLITE_UTF8)
    elif cell.kind == BLOB:
        sqlite3_result_blob64(to, own.lent.bytes + cell.number, cell.n, NULL)
    else:
        sqlite3_result_null(to)
    return SQLITE_OK


cdef int number_of(sqlite3_vtab_cursor *cursor, sqlite3_int64 *number) noexcept nogil:
    number[0] = <sqlite3_int64>(<Cursor *>cursor).left
    return SQLITE_OK


# Without xCreate: a table of every connection that has the module
cdef sqlite3_module MODULE
MODULE.xConnect, MODULE.xBestIndex, MODULE.xDisconnect = connect, plan, disconnect
MODULE.xOpen, MODULE.xClose, MODULE.xFilter = open_cursor, close_cursor, rewind
MODULE.xNext, MODULE.xEof, MODULE.xColumn, MODULE.xRowid = step, is_over, show, number_of

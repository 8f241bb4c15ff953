# cython: language_level=3, cdivision=True, initializedcheck=False
"""Indexes of networks, searched by address.

Both structures are sorted arrays in C memory with a binary search. A set is the union of its
networks, as spans. The index finds every network around an address: because prefixes either
nest or are disjoint, it finds the narrowest one, and from there the wider ones by `parent`.
"""

import ipaddress

from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc
from cutthrough.policy.hosts cimport Candidate, Run

cdef object FIRST_V4 = int(ipaddress.ip_address("::ffff:0:0"))
cdef object LAST_V4 = int(ipaddress.ip_address("::ffff:ffff:ffff"))
cdef int V4_BITS = 96
cdef object LAST = (1 << 128) - 1
cdef object HALF = (1 << 64) - 1


cdef inline bint is_before(Key a, Key b) noexcept nogil:
    return a.high < b.high or (a.high == b.high and a.low < b.low)


cdef Key key_of_number(number) except *:
    return Key(number >> 64, number & HALF)


def parse_network(str text):
    """Returns the first address, as a number, and the prefix length of a network or an
    address, in 128 bits."""
    network = ipaddress.ip_network(text)
    number, bits = int(network.network_address), network.prefixlen
    return (number, bits) if network.version == 6 else (number + FIRST_V4, bits + V4_BITS)


cdef class NetworkSets:

    def __cinit__(self):
        self.numbers = {(): 0}
        self.added = [[]]

    def __dealloc__(self):
        free(self.spans)
        free(self.starts)

    def number(self, tuple texts):
        """Returns the number of this set, a new number for a new set."""
        number = self.numbers.get(texts)
        if number is None:
            number = self.numbers[texts] = len(self.added)
            self.added.append(spans_of(texts))
        return number

    def seal(self):
        cdef size_t n = sum(map(len, self.added)), i = 0
        cdef uint32_t number
        self.n_sets = len(self.added)
        self.spans = <Span *>malloc(n * sizeof(Span) + 1)
        self.starts = <uint32_t *>malloc((self.n_sets + 1) * sizeof(uint32_t))
        if self.spans == NULL or self.starts == NULL or n >> 32:
            raise MemoryError
        for number, spans in enumerate(self.added):
            self.starts[number] = i
            for first, last in spans:
                self.spans[i].first = key_of_number(first)
                self.spans[i].last = key_of_number(last)
                i += 1
        self.starts[self.n_sets] = i
        self.bytes = n * sizeof(Span) + (self.n_sets + 1) * sizeof(uint32_t)
        self.added = []
        self.numbers = {}

    cdef bint contains(self, uint32_t number, Key key) noexcept nogil:
        cdef uint32_t low = self.starts[number], high = self.starts[number + 1], middle
        cdef uint32_t start = low
        while low < high:
            middle = low + (high - low) // 2
            if is_before(key, self.spans[middle].first):
                high = middle
            else:
                low = middle + 1
        return low > start and not is_before(self.spans[low - 1].last, key)

    cdef bint contains_carried(self, uint32_t number, const CarriedKeys *carried) noexcept nogil:
        cdef int i
        for i in range(carried.n):
            if self.contains(number, carried.keys[i]):
                return True
        return False


# Returns the union as [(first, last), …], sorted and disjoint.
cdef list spans_of(tuple texts):
    parts = []
    for text in texts:
        first, bits = parse_network(text)
        last = first | (LAST >> bits)
        # A network wider than all of IPv4 is one of IPv6: the addresses of IPv4 are cut out
        if bits < V4_BITS and first < FIRST_V4 <= last:
            parts.append((first, FIRST_V4 - 1))
            if last > LAST_V4:
                parts.append((LAST_V4 + 1, last))
        else:
            parts.append((first, last))
    parts.sort()
    merged = []
    for first, last in parts:
        if merged and first <= merged[-1][1] + 1:
            if last > merged[-1][1]:
                merged[-1] = (merged[-1][0], last)
        else:
            merged.append((first, last))
    return merged


cdef class NetworkIndex:

    def __cinit__(self):
        # All of IPv4, with no rule and no parent, because no search may go on into IPv6.
        self.added = {(FIRST_V4, V4_BITS): []}

    def __dealloc__(self):
        free(self.edges)
        free(self.nets)
        free(self.candidates)

    def add(self, str text, uint32_t rule, uint32_t subject):
        """Adds a network of a rule. Rules must come in ascending order."""
        candidates = self.added.setdefault(parse_network(text), [])
        if not candidates or candidates[-1][0] != rule:
            candidates.append((rule, subject))

    def seal(self):
        cdef size_t n = len(self.added)
        cdef size_t n_candidates = sum(map(len, self.added.values()))
        cdef uint32_t i, at = 0
        self.edges = <Edge *>malloc((2 * n + 1) * sizeof(Edge))
        self.nets = <Net *>malloc(n * sizeof(Net))
        self.candidates = <Candidate *>malloc(n_candidates * sizeof(Candidate) + 1)
        if (self.edges == NULL or self.nets == NULL or self.candidates == NULL
                or n_candidates >> 32):
            raise MemoryError
        enclosing = []                      # networks around this one: (index + 1, last)
        self.push_edge(0, 0)
        ordered = sorted(self.added.items())
        for i, ((first, bits), rules) in enumerate(ordered):
            while enclosing and enclosing[-1][1] < first:
                self.close_network(enclosing)
            is_v4_root = first == FIRST_V4 and bits == V4_BITS
            self.nets[i].parent = enclosing[-1][0] if enclosing and not is_v4_root else 0
            self.nets[i].at = at
            self.nets[i].n = len(rules)
            for rule, subject in rules:
                self.candidates[at] = Candidate(rule, subject)
                at += 1
            self.push_edge(first, i + 1)
            enclosing.append((i + 1, first | (LAST >> bits)))
        while enclosing:
            self.close_network(enclosing)
        self.bytes = (self.n_edges * sizeof(Edge) + n * sizeof(Net)
                      + n_candidates * sizeof(Candidate))
        self.added = {}

    def close_network(self, list enclosing):
        _, last = enclosing.pop()
        if last != LAST:
            self.push_edge(last + 1, enclosing[-1][0] if enclosing else 0)

    def push_edge(self, first, uint32_t net):
        cdef Key key = key_of_number(first)
        cdef Edge *edge = self.edges + self.n_edges
        # Two networks that begin or end at the same address: the later edge replaces the other
        if self.n_edges and not is_before((edge - 1).first, key):
            edge -= 1
        else:
            self.n_edges += 1
        edge.first = key
        edge.net = net

    cdef int find(self, Key key, Run *runs) noexcept nogil:
        cdef uint32_t low = 0, high = self.n_edges, middle, net
        cdef int n_runs = 0
        while high - low > 1:
            middle = low + (high - low) // 2
            if is_before(key, self.edges[middle].first):
                high = middle
            else:
                low = middle
        net = self.edges[low].net
        while net:
            if self.nets[net - 1].n:
                runs[n_runs].at = self.candidates + self.nets[net - 1].at
                runs[n_runs].n = self.nets[net - 1].n
                n_runs += 1
            net = self.nets[net - 1].parent
        return n_runs

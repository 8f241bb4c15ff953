# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""May this request go there? The rules of a policy, compiled (R25, R26).

The first rule that matches decides, but not every rule is read: if a rule names hosts, it is
found by the host; if it names only addresses, by the address; and only if it names neither, it
is in a list. Each search returns runs of candidates in the order of the rules. Their
other conditions are checked until one matches; no run is read beyond another run's best match.

Before the name is resolved the address is not known. If a rule depends on it, the rule is a
"maybe": a maybe that denies is skipped, and all of a request for a named origin, whose Host is not
resolved; else the request goes on, and each address is judged again before it is dialled.

An IPv6 address may carry an IPv4 address (NAT64, 6to4 and others). A deny rule matches either
address, any other rule only the address that is dialled. The same holds for the readings of a
path: a deny rule matches if one of them does, any other rule only if all do (R56).
"""

from libc.stdint cimport UINT32_MAX, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset
from cutthrough.outcome cimport DESTINATION_DENIED, OK, PATH_DENIED, TLS_REFUSED, label_of
from cutthrough.policy.answer import Answer, Caller, Look, is_literal, packed
from cutthrough.policy.fingerprints cimport FingerprintSets
from cutthrough.policy.first_bytes cimport (
    IF_ALLOWED, IS_MET, NOT_NAME, TLS_IS_REFUSED, TLS_PASSES, Met, last_of, meets,
    opening_in_words, outcome_of, read_demand)
from cutthrough.policy.globs cimport GlobSets
from cutthrough.policy.hosts cimport Candidate, HostIndex, Run, candidates_of
from cutthrough.policy.networks cimport NetworkIndex, NetworkSets, key_of, read_carried
from cutthrough.policy.source import RECORDINGS
from cutthrough.policy.tlvs cimport TlvSets
from cutthrough.wire.fingerprints cimport JA4_BYTES
from cutthrough.wire.names cimport (
    M_CONNECT, M_DELETE, M_GET, M_HEAD, M_OPTIONS, M_OTHER, M_POST, M_PUT, M_TRACE)
from cutthrough.wire.openings cimport TLS, server_name
from cutthrough.wire.paths cimport Path, set_path
from cutthrough.wire.authority cimport HOST_NAME, Target, parse_authority

# Methods with a number; a rule can name others too. A request that offers an upgrade is UPGRADE.
METHODS = {"GET": M_GET, "HEAD": M_HEAD, "POST": M_POST, "PUT": M_PUT, "DELETE": M_DELETE,
           "OPTIONS": M_OPTIONS, "TRACE": M_TRACE, "CONNECT": M_CONNECT, "UPGRADE": KIND_UPGRADE,
           "OTHER": M_OTHER}

cdef dict ACTIONS = {"allow": ALLOW, "deny": DENY, "report": REPORT}
cdef dict CAPTURES = {"": CAPTURE_NOTHING, "head": CAPTURE_HEADS, "full": CAPTURE_FULL}

# The search that found a run.
cdef enum:
    BY_HOST = 0
    BY_ADDRESS
    BY_CARRIED              # by an IPv4 address inside the dialled address
    NEEDING_ADDRESS
    ANYWHERE
    MOST_LABEL = 96             # characters of a rule's label in a log line


cdef class Draft:

    def __cinit__(self):
        self.subjects, self.ports_at = {((), ()): 0}, {}
        self.ports, self.anywhere, self.needing_address = [], [], []


cdef class Acl:

    def __cinit__(self):
        self.hosts, self.networks, self.sets = HostIndex(), NetworkIndex(), NetworkSets()
        self.fingerprints, self.http2_prints = FingerprintSets("_"), FingerprintSets("|")
        self.other_methods = FingerprintSets(" ")   # which is in no method
        self.tlvs, self.globs = TlvSets(), GlobSets()

    def __dealloc__(self):
        free(self.rows)
        free(self.ports)
        free(self.anywhere)
        free(self.needing_address)

    def __init__(self, policy, sources=None):
        """From a source.Policy whose texts are canonical, as `rules` makes them. `sources`:
        numbers by name, for Hop.source."""
        cdef size_t n = len(policy.rules)
        cdef Draft draft = Draft()
        cdef uint32_t index
        self.labels = {-1: b"default"}
        self.policy = policy
        self.rules = policy.rules
        self.limits = tuple(policy.limits)
        draft.limits = {name: i for i, name in enumerate(self.limits)}
        numbers = {} if sources is None else sources
        self.routes = tuple(dict.fromkeys([rule.way for rule in self.rules if rule.way]))
        draft.routes = {name: i for i, name in enumerate(self.routes, 1)}
        self.rows = <Row *>calloc(n + 1, sizeof(Row))
        if self.rows == NULL or n >= UINT32_MAX:
            raise MemoryError
        for index, rule in enumerate(self.rules):
            self.add(index, rule, draft)
            if rule.leaves_by:
                self.rows[index].source = numbers[rule.leaves_by]
        self.fallback.action = ACTIONS[policy.default]
        self.fallback.cut, self.fallback.limits = policy.cut, -1
        self.hosts.seal()
        self.networks.seal()
        self.sets.seal()
        self.n_anywhere, self.n_needing_address = len(draft.anywhere), len(draft.needing_address)
        self.anywhere = candidates_of(draft.anywhere)
        self.needing_address = candidates_of(draft.needing_address)
        self.ports = <PortRange *>malloc(len(draft.ports) * sizeof(PortRange) + 1)
        if self.ports == NULL:
            raise MemoryError
        for index, (first, last) in enumerate(draft.ports):
            self.ports[index] = PortRange(first, last)
        self.n_subjects = len(draft.subjects)
        self.subjects_of_user, self.subjects_of_group = {}, {}
        for (users, groups), number in draft.subjects.items():
            for name in users:
                self.subjects_of_user.setdefault(name, []).append(number)
            for name in groups:
                self.subjects_of_group.setdefault(name, []).append(number)

    cdef int add(self, uint32_t index, rule, Draft draft) except -1:
        cdef Row *row = &self.rows[index]
        cdef bytes host
        cdef list literals = []
        cdef Candidate candidate
        candidate.rule = index
        candidate.subject = draft.subjects.setdefault((rule.users, rule.groups), len(draft.subjects))
        row.action, row.cut = ACTIONS[rule.action], rule.cut
        row.acts = ((BY_FAULTS if rule.faults else 0) | (BY_FILTERS if rule.filters else 0)
                    | (BY_BREAKPOINT if rule.breakpoint else 0) | BY_HEADERS * bool(rule.headers))
        row.capture, row.recording = CAPTURES[rule.capture], RECORDINGS[rule.recording]
        self.replays |= row.recording >= REPLAYS
        row.refuses_unrecorded = rule.unrecorded == "refuse"
        row.queue, row.queue_ms = rule.recording_queue, int(rule.recording_queue_timeout * 1000)
        row.limits = draft.limits[rule.limits] if rule.limits else -1
        row.route = <uint16_t>draft.routes[rule.way] if rule.way else 0
        row.for_origin = bool(rule.origin)
        for method in rule.methods:
            row.methods |= (1 << <int>METHODS[method]) if method in METHODS else 0
        row.other_methods = self.other_methods.number(tuple(
            [method for method in rule.methods if method not in METHODS]))
        self.compares_methods |= bool(rule.methods)
        read_demand(&row.demand, rule, self.fingerprints)
        row.by_opening = last_of(&row.demand) != IS_MET
        if rule.ports:
            row.ports = draft.ports_at.setdefault(rule.ports, len(draft.ports))
            row.n_ports = len(rule.ports)
            if row.ports == len(draft.ports):
                draft.ports.extend(rule.ports)
        row.clients = self.sets.number(rule.clients)
        row.tlvs = self.tlvs.number(rule.tlvs)
        row.client_ja4 = self.fingerprints.number(rule.client_ja4)
        row.http2_print = self.http2_prints.number(rule.http2_fingerprint)
        self.compares_prints |= row.client_ja4 != 0 or row.http2_print != 0
        row.paths = self.globs.number(rule.paths)
        self.compares_paths |= row.paths != 0
        for text in rule.hosts:
            host = text.encode()
            if is_literal(host):
                literals.append(text)
                self.networks.add(text, index, candidate.subject)
            else:
                self.hosts.add(host, len(host), candidate)
        row.literals = self.sets.number(tuple(literals))
        if rule.hosts:
            row.addresses = self.sets.number(rule.addresses)
        elif rule.addresses:
            row.by_address = True
            for text in rule.addresses:
                self.networks.add(text, index, candidate.subject)
        else:
            draft.anywhere.append((index, candidate.subject))
        if (literals or row.by_address) and row.action != DENY:
            draft.needing_address.append((index, candidate.subject))
        return 0

    def subjects_of(self, user, groups=()):
        """Returns the bitmap for Question.subjects. A subject is the users and groups that a rule
        names; the bitmap has those that this user, given as bytes or str, belongs to. The policy's
        groups of the user are added to `groups`. Made once for each user."""
        name = user.decode() if isinstance(user, bytes) else user
        bits = bytearray((self.n_subjects + 7) // 8)
        numbers = [0, *self.subjects_of_user.get(name, ())]
        for group in (*groups, *self.policy.groups_of(name)):
            numbers += self.subjects_of_group.get(group, ())
        for number in numbers:
            bits[number >> 3] |= 1 << (number & 7)
        return bytes(bits)

    cdef void judge(self, const Question *q, Verdict *v) noexcept nogil:
        cdef Run runs[MAX_RUNS]
        cdef CarriedKeys carried
        cdef int n, i, why
        cdef uint32_t best = UINT32_MAX, first_waiting = UINT32_MAX, by_path = UINT32_MAX
        cdef const Candidate *c
        cdef const Candidate *end
        cdef const Row *row
        cdef bint maybe = False, depends, waits
        read_carried(q.address, &carried)
        n = self.find_runs(q, &carried, runs)
        for i in range(n):
            c = runs[i].at
            end = c + runs[i].n
            while c < end and c.rule < best:
                if runs[i].kind == BY_CARRIED and self.rows[c.rule].action != DENY:
                    c += 1
                    continue
                row = &self.rows[c.rule]
                why = self.mismatch(q, &carried, c)
                if why == OTHER_PATH and row.action != DENY:
                    by_path = min(by_path, c.rule)
                if why == MATCHES:
                    depends = q.address == NULL and (
                        runs[i].kind == NEEDING_ADDRESS or row.addresses)
                    waits = row.by_opening and q.opening == NULL    # which may meet it
                    if waits:
                        first_waiting = min(first_waiting, c.rule)
                    if not (depends and q.for_origin) and (
                            not (depends or waits) or row.action != DENY):
                        best = c.rule
                        maybe = depends
                        break
                c += 1
        row = &self.fallback if best == UINT32_MAX else &self.rows[best]
        v.outcome = OK if row.action != DENY else (
            PATH_DENIED if row.paths or by_path < best else DESTINATION_DENIED)
        if row.demand.tls == TLS_IS_REFUSED and q.opening != NULL and q.opening.protocol == TLS:
            v.outcome = TLS_REFUSED
        v.rule = -1 if best == UINT32_MAX else <int>best
        v.limits = row.limits
        memset(&v.hop, 0, sizeof(v.hop))
        v.hop.source = row.source
        v.route = row.route
        v.acts = row.acts
        v.report, v.cut = row.action == REPORT, row.cut
        v.maybe = maybe
        v.waits = first_waiting != UINT32_MAX and first_waiting <= best or (
            row.demand.tls != TLS_PASSES and q.has_opening and q.opening == NULL)
        v.opens_floor = row.action == ALLOW and q.address != NULL and (
            row.by_address or row.addresses != 0
            or (row.literals != 0 and self.sets.contains(row.literals, key_of(q.address))))

    cdef bint cuts(self, int rule) noexcept nogil:
        return self.rows[rule].cut if rule >= 0 else self.fallback.cut

    cdef int tls_of(self, int rule) noexcept nogil:
        return self.rows[rule].demand.tls if rule >= 0 else TLS_PASSES

    cdef object limits_of(self, int rule):
        cdef int index = self.rows[rule].limits if rule >= 0 else self.fallback.limits
        return self.limits[index] if index >= 0 else None

    cdef bytes label(self, int rule):
        label = self.labels.get(rule)
        if label is None:
            row = self.rules[rule]
            text = (row.name or row.source)[-MOST_LABEL:]
            label = self.labels[rule] = "".join(
                c if c.isascii() and c.isprintable() else "?" for c in text).encode()
        return <bytes>label

    cdef int find_runs(self, const Question *q, const CarriedKeys *carried,
                       Run *runs) noexcept nogil:
        cdef int n = 0, first, i
        if q.is_name:
            n = self.hosts.find(q.host, q.host_len, runs)
        first = n
        if q.address != NULL:
            n += self.networks.find(key_of(q.address), runs + n)
        for i in range(n):
            runs[i].kind = BY_HOST if i < first else BY_ADDRESS
        for i in range(carried.n):
            first = n
            n += self.networks.find(carried.keys[i], runs + n)
            while first < n:
                runs[first].kind = BY_CARRIED
                first += 1
        runs[n] = Run(self.anywhere, self.n_anywhere, ANYWHERE)
        n += 1
        if q.address == NULL:
            # Last, because a rule that is in another run too does not depend on the address
            runs[n] = Run(self.needing_address, self.n_needing_address, NEEDING_ADDRESS)
            n += 1
        return n

    # Checks all conditions but the one by which the candidate was found.
    cdef int mismatch(self, const Question *q, const CarriedKeys *carried,
                      const Candidate *c) noexcept nogil:
        cdef const Row *row
        cdef const PortRange *ports
        cdef uint32_t i
        cdef Met met
        if c.subject and (
                q.subjects == NULL or not q.subjects[c.subject >> 3] >> (c.subject & 7) & 1):
            return OTHER_USER
        row = &self.rows[c.rule]
        if row.for_origin and not q.for_origin:
            return OTHER_FORM
        if row.n_ports:
            ports = self.ports + row.ports
            i = 0
            while i < row.n_ports and not ports[i].first <= q.port <= ports[i].last:
                i += 1
            if i == row.n_ports:
                return OTHER_PORT
        if (row.methods or row.other_methods) and not fits_method(self, q, row):
            return OTHER_METHOD
        if row.clients and not (
                q.has_client and self.sets.contains(row.clients, key_of(q.client))):
            return OTHER_CLIENT
        if row.tlvs and not self.tlvs.are_met(row.tlvs, q.tlvs, q.tlvs_len):
            return OTHER_TLVS
        if row.client_ja4 and not self.fingerprints.contains(row.client_ja4, q.ja4, JA4_BYTES):
            return OTHER_JA4
        if row.http2_print and not self.http2_prints.contains(row.http2_print, q.http2, q.http2_len):
            return OTHER_HTTP2
        if row.addresses and q.address != NULL and (
                not self.sets.contains(row.addresses, key_of(q.address))) and (
                row.action != DENY or not self.sets.contains_carried(row.addresses, carried)):
            return OTHER_ADDRESS
        if row.paths:
            if q.path == NULL:
                return OTHER_METHOD
            if not self.globs.meets(row.paths, q.path, row.action == DENY):
                return OTHER_PATH
        if row.by_opening and not q.has_opening:
            return OTHER_METHOD
        if row.by_opening and q.opening != NULL:
            met = self.unmet(q, row)
            return MATCHES if met == IS_MET else OTHER_OPENING + met
        return MATCHES

    # The first demand that the first bytes, which are known, do not meet.
    cdef Met unmet(self, const Question *q, const Row *row) noexcept nogil:
        cdef Question other
        cdef Verdict v
        cdef Met met = meets(&row.demand, q.opening, self.fingerprints, q.host, q.host_len,
                             q.is_name)
        if met != IF_ALLOWED:
            return met
        other = q[0]
        other.host, other.host_len = server_name(q.opening), q.opening.name_len
        other.is_name = True
        self.judge(&other, &v)              # there the name is the host: it goes no deeper
        return IS_MET if v.outcome == OK and not v.maybe else NOT_NAME

    cdef int outcome_by_opening(self, const Question *q, int before, int now) noexcept nogil:
        cdef Met why = IS_MET
        if now >= 0 and self.rows[now].action != DENY:
            return TLS_REFUSED
        if before >= 0 and self.rows[before].by_opening:
            why = self.unmet(q, &self.rows[before])
        if why == IS_MET and now >= 0:
            why = last_of(&self.rows[now].demand)
        return outcome_of(why)

    cdef bint share_way(self, int a, int b) noexcept nogil:
        cdef const Row *row = &self.rows[a] if a >= 0 else &self.fallback
        cdef const Row *other = &self.rows[b] if b >= 0 else &self.fallback
        return row.source == other.source and row.route == other.route

    def ask(self, *, host, port, caller=Caller(), method="CONNECT", address=None, opening=None,
            path=None, bint for_origin=False, own_method="GET"):
        """Returns the Answer for a request; for explain and tests. `host` need not be canonical;
        addresses are text. `opening`: protocol, server name and JA4 of a tunnel's first bytes, in
        words. `path`: of the target, in bytes; None: not known. `own_method`: of UPGRADE.

        Raises ValueError for an invalid host or address."""
        cdef Path target_path
        cdef Question q
        cdef Verdict v
        cdef Target target
        cdef Run runs[MAX_RUNS]
        cdef CarriedKeys carried
        cdef const Candidate *c
        cdef bytes text = host.encode()
        cdef bytes bits = self.subjects_of(caller.user, caller.groups), tlvs = caller.tlvs
        cdef bytes ja4 = caller.ja4.encode(), http2 = caller.http2.encode(), name
        cdef bint is_unix = caller.client.startswith("unix:")
        cdef bytes from_packed = bytes(16) if is_unix else packed(caller.client)
        cdef bytes to_packed
        cdef char room[MOST_METHOD]
        cdef uint32_t j
        cdef int i, before
        if parse_authority(&target, text, len(text), 1) != 0 or target.port != 1:
            raise ValueError(f"{host!r} is not a host")
        q.subjects = <const uint8_t *>bits
        memcpy(q.client, <const char *>from_packed, 16)
        q.has_client = not is_unix
        q.tlvs, q.tlvs_len = tlvs, len(tlvs)
        q.ja4 = <const char *>ja4 if ja4 else NULL
        q.http2, q.http2_len = <const char *>http2 if http2 else NULL, len(http2)
        q.host, q.host_len = target.host, target.host_len
        q.is_name = target.host_kind == HOST_NAME
        q.port = port
        q.method = METHODS.get(method, M_OTHER)
        own_method = own_method if q.method == KIND_UPGRADE else method
        q.own_method, name = METHODS.get(own_method, M_OTHER), own_method.encode()
        q.method_name, q.method_name_len = name, len(name)
        read_capitals(&q, room)
        q.has_opening, q.for_origin = q.method == M_CONNECT, for_origin
        q.path = NULL if q.has_opening or path == b"*" else &target_path
        set_path(&target_path, NULL, 0)
        if path is not None:
            set_path(&target_path, path, len(path))
        q.address = NULL
        if not q.is_name:
            address = target.host[:target.host_len].decode()
        if address is not None:
            to_packed = packed(address)
            q.address = <const uint8_t *>to_packed
        q.opening = NULL
        self.judge(&q, &v)
        if opening is not None and q.has_opening:
            before = v.rule
            q.opening = opening_in_words(tuple(opening))
            self.judge(&q, &v)
            if v.outcome != OK:
                v.outcome = self.outcome_by_opening(&q, before, v.rule)
        looked = {}
        read_carried(q.address, &carried)
        for i in range(self.find_runs(&q, &carried, runs)):
            for j in range(runs[i].n):
                c = runs[i].at + j
                if v.rule >= 0 and c.rule > <uint32_t>v.rule:
                    break
                why = MISMATCHES[self.mismatch(&q, &carried, c)]
                if runs[i].kind == BY_CARRIED and self.rows[c.rule].action != DENY:
                    why = "address"
                if not why and c.rule != <uint32_t>v.rule:
                    why = ("first bytes not known yet" if self.rows[c.rule].by_opening
                           and q.opening == NULL else "address not known yet")
                looked.setdefault(c.rule, why)
        free(<void *>q.opening)
        return Answer(
            label_of(v.outcome).decode(), v.rule, v.report, v.cut, v.opens_floor, v.maybe,
            v.waits, self.limits[v.limits] if v.limits >= 0 else "",
            self.rules[v.rule].leaves_by if v.rule >= 0 else "",
            self.routes[v.route - 1] if v.route else "",
            *((self.rules[v.rule].faults, self.rules[v.rule].filters) if v.rule >= 0 else ((), ())),
            tuple([Look(*pair) for pair in sorted(looked.items())]))

    def sizes(self):
        """Returns the bytes of C memory, by structure: a policy's size shows nowhere else."""
        return {"rules": len(self.rules) * sizeof(Row), "hosts": self.hosts.bytes,
                "networks": self.networks.bytes, "sets": self.sets.bytes,
                "paths": self.globs.bytes}


MISMATCHES = ("", "user", "form", "port", "method", "client", "tlvs", "client_ja4",
              "http2_fingerprint", "address", "path", "", "protocol", "sni", "ja4")

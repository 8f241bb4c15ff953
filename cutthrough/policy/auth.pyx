# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Basic authentication (RFC 7617), repeated for each request (R21-R23).

The scheme and the base64 are parsed exactly; names and passwords are compared as composed UTF-8.
Verified credentials are cached under a keyed hash, because the common request must cost a hash
and a look-up. If this worker's cache does not have them, the page that all workers share
(`known`) is searched before anything is verified: a new worker, a reload and the next program
of an upgrade find verified credentials there. The user's record is part of the key, so a
changed record makes all cached entries of the old one unreachable.

There are two kinds of users. The password of a user in the configuration is held as a salted
SHA-256 digest and compared here, in constant time. A user in a table has a password hash,
which takes a tenth of a second and is computed elsewhere (R24): see `hash_to_verify`.
`authenticate` only looks credentials up and answers PENDING if they are well formed but not
cached, because after too many wrong ones a client has to wait. The caller then calls
`compare`, or computes the hash from `hash_to_verify`, and calls `remember`. If there is a
table, every name that `compare` does not accept takes that way, and an unknown name is
verified against a hash of the table's most common kind (R22).
"""

import binascii
import hashlib
import hmac
import os
import time

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy
from libc.time cimport time as seconds_of_the_epoch

from cutthrough.config.user_names import composed
from cutthrough.policy.known cimport Key, Known
from cutthrough.policy.siphash cimport keyed_hash
from cutthrough.wire.chars cimport equals_lower

cdef enum:
    RECENT = 64                 # slots for cached credentials; a power of two
    VERIFIED_BOUND = 4096       # cached credentials; if more, two for each user (R31)
    MOST_VALUE = 4096           # bytes of a field value; a longer one is refused

# Credentials verified within this time are no guess of an attacker
cdef int64_t TRUSTED_US = 86400000000


cdef class Account:

    def __init__(self, name, groups=(), expires=0.0, index=0):
        self.name = name
        self.groups = groups
        self.expires = expires
        self.index = index

    cdef bint has_expired(self) noexcept:
        # In C: what raises for want of memory would count as no
        return self.expires != 0 and self.expires <= seconds_of_the_epoch(NULL)

    def __repr__(self):
        return f"Account({self.name!r})"


cdef class Authenticator:

    def __init__(self, inline, users=None, cache_ttl=300.0, groups=None, Known known=None,
                 groups_of=None):
        """Made from {name: password}, both bytes, and {name: source.User}. The passwords are
        not kept. `cache_ttl`: how long verified credentials are cached, in seconds. `groups`:
        {name: groups} for `inline`. `known`: the page that all workers share; None: a page of
        its own. `groups_of`: called with a name that only a certificate has. Raises ValueError
        for a name that is in both `inline` and `users`."""
        self.known = Known() if known is None else known
        memcpy(self.key, self.known.page.key, 16)
        self.salt = os.urandom(16)
        groups = {normalized(name): names for name, names in (groups or {}).items()}
        inline = {normalized(name): normalized(secret) for name, secret in inline.items()}
        self.digests = {name: self._digest(secret) for name, secret in inline.items()}
        self.dummy_digest = self._digest(os.urandom(16))
        self.records = {name: self._hashed(b"inline\0" + name + b"\0" + secret)
                        for name, secret in inline.items()}
        self.hashes = {}
        self.accounts = {name: Account(name, groups.get(name, ()), index=i)
                         for i, name in enumerate(inline)}
        self.anonymous = Account(b"", index=-1)
        self.verified = {}
        self.recent = [None] * <int>RECENT
        self.strangers = {}
        self.groups_of = groups_of
        self.ttl_us = int(cache_ttl * 1000000)
        if users:
            self._take_table(users)
        self.bound = max(VERIFIED_BOUND, 2 * len(self.accounts))

    def _take_table(self, users):
        # Imported here, because without a table its libraries are not needed
        from cutthrough.policy.users import kind_of, make_dummy
        kinds = {}
        for user in users.values():
            name = normalized(user.name.encode())
            if name in self.accounts:
                raise ValueError(f"the user {user.name!r} is defined twice")
            self.accounts[name] = Account(
                name, user.groups, user.expires, len(self.accounts))
            self.hashes[name] = user.hash
            kinds.setdefault(kind_of(user.hash), []).append(user.hash)
        self.dummy_hash = make_dummy(max(kinds.values(), key=len)[0])

    def _digest(self, bytes secret):
        return hashlib.sha256(self.salt + secret).digest()

    cdef Account authenticate(self, const char *value, size_t n, int64_t now_us, int *verdict):
        cdef uint64_t out[2]
        cdef Py_ssize_t slot
        cdef Verified known
        cdef bytes tag
        verdict[0] = MISSING if value == NULL else REFUSED
        if value == NULL or n > MOST_VALUE:
            return None
        if not hash_credentials(self.key, value, n, out):
            return None
        slot = out[0] & <uint64_t>(RECENT - 1)
        known = self.recent[slot]
        if known is not None and known.tag[0] == out[0] and known.tag[1] == out[1] and (
                now_us < known.until_us):
            verdict[0] = KNOWN
            return known.account
        tag = (<char *>out)[:16]
        known = self.verified.get(tag)
        if known is not None:
            if now_us < known.until_us:
                self.recent[slot] = known
                verdict[0] = KNOWN
                return known.account
            del self.verified[tag]
        pair = split_basic(value[:n])
        if pair is None:
            return None
        account = self._recall(tag, pair[0], now_us)
        verdict[0] = PENDING if account is None else KNOWN
        return account

    cdef Account _recall(self, bytes tag, bytes name, int64_t now_us):
        """Returns the account of these credentials if any worker has verified them."""
        cdef Key key
        cdef int64_t since_us
        cdef Account account
        self._make_key(tag, name, &key)
        since_us = self.known.recall(&key)
        account = self.find(name) if since_us != 0 else None
        if account is None or not self._remember(tag, account, since_us, now_us):
            return None
        return account

    cdef int _make_key(self, bytes tag, bytes name, Key *key) except -1:
        cdef bytes record = self.records.get(name)
        cdef uint64_t out[2]
        if record is None:
            hash = self.hashes.get(name)
            if hash is None:
                record = self._hashed(b"nobody\0" + name)
            else:
                record = self._hashed(b"%b\0%b\0%r" % (
                    name, hash.encode(), self.accounts[name].expires))
        memcpy(key.tag, <char *>tag, 16)
        memcpy(key.record, <char *>record, 16)
        keyed_hash(self.key, <const unsigned char *><const char *>name, len(name), out)
        key.name = out[0]
        return 0

    cdef bytes _hashed(self, bytes data):
        cdef uint64_t out[2]
        keyed_hash(self.key, <const unsigned char *><const char *>data, len(data), out)
        return (<char *>out)[:16]

    cdef bint _remember(self, bytes tag, Account account, int64_t since_us,
                        int64_t now_us) except -1:
        """Caches the account of credentials verified at `since_us`. False: the entry would
        have expired already."""
        cdef Verified entry = Verified.__new__(Verified)
        cdef int64_t left_us = since_us + self.ttl_us - now_us
        if account.expires != 0:
            # Converted to the monotonic clock, which a hit reads anyway; a step of the wall
            # clock takes effect when the entry ends
            left_us = min(left_us, <int64_t>((account.expires - time.time()) * 1000000))
        if left_us <= 0:
            return False
        memcpy(entry.tag, <char *>tag, 16)
        entry.account = account
        entry.until_us = now_us + left_us
        if len(self.verified) >= self.bound and tag not in self.verified:
            del self.verified[next(iter(self.verified))]
            self.evicted += 1
        self.verified[tag] = entry
        return True

    cdef Account certified(self, bytes name):
        cdef Account account
        name = normalized(name)
        account = self.accounts.get(name)
        if account is None:
            account = self.strangers.get(name)
        if account is None:
            groups = () if self.groups_of is None else self.groups_of(name.decode())
            account = Account(name, groups)
            if len(self.strangers) >= self.bound:
                del self.strangers[next(iter(self.strangers))]
            self.strangers[name] = account
        return account

    def find(self, bytes name):
        """Returns the account of this name, or None."""
        return self.accounts.get(normalized(name))

    def key_of(self, bytes value):
        """Returns the key of these credentials: keyed hashes of the credentials, the user's
        record and the name. None: they cannot be read."""
        cdef uint64_t out[2]
        cdef Key key
        pair = split_basic(value)
        if pair is None or not hash_credentials(self.key, value, len(value), out):
            return None
        self._make_key((<char *>out)[:16], pair[0], &key)
        return (<char *>&key)[:sizeof(Key)]

    def proved_us(self, bytes key):
        """Returns when these credentials were last verified, in microseconds of
        CLOCK_MONOTONIC; 0 if that was more than a day ago, or never."""
        cdef int64_t since_us = self.known.recall(<const Key *><const char *>key)
        now_us = <int64_t>(time.monotonic() * 1000000)
        return since_us if now_us - since_us < TRUSTED_US else 0

    def recall(self, bytes value):
        """Returns the account of these credentials if any worker has verified them, or None."""
        cdef uint64_t out[2]
        pair = split_basic(value)
        if pair is None or not hash_credentials(self.key, value, len(value), out):
            return None
        return self._recall(
            (<char *>out)[:16], pair[0], <int64_t>(time.monotonic() * 1000000))

    def name_of(self, bytes value):
        """Returns the name in these credentials, known or not; None: they cannot be read."""
        pair = split_basic(value)
        return None if pair is None else pair[0]

    def compare(self, bytes value):
        """Returns the account if these are right credentials of a user in the configuration,
        else None."""
        pair = split_basic(value)
        if pair is None:
            return None
        name, secret = pair
        expected = self.digests.get(name, self.dummy_digest)
        matches = hmac.compare_digest(self._digest(secret), expected)
        return self.accounts[name] if matches and expected is not self.dummy_digest else None

    @property
    def has_table(self):
        """Whether there are users with password hashes."""
        return bool(self.hashes)

    @property
    def function(self):
        """The operator's function that verifies in place of hashes; None: there is none."""
        return None

    def hash_to_verify(self, bytes value):
        """Returns what to verify: a hash, the password to try, and the account if they match.
        For an unknown name the account is None, and the hash one that takes as long."""
        pair = split_basic(value)
        name, secret = (None, b"") if pair is None else pair
        expected = self.hashes.get(name)
        if expected is None:
            return self.dummy_hash, secret, None
        return expected, secret, self.accounts[name]

    def remember(self, bytes key, Account account, at=None):
        """Caches, for all workers, the account of credentials; `key` is from `key_of`. False:
        the user has expired. `at`: time of the verification, in seconds of CLOCK_MONOTONIC;
        None: now."""
        cdef int64_t now_us = <int64_t>((time.monotonic() if at is None else at) * 1000000)
        if account.has_expired():
            return False
        self.known.prove(<const Key *><const char *>key, now_us)
        self._remember(key[:16], account, now_us, now_us)
        return True

    @property
    def remembered(self):
        """Number of cached credentials."""
        return len(self.verified)


cdef class AuthenticatorByFunction(Authenticator):
    """Users are accepted by the operator's function; the users of the configuration are not its to
    accept. The record of a user is the function: if a function, or the same before its code changed,
    has accepted a user, the new one verifies the user again."""

    cdef object verifies
    cdef bytes identity

    def __init__(self, function, bytes identity not None, *args):
        """`identity`: what tells the function from others; the rest is as in Authenticator."""
        super().__init__(*args)
        self.verifies = function
        self.identity = identity

    cdef int _make_key(self, bytes tag, bytes name, Key *key) except -1:
        cdef bytes record
        Authenticator._make_key(self, tag, name, key)
        if name not in self.records:
            record = self._hashed(b"function\0%b\0%b" % (self.identity, name))
            memcpy(key.record, <char *>record, 16)
        return 0

    def find(self, bytes name):
        """Returns the account of this name: any name may be a user's."""
        return self.certified(name)

    @property
    def has_table(self):
        """True: a name that is not the configuration's may be a user's."""
        return True

    @property
    def function(self):
        return self.verifies

    def hash_to_verify(self, bytes value):
        """Returns the name, the password, and the account if the function accepts them. It is
        asked about the configuration's names too, so that the time does not tell them from
        others (R22); they have no account here."""
        name, secret = split_basic(value) or (b"", b"")
        return name.decode(), secret, None if name in self.accounts else self.find(name)


cdef bint hash_credentials(const uint64_t *key, const char *value, size_t n,
                           uint64_t *out) noexcept nogil:
    """Hashes the text after the scheme. The scheme is left out because it has many spellings,
    and each would be verified and cached by itself. False: another scheme."""
    cdef size_t at = 6
    if n < 7 or not equals_lower(value, b"basic ", 6):
        return False
    while at < n and value[at] == c' ':
        at += 1
    keyed_hash(key, <const unsigned char *>value + at, n - at, out)
    return True


cdef tuple split_basic(bytes value):
    """Returns the name and the password, or None if the value is not exactly in Basic form."""
    cdef const char *text = value
    if len(value) < 7 or not equals_lower(text, b"basic ", 6):
        return None                         # another scheme (RFC 9110: 407 all the same)
    coded = value[6:].lstrip(b" ")
    try:
        pair = binascii.a2b_base64(coded)
    except binascii.Error:
        return None
    if binascii.b2a_base64(pair, newline=False) != coded:
        return None                         # decoders are lenient; accept one spelling only
    name, colon, secret = pair.partition(b":")
    return (normalized(name), normalized(secret)) if colon else None


def normalized(bytes text):
    """Composed UTF-8, as our challenge asks for; old browsers and Java send Latin-1."""
    if text.isascii():
        return text
    try:
        characters = text.decode()
    except UnicodeDecodeError:
        characters = text.decode("latin-1")
    return composed(characters).encode("utf-8", "surrogatepass")

"""Authentication (R21, R22, R23, R37)"""

import time
from base64 import b64encode

import bcrypt
import pytest

from cutthrough.policy import users as hashes
from cutthrough.policy.auth import Account, Authenticator
from cutthrough.policy.source import User
from tests.doors.policy import check, siphash128, verify
from tests.policy.credentials import basic


@pytest.fixture
def users() -> Authenticator:
    return Authenticator({b"alice": b"s3cret", b"empty": b"", b"colon": b"a:b:c"})


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (basic(b"alice:s3cret"), b"alice"),
        (b"bAsIc " + b64encode(b"alice:s3cret"), b"alice"),
        (b"Basic   " + b64encode(b"alice:s3cret"), b"alice"),
        (basic(b"empty:"), b"empty"),
        (basic(b"colon:a:b:c"), b"colon"),
    ],
)
def test_right_credentials_are_known(users, value, name):
    assert check(users, value) == name
    assert check(users, value) == name, "the second time, from memory"


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"Basic",
        b"Basic ",
        b"Basic" + b64encode(b"alice:s3cret"),
        b"Basic\t" + b64encode(b"alice:s3cret"),
        b"Digest " + b64encode(b"alice:s3cret"),
        b"Bearer alice",
        b64encode(b"alice:s3cret"),
        basic(b"alice:s3cret "),
        basic(b"alice:"),
        basic(b"alice"),
        basic(b":s3cret"),
        basic(b":"),
        basic(b"Alice:s3cret"),
        basic(b"alice:s3cret\0"),
        basic(b"mallory:s3cret"),
        basic(b"alice:s3cret") + b" ",
        basic(b"alice:s3cret") + b"=",
        basic(b"colon:a:b:c").rstrip(b"="),
        basic(b"colon:a:b:c").replace(b"M=", b"N="),
        basic(b"alice:s3cret").replace(b"6", b" 6"),
        basic(b"alice:s3cret").replace(b"6", b"-6"),
        basic(b"alice:s3cret") + b", Basic x",
        basic(b"alice:s3cret").replace(b"Basic ", b"Basic x"),
        b"Basic " + b64encode(b"alice:s3cret") + b"\n",
        b"Basic " + b"A" * 5000,
        b"XBasic " + b64encode(b"alice:s3cret"),
    ],
)
def test_everything_else_is_not(users, value):
    assert check(users, value) is None


def test_one_verified_user_does_not_open_the_door_for_another(users):
    assert check(users, basic(b"alice:s3cret")) == b"alice"
    assert check(users, basic(b"alice:s3cres")) is None
    assert check(users, basic(b"empty:s3cret")) is None


def test_one_credential_is_one_however_its_scheme_is_spelt(users):
    """Case and spaces made thousands of one. Each was verified anew, and remembered in
    place of other users' credentials."""
    coded = b64encode(b"alice:s3cret")
    for scheme in (b"Basic ", b"bAsIc ", b"BASIC  ", b"basic" + b" " * 1000):
        assert check(users, scheme + coded) == b"alice"
    assert users.remembered == 1
    assert users.key_of(b"basic " + coded) == users.key_of(b"Basic  " + coded)
    for value in (coded, b" " + coded, b"Digest " + coded, b"Basic" + coded):
        assert check(users, value) is None


def test_what_is_remembered_is_bounded(users):
    many = {b"u%d" % i: b"p" for i in range(5000)}
    users = Authenticator(many)
    for _ in range(2):
        for name in many:
            assert check(users, basic(name + b":p")) == name


def test_the_oldest_makes_room_and_is_counted():
    many = {b"u%d" % i: b"p" for i in range(4096)}
    users = Authenticator(many)
    account = users.find(b"u0")
    for n in range(8192 + 5):       # a hash may hold for more than one password
        users.remember(users.key_of(basic(b"u0:%d" % n)), account)
    assert (users.remembered, users.evicted) == (8192, 5)


# A table of users with hashes

def make_user(name, secret, cost=4, **more):
    made = bcrypt.hashpw(secret, bcrypt.gensalt(cost)).decode()
    return User(name=name, hash=made, **more)


@pytest.fixture
def table():
    users = [make_user("ann", b"one"), make_user("zoë", b"two", groups=("staff",))]
    return Authenticator({b"inline": b"three"}, {user.name: user for user in users})


def test_users_of_a_table_and_of_the_configuration_are_both_known(table):
    assert check(table, basic(b"ann:one")) == b"ann"
    assert check(table, basic("zoë:two".encode())) == "zoë".encode()
    assert check(table, basic(b"inline:three")) == b"inline"
    assert table.remembered == 3


@pytest.mark.parametrize("pair", [
    b"ann:two", b"ann:", b"ann", b"nobody:one", b":one", b":", b"inline:one",
    b"ann:one ",
    b"ann:one\0", b"zoe:two", b"inline:", b"ann:inline",
])
def test_a_table_lets_nobody_else_in(table, pair):
    assert check(table, basic(pair)) is None
    assert table.remembered == 0


@pytest.mark.parametrize("name", [
    "zoë".encode("latin-1"),            # browsers of old, and Java
    "zoe\u0308".encode()])              # macOS
def test_a_name_is_compared_as_composed_utf_8(table, name):
    """RFC 7617 section 2.1."""
    assert check(table, basic(name + b":two")) == "zoë".encode()
    assert check(table, basic(name + b":\xc2\xa0two")) is None


def test_what_was_verified_costs_no_second_hash(table):
    value = basic(b"ann:one")
    assert check(table, value) == b"ann"
    started = time.thread_time()
    for _ in range(1000):
        assert check(table, value) == b"ann"
    assert (time.thread_time() - started) / 1000 < 0.0005       # a hash: 1 ms


def test_a_verified_credential_is_believed_for_its_time_only():
    users = Authenticator({}, {"ann": make_user("ann", b"one")}, 300.0)
    now = time.monotonic()
    value = basic(b"ann:one")
    account = verify(users, value)
    assert users.remember(users.key_of(value), account)
    check(users, value, now + 299)
    assert users.remembered == 1
    assert check(users, value, now + 301) == b"ann"      # hashed again


def test_without_a_cache_nothing_is_remembered():
    users = Authenticator({b"me": b"x"}, {"ann": make_user("ann", b"one")}, 0.0)
    for value, name in ((basic(b"ann:one"), b"ann"), (basic(b"me:x"), b"me")):
        assert check(users, value) == name
    assert users.remembered == 0


def test_an_expired_user_is_not_known_and_not_remembered():
    user = make_user("ann", b"one", expires=time.time() - 1)
    users = Authenticator({}, {"ann": user})
    account = verify(users, basic(b"ann:one"))
    assert account.name == b"ann", "it is the right password"
    assert not users.remember(users.key_of(basic(b"ann:one")), account)
    assert check(users, basic(b"ann:one")) is None
    assert users.remembered == 0


def test_a_users_time_ends_while_the_credential_is_remembered():
    """R23: a hit in the cache does not outlive the user."""
    user = make_user("ann", b"one", expires=time.time() + 100)
    users = Authenticator({}, {"ann": user}, 300.0)
    value, now = basic(b"ann:one"), time.monotonic()
    assert check(users, value, now) == b"ann"
    assert users.key_of(value) and users.remembered == 1
    check(users, value, now + 99)
    assert users.remembered == 1
    check(users, value, now + 101)       # looked up, found to be over, hashed again
    assert check(users, value, now + 99) == b"ann"


def test_credentials_that_share_a_place_among_the_recent_stay_their_users(monkeypatch):
    """R23: neither another's account nor one more second comes from there."""
    verified = []
    hash = make_user("any", b"x").hash
    monkeypatch.setattr(
        hashes, "check_hash", lambda hash, secret: verified.append(secret) or True)
    names = [f"user{number}" for number in range(200)]
    users = Authenticator(
        {}, {name: User(name=name, hash=hash) for name in names}, 300.0)
    values = {name.encode(): basic(f"{name}:{name}".encode()) for name in names}
    began = time.monotonic()
    for at, count in ((0, 200), (1, 200), (299.9, 200), (300, 400), (599.9, 400)):
        for _ in range(2):                  # known, then recent
            assert [check(users, value, began + at) for value in values.values()] == [
                *values]
        assert len(verified) == count


def test_an_account_says_who_and_never_what_is_allowed(table):
    account = verify(table, basic("zoë:two".encode()))
    assert (account.name, account.groups) == ("zoë".encode(), ("staff",))
    assert account.index == 2
    assert "two" not in repr(account)
    with pytest.raises(AttributeError):
        account.name = b"root"
    assert Account(b"x").groups == ()


@pytest.mark.parametrize("pair", [b"nobody:one", b"inline:wrong", b"ann:wrong"])
def test_whoever_is_not_verified_at_once_costs_one_hash(table, pair, monkeypatch):
    """R22: the same kind and cost, whether there is such a user or not."""
    seen = []

    def check_hash(hash, secret):
        seen.append((hashes.kind_of(hash), secret))
        return True                     # even then: nobody is nobody

    monkeypatch.setattr(hashes, "check_hash", check_hash)
    users = Authenticator({b"inline": b"three"}, {"ann": make_user("ann", b"one")})
    expected = b"ann" if pair.startswith(b"ann") else None
    assert check(users, basic(pair)) == expected
    assert seen == [(("bcrypt", (4,)), pair.partition(b":")[2])]


def test_the_dummy_is_of_the_tables_most_common_kind(monkeypatch):
    seen = []
    monkeypatch.setattr(
        hashes, "check_hash", lambda hash, secret: seen.append(hashes.kind_of(hash)))
    costs = {"a": 5, "b": 4, "c": 5}
    table = {name: make_user(name, b"x", cost) for name, cost in costs.items()}
    check(Authenticator({}, table), basic(b"nobody:x"))
    assert seen == [("bcrypt", (5,))]


def test_a_name_that_is_defined_twice_is_refused():
    with pytest.raises(ValueError, match="'ann' is defined twice"):
        Authenticator({b"ann": b"x"}, {"ann": make_user("ann", b"y")})


def test_no_password_is_held():
    users = Authenticator({b"alice": b"correct horse"})
    check(users, basic(b"alice:correct horse"))
    assert "horse" not in repr(users)


@pytest.mark.parametrize(
    ("length", "expected"),
    [  # the reference implementation's vectors_sip128: key 00..0f, input 00, 01, ...
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
        (2, "8177228da4a45dc7fca38bdef60affe4"),
    ],
)
def test_the_keyed_hash_is_siphash_2_4_128(length, expected):
    assert siphash128(bytes(range(16)), bytes(range(length))).hex() == expected


def test_the_keyed_hash_depends_on_every_byte_and_on_the_key():
    seen = {siphash128(bytes(16), bytes(n)) for n in range(200)}
    for i in range(40):
        data = bytearray(40)
        data[i] = 1
        seen.add(siphash128(bytes(16), bytes(data)))
    seen.add(siphash128(b"\1" + bytes(15), b""))
    assert len(seen) == 200 + 40 + 1

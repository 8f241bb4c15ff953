"""htpasswd files, and every kind of hash they may hold (R22, R37)."""

import shutil
import subprocess

import bcrypt
import pytest
from argon2 import low_level
from hypothesis import given, settings
from hypothesis import strategies as st
from passlib.hash import sha512_crypt

from cutthrough.config.mistake import Place
from cutthrough.policy import users
from cutthrough.policy.source import PolicyError
from cutthrough.policy.users import (
    ALGORITHMS,
    check_hash,
    check_name,
    kind_of,
    make_dummy,
    make_hash,
    read_htpasswd,
)


def make_bcrypt(secret, cost=4, prefix=b"2b"):
    made = bcrypt.hashpw(secret, bcrypt.gensalt(cost))
    return made.replace(b"2b", prefix, 1).decode()


# The password "secret"; the first three were made by `htpasswd -nb` of Apache 2.4.
HASHES = {
    "apr1": "$apr1$AAyMeLbL$lI7zKL5SwAzW.izj5pix5/",
    "sha256": "$5$I1FYFMgdyWaoQJFz$IxRrVSF75lGHgyNXPq2HIyyy7cEvY6i0JFWH6Lv/Bv1",
    "sha512": "$6$ratGAqe/UOVffClY$zgDUcWNRzpBijqoZNQ//SXicLjKjz/ZdBrAdR0NrRmLourCIBaDh"
              "ul3mZAAh8MUoAYujUZC4HJmnczHxZbXAH0",
    "rounds": sha512_crypt.using(rounds=1000).hash("secret"),
    "bcrypt": make_bcrypt(b"secret"),
    "argon2": low_level.hash_secret(
        b"secret", b"somesalt", 1, 64, 1, 32, low_level.Type.ID).decode(),
}


# Files

def read(text):
    return read_htpasswd(text, "users")


def test_a_file_is_read_line_by_line():
    bcrypt, apr1 = HASHES["bcrypt"], HASHES["apr1"]
    text = f"# staff\nann:{bcrypt}\n\n  \nbob:{apr1}:a comment\r\nzoë b:{apr1}"
    found = read(text)
    assert list(found) == ["ann", "bob", "zoë b"]
    assert [user.hash for user in found.values()] == [bcrypt, apr1, apr1]
    assert found["ann"].groups == () and found["ann"].expires == 0


@pytest.mark.parametrize("text", ["", "\n", "# nobody\n", "\r\n"])
def test_a_file_may_list_nobody(text):
    assert read(text) == {}


@pytest.mark.parametrize(("line", "reason"), [
    ("ann", "is not name:hash"),
    (":{apr1}", "the user name is empty"),
    ("an\x07n:{apr1}", "a control character"),
    (" ann:{apr1}", "begin or end with a space"),
    ("ann :{apr1}", "begin or end with a space"),
    ("a" * 256 + ":{apr1}", "exceed 255 bytes"),
    ("ann:", "plain text"),
    ("ann:secret", "plain text"),
    ("ann:{{SHA}}5en6G6MezRroT3XKqkdPOmY/BfQ=", "unsalted SHA-1"),
    ("ann:rqXexS6ZhobKA", "plain text"),                      # DES
    ("ann:$1$abc$9f5y1t1h4bE0b8hXhV1b90", "MD5-crypt"),
    ("ann:$argon2i$v=19$m=64,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA", "argon2i;"),
    ("ann:$2x$05$" + "a" * 53, "computed it wrongly"),
    ("ann:{bcrypt_short}", "not a complete"),
    ("ann: {apr1}", "not a complete"),
    ("ann:{apr1} ", "not a complete"),
    ("ann:$2y$16$" + "a" * 53, "bcrypt's cost"),
    ("ann:$2y$03$" + "a" * 53, "bcrypt's cost"),
    ("ann:$6$rounds=2000001$abc$" + "a" * 86, "more than 2000000 rounds"),
    ("ann:$6$rounds=999$abc$" + "a" * 86, "not a complete"),
    ("ann:$argon2id$v=19$m=2097152,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA", "m is"),
    ("ann:$argon2id$v=19$m=65536,t=65,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA", "m is"),
    ("ann:$argon2id$v=19$m=8,t=1,p=4$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA", "less than"),
])
def test_a_bad_line_is_named_with_its_number_and_reason(line, reason):
    line = line.format(apr1=HASHES["apr1"], bcrypt_short=HASHES["bcrypt"][:-1])
    with pytest.raises(PolicyError) as told:
        read(f"# first\nok:{HASHES['apr1']}\n{line}\n")
    assert (told.value.source, told.value.place) == ("users", Place(3))
    assert reason in told.value.reason
    secret = line.partition(":")[2].strip()
    assert not secret or secret not in str(told.value), "a hash is no public text (R37)"


def test_a_user_that_is_listed_twice_is_an_error():
    line = f"ann:{HASHES['apr1']}\n"
    told = "^users:3: 'ann' is already defined in line 1"
    with pytest.raises(PolicyError, match=told):
        read(f"{line}bob:{HASHES['apr1']}\n{line}")


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200))
@settings(max_examples=200)
def test_any_text_is_read_or_refused_with_a_line(text):
    try:
        for name in read(text):
            check_name(name)
    except PolicyError as error:
        assert all(one.place and not one.place.text for one in error.all)


# Hashes

@pytest.mark.parametrize("kind", HASHES)
def test_the_right_password_matches_and_no_other(kind):
    hash = HASHES[kind]
    assert check_hash(hash, b"secret")
    for wrong in (b"", b"Secret", b"secret ", b"secre", b"secret\0", b"secret\0x",
                  b"\0", b"s" * 2000, hash.encode()):
        assert not check_hash(hash, wrong)


@pytest.mark.parametrize("kind", ["sha256", "sha512", "rounds"])
def test_sha_crypt_is_the_same_without_the_systems_library(kind, monkeypatch):
    monkeypatch.setattr(users, "_libcrypt", lambda: None)
    assert check_hash(HASHES[kind], b"secret")
    assert not check_hash(HASHES[kind], b"Secret")


@pytest.mark.parametrize("prefix", [b"2a", b"2b", b"2y"])
def test_every_prefix_of_bcrypt_is_the_same(prefix):
    hash = make_bcrypt(b"secret", prefix=prefix)
    assert check_hash(hash, b"secret") and not check_hash(hash, b"other")
    assert kind_of(hash) == ("bcrypt", (4,))


def test_bcrypt_looks_at_72_bytes_as_every_reader_of_such_a_file_does():
    hash = make_bcrypt(b"x" * 72)
    assert check_hash(hash, b"x" * 72) and check_hash(hash, b"x" * 100)
    assert not check_hash(hash, b"x" * 71)
    with pytest.raises(ValueError, match="72 bytes"):
        make_hash(b"x" * 73, "bcrypt")


@pytest.mark.parametrize("hash", ["", "secret", "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="])
def test_what_is_no_hash_is_never_compared(hash):
    with pytest.raises(ValueError):
        check_hash(hash, b"secret")


@pytest.mark.parametrize("kind", HASHES)
def test_a_dummy_is_of_the_same_kind_and_known_to_nobody(kind):
    """R22: an unknown user costs the same."""
    hash = HASHES[kind]
    made = make_dummy(hash)
    assert kind_of(made) == kind_of(hash) and len(made) == len(hash)
    assert made != hash and made != make_dummy(hash)
    assert not check_hash(made, b"secret")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_is_made_is_accepted(algorithm):
    made = make_hash(b"correct horse", algorithm)
    assert made != make_hash(b"correct horse", algorithm), "salted"
    assert read(f"ann:{made}\n")
    assert check_hash(made, b"correct horse") and not check_hash(made, b"wrong horse")


@pytest.mark.parametrize("secret", [b"", b"a\0b", b"a\nb", b"\x7f", b"x" * 1025])
def test_what_no_client_could_send_is_no_password(secret):
    with pytest.raises(ValueError):
        make_hash(secret, "argon2")


@pytest.mark.skipif(shutil.which("htpasswd") is None, reason="htpasswd is not there")
@pytest.mark.parametrize("flags", [["-m"], ["-B", "-C", "5"], ["-2"], ["-5"],
                                   ["-5", "-r", "2000"]])
def test_what_htpasswd_writes_is_read(tmp_path, flags):
    file = tmp_path / "users"
    done = subprocess.run(["htpasswd", "-cb", *flags, file, "ann", "pass:wörd"],
                          capture_output=True)
    if done.returncode:
        pytest.skip("this htpasswd does not know that hash")
    user = read(file.read_text())["ann"]
    assert check_hash(user.hash, "pass:wörd".encode())
    assert not check_hash(user.hash, b"pass:word")

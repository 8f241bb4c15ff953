"""Keys of authorities in PKCS#11 tokens, and their URIs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cutthrough.ca.names import AuthorityError
from cutthrough.ca.token import complete_uri, read_pin, read_uri
from tests.support.proxy import ROOT
from tests.support.token import MODULE, PIN, Token, needs_token

REST = f"?module-path={MODULE or '/m.so'}"


@pytest.fixture(params=["ec", "rsa"])
def token(tmp_path, request) -> Token:
    return Token(tmp_path / "token", request.param)


def ca(token: Token, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cutthrough", "ca", *words], text=True, check=False,
        capture_output=True, env={**os.environ, **token.env})


def verified(*words: str | Path) -> str:
    return subprocess.run(["openssl", "verify", "-x509_strict", *map(str, words)],
                          text=True, capture_output=True, check=False).stdout


@needs_token
def test_an_authority_is_made_and_issues(tmp_path, token) -> None:
    folder = tmp_path / "ca"
    done = ca(token, "init", "--dir", str(folder), "--key", token.uri)
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / "ca.key").read_text() == f"{token.uri}\n"
    assert (folder / "ca.key").stat().st_mode & 0o777 == 0o600
    own = folder / "ca.pem"
    assert verified("-CAfile", own, own).endswith("OK\n")
    done = ca(token, "issue", "--dir", str(folder), "a.example", "--output",
              str(tmp_path / "leaf"))
    assert (done.returncode, done.stderr) == (0, "")
    assert verified("-CAfile", own, "-verify_hostname", "a.example",
                    tmp_path / "leaf.pem").endswith("OK\n")


@needs_token
def test_a_delegate_is_below_it(tmp_path, token) -> None:
    folder = tmp_path / "ca"
    ca(token, "init", "--dir", str(folder), "--key", token.uri, "--permit", "a.example")
    done = subprocess.run(
        [sys.executable, "-m", "cutthrough.ca.delegate", str(folder)], check=True,
        capture_output=True, env={**os.environ, **token.env})
    (tmp_path / "delegate.pem").write_bytes(done.stdout)
    assert done.stdout.count(b"BEGIN CERTIFICATE") == 2
    assert verified("-CAfile", folder / "ca.pem",
                    tmp_path / "delegate.pem").endswith("OK\n")


@needs_token
@pytest.mark.parametrize(("old", "new", "told"), [
    ("token=vault", "token=other", "there is no such token"),
    ("object=root", "object=other", "there is no such private key"),
    ("libsofthsm2", "none", "cannot open the token"),
    ("object=root", "object=root;id=%a2", "there is no such private key")])
def test_what_is_not_there(tmp_path, old, new, told) -> None:
    token = Token(tmp_path / "token")
    done = ca(token, "init", "--dir", str(tmp_path / "ca"), "--key",
              token.uri.replace(old, new))
    assert done.returncode == 2
    assert told in done.stderr
    assert PIN not in done.stderr
    assert not (tmp_path / "ca").exists()


@needs_token
def test_a_wrong_pin_is_not_told(tmp_path) -> None:
    token = Token(tmp_path / "token")
    token.pin_file.write_text("12345678\n")
    done = ca(token, "init", "--dir", str(tmp_path / "ca"), "--key", token.uri)
    assert done.returncode == 2
    assert "cannot open the token: PinIncorrect" in done.stderr
    assert "12345678" not in done.stderr


@pytest.mark.parametrize(("uri", "told"), [
    ("pkcs11:object=a?pin-value=1234", "a PIN belongs in a file"),
    ("pkcs11:object=a", "needs .module-path="),
    ("pkcs11:token=a" + REST, "give object or id"),
    ("pkcs11:object=a;color=red" + REST, "'color'"),
    ("pkcs11:object=a;object=b" + REST, "'object' twice"),
    ("pkcs11:object=a;type=cert" + REST, "must be private"),
    ("pkcs11:object=a;slot-id=x" + REST, "slot-id is no number")])
def test_a_uri_that_cannot_be_used(uri, told) -> None:
    with pytest.raises(AuthorityError, match=told) as failure:
        read_uri(uri)
    assert "1234" not in str(failure.value)


def test_a_uri_is_read() -> None:
    """RFC 7512 section 2.3: escapes, and octets in `id`."""
    place = read_uri("pkcs11:token=My%20Token;serial=01;slot-id=3;id=%a1%00;"
                     "object=a%3bb?module-path=/m.so&pin-source=file:/etc/pin")
    assert place == ("/m.so", "/etc/pin", "My Token", b"01", 3, "a;b", b"\xa1\0")


def test_a_kept_uri_has_whole_paths(tmp_path, monkeypatch) -> None:
    """Who reads it is in another directory: with relative paths no server started. What
    is no ASCII is escaped, because the file is read as ASCII."""
    folder = os.fsencode(tmp_path) + b"/a b\xe9"
    os.mkdir(folder)
    monkeypatch.chdir(os.fsdecode(folder))
    kept = complete_uri(
        "pkcs11:token=caf\u00e9;id=%a1?module-path=lib/m.so&pin-source=pin")
    assert kept.isascii()
    assert kept.startswith("pkcs11:token=caf%C3%A9;id=%a1?")
    place = read_uri(kept)
    assert (place.token, place.key_id) == ("caf\u00e9", b"\xa1")
    assert os.fsencode(place.module) == folder + b"/lib/m.so"
    assert os.fsencode(place.pin_file) == folder + b"/pin"


def test_a_library_without_a_slash_is_the_linkers_to_find() -> None:
    uri = "pkcs11:object=a?module-path=m.so&pin-source=file:/etc/pin"
    assert complete_uri(uri) == uri


@needs_token
def test_an_authority_that_was_made_elsewhere_issues(tmp_path, token) -> None:
    folder = tmp_path / "ca"
    uri = token.uri.replace(str(token.pin_file), token.pin_file.name)
    done = subprocess.run(
        [sys.executable, "-m", "cutthrough", "ca", "init", "--dir", str(folder),
         "--key", uri], cwd=token.pin_file.parent, text=True, capture_output=True,
        check=False, env={**os.environ, **token.env, "PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stderr) == (0, "")
    done = ca(token, "issue", "--dir", str(folder), "a.example", "--output",
              str(tmp_path / "leaf"))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_pin_is_its_owners_alone(tmp_path) -> None:
    path = tmp_path / "pin"
    path.write_text("1234\n")
    path.chmod(0o640)
    with pytest.raises(AuthorityError, match="chmod 600"):
        read_pin(str(path))
    path.chmod(0o600)
    assert read_pin(str(path)) == "1234"

"""`cutthrough ca` as it is typed: its files, their modes, and its refusals."""

import os
import re
import shlex
import ssl
import subprocess
import sys

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from cutthrough.ca import store
from cutthrough.ca.roots import FROM, VARIABLES, parse_certificates
from cutthrough.ca.store import encode_key, read_authority
from cutthrough.cli.main import main
from tests.support.certificates import authority
from tests.support.proxy import ROOT

HOSTNAME = "a-host-with-a-name-of-more-characters-than-there-are-in-a-subject"


@pytest.fixture(autouse=True)
def surroundings(tmp_path, monkeypatch):
    """No variable of this user's, and no directory of theirs."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "data/cutthrough/ca"


@pytest.fixture
def run(capsysbinary):
    """Runs a command line; returns its status, its output and its errors."""
    def typed(*words: object) -> tuple[int, str, str]:
        status = main(["ca", *map(str, words)])
        told = capsysbinary.readouterr()
        return status, told.out.decode(errors="replace"), told.err.decode()

    return typed


@pytest.fixture
def refused(run):
    """Runs a command line that is refused; returns the reason, one line."""
    def typed(*words: object) -> str:
        status, printed, reason = run(*words)
        assert (status, printed) == (2, "")
        assert reason.startswith("cutthrough: ") and reason.count("\n") == 1
        return reason

    return typed


@pytest.fixture
def made(run, folder):
    assert run("init")[0] == 0
    return folder


# init

def test_the_key_is_its_owners_alone(made):
    """R55."""
    assert made.stat().st_mode & 0o777 == 0o700
    assert (made / "ca.key").stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(made)) == ["ca.key", "ca.pem"]
    key = read_authority(str(made)).key
    assert isinstance(key.curve, ec.SECP256R1)


def test_an_authority_is_not_replaced_without_force(run, refused, made):
    before = (made / "ca.key").read_bytes(), (made / "ca.pem").read_bytes()
    assert "ca.key exists. --force replaces the authority" in refused("init")
    assert ((made / "ca.key").read_bytes(), (made / "ca.pem").read_bytes()) == before
    assert run("init", "--force")[0] == 0
    assert (made / "ca.key").read_bytes() != before[0]
    read_authority(str(made))
    # Half of one is one too
    (made / "ca.key").unlink()
    assert "ca.pem exists" in refused("init")
    assert not (made / "ca.key").exists()


def test_a_directory_that_others_can_open_is_refused(refused, tmp_path):
    tmp_path.chmod(0o755)
    assert f"chmod 700 {tmp_path}" in refused("init", "--dir", tmp_path)
    assert not (tmp_path / "ca.key").exists()


def test_the_name_fits_whatever_the_host_is_called(run, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: HOSTNAME)
    status, printed, _ = run("init")
    assert status == 0 and "CN=cutthrough CA " in printed


def test_show_prints_what_there_is_to_know(run, folder):
    assert run("init", "--name", "Ours", "--permit", "a.example", "--permit",
               "10.0.0.0/8", "--days", "90")[0] == 0
    status, printed, _ = run("show")
    assert status == 0
    shown = dict(re.split(r"\s+", line, maxsplit=1) for line in printed.splitlines())
    assert shown["subject"] == "CN=Ours"
    # Of whole days, and a second may have begun since
    assert shown["valid"].endswith((", 90 days left", ", 89 days left"))
    assert re.fullmatch("([0-9A-F]{2}:){31}[0-9A-F]{2}", shown["SHA-256"])
    assert shown["constraints"] == "only for a.example and below, 10.0.0.0/8"
    assert shown["key"] == str(folder / "ca.key")
    assert shown["certificate"] == str(folder / "ca.pem")


def test_the_end_is_told_early(run):
    assert run("init", "--days", "59")[0] == 0
    assert "59 days left: make the next one" in run("show")[1]


def test_show_says_why_the_key_cannot_be_used(run, made):
    (made / "ca.key").chmod(0o640)
    status, printed, _ = run("show")
    assert status == 0 and "cannot be used: " in printed and "chmod 600" in printed
    (made / "ca.key").unlink()
    assert "cannot be used: No such file" in run("show")[1]


# Which keys are read

def test_a_key_that_others_may_read_signs_nothing(refused, made):
    """R55, R49."""
    (made / "ca.key").chmod(0o604)
    assert f"chmod 600 {made}/ca.key" in refused("issue", "a.example")
    (made / "ca.key").chmod(0o600)
    made.chmod(0o750)
    assert f"chmod 700 {made}" in refused("issue", "a.example")
    assert not os.path.exists("a.example.key")


def test_a_key_of_another_user_signs_nothing(refused, made, monkeypatch):
    monkeypatch.setattr(store.os, "geteuid", lambda: 12345)
    assert "and this is user 12345" in refused("issue", "a.example")


def test_a_link_to_a_key_signs_nothing(refused, made):
    (made / "ca.key").rename(made / "other")
    (made / "ca.key").symlink_to("other")
    assert "ca.key is not a file" in refused("issue", "a.example")


@pytest.mark.parametrize(("content", "reason"), [
    (b"", "has no key in PEM"),
    (b"secret of somebody", "has no key in PEM"),
    (encode_key(ec.generate_private_key(ec.SECP256R1())), "is not the key of ca.pem"),
    (authority().sign(kind="rsa").pem[1], "is not an ECDSA key"),
])
def test_what_is_no_key_of_this_authority_is_refused(refused, made, content, reason):
    (made / "ca.key").write_bytes(content)
    told = refused("issue", "a.example")
    assert reason in told and "secret" not in told


def test_a_leaf_is_no_authority(refused, made):
    (made / "ca.pem").write_bytes(authority().sign("DNS:a.example").pem[0])
    assert "is not the certificate of an authority" in refused("show")
    (made / "ca.pem").write_bytes(b"\0")
    assert "has no certificate in PEM" in refused("show")


def test_without_an_authority_there_is_a_remedy(refused):
    for words in (["show"], ["export"], ["trust", "--check"], ["issue", "a.example"]):
        assert "`cutthrough ca init` makes one" in refused(*words)


# export

def test_no_export_has_the_key(run, made):
    """R55."""
    secret = parse_key((made / "ca.key").read_bytes())
    for form in ("pem", "der", "p12", "bundle"):
        assert run("export", "--format", form, "--output", f"x.{form}")[0] == 0
        with open(f"x.{form}", "rb") as file:
            data = file.read()
        assert b"PRIVATE" not in data and secret not in data
        assert os.stat(f"x.{form}").st_mode & 0o777 == 0o644


def parse_key(pem: bytes) -> bytes:
    """A line of the key's base64."""
    return pem.splitlines()[1]


def test_pem_and_der_and_p12_are_one_certificate(run, made):
    (der,) = parse_certificates((made / "ca.pem").read_bytes())
    assert run("export")[1] == (made / "ca.pem").read_text()
    for form in ("der", "p12"):
        assert run("export", "--format", form, "--output", form)[0] == 0
    with open("der", "rb") as file:
        assert file.read() == der
    with open("p12", "rb") as file:
        found = pkcs12.load_pkcs12(file.read(), b"changeit")
    assert found.key is None and found.cert is None and len(found.additional_certs) == 1
    listed = subprocess.run(
        ["openssl", "pkcs12", "-in", "p12", "-nokeys", "-passin", "pass:changeit"],
        capture_output=True, text=True, check=True).stdout
    # Java trusts an entry only if it has this attribute (Oracle's trustedKeyUsage)
    assert "2.16.840.1.113894.746875.1.1" in listed
    assert [der] == parse_certificates(listed.encode())


def test_a_file_is_not_replaced_without_force(run, refused, made):
    with open("x", "w") as file:
        file.write("mine")
    assert "x exists; --force replaces it" in refused("export", "--output", "x")
    assert run("export", "--output", "x", "--force")[0] == 0
    assert run("export", "--output", "none/x") == (
        1, "", "cutthrough: none/x: No such file or directory\n")
    assert sorted(os.listdir(".")) == ["data", "x"]


def test_a_bundle_has_the_roots_of_the_system_too(run, made, monkeypatch):
    """A client that is given a file trusts that file alone: with the authority's
    certificate by itself every public site failed."""
    ours, system = parse_certificates((made / "ca.pem").read_bytes()), authority()
    monkeypatch.setenv("SSL_CERT_FILE", str(system.own.certificate))
    monkeypatch.setattr("cutthrough.ca.roots.BUNDLES", ())
    status, printed, _ = run("export", "--format", "bundle")
    path = made / "bundle.pem"
    assert status == 0
    assert printed == "".join(f"export {name}={path}\n" for name in VARIABLES)
    assert parse_certificates(path.read_bytes()) == ours + parse_certificates(
        system.own.certificate.read_bytes())
    context = ssl.create_default_context(cafile=path)
    assert len(context.get_ca_certs()) == 2


def test_a_bundle_keeps_what_the_variables_named(run, made, monkeypatch, tmp_path):
    """Once the variables name the bundle, nothing else names the company's roots."""
    one, two, three = (parse_certificates(authority().sign().pem[0])[0]
                       for _ in range(3))
    for name, der in (("system", one), ("company", two), ("late", three)):
        (tmp_path / name).write_text(ssl.DER_cert_to_PEM_cert(der))
    monkeypatch.setattr("cutthrough.ca.roots.BUNDLES", (str(tmp_path / "system"),))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "company"))
    assert run("export", "--format", "bundle")[0] == 0
    path = made / "bundle.pem"
    for name in VARIABLES:
        monkeypatch.setenv(name, str(path))
    # A root that the system gives up goes, and one that it adds comes
    (tmp_path / "system").write_text(ssl.DER_cert_to_PEM_cert(three))
    assert run("export", "--format", "bundle")[0] == 0
    assert parse_certificates(path.read_bytes())[1:] == [two, three]
    assert path.read_text().count(FROM) == 2
    # A source that is gone is named
    (tmp_path / "company").unlink()
    status, _, notes = run("export", "--format", "bundle")
    assert status == 0 and "company is left out: No such file" in notes
    assert parse_certificates(path.read_bytes())[1:] == [three]


def test_a_shell_gets_the_octets_of_a_path(tmp_path):
    """They came as escapes, and the variables named files that do not exist."""
    folder = os.fsencode(tmp_path) + b"/caf\xe9 'x'"
    os.mkdir(folder)
    program = [sys.executable, "-m", "cutthrough"]
    environ = {**os.environ, "LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT)}

    def exported(*words):
        return subprocess.run(
            ["sh", "-c", f'eval "$({shlex.join([*program, *words])})"; '
             'cat "$PIP_CERT"'], cwd=folder, env=environ, timeout=60,
            capture_output=True, check=True).stdout

    subprocess.run([*program, "ca", "init", "--dir", "ca"], cwd=folder, env=environ,
                   check=True, timeout=60, stdout=subprocess.DEVNULL)
    for words in (["ca", "export", "--format", "bundle", "--dir", "ca"],
                  ["inspect", "--env", "--directory", "state", "--ca", "ca"]):
        assert exported(*words).count(b"BEGIN CERTIFICATE") > 1, words


def test_a_bundle_of_a_directory(run, made, monkeypatch, tmp_path):
    (tmp_path / "roots").mkdir()
    (tmp_path / "roots/below").mkdir()
    for name in ("a.pem", "b.crt"):
        (tmp_path / "roots" / name).write_bytes(authority().sign().pem[0])
    monkeypatch.setattr("cutthrough.ca.roots.BUNDLES", ())
    monkeypatch.setenv("CURL_CA_BUNDLE", str(tmp_path / "roots"))
    assert run("export", "--format", "bundle")[0] == 0
    assert len(parse_certificates((made / "bundle.pem").read_bytes())) == 3


def test_another_programs_file_is_no_bundle_of_ours(refused, made, tmp_path):
    (tmp_path / "roots.pem").write_bytes((made / "ca.pem").read_bytes())
    assert "is not replaced: choose another file" in refused(
        "export", "--format", "bundle", "--output", "roots.pem", "--force")


def test_without_roots_there_is_no_bundle(refused, made, monkeypatch):
    monkeypatch.setattr("cutthrough.ca.roots.BUNDLES", ())
    assert "install ca-certificates" in refused("export", "--format", "bundle")
    monkeypatch.setenv("SSL_CERT_FILE", "/none")
    assert "/none is left out: No such file" in refused("export", "--format", "bundle")
    assert not (made / "bundle.pem").exists()


# issue

def test_a_servers_files_are_made(run, made):
    status, printed, _ = run("issue", "*.a.example", "10.0.0.1")
    assert status == 0 and printed.startswith(
        "_wildcard.a.example.pem and _wildcard.a.example.key: *.a.example, 10.0.0.1;")
    assert os.stat("_wildcard.a.example.key").st_mode & 0o777 == 0o600
    subprocess.run(["openssl", "verify", "-CAfile", made / "ca.pem",
                    "_wildcard.a.example.pem"], check=True, capture_output=True)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
        "_wildcard.a.example.pem", "_wildcard.a.example.key")


def test_a_servers_files_are_not_replaced_without_force(run, refused, made):
    assert run("issue", "::1", "--output", "x")[0] == 0
    os.unlink("x.key")
    assert "x.pem exists" in refused("issue", "::1", "--output", "x")
    assert not os.path.exists("x.key")
    assert run("issue", "::1", "--output", "x", "--force")[0] == 0
    assert os.path.exists("x.key")


def test_the_names_may_be_another_certificates(run, made):
    other = authority().sign("DNS:a.example", "DNS:b.example").certificate
    status, printed, _ = run("issue", "--like", other, "c.example")
    assert status == 0
    assert ".key: c.example, a.example, b.example; until 20" in printed


@pytest.mark.parametrize(("words", "reason"), [
    ((), "give a name, or --like"), (("a b",), "'a b' is not a host name or address"),
    (("a.example", "--days", "198"), "1 to 197 days"),
    (("b.example",), "constraints do not permit b.example")])
def test_what_cannot_be_issued_is_refused(run, refused, words, reason):
    assert run("init", "--permit", "a.example")[0] == 0
    assert reason in refused("issue", *words)
    assert os.listdir(".") == ["data"]


@pytest.mark.parametrize("words", [
    ("trust",), ("init", "--days", "0"), ("init", "--days", "3651"), ("show", "x"),
    ("export", "--format", "key"), ("init", "--permt", "a.example")])
def test_what_is_not_understood_exits_2(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["ca", *words])
    assert ended.value.code == 2 and "usage: cutthrough" in capsys.readouterr().err

"""`cutthrough ca trust --check`: each kind of store, and the command that it names."""

import os
import shutil
import ssl
import subprocess

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from cutthrough.ca.roots import VARIABLES
from cutthrough.ca.trust import ANCHORS, BUNDLES, JKS, Seeker, Store, is_in_keystore
from cutthrough.cli.main import main
from tests.support.certificates import authority

OURS, OTHER = (authority().sign() for _ in range(2))
DER, OTHER_DER = (ssl.PEM_cert_to_DER_cert(pair.certificate.read_text())
                  for pair in (OURS, OTHER))


@pytest.fixture
def seek(tmp_path):
    """Looks at a host with its files in `tmp_path`; returns the stores of a kind."""
    def seek(kind: str, **environ: str) -> list[Store]:
        environ = {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"],
                   **environ}
        seeker = Seeker(DER, "cutthrough-1a2b", str(OURS.certificate), "eval …",
                        environ, tmp_path)
        return [store for store in seeker.find() if store.kind == kind]

    return seek


def put(folder, path: str, content: str | bytes):
    file = folder / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


# The system

@pytest.mark.parametrize("path", BUNDLES)
@pytest.mark.parametrize(("made", "verdict"), [(OURS, "yes"), (OTHER, "no")])
def test_the_systems_bundle_of_each_distribution(tmp_path, seek, path, made, verdict):
    put(tmp_path, path, b"# a comment\n" + made.pem[0])
    (store,) = seek("system")
    assert (store.name, store.verdict) == (f"{tmp_path}{path}", verdict)
    assert bool(store.remedy) == (verdict == "no")


@pytest.mark.parametrize(("folder", "command"), [
    (folder, command) for folder, _, command in ANCHORS])
def test_the_remedy_is_the_distributions(tmp_path, seek, folder, command):
    put(tmp_path, BUNDLES[0], b"")
    (tmp_path / folder.lstrip("/")).mkdir(parents=True)
    (store,) = seek("system")
    assert f"cp {OURS.certificate} {folder}/cutthrough-1a2b." in store.remedy
    assert store.remedy.endswith(command)


def test_links_to_one_bundle_are_one_store(tmp_path, seek):
    file = put(tmp_path, BUNDLES[0], OURS.pem[0])
    link = tmp_path / BUNDLES[1].lstrip("/")
    link.parent.mkdir(parents=True)
    link.symlink_to(file)
    assert len(seek("system")) == 1


def test_a_host_without_roots_is_told(seek):
    (store,) = seek("system")
    assert (store.verdict, store.remedy) == ("-", "install ca-certificates")


# NSS

@pytest.fixture
def database(tmp_path):
    folder = tmp_path / "home/.mozilla/firefox/a b.default"
    folder.mkdir(parents=True)
    subprocess.run(["certutil", "-N", "-d", f"sql:{folder}", "--empty-password"],
                   check=True, capture_output=True)
    return folder


def add(database, made, flags: str, name: str) -> None:
    subprocess.run(["certutil", "-A", "-d", f"sql:{database}", "-n", name, "-t", flags,
                    "-i", made.certificate], check=True, capture_output=True)


def test_a_database_of_nss_without_the_certificate(database, seek):
    (store,) = seek("NSS")
    assert (store.name, store.verdict) == (str(database), "no")
    add(database, OTHER, "C,,", "other")
    (store,) = seek("NSS")
    assert store.verdict == "no"
    # The remedy is a command that works
    subprocess.run(store.remedy, shell=True, check=True, capture_output=True)
    (store,) = seek("NSS")
    assert (store.verdict, store.remedy) == ("yes", "")


def test_a_certificate_that_nss_has_and_does_not_trust(database, seek):
    add(database, OURS, ",,", "ours, untrusted")
    assert seek("NSS")[0].verdict == "no"


def test_what_is_no_database_is_told(tmp_path, seek):
    put(tmp_path, "home/.pki/nssdb/cert9.db", "nothing")
    (store,) = seek("NSS")
    assert store.verdict == "?" and "certutil" in store.said and store.remedy


def test_without_certutil_its_package_is_named(tmp_path, seek):
    put(tmp_path, "home/.pki/nssdb/cert9.db", "nothing")
    (store,) = seek("NSS", PATH=str(tmp_path))
    assert store.verdict == "?" and "libnss3-tools" in store.said


# Java

def truststore(der: bytes, password: bytes | None) -> bytes:
    how = (serialization.NoEncryption() if password is None
           else serialization.BestAvailableEncryption(password))
    return pkcs12.serialize_java_truststore(
        [pkcs12.PKCS12Certificate(x509.load_der_x509_certificate(der), b"a")], how)


@pytest.mark.parametrize(("data", "verdict"), [
    (truststore(DER, b"changeit"), True), (truststore(OTHER_DER, b"changeit"), False),
    (truststore(DER, None), True), (truststore(OTHER_DER, None), False),
    (truststore(DER, b"another"), None), (JKS + b"\0\0\0\2" + DER, True),
    (JKS + b"\0\0\0\2" + OTHER_DER, False), (b"", None), (b"text", None)])
def test_each_form_of_a_keystore_is_read(data, verdict):
    assert is_in_keystore(data, DER) is verdict


@pytest.mark.parametrize(("der", "verdict"), [(DER, "yes"), (OTHER_DER, "no")])
def test_javas_cacerts_are_found(tmp_path, seek, der, verdict):
    real = put(tmp_path, "/etc/ssl/certs/java/cacerts", truststore(der, b"changeit"))
    jdk = tmp_path / "usr/lib/jvm/java-21/lib/security"
    jdk.mkdir(parents=True)
    (jdk / "cacerts").symlink_to(real)       # as Debian has it
    (store,) = seek("Java", JAVA_HOME=str(jdk.parent.parent))
    assert (store.name, store.verdict) == (str(real), verdict)
    assert ("-importcert" in store.remedy) == (verdict == "no")


def test_a_keystore_of_another_password_is_told(tmp_path, seek):
    put(tmp_path, "/etc/pki/java/cacerts", truststore(DER, b"another"))
    (store,) = seek("Java")
    assert store.verdict == "?" and "changeit" in store.said


# Variables

def test_each_variable_has_a_line(seek):
    stores = seek("variable", SSL_CERT_FILE=str(OURS.certificate),
                 PIP_CERT=str(OTHER.certificate), CURL_CA_BUNDLE="/none")
    lines = {store.name.partition("=")[0]: store for store in stores}
    assert [*lines] == [*VARIABLES]
    assert lines["SSL_CERT_FILE"].verdict == "yes"
    assert (lines["PIP_CERT"].verdict, lines["PIP_CERT"].remedy) == ("no", "eval …")
    assert (lines["CURL_CA_BUNDLE"].verdict, lines["CURL_CA_BUNDLE"].said) == (
        "?", "No such file or directory")
    # A variable may be unset if the system's bundle is used
    assert lines["GIT_SSL_CAINFO"].verdict == "-"
    assert lines["GIT_SSL_CAINFO"].remedy == ""
    assert lines["NODE_EXTRA_CA_CERTS"].remedy == "eval …"


# All of it

def test_the_bundle_is_the_remedy_of_every_variable(tmp_path, monkeypatch, capsys):
    """And nothing is changed by the check."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "JAVA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    system = put(tmp_path, "system.pem", OTHER.pem[0])
    for module in ("roots", "trust"):
        monkeypatch.setattr(f"cutthrough.ca.{module}.BUNDLES", (str(system),))
    monkeypatch.setattr("cutthrough.ca.trust.JAVA", ())
    folder = ["--dir", str(tmp_path / "ca")]
    assert main(["ca", "init", *folder]) == 0
    before = sorted(tmp_path.rglob("*"))
    capsys.readouterr()
    assert main(["ca", "trust", "--check", *folder]) == 1
    remedy = f'eval "$(cutthrough ca export --format bundle --dir {folder[1]})"'
    assert f"-> {remedy}" in capsys.readouterr().out
    assert sorted(tmp_path.rglob("*")) == before

    assert main(["ca", "export", "--format", "bundle", *folder]) == 0
    for line in capsys.readouterr().out.splitlines():
        name, _, path = line.removeprefix("export ").partition("=")
        monkeypatch.setenv(name, path)
    shutil.copy(tmp_path / "ca/bundle.pem", system)          # update-ca-certificates
    assert main(["ca", "trust", "--check", *folder]) == 0
    out = capsys.readouterr().out
    assert out.count("yes  variable") == len(VARIABLES) and "->" not in out

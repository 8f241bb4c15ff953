"""`ca_certificate`: the certificates of the file, and which files are refused."""

import hashlib
import ssl
import subprocess
import sys
import time

import pytest

from cutthrough.config.config import Config, ConfigError
from cutthrough.generation.ca_certificate import read_ca_certificate
from cutthrough.supervisor.certificate_watch import stamps_of
from tests.support.certificates import authority
from tests.support.proxy import ROOT, clean_environment

OURS = authority().own


def read(path):
    return read_ca_certificate(Config(ca_certificate=str(path)))


def test_without_the_option_there_is_none():
    assert read_ca_certificate(Config()) is None


def test_what_a_certificate_says_of_itself(tmp_path):
    file = tmp_path / "ca.pem"
    file.write_bytes(b"a comment\n" + OURS.pem[0] + authority().sign().pem[0])
    found = read(file)
    der = ssl.PEM_cert_to_DER_cert(OURS.certificate.read_text())
    assert (found.path, found.der, found.subject) == (
        str(file), der, "commonName=authority")
    assert found.pem.split() == OURS.certificate.read_text().split()
    assert found.sha256.replace(":", "").lower() == hashlib.sha256(der).hexdigest()
    assert 29 < (found.not_after - time.time()) / 86400 <= 30


@pytest.mark.parametrize(("content", "reason"), [
    (None, "No such file"), (b"", "has no certificate in PEM"),
    (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
     "has no certificate in PEM"),
    (b"-----BEGIN CERTIFICATE-----\n\xff\n-----END CERTIFICATE-----\n",
     "has no certificate in PEM"),
    (authority().sign("DNS:a.example").pem[0], "not the certificate of an authority"),
    (b"".join(OURS.pem), "has a private key"), (OURS.pem[1], "has a private key"),
])
def test_what_cannot_be_offered_is_refused(tmp_path, content, reason):
    """Others download the file: one with a key would have given it to them (R55)."""
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read(file)
    assert reason in caught.value.reason and caught.value.key == "ca_certificate"


def test_a_changed_file_is_seen(tmp_path):
    file = tmp_path / "ca.pem"
    config = Config(ca_certificate=str(file))
    before = stamps_of(config)
    file.write_bytes(OURS.pem[0])
    assert before == {str(file): None} != stamps_of(config)


def test_the_files_of_interception_are_watched(tmp_path):
    config = Config(intercept_ca=str(tmp_path), origin_ca=str(tmp_path / "origins.pem"))
    assert stamps_of(config).keys() == {
        f"{tmp_path}/{name}" for name in ("ca.pem", "ca.key", "origins.pem")}
    assert not stamps_of(Config(origin_ca=str(tmp_path / "origins.pem")))


def test_cryptography_is_not_loaded_for_it():
    """A program that serves keeps every module that it has loaded."""
    code = ("import sys; from cutthrough.cli.main import main;"
            f"main(['check', '--ca-certificate', {str(OURS.certificate)!r}]);"
            "import cutthrough.admin.server; print('cryptography' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=30, text=True,
                          capture_output=True, env=clean_environment())
    assert done.stdout == "the configuration is valid\nFalse\n", done.stderr

"""The page /ca of the admin listener: the certificate, and never a key (R55)."""

import re
import shutil
import ssl

import pytest

from cutthrough.cli.main import main
from tests.support.admin import AUTHORIZED, administered
from tests.support.certificates import authority

pytestmark = pytest.mark.any_loop


@pytest.fixture
def ca(tmp_path):
    folder = tmp_path / "ca"
    assert main(["ca", "init", "--dir", str(folder), "--name", "<i>Our & Co</i>"]) == 0
    shutil.copy(folder / "ca.pem", tmp_path / "public.pem")
    return folder


@pytest.fixture
def start(loop_name, directory, opened, tmp_path):
    return lambda text=f'ca_certificate = "{tmp_path}/public.pem"\n': administered(
        opened, directory("proxy"), loop_name, text)


def test_the_certificate_is_offered_and_its_key_is_not(start, ca, capsys):
    _, operator = start()
    pem = (ca / "ca.pem").read_text()
    assert operator.get("/ca.pem") == pem
    page = operator.get("/ca")
    assert main(["ca", "show", "--dir", str(ca)]) == 0
    (shown,) = re.findall(r"SHA-256 +(\S+)", capsys.readouterr().out)
    assert shown in page and "{{" not in page
    assert "&lt;i&gt;Our &amp; Co&lt;/i&gt;" in page and "<i>" not in page
    secret = (ca / "ca.key").read_text().splitlines()[1]
    for path in ("/ca", "/ca.pem", "/config"):
        assert secret not in operator.get(path) and "PRIVATE" not in operator.get(path)


def test_a_device_gets_the_file_in_the_form_that_it_takes(start, ca):
    _, operator = start()
    for path, kind in (("/ca.crt", "application/x-x509-ca-cert"),
                       ("/ca.pem", "application/x-pem-file")):
        connection = operator.connection()
        connection.request("GET", path)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        assert answer.headers["Content-Type"] == kind
        assert answer.headers["Content-Disposition"] == (
            f'attachment; filename="cutthrough-ca{path[-4:]}"')
    answer = ssl.PEM_cert_to_DER_cert(data.decode())
    connection = operator.connection()
    connection.request("GET", "/ca.crt")
    assert connection.getresponse().read() == answer
    connection.close()


def test_without_the_option_there_is_no_page(start):
    _, operator = start("")
    for path in ("/ca", "/ca.pem", "/ca.crt"):
        assert operator.ask("GET", path) == (404, "no ca_certificate is configured\n")
    assert "ca_certificate_expiry" not in "".join(operator.metrics())


def test_a_reload_offers_the_next_certificate_and_keeps_the_old_one_for_bad(
        start, ca, tmp_path):
    _, operator = start()
    label = f'certificate="{tmp_path}/public.pem"'
    name = f"ca_certificate_expiry_timestamp_seconds{{{label}}}"
    before = operator.metrics()[name]
    shutil.copy(ca / "ca.key", tmp_path / "public.pem")
    status, line = operator.ask("POST", "/reload", **AUTHORIZED)
    assert status == 409 and "ca_certificate: " in line and "has a private key" in line
    assert operator.get("/ca.pem") == (ca / "ca.pem").read_text()
    shutil.copy(authority().own.certificate, tmp_path / "public.pem")
    status, line = operator.ask("POST", "/reload", **AUTHORIZED)
    assert status == 200 and line.endswith(": certificates\n")
    assert "commonName=authority" in operator.get("/ca")
    assert operator.metrics()[name] < before

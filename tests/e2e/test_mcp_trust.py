"""The authority by `cutthrough mcp`: its certificate, and who trusts it."""

import asyncio
import subprocess

import pytest

from tests.support.admin import TOKEN, administered
from tests.support.mcp_tools import ask, refusal, served
from tests.support.verbs import run_verb

pytestmark = pytest.mark.any_loop


@pytest.fixture
def start(loop_name, directory, opened, tmp_path):
    def run(config=""):
        (tmp_path / "token").write_text(TOKEN)
        _, operator = administered(opened, directory("proxy"), loop_name, config)
        return ("--admin", f"127.0.0.1:{operator.where}", "--token-file",
                tmp_path / "token")
    return run


async def read(client):
    (content,) = (await client.read_resource("cutthrough://certificate")).contents
    return content


@pytest.fixture
def home(tmp_path):
    """Of a user who has a browser."""
    folder = tmp_path / "home"
    (folder / ".pki/nssdb").mkdir(parents=True)
    subprocess.run(["certutil", "-N", "-d", f"sql:{folder}/.pki/nssdb",
                    "--empty-password"], check=True, capture_output=True)
    return folder


async def test_the_certificate_is_a_resource_and_its_trust_a_tool(
        start, tmp_path, home):
    """Before, both were commands alone."""
    assert run_verb("ca", "init", "--dir", str(tmp_path / "ca")).returncode == 0
    certificate = tmp_path / "ca/ca.pem"
    async with served(*start(f'ca_certificate = "{certificate}"'),
                      environ={"HOME": str(home), "SSL_CERT_FILE":
                               str(certificate)}) as client:
        content = await read(client)
        assert content.mime_type == "application/x-pem-file"
        assert content.text == certificate.read_text()
        assert "PRIVATE KEY" not in content.text
        found = await ask(client, "trust_stores")
        assert set(found) == {"subject", "sha256", "until", "stores"}
        stores = {store["name"]: store for store in found["stores"]}
        known = stores[f"SSL_CERT_FILE={certificate}"]
        assert known["verdict"] == "yes" and "remedy" not in known
        browser = stores[f"{home}/.pki/nssdb"]
        assert browser["verdict"] == "no"
        assert browser["remedy"].endswith("-i cutthrough-ca.pem")
        # The remedy is for the resource, saved under this name
        (tmp_path / "cutthrough-ca.pem").write_text(content.text)
        await asyncio.to_thread(
            subprocess.run, browser["remedy"], shell=True, check=True, cwd=tmp_path,
            capture_output=True)
        stores = {store["name"]: store
                  for store in (await ask(client, "trust_stores"))["stores"]}
        assert stores[f"{home}/.pki/nssdb"]["verdict"] == "yes"


async def test_without_an_authority_there_is_no_certificate(start):
    async with served(*start()) as client:
        assert "no ca_certificate" in await refusal(client, "trust_stores")
        with pytest.raises(Exception, match="ca_certificate"):
            await read(client)

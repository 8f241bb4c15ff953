"""An S3 on this host, with a bucket of the recipes' name."""

import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.deploy.lines import HOME
from tests.support.nginx import free_port
from tests.support.wait import wait_until

BUCKET = "access-logs"
# moto looks at the name of the service alone
SIGNED = ("AWS4-HMAC-SHA256 Credential=test/20261129/us-east-1/s3/aws4_request, "
          "SignedHeaders=host, Signature=0")


@contextmanager
def object_store(base: Path) -> Iterator[str]:
    """The URL of the bucket."""
    port = free_port()
    bucket = f"http://127.0.0.1:{port}/{BUCKET}"

    def has_bucket() -> bool:
        try:
            ask("PUT", bucket)
        except OSError:
            return False
        return True

    with open(base / "store", "wb") as log, subprocess.Popen(
            [HOME / "bin/moto_server", "-H", "127.0.0.1", "-p", str(port)],
            stderr=log, stdout=log) as process:
        try:
            wait_until(has_bucket, lambda: (base / "store").read_text())
            yield bucket
        finally:
            process.terminate()
            process.wait(30)


def ask(method: str, url: str, body: bytes | None = None) -> bytes:
    request = urllib.request.Request(url, body, method=method, headers={
        "Authorization": SIGNED, "Content-Type": "application/octet-stream"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read()

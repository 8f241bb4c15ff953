"""A PKCS#11 token of a test's own, by SoftHSM."""

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

PIN = "4711-geheim"
MODULES = ("/usr/lib/softhsm/libsofthsm2.so", "/usr/lib64/pkcs11/libsofthsm2.so",
           "/usr/lib/pkcs11/libsofthsm2.so")
MODULE = next((path for path in MODULES if os.path.exists(path)), "")
TOOL = shutil.which("softhsm2-util")

needs_token = pytest.mark.skipif(
    not (MODULE and TOOL and importlib.util.find_spec("pkcs11")),
    reason="softhsm2 or python-pkcs11 is not installed")


class Token:
    """Has one key, `root`. `env`: for processes that use it."""

    def __init__(self, folder: Path, kind: str = "ec") -> None:
        folder.mkdir(parents=True)
        self.objects = folder / "objects"
        self.objects.mkdir()
        (folder / "softhsm2.conf").write_text(
            f"directories.tokendir = {self.objects}\nobjectstore.backend = file\n")
        self.env = {"SOFTHSM2_CONF": str(folder / "softhsm2.conf")}
        self.pin_file = folder / "pin"
        self.pin_file.touch(0o600)
        self.pin_file.write_text(f"{PIN}\n")
        key = folder / "key.pem"
        option = (("RSA", "rsa_keygen_bits:2048") if kind == "rsa"
                  else ("EC", "ec_paramgen_curve:P-256"))
        run("openssl", "genpkey", "-algorithm", option[0], "-pkeyopt", option[1],
            "-out", str(key))
        self.tool("--init-token", "--free", "--label", "vault", "--so-pin", PIN)
        self.tool("--import", str(key), "--token", "vault", "--label", "root", "--id",
                  "a1")
        key.unlink()
        self.uri = (f"pkcs11:token=vault;object=root;type=private?module-path={MODULE}"
                    f"&pin-source=file:{self.pin_file}")

    def tool(self, *words: str) -> None:
        assert TOOL is not None
        run(TOOL, *words, "--pin", PIN, env={**os.environ, **self.env})

    def take_away(self) -> None:
        self.objects.rename(self.objects.with_name("away"))
        self.objects.mkdir()

    def bring_back(self) -> None:
        self.objects.rmdir()
        self.objects.with_name("away").rename(self.objects)


def run(*words: str, env: dict[str, str] | None = None) -> None:
    subprocess.run(words, check=True, capture_output=True, env=env,
                   stdin=subprocess.DEVNULL)

"""`cutthrough bundle` from outside: a key, a bundle, and what verifies."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.proxy import ROOT, clean_environment


def run(*words: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cutthrough", "bundle", *map(str, words)], cwd=cwd,
        timeout=60, capture_output=True, text=True, env=clean_environment(
            PYTHONPATH=str(ROOT)))


@pytest.fixture
def site(tmp_path: Path) -> tuple[Path, str]:
    """A directory with a bundle, built, and the public key."""
    key = run("key", tmp_path / "bundle.key")
    assert key.returncode == 0 and key.stdout.startswith('bundle_key = ["')
    (tmp_path / "site/lists").mkdir(parents=True)
    (tmp_path / "site/policy.toml").write_text('default = "deny"\n')
    (tmp_path / "site/lists/a.txt").write_text("a.example\n")
    done = run("build", tmp_path / "site", "-o", tmp_path / "a.tar.gz", "--key",
               tmp_path / "bundle.key", "--serial", 7, "--revision", "a.7")
    assert done.stdout.startswith(f"{tmp_path}/a.tar.gz: revision a.7 (serial 7), 2 fi")
    return tmp_path, key.stdout.split('"')[1]


def test_what_was_built_verifies(site) -> None:
    folder, key = site
    done = run("verify", folder / "a.tar.gz", "--key", key)
    assert done.returncode == 0, done.stderr
    assert "revision a.7 (serial 7), created 20" in done.stdout
    assert "17 policy.toml" in done.stdout and "lists/a.txt" in done.stdout


def test_another_key_does_not_verify_it(site) -> None:
    folder, _ = site
    other = run("key", folder / "other.key").stdout.split('"')[1]
    done = run("verify", folder / "a.tar.gz", "--key", other)
    assert done.returncode == 1 and "the signature is of none" in done.stderr


def test_the_private_key_is_its_owners_and_never_replaced(site) -> None:
    folder, _ = site
    assert (folder / "bundle.key").stat().st_mode & 0o777 == 0o600
    before = (folder / "bundle.key").read_bytes()
    done = run("key", folder / "bundle.key")
    assert done.returncode == 1 and "File exists" in done.stderr
    assert (folder / "bundle.key").read_bytes() == before


def test_without_a_serial_it_is_the_time(site) -> None:
    folder, key = site
    run("build", folder / "site", "-o", folder / "b", "--key", folder / "bundle.key",
        "--canary", 30)
    done = run("verify", folder / "b", "--key", key, "--host", "a.example")
    assert int(done.stdout.split("serial ")[1].split(")")[0]) > 1_700_000_000
    assert "for 30 % of the hosts" in done.stdout and "a.example" in done.stdout


@pytest.mark.parametrize("words, said", [
    (("build", "none", "-o", "x", "--key", "bundle.key"), "No such file"),
    (("build", "site", "-o", "x", "--key", "site/policy.toml"), "is no private key"),
    (("build", "site", "-o", "x", "--key", "bundle.key", "--canary", "101"), "percent"),
    (("build", "site", "-o", "x", "--key", "bundle.key", "--serial", "0"), "serial"),
    (("verify", "a.tar.gz", "--key", "abc"), "--key: is no Ed25519 public key"),
    (("verify", "site/policy.toml", "--key", "KEY"), "is cut off"),
])
def test_mistakes_are_reasons(site, words, said) -> None:
    folder, key = site
    done = run(*(key if word == "KEY" else word for word in words), cwd=folder)
    assert done.returncode == 1 and said in done.stderr
    assert done.stderr.startswith("cutthrough: ") and not (folder / "x").exists()

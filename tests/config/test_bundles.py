"""The options of bundles, and the options that a bundle has."""

from pathlib import Path

import pytest

from cutthrough.config.bundles import BundleSource, check_source, check_url
from cutthrough.config.config import Config, ConfigError
from cutthrough.config.mistake import Mistake
from cutthrough.config.settings import Settings, add_bundle, build, gather

KEY = "A" * 43 + "="


@pytest.mark.parametrize("url", [
    "https://example.com/a", "https://example.com:8443/a?b=c%2F", "https://[::1]/a",
    "file:/a/b", "file:///a/b", "http://127.0.0.1/a", "http://localhost:8080/a",
    "http://[::1]:8080/a"])
def test_places_of_bundles(url: str) -> None:
    assert check_url(url) == ""


@pytest.mark.parametrize("url", [
    "http://example.com/a", "http://127.0.0.1.example.com/a", "http://10.0.0.1/a",
    "https:///a", "https://user:secret@example.com/a", "https://example.com/a#b",
    "https://example.com:x/a", "https://a b/", "file:a", "file://host/a", "file:/a?b",
    "s3://bucket/a", "ftp://a/", "a", "", "https://a/\n", "https://[::1/a"])
def test_other_places_are_refused_without_showing_them(url: str) -> None:
    said = check_url(url)
    assert said and "secret" not in said


def test_a_source_needs_a_key_and_a_directory() -> None:
    with pytest.raises(ConfigError) as caught:
        Config(bundle_url="https://example.com/a")
    assert [mistake.reason.split(":")[0] for mistake in caught.value.all] == [
        "needs bundle_key", "needs bundle_cache"]


@pytest.mark.parametrize("header, is_valid", [
    ("Authorization: Bearer a", True), ("X-Key:a", True), ("Bearer a", False),
    ("A: ", False), ("A: b\nC: d", False), ("A B: c", False)])
def test_the_header_is_a_field(header: str, is_valid: bool) -> None:
    source = BundleSource("https://example.com/a", (KEY,), header, "", "/cache")
    assert (not [*check_source(source)]) == is_valid


@pytest.mark.parametrize("text", ["", "abc", "A" * 44, "A" * 64, "é" * 43 + "="])
def test_a_key_is_32_bytes_in_base64(text: str) -> None:
    mistakes: list[Mistake] = []
    gather({"bundle_key": [text or "="]}, {}, mistakes=mistakes)
    assert "no Ed25519 public key" in str(mistakes[0])


# The options of a bundle

@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "current"
    path.mkdir()
    return path


def settings_with(folder: Path, text: str, **flags: str) -> tuple[Settings, list]:
    (folder / "cutthrough.toml").write_text(text)
    settings = gather(flags, {"CUTTHROUGH_BODY_TIMEOUT": "5s"})
    return settings, add_bundle(settings, str(folder))


def test_every_other_source_comes_first(folder: Path) -> None:
    settings, mistakes = settings_with(
        folder, 'head_timeout = "1s"\nbody_timeout = "1s"\nidle_timeout = "1s"\n',
        head_timeout="9s")
    config = build(settings)
    assert (config.head_timeout, config.body_timeout, config.idle_timeout) == (9, 5, 1)
    assert settings["idle_timeout"].source == f"{folder}/cutthrough.toml"
    assert not mistakes


def test_relative_paths_are_in_the_bundle(folder: Path) -> None:
    settings, mistakes = settings_with(
        folder, 'policy = "policy.toml"\nusers_file = "/etc/users"\n'
        'access_log = "access.log"\n[parents.a]\nurl = "https://a.example:3128"\n'
        'ca = "ca.pem"\n')
    config = build(settings)
    assert not mistakes
    assert config.policy == f"{folder}/policy.toml"
    assert config.parents[0].ca == f"{folder}/ca.pem"
    assert (config.users_file, config.access_log) == ("/etc/users", "access.log")


def test_a_secret_of_another_source_stays(folder: Path) -> None:
    settings, mistakes = settings_with(
        folder, 'password_file = "password"\n', user="ann", password="own")
    assert mistakes and settings["password"].value == "own"    # there is no such file
    assert settings["password_file"].value == ""


def test_a_bundle_does_not_say_where_bundles_come_from(folder: Path) -> None:
    settings, mistakes = settings_with(folder, f'bundle_key = ["{KEY}"]\n')
    assert "bundle_key: is not for a bundle" in str(mistakes[0])
    assert settings["bundle_key"].value == ()


def test_mistakes_have_their_line(folder: Path) -> None:
    _, mistakes = settings_with(folder, '\nhead_timeout = "1x"\n')
    assert str(mistakes[0]).startswith(f"{folder}/cutthrough.toml:2: head_timeout: ")


def test_a_bundle_needs_no_options(folder: Path) -> None:
    assert add_bundle(gather({}, {}), str(folder)) == []


def test_without_a_bundle_there_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no bundle yet"):
        add_bundle(gather({}, {}), f"{tmp_path}/current")

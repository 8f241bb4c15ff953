"""Secrets from files, and variables of ours and of others."""

import pytest

from cutthrough.config.config import OPTIONS, SECRETS, ConfigError
from cutthrough.config.settings import flag_name, from_options, load, variable_name
from tests.support.toml import ME, toml


@pytest.mark.parametrize(("variable", "value"), [
    ("CUTTHROUGH_SERVICE_PORT", "80"),
    ("CUTTHROUGH_SERVICE_PORT_PROXY", "80"),
    ("CUTTHROUGH_PORT_3128_TCP_ADDR", "10.0.0.1"),
    ("CUTTHROUGH_PORT_3128_TCP", "tcp://10.0.0.1:3128"),
    ("CUTTHROUGH_ADMIN_PORT", "tcp://10.0.0.1:80"),
    ("CUTTHROUGH_ADMIN_SERVICE_HOST", "10.0.0.1"),
    ("CUTTHROUGH_CONNECT_PORT", "tcp://10.0.0.1:80"),
    ("CUTTHROUGH_XYZZY", "1"),
    ("CUTTHROUGH_HED_TIMEOUT", ""),
    ("CUTTHROUGH_BUILD", "asan"),
    ("CUTTHROUGH_STATE", "/tmp"),
])
def test_a_variable_of_somebody_else_is_left_alone(variable, value):
    load((), {variable: value})


@pytest.mark.parametrize(("variable", "meant"), [
    ("CUTTHROUGH_HED_TIMEOUT", "CUTTHROUGH_HEAD_TIMEOUT"),
    ("CUTTHROUGH_CONNECT_PORT", "CUTTHROUGH_CONNECT_PORTS"),
    ("CUTTHROUGH_USERNAME", "CUTTHROUGH_USER"),
])
def test_a_variable_that_nearly_is_one_is_refused(variable, meant):
    with pytest.raises(ConfigError, match=f"did you mean {meant}[?]") as caught:
        load((), {variable: "443"})
    assert (caught.value.source, caught.value.key) == ("environment", variable)


@pytest.mark.parametrize("content", [
    "s3cret", "s3cret\n", "s3cret\r\n"])
@pytest.mark.parametrize(("secret", "by_file"), SECRETS.items())
def test_every_secret_comes_from_a_file(tmp_path, secret, by_file, content):
    path = tmp_path / "secret"
    content = content.replace("s3cret", OPTIONS[secret].stand_in)
    path.write_bytes(content.encode())
    me = {} if secret == "password" else ME
    user = {"CUTTHROUGH_" + name.upper(): value for name, value in ME.items()
            if secret != "password" or name == "user"}
    if secret == "bundle_url":              # what it needs beside it
        me = {**me, "bundle_key": ["A" * 43 + "="], "bundle_cache": "/cache"}
        user |= {"CUTTHROUGH_BUNDLE_KEY": "A" * 43 + "=",
                 "CUTTHROUGH_BUNDLE_CACHE": "/cache"}
    for config in (
        load([flag_name(by_file), str(path)], user),
        load((), {variable_name(by_file): str(path), **user}),
        load((), user, toml(tmp_path, f'{by_file} = "{path}"')),
        from_options(**{"user": "me", **me, by_file: str(path)}),
    ):
        assert getattr(config, secret) == content.strip()


def test_a_password_goes_before_the_password_file_of_a_weaker_source(tmp_path):
    path = tmp_path / "password"
    path.write_text("from-file\n")
    file = toml(tmp_path, f'user = "me"\npassword_file = "{path}"')
    config = load((), {"CUTTHROUGH_PASSWORD": "from-environment"}, file)
    assert (config.password, config.password_file) == ("from-environment", "")
    config = load(["--password-file", str(path)],
                  {"CUTTHROUGH_PASSWORD": "from-environment"}, file)
    assert config.password == "from-file"


@pytest.mark.parametrize(("content", "reason"), [
    (b"", "is empty"), (b"\n", "is empty"), (b"a\nb\n", "not one line"),
    (b"a\x00", "not one line"), (b"\xff", "is not UTF-8"), (None, "No such file"),
])
def test_a_bad_password_file_is_refused(tmp_path, content, reason):
    path = tmp_path / "password"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=reason) as caught:
        load(["--user", "me", "--password-file", str(path)])
    assert caught.value.key == "--password-file"


@pytest.mark.parametrize(("secret", "by_file"), SECRETS.items())
def test_a_secret_given_twice_by_one_source_is_refused(tmp_path, secret, by_file):
    file = toml(tmp_path, f'{secret} = "x"\n{by_file} = "/dev/null"')
    for flags, environ, path in (
        ([flag_name(secret), "x", flag_name(by_file), "/dev/null"], {}, None),
        ((), {variable_name(secret): "x", variable_name(by_file): "/dev/null"}, None),
        ((), {}, file),
    ):
        with pytest.raises(ConfigError, match="given twice"):
            load(flags, environ, path)

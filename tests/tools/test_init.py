"""`cutthrough init`: a first configuration, with the proxies of the environment."""

import json
import re
import shlex
import stat
from urllib.parse import urlsplit

import pytest

from cutthrough.cli import main as cli
from cutthrough.config.config import Config
from cutthrough.config.settings import build, gather
from cutthrough.tools import init
from cutthrough.tools.templates import TEMPLATES

SECRET = "s3cret%20word"
PROXY = f"http://ann:{SECRET}@proxy.corp.example:3128"


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host with this environment and no other proxy, and a home."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("NETRC", raising=False)
    return Host(tmp_path / "made", home, monkeypatch)


class Host:
    def __init__(self, folder, home, patch) -> None:
        self.folder, self.home, self._patch = folder, home, patch

    def init(self, **environ: str) -> int:
        for name, text in environ.items():
            self._patch.setenv(name, text)
        return cli.main(["init", str(self.folder)])

    @property
    def config(self) -> Config:
        return build(gather({}, {}, str(self.folder / "cutthrough.toml")))

    def route(self, method: str, target: str, capsys) -> str:
        """The way of this request, as `explain` decides."""
        capsys.readouterr()
        host = urlsplit(target if "://" in target else f"//{target}").hostname
        names = [] if host[0].isdigit() else ["--dns-overrides", f"{host}=127.0.0.1"]
        cli.main(["explain", "-c", str(self.folder / "cutthrough.toml"), method, target,
                  "--user", "me", "--json", *names])
        return json.loads(capsys.readouterr().out)["route"] or "direct"

    def everything(self) -> str:
        return "".join(path.read_text() for path in self.folder.iterdir()
                       if path.suffix == ".toml")


def test_without_proxies_it_is_a_user_with_a_password(host, capsys):
    assert host.init() == 0
    assert "listens on 127.0.0.1:8888; the user is me" in capsys.readouterr().out
    assert {path.name for path in host.folder.iterdir()} == {
        "cutthrough.toml", "password"}
    assert stat.S_IMODE((host.folder / "password").stat().st_mode) == 0o600
    assert (host.config.user, len(host.config.password)) == ("me", 24)
    assert host.config.password not in host.everything()
    assert host.config.parents == ()


@pytest.mark.parametrize("names", [
    ("http_proxy", "https_proxy"), ("HTTP_PROXY", "HTTPS_PROXY"), ("all_proxy",),
    ("ALL_PROXY",), ("http_proxy", "ALL_PROXY")])
def test_one_proxy_is_the_parent_of_every_request(host, capsys, names):
    assert host.init(**dict.fromkeys(names, PROXY)) == 0
    (parent,) = host.config.parents
    assert (parent.name, parent.url) == ("environment",
                                         "http://proxy.corp.example:3128")
    assert (parent.resolve, parent.plain) == ("parent", "absolute")
    assert host.config.route == "environment"
    said = capsys.readouterr().out
    assert "http_proxy and https_proxy: parent environment, http://proxy.corp" in said
    assert host.route("CONNECT", "a.test:443", capsys) == "environment"
    assert host.route("GET", "http://a.test/", capsys) == "environment"


def test_credentials_are_in_a_file_of_their_own(host, capsys):
    """R37: neither in the configuration nor in a line that is printed."""
    assert host.init(http_proxy=PROXY, https_proxy=PROXY) == 0
    file = host.folder / "environment.credentials"
    assert file.read_text() == "ann:s3cret word\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert host.config.parents[0].credentials == "ann:s3cret word"
    said = "".join(capsys.readouterr())
    for text in (host.everything(), said):
        assert "s3cret" not in text
    assert f"its credentials, of http_proxy, are in {file}" in said


@pytest.mark.parametrize(("text", "expected"), [
    ("machine proxy.corp.example login bob password pa:ss", "bob:pa:ss"),
    ("machine other login bob password x\ndefault login eve password y", "")])
def test_netrc_has_the_credentials_of_this_very_host(host, capsys, text, expected):
    (host.home / ".netrc").write_text(text)
    (host.home / ".netrc").chmod(0o600)
    assert host.init(https_proxy="http://Proxy.corp.example:3128") == 0
    assert host.config.parents[0].credentials == expected
    assert (".netrc, are in" in capsys.readouterr().out) == bool(expected)


def test_netrc_does_not_replace_the_credentials_of_the_url(host):
    (host.home / ".netrc").write_text("machine proxy.corp.example login b password x")
    assert host.init(https_proxy=PROXY) == 0
    assert host.config.parents[0].user == "ann"


def test_another_file_may_be_named_and_must_be_readable(host, capsys):
    (host.home / "other").write_text(
        "machine proxy login bob password x\nnonsense s3cret")
    assert host.init(NETRC=str(host.home / "other"), http_proxy="proxy:1") == 2
    said = capsys.readouterr().err
    assert "other:2: is not a file of credentials" in said and "s3cret" not in said
    assert not host.folder.exists() or not [*host.folder.iterdir()]


def test_two_proxies_share_the_methods(host, capsys):
    assert host.init(http_proxy="http://a.test:1", https_proxy="http://b.test:2") == 0
    assert {one.name for one in host.config.parents} == {"http_proxy", "https_proxy"}
    assert host.route("GET", "http://x.test/", capsys) == "http_proxy"
    assert host.route("CONNECT", "x.test:443", capsys) == "https_proxy"


@pytest.mark.parametrize(("name", "through", "not_through"), [
    ("https_proxy", ("CONNECT", "x.test:443"), ("GET", "http://x.test/")),
    ("http_proxy", ("GET", "http://x.test/"), ("CONNECT", "x.test:443"))])
def test_without_a_variable_requests_go_directly(
        host, capsys, name, through, not_through):
    assert host.init(**{name: "http://a.test:1"}) == 0
    assert host.route(*through, capsys) == name
    assert host.route(*not_through, capsys) == "direct"


@pytest.mark.parametrize(("text", "url", "resolve"), [
    ("proxy", "http://proxy:80", "parent"),
    ("proxy:3128/", "http://proxy:3128", "parent"),
    ("HTTP://PROXY:3128", "http://proxy:3128", "parent"),
    ("http://[2001:db8::1]:3128", "http://[2001:db8::1]:3128", "parent"),
    ("socks5://proxy", "socks5://proxy:1080", "here"),
    ("socks5h://proxy:1", "socks5://proxy:1", "parent"),
    ("socks4://proxy:1", "socks4a://proxy:1", "here"),
    ("socks4a://proxy:1", "socks4a://proxy:1", "parent")])
def test_forms_of_a_url(host, text, url, resolve):
    assert host.init(all_proxy=text) == 0
    (parent,) = host.config.parents
    assert (parent.url, parent.resolve) == (url, resolve)


@pytest.mark.parametrize(("text", "told"), [
    ("socks://proxy:1", "the scheme socks is unknown"),
    ("http://ann:s3cret/x@proxy:1", "is not a proxy's URL"),
    ("http://ann:s3cret@proxy:port", "is not a proxy's URL"),
    ("http://a%3Ab:s3cret@proxy:1", "has no room for"),
    ("http://ann:s3cret%0Ax@proxy:1", "has no room for"),
    ("http://ann:s3cret@pro_xy!:1", "is not a host"),
    ("http://", "is not a proxy's URL")])
def test_what_cannot_be_used_is_reported_without_its_password(
        host, capsys, text, told):
    assert host.init(https_proxy=text) == 2
    said = "".join(capsys.readouterr())
    assert f"https_proxy: {told}" in said or told in said
    assert "s3cret" not in said
    assert not host.folder.exists()


def test_the_lower_case_variable_comes_first(host):
    assert host.init(https_proxy="http://a.test:1", HTTPS_PROXY="http://b.test:2") == 0
    assert host.config.parents[0].url == "http://a.test:1"


def test_the_proxy_itself_is_no_parent(host, capsys):
    """The README has clients export this address."""
    assert host.init(http_proxy="http://username:password@127.0.0.1:8888") == 0
    assert "http_proxy: http://127.0.0.1:8888 is this proxy's own address" in (
        capsys.readouterr().out)
    assert host.config.parents == ()


def test_no_proxy_goes_directly(host, capsys):
    assert host.init(all_proxy=PROXY, no_proxy=(
        "localhost, .corp.example,*.lab.example other.example:8080,10.0.0.0/8,"
        "[::1],192.0.2.1,<local>,b\N{LATIN SMALL LETTER U WITH DIAERESIS}ro")) == 0
    said = capsys.readouterr().out
    assert ("no_proxy: .localhost, .corp.example, .lab.example, .other.example: rules"
            in said)
    assert "no_proxy: 10.0.0.0/8, ::1, 192.0.2.1: networks, in a comment" in said
    assert "no_proxy: <local>, b" in said
    for target in ("localhost:443", "corp.example:1", "a.b.corp.example:443",
                   "lab.example:443", "x.other.example:8080"):
        assert host.route("CONNECT", target, capsys) == "direct", target
    for target in ("x.other.example:443", "xcorp.example:443", "a.test:443"):
        assert host.route("CONNECT", target, capsys) == "environment", target


def test_an_asterisk_is_every_destination(host, capsys):
    assert host.init(all_proxy=PROXY, NO_PROXY="*") == 0
    assert "no_proxy: *: every request goes directly" in capsys.readouterr().out
    assert host.route("CONNECT", "a.test:443", capsys) == "direct"


def test_the_networks_may_be_uncommented(host, capsys):
    assert host.init(all_proxy=PROXY, no_proxy="10.0.0.0/8") == 0
    policy = host.folder / "policy.toml"
    text, _, rule = policy.read_text().partition("# [[rules]]")
    policy.write_text(f"{text}[[rules]]" + rule.replace("# ", ""))
    assert host.route("CONNECT", "10.1.2.3:443", capsys) == "direct"


@pytest.mark.parametrize("name", ["cutthrough.toml", "password",
                                  "environment.credentials", "policy.toml"])
def test_no_file_is_replaced(host, capsys, name):
    host.folder.mkdir()
    (host.folder / name).write_text("mine")
    assert host.init(all_proxy=PROXY) == 2
    assert f"{name}: File exists" in capsys.readouterr().err
    assert [(path.name, path.read_text()) for path in host.folder.iterdir()] == [
        (name, "mine")]


def test_with_force_files_that_exist_get_another_name(host, capsys):
    """A second time too; and they are back if the new ones are not valid."""
    host.folder.mkdir()
    path = host.folder / "cutthrough.toml"
    path.write_text("mine")
    for n in (1, 2):
        assert cli.main(["init", str(host.folder), "--force"]) == 0
        aside = host.folder / f"cutthrough.toml.before-{n}"
        said = capsys.readouterr().out
        assert f"{path}: what was there before is now {aside}" in said
    assert (host.folder / "cutthrough.toml.before-1").read_text() == "mine"
    assert cli.main(["init", str(host.folder), "--force", "--dry-run"]) == 0
    assert f"# {path}, which exists: it would be put aside" in capsys.readouterr().out
    assert not (host.folder / "cutthrough.toml.before-3").exists()
    assert cli.main(["check", "-c", str(path)]) == 0


def test_with_force_a_failure_leaves_what_was_there(host, monkeypatch):
    host.folder.mkdir()
    (host.folder / "cutthrough.toml").write_text("mine")
    monkeypatch.setattr(init, "gather", fail)
    with pytest.raises(OSError):
        init.write(str(host.folder), [init.File(
            str(host.folder / "cutthrough.toml"), "new")], force=True)
    assert [(file.name, file.read_text()) for file in host.folder.iterdir()] == [
        ("cutthrough.toml", "mine")]


def fail(*_):
    raise OSError(28, "No space left on device")


def test_a_link_is_not_followed(host, tmp_path):
    host.folder.mkdir()
    (host.folder / "password").symlink_to(tmp_path / "elsewhere")
    assert host.init() == 2
    assert not (tmp_path / "elsewhere").exists()


def test_the_written_configuration_is_valid(host, capsys):
    assert host.init(all_proxy=PROXY, no_proxy="localhost") == 0
    assert cli.main(["check", "-c", str(host.folder / "cutthrough.toml")]) == 0
    assert "the configuration is valid" in capsys.readouterr().out


def test_a_dry_run_prints_the_files_and_writes_none(host, capsys):
    assert cli.main(["init", str(host.folder), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert not host.folder.exists()
    assert f"# {host.folder}/password\n# a secret, for its owner alone" in out
    assert 'user = "me"' in out and "listens on 127.0.0.1:8888" in out
    assert host.init(http_proxy=PROXY) == 0
    capsys.readouterr()
    assert cli.main(["init", str(host.folder), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "cutthrough.toml, which exists" in out and "[parents.http_proxy]" in out
    assert "s3cret" not in out


# Templates

@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_valid_and_explained(host, capsys, name):
    assert cli.main(["init", "--for", name, str(host.folder)]) == 0
    said = capsys.readouterr().out
    config = host.folder / "cutthrough.toml"
    assert f"{config}: made for {name}; the user is me" in said
    assert config.read_text().count("# ") > 2
    for path in host.folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == (
            0o644 if path.suffix == ".toml" else 0o600)
    text = here = config.read_text()
    for file, place in TEMPLATES[name].places:
        assert f'"{place}/{file}"' in text
        here = here.replace(f"{place}/", f"{host.folder}/")
    config.write_text(here)
    assert cli.main(["check", "--strict", "-c", str(config)]) == 0
    assert "the configuration is valid" in capsys.readouterr().out


@pytest.mark.parametrize("name", TEMPLATES)
def test_secrets_of_a_template_are_new_each_time(host, tmp_path, name):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        assert cli.main(["init", "--for", name, str(folder)]) == 0
    one, other = ({path.name: path.read_text() for path in folder.iterdir()
                   if path.suffix != ".toml"} for folder in folders)
    assert one.keys() == other.keys() and one
    assert not set(one.values()) & set(other.values())


@pytest.mark.parametrize(("name", "target", "verdict"), [
    ("laptop", "a.test:22", True), ("team", "a.test:443", True),
    ("team", "a.test:22", False), ("team", "metadata.google.internal:443", False),
    ("ci", "packages.example.com:443", True),
    ("ci", "x.githubusercontent.com:443", True),
    ("ci", "a.test:443", False), ("kubernetes", "a.test:443", True),
    ("recording", "a.test:443", True),
    ("kubernetes", "10.0.0.1:443", False)])
def test_what_a_template_lets_pass(host, capsys, name, target, verdict):
    folder = host.folder
    assert cli.main(["init", "--for", name, str(folder)]) == 0
    config = folder / "cutthrough.toml"
    for _, place in TEMPLATES[name].places:
        config.write_text(config.read_text().replace(f"{place}/", f"{folder}/"))
    capsys.readouterr()
    name = target.partition(":")[0]
    names = [] if name[0].isdigit() else ["--dns-overrides", f"{name}=8.8.8.8"]
    cli.main(["explain", "-c", str(config), "CONNECT", target, "--user", "me",
              "--client", "127.0.0.1", "--json", *names])
    assert (json.loads(capsys.readouterr().out)["outcome"] == "ok") is verdict


def test_an_unknown_template_is_refused(host, capsys):
    with pytest.raises(SystemExit):
        cli.main(["init", "--for", "office", str(host.folder)])
    assert "laptop, team, ci, kubernetes, recording" in (
        capsys.readouterr().err.replace("'", ""))


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_command_can_be_pasted_whatever_the_path_is(host, capsys, name):
    """A path with a space was two words of `kubectl create configmap`."""
    host.folder = host.folder / "a b's é"
    assert cli.main(["init", "--for", name, str(host.folder)]) == 0
    text = capsys.readouterr().out + (host.folder / "cutthrough.toml").read_text()
    word = shlex.quote(str(host.folder))
    commands = re.findall(r"(?:cutthrough [a-z]+|kubectl) .*", text)
    assert sum(line.count(f"{word}/") for line in commands) > 0
    assert not any("a b" in line.replace(word, "") for line in commands)


@pytest.mark.parametrize("name", ["", *TEMPLATES])
@pytest.mark.parametrize("folder", ["a\nb", "a\x1bb", "caf\udce9"], ids=ascii)
def test_a_path_that_no_configuration_can_have_is_refused(
        host, capsys, monkeypatch, name, folder):
    """Octets that are not UTF-8 were a traceback, a line end another line of TOML."""
    host.folder = host.folder / folder
    host.folder.mkdir(parents=True)
    monkeypatch.chdir(host.folder)
    assert cli.main(["init", *(["--for", name] if name else [])]) == 2
    assert "cannot be written into a configuration" in capsys.readouterr().err
    assert not [*host.folder.iterdir()]

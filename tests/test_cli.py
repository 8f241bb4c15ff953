"""The command line from outside: its output, on which stream, and how it exits."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tomllib

import pytest

import cutthrough
from cutthrough.cli import main as cli
from cutthrough.config.config import OPTIONS
from cutthrough.process.selector import STATES
from tests.support.client import Client
from tests.support.proxy import ROOT, Proxy, clean_environment
from tests.support.verbs import run_verb

DOORS = [("-m", "cutthrough"),
         ("-c", "import sys; from cutthrough.cli.main import main; sys.exit(main())")]


def run(*arguments, door=(), **environ):
    """`serve` takes the signals of its process, so it has one of its own."""
    if not door and arguments[:1] != ("serve",) and "PYTHONIOENCODING" not in environ:
        return run_verb(*arguments, **environ)
    return subprocess.run(
        [sys.executable, *(door or DOORS[0]), *arguments], cwd=ROOT, timeout=30,
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
        env=clean_environment(**environ))


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("verb", ["version", "--version"])
def test_version_is_one_line(door, verb):
    done = run(verb, door=door)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"cutthrough {cutthrough.__version__}\n"


def test_without_a_verb_the_help_is_shown_and_the_status_is_2():
    done = run()
    assert (done.returncode, done.stdout) == (2, "")
    assert all(verb in done.stderr for verb in ("serve", "check", "config", "version"))


@pytest.mark.parametrize("arguments", [
    ["nonsense"], ["serve", "--nonsense"], ["serve", "--head-time=1s"], ["serve", "x"]])
def test_an_unknown_word_exits_2(arguments):
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: cutthrough" in done.stderr


@pytest.mark.parametrize(("flag", "meant"), [
    ("--hed-timeout", "--head-timeout"), ("--head-time=1s", "--head-timeout"),
    ("--worker", "--workers")])
def test_a_flag_that_nearly_is_one_is_told(flag, meant):
    done = run("serve", flag, "1s")
    assert (done.returncode, done.stdout) == (2, "")
    bare = flag.partition("=")[0]
    assert done.stderr.endswith(
        f"command line: {bare}: no such option; did you mean {meant}?\n")


@pytest.mark.parametrize(("words", "reason"), [
    (("explain", "--password-file", "pw", "CONNECT", "h:1"),
     "--password-file: is not an option of explain"),
    (("conns", "--listen", "x"), "--listen: is not an option of conns"),
    (("conns", "--bogus"), "--bogus: no such option"),
    (("conns", "--usr", "x"), "--usr: no such option; did you mean --user?"),
    (("doctor", "ssrf", "--clint", "x"), "--clint: no such option"),
    (("doctor", "--jsn"), "--jsn: no such option; did you mean --json?")])
def test_what_a_verb_does_not_take_is_not_suggested(words, reason):
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"command line: {reason}\n")


@pytest.mark.parametrize(("words", "remedy"), [
    (("config", "a.toml"), "config takes its file with -c: cutthrough config -c a.to"),
    (("check", "a.toml", "-c", "b.toml"), "check: a.toml: -c b.toml is its file"),
    (("srve",), "srve: no such verb; did you mean serve?"),
    (("frobnicate",), "frobnicate: no such verb; the verbs are serve, check, config"),
    (("-c", "proxy.toml", "serve"), "-c goes after a verb: cutthrough serve -c …"),
    (("--listen=1.2.3.4:5",), "--listen goes after a verb: cutthrough serve --lis"),
    (("serve", "--listen", "127.0.0.1:99999"), "port 99999 is above 65535"),
    (("conns", "--admin", "http://127.0.0.1:9090/x"),
     "is not host:port; did you mean 127.0.0.1:9090?"),
    (("serve", "--admin", "http://127.0.0.1:9090"),
     "is not host:port; did you mean 127.0.0.1:9090?"),
    (("serve", "--head-timeout", "90"), "1h: 90s is in seconds, 90ms in millisec"),
])
def test_a_beginners_mistake_is_answered_by_its_remedy(words, remedy):
    """The error named the fault, and not the words to type instead."""
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert remedy in done.stderr


@pytest.mark.parametrize("verb", ["flows", "ca", "recordings"])
def test_a_verb_of_actions_alone_lists_them(verb):
    done = run(verb)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ACTION" in done.stdout and "show" in done.stdout


def test_check_takes_its_file_as_a_word(tmp_path):
    file = tmp_path / "proxy.toml"
    file.write_text('user = "u"\npassword = "p"\naccess_log = "access.json"\n')
    done = run("check", str(file))
    assert (done.returncode, done.stdout) == (0, "the configuration is valid\n")


@pytest.mark.parametrize("words", [
    ("{}",), ("check", "{}"), ("flows", "list", "--file", "{}"), ("serve", "--{}"),
    ("mcp", "--db-url-file", "{}"), ("run", "--cassette", "a", "--", "{}"),
    ("inspect", "--", "{}"), ("suggest", "--log", "{}"), ("doctor", "host", "-c", "{}"),
    ("recordings", "list", "--directory", "/proc/{}")])
def test_what_is_said_steers_no_terminal(capsys, words):
    """R83: a name, a path or an answer is shown, and no terminal obeys it."""
    hostile = "a\x1b[2J\x9b2J\u202eb"
    with contextlib.suppress(SystemExit):
        assert cli.main([word.replace("{}", hostile) for word in words]) != 0
    said = capsys.readouterr()
    assert not set("\x1b\x9b\u202e") & set(said.err + said.out)
    assert "a\\u{1b}[2J\\u{9b}2J\\u{202e}b" in said.err


def test_help_is_a_verb_too():
    done = run("help")
    assert (done.returncode, done.stderr) == (0, "") and "VERB" in done.stdout
    done = run("help", "explain")
    assert done.returncode == 0 and "usage: cutthrough explain " in done.stdout


@pytest.mark.parametrize(("text", "remedy"), [
    ("[server]\nlisten = '127.0.0.1:1'\n", "server: no such table: options "
     "go at the file's top, without [server]"),
    ("[[rules]]\naction = 'deny'\n", "rules: belongs in the file of `policy`")])
def test_a_table_in_the_configuration_is_answered_by_its_remedy(tmp_path, text, remedy):
    (tmp_path / "proxy.toml").write_text(text)
    done = run("check", "-c", str(tmp_path / "proxy.toml"))
    assert done.returncode == 2 and remedy in done.stderr


def test_a_kill_of_nobody_in_particular_is_refused():
    done = run("kill", CUTTHROUGH_ADMIN="127.0.0.1:1")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.search("needs a selector: --user, .*, or --all for", done.stderr)


def test_help_of_kill_names_the_states():
    done = run("kill", "--help", COLUMNS="200")
    assert done.returncode == 0 and ", ".join(STATES) in done.stdout


@pytest.mark.parametrize("words", ["serve --help", "config --markdown"])
def test_a_terminal_without_an_ellipsis_is_no_traceback(words):
    done = run(*words.split(), PYTHONIOENCODING="latin-1")
    assert (done.returncode, done.stderr) == (0, "") and "\\u2026" in done.stdout


def test_help_names_every_flag_with_its_default():
    done = run("serve", "--help", COLUMNS="200")
    assert done.returncode == 0
    assert "--head-timeout TIME" in done.stdout and "[10s]" in done.stdout


@pytest.mark.parametrize("verb", ["serve", "check", "config", "explain", "doctor host"])
def test_help_is_in_the_sections_of_the_page(verb):
    """Sixty flags in one row, behind forty lines of usage."""
    done = run(*verb.split(), "--help")
    usage, _, rest = done.stdout.partition("\n")
    assert usage.startswith(f"usage: cutthrough {verb.split()[0]} [-c FILE] [--OPTION ")
    sections = [option.section for option in OPTIONS.values() if option.section]
    assert re.findall(r"^(\S.*):$", rest, re.M)[-len(sections):] == sections


def test_check_is_silent_about_secrets_and_exits_0():
    done = run("check", CUTTHROUGH_USER="me", CUTTHROUGH_PASSWORD="s3cret")
    assert done.returncode == 0 and "s3cret" not in done.stdout + done.stderr


def test_check_names_file_key_and_reason(tmp_path):
    file = tmp_path / "cutthrough.toml"
    file.write_text("hed_timeout = 1\n")
    done = run("check", "-c", str(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (f"cutthrough: {file}:1:1: hed_timeout: no such option; "
                           "did you mean head_timeout?\n"
                           "    hed_timeout = …\n    ^^^^^^^^^^^\n")


@pytest.mark.parametrize("source", ["flag", "variable", "key"])
@pytest.mark.parametrize(("name", "value", "reason"), [
    ("policy_hook", "nowhere:hook",
     "nowhere:hook: No module named 'nowhere'; modules are searched for on PYTHONPATH"),
    ("policy", "/nonexistent.toml", "/nonexistent.toml: No such file"),
    ("password_file", "/nonexistent", "/nonexistent: No such file"),
    ("admin", "192.0.2.1:1", "is not loopback: give --admin-token-file"),
])
def test_check_refuses_what_serve_would_refuse(tmp_path, source, name, value, reason):
    file = tmp_path / "cutthrough.toml"
    file.write_text(f'{name} = "{value}"\n' if source == "key" else "")
    flags = [f"--{name.replace('_', '-')}", value] if source == "flag" else []
    environ = {"CUTTHROUGH_" + name.upper(): value} if source == "variable" else {}
    done = run("check", "-c", str(file), *flags, **environ)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr
    if name in ("password_file", "admin"):
        where = {"flag": f"command line: --{name.replace('_', '-')}: ",
                 "variable": f"environment: CUTTHROUGH_{name.upper()}: ",
                 "key": f"{file}:1:{len(name) + 4}: {name}: "}[source]
        assert done.stderr.startswith(f"cutthrough: {where}")


def test_a_file_that_nests_without_end_is_one_line(tmp_path):
    file = tmp_path / "cutthrough.toml"
    file.write_text("listen = " + "[" * 5000)
    done = run("check", "-c", str(file))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_check_may_leave_secrets_unread(tmp_path):
    """systemd shows credentials to ExecStart alone, and not to ExecReload."""
    file = tmp_path / "cutthrough.toml"
    text = ('user = "ann"\npassword_file = "/nonexistent"\nadmin = "0.0.0.0:9090"\n'
            'admin_token_file = "/nonexistent"\n')
    file.write_text(text)
    assert run("check", "-c", str(file)).returncode == 2
    done = run("check", "--without-secrets", "-c", str(file),
               CUTTHROUGH_FLEET_URL_FILE="/nonexistent")
    assert (done.returncode, done.stderr) == (0, "")
    file.write_text(text + 'head_timeut = "1s"\n')
    assert run("check", "--without-secrets", "-c", str(file)).returncode == 2


@pytest.mark.parametrize("verb", ["check", "config", "serve"])
def test_every_verb_refuses_demonstration_credentials_beyond_loopback(verb):
    """R29."""
    done = run(verb, "--listen", "0.0.0.0:0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "cutthrough: command line: --listen: 0.0.0.0:0 is not loopback")


def test_config_prints_toml_that_means_the_same(tmp_path):
    file = tmp_path / "cutthrough.toml"
    secret = tmp_path / "password"
    secret.write_text("s3cret\n")
    first = run("config", "--user", "me", "--head-timeout", "7s",
                CUTTHROUGH_PASSWORD_FILE=str(secret), CUTTHROUGH_MAX_FIELDS="50")
    assert first.returncode == 0
    assert "s3cret" not in first.stdout
    assert 'head_timeout = "7s"  # command line' in first.stdout
    assert "max_fields = 50  # environment" in first.stdout
    file.write_text(first.stdout)
    second = run("config", CUTTHROUGH_CONFIG=str(file))
    assert second.returncode == 0, second.stderr
    assert tomllib.loads(second.stdout) == tomllib.loads(first.stdout)


def test_config_tells_what_comes_of_it_here(tmp_path):
    done = run("config", "--effective", "--workers", "3", "--listen", "127.0.0.1:8888",
               "--listen", "192.0.2.1:1", "--user", "me", "--password", "s3cret",
               "--loop", "asyncio")
    assert done.returncode == 0, done.stderr
    assert "s3cret" not in done.stdout
    for line in ("# workers            3", "# loop               asyncio",
                 "# address_floor      on", "# connect_ports      443",
                 "# listen 127.0.0.1:8888: 3 sockets",
                 "# listen 192.0.2.1:1: Cannot assign requested address"):
        assert f"\n{line}\n" in done.stdout
    assert tomllib.loads(done.stdout)["workers"] == 3


@pytest.mark.parametrize("verb", ["serve", "check"])
@pytest.mark.parametrize(("target", "reason"), [
    ("none/log", "No such file or directory"),
    (".", "Is a directory"),
    ("file/log", "Not a directory"),
    # Opening one for writing waits until a reader opens it: the start would hang
    ("fifo", "No such device or address"),
])
def test_a_log_that_cannot_be_written_is_refused(tmp_path, verb, target, reason):
    """`check` accepted a log that `serve` refused."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").touch()
    path = f"{tmp_path}/{target}"
    done = run(verb, "--listen", "127.0.0.1:0", "--access-log", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"cutthrough: {path}: access_log: {reason}\n"


def test_check_refuses_a_log_where_no_file_can_be_made():
    """/proc takes no file from any user, root included."""
    done = run("check", "--access-log", "/proc/none/log")
    assert done.returncode == 2 and "access_log: No such file" in done.stderr


# Mode bits do not bind root; the test above stands for root
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_check_refuses_a_directory_that_is_not_ours_to_write(tmp_path):
    tmp_path.chmod(0o500)
    done = run("check", "--access-log", str(tmp_path / "log"))
    assert done.returncode == 2 and "access_log: Permission denied" in done.stderr


def test_check_makes_no_log(tmp_path):
    assert run("check", "--access-log", str(tmp_path / "log")).returncode == 0
    assert not list(tmp_path.iterdir())


def test_an_address_that_is_not_ours_exits_1():
    done = run("serve", "--listen", "192.0.2.1:0", "--user", "a", "--password", "b")
    assert done.returncode == 1
    assert done.stderr == "cutthrough: 192.0.2.1:0: Cannot assign requested address\n"


def test_importing_the_package_has_no_effect_and_loads_nothing():
    code = ("import sys; before = set(sys.modules); import cutthrough; "
            "print([name for name in set(sys.modules) - before if "
            "not name.startswith('importlib') and name != 'warnings'])")
    assert run(door=("-c", code)).stdout == "['cutthrough']\n"


def test_version_loads_neither_the_loop_nor_the_data_plane():
    code = ("import sys; from cutthrough.cli.main import main; main(['version']); "
            "print([name for name, module in sys.modules.items() "
            "if name in ('asyncio', 'uvloop') or name.startswith('cutthrough.') "
            "and module.__file__.endswith('.so')])")
    assert run(door=("-c", code)).stdout.splitlines()[-1] == "[]"


def shell(redirected, *words):
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirected}', "sh", sys.executable, *DOORS[0],
         *words], cwd=ROOT, timeout=30, text=True, capture_output=True,
        stdin=subprocess.DEVNULL, env=clean_environment())


@pytest.mark.parametrize("words", [
    "version", "config", "check", "explain CONNECT 192.0.2.1:1"])
def test_an_output_that_is_closed_is_no_traceback(words):
    done = shell("1>&-", *words.split())
    assert (done.returncode, done.stderr) == (0, "")


def test_a_disk_that_is_full_is_one_line():
    done = shell(">/dev/full", "config")
    assert (done.returncode, done.stderr) == (
        1, "cutthrough: standard output: No space left on device\n")


def test_ctrl_c_is_no_traceback(tmp_path):
    log = tmp_path / "log"
    os.mkfifo(log)
    with subprocess.Popen(
            [sys.executable, *DOORS[0], "suggest", "--log", str(log)], cwd=ROOT,
            stderr=subprocess.PIPE, text=True, env=clean_environment()) as process:
        with open(log, "w"):                 # once it reads
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        assert process.stderr.read() == ""


# The front door of the demonstration

def test_importing_proxy_serves_until_it_is_told_to_stop(tmp_path):
    with Proxy(tmp_path, command=("-c", "import proxy"), user=False) as proxy:
        assert proxy.banner.endswith("demonstration credentials username:password")
        proxy.signal(signal.SIGTERM)
        assert proxy.wait_exit() == 0


@pytest.mark.parametrize(("command", "status"), [
    (("-c", "import proxy"), {502, 200, 404}),      # depends on port 80
    (("-m", "cutthrough", "serve"), {400}),
])
def test_only_the_demonstration_has_an_origin_by_default(tmp_path, command, status):
    with Proxy(tmp_path, "--connect-timeout", "1s", command=command) as proxy, \
            Client(proxy.port) as client:
        assert client.get("/", host="a").status in status


@pytest.mark.parametrize("code", [
    "from cutthrough.cli.main import main; sys.exit(main(['serve', '--listen', 'x']))",
    "from cutthrough.cli.main import demonstrate\n"
    "sys.exit(demonstrate(['--workers', '1']))",
    "cutthrough.serve"])
def test_a_tree_that_is_not_built_names_the_remedy(tmp_path, code):
    """It hid an installed package: No module named 'cutthrough.outcome'."""
    for path in (ROOT / "cutthrough").rglob("*"):
        if path.suffix in (".py", ".pyx") and "__pycache__" not in path.parts:
            copy = tmp_path / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, cutthrough; {code}"], cwd=tmp_path,
        capture_output=True, text=True, timeout=30, env=clean_environment())
    assert done.returncode in (1, 2)
    assert (f"{tmp_path} is a source tree that is not built for this Python, and it "
            "hides the installed cutthrough: build it with `make build`, or run the "
            "installed one from another directory or with `python -P`") in done.stderr


def test_importing_proxy_with_a_bad_flag_exits_2():
    done = run("--head-timeout", "10", door=("-c", "import proxy"))
    assert done.returncode == 2 and "not a duration" in done.stderr


def test_a_policy_for_nobody_is_refused_with_what_to_do(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text('default = "allow"\n')
    done = run("check", "--policy", str(path))
    assert done.returncode == 2
    assert done.stderr.endswith(
        "no other user is configured: give --user and --password-file, --users-file, "
        "[users] in the policy, or --auth-hook\n")
    password = tmp_path / "password"
    password.write_text("secret\n")
    told = ("--user", "ann", "--password-file", str(password))
    assert run("check", "--policy", str(path), *told).returncode == 0


def test_a_list_whose_file_is_not_there_is_named(tmp_path):
    """Only the file was, and not the line that needs it."""
    path = tmp_path / "policy.toml"
    path.write_text('[lists]\nx = { file = "x.txt" }\n'
                    '[[rules]]\naction = "deny"\nhosts = ["@x"]\n')
    assert run("check", "--policy", str(path)).stderr == (
        f"cutthrough: {path}:2:5: lists.x: {tmp_path}/x.txt: {os.strerror(2)}\n"
        '    x = { file = "x.txt" }\n        ^^^^^^^^^^^^^^^^^^\n')


def test_an_acl_of_smokescreen_is_not_told_to_hold_users(tmp_path):
    path = tmp_path / "acl.yaml"
    path.write_text("version: v1\nservices: []\n")
    assert run("check", "--policy", str(path)).stderr.endswith(
        "give --user and --password-file, --users-file, or --auth-hook\n")


def test_who_asks_nobody_is_told_how_to_name_the_listener():
    done = run("conns")
    assert done.returncode == 2
    assert done.stderr == ("cutthrough: command line: --admin: is missing: give the "
                           "address of the admin listener, or set CUTTHROUGH_ADMIN\n")

"""`check` reports all mistakes, each with file, line and a caret."""

import pytest

from cutthrough.cli.main import main
from cutthrough.config.mistake import Mistake, Place, show, show_all
from cutthrough.config.settings import gather
from cutthrough.generation.checks import describe
from tests.support.policies import HASH
from tests.support.terminal import on_terminal

CONFIG = '''\
listen = ["127.0.0.1:99999"]
head_timout = "5s"
[server]
'''
FIXED = '''\
listen = ["0.0.0.0:0", "0.0.0.0:3128"]
head_timeout = 10                 # of what?
max_body = "1GBit"
pasword = "hunter2"
user = "ann"
password_file = "nowhere"
users_file = "{users}"
policy = "{policy}"
'''
USERS = f"ann:hunter2\nbob:{HASH}\nbob:{HASH}\n"
POLICY = f'''\
defualt = "deny"
users.carl = {{ password = "hunter2", groups = ["ci", 1] }}
[users.dora]
password = "{HASH}"
expires = 2027-01-01
[groups]
ci = [""]
[limits.slow]
bytes_per_second = "10MBit"
tunels = 5
[[rules]]
name = "first"
action = "alow"
groups = ["ci", "cj"]
hosts = [
    "ok.example",
    "http://bad.example/",      # a URL
    "*",
]
[[rules]]
hosts = ["a.b"]
ports = [443, 70000]
limits = "slow"
'''


def told(capsys) -> list[str]:
    out, err = capsys.readouterr()
    assert out == "" and "hunter2" not in err and HASH not in err
    return err.split("cutthrough: ")[1:]


def test_every_mistake_of_every_file_is_told_with_its_line(tmp_path, capsys):
    """It reported one at a time, and of a key in TOML not the line."""
    file, users, policy = (tmp_path / name for name in ("c.toml", "users", "p.toml"))
    file.write_text(FIXED.format(users=users, policy=policy))
    users.write_text(USERS)
    policy.write_text(POLICY)
    assert main(["check", "-c", str(file), "--idle-timeout", "9"]) == 2
    at = [text.partition(": ")[0].replace(f"{tmp_path}/", "") for text in told(capsys)]
    assert at == [
        "c.toml:2:16", "c.toml:3:12", "c.toml:4:1", "c.toml:6:17", "command line",
        "p.toml:1:1", "p.toml:2:39", "p.toml:2:27", "p.toml:5:11", "p.toml:7:7",
        "p.toml:9:20", "p.toml:10:1", "p.toml:13:10", "p.toml:14:17", "p.toml:17:5",
        "p.toml:18:5", "p.toml:20:1", "p.toml:22:15", "users:1", "users:3",
        "20 mistakes\n"]


def test_a_mistake_shows_its_line_and_a_caret(tmp_path, capsys):
    policy = tmp_path / "p.toml"
    policy.write_text(POLICY)
    assert main(["check", "--policy", str(policy), "--listen", "127.0.0.1:0"]) == 2
    texts = {text.partition(": ")[2] for text in told(capsys)}
    assert {
        """defualt: no such key; did you mean default?
    defualt = …
    ^^^^^^^
""", """users.carl: groups: takes a list of strings
    users.carl = { password = …, groups = ["ci", 1] }
                                          ^^^^^^^^^
""", """hosts: 'http://bad.example/' is not a host name or address; leave out the \
scheme and the path
        "http://bad.example/",      # a URL
        ^^^^^^^^^^^^^^^^^^^^^
""", """ports: 70000 is not within 1 to 65535, the lower port first
    ports = [443, 70000]
                  ^^^^^
""", """action: is missing
    [[rules]]
    ^^^^^^^^^
"""} <= texts


@pytest.mark.parametrize(("text", "said"), [
    ("head_timeout = 10s\n", """1:18: Expected newline or end of document after a \
statement; a string needs quotes: head_timeout = "10s"
    head_timeout = 10s
                     ^
"""),
    ("user = 'ann'\npassword = hunter2", """2:12: Invalid value; a string needs \
quotes: password = "…"
    password = …
               ^
"""),
    ("listen = ['127.0.0.1:80', '127.0.0.1:80']\n", """\
1:10: listen: 127.0.0.1:80 is given twice
    listen = ['127.0.0.1:80', '127.0.0.1:80']
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
"""),
    ("listen = ['127.0.0.1:80', 'nowhere', '[::1]']\n", """\
1:27: listen: 'nowhere' is not host:port
    listen = ['127.0.0.1:80', 'nowhere', '[::1]']
                              ^^^^^^^^^
FILE:1:38: listen: '[::1]' is not host:port
    listen = ['127.0.0.1:80', 'nowhere', '[::1]']
                                         ^^^^^^^
2 mistakes
"""),
    ("user = 'ann'\nlisten = 'x'\n\nuser = 'bob'\n", """\
4:1: user is there twice; the first is in line 1
    user = 'bob'
    ^^^^
"""),
    ("[[listeners]]\na = 1\n[origins.a]\n[origins.b]\n[origins.a]\n", """\
5:1: [origins.a] is there twice; the first is in line 3
    [origins.a]
    ^^^^^^^^^^^
"""),
    ("listen: 127.0.0.1:80\n", """\
1: Expected '=' after a key in a key/value pair; this looks like YAML, and the file is \
TOML: key = value
"""),
    ("policy = '/none.toml'\n", """\
1:10: policy: /none.toml: No such file or directory
    policy = '/none.toml'
             ^^^^^^^^^^^^
"""),
    ("\nuser = 'ann'", """2:8: user: a user without a password: give \
--password-file, or CUTTHROUGH_PASSWORD
    user = 'ann'
           ^^^^^
""")])
def test_a_configuration_shows_its_line_and_a_caret(tmp_path, capsys, text, said):
    file = tmp_path / "c.toml"
    file.write_text(text)
    assert main(["check", "-c", str(file)]) == 2
    assert "".join(told(capsys)) == f"{file}:{said}".replace("FILE", str(file))


def test_contradictions_are_told_together(capsys):
    assert main(["check", "--listen", "0.0.0.0:1", "--admin", "0.0.0.0:2",
                 "--fleet-prefix", ""]) == 2
    assert [text.partition(":")[2][:12] for text in told(capsys)] == [
        " --listen: 0", " --admin: 0.", " --fleet-pre", ""]


def test_what_is_right_goes_on(tmp_path):
    mistakes = []
    settings = gather({"head_timeout": "x", "idle_timeout": "7s"}, {}, None, True,
                      mistakes)
    assert [one.key for one in mistakes] == ["--head-timeout"]
    assert settings["idle_timeout"].value == 7.0


def test_a_log_line_says_how_many_more_mistakes_there_are():
    first = Mistake("f", "k", "is wrong").with_others([Mistake("f", "l", "too")] * 2)
    assert describe(first) == (
        "f: k: is wrong (and 2 more mistakes; `cutthrough check` lists all)")


def test_a_long_line_is_cut_around_the_caret():
    text = "x = [" + ", ".join(f'"{i:04}"' for i in range(500)) + "]"
    lines = show(Mistake("f", "x", "no", Place(1, text, text.index('"0400"'), 6)))
    _, line, caret = lines.splitlines()
    assert len(line) <= 104
    assert line[caret.index("^"):caret.rindex("^") + 1] == '"0400"'


def test_a_line_does_not_steer_a_terminal():
    assert "\x1b" not in show(Mistake("f", "x", "no", Place(1, "x = '\x1b[2J'", 4, 5)))


def test_what_is_too_much_is_counted():
    first = Mistake("f", "0", "no").with_others(
        [Mistake("f", str(i), "no") for i in range(1, 50)])
    lines = [*show_all(first)]
    assert len(lines) == 21 and lines[-1] == "50 mistakes, 30 of them not shown"


@pytest.mark.parametrize(("listener", "status"), [
    ('auth = "none"', 0), ('auth = "none"\nuser = "web"', 0), ("", 2)])
def test_a_policy_needs_no_users_if_no_listener_wants_a_password(
        tmp_path, capsys, listener, status):
    """Once each policy did."""
    policy, config = tmp_path / "policy.toml", tmp_path / "proxy.toml"
    policy.write_text('[[rules]]\naction = "allow"\nports = [443]\n')
    config.write_text(f'policy = "{policy}"\n[[listeners]]\naddress = "127.0.0.1:0"\n'
                      f"{listener}\n")
    assert main(["check", str(config)]) == status
    assert bool(capsys.readouterr().err) == bool(status)


def test_a_mistake_has_colours_on_a_terminal_alone(tmp_path, capsys):
    file = tmp_path / "c.toml"
    file.write_text("hed_timeout = 1\n")
    words = ("check", str(file))
    assert main(list(words)) == 2 and "\x1b" not in capsys.readouterr().err
    status, output = on_terminal(words)
    assert status == 2 and "\x1b[31m    ^^^^^^^^^^^\x1b[0m" in output
    assert f"cutthrough: \x1b[1m{file}:1:1: hed_timeout: no such option" in output
    assert "\x1b" not in on_terminal(words, NO_COLOR="1")[1]


def test_via_that_is_off_is_noted(capsys):
    flags = ["check", "--user", "ann", "--password", "one"]
    assert main([*flags, "--via", "here"]) == 0
    assert "Via" not in "".join(capsys.readouterr())
    assert main([*flags, "--via", "off"]) == 0
    assert "via: without Via a request that another proxy" in "".join(
        capsys.readouterr())


@pytest.mark.parametrize(("text", "said"), [
    ('[parents.a]\nurl = "http://me:hunter2@h:1"  # ours',
     '    url = "http://…@h:1"  # ours\n          ^^^^^^^^^^^^^^\n'),
    ('origin = "http://me:hun@ter2@h:1x"', "origin: '…@h:1x:80': an IPv6 address"),
    ('trace_url = "https://me:hunter2@h/p"', '    trace_url = …\n'),
    ('admin = "http://me:hunter2@h:1"', "'http://…@h:1' is not host:port; "
     "did you mean …@h:1?\n    admin = \"http://…@h:1\"\n            ^^^^^^^^^"),
    ('listen = ["me:hunter2@h:1x"]', "'…@h:1x'"),
    ('error_pages = "http://me:hunter2@h/"', "http://…@h/: No such file"),
    ('access_log = "http://me:hunter2@h/"', "http://…@h/: access_log: No such file"),
    ('policy_hook = "json://me:hunter2@h"', "json://…@h"),
    # An at sign of another meaning
    ('access_log = "syslog:loca0@127.0.0.1:5"', 'access_log = "syslog:loca0@127.0.0.1:5'
     '"')])
def test_no_mistake_shows_the_credentials_of_a_url(tmp_path, capsys, text, said):
    """An operator may have written them where none are taken; a reload is logged."""
    path = tmp_path / "cutthrough.toml"
    path.write_text(text)
    assert main(["check", "-c", str(path)]) == 2
    assert said in "".join(told(capsys))


def test_no_mistake_of_a_flag_or_a_policy_shows_them(tmp_path, capsys):
    assert main(["check", "--listen", "http://me:hunter2@h:1"]) == 2
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rules]]\naction = "deny"\n'
                      'hosts = ["a.b", "http://me:hunter2@h/"]\n')
    assert main(["check", "--policy", str(policy)]) == 2
    assert 'hosts = ["a.b", "http://…@h/"]' in "".join(told(capsys))


def test_a_caret_stays_below_what_a_line_hides():
    text = 'a = "http://u:p@h", b = 1'
    for meant in ('"http://u:p@h"', "u:p", "b", "h"):
        column = text.rfind(meant)
        shown = Mistake("f", "a", "x", Place(1, text, column, len(meant))).place
        part = shown.text[shown.column:shown.column + shown.width]
        assert part == meant.replace("u:p", "…")

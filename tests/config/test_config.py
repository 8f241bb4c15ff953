"""The options: each source gives the same value, and a mistake is refused by name."""

import os
import tomllib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutthrough.config.config import (
    DEFAULTS,
    OPTIONS,
    SECRETS,
    TABLES,
    Config,
    ConfigError,
)
from cutthrough.config.settings import (
    build,
    flag_name,
    from_options,
    gather,
    load,
    render,
    variable_name,
)
from cutthrough.config.values import (
    MOST_CHARACTERS,
    MOST_ITEMS,
    parse_duration,
    parse_size,
    parse_value,
    show_duration,
    show_size,
    show_value,
)
from cutthrough.generation.generation import Generation, from_memory, to_memory
from cutthrough.policy.source import Policy, Rule
from cutthrough.process.channel import MESSAGE_BYTES, Hello
from cutthrough.supervisor import credentials_page, tickets_page, upgrade
from tests.support.toml import ME, toml


def quoted(text):
    return f'"{text}"'


# The definition

def test_every_option_says_what_it_is_and_where_its_default_comes_from():
    for name, option in OPTIONS.items():
        assert option.help and option.why, name
    for name, table in TABLES.items():
        assert table.help, name
        for key, option in table.options.items():
            assert option.help and option.why, f"{name}.{key}"
        unnamed = set(table.options) | ({table.identity} if table.named else set())
        assert unnamed == set(table.row.__struct_fields__)
    assert {*OPTIONS, *TABLES} == {
        field.name for field in msgspec.structs.fields(Config)}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_default_is_a_value_that_its_option_accepts(name):
    kind, default = OPTIONS[name].kind, DEFAULTS[name]
    assert parse_value(kind, show_value(kind, default)) == default


def test_a_config_survives_the_channel():
    config = from_options(connect_ports=[443, 8443], resolvers="9.9.9.9,::1", **ME)
    packet = msgspec.json.encode(config)
    assert msgspec.json.decode(packet, type=Config) == config


def test_a_generation_is_read_back_as_it_was_written():
    text = "\U0001f600" * MOST_CHARACTERS
    longest = from_options(
        user=text, password=text, access_log="/" + text[1:],
        listen=[f"[2001:db8:1111:1111:1111:1111:1111:{i:04x}]:{10000 + i}"
                for i in range(0x1000, 0x1000 + MOST_ITEMS)],
        resolvers=["2001:db8:1111:1111:1111:1111:1111:1111"] * MOST_ITEMS,
        connect_ports=[65535] * MOST_ITEMS)
    policy = Policy(rules=(Rule(action="deny", hosts=("example.com",)),) * 100_000)
    generation = Generation(7, longest, policy)
    fd = to_memory(generation)
    try:
        assert from_memory(fd) == generation == from_memory(fd)
        with pytest.raises(PermissionError):
            os.write(fd, b"x")
    finally:
        os.close(fd)


def test_the_longest_hello_fits_one_message():
    hello = Hello(slot=1023, workers=1024, generation=99_999, counters=99_999,
                  limits=99_999, rings=99_999, wake=99_999,
                  known=99_999, tickets=99_999, checks=99_999, page=4096, holder=4097,
                  listeners=tuple(range(100_000, 100_000 + 16 * MOST_ITEMS)),
                  numbers=tuple(range(MOST_ITEMS)) * 16)
    assert len(msgspec.json.encode(hello)) <= MESSAGE_BYTES


def test_a_config_cannot_be_changed():
    with pytest.raises(AttributeError):
        Config().user = "somebody"


# The sources

# option, its text, its value
ROWS = [
    ("head_timeout", "200ms", 0.2),
    ("idle_timeout", "1.5h", 5400.0),
    ("idle_timeout", "1m30s", 90.0),
    ("lifetime", "1d12h", 129600.0),
    ("max_body", "10M", 10 << 20),
    ("max_body", "1MB", 1 << 20),
    ("max_body", "10m", 10 << 20),
    ("max_body", "2 GB", 2 << 30),
    ("lifetime", "0", 0.0),
    ("max_head", "4KiB", 4096),
    ("max_body", "1MiB", 1 << 20),
    ("max_fields", "7", 7),
    ("workers", "auto", 0),
    ("workers", "3", 3),
    ("loop", "asyncio", "asyncio"),
    ("listen", "127.0.0.1:1,[::1]:2", (("127.0.0.1", 1), ("::1", 2))),
    ("listen", "localhost:0", (("127.0.0.1", 0),)),
    ("resolvers", "9.9.9.9, 2620:fe::fe", ("9.9.9.9", "2620:fe::fe")),
    ("dns_stale", "0", 0.0),
    ("dns_overrides", "A.test.=192.0.2.1, a.test=2001:DB8::1,b=127.0.0.1",
     (("a.test", "192.0.2.1"), ("a.test", "2001:db8::1"), ("b", "127.0.0.1"))),
    ("connect_ports", "any", "any"),
    ("connect_ports", "443,8443", (443, 8443)),
    ("splice", "off", False),
    ("origin", "http://Example.com", "http://Example.com:80"),
    ("origin", "http://[::1]:81/", "http://[::1]:81"),
    ("access_log", "off", "off"),
    ("access_log", "./stdout", "./stdout"),
]


@pytest.mark.parametrize(("name", "text", "value"), ROWS)
def test_a_value_means_the_same_from_every_source(tmp_path, name, text, value):
    file = toml(tmp_path, f"{name} = {quoted(text)}\n")
    configs = [
        load([f"{flag_name(name)}={text}"]),
        load((), {variable_name(name): text}),
        load((), {}, file),
        from_options(**{name: text}),
    ]
    assert [getattr(config, name) for config in configs] == [value] * 4


@pytest.mark.parametrize(("line", "value"), [
    ("max_fields = 50", ("max_fields", 50)),
    ("max_head = 8192", ("max_head", 8192)),
    ("lifetime = 0", ("lifetime", 0.0)),
    ("splice = false", ("splice", False)),
    ("connect_ports = [443, 80]", ("connect_ports", (443, 80))),
    ('resolvers = ["9.9.9.9"]', ("resolvers", ("9.9.9.9",))),
])
def test_toml_may_use_its_own_types(tmp_path, line, value):
    assert getattr(load((), {}, toml(tmp_path, line)), value[0]) == value[1]


def test_a_flag_goes_before_the_environment_that_before_the_file(tmp_path):
    file = toml(tmp_path, 'max_fields = 1\nmax_line = "1KiB"\nupstream_idle = 1\n')
    environ = {"CUTTHROUGH_MAX_FIELDS": "2", "CUTTHROUGH_MAX_LINE": "2KiB"}
    config = load(["--max-fields", "3"], environ, file)
    assert (config.max_fields, config.max_line, config.upstream_idle) == (3, 2048, 1)
    assert config.upstream_idle_per_origin == 4096


def test_a_list_flag_can_be_repeated():
    config = load(["--listen", "127.0.0.1:1", "--listen", "127.0.0.1:2,127.0.0.1:3"])
    assert [port for _, port in config.listen] == [1, 2, 3]


def test_an_empty_variable_counts_as_absent():
    assert load((), {"CUTTHROUGH_HEAD_TIMEOUT": ""}).head_timeout == 10.0


def test_unknown_variables_are_left_alone():
    load((), {"CUTTHROUGH_PORT": "tcp://10.0.0.1:80", "CUTTHROUGH_SERVICE_HOST": "x"})


def test_options_of_a_caller_may_be_values():
    config = from_options(head_timeout=0.25, listen=[("127.0.0.1", 0)], splice=False)
    assert (config.head_timeout, config.splice) == (0.25, False)
    assert from_options(config, max_fields=9).head_timeout == 0.25


# Refusals

REFUSED = [
    ("head_timeout", "10", "not a duration"),
    ("head_timeout", "10 s", "not a duration"),
    ("head_timeout", "-1s", "not a duration"),
    ("head_timeout", "1e3s", "not a duration"),
    ("head_timeout", "٣s", "not a duration"),
    ("head_timeout", "0", "below 1ms"),
    ("head_timeout", "721h", "above 720h"),
    ("head_timeout", "30s1m", "not a duration"),
    ("head_timeout", "1s1s", "not a duration"),
    ("max_head", "263KB", "above 256KiB"),
    ("max_body", "1e6", "not a size"),
    ("max_body", "10MBit", "not a size"),
    ("max_body", "999999999999999G", "above 1024TiB"),
    ("max_head", "257KiB", "above 256KiB"),
    ("max_fields", "129", "above 128"),
    ("max_fields", "0", "below 1"),
    ("max_fields", "+5", "not a whole number"),
    ("workers", "0", "below 1"),
    ("workers", "many", "not a whole number"),
    ("loop", "trio", "not one of auto, uvloop, asyncio"),
    ("listen", "127.0.0.1", "not host:port"),
    ("listen", "127.0.0.1:65536", "port 65536 is above 65535"),
    ("listen", "http://127.0.0.1:80", "did you mean 127.0.0.1:80?"),
    ("listen", "http:///", "is not host:port"),
    ("listen", "::1:8888", "brackets"),
    ("listen", "[127.0.0.1]:8888", "in '127.0.0.1'"),
    ("listen", "proxy.example:8888", "not an address"),
    ("listen", "127.1:8888", "not an address"),
    ("listen", ":8888", "not an address"),
    ("listen", "127.0.0.1:1,127.0.0.1:1", "twice"),
    ("listen", ",", "at least one"),
    ("connect_ports", ",", "give auto or any"),
    ("connect_ports", "443,any", "'any' cannot be combined"),
    ("connect_ports", "foo", "'foo' is not a whole number, nor auto or any"),
    ("max_connections", "99999999999", "'99999999999' is above 10000000"),
    ("max_connections", "9" * 5000, "is above 10000000"),
    ("connect_ports", "0", "below 1"),
    ("resolvers", "dns.example", "IPv4 or IPv6"),
    ("dns_overrides", "a.test", "not name=address"),
    ("dns_overrides", "=192.0.2.1", "not name=address"),
    ("dns_overrides", "a..b=192.0.2.1", "not name=address"),
    ("dns_overrides", "ä.test=192.0.2.1", "not name=address"),
    ("dns_overrides", "a.test=b.test", "IPv4 or IPv6"),
    ("dns_overrides", "a.test=fe80::1%eth0", "without a zone"),
    ("dns_overrides", "127.1=192.0.2.1", "is an address"),
    ("dns_overrides", "a.0x7f=192.0.2.1", "is an address"),
    ("origin", "https://a", "not http://"),
    ("origin", "http://a/b", "not http://"),
    ("origin", "http://u@a", "not http://"),
    ("origin", "http://a:0", "not http://"),
    ("origin", "a:80", "not http://"),
    ("via", "two words", "token"),
    ("splice", "maybe", "neither true nor false"),
    ("user", "a:b", "colon"),
    ("user", "a\nb", "control character"),
    ("user", "a\udcff", "not UTF-8"),
    ("user", "a" * 4097, "longer than 4096"),
    ("resolvers", "9.9.9.9," * 257, "more than 256"),
    ("access_log", "stdout", "did you mean -?"),
    ("access_log", "stderr", "did you mean /dev/stderr?"),
    ("access_log", "none", "did you mean off?"),
    ("access_log", "Off", "did you mean off?"),
    ("access_log", "journald", "did you mean journal?"),
    ("access_log", "stdio:/var/log/squid/access.log",
     "a path is given without stdio:; did you mean /var/log/squid/access.log?"),
    ("access_log", "daemon:/var/log/a", "did you mean /var/log/a?"),
    ("access_log", "udp://10.0.0.1:514", "did you mean syslog@10.0.0.1:514?"),
    ("access_log", "sylog", "did you mean syslog?"),
    ("access_log", "syslog+local0", "did you mean syslog?"),
    ("access_log", "access.out", "for a file here give ./access.out"),
    ("access_log_format", "xml", "not one of squid, common, combined, ltsv"),
    ("access_log_format", "josn", "did you mean json"),
    ("access_log_format", "%>A", "no such code %>A; did you mean %>a"),
]


@pytest.mark.parametrize(("name", "text", "reason"), REFUSED)
def test_a_bad_value_is_refused_with_source_key_and_reason(name, text, reason):
    with pytest.raises(ConfigError, match=reason) as caught:
        load([f"{flag_name(name)}={text}"])
    assert (caught.value.source, caught.value.key) == ("command line", flag_name(name))
    with pytest.raises(ConfigError, match=reason) as caught:
        load((), {variable_name(name): text})
    assert caught.value.source == "environment"
    assert caught.value.key == variable_name(name)


@pytest.mark.parametrize(("text", "key", "reason"), [
    ("hed_timeout = 1", "hed_timeout", "did you mean head_timeout?"),
    ("[head_timeout]", "head_timeout", "expected TIME as a string"),
    ("xyzzy = 1", "xyzzy", "no such option"),
    ("head_timeout = 10", "head_timeout", "not a duration"),
    ("head_timeout = 10.0", "head_timeout", "expected TIME as a string"),
    ("max_fields = true", "max_fields", "expected N as a string"),
    ("max_fields = [1]", "max_fields", "expected N as a string"),
    ("splice = 1", "splice", "true"),
    ("password = 1234", "password", "as a string"),
    ("listen = [1]", "listen", "expected HOST:PORT|unix:PATH as a string"),
    ("connect_ports = []", "connect_ports", "give auto or any"),
    ("a b", "", "Expected '=' after a key"),
    ('user = "\\ud800"', "", "not a Unicode scalar"),
])
def test_a_bad_file_is_refused_with_file_key_and_reason(tmp_path, text, key, reason):
    file = toml(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load((), {}, file)
    assert (caught.value.source, caught.value.key) == (file, key)
    assert reason in caught.value.reason
    assert caught.value.place.line == 1


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        load((), {}, str(tmp_path / "none.toml"))


@pytest.mark.parametrize("options", [
    {"hed_timeout": 1}, {"head_timeout": [1]}, {"listen": ("127.0.0.1", 0)},
    {"connect_ports": []}, {"head_timeout": object()},
])
def test_a_callers_mistake_is_a_config_error(options):
    with pytest.raises(ConfigError, match="options"):
        from_options(**options)


# Authentication

def test_without_user_and_password_the_demonstration_is_in_force():
    config = load()
    assert config.demonstration
    assert (config.user, config.password) == ("username", "password")
    assert not from_options(**ME).demonstration


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:1",
                                     "[::ffff:127.0.0.1]:1"])
@pytest.mark.parametrize("credentials", [
    [], ["--user", "username", "--password", "password"]])
def test_demonstration_credentials_never_serve_beyond_loopback(address, credentials):
    """R29, also if the command line has them."""
    with pytest.raises(ConfigError, match="are for loopback only") as caught:
        load(["--listen", address, *credentials])
    assert caught.value.key == "--listen"
    assert load(["--listen", address, "--user", "a", "--password", "b"])


def test_one_bad_listener_among_loopback_ones_is_enough():
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0:2 is not"):
        load(["--listen", "127.0.0.1:1", "--listen", "0.0.0.0:2"])


@pytest.mark.parametrize(("flags", "key"), [
    (["--user", "me"], "--user"),
    (["--user", "me", "--password", ""], "--user"),
    (["--password", "secret"], "--password"),
])
def test_user_and_password_come_together(flags, key):
    with pytest.raises(ConfigError) as caught:
        load(flags)
    assert caught.value.key == key
    assert "secret" not in str(caught.value)


# Defaults that follow from the listeners

@pytest.mark.parametrize(("listen", "options", "floor", "ports"), [
    ("127.0.0.1:0,[::1]:0", {}, False, None),
    ("127.0.0.1:0", {"address_floor": "on", "connect_ports": "443"}, True, (443,)),
    ("127.0.0.1:0,0.0.0.0:0", {}, True, (443,)),
    ("[::]:0", {"address_floor": "off", "connect_ports": "any"}, False, None),
    ("[::]:0", {"connect_ports": "22,443"}, True, (22, 443)),
])
def test_floor_and_ports_follow_the_listeners(listen, options, floor, ports):
    config = from_options(listen=listen, **options, **ME)
    assert (config.floor, config.allowed_ports) == (floor, ports)


def test_via_is_made_at_each_start_and_kept_once_made():
    one, other = load(), load()
    assert one.via.startswith("cutthrough-") and len(one.via) == len("cutthrough-") + 8
    assert one.via != other.via
    assert from_options(one, max_fields=5).via == one.via


# Texts of a configuration

def test_a_secret_is_in_no_text_made_of_a_config(tmp_path):
    secrets = {name: OPTIONS[name].stand_in + "s3cret" for name in SECRETS}
    settings = gather({"user": "me", **secrets}, {
        "CUTTHROUGH_BUNDLE_KEY": "A" * 43 + "=", "CUTTHROUGH_BUNDLE_CACHE": "/cache"})
    for text in (render(settings), repr(build(settings)), str(build(settings))):
        assert "s3cret" not in text
        assert "me" in text


def test_the_rendered_configuration_reads_back_as_itself(tmp_path):
    path = tmp_path / "password"
    path.write_text("s3cret")
    settings = gather({
        "user": "me", "password_file": str(path), "listen": ["[::1]:1,127.0.0.1:2"],
        "connect_ports": ["443"], "head_timeout": "1500ms", "via": "here",
        "resolvers": ["9.9.9.9"], "origin": "http://a:1"}, {})
    text = render(settings)
    assert tomllib.loads(text)["head_timeout"] == "1500ms"
    assert load((), {}, toml(tmp_path, text)) == build(settings)
    assert "# command line" in text and "# default" in text


def test_the_rendered_demonstration_fixes_nothing_that_each_start_makes():
    keys = tomllib.loads(render(gather({}, {})))
    assert not keys.keys() & {"via", "user", "password", "origin"}


# Text and value

@given(st.integers(0, 30 * 86_400_000))
def test_a_duration_reads_back_as_it_was_shown(milliseconds):
    seconds = milliseconds / 1000
    assert parse_duration(show_duration(seconds)) == seconds


@given(st.integers(0, 1 << 40))
def test_a_size_reads_back_as_it_was_shown(size):
    assert parse_size(show_size(size)) == size


@given(st.sampled_from(sorted(OPTIONS)), st.text(max_size=40))
def test_any_text_is_a_value_or_a_config_error(name, text):
    if name == "password_file":
        return                               # opens it
    try:
        value = parse_value(OPTIONS[name].kind, text)
    except ValueError:
        return
    assert parse_value(OPTIONS[name].kind, show_value(OPTIONS[name].kind, value)) \
        == value


def test_what_an_upgrade_passes_on_is_no_misspelt_option():
    """An option with a similar name made every upgrade fail."""
    for name in (credentials_page.VARIABLE, tickets_page.VARIABLE, upgrade.VARIABLE,
                 upgrade.ACTIVATED):
        load((), {name: "7"})

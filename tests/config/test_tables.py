"""Tables of the file: rows with keys of their own, declared as options are."""

from typing import Annotated

import msgspec
import pytest

from cutthrough.config import tables
from cutthrough.config.config import ConfigError
from cutthrough.config.listeners import Listener
from cutthrough.config.mistake import show
from cutthrough.config.option import Option, Table
from cutthrough.config.settings import Setting, from_options, gather, load, render
from cutthrough.config.values import COUNT, DURATION, FILE, TEXT, text_of_value
from cutthrough.generation.generation import Generation, needs_new_workers, show_changes
from cutthrough.policy.source import Policy
from tests.support.toml import ME, toml

TWO = """user = "me"
password = "secret"
[[listeners]]
address = "127.0.0.1:3128"
[[listeners]]
address = "[::1]:0"          # any
"""


class Shop(msgspec.Struct, frozen=True, kw_only=True):
    """A named row with every kind of key."""

    name: str
    opens: Annotated[float, Option(DURATION, "when", "none: required", swapped=True)]
    tills: Annotated[int, Option(COUNT, "how many", "one is enough")] = 1
    note: Annotated[str, Option(TEXT, "a note", "none")] = ""
    key: Annotated[str, Option(TEXT, "of its door", "none", file="key_file")] = ""
    key_file: Annotated[str, Option(FILE, "the file with the key", "none")] = ""

    def __post_init__(self) -> None:
        if self.tills == 0 and self.note:
            raise ConfigError("", "note", "has no till")


SHOPS = Table(Shop, "Shops.", named=True, swapped=True)


class FromPython:
    """The part of `settings` for tables that a program gives."""

    text_of = staticmethod(text_of_value)

    def blame(self, reason, path, of_key=False):
        return Setting((), "options", "shops").blame(reason, path, of_key)

    def read_secret(self, file, path):
        return f"content of {file}"


def read(given):
    mistakes = []
    rows = tables.read_rows(SHOPS, "shops", given, FromPython(), mistakes)
    return rows, [str(one) for one in mistakes]


def test_both_forms_make_one_list_of_listeners(tmp_path):
    config = load(["--listen", "127.0.0.2:1"], {}, toml(tmp_path, TWO))
    assert [one.address for one in config.all_listeners] == [
        ("127.0.0.2", 1), ("127.0.0.1", 3128), ("::1", 0)]


def test_with_tables_the_short_form_has_no_default(tmp_path):
    file = toml(tmp_path, TWO)
    assert load((), {}, file).listen == ()
    assert load((), {}, toml(tmp_path, "")).listen == (("127.0.0.1", 8888),)
    config = from_options(**ME, listeners=[{"address": "127.0.0.1:0"}])
    assert config.all_listeners == (Listener(address=("127.0.0.1", 0)),)
    again = from_options(config, listeners=config.listeners, head_timeout="5s")
    assert again.all_listeners == config.all_listeners


@pytest.mark.parametrize(("text", "line", "shown", "reason"), [
    ("[[listeners]]\naddress = '127.0.0.1'", 2, "'127.0.0.1'",
     "listeners.address: '127.0.0.1' is not host:port"),
    ("[[listeners]]\naddress = 1", 2, "1", "listeners.address: expected HOST:PORT"),
    ("[[listeners]]\n\nadress = '127.0.0.1:1'", 3, "adress",
     "listeners.adress: no such key; did you mean address?"),
    ("[[listeners]]\n[[listeners]]\naddress = '127.0.0.1:1'", 1, "[[listeners]]",
     "listeners: address is missing"),
    ("[listeners]\naddress = '127.0.0.1:1'", 1, "[listeners]",
     "listeners: takes tables: [[listeners]]"),
    ("listeners = 'x'", 1, "…", "listeners: takes tables: [[listeners]]"),
    ("listeners = ['127.0.0.1:1']", 1, "…", "listeners: takes a table"),
    ("listeners = [{address = '127.0.0.1:1', proxy_protocol = 'si'}]", 1, "'si'",
     "listeners.proxy_protocol: 'si' is neither true nor false"),
    ("[[listeners]]\naddress = '127.0.0.1:1'\n[[listeners]]\n"
     "address = '127.0.0.1:1'", 4, "'127.0.0.1:1'",
     "listeners.address: 127.0.0.1:1 is given twice"),
    ("listen = '127.0.0.1:1'\n[[listeners]]\naddress = 'localhost:1'", 3,
     "'localhost:1'", "listeners.address: 127.0.0.1:1 is given twice"),
    ("[[listeners]]\naddress = '192.0.2.1:1'", 2, "'192.0.2.1:1'",
     "listeners.address: 192.0.2.1:1 is not loopback, and the demonstration"),
    ("[[listeners]]\naddress = '127.0.0.1:1'\nproxy_protocol = true\n", 3, "true",
     "listeners.proxy_protocol: any caller could name any client"),
    ("[[listeners]]\naddress = '127.0.0.1:1'\nprotocols = ['http', 'tls']", 3,
     "['http', 'tls']", "listeners.protocols: tls needs certificates"),
    ("[[listeners]]\naddress = '127.0.0.1:1'\ncertificates = ['a.pem']\n"
     "protocols = ['tls']", 4, "['tls']",
     "listeners.protocols: tls carries another protocol: add http"),
    ("[[listeners]]\naddress = '127.0.0.1:1'\nprotocols = ['http', 'ssl']", 3,
     "'ssl'", "listeners.protocols: 'ssl' is not one of http, http2, "),
    ("[[listener]]\naddress = '127.0.0.1:1'", 1, "[[listener]]",
     "listener: no such option; did you mean listeners?"),
    ("[server]\nlisten = '127.0.0.1:1'", 1, "[server]",
     "the tables are [[listeners]]"),
])
def test_a_mistake_has_its_line_and_a_mark(tmp_path, text, line, shown, reason):
    with pytest.raises(ConfigError) as caught:
        load((), {}, toml(tmp_path, text))
    said, there, mark = show(caught.value).split("\n")
    assert reason in said and f"cutthrough.toml:{line}:{mark.index('^') - 3}: " in said
    assert there[mark.index("^"):mark.rindex("^") + 1] == shown


def test_all_mistakes_of_all_rows_are_shown_at_once(tmp_path):
    text = ("[[listeners]]\naddress = 'x'\nproxy = 1\n"
            "[[listeners]]\nproxy_protocol = 3\n")
    with pytest.raises(ConfigError) as caught:
        load((), {}, toml(tmp_path, text))
    assert [one.place.line for one in caught.value.all] == [2, 3, 4, 5]


def test_a_row_from_python_is_named_by_its_number():
    with pytest.raises(ConfigError, match=r"^options: listeners.1.\.address: ") as one:
        from_options(**ME, listeners=[{"address": "127.0.0.1:0"}, {"address": "x"}])
    assert one.value.place is None


def test_what_is_printed_can_be_read_again(tmp_path):
    file = toml(tmp_path, TWO)
    text = render(gather({}, {}, file))
    assert '[[listeners]]\naddress = "127.0.0.1:3128"  # ' in text
    lines = text.replace("# password is set", 'password = "secret"')
    again = load((), {}, toml(tmp_path, lines))
    assert again.all_listeners == load((), {}, toml(tmp_path, TWO)).all_listeners


def test_rows_reach_the_workers(tmp_path):
    config = load((), {}, toml(tmp_path, TWO))
    encoded = msgspec.msgpack.encode(config)
    assert msgspec.msgpack.decode(encoded, type=type(config)) == config


def test_a_reload_names_what_changed(tmp_path):
    def generation(text):
        return Generation(1, load(["--via", "v"], {}, toml(tmp_path, text)), Policy())
    old, new = generation(TWO), generation(TWO.replace("3128", "3129"))
    assert show_changes(old, new) == (
        "listeners 127.0.0.1:3128 removed, listeners 127.0.0.1:3129 added")
    assert needs_new_workers(old, new) and not needs_new_workers(old, old)


def test_a_named_row_has_its_name_and_the_secret_of_its_file():
    (row,), mistakes = read({"corner": {"opens": "1m", "key_file": "/key"}})
    assert not mistakes
    assert row == Shop(name="corner", opens=60.0, key="content of /key",
                       key_file="/key")


@pytest.mark.parametrize(("given", "reason"), [
    ({"a b": {"opens": "1s"}}, "shops.a b: 'a b' is not a name"),
    ({"a": {}}, "shops.a: opens is missing"),
    ({"a": 1}, "shops.a: takes a table"),
    ({"a": {"opens": "1s", "key": "k"}}, "shops.a.key: is a secret, which only a file "
     "may hold: give key_file"),
    ({"a": {"opens": "1s", "name": "b"}}, "shops.a.name: no such key"),
    ({"a": {"opens": "1s", "tills": -1}}, "shops.a.tills: '-1' is not a whole number"),
    ({"a": {"opens": "1s", "tills": 0, "note": "x"}}, "shops.a.note: has no till"),
    ([{"opens": "1s"}], "shops: takes tables: [shops.NAME]"),
    ([1] * 3, "shops: takes tables: [shops.NAME]"),
    ({str(n): {"opens": "1s"} for n in range(257)}, "shops: there are more than 256"),
])
def test_a_mistake_in_a_named_row_names_it(given, reason):
    rows, mistakes = read(given)
    assert rows == () and len(mistakes) == 1
    assert mistakes[0].startswith(f"options: {reason}")


def test_a_secret_is_in_no_print_and_in_no_difference():
    (row,), _ = read({"a": {"opens": "1s", "key_file": "/one"}})
    other = msgspec.structs.replace(row, key="another", opens=2.0)
    text = "\n".join(tables.render_rows(SHOPS, "shops", [row], "file"))
    assert "[shops.a]" in text and "# key is set" in text
    assert 'opens = "1s"  # file' in text and "tills = 1  # default" in text
    changes = list(tables.compare(SHOPS, "shops", [row], [other]))
    assert [one.text for one in changes] == ["shops a opens 1s -> 2s", "shops a key"]
    assert [one.swapped for one in changes] == [True, False]
    assert "content" not in text + str(changes) and "another" not in str(changes)


def test_an_order_is_a_difference_and_equal_rows_are_counted():
    one, two = (Shop(name=name, opens=1.0) for name in "ab")
    assert list(tables.compare(SHOPS, "shops", [one, two], [one, two])) == []
    (change,) = tables.compare(SHOPS, "shops", [one, two], [two, one])
    assert change.text == "shops in another order" and change.swapped
    table = Table(Listener, "")
    any_port = Listener(address=("127.0.0.1", 0))
    (change,) = tables.compare(table, "l", [any_port], [any_port, any_port])
    assert change.text == "l 127.0.0.1:0 added" and not change.swapped


@pytest.mark.parametrize(("path", "hidden"), [
    ((0, "address"), False), ((0, "adress"), True), ((0,), True), ((), True)])
def test_an_unknown_value_is_not_shown(path, hidden):
    assert tables.is_secret(Table(Listener, ""), path) is hidden


def test_a_secret_s_value_is_not_shown():
    assert tables.is_secret(SHOPS, ("a", "key"))
    assert not tables.is_secret(SHOPS, ("a", "key_file"))


def test_too_many_addresses_do_not_reach_a_worker():
    rows = [Listener(address=("127.0.0.1", n)) for n in range(1, 256)]
    with pytest.raises(ConfigError, match="more than 256 addresses"):
        from_options(**ME, listen=["127.0.0.2:1", "127.0.0.2:2"], listeners=rows)


@pytest.mark.parametrize(("row", "key", "said"), [
    ('protocols = ["gopher"]', "protocols", "'gopher' is not one of http, http2"),
    ("protocols = []", "protocols", "is empty"),
    ('protocols = ["socks5", "socks4"]', "protocols", "it needs auth"),
    ('auth_none_from = ["192.0.2.1"]', "auth_none_from", "has no effect"),
    ('auth = "perhaps"', "auth", "'perhaps' is not one of required, none")])
def test_a_listener_that_could_not_work_is_refused(tmp_path, row, key, said):
    with pytest.raises(ConfigError) as caught:
        load((), {}, toml(tmp_path, TWO + row + "\n"))
    assert f"listeners.{key}" in str(caught.value) and said in str(caught.value)


def test_nobody_beyond_this_host_goes_without_credentials_by_default():
    row = {"address": "192.0.2.1:1080", "protocols": "socks5", "auth": "none"}
    with pytest.raises(ConfigError, match="anybody could use"):
        from_options(None, user="me", password="secret", listeners=[row])
    row["auth_none_from"] = "198.51.100.0/24"
    config = from_options(None, user="me", password="secret", listeners=[row])
    assert config.listeners[0].auth_none_from == ("198.51.100.0/24",)

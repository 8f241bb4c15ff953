"""Each key and value of a TOML text has its place, and no place shows a secret."""

import tomllib

import pytest

from cutthrough.config.config import ConfigError
from cutthrough.config.mistake import MOST_NOTED, MOST_SHOWN, Mistake
from cutthrough.config.settings import load
from cutthrough.config.toml import Places, TomlError, _Scanner, read_toml
from cutthrough.policy.rules import read_policy
from cutthrough.policy.source import PolicyError

TEXT = r'''# a comment with = and "quotes"
plain = 1
"quoted key" = 'literal # none'
dotted . "a b".c = QQQ
multi # no comment
"quoted" \"QQQ" # behind it
list = [1, "two", [3, { four = 4 }],  # an end
    'five', # [
]
when = 2027-01-01 00:00:00Z
then = [2027-01-01T00:00:00Z, 07:32:00, inf]
inline = { a.b = 1, c = [ { d = "}" } ], e = {} }
raw = LLL
][LLL # = "
[table."with.dot"]
x = true
[[rules]]
hosts = ["a.b"]
[rules.more]
y = -1.5e3
[[rules]]
[[rules.inner]]
z = "\u00e9\\"
[[ rules.inner ]]
  z = 2'''.replace("QQQ", '"""').replace("LLL", "'''")


def leaves(value, path=()):
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list) and value:
        for number, inner in enumerate(value):
            yield from leaves(inner, (*path, number))
    else:
        yield path, value


@pytest.mark.parametrize("text", [TEXT, TEXT.replace("\n", "\r\n")])
def test_a_place_holds_what_tomllib_reads(text):
    text = text.replace("\r\n", "\n")
    spans = _Scanner(text).scan()
    for path, value in leaves(tomllib.loads(text)):
        if value == {} and path not in spans:
            continue
        begin, end = spans[path].value
        assert tomllib.loads(f"k = {text[begin:end]}")["k"] == value, path


def places(text, *secret):
    return Places(text, lambda path: path[-1] in secret)


def marked(place):
    return place.text[place.column:place.column + place.width]


def test_a_place_is_the_line_and_what_is_meant_of_it():
    found = places(TEXT)
    place = found.value("list", 1)
    assert (place.line, marked(place)) == (7, '"two"')
    assert place.text == 'list = [1, "two", [3, { four = 4 }],  # an end'
    assert (found.key("plain").line, marked(found.key("plain"))) == (2, "plain")
    assert marked(found.value("inline", "c", 0, "d")) == '"}"'
    assert found.value("list", 3).line == 8
    assert found.value("rules", 1, "inner", 1, "z").line == TEXT.count("\n") + 1
    # a missing key is to stand in its table
    assert marked(found.value("rules", 0, "action")) == "[[rules]]"
    assert places("a = 1").key("b") is None


@pytest.mark.parametrize(("text", "shown", "meant"), [
    ('x = { password = "s3cret", y = 1 }', "x = { password = …, y = 1 }", "1"),
    ('x = { y = 1, password = "s3cret" }', "x = { y = 1, password = … }", "1"),
    ('x.y = 1 # s', "x.y = 1 # s", "1")])
def test_a_secret_of_the_same_line_is_left_out(text, shown, meant):
    place = places(text, "password").value("x", "y")
    assert (place.text, marked(place)) == (shown, meant)


def test_a_secret_itself_is_left_out():
    for text in ('password = "s3cret"', 'password = """s3\ncret"""'):
        place = places(text, "password").value("password")
        assert (place.text, marked(place)) == ("password = …", "…")


@pytest.mark.parametrize(("text", "reason", "line", "shown"), [
    ("a = 1\nhead_timeout = 10s\n", "Expected newline or end of document after a "
     'statement; a string needs quotes: head_timeout = "10s"', 2,
     "head_timeout = 10s"),
    ("listen = any", 'Invalid value; a string needs quotes: listen = "any"', 1,
     "listen = any"),
    ("password = s3cret", 'Invalid value; a string needs quotes: password = "…"', 1,
     "password = …"),
    ('password = "s3cret', "", 1, "password = …"),
    ("x = [\n  s3cret\n]", "Invalid value", 2, ""),
    ("[a\nb = 1", "", 1, "[a"),
    ("a b", "", 1, ""),
    ("a = ", "Invalid value", 1, "a = ")])
def test_what_is_no_toml_is_told_with_its_place(text, reason, line, shown):
    with pytest.raises(TomlError) as caught:
        read_toml(text, lambda path: path[-1] == "password")
    assert caught.value.reason.startswith(reason)
    assert "(at " not in caught.value.reason and "s3cret" not in str(caught.value)
    assert (caught.value.place.line, caught.value.place.text) == (line, shown)


@pytest.mark.parametrize("text, line", [
    ("a = 1\nb = 0x1" + "0" * 16, 2), ("a = -9223372036854775809", 1),
    ("[a]\nb = [1, { c = [0x" + "f" * 5000 + "] }]", 2)])
def test_an_integer_has_64_bits(text, line):
    with pytest.raises(TomlError, match="an integer has more than 64 bits") as caught:
        read_toml(text, lambda path: False)
    assert caught.value.place.line == line


def test_the_longest_integers_are_read():
    text = "a = [9223372036854775807, -9223372036854775808, true]"
    assert read_toml(text, lambda path: False) == tomllib.loads(text)


@pytest.mark.parametrize("opening, closing", ["[]", ("{ a = ", "}")])
def test_a_text_that_nests_too_deep_is_a_mistake(opening, closing):
    with pytest.raises(TomlError, match="nests too deep"):
        read_toml(f"a = {opening * 5000}1{closing * 5000}", lambda path: False)


def test_a_place_in_a_long_line_has_a_part_of_it():
    """A list of many items in one line, each with a mistake, took their product."""
    items = [f"http://bad{number}.example/" for number in range(100_000)]
    found = Places(f"x = {items!r}", lambda path: False)
    shown = [found.value("x", number) for number in (0, 5, 50_000, 99_999)]
    for place, number in zip(shown, (0, 5, 50_000, 99_999), strict=True):
        assert marked(place) == repr(items[number])
        assert len(place.text) <= 2 * MOST_SHOWN
    assert shown[0].left_out == 0 and shown[2].left_out + shown[2].column == (
        f"x = {items!r}".index(items[50_000]) - 1)


@pytest.mark.parametrize("secret", ["s3cret", "s3cret" * 40])
def test_half_a_url_shows_no_password(secret):
    """The at sign may be beyond the part of the line."""
    fill = "x" * (MOST_SHOWN - 9)
    for text in (f'y = "http://u:{secret}@h/{fill}", x = 1',
                 f'x = 1, z = "{fill}", y = "http://u:{secret}@h/"',
                 f'x = "http://u:{secret}@h/{fill}{fill}"',
                 f'x = 1{" " * (MOST_SHOWN - 12)}, y = "http://u:{secret}@h/"'):
        found = Places(f"a = {{ {text} }}", lambda path: False)
        place = Mistake("", "", "", found.value("a", "x")).place
        assert "s3cret" not in place.text and "cret" not in place.text


def test_a_file_of_another_kind_is_refused_in_time(tmp_path):
    """Each of a hundred thousand keys was compared with all options."""
    path = tmp_path / "cutthrough.toml"
    path.write_text("".join(f'name{number} = "x"\n' for number in range(100_000)))
    with pytest.raises(ConfigError) as caught:
        load(file=str(path))
    assert len(caught.value.all) == MOST_NOTED
    policy = "".join(f'[[rules]]\nhostz{number} = "x"\n' for number in range(20_000))
    with pytest.raises(PolicyError) as refused:
        read_policy(policy, "p", str)
    assert MOST_NOTED <= len(refused.value.all) < MOST_NOTED + 10


def test_a_list_of_tables_in_place_of_a_value_has_its_line(tmp_path):
    """The mistake had none."""
    path = tmp_path / "cutthrough.toml"
    path.write_text("watch = true\n[[idle_timeout]]\n[[idle_timeout]]\n")
    with pytest.raises(ConfigError) as caught:
        load(file=str(path))
    assert caught.value.place.line == 2

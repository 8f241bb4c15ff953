"""The options of recordings: values without use are refused before a start."""

import re
from types import SimpleNamespace

import pytest

from cutthrough.cli.main import main
from cutthrough.config.config import OPTIONS
from cutthrough.config.settings import load
from cutthrough.config.values import parse_value, show_value
from cutthrough.recording.model import xml_documents

POLICY = """
[[rules]]
action = "allow"
recording = "record"
"""
ROUTE = "\n[recording_routes.chat]\n"


@pytest.fixture
def check(tmp_path, capsys):
    policy, file = tmp_path / "policy.toml", tmp_path / "proxy.toml"
    policy.write_text(POLICY)

    def run(text, folder=tmp_path):
        file.write_text(f'policy = "{policy}"\nuser = "a"\npassword = "bcd"\n'
                        f'recording_directory = "{folder}"\n{text}')
        status = main(["check", "-c", str(file)])
        return status, capsys.readouterr().err.replace(f"{tmp_path}/", "")
    return run


@pytest.mark.parametrize(("text", "line", "said"), [
    # `check` accepted these, and workers died of them in a loop
    (f'{ROUTE}body = "json"\nbody_paths = ["$.a"]', 8,
     'body_paths: has no effect without body = "jsonpath" or "xpath"'),
    (f'{ROUTE}body = "xpath"', 7,
     'body: "xpath" needs body_paths, which say what counts'),
    (f'{ROUTE}body = "xpath"\nbody_paths = ["//["]', 8, "'//[' is no XPath"),
    (f'{ROUTE}body = "jsonpath"', 7,
     'body: "jsonpath" needs body_paths, which say what counts'),
    (f'{ROUTE}body_regexes = ["a"]', 7,
     'body_regexes: has no effect without body = "regex"'),
    (f'{ROUTE}body = "regex"', 7,
     'body: "regex" needs body_regexes, which say what counts'),
    (f'{ROUTE}body = "regex"\nbody_regexes = ["("]', 8, "is no regular expression"),
    (f'{ROUTE}body = "json"\nignored_paths = ["$.["]', 8, "'$.[' is no JSONPath"),
    (f'{ROUTE}body = "jsonpath"\nbody_paths = ["$.["]', 8, "'$.[' is no JSONPath"),
    (f'{ROUTE}refresh_ids = ["x-id", "$.["]', 7, "'$.[' is no JSONPath"),
    # This mistake was found at the first recording only, and nothing was recorded then
    ('recording_redact_body = ["ok", "("]', 5, "is no regular expression"),
    # These had no effect
    (f'{ROUTE}ignored_paths = ["$.a"]', 7, 'has no effect without body = "json" '
     'or "partial_json" or "jsonpath"'),
    (f'{ROUTE}body = "json"\nignored_form = ["a"]', 8,
     'has no effect without body = "form"'),
    (f'{ROUTE}query = "ignore"\nignored_query = ["a"]', 8,
     'has no effect with query = "ignore"'),
    # Mistakes that are refused already
    ('recording_redact_json = ["$[0]"]', 5, "is not a path"),
    ('recording_redact_fields = ["a b"]', 5, "recording_redact_fields"),
    ('recording_hooks = "nowhere_at_all:Hooks"', 5, "recording_hooks"),
    (f'{ROUTE}lane = "a b"', 7, "lane"), (f'{ROUTE}refresh = ["date"]', 7, "refresh")])
def test_a_mistake_is_told_with_its_line(check, text, line, said):
    status, err = check(text)
    assert status == 2 and err.startswith(f"cutthrough: proxy.toml:{line}:"), err
    assert said in err


def test_all_mistakes_of_routes_are_told_together(check):
    status, err = check('recording_redact_body = ["("]\n'
                        f'{ROUTE}body = "json"\nignored_paths = ["$.[", "$["]\n'
                        '[recording_routes.b]\nrefresh_ids = ["$.["]\n')
    assert status == 2 and re.findall(r"toml:(\d+):\d+: ([\w.]+)", err) == [
        ("5", "recording_redact_body"), ("9", "recording_routes.chat.ignored_paths"),
        ("9", "recording_routes.chat.ignored_paths"),
        ("11", "recording_routes.b.refresh_ids")]


@pytest.mark.parametrize("key", ['"xml"', '"xpath"\nbody_paths = ["/a"]'])
def test_xml_without_its_library_is_told(check, monkeypatch, key):
    def missing(name):
        raise ImportError(name)

    assert check(f"{ROUTE}body = {key}") == (0, "")
    caches = (xml_documents._library, xml_documents._parse, xml_documents.compile_xpath)
    monkeypatch.setattr(xml_documents, "importlib", SimpleNamespace(
        import_module=missing))
    for one in caches:
        one.cache_clear()
    try:
        status, err = check(f"{ROUTE}body = {key}")
    finally:
        for one in caches:
            one.cache_clear()
    assert status == 2 and "pip install 'cutthrough[recording]'" in err


def test_a_directory_that_is_a_file_is_refused(check, tmp_path):
    (tmp_path / "file").write_text("")
    for folder in ("file", "file/below"):
        status, err = check("", tmp_path / folder)
        assert (status, err.splitlines()[0]) == (
            2, "cutthrough: proxy.toml:4:23: recording_directory: Not a directory")
    assert check("", tmp_path / "new" / "one") == (0, "")
    assert not (tmp_path / "new").exists(), "a check makes no directory"


def test_an_expression_keeps_its_commas(tmp_path):
    """`'a{1,2}'` was split into `a{1` and `2}`. Both are valid expressions, and neither
    matches the secret."""
    file = tmp_path / "proxy.toml"
    file.write_text(f'recording_directory = "{tmp_path}"\n'
                    "recording_redact_body = ['a{1,2}', 'b']\n[recording_routes.x]\n"
                    'body = "jsonpath"\nbody_paths = ["$[0,1]", "$.a"]\n'
                    'refresh_ids = ["x-id", "$[0,1]"]\n')
    config = load(file=str(file))
    assert config.recording_redact_body == ("a{1,2}", "b")
    assert config.recording_routes[0].body_paths == ("$[0,1]", "$.a")
    assert config.recording_routes[0].refresh_ids == ("x-id", "$[0,1]")
    kind = OPTIONS["recording_redact_body"].kind
    assert parse_value(kind, show_value(kind, ("a{1,2}", "b"))) == ("a{1,2}", "b")

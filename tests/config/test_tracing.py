"""Options of traces."""

import pytest

from cutthrough.cli.main import main
from cutthrough.config.settings import load
from cutthrough.generation import checks

URL = "http://127.0.0.1:4318/v1/traces"


@pytest.fixture
def check(tmp_path, capsys):
    def run(*lines):
        file = tmp_path / "proxy.toml"
        file.write_text('user = "a"\npassword = "bcd"\n' + "\n".join(lines))
        return main(["check", "-c", str(file)]), capsys.readouterr().err
    return run


@pytest.mark.parametrize("url", [URL, "https://collector.example/", "http://[::1]:4318/"])
def test_an_address_of_a_collector_is_taken(check, url):
    assert check(f'trace_url = "{url}"')[0] == 0


@pytest.mark.parametrize("url, reason", [
    ("collector:4318", "is not http://"), ("grpc://collector:4317", "is not http://"),
    ("http://", "is not http://"), ("http://a:70000/", "is not http://"),
    ("http://ann:s3cret@a.example/", "OTEL_EXPORTER_OTLP_HEADERS")])
def test_what_is_no_address_of_one_is_an_error(check, url, reason):
    status, said = check(f'trace_url = "{url}"')
    assert status == 2 and "trace_url" in said and reason in said


def test_it_needs_the_exporters_package(check, monkeypatch):
    monkeypatch.setattr(checks, "has_exporter", lambda: False)
    status, said = check(f'trace_url = "{URL}"')
    assert status == 2 and "pip install 'cutthrough[otlp]'" in said


@pytest.mark.parametrize("text, ratio", [
    ("0", 0.0), ("1", 1.0), ("0.01", 0.01), ("1.0", 1.0), ("0.000000001", 1e-9)])
def test_a_ratio_is_a_number_up_to_one(check, text, ratio):
    assert load(["--trace-ratio", text]).trace_ratio == ratio
    assert check(f"trace_ratio = {text}") == (0, "")


@pytest.mark.parametrize("text", ["-1", "1.1", "2", "nan", "inf", "true", '"half"'])
def test_another_ratio_is_an_error(check, text):
    status, said = check(f"trace_ratio = {text}")
    assert status == 2 and "trace_ratio" in said

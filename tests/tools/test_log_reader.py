"""A log to be read: it has an end, and its lines have a length."""

import contextlib
import os
import threading

import msgspec
import pytest

from cutthrough.config.config import ConfigError
from cutthrough.tools.log_reader import MOST_LINE, LogReader
from cutthrough.tools.suggest import suggest
from tests.support.memory import peak_of
from tests.support.wait import PATIENCE
from tests.tools.explaining import entry


def test_a_device_without_an_end_is_no_log():
    with pytest.raises(ConfigError, match="/dev/zero: is a device, not a file"):
        suggest(LogReader("/dev/zero"))
    assert suggest(LogReader("/dev/null")) == "# Nothing was refused.\n"


@pytest.mark.parametrize("junk", [b"\0", b"junk" * 999 + b"\n"],
                         ids=["a line", "lines"])
def test_a_pipe_without_an_end_is_read_until_it_can_be_no_log(tmp_path, junk):
    path = tmp_path / "pipe"
    os.mkfifo(path)

    def write() -> None:
        with contextlib.suppress(BrokenPipeError), open(path, "wb") as file:
            while True:
                file.write(junk * (65536 // len(junk)))

    writer = threading.Thread(target=write, daemon=True)
    writer.start()

    def read() -> None:
        with pytest.raises(ConfigError, match="has no line of an access log in JSON"):
            suggest(LogReader(str(path)))

    assert peak_of(read) < 8 * MOST_LINE
    writer.join(PATIENCE)
    assert not writer.is_alive()


def test_a_line_of_any_length_is_one_line(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"x" * (MOST_LINE * 2 + 5) + b"\n\n"
                     + msgspec.json.encode(entry("destination_denied")) + b"\nx")
    reader = LogReader(str(path))
    assert "alice" in suggest(reader)
    assert (reader.read, reader.unreadable) == (1, 2)


@pytest.mark.parametrize("port", [-1, 65536, 1 << 31])
def test_a_line_whose_port_is_none_is_no_line_of_an_access_log(log, port):
    """`explain --log` ended with a traceback at 2^31."""
    reader = LogReader(log(entry("destination_denied", port=port), entry("ok")))
    assert len(list(reader)) == 1
    assert (reader.read, reader.unreadable) == (1, 1)

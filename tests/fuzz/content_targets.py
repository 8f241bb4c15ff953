"""Fuzz targets of content: answers of name servers, imported files, shown bodies.

These readers are Python, so each input is only read. What is no document is refused in
the way that the caller expects, and nothing else is raised.
"""

import io
import tempfile
from pathlib import Path

from cutthrough.capture.views import VIEWS, show_body
from cutthrough.exchange.formats.imported import NotImported, make_redactor, make_row
from cutthrough.exchange.formats.reader import read
from cutthrough.exchange.redaction.redactor import Options, Redactor, Unreadable
from cutthrough.net.dns.validated import AAAA, A, build_question, read_message
from cutthrough.recording.formats.files import read_recordings
from cutthrough.recording.formats.foreign import lost, why_not

KINDS = ("", "application/json", "application/x-www-form-urlencoded", "text/html",
         "multipart/form-data; boundary=a", "multipart/mixed; boundary=a",
         "application/grpc", "application/msgpack", "application/xml",
         "text/event-stream", "text/plain; charset=utf-16", "application/http")
SECRET = Options(fields=("x",), query=("a",), json=("$.a", "$..b[*].c"),
                 body=("s.*?t",))
QUESTIONS = [build_question("a.test", kind) for kind in (A, AAAA)]


def fuzz_names(data: bytes) -> None:
    """An answer behind the header and the question that it must repeat."""
    for question in QUESTIONS:
        head = b"\0\1" + data[:2] + b"\0\1" + data[2:4] + bytes(4)
        message = read_message(head + question + data[4:], 1, question)
        if message is not None:
            assert all(len(node.addr) == 1 for node in message.nodes)


def fuzz_body(data: bytes) -> None:
    """A body by the type and the view that its first two octets choose."""
    kind = KINDS[data[0] % len(KINDS)] if data else ""
    view = VIEWS[data[1] % len(VIEWS)] if len(data) > 1 else "auto"
    body = data[2:]
    for line in show_body(body, kind, view, "gzip"):
        assert isinstance(line, str)
    redactor = Redactor(SECRET)
    try:
        redacted = redactor.content(body, kind)
        assert redactor.content(redacted, kind) is not None
    except Unreadable:
        pass


def fuzz_imported(data: bytes) -> None:
    """A file of exchanges of another program: recordings of it, and rows."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        try:
            for recording in read_recordings(Path(file.name)).items:
                if not isinstance(recording, NotImported):
                    why_not(recording)
                    list(lost(recording))
        except NotImported:
            pass
    redactor = make_redactor(keep_credentials=False)
    try:
        for exchange in read(io.BytesIO(data), redactor):
            if not isinstance(exchange, NotImported):
                make_row(exchange, redactor)
    except NotImported:
        pass


TARGETS = {"names": fuzz_names, "body": fuzz_body, "imported": fuzz_imported}

"""The corpus: corpus/<target>.txt, one input a line, escaped as in the literate cases.

One file for each target instead of libFuzzer's one for each input: so it can be read,
reviewed and written by hand. `make fuzz` unpacks it into build/fuzz.
"""

from hashlib import sha1
from pathlib import Path

from tests.wire.cases import unescape

HERE = Path(__file__).parent / "corpus"
ESCAPES = {0: "\\0", 9: "\\t", 10: "\\n", 13: "\\r", 92: "\\\\"}


def escape(data: bytes) -> str:
    return "".join(
        ESCAPES.get(octet) or (chr(octet) if 32 <= octet < 127 else f"\\x{octet:02x}")
        for octet in data)


def read_corpus(target: str) -> list[bytes]:
    """Its inputs; lines that begin with "# " are comments."""
    lines = (HERE / f"{target}.txt").read_text("ascii").splitlines()
    return [unescape(line) for line in lines if not line.startswith("# ")]


def add_to_corpus(target: str, inputs: list[bytes]) -> int:
    """Appends the inputs that it has not; returns how many."""
    new = set(inputs) - set(read_corpus(target))
    with (HERE / f"{target}.txt").open("a", encoding="ascii") as file:
        file.writelines(escape(data) + "\n" for data in sorted(new, key=len))
    return len(new)


def unpack(target: str, where: Path) -> None:
    """One file for each input, as libFuzzer wants them."""
    where.mkdir(parents=True, exist_ok=True)
    for data in read_corpus(target):
        (where / sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)

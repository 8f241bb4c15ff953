"""Text without spaces between its words, of Chinese, Japanese, Korean, Thai and others,
for an index of words.

Of a run of such characters the index has each pair, and the last character, as
Lucene's CJKAnalyzer has them: 我们检查 is 我们 们检 检查 查. So any part of a run
is there without a dictionary: its pairs one after another; a single character begins a
pair.
"""

import itertools
import re
import unicodedata
from array import array

# Characters of a text that are indexed by pairs: some 60 ms of CPU
MOST_PAIRED = 128 << 10

_LETTERS = ("\u0e00-\u0eff"                  # Thai, Lao
            "\u1000-\u109f\u1780-\u17ff"     # Burmese, Khmer
            "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"    # kana
            "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
            "\uac00-\ud7a3")                 # Hangul
_SPACE = array("I", b" \0\0\0")
_RUN = re.compile(f"[{_LETTERS}]+")
_PART = re.compile(rf"[{_LETTERS}]+|[^\W_{_LETTERS}]+")


def paired(text: str) -> str | None:
    """The first MOST_PAIRED characters, with pairs in place of each run. None: the text
    has no run."""
    if text.isascii() or _RUN.search(text) is None:
        return None
    text = text[:MOST_PAIRED]
    if not unicodedata.is_normalized("NFKC", text):      # a quick look, as a rule
        text = unicodedata.normalize("NFKC", text)
    return _RUN.sub(_pairs, text)


def _pairs(match: re.Match[str]) -> str:
    """In steps of three: a character, the next one, a space. A join takes twice as
    long."""
    run = array("I", match[0].encode("utf-32-le"))
    pairs = _SPACE * (3 * len(run) + 1)
    pairs[1::3] = run
    pairs[2:-2:3] = run[1:]
    return pairs.tobytes().decode("utf-32-le")


def parts_of(text: str) -> list[tuple[str, list[str]]]:
    """The words and runs of a text, each run with the pairs by which it is found; a
    single character has none, and begins the sought text."""
    return [(part, list(map("".join, itertools.pairwise(part))) if _RUN.match(part)
             else [part])
            for part in _PART.findall(unicodedata.normalize("NFKC", text))]

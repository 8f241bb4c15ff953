"""Which of runtests.pl's cases go through a proxy, and how they ended."""

import re
from pathlib import Path

# A case that brings a proxy of its own, or a way past ours, is no test of ours.
OWN_WAY = re.compile(
    r"--proxy|-x |--socks|--preproxy|unix-socket|--connect-to|noproxy|--interface"
    r"|haproxy|_proxy", re.IGNORECASE)
RESULT = re.compile(r"^(PASS|FAIL|SKIP): (\d+) - (.*)$", re.MULTILINE)


def section(text: str, name: str) -> str:
    found = re.search(rf"<{name}\b[^>]*>\n(.*?)</{name}>", text, re.DOTALL)
    return found[1] if found else ""


def goes_through_a_proxy(text: str) -> bool:
    """Is curl's HTTP server its only one, and is curl free to take a proxy?"""
    keywords = section(text, "keywords").lower()
    written = "".join(section(text, name)
                      for name in ("command", "setenv", "file", "file1"))
    return (section(text, "server").split() == ["http"]
            and "proxy" not in keywords and "socks" not in keywords
            and not OWN_WAY.search(written))


def select(source: Path) -> list[int]:
    """The numbers of all such cases, ascending."""
    return sorted(
        int(path.name[4:]) for path in (source / "tests/data").glob("test*")
        if path.name[4:].isdigit()
        and goes_through_a_proxy(path.read_text(errors="replace")))


def read_results(said: str) -> dict[str, str]:
    """What `runtests.pl -am` printed: PASS, FAIL or SKIP by number."""
    return {number: word for word, number, _ in RESULT.findall(said)}

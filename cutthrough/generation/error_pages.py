"""The files of `error_pages`: NAME.html, .txt or .json for an outcome, a status or all
others."""

import os

from cutthrough.config.administration import REALM
from cutthrough.config.config import Config, ConfigError
from cutthrough.config.files import FileError, read_file
from cutthrough.config.mistake import nearest
from cutthrough.outcome import TABLE
from cutthrough.policy.refusals import DEFAULT, TYPES, Page, Refusals
from cutthrough.policy.source import Policy

# A reply is sent at once, or not at all: it has to fit into an empty socket's buffer
MOST_BYTES = 8 << 10
NAMES = (*(row.label for row in TABLE if row.status >= 400),
         *sorted({str(row.status) for row in TABLE if row.status >= 400}), DEFAULT)


def read_error_pages(config: Config) -> dict[str, Page]:
    """The pages by name. Raises ConfigError."""
    folder = config.error_pages
    pages: dict[str, Page] = {}
    if not folder:
        return pages
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise ConfigError("", "error_pages", f"{folder}: {error.strerror}") from None
    for name in names:
        stem, _, kind = name.rpartition(".")
        if kind not in TYPES or stem.startswith("."):
            continue
        if stem not in NAMES:
            near = nearest(stem, NAMES)
            raise _refused(folder, name, "is no outcome, no status and not default" + (
                f"; did you mean {near}.{kind}?" if near else ""))
        if stem in pages:
            raise _refused(folder, name, f"there is {stem}.{pages[stem].kind}, too")
        pages[stem] = Page(kind, _read(folder, name))
    return pages


def _read(folder: str, name: str) -> str:
    try:
        data = read_file(os.path.join(folder, name))
        if len(data) > MOST_BYTES:
            raise _refused(folder, name, f"has more than {MOST_BYTES} bytes")
        return data.decode()
    except OSError as error:
        raise _refused(folder, name, str(error.strerror)) from None
    except (FileError, UnicodeDecodeError) as error:
        raise _refused(folder, name, "is not UTF-8" if isinstance(
            error, UnicodeDecodeError) else str(error)) from None


def _refused(folder: str, name: str, reason: str) -> ConfigError:
    return ConfigError("", "error_pages", f"{os.path.join(folder, name)}: {reason}")


def make_refusals(pages: dict[str, Page], policy: Policy,
                  realm: str = REALM) -> Refusals | None:
    """None: neither a page nor a rule's message, and our own realm."""
    messages = {number: rule.message for number, rule in enumerate(policy.rules)
                if rule.message}
    is_needed = pages or messages or realm != REALM
    return Refusals(pages, messages, realm) if is_needed else None

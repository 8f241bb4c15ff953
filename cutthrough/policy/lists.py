"""Reads the lists of a policy file, which stand in it or in files of their own."""

from collections.abc import Callable
from typing import Any

from cutthrough.config.mistake import Place, noting
from cutthrough.config.toml import Places
from cutthrough.policy.reader import Reader, unknown_key
from cutthrough.policy.source import PolicyError

ReadFile = Callable[[str], str]


class ListReader(Reader):
    """One policy file while it is read; `lists` is its table of lists."""

    def __init__(self, table: dict[str, Any], source: str, places: Places,
                 read_file: ReadFile) -> None:
        super().__init__(table, source, places)
        self.read_file = read_file
        self.lists: dict[str, Any] = {}
        self.files: dict[str, list[tuple[int, str]]] = {}
        self.expanded: dict[tuple[str, str], tuple[str, ...]] = {}

    def check_lists(self) -> None:
        for name, content in [*self.lists.items()]:
            texts = [*content.values()] if isinstance(content, dict) else content
            if not isinstance(texts, list) or not all(
                    isinstance(text, str) for text in texts) or (
                    isinstance(content, dict) and content.keys() != {"file"}):
                self.lists[name] = []        # defined, even if it is invalid
                with self.table_at("lists"):
                    self.fail(name, "takes a list of strings, or { file = \"name\" }")

    def entries(self, table: dict[str, Any], key: str,
                parse: Callable[[str], tuple[str, ...]]) -> tuple[str, ...]:
        """Returns the entries of a key, with lists expanded, each entry once."""
        texts = self.texts(table, key)
        if len(texts) == 1 and texts[0].startswith("@"):
            return self.entries_of_list(texts[0], key, parse, 0)
        entries: dict[str, None] = {}
        for i, text in enumerate(texts):
            with noting(self.mistakes):
                if text.startswith("@"):
                    more = self.entries_of_list(text, key, parse, i)
                else:
                    try:
                        more = parse(text)
                    except ValueError as error:
                        self.fail(key, str(error), i)
                entries.update(dict.fromkeys(more))
        return tuple(entries)

    def entries_of_list(self, text: str, key: str,
                        parse: Callable[[str], tuple[str, ...]],
                        item: int) -> tuple[str, ...]:
        name = text[1:]
        if name not in self.lists:
            self.fail(key, f"{text}: {unknown_key(name, self.lists, 'list')}", item)
        kind = "networks" if key in ("clients", "addresses") else key
        if (name, kind) not in self.expanded:
            entries: dict[str, None] = {}
            listed = self.lists[name]
            in_file = isinstance(listed, dict)
            for line, entry in self.lines_of(name) if in_file else enumerate(listed):
                try:
                    entries.update(dict.fromkeys(parse(entry)))
                except ValueError as error:
                    self.mistakes.append(
                        PolicyError(listed["file"], "", str(error),
                                    Place(line, entry, 0, len(entry)))
                        if in_file else
                        PolicyError(self.source, f"lists.{name}", str(error),
                                    self.places.value("lists", name, line)))
            self.expanded[name, kind] = tuple(entries)
        return self.expanded[name, kind]

    def lines_of(self, name: str) -> list[tuple[int, str]]:
        """Returns the numbered lines of a list's file that have an entry."""
        file = self.lists[name]["file"]
        if file not in self.files:
            try:
                text = self.read_file(file)
            except PolicyError as error:        # from the caller's function
                raise PolicyError(self.source, f"lists.{name}", str(error),
                                  self.places.value("lists", name)) from None
            except (OSError, UnicodeError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                raise PolicyError(
                    self.source, f"lists.{name}", f"{file}: {reason}",
                    self.places.value("lists", name)) from None
            lines = enumerate(text.splitlines(), 1)
            stripped = ((n, line.partition("#")[0].strip()) for n, line in lines)
            self.files[file] = [(n, line) for n, line in stripped if line]
        return self.files[file]

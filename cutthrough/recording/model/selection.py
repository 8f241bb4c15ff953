"""The requests that a route, or a scope of redaction, is about."""

from fnmatch import fnmatchcase

import msgspec

from cutthrough.exchange.expressions import compile_expression
from cutthrough.recording.model.recording import Request


class Selection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hosts and paths may have *; () stands for all. `path_regexes`: RE2's."""

    hosts: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    path_regexes: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()

    def applies(self, request: Request) -> bool:
        return (
            (not self.methods or request.method in self.methods)
            and (not self.hosts or any(
                fnmatchcase(request.host, pattern) for pattern in self.hosts))
            and (not self.paths or any(
                fnmatchcase(request.path, pattern) for pattern in self.paths))
            and (not self.path_regexes or any(
                compile_expression(text).search(request.path)
                for text in self.path_regexes)))

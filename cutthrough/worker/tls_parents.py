"""The TLS contexts of a worker's parents, through reloads.

A context keeps its number until the worker ends, because a request may have chosen its
parent before a reload, and must not meet another one's authorities or certificate. A
reload that changes neither files nor names makes none.
"""

from cutthrough.generation.generation import Generation
from cutthrough.generation.tls_files import digest_of, make_client


class TlsParents:
    """The numbers of contexts, by what they were made of."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def configure(self, generation: Generation) -> dict[str, tuple[int, bytes]]:
        """Returns the number and the digest of each parent over TLS, by its name.

        Raises ValueError if a context cannot be made, or if there are too many.
        """
        found = {}
        for parent, files in zip(
                generation.config.parents, generation.parent_files, strict=False):
            digest = digest_of(parent, files)
            if digest not in self._numbers:
                client = make_client(parent, files)
                if client is None:
                    continue
                from cutthrough.net import tls

                self._numbers[digest] = tls.put(client)
            found[parent.name] = self._numbers[digest], digest
        return found

    def close(self) -> None:
        while self._numbers:
            from cutthrough.net import tls

            tls.remove(self._numbers.popitem()[1])

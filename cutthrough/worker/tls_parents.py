"""The TLS contexts of a worker's parents, through reloads.

A context keeps its number until the worker ends, because a request may have chosen its
parent before a reload, and must not meet another one's authorities or certificate. A
reload that changes neither files nor names makes none.
"""

from cutthrough.generation.generation import Generation
from cutthrough.generation.tls_files import digest_of, make_client
from cutthrough.worker.transaction import Transaction


class TlsParents:
    """The numbers of contexts, by their settings."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def prepare(self, generation: Generation, transaction: Transaction
                ) -> dict[str, tuple[int, bytes]]:
        """Returns the number and the digest of each parent over TLS, by its name.

        Raises ValueError if a context cannot be made, or if there are too many.
        """
        contexts = {}
        numbers = dict(self._numbers)
        for parent, files in zip(
                generation.config.all_parents, generation.parent_files,
                strict=False):
            digest = digest_of(parent, files)
            if digest not in numbers:
                client = make_client(parent, files)
                if client is None:
                    continue
                from cutthrough.net.tls import transport as tls

                numbers[digest] = tls.put(client)
                transaction.on_discard(tls.remove, numbers[digest])
            contexts[parent.name] = numbers[digest], digest
        transaction.on_commit(self._assign, numbers)
        return contexts

    def _assign(self, numbers: dict[bytes, int]) -> None:
        self._numbers = numbers

    def close(self) -> None:
        while self._numbers:
            from cutthrough.net.tls import transport as tls

            tls.remove(self._numbers.popitem()[1])

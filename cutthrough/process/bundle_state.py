"""The reported state of bundles: the one in force, and the results of requests."""

from collections.abc import Mapping
from typing import NamedTuple

# new: in force now; unchanged; held: a canary's, for other hosts; refused: by its
# signature, its form, its serial or a reload; failed: none could be fetched or kept
RESULTS = ("new", "unchanged", "held", "refused", "failed")


class BundleState(NamedTuple):
    """`polls`: requests for bundles, by result. `answered_at`: when the source answered
    last, in seconds of the epoch; 0: never."""

    revision: str
    serial: int
    polls: Mapping[str, int]
    answered_at: float

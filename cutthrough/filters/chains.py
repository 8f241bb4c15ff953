"""The filters of a policy, in one worker; a rule's are a chain."""

from collections.abc import Mapping
from typing import NamedTuple

from cutthrough.filters.breakpoints import HOLDING, Breakpoints, Holding, Stop
from cutthrough.filters.exchange import Exchange
from cutthrough.filters.flow import UNKNOWN, Facts, Flow
from cutthrough.filters.flow_heads import read_connect, read_request
from cutthrough.filters.run import Run
from cutthrough.filters.stage import Chain, Stage, Tally
from cutthrough.filters.tunnel_run import TunnelRun


class Arrival(NamedTuple):
    """A request as the session has read it."""

    head: bytes                              # rewritten
    host: str
    port: int
    scheme: str = "http"
    minor: int = 1                           # of its HTTP/1 version
    is_transparent: bool = False             # of a transparent listener


class Filters:
    """The filters of one generation, in one worker."""

    def __init__(self, stages: Mapping[str, Stage], tally: Tally | None = None,
                 breakpoints: Breakpoints | None = None, holding: Holding = HOLDING
                 ) -> None:
        self._stages = dict(stages)
        self.tally = tally or Tally()
        self._breakpoints = breakpoints or Breakpoints()
        self._holding = holding
        self._chains: dict[tuple[str, ...], Chain] = {}
        self._connects: dict[tuple[str, ...], Chain] = {}

    def begin(self, exchange: Exchange, names: tuple[str, ...],
              arrival: tuple[bytes, str, int, str, int, bool],
              facts: Facts = UNKNOWN, breakpoint: str = "") -> Run:
        """The run for a request. `arrival` and `facts` may be such tuples;
        `breakpoint`: the rule's, if they are armed."""
        head, host, port, scheme, minor, is_transparent = arrival
        # The CONNECT names the destination (R56), or the kernel (R52)
        request = read_request(head, host, port, "1.1" if minor else "1.0", scheme)
        if scheme == "https":
            request.fix("inside an interception")
        elif is_transparent:
            request.fix("at a transparent listener")
        run = Run(self.chain(names), exchange, Flow(request, facts))
        if breakpoint:
            Stop(self._breakpoints, run, breakpoint, self._holding).join()
        return run

    def begin_connect(self, exchange: Exchange, names: tuple[str, ...], head: bytes,
                      host: str, port: int, facts: Facts = UNKNOWN) -> TunnelRun:
        """The run for a tunnel to be. `head`: of its CONNECT; b"": it came without one;
        `facts`: as of `begin`."""
        request = read_connect(head, host, port)
        return TunnelRun(self.connects(names), exchange, Flow(request, facts),
                         may_answer=bool(head))

    def connects(self, names: tuple[str, ...]) -> Chain:
        """Returns the filters of a rule that see tunnels, in order; perhaps none."""
        chain = self._connects.get(names)
        if chain is None:
            stages = [self._stages[name] for name in names]
            chain = self._connects[names] = Chain(
                [stage.of_tunnels() for stage in stages if stage.on_connect],
                self.tally)
        return chain

    def chain(self, names: tuple[str, ...]) -> Chain:
        """The filters of a rule, in order."""
        chain = self._chains.get(names)
        if chain is None:
            chain = self._chains[names] = Chain(
                [self._stages[name] for name in names], self.tally)
        return chain

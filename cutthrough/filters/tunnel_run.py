"""Drives the filters of a tunnel to be: those that have `on_connect`.

    start ─> on_connect … ─> establish ─> the way to the origin ─> the 200
    end ─> on_end …

They see the CONNECT before any address is resolved, and may answer it or change the
fields of the 200. Once the tunnel is open, they are done with it.
"""

from cutthrough.filters.exchange import Ended, Exchange
from cutthrough.filters.flow import Flow, Response
from cutthrough.filters.flow_heads import build_established
from cutthrough.filters.run import Run
from cutthrough.filters.stage import Chain

REASON = "Connection established"
# A client reads it with the bounds of a head: curl's 300 KiB, h11's 16
MOST_HEAD = 8192


class TunnelRun(Run):
    """The filters of one tunnel at work."""

    def __init__(self, chain: Chain, exchange: Exchange, flow: Flow, *,
                 may_answer: bool) -> None:
        """`may_answer`: the client speaks HTTP."""
        super().__init__(chain, exchange, flow)
        self._may_answer = may_answer

    def start(self) -> None:
        if self.chain.connects_at_once:
            self._run_at_once(self._begin_at_once, self._on_connect())
        else:
            self._begin(self._on_connect)

    async def _on_connect(self) -> None:
        flow = self.flow
        offered = flow._response = Response(200, reason=REASON)
        try:
            for stage in self.chain.connects:
                before = offered.copy()
                if not await self.guard(stage, "on_connect", flow):
                    offered = flow._response = before
                elif flow._refusal is not None or flow._answered:
                    if flow._answered and not self._may_answer:
                        flow.refuse("its client cannot read an answer")
                    await self.settle(stage)
                elif reason := unfit(offered):
                    self.fail(stage, "on_connect", reason)
                    offered = flow._response = before
        except Ended:
            return
        self.exchange.establish(build_established(offered) if offered.headers else None)


def unfit(offered: Response) -> str:
    """Why this cannot be the head of a tunnel's 200; "": it can."""
    if offered.status != 200:
        return f"a tunnel opens with 200, not {offered.status}: use respond()"
    if len(build_established(offered)) > MOST_HEAD:
        return f"the head of the 200 has more than {MOST_HEAD} bytes"
    return ""

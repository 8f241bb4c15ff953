"""The tools for a model that ask the admin listener: what happens now, breakpoints,
recordings. Each method is one, and its docstring the model's description."""

import argparse
import base64
import json
import re
from typing import Any, Literal
from urllib.parse import quote, urlencode

from mcp.server.mcpserver.exceptions import ToolError

from cutthrough.process.selector import Selector
from cutthrough.tools.console import Listener, query_of, status
from cutthrough.tools.mcp_results import bounded, report, report_rows
from cutthrough.tools.mcp_trust import describe, find_stores

# Metrics of one result
MOST_METRICS = 500


class ListenerTools:
    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def _ask(self, method: str, path: str, value: object = None, **query: object
             ) -> Any:
        said = urlencode({name: value for name, value in query.items() if value},
                         quote_via=quote)
        body = None if value is None else json.dumps(value).encode()
        return json.loads(self._listener.fetch(
            method, f"{path}?{said}" if said else path, body))

    def proxy_status(self) -> list[str]:
        """Shows whether the proxy serves, its workers and connections, whether
        requests are captured now, and how many were captured and lost."""
        return report({"status": status(self._listener),
                       "capture": self._ask("GET", "/flows/capture"),
                       "counts": self._ask("GET", "/flows/counts")})

    def certificate(self) -> str:
        """The certificate of the authority of intercepted connections, in PEM."""
        return self._listener.ask("GET", "/ca.pem")

    def trust_stores(self) -> list[str]:
        """Shows which stores of this machine trust the authority of intercepted
        connections: the system's, those of browsers (NSS) and of Java, and files that
        variables name. `verdict`: yes, no, ? (it cannot be read) or - (there is none);
        `remedy`: the command that adds it, for a person to run."""
        pem = self.certificate()
        return report({**describe(pem), "stores": find_stores(pem)})

    def metrics(self, prefix: str = "") -> list[str]:
        """Reads the proxy's metrics whose names begin with `prefix`, without
        `cutthrough_`, as requests_total."""
        prefix = prefix.removeprefix("cutthrough_")
        chosen = {name: value for name, value in self._listener.metrics().items()
                  if name.startswith(prefix)}
        shown = dict(list(chosen.items())[:MOST_METRICS])
        left = len(chosen) - len(shown)
        return report({"metrics": shown}, {"metrics": left} if left else {})

    def connections(self, user: str = "", client: str = "", host: str = "",
                    state: str = "", kind: str = "") -> list[str]:
        """Lists the open connections of the proxy, 200 at most."""
        args = argparse.Namespace(**dict.fromkeys(Selector.__struct_fields__))
        for name, value in (("user", user), ("client", client), ("host", host),
                            ("state", state), ("kind", kind)):
            if value:
                setattr(args, name, value)
        return report_rows("connections", self._listener.connections(query_of(args)))

    def trace_connection(self, id: str) -> list[str]:
        """Shows the latest events of an open connection, by its id in `connections`."""
        return report(self._listener.trace(id))

    def open_flows(self, filter: str = "") -> list[str]:
        """Lists requests that have not ended: WebSockets, streams, slow answers, those
        held at breakpoints; the newest first. They are in no other list."""
        return report_rows("flows", self._ask("GET", "/flows/open", filter=filter))

    def held_messages(self) -> list[str]:
        """Lists the messages that breakpoints hold now, and for how many seconds
        breakpoints are armed still."""
        answer = self._ask("GET", "/breakpoints")
        return report_rows("held", answer.pop("held"), **answer)

    def show_held(self, id: str) -> list[str]:
        """Shows one held message with its fields and, if it is here, its body."""
        message = self._ask("GET", path_of(id))
        if message.get("content"):
            message["content"] = base64.b64decode(
                message["content"]).decode(errors="replace")
        return report(message)

    def sessions(self) -> list[str]:
        """Lists the sessions of recorded answers, and the mode: whether answers are
        recorded or played again."""
        return report(self._ask("GET", "/sessions"))

    def recordings(self, session: str, words: str = "", limit: int = 50) -> list[str]:
        """Lists the recordings of a session, or those with all these words."""
        return report(self._ask("GET", f"/sessions/{quote(session, safe='')}",
                                search=words, limit=bounded(limit)))

    def replay_misses(self) -> list[str]:
        """Lists requests for which no recording was there, with the nearest ones."""
        return report(self._ask("GET", "/replays"))

    # Changes

    def cut_connection(self, id: str) -> list[str]:
        """Closes one open connection of the proxy, by its id in `connections`."""
        args = argparse.Namespace(**dict.fromkeys(Selector.__struct_fields__))
        args.id = id
        return report({"cut": self._listener.cut(query_of(args))})

    def start_capture(self) -> list[str]:
        """Captures requests again, as the policy's rules say."""
        return report(self._ask("POST", "/flows/capture", {"paused": False}))

    def stop_capture(self) -> list[str]:
        """Captures no request that begins from now on, until start_capture. Requests
        that have begun are captured to their end."""
        return report(self._ask("POST", "/flows/capture", {"paused": True}))

    def arm_breakpoints(self, seconds: float, hosts: list[str] | None = None,
                        methods: list[str] | None = None,
                        paths: list[str] | None = None) -> list[str]:
        """Holds messages at the breakpoints of rules for so many seconds, 3600 at
        most; 0: not any more, and lets go what is held. With hosts (example.com,
        *.example.com), methods or paths (/api/**), those of requests that have one of
        each. Each call replaces the one before; held_messages has what is in force as
        armed_for."""
        return report(self._ask("POST", "/breakpoints/armed", {
            "seconds": seconds, "hosts": hosts or [], "methods": methods or [],
            "paths": paths or []}))

    def decide_held(self, id: str, action: Literal["pass", "edit", "abort"],
                    method: str | None = None, path: str | None = None,
                    status: int | None = None, fields: dict[str, str] | None = None,
                    body: str | None = None, hold_body: bool = False) -> list[str]:
        """Decides about a held message: lets it pass, aborts it, or edits it. Of an
        edit: method and path of a request, status of a response, `fields` in place of
        those of the same names ("" removes them), `body` in UTF-8; hold_body: hold it
        again when its body is there."""
        decision: dict[str, Any] = {"action": action}
        for name, value in (("method", method), ("path", path), ("status", status)):
            if value is not None:
                decision[name] = value
        if fields:
            held = self._ask("GET", path_of(id))["fields"]
            names = {name.lower() for name in fields}
            decision["fields"] = [
                *(field for field in held if field[0].lower() not in names),
                *([name, value] for name, value in fields.items() if value)]
        if body is not None:
            decision["body"] = base64.b64encode(body.encode()).decode()
        if hold_body:
            decision["hold_body"] = True
        self._listener.fetch("POST", path_of(id), json.dumps(decision).encode())
        return report({"decided": id})


def path_of(name: str) -> str:
    if re.fullmatch("[0-9]{1,9}-[0-9]{1,15}", name) is None:
        raise ToolError(f"{name!r} is no id of held_messages")
    return f"/breakpoints/{name}"

"""Every way in, and every kind of rule: one verdict, one reason, and the answer that
the way owes for it (R41).

One proxy has all the ways of tests/support/ways.py. A test puts one policy in force and
asks the same by each way. The policy's decision stands beside it, in Python.
"""

import contextlib
import functools
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import bcrypt
import pytest

from tests.support.inside import certificate, keys, over_tls
from tests.support.origin import Connection, Origin, okay
from tests.support.parents import BAD, http, parent, say
from tests.support.proxy import Proxy
from tests.support.socks_udp import Echo
from tests.support.stream import Message
from tests.support.ways import (
    CUT,
    FORMS,
    OVERRIDES,
    PASSWORD,
    WAYS,
    Ask,
    Way,
    build_hello,
    columns_of,
    intercepting,
    listeners,
    reach,
    speak,
    use,
)
from tests.wire.twin_hello import read_hello

pytestmark = pytest.mark.any_loop

LOCAL = """
[[rules]]
action = "allow"
addresses = ["127.0.0.0/8", "::1", "2001:db8:77::1"]
"""
DENIED = "destination_denied"


class Kind(NamedTuple):
    """A policy, with {a} and {b} for the ports of two origins; the questions; and the
    policy's answer."""

    policy: str
    asks: tuple[Ask, ...]
    judge: Callable[[Way, Ask], str]
    config: str = ""
    default: str = "deny"


def by_host(way: Way, ask: Ask, reason: str = DENIED) -> str:
    return reason if ask.host else "ok"


def by_user(way: Way, ask: Ask) -> str:
    return "ok" if way.user(ask) == "ann" else DENIED


def by_method(way: Way, ask: Ask) -> str:
    is_get = way.dialect == "GET"       # B denies it, A all others; an offer is both
    return DENIED if is_get == ask.port or way.dialect == "UPGRADE" else "ok"


def by_path(way: Way, ask: Ask) -> str:
    """A tunnel has no path."""
    return "ok" if way.is_tunnel or ask.path == "/" else "path_denied"


def by_hello(way: Way, ask: Ask) -> str:
    """Such a rule matches tunnels of TLS alone, and no datagram."""
    if not way.is_tunnel or way.dialect == "UDP":
        return DENIED
    if way.dialect == "TUNNEL":
        return "ok" if way.form == "name" else "protocol_denied"
    if not ask.hello:
        return "protocol_denied"
    return "ok" if ask.hello == "match" else "sni_denied"


def by_software(way: Way, ask: Ask) -> str:
    if not way.is_tunnel or way.dialect == "UDP":
        return DENIED
    is_met = not ask.hello if way.greets else ask.hello == "match"
    return "ok" if is_met else "ja4_denied"


def by_tls(way: Way, ask: Ask) -> str:
    """Datagrams and requests are none, nor is a request in a tunnel."""
    is_tunnel = way.is_tunnel and way.dialect != "UDP"
    return "tls_refused" if way.greets or (ask.hello and is_tunnel) else "ok"


def by_password(way: Way, ask: Ask) -> str:
    return "auth_failed" if way.logs_in and ask.password != PASSWORD else "ok"


def by_expiry(way: Way, ask: Ask) -> str:
    return "auth_expired" if way.user(ask) == "old" else "ok"


def by_hook(way: Way, ask: Ask) -> str:
    if way.dialect == "UDP":
        return "unsupported_command"        # a hook answers too late for a datagram
    return "policy_unavailable" if way.user(ask) == "bob" else by_host(way, ask)


TWO_HOSTS = (Ask(), Ask(host=1))
TWO_PORTS = (Ask(), Ask(port=1))
CALLERS = (Ask(), Ask(user="bob"), Ask(user=None))

KINDS = {
    "host": Kind("""
        [[rules]]
        action = "deny"
        hosts = ["no.test", "127.0.0.2", "2001:db8:77::1"]
        """ + LOCAL, TWO_HOSTS, by_host),
    "network": Kind("""
        [[rules]]
        action = "deny"
        addresses = ["127.0.0.2/31", "2001:db8:77::/48"]
        """ + LOCAL, TWO_HOSTS, by_host),
    "floor": Kind("""
        [[rules]]
        action = "allow"
        addresses = ["127.0.0.1", "::1"]
        """, TWO_HOSTS, lambda way, ask: by_host(way, ask, "address_denied"),
        default="allow"),
    "port": Kind("""
        [[rules]]
        action = "deny"
        ports = [{b}]
        """ + LOCAL, TWO_PORTS, lambda way, ask: DENIED if ask.port else "ok"),
    "connect_ports": Kind(
        LOCAL, TWO_PORTS,
        lambda way, ask: "port_denied" if ask.port and way.is_tunnel else "ok",
        config="connect_ports = [{a}]\n"),
    "method": Kind("""
        [[rules]]
        action = "deny"
        methods = ["CONNECT", "UPGRADE"]
        ports = [{a}]
        [[rules]]
        action = "deny"
        methods = ["GET"]
        ports = [{b}]
        """ + LOCAL, TWO_PORTS, by_method),
    "path": Kind("""
        [[rules]]
        action = "deny"
        paths = ["/admin/**"]
        """ + LOCAL, (Ask(), Ask(path="/admin/x"), Ask(path="/a/../admin")), by_path),
    "user": Kind(LOCAL + 'users = ["ann"]\n', CALLERS, by_user),
    "group": Kind(LOCAL + 'groups = ["staff"]\n', CALLERS, by_user),
    "client": Kind("""
        [[rules]]
        action = "deny"
        clients = ["127.2.0.0/16", "2001:db8:77:2::/64"]
        """ + LOCAL, (Ask(), Ask(network=2)),
        lambda way, ask: (
            DENIED if ask.network == 2 and way.door != "unix" else "ok")),
    "tlvs": Kind(LOCAL + 'tlvs.aws_vpce = ["vpce-a", "vpce-b"]\n',
                 (Ask(), Ask(vpce="vpce-a"), Ask(vpce="vpce-c")),
                 lambda way, ask: "ok" if (way.door, ask.vpce) == (
                     "balanced", "vpce-a") else DENIED),
    "password": Kind(LOCAL, (Ask(), Ask(password="guess")), by_password),
    "sni": Kind(LOCAL + 'protocol = ["tls"]\nsni = "match"\n',
                (Ask(hello="match"), Ask(hello="other"), Ask()), by_hello),
    # With any server name, or without
    "ja4": Kind(LOCAL + 'ja4 = ["*_{ciphers}_*"]\n',
                (Ask(hello="match"), Ask(hello="old"), Ask()), by_software),
    "tls": Kind(LOCAL + 'tls = "refuse"\n', (Ask(hello="match"), Ask()), by_tls),
    "expiry": Kind(LOCAL, (Ask(), Ask(user="old")), by_expiry),
    "origin": Kind(LOCAL + 'origin = "x"\n', (Ask(),), lambda way, ask: DENIED,
                   config='origins.x.urls = ["http://127.0.0.1:9"]\n')}

HOOK = """
    from cutthrough import Decision

    async def decide(request):
        assert request.user != "bob"
        return Decision(request.host in ("yes.test", "127.0.0.1", "::1"))
"""


class Matrix:
    """The proxy with every door."""

    def __init__(self, folder: Path, loop: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.policy, self.path = folder / "policy.toml", folder / "proxy.sock"
        (folder / "decisions.py").write_text(textwrap.dedent(HOOK))
        hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
        self._users = "".join(
            f'users.{name}.password = "{hashed}"\n' for name in ("ann", "bob", "old"))
        self._users += "users.old.expires = 2001-01-01T00:00:00Z\n"
        self._usual = (
            f'policy = "{self.policy}"\nproxy_protocol_from = ["127.0.0.1"]\n'
            + OVERRIDES)
        self._tables = listeners(self.path)
        self._write_policy("")
        self.proxy = Proxy(folder, loop=loop, config=self._usual + self._tables,
                           env={"PYTHONPATH": str(folder)})

    def _write_policy(self, rules: str, default: str = "deny") -> None:
        self.policy.write_text(f'default = "{default}"\n{self._users}'
                               f'groups.staff = ["ann"]\n{textwrap.dedent(rules)}')

    def use(self, rules: str, default: str = "deny", config: str = "",
            tables: str = "") -> None:
        """Puts it in force; of the log only later requests count."""
        self.change(rules, default, config, tables)
        self.proxy.mark()

    def change(self, rules: str, default: str = "deny", config: str = "",
               tables: str = "") -> None:
        self._write_policy(rules, default)
        said = self.proxy.reload(config + self._usual + self._tables + tables)
        assert "refused" not in said, said

    @contextlib.contextmanager
    def asking(self, way: Way, ask: Ask, port: int) -> Iterator[int | None]:
        """Sends the request; the answer. The connection stays open meanwhile."""
        with reach(self.proxy, self.path, way, ask, port) as client:
            yield speak(self.proxy, client, way, ask, port)
            with contextlib.suppress(OSError):
                client.half_close()
                client.read_rest()

    def check_log(self, expected: list[tuple]) -> None:
        records = self.proxy.wait_log(len(expected))
        found = Counter(map(columns_of, records))
        assert found - Counter(expected) == Counter(expected) - found


@pytest.fixture(scope="module")
def matrix(loop_name, directory) -> Iterator[Matrix]:
    made = Matrix(directory("matrix"), loop_name)
    with made.proxy, intercepting(made.proxy) as can:
        made.ways = [way for way in WAYS if way.door in can or not way.is_intercepted]
        yield made


def answer_all(conn: Connection) -> None:
    """Requests of HTTP, and an echo of everything else, which counts as a request."""
    if conn.fill() and conn.pending[:4] != b"GET ":
        conn.note(Message(bytes(conn.pending), [], []))
        conn.send(conn.take(len(conn.pending)))
    okay(conn)


class Far:
    """Two origins for every address, which answer requests and echo datagrams."""

    def __init__(self, opened: contextlib.ExitStack) -> None:
        self.origins = [
            opened.enter_context(Origin(answer_all, "::")) for _ in range(2)]
        self.ports = [origin.port for origin in self.origins]
        self.echoes = [opened.enter_context(Echo(host, port))
                       for port in self.ports
                       for hosts in FORMS.values() for host in hosts
                       if not host.endswith(".test")]
        self.echoes += [opened.enter_context(Echo("127.0.0.3", port))
                        for port in self.ports]

    def count(self) -> int:
        return sum(len(origin.requests) for origin in self.origins) + sum(
            len(echo.asked) for echo in self.echoes)


@pytest.fixture
def far(opened) -> Far:
    return Far(opened)


@functools.cache
def ciphers() -> str:
    """Their part of the JA4 of this Python's TLS."""
    return read_hello(build_hello(None)).ja4.split("_")[1]


@pytest.fixture
def ask_all(matrix, far):
    """Puts the policy in force, and asks by every way; compares all of it."""
    def ask_all(kind: Kind) -> None:
        a, b = far.ports
        policy = kind.policy
        for name, value in (("{a}", a), ("{b}", b), ("{ciphers}", ciphers())):
            policy = policy.replace(name, str(value))
        matrix.use(policy, kind.default, kind.config.format(a=a))
        wrong, lines, passed = {}, [], 0
        for way in matrix.ways:
            for ask in filter(way.can, kind.asks):
                reason = way.first_reason(kind.judge(way, ask))
                with matrix.asking(way, ask, far.ports[ask.port]) as answer:
                    if answer != way.owed(reason):
                        wrong[way, ask] = answer, way.owed(reason)
                lines += way.logged(ask, reason, far.ports[ask.port])
                passed += reason == "ok"
        assert wrong == {}
        matrix.check_log(lines)
        assert far.count() == passed, "what is refused reaches no origin"
    return ask_all


@pytest.mark.parametrize("name", KINDS)
def test_every_way_in_has_the_same_verdict(ask_all, name):
    ask_all(KINDS[name])


def test_a_hook_decides_about_every_way_in(ask_all):
    ask_all(Kind(LOCAL, (*TWO_HOSTS, Ask(user="bob")), by_hook,
                 config='policy_hook = "decisions:decide"\n'))


def test_a_limit_counts_every_way_in(matrix, far):
    """Each way's connection is the user's only one, and the next one is refused."""
    matrix.use(LOCAL + "[limits.default]\nconnections = 1\n")
    wrong, lines = {}, []
    for way in matrix.ways:
        ask, port = Ask(), far.ports[0]
        other = Way("tls", "GET", "name") if way.user(ask) else way
        if way.first_reason("ok") != "ok" or not way.stays:
            continue
        with matrix.asking(way, ask, port) as first:
            for second in way, other:
                with matrix.asking(second, ask, port) as answer:
                    if answer != second.owed("user_limit"):
                        wrong[way, second] = answer
                lines += second.logged(ask, "user_limit", port)
        if first != way.owed("ok"):
            wrong[way] = first
        lines += way.logged(ask, "ok", port)
    assert wrong == {}
    matrix.check_log(lines)
    assert far.count() == len(lines) // 3


def test_every_way_in_has_the_same_way_out(matrix, far, opened):
    """Nothing goes directly if a parent refuses (R44). Datagrams use no parent."""
    corp, other = (opened.enter_context(Origin(script)) for script in (
        http, say(BAD.format(403).encode())))
    b = far.ports[1]
    matrix.use(f'{LOCAL}ports = [{b}]\nroute = "other"\n{LOCAL}route = "corp"\n',
               tables=parent(corp, standby=1) + parent(other, name="other"))
    wrong, lines = {}, []
    for way in matrix.ways:
        for ask in TWO_PORTS if way.dialect != "UDP" else ():
            reason = "parent_refused" if ask.port else "ok"
            with matrix.asking(way, ask, far.ports[ask.port]) as answer:
                if answer != way.owed(reason):
                    wrong[way, ask] = answer, way.owed(reason)
            lines += way.logged(ask, reason, far.ports[ask.port])
    assert wrong == {}
    matrix.check_log(lines)
    assert far.count() == 0


def test_every_way_in_is_intercepted(matrix, opened):
    """The tunnel and the requests in it have a line each, the same by every way."""
    made = certificate("DNS:yes.test", "IP:127.0.0.1", "IP:::1")
    origin = opened.enter_context(Origin(over_tls(okay, made), "::"))
    matrix.use(f'{LOCAL}methods = ["CONNECT"]\ntls = "intercept"\n'
               f'{LOCAL}paths = ["/api/**"]\n', config=keys())
    wrong, lines, passed = {}, [], 0
    for way in matrix.ways:
        if not way.is_tunnel or way.dialect == "UDP":
            continue
        for path, status, reason in ("/api/1", 200, "ok"), ("/x", 403, "path_denied"):
            ask = Ask(inside=path)
            with matrix.asking(way, ask, origin.port) as answer:
                if answer != (way.owed("ok") if reason == "ok" else status):
                    wrong[way, path] = answer
            lines += way.logged(ask, "ok", origin.port)
            lines.append((way.client(ask), way.user(ask), "GET", way.host(ask),
                          origin.port, status, reason))
            passed += reason == "ok"
    assert wrong == {}
    matrix.check_log(lines)
    assert {one["intercepted"] for one in matrix.proxy.log()} == {True}
    assert [one.target for one in origin.requests] == ["/api/1"] * passed


def test_a_name_inside_is_judged_by_every_way_in(matrix, opened):
    """R77: an address lets no name in, as of all clients that resolve by themselves."""
    made = certificate("DNS:no.test", "DNS:secret.test", "IP:127.0.0.1", "IP:::1")
    origin = opened.enter_context(Origin(over_tls(okay, made), "::"))
    matrix.use('[[rules]]\naction = "deny"\nhosts = ["secret.test"]\n'
               '[[rules]]\naction = "deny"\nhosts = ["no.test"]\n'
               f'paths = ["/admin/**"]\n{LOCAL}tls = "intercept"\n', config=keys())
    wrong, lines, passed = {}, [], 0
    for way in matrix.ways:
        if not way.is_tunnel or way.dialect == "UDP" or way.form == "name":
            continue
        for path, status, reason in ("/x", 200, "ok"), ("/admin/x", 403, "path_denied"):
            ask = Ask(inside=path, server="no.test")
            with matrix.asking(way, ask, origin.port) as answer:
                if answer != (way.owed("ok") if reason == "ok" else status):
                    wrong[way, path] = answer
            lines += way.logged(ask, "ok", origin.port)
            lines.append((way.client(ask), way.user(ask), "GET", "no.test",
                          origin.port, status, reason))
            passed += reason == "ok"
        ask = Ask(inside="/x", server="secret.test")
        with matrix.asking(way, ask, origin.port) as answer:
            if answer != CUT:
                wrong[way] = answer
        if way.is_intercepted:          # the name is its destination's
            lines.append((way.client(ask), None, "TUNNEL", "secret.test", origin.port,
                          0, DENIED))
        else:
            lines += way.logged(ask, "sni_denied", origin.port)
    assert wrong == {}
    matrix.check_log(lines)
    assert [one.target for one in origin.requests] == ["/x"] * passed


def test_a_reload_judges_the_tunnels_of_every_way_in(matrix, far):
    """If the new policy does not allow a user, its tunnels are cut, and no others."""
    matrix.use(LOCAL)
    ask, port, lines = Ask(), far.ports[0], []
    with contextlib.ExitStack() as opened:
        held = {}
        for way in matrix.ways:
            if way.is_tunnel and way.dialect != "UDP":
                held[way] = opened.enter_context(
                    reach(matrix.proxy, matrix.path, way, ask, port))
                assert speak(matrix.proxy, held[way], way, ask, port) == way.owed("ok")
        matrix.change("cut = true" + LOCAL + 'users = ["ann"]\n')
        for way, client in held.items():
            if way.user(ask) == "ann":
                use(client, way, ask)
                lines += way.logged(ask, "ok", port)
            else:
                assert client.at_eof()
                lines += [(*line[:-1], DENIED) for line in way.logged(ask, "ok", port)]
    assert {line[-1] for line in lines} == {"ok", DENIED}
    matrix.check_log(lines)

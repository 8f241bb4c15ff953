"""The verdicts: medians of paired ratios; a goal without measurements is not held."""

from typing import Any

from bench.asked import FULL, LOGGED, field_table, judge, verdict_table

Row = dict[str, Any]


def runs(
    scenario: str, proxy: str, key: str, *values: float, **more: float
) -> list[Row]:
    return [
        {"scenario": scenario, "proxy": proxy, "repetition": n, key: value, **more}
        for n, value in enumerate(values, 1)
    ]


def verdict(scenario: str, rows: list[Row], what: str = "") -> Any:
    return next(v for v in judge(rows) if v.scenario == scenario and what in v.what)


def test_a_ratio_is_the_median_of_those_of_neighbours() -> None:
    key = "cpu_us_per_request"
    rows = runs("plain-keepalive", "lean", key, 10.0, 20.0, 30.0)
    rows += runs("plain-keepalive", LOGGED, key, 11.0, 20.0, 48.0)
    found = verdict("plain-keepalive", rows)
    assert round(found.median, 3) == 1.1
    assert (found.spread, found.held, found.held_in) == ("1 to 1.6", "yes", "2 of 3")
    rows += runs("plain-keepalive", "nginx", key, 25.0, 50.0, 75.0)
    assert "nginx 2.50" in verdict("plain-keepalive", rows).beside
    rows += runs("plain-keepalive", FULL, key, 12.1, 20.0, 50.0)
    dearer = verdict("plain-keepalive", rows, "hashed users")
    assert (round(dearer.median, 3), dearer.held) == (1.042, "yes")


def test_what_was_not_measured_is_not_held() -> None:
    assert {found.held for found in judge([])} == {"not measured"}
    rows = runs("idle-10000", f"{FULL}-2", "uss_bytes_per_tunnel", 600.0, 601.0)
    rows += [{"scenario": "idle-10000", "proxy": f"{FULL}-2", "failed": "1 errors"}]
    assert verdict("idle-10000", rows).held == "not measured"


def test_a_limit_may_be_at_most_or_at_least() -> None:
    idle, crowd = f"{FULL}-2", f"{FULL}-crowd"
    for values, held in (((640.0, 641.0), "yes"), ((680.0, 681.0), "no")):
        rows = runs("idle-10000", idle, "uss_bytes_per_tunnel", *values)
        assert verdict("idle-10000", rows).held == held
    for values, held in (((0.95, 1.1), "yes"), ((0.8, 0.85), "no")):
        rows = runs("crowd", crowd, "crowd_ratio", *values)
        assert verdict("crowd", rows).held == held


def test_what_the_machine_allows_two_workers_is_said() -> None:
    more = {
        "free_rps": 50_000.0, "client_us_per_request": 6.0,
        "origin_us_per_request": 9.0, "cpu_us_per_request": 15.0,
        "held_cpu_percent": 19.0,
    }  # fmt: skip
    rows = runs("workers", FULL, "throughput_rps", 100.0, **more)
    rows += runs("workers", f"{FULL}-2", "throughput_rps", 190.0, **more)
    found = verdict("workers", rows)
    assert (found.median, found.held) == (1.9, "yes")
    assert "as they are 1.00" in found.beside
    assert "leave room for 1.33 on two cores" in found.beside
    assert "one got 19 % of a core, two got 19 %" in found.beside


def test_the_harness_is_judged_on_both_sides() -> None:
    for again, held in ((1.04, "yes"), (0.96, "yes"), (1.06, "no"), (0.94, "no")):
        rows = runs("ping-c100", "direct", "throughput_rps", 1.0)
        rows += runs("ping-c100", "direct-again", "throughput_rps", again)
        assert verdict("ping-c100", rows, "direct against").held == held


def test_the_client_is_compared_with_the_quickest_forward_proxy() -> None:
    costs = (("relay", 10.0), ("haproxy-tcp", 12.0), ("squid", 90.0), ("nginx", 16.0))
    rows = [
        row for proxy, cost in costs
        for row in runs("ping-c100", proxy, "cpu_us_per_request", cost)
    ]  # fmt: skip
    rows += runs("ceiling", "direct", "throughput_rps", 150_000.0)
    found = verdict("ceiling", rows, "ping-c100")
    assert (found.median, found.beside, found.held) == (2.4, "nginx", "yes")


def test_set_ups_are_compared_with_what_the_quickest_took_on_the_same_cores() -> None:
    rates = (("relay", 14_000.0), ("haproxy-tcp", 13_900.0), ("nginx", 10_000.0))
    rows = [
        row for proxy, rate in rates
        for row in runs("connect-setup", proxy, "throughput_rps", rate)
    ]  # fmt: skip
    rows += runs("connect-setup", "nginx", "cpu_us_per_request", 80.0)
    rows += runs("ceiling-setup-all", "direct", "throughput_rps", 25_000.0)
    rows += runs("ceiling-setup", "direct", "throughput_rps", 20_000.0)
    found = verdict("ceiling-setup-all", rows, "connect-setup")
    assert (found.median, found.beside) == (2.5, "nginx, core for core 1.60 of nginx")


def test_what_stands_beside_a_figure_links_to_its_own_line() -> None:
    key = "cpu_us_per_request"
    rows = [
        row for proxy, cost in (("lean", 10.0), (LOGGED, 12.0), ("nginx", 13.0))
        for row in runs("plain-keepalive", proxy, key, cost)
    ]  # fmt: skip
    page = verdict_table(rows, lambda *of: f"<{'/'.join(of)}>")
    for text in (f"{LOGGED}/1.2", f"{LOGGED}/1.2 to 1.2", "nginx/nginx 1.30"):
        assert f"<plain-keepalive/{text}>" in page


def test_a_void_row_of_the_field_is_not_one_that_was_not_measured() -> None:
    rows = [{"scenario": "plain-keepalive", "proxy": "squid", "failed": "1 errors"}]
    page = field_table(rows, rows, lambda scenario, proxy, text: text)
    assert page.count("<td>void</td>") == 1
    assert page.count("<td>–</td>") == 6

"""What bounds replay and recording: limits of rules, and room for what is recorded."""

import pytest

from tests.e2e.test_recording import RULE, fill, made
from tests.e2e.test_recording import folder as folder

pytestmark = pytest.mark.any_loop


def test_a_replayed_request_beyond_its_rule_s_rate_is_429_with_the_time_to_wait(
        start_policy, folder, dial):
    """Whether it is answered at hand or not: the rate is that of the rule's limits."""
    fill(folder, made(9))
    proxy = start_policy(
        "[limits.slow]\nrequests_per_second = 0.02\nburst = 4"
        + RULE.format(mode="replay", keys='limits = "slow"'),
        f'recording_directory = "{folder}"\nworkers = 2')
    for _ in range(4):
        assert dial(proxy).get("http://127.0.0.1:9/a").body == b"hello"
    client = dial(proxy)
    for _ in range(2):
        reply = client.get("http://127.0.0.1:9/a")
        assert reply.status == 429 and 1 <= int(reply.get("Retry-After")) <= 51
    # Of two workers: in any order
    reasons = sorted(line["reason"] for line in proxy.wait_log(6))
    assert reasons == ["rate_limited"] * 2 + ["replayed"] * 4

"""`replace_path` of a rule: which prefixes can be replaced."""

import pytest

from cutthrough.policy.source import PolicyError
from tests.support.policies import read


@pytest.mark.parametrize(("keys", "reason"), [
    ('replace_path = ["/api", "/v2"]', "needs `paths`"),
    ('paths = ["/api/**", "/b/**"]\nreplace_path = ["/api", "/v2"]', "needs `paths`"),
    ('paths = ["/apix/**"]\nreplace_path = ["/api", "/v2"]', "needs `paths`"),
    ('paths = ["/*/x"]\nreplace_path = ["/api", "/v2"]', "needs `paths`"),
    ('paths = ["/api/**"]\nreplace_path = "/api"', "takes two paths"),
    ('paths = ["/api/**"]\nreplace_path = ["/api"]', "takes two paths"),
    ('paths = ["/api/**"]\nreplace_path = ["/api", ""]', "takes two paths"),
    ('paths = ["/api/**"]\nreplace_path = ["/api", "/../x"]', "plain characters"),
    ('paths = ["/api/**"]\nreplace_path = ["/api", "/a b"]', "plain characters"),
    ('paths = ["/api/**"]\nreplace_path = ["/api", "/%41"]', "plain characters"),
    ('paths = ["/api/**"]\nreplace_path = ["/api", "//x"]', "plain characters"),
    ('paths = ["/api/**"]\nreplace_path = ["/api/", "/api"]', "changes nothing")])
def test_a_prefix_that_cannot_be_replaced_is_refused(keys, reason):
    with pytest.raises(PolicyError, match=reason):
        read(f'[[rules]]\naction = "allow"\norigin = "a"\n{keys}')
    with pytest.raises(PolicyError, match="`origin`"):
        read('[[rules]]\naction = "allow"\npaths = ["/api/**"]\n'
             'replace_path = ["/api", "/v2"]')


def test_slashes_at_the_ends_do_not_count():
    for prefix, other in (("/api", "/v2"), ("/api/", "/v2/")):
        (rule,) = read('[[rules]]\naction = "allow"\norigin = "a"\n'
                       'paths = ["/api/**", "/api"]\n'
                       f'replace_path = ["{prefix}", "{other}"]').rules
        assert rule.replace_path == ("/api", "/v2")

"""The files of TLS listeners."""

import os

import pytest

from cutthrough.generation.tls_files import is_private

ROOT, SERVICE = 0, 998


@pytest.mark.parametrize(("owner", "mode", "user", "is_right"), [
    (ROOT, 0o600, ROOT, True), (ROOT, 0o400, ROOT, True),
    (ROOT, 0o640, ROOT, False), (ROOT, 0o604, ROOT, False),
    (SERVICE, 0o600, SERVICE, True), (SERVICE, 0o640, SERVICE, False),
    # systemd's credentials, Kubernetes' secrets with fsGroup
    (ROOT, 0o440, SERVICE, True), (ROOT, 0o640, SERVICE, True),
    (ROOT, 0o660, SERVICE, False), (ROOT, 0o644, SERVICE, False),
    (ROOT, 0o444, SERVICE, False), (ROOT, 0o650, SERVICE, False),
])
def test_a_key_is_its_owners_or_of_root_and_a_group(owner, mode, user, is_right):
    """A service that is not root's could read no key that systemd or Kubernetes gave
    it (R49)."""
    about = os.stat_result((0o100000 | mode, 1, 1, 1, owner, 1, 1, 0, 0, 0))
    assert is_private(about, user) == is_right

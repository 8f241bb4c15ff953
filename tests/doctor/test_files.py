"""`cutthrough doctor` about files: which of them hold a secret."""

import pytest

from cutthrough.config.settings import build, gather
from cutthrough.doctor import program
from cutthrough.generation.policy_files import load_policy
from tests.doctor.hosts import make_case, verdicts

HASH = "$2b$04$R9h/cIPz0gi.URNNX3kh2OPST9/PgBkqquzi.Ss7KIUgO2t0jWMUW"


@pytest.fixture
def private(tmp_path):
    """A folder; its owner alone may write into it."""
    folder = tmp_path / "etc"
    folder.mkdir(mode=0o755)
    return folder


def test_a_policy_is_a_secret_only_where_it_holds_one(private):
    """The users of users_file were taken for the policy's: a warning of no secret."""
    policy, users = private / "policy.toml", private / "users"
    policy.write_text("default = 'allow'\n")
    policy.chmod(0o644)
    users.write_text(f"ann:{HASH}\n")
    users.chmod(0o600)
    settings = gather({"policy": str(policy), "users_file": str(users)}, {})
    config = build(settings)

    def judged() -> str:
        case = make_case(policy=load_policy(config))
        case = case._replace(config=config, settings=settings)
        return verdicts(program.check_files(case))["policy"]

    assert judged() == "ok"
    policy.write_text(f"users.bob.password = '{HASH}'\n")
    assert judged() == "warn"


def test_an_address_of_redis_is_no_secret(private):
    file = private / "cutthrough.toml"
    file.write_text('fleet_url = "redis://127.0.0.1"\n')
    file.chmod(0o644)
    assert verdicts(program.check_files(make_case(file=str(file)))) == {
        "configuration": "ok", "access log": "ok"}

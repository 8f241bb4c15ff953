import pytest

from tests.support.postgres import PROGRAMS, Postgres


@pytest.fixture(scope="package")
def postgres():
    """A server; its databases are the tests' own."""
    if PROGRAMS is None:
        pytest.skip("postgresql is not installed")
    server = Postgres()
    yield server
    server.close()

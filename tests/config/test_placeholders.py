"""The placeholder of a secret in an example lets no client in from outside."""

import pytest

from cutthrough.config.config import ConfigError
from cutthrough.config.settings import from_options

PLACEHOLDERS = ["replace this", "Replace-This", "changeme", "CHANGE ME!", "<password>",
                "${PASSWORD}", "{{ token }}", "xxxxxx", "...", "your-password"]


@pytest.mark.parametrize("text", PLACEHOLDERS)
def test_a_placeholder_is_no_secret_beyond_loopback(tmp_path, text):
    """If an example was applied unchanged, its public word was the secret."""
    with pytest.raises(ConfigError, match="password: is a well-known placeholder"):
        from_options(user="me", password=text, listen="0.0.0.0:0")
    assert from_options(user="me", password=text)
    file = tmp_path / "token"
    file.write_text(text + "\n")
    with pytest.raises(ConfigError, match=r"placeholder, .*openssl rand") as caught:
        from_options(admin="0.0.0.0:9128", admin_token_file=str(file))
    assert caught.value.source == str(file)
    assert from_options(admin="127.0.0.1:9128", admin_token=text)


@pytest.mark.parametrize("text", ["token", "admin", "secret"])
def test_a_token_is_no_word_that_stands_for_one(text):
    with pytest.raises(ConfigError, match="is a well-known placeholder"):
        from_options(admin="0.0.0.0:9128", admin_token=text)


@pytest.mark.parametrize("text", ["x", "replace this with care", "…and more", "xX",
                                  "changeme2", "<a>b", "9f86d081884c7d65"])
def test_what_somebody_chose_is_no_placeholder(text):
    assert from_options(user="me", password=text, listen="0.0.0.0:0",
                        admin="0.0.0.0:9128", admin_token=text)

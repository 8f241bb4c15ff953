"""Configurations as files of TOML, and a user for them."""

ME = {"user": "me", "password": "secret"}


def toml(tmp_path, text):
    path = tmp_path / "cutthrough.toml"
    path.write_text(text)
    return str(path)

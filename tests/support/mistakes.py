"""A configuration file of a test, read; and its mistakes."""

import pytest

from cutthrough.config.config import Config, ConfigError
from cutthrough.config.settings import load


def read(tmp_path, text: str) -> Config:
    file = tmp_path / "cutthrough.toml"
    file.write_text(text)
    return load(file=str(file))


def mistakes(tmp_path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    return [str(error).partition("cutthrough.toml")[2] for error in caught.value.all]

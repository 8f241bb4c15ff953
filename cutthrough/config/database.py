"""The database of captured exchanges, as configured: a file, or the URL of a server."""

import re
from urllib.parse import urlsplit

SCHEMES = ("postgresql://", "postgres://")
FORM = "postgresql://user:password@host:5432/database"


def is_url(database: str) -> bool:
    return database.startswith(SCHEMES)


def check_url(url: str) -> str:
    """The reason why this is no URL of PostgreSQL, without a part of it (R37); "": it
    may be one. A password with a character that ends it early would make another part
    of the URL, and errors name hosts."""
    if not is_url(url):
        return f"must be {FORM}"
    rest = url.partition("://")[2]
    authority, _, path = re.sub(r"[?#]", "/", rest).partition("/")
    if "@" in path or authority.count("@") > 1 or "#" in rest:
        return f"must be {FORM}; in a password @ is %40, / is %2F, ? is %3F, # is %23"
    for host in authority.rpartition("@")[2].split(","):
        if re.fullmatch(r"(\[[0-9A-Fa-f:.%]+\]|[^:\[\]]*)(:[0-9]{0,5})?", host) is None:
            return f"must be {FORM}"
    return ""


def show_database(database: str) -> str:
    """The path, or the URL without user, password and parameters (R37)."""
    if not is_url(database):
        return database
    try:
        parts = urlsplit(database)
    except ValueError:
        return "postgresql://"
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"

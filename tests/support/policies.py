"""Policies of tests, and how they are read."""

from cutthrough.policy.rules import read_policy
from cutthrough.policy.source import Policy

HASH = "$2b$12$" + "abcdefghijklmnopqrstu" + "." * 32
RULE = "default = 'deny'\n[[rules]]\naction = 'allow'\n"
LOCAL = """
    [[rules]]
    name = "here"
    action = "allow"
    addresses = ["127.0.0.0/8"]
"""


def files(name: str) -> str:
    try:
        return {"social.txt": "# people\n\n*.facebook.com  # all of it\nX.com.\n",
                "empty.txt": "# nothing yet\n",
                "bad.txt": "good.example\n\nhttp://bad.example/\n",
                "nets.txt": "10.0.0.0/8\n192.0.2.1\n"}[name]
    except KeyError:
        raise FileNotFoundError(2, "No such file or directory") from None


def read(text: str) -> Policy:
    return read_policy(text, "policy.toml", files)

"""Hosts as doctor sees them: files, numbers and verdicts."""

from pathlib import Path

from cutthrough.config.settings import build, gather
from cutthrough.doctor.finding import Case, Host
from cutthrough.policy.source import Policy
from cutthrough.process.cpus import count_workers

ME = {"user": "me", "password": "secret"}
OUTSIDE = {**ME, "listen": ["0.0.0.0:0"]}


def make_case(root: Path = Path("/"), policy: Policy | None = None, file: str = "",
              **options) -> Case:
    settings = gather(options, {}, file or None)
    config = build(settings)
    return Case(config, policy or Policy(default="allow"), settings, file,
                count_workers(config), Host(root))


def tree(root: Path, **files: str) -> Path:
    """`proc__sys__…` is the file proc/sys/…"""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def verdicts(found) -> dict[str, str]:
    return {finding.name: finding.verdict for finding in found}

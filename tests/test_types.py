"""py.typed is true: the package, its examples and the code on pages pass mypy."""

import re
import subprocess
import sys

from tests.support.proxy import ROOT

PAGES = ("README.md", "docs/python.md", "docs/policy.md", "docs/dns.md",
         "docs/users.md", "docs/activity.md")
WRONG = '''
import cutthrough
cutthrough.serve(head_timout="1s")
cutthrough.serve(head_timeout=[1])
cutthrough.serve(workers=2)
async def decide(request: cutthrough.Request) -> bool:
    return request.hostname == ""
cutthrough.serve(policy_hook=decide)
cutthrough.serve(auth_hook=decide)
cutthrough.serve(dns_hook=decide)
'''


def mypy(*files) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *map(str, files)], cwd=ROOT,
        capture_output=True, text=True, timeout=300)
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_examples_and_what_the_pages_show_are_typed(tmp_path):
    """Once nine errors: `Request` was no type, and `serve` was not callable. One run of
    mypy checks all of them, because each run reads the package."""
    shown = [(page, block) for page in PAGES for block in re.findall(
        r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)]
    assert len(shown) >= 3
    files = sorted((ROOT / "docs/examples").glob("*.py"))
    assert files
    for number, (_, block) in enumerate(shown):
        files.append(tmp_path / f"shown_{number}.py")
        files[-1].write_text(block)
    status, said = mypy(*files)
    assert status == 0, said


def test_the_package_is_typed():
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, timeout=300,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_mistake_is_found_by_its_type(tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG)
    status, said = mypy(tmp_path / "wrong.py")
    assert status == 1
    for text in ('keyword argument "head_timout" for "serve"; did you mean "head_tim',
                 'Argument "head_timeout" to "serve" has incompatible type',
                 'Unexpected keyword argument "workers"',
                 '"Request" has no attribute "hostname"',
                 'Argument "policy_hook" to "serve" has incompatible type',
                 'Argument "auth_hook" to "serve" has incompatible type',
                 'Argument "dns_hook" to "serve" has incompatible type'):
        assert text in said, said


def test_a_stub_says_what_its_compiled_module_has(tmp_path):
    stubs = [path for path in (ROOT / "cutthrough").rglob("*.pyi")
             if path.stem != "__init__"]
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in stubs]
    allowed = tmp_path / "allowed"
    allowed.write_text(                      # made by Cython, and a name of a type
        r".*\.(__reduce_cython__|__setstate_cython__|__test__)" "\n"
        r"cutthrough\.wire\.\w+\.Source" "\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "--concise", "--ignore-missing-stub",
         "--ignore-disjoint-bases", "--ignore-unused-allowlist", "--allowlist",
         str(allowed), *modules], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr

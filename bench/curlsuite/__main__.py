"""Runs curl's own tests through cutthrough and through squid, and compares the results.

    python -m bench.curlsuite --source ~/curl

The source is built outside of its tree. Everything runs in a network namespace with
`lo` alone, so root is needed. A case counts if curl passes it without a proxy. The exit
status is 1 if cutthrough fails a case without a line in known.toml, if a case with such
a line passes, or if squid passes more.
"""

import argparse
import os
import subprocess
import sys
import tomllib
from pathlib import Path

from bench.curlsuite.cases import read_results, select
from bench.curlsuite.servers import ROOT, running

HERE = Path(__file__).resolve().parent
WORK = ROOT / "build/peers-curl"
INSIDE = "PEERS_CURL_INSIDE"                    # the network namespace
PROXIES = ("cutthrough", "squid")
# Of the pytest suite: cases for a plain proxy, and cases for a tunnel
FILES = ("test_01_basic.py", "test_02_download.py", "test_05_errors.py",
         "test_07_upload.py", "test_10_proxy.py", "test_13_proxy_auth.py",
         "test_14_auth.py", "test_18_methods.py")
PYTHON = ("cryptography", "filelock", "psutil", "pytest", "pytest-xdist", "websockets")


def main() -> int:
    parser = argparse.ArgumentParser(prog="peers-curl",
                                     description=__doc__.split("\n")[0])
    parser.add_argument("--source", type=Path, required=True, metavar="DIR",
                        help="a checkout, or an unpacked release, of curl")
    parser.add_argument("--jobs", type=int, default=3, help="cases at a time [3]")
    parser.add_argument("--cases", default="", metavar="N,N",
                        help="only these of runtests.pl")
    parser.add_argument("--no-pytest", action="store_true", help="runtests alone")
    options = parser.parse_args()
    source = options.source.resolve()
    if not (source / "tests/runtests.pl").exists():
        parser.error(f"--source: {source} has no tests/runtests.pl")
    if os.environ.get(INSIDE) is None:
        build(source)
        return enter_namespace()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    results = compare(source, options)
    is_whole = not options.cases and not options.no_pytest
    return report(results, read_known(), is_whole)


def read_known() -> dict[str, str]:
    """The reason of each case that may fail."""
    rows = tomllib.loads((HERE / "known.toml").read_text())["because"]
    return {str(case): row["reason"] for row in rows for case in row["cases"]}


def build(source: Path) -> None:
    """curl, its test servers, and an environment for its pytest suite."""
    folder = WORK / "curl"
    folder.mkdir(parents=True, exist_ok=True)
    flags = ("-DCURL_USE_OPENSSL=ON", "-DUSE_NGHTTP2=ON", "-DCMAKE_BUILD_TYPE=Release",
             "-DBUILD_LIBCURL_DOCS=OFF", "-DBUILD_MISC_DOCS=OFF",
             "-DENABLE_CURL_MANUAL=OFF")
    for command in (["cmake", "-S", str(source), "-B", str(folder), *flags],
                    ["cmake", "--build", str(folder), "-j2"],
                    ["cmake", "--build", str(folder), "-j2", "--target", "testdeps"]):
        print("peers-curl:", *command, file=sys.stderr)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    if not (WORK / "venv/ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(WORK / "venv")], check=True)
        subprocess.run([WORK / "venv/bin/pip", "install", "-q", *PYTHON], check=True)
        (WORK / "venv/ready").touch()


def enter_namespace() -> int:
    if os.geteuid() != 0:
        raise SystemExit("peers-curl: a network namespace with lo alone takes root")
    command = ["unshare", "-n", sys.executable, "-m", "bench.curlsuite", *sys.argv[1:]]
    return subprocess.run(command, env={**os.environ, INSIDE: "1"}).returncode


def compare(source: Path, options: argparse.Namespace) -> dict[str, dict[str, str]]:
    """PASS or FAIL of each case, by the proxy's name and then the case's."""
    wanted = [int(n) for n in options.cases.split(",") if n] or select(source)
    direct = run_cases(source, wanted, None, options.jobs)
    usable = [n for n in wanted if direct.get(str(n)) == "PASS"]
    print(f"peers-curl: {len(wanted)} cases of runtests.pl, {len(usable)} of them pass "
          "without a proxy", file=sys.stderr)
    results: dict[str, dict[str, str]] = {}
    for name in PROXIES:
        with running(name, WORK / name) as port:
            results[name] = dict.fromkeys(map(str, usable), "FAIL")
            results[name] |= run_cases(source, usable, port, options.jobs)
            if not options.no_pytest:
                results[name] |= run_pytest(source, port, WORK / f"{name}.pytest")
    return results


def run_cases(source: Path, cases: list[int], port: int | None,
              jobs: int) -> dict[str, str]:
    """runtests.pl over these; a failure is tried once more, alone."""
    results: dict[str, str] = {}
    for flag in (f"-j{jobs}", "-j1"):
        left = [n for n in cases if results.get(str(n)) != "PASS"]
        if not left or (flag == "-j1" and port is None):
            break
        command = ["perl", str(source / "tests/runtests.pl"), "-a", "-n", "-am", flag,
                   "-L", str(HERE / "through_a_proxy.pl")]
        if port is not None:
            command += ["-P", f"http://proxy:proxy@127.0.0.1:{port}"]
        run = subprocess.run(
            [*command, *map(str, left)], cwd=WORK / "curl/tests", capture_output=True,
            text=True, errors="replace", env=clean_environment())
        log = WORK / f"runtests-{port or 'direct'}{flag}.log"
        log.write_text(run.stdout + run.stderr)
        results |= {str(int(n)): word for n, word in read_results(run.stdout).items()}
    return results


def run_pytest(source: Path, port: int, path: Path) -> dict[str, str]:
    path.unlink(missing_ok=True)
    tests = source / "tests/http"
    environment = clean_environment() | {
        "PEERS_PROXY": f"127.0.0.1:{port}", "PEERS_RESULTS": str(path),
        "PYTHONPATH": f"{HERE}:{tests}", "PYTHONDONTWRITEBYTECODE": "1"}
    # No configuration of ours, if curl's source is somewhere below this tree
    command = [WORK / "venv/bin/python", "-m", "pytest", "-q", "-p", "plugin",
               "-c", os.devnull, f"--rootdir={tests}",
               "-p", "no:cacheprovider", *(str(tests / name) for name in FILES)]
    with open(path.with_suffix(".log"), "wb") as log:
        subprocess.run(command, cwd=WORK / "curl/tests", env=environment, stdout=log,
                       stderr=log)
    if not path.exists():
        raise SystemExit(f"peers-curl: pytest ran nothing: {path.with_suffix('.log')}")
    words = (line.partition(": ") for line in path.read_text().splitlines())
    return {name: word for word, _, name in words}


def clean_environment() -> dict[str, str]:
    environment = {key: value for key, value in os.environ.items()
                   if not key.lower().endswith("_proxy") and key != "CURL"}
    return {"USER": "root", **environment}      # Apache is configured with it


def report(results: dict[str, dict[str, str]], known: dict[str, str],
           whole: bool) -> int:
    """Prints the comparison; returns the exit status."""
    names = sorted({name for one in results.values() for name in one},
                   key=lambda name: (not name.isdigit(), name.zfill(6)))
    passed = {proxy: {name for name in names if results[proxy].get(name) == "PASS"}
              for proxy in PROXIES}
    ours, theirs = (passed[proxy] for proxy in PROXIES)
    wrong = 0
    for title, some in (("squid alone passes", theirs - ours),
                        ("cutthrough alone passes", ours - theirs),
                        ("neither passes", set(names) - ours - theirs)):
        print(f"\n{title}: {len(some)}")
        for name in names:
            if name in some:
                why = known.get(name, "" if name in ours else "NOT EXPLAINED")
                print(f"  {name:>8}  {why}")
                wrong += name not in ours and name not in known
    for name in sorted(ours & known.keys()):
        print(f"  {name:>8}  passes: take it out of known.toml")
        wrong += 1
    print(f"\n{len(names)} cases; both pass {len(ours & theirs)}; "
          f"cutthrough {len(ours)}, squid {len(theirs)}")
    return 1 if wrong or (whole and len(ours) < len(theirs)) else 0


if __name__ == "__main__":
    sys.exit(main())

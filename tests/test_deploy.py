"""deploy/: its files are valid, fit together, and name only things that exist."""

import asyncio
import configparser
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import promql_parser as promql
import pytest
import yaml
from aiohttp import web
from cloudcoil.models.prometheus_operator import v1 as operator

import cutthrough
from cutthrough.config.config import OPTIONS, Config, ConfigError
from cutthrough.config.settings import build, gather, variable_name
from cutthrough.outcome import TABLE as OUTCOMES
from cutthrough.policy.users import read_htpasswd

TREE = Path(__file__).resolve().parent.parent
DEPLOY = TREE / "deploy"
HEALTHCHECK = DEPLOY / "healthcheck.py"
# Of the program's own answer to a deadline: the supervisor's GRACE_S
GRACE_S = 2

# -- Kubernetes

MANIFESTS = [
    manifest
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for manifest in yaml.safe_load_all(path.read_text())
    if manifest["kind"] != "Kustomization"
]
# The operator's kinds are not Kubernetes' own.
OWN = [m for m in MANIFESTS if not m["apiVersion"].startswith("monitoring.")]
VERSIONS = ("1.28", kubernetes_validate.latest_version())


def of_kind(kind: str, number: int = 0) -> dict[str, Any]:
    return [m for m in MANIFESTS if m["kind"] == kind][number]


POD = of_kind("Deployment")["spec"]["template"]
CONTAINER = POD["spec"]["containers"][0]
ENVIRON = {entry["name"]: entry.get("value", "") for entry in CONTAINER["env"]}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", OWN, ids=lambda m: m["kind"])
def test_a_manifest_is_what_its_schema_says(manifest: dict, version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


def test_the_image_is_of_this_version() -> None:
    assert CONTAINER["image"] == f"cutthrough:{cutthrough.__version__}"


def test_what_is_not_released_has_a_version_of_its_own() -> None:
    """`cutthrough version` printed 0.1.0 although 170 lines of changes had followed."""
    headings = re.findall(r"^## (\S+)", (TREE / "CHANGELOG.md").read_text(), re.M)
    if headings[0] == "Unreleased":
        assert ".dev" in cutthrough.__version__
        assert headings[1] not in cutthrough.__version__
    else:
        assert headings[0] == cutthrough.__version__


def test_an_unknown_key_is_no_manifest() -> None:
    manifest = of_kind("PodDisruptionBudget")
    spoilt = {**manifest, "spec": {**manifest["spec"], "maxUnavailble": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(spoilt, VERSIONS[-1], strict=True)


def test_the_service_monitor_is_what_its_schema_says() -> None:
    """The models leave out unknown keys, so both ways have to agree."""
    manifest = of_kind("ServiceMonitor")
    read = operator.ServiceMonitor.model_validate(manifest)
    assert read.model_dump(by_alias=True, exclude_unset=True, mode="json") == manifest


def test_kustomization_has_every_file() -> None:
    listed = yaml.safe_load((DEPLOY / "kubernetes/kustomization.yaml").read_text())
    there = {path.name for path in (DEPLOY / "kubernetes").glob("*.yaml")}
    assert {*listed["resources"], "kustomization.yaml"} == there


def test_every_selector_finds_the_pods() -> None:
    labels = POD["metadata"]["labels"].items()
    selectors = [m["spec"]["selector"] for m in MANIFESTS if m["kind"] == "Service"]
    selectors += [of_kind(kind)["spec"]["selector"]["matchLabels"]
                  for kind in ("Deployment", "PodDisruptionBudget")]
    selectors.append(of_kind("NetworkPolicy")["spec"]["podSelector"]["matchLabels"])
    assert all(selector and selector.items() <= labels for selector in selectors)
    wanted = of_kind("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]
    assert wanted["name"] == of_kind("Deployment")["metadata"]["name"]


def test_the_service_monitor_finds_the_admin_service() -> None:
    wanted = of_kind("ServiceMonitor")["spec"]
    found = [m for m in MANIFESTS if m["kind"] == "Service"
             and wanted["selector"]["matchLabels"].items()
             <= m["metadata"]["labels"].items()]
    assert [port["name"] for m in found for port in m["spec"]["ports"]] == ["admin"]
    assert [endpoint["port"] for endpoint in wanted["endpoints"]] == ["admin"]


def test_every_named_port_is_the_containers() -> None:
    names = {port["name"] for port in CONTAINER["ports"]}
    used = {CONTAINER[probe]["httpGet"]["port"]
            for probe in ("readinessProbe", "livenessProbe", "startupProbe")}
    used |= {port["targetPort"] for m in MANIFESTS if m["kind"] == "Service"
             for port in m["spec"]["ports"]}
    used |= {port["port"] for rule in of_kind("NetworkPolicy")["spec"]["ingress"]
             for port in rule["ports"]}
    assert used == names


def test_the_pod_has_no_privilege() -> None:
    of_pod, own = POD["spec"]["securityContext"], CONTAINER["securityContext"]
    assert of_pod["runAsNonRoot"] and of_pod["runAsUser"] > 0
    assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert own["readOnlyRootFilesystem"] and not own["allowPrivilegeEscalation"]
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert POD["spec"]["automountServiceAccountToken"] is False


@pytest.fixture
def cluster_config(tmp_path) -> Config:
    """The configuration of the ConfigMap, with a Secret of one's own in place."""
    return read_cluster(tmp_path, {"admin-token": "5f0c29"})


def read_cluster(tmp_path: Path, own: dict[str, str]) -> Config:
    secrets = of_kind("Secret")["stringData"] | own
    for name, text in secrets.items():
        (tmp_path / name).write_text(text)
    mounted = "/etc/cutthrough/secrets"
    text = of_kind("ConfigMap")["data"]["cutthrough.toml"]
    (tmp_path / "cutthrough.toml").write_text(text.replace(mounted, str(tmp_path)))
    environ = {key: value.replace(mounted, str(tmp_path))
               for key, value in ENVIRON.items()}
    return build(gather({}, environ, str(tmp_path / "cutthrough.toml")))


def test_the_example_as_it_is_starts_nowhere(tmp_path) -> None:
    """`admin-token: replace this` on 0.0.0.0 was taken for a token."""
    with pytest.raises(ConfigError, match="/admin-token: is a well-known placeholder"):
        read_cluster(tmp_path, {})


def test_the_clusters_configuration_is_valid(cluster_config) -> None:
    ports = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}
    assert cluster_config.listen == (("0.0.0.0", ports["proxy"]),)
    assert ENVIRON["CUTTHROUGH_ADMIN"] == f"0.0.0.0:{ports['admin']}"
    assert read_htpasswd(of_kind("Secret")["stringData"]["users"], "users")


def test_a_pod_is_given_the_time_of_its_drain(cluster_config) -> None:
    wait = int(CONTAINER["lifecycle"]["preStop"]["exec"]["command"][1])
    needed = wait + cluster_config.drain_timeout + GRACE_S
    assert POD["spec"]["terminationGracePeriodSeconds"] > needed


def test_one_worker_for_each_cpu_of_the_request() -> None:
    assert ENVIRON["CUTTHROUGH_WORKERS"] == CONTAINER["resources"]["requests"]["cpu"]


# -- systemd

UNIT = (DEPLOY / "systemd/cutthrough.service").read_text()


def test_the_unit_waits_for_the_drain() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read_string(UNIT)
    service = unit["Service"]
    assert int(service["TimeoutStopSec"]) > Config().drain_timeout + GRACE_S
    assert service["Type"] == "notify" and service["NotifyAccess"] == "all"


def test_the_unit_makes_the_directories_of_the_documentation() -> None:
    """Recordings have the path /var/lib/cutthrough there, and it was read-only."""
    tops = {"Runtime": "/run", "Logs": "/var/log", "State": "/var/lib"}
    folders = {f"{tops[kind]}/{name}" for kind, name in re.findall(
        r"^(Runtime|Logs|State)Directory=(.+)$", UNIT, re.M)}
    text = "".join(page.read_text() for page in (TREE / "docs").glob("*.md"))
    named = set(re.findall(r"(?:/run|/var/\w+)/cutthrough\b", text))
    assert named and named <= folders


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")
def test_systemd_finds_little_to_say_against_the_unit() -> None:
    """Exposure is given in tenths of ten: at most 1.5 (docs/deploy.md)."""
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=15",
         "--no-pager", DEPLOY / "systemd/cutthrough.service"],
        capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stdout


def test_the_image_starts_from_bytes_that_a_digest_names():
    image = (DEPLOY / "Dockerfile").read_text()
    assert re.search(r"^ARG BASE=debian:[a-z]+-slim@sha256:[0-9a-f]{64}$", image, re.M)
    bases = re.findall(r"^FROM (\S+)", image, re.M)
    assert bases and set(bases) == {"$BASE"}
    assert image.count("--require-hashes") == 2


def test_every_variable_is_an_option() -> None:
    known = {variable_name(name) for name in OPTIONS} | {"CUTTHROUGH_BUILD"}
    image = (DEPLOY / "Dockerfile").read_text()
    used = {*ENVIRON, *re.findall(r"CUTTHROUGH_\w+", UNIT + image)}
    assert used <= known


# -- the image

def test_the_image_check_knows_every_instruction() -> None:
    sys.path.insert(0, str(DEPLOY))
    try:
        from check_image import steps, suite_of
    finally:
        sys.path.remove(str(DEPLOY))
    found = list(steps((DEPLOY / "Dockerfile").read_text()))
    base = next(rest for name, rest in found if name == "ARG")
    assert suite_of(base.removeprefix("BASE=")) == "trixie"
    script = (DEPLOY / "check_image.py").read_text()
    assert all(f'"{name}"' in script for name, _ in found)
    last = max(i for i, (name, _) in enumerate(found) if name == "FROM")
    user = [rest for name, rest in found[last:] if name == "USER"]
    assert user == [f"{POD['spec']['securityContext']['runAsUser']}:"
                    f"{POD['spec']['securityContext']['runAsGroup']}"]


def test_the_image_check_imports_what_each_extra_brings() -> None:
    """It imported a package that no extra had any more, and none of three that came."""
    sys.path.insert(0, str(DEPLOY))
    try:
        from check_image import EXTRAS
    finally:
        sys.path.remove(str(DEPLOY))
    lists = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    assert EXTRAS.keys() == lists["optional-dependencies"].keys() - {
        "mcp", "test", "fuzz"}
    assert all(importlib.util.find_spec(name) for names in EXTRAS.values()
               for name in names)


@pytest.fixture(params=["host:port", "unix"])
async def admin(request, tmp_path):
    """An admin listener of one answer: (its address, a list with its status)."""
    status = [200]

    async def health(_: web.Request) -> web.Response:
        return web.Response(status=status[0])

    app = web.Application()
    app.add_routes([web.get("/healthz", health)])
    runner = web.AppRunner(app)
    await runner.setup()
    if request.param == "unix":
        where = f"unix:{tmp_path}/admin"
        await web.UnixSite(runner, f"{tmp_path}/admin").start()
    else:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        where = f"0.0.0.0:{runner.addresses[0][1]}"
    yield where, status
    await runner.cleanup()


async def healthcheck(where: str) -> int:
    process = await asyncio.create_subprocess_exec(
        sys.executable, HEALTHCHECK, env={"CUTTHROUGH_ADMIN": where},
        stderr=subprocess.DEVNULL)
    return await process.wait()


async def test_the_healthcheck_believes_200_alone(admin) -> None:
    where, status = admin
    assert await healthcheck(where) == 0
    status[0] = 503
    assert await healthcheck(where) == 1


@pytest.mark.parametrize("where", ["off", "unix:/nowhere/admin", "127.0.0.1:1", "x:y"])
async def test_the_healthcheck_fails_where_nobody_answers(where: str) -> None:
    assert await healthcheck(where) == 1


# -- the dashboard and the alerts

# Labels that Prometheus adds to all scraped metrics
OF_TARGETS = {"instance", "job"}
RULES = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
BOARDS = [json.loads(path.read_text())
          for path in sorted((DEPLOY / "grafana").glob("*.json"))]
PANELS = [panel for board in BOARDS for panel in board["panels"]
          if panel["type"] != "row"]


def documented() -> dict[str, set[str]]:
    """Every series of docs/conventions.md, and its labels."""
    text = (TREE / "docs/conventions.md").read_text().partition("## Metrics\n")[2]
    series: dict[str, set[str]] = {"up": set()}     # Prometheus' own
    for line in text.partition("\n## ")[0].splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) < 4 or not cells[1].startswith("`cutthrough_"):
            continue
        name, labels = cells[1].strip("`"), set(re.findall(r"\w+", cells[2]))
        if cells[3].startswith("histogram"):
            series[f"{name}_bucket"] = labels | {"le"}
            series |= {f"{name}_sum": labels, f"{name}_count": labels}
        else:
            series[name] = labels
    return series


def expressions() -> Iterator[str]:
    for rule in ALERTS:
        yield rule["expr"]
    for panel in PANELS:
        for target in panel["targets"]:
            # Grafana replaces the variable before Prometheus sees it
            yield target["expr"].replace("$__rate_interval", "5m")
    for metric in of_kind("HorizontalPodAutoscaler")["spec"]["metrics"]:
        if metric["type"] == "Pods":
            yield metric["pods"]["metric"]["name"]


def parts(node: Any) -> Iterator[Any]:
    """The expression and everything in it."""
    if isinstance(node, list):
        for each in node:
            yield from parts(each)
        return
    yield node
    for name in ("lhs", "rhs", "expr", "args", "vector_selector"):
        inner = getattr(node, name, None)
        if inner is not None:
            yield from parts(inner)


def test_a_link_leads_to_a_dashboard() -> None:
    known = {f"/d/{board['uid']}" for board in BOARDS}
    for board in BOARDS:
        assert {link["url"] for link in board["links"]} <= known
    text = json.dumps(BOARDS)
    assert {*re.findall(r"/d/[\w-]+", text)} <= known


@pytest.mark.parametrize("text", dict.fromkeys(expressions()))
def test_an_expression_names_what_is_exported(text: str) -> None:
    series, grouped, labels = documented(), set(), set(OF_TARGETS)
    for node in parts(promql.parse(text)):
        if isinstance(node, promql.VectorSelector):
            assert node.name in series
            labels |= series[node.name]
            for matcher in node.matchers.matchers:
                assert matcher.name in series[node.name] | OF_TARGETS
                check_values(matcher.name, matcher.value)
        if isinstance(node, promql.AggregateExpr) and node.modifier is not None:
            grouped |= set(node.modifier.labels)
    assert grouped <= labels


def check_values(label: str, value: str) -> None:
    """`reason` is a word of the table of endings."""
    if label == "reason":
        assert set(value.split("|")) <= {row.label for row in OUTCOMES}
    if label == "result" and value.startswith("auth_"):
        assert value in {row.label for row in OUTCOMES}


def test_the_rules_are_what_their_schema_says() -> None:
    read = operator.PrometheusRuleSpec.model_validate(RULES)
    assert read.model_dump(by_alias=True, exclude_unset=True, mode="json") == RULES


def test_lost_captures_raise_an_alert() -> None:
    """Dropped exchanges were counted, and there was no alert."""
    matched = {(node.name, matcher.name, matcher.value) for rule in ALERTS
               for node in parts(promql.parse(rule["expr"]))
               if isinstance(node, promql.VectorSelector)
               for matcher in node.matchers.matchers}
    assert ("cutthrough_capture_exchanges_total", "result",
            "dropped|partial|unwritten|failed") in matched


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_to_do_with_labels_that_it_has(rule: dict) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    text = rule["annotations"]["summary"] + rule["annotations"]["description"]
    names = {node.name for node in parts(promql.parse(rule["expr"]))
             if isinstance(node, promql.VectorSelector)}
    has = OF_TARGETS.union(*(documented()[name] for name in names))
    assert set(re.findall(r"\$labels\.(\w+)", text)) <= has


def test_a_panel_shows_labels_that_its_series_have() -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            by = re.findall(r" by \(([^)]*)\)", target["expr"])
            assert shown <= {name for group in by for name in group.split(", ")}


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board["uid"])
def test_panels_do_not_overlap_and_have_numbers_of_their_own(board: dict) -> None:
    taken, numbers = set(), [panel["id"] for panel in board["panels"]]
    assert len(set(numbers)) == len(numbers)
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken and place["x"] + place["w"] <= 24
        taken |= cells

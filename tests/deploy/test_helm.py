"""The chart, rendered by Helm's own code, is valid and equals deploy/kubernetes."""

import functools
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from cloudcoil.models.prometheus_operator import v1 as operator

import cutthrough
from cutthrough.cli.main import main
from cutthrough.config.config import Config
from cutthrough.config.settings import build, gather
from tests.deploy.helm import CHART, Failure, lint, needs_helm, render
from tests.support.certificates import localhost
from tests.support.proxy import ROOT

VERSIONS = ("1.28", kubernetes_validate.latest_version())
CI = sorted((CHART / "ci").glob("*.yaml"))
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())

Manifest = dict[str, Any]


@functools.cache
def rendered(name: str) -> list[Manifest]:
    """The manifests with the values of this file of ci/, or with none ("")."""
    values = yaml.safe_load((CHART / "ci" / f"{name}.yaml").read_text()) if name else {}
    return render(values)


def of_kind(manifests: list[Manifest], kind: str, number: int = 0) -> Manifest:
    return [one for one in manifests if one["kind"] == kind][number]


SETS = ["", *(path.stem for path in CI)]


@needs_helm
@pytest.mark.parametrize("name", SETS)
def test_helm_finds_nothing_to_say(name: str) -> None:
    assert not lint(yaml.safe_load((CHART / "ci" / f"{name}.yaml").read_text())
                    if name else {})


@needs_helm
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", SETS)
def test_each_manifest_is_what_its_schema_says(name: str, version: str) -> None:
    for manifest in rendered(name):
        if manifest["kind"] != "ServiceMonitor":
            kubernetes_validate.validate(manifest, version, strict=True)
        else:
            read = operator.ServiceMonitor.model_validate(manifest)
            assert read.model_dump(
                by_alias=True, exclude_unset=True, mode="json") == manifest


def plain(node: Any) -> Any:
    """Without what a chart has by its nature: the labels of the release, and defaults
    of Kubernetes that it writes out."""
    if isinstance(node, list):
        return [plain(each) for each in node]
    if not isinstance(node, dict):
        return node
    left = {key: plain(value) for key, value in node.items()}
    for label in ("app.kubernetes.io/instance", "app.kubernetes.io/version",
                  "app.kubernetes.io/managed-by", "helm.sh/chart"):
        left.pop(label, None)
    for key, default in (("imagePullPolicy", "IfNotPresent"), ("type", "ClusterIP"),
                         ("internalTrafficPolicy", "Cluster")):
        if left.get(key) == default:
            del left[key]
    return left


@needs_helm
def test_the_chart_means_what_the_manifests_do() -> None:
    """Each was changed alone before."""
    manifests = [one for path in (ROOT / "deploy/kubernetes").glob("*.yaml")
                 for one in yaml.safe_load_all(path.read_text())
                 if one["kind"] not in ("Kustomization", "Secret", "ConfigMap")]
    charts = [one for one in rendered("kubernetes-values")
              if one["kind"] != "ConfigMap"]

    def named(many: list[Manifest]) -> dict[tuple[str, str], Manifest]:
        return {(one["kind"], one["metadata"]["name"]): plain(one) for one in many}
    assert named(charts) == named(manifests)


def configuration(manifests: list[Manifest], base: Path) -> tuple[str, dict[str, str]]:
    """Writes the files of the ConfigMap and of a Secret below `base`; returns the path
    of cutthrough.toml, and the container's variables."""
    made = localhost()
    secrets = {
        "users": "ann:$2b$12$CbGjirnkDSi4dUNoBp.31eoiD6hC1XFVCULNF1xXM3TwkW3hBjk0O\n",
        "admin-token": "5f0c29", "tls.crt": made.certificate.read_text(),
        "tls.key": made.key.read_text()}
    (base / "pages").mkdir()
    for name, text in secrets.items():
        (base / name).write_text(text)
        (base / name).chmod(0o600)

    def moved(text: str) -> str:
        text = re.sub(r"/etc/cutthrough/(secrets|tls|config)", str(base), text)
        return text.replace("/etc/cutthrough/pages", f"{base}/pages")
    for name, text in of_kind(manifests, "ConfigMap")["data"].items():
        (base / name).write_text(moved(text))
    pod = next(one for one in manifests if one["kind"] in ("Deployment", "DaemonSet"))
    (container,) = pod["spec"]["template"]["spec"]["containers"]
    return str(base / "cutthrough.toml"), {
        entry["name"]: moved(entry.get("value", "")) for entry in container["env"]}


def read(manifests: list[Manifest], base: Path) -> Config:
    path, environ = configuration(manifests, base)
    return build(gather({}, environ, path))


@needs_helm
@pytest.mark.parametrize("name", SETS)
def test_the_program_takes_the_configuration(
        name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    path, environ = configuration(rendered(name), tmp_path)
    for key, value in environ.items():
        monkeypatch.setenv(key, value)
    assert (main(["check", "-c", path]), capsys.readouterr().err) == (0, "")


@needs_helm
@pytest.mark.parametrize("name", SETS)
def test_pod_and_configuration_fit_together(name: str, tmp_path: Path) -> None:
    manifests = rendered(name)
    config = read(manifests, tmp_path)
    workload = next(one for one in manifests
                    if one["kind"] in ("Deployment", "DaemonSet"))
    pod = workload["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {address[1] for address in (
        listener.address for listener in config.all_listeners)} == {
            port for name, port in ports.items() if name != "admin"}
    assert config.admin == f"0.0.0.0:{ports['admin']}"
    assert config.watch and config.access_log_format == "json"
    # The supervisor's own time after a deadline is two seconds
    wait = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    grace = pod["spec"]["terminationGracePeriodSeconds"]
    assert grace > wait + config.drain_timeout + 2
    labels = pod["metadata"]["labels"].items()
    for one in manifests:
        if one["kind"] == "Service":
            assert one["spec"]["selector"].items() <= labels
            assert {port["targetPort"] for port in one["spec"]["ports"]} <= {*ports}
        elif one["kind"] in ("PodDisruptionBudget", "Deployment", "DaemonSet"):
            assert one["spec"]["selector"]["matchLabels"].items() <= labels
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"] and pod["spec"]["securityContext"][
        "runAsNonRoot"] and security["capabilities"] == {"drop": ["ALL"]}


@needs_helm
def test_the_kubernetes_manifests_have_the_same_configuration(tmp_path: Path) -> None:
    documents = yaml.safe_load_all((ROOT / "deploy/kubernetes/config.yaml").read_text())
    text = of_kind(list(documents), "ConfigMap")["data"]["cutthrough.toml"]
    path, environ = configuration(rendered("kubernetes-values"), tmp_path)
    own = {"via": "the-same"}       # else it is random
    ours = build(gather(own, environ, path))
    Path(path).write_text(text.replace("/etc/cutthrough/secrets", str(tmp_path)))
    assert build(gather(own, environ, path)) == ours


@needs_helm
def test_a_daemonset_is_not_scaled_spread_or_budgeted() -> None:
    manifests = rendered("daemonset-values")
    kinds = {one["kind"] for one in manifests}
    assert kinds == {"DaemonSet", "ConfigMap", "Service"}
    spec = of_kind(manifests, "DaemonSet")["spec"]
    assert "replicas" not in spec
    pod = spec["template"]["spec"]
    assert "topologySpreadConstraints" not in pod
    assert pod["containers"][0]["ports"][0]["hostPort"] == 8080


@needs_helm
def test_a_release_of_another_name_has_it_everywhere() -> None:
    names = {one["metadata"]["name"] for one in render({}, release="egress")}
    assert names == {"egress-cutthrough", "egress-cutthrough-admin"}


@needs_helm
@pytest.mark.parametrize(("values", "why"), [
    ({"kind": "StatefulSet"}, "kind"),
    ({"replica": 3}, "replica"),
    ({"image": {"tagg": "1"}}, "tagg"),
    ({"image": {"digest": "sha256:abc"}}, "digest"),
    ({"lists": {"policy.toml": ""}}, "policy.toml"),
    ({"kind": "DaemonSet", "autoscaling": {"enabled": True}}, "kind: Deployment"),
    ({"autoscaling": {"enabled": True, "tunnels": 0, "cpu": 0}}, "cpu or both"),
], ids=lambda value: json.dumps(value) if isinstance(value, dict) else "")
def test_a_wrong_value_is_refused(values: Manifest, why: str) -> None:
    with pytest.raises(Failure, match=re.escape(why)):
        render(values)


# Without Helm

def test_the_defaults_are_what_the_schema_says() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)
    assert VALUES.keys() == SCHEMA["properties"].keys() - {"global"}


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == cutthrough.__version__
    assert chart["version"].replace("-", ".").replace("dev.", "dev") == (
        cutthrough.__version__)


def test_every_value_is_used() -> None:
    text = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    page = (CHART / "values.yaml").read_text()
    for name in VALUES:
        assert f".Values.{name}" in text, name
        assert re.search(rf"^{name}:", page, re.M), name

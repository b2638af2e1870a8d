"""docker-compose.yml: what an operator relies on, read from the file; and docker-compose's own word where it is."""

import copy
import os
import re
import shutil
import subprocess
import tomllib

import pytest
import yaml

from scripts import gateway, prepare_model
from scripts.launcher import options

from .compose_file import COMPOSE, REQUIRED, ROOT, seconds, services

ONE_SHOT = {"prepare"}
SERVERS = ("server-cpu", "server-gpu")
WRITABLE = {"models": {"prepare"}, "compiled": set(SERVERS), "prometheus": {"prometheus"}, "grafana": {"grafana"}}
PORT = re.compile(r"127\.0\.0\.1:\d+:\d+")
TAG = re.compile(r".+:v?\d[\w.-]*")


def faults(described):
    """What is wrong with the services, one line each."""
    found = []
    for name, service in described.items():
        health = service.get("healthcheck", {})
        found += [
            f"{name}: port {port} is not on loopback" for port in service.get("ports", []) if not PORT.fullmatch(port)
        ]
        found += [
            f"{name}: no {key}" for key in ("restart", "healthcheck", "read_only", "user") if not service.get(key)
        ]
        if (service.get("user") or "0").split(":")[0] in ("0", "root"):
            found.append(f"{name}: runs as root")
        if name not in ONE_SHOT and not (health.get("test") and health.get("interval") and health.get("timeout")):
            found.append(f"{name}: its health is not looked at")
        if not {"max-size", "max-file"} <= service.get("logging", {}).get("options", {}).keys():
            found.append(f"{name}: its log grows without end")
        if not TAG.fullmatch(service.get("image", "")):
            found.append(f"{name}: image {service.get('image')} is not pinned by a tag")
        if "ALL" not in service.get("cap_drop", []) or "no-new-privileges:true" not in service.get("security_opt", []):
            found.append(f"{name}: keeps privileges")
        found += [f"{name}: {mount} is writable" for mount in service.get("volumes", []) if not _allowed(name, mount)]
        found += [f"{name}: {key} is written in the file" for key in _written(service)]
    return found


def _allowed(name, mount):
    source, _, mode = mount.rsplit(":", 2) if mount.count(":") == 2 else (*mount.split(":"), "rw")
    return mode == "ro" or name in WRITABLE.get(source, ())


def _written(service):
    """Secret variables whose value is not one of the operator's environment."""
    secret = {
        key: value for key, value in service.get("environment", {}).items() if re.search("KEY|PASSWORD|SECRET", key)
    }
    return [key for key, value in secret.items() if value not in REQUIRED.values()]


def test_every_service_is_restarted_watched_pinned_unprivileged_and_on_loopback():
    assert faults(services()) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"ports": ["8000:8000"]}, "port 8000:8000 is not on loopback"),
        ({"ports": ["0.0.0.0:8000:8000"]}, "port 0.0.0.0:8000:8000 is not on loopback"),
        ({"restart": None}, "no restart"),
        ({"healthcheck": None}, "no healthcheck"),
        ({"healthcheck": {"disable": True}}, "its health is not looked at"),
        ({"image": "grafana/grafana"}, "image grafana/grafana is not pinned by a tag"),
        ({"image": "grafana/grafana:latest"}, "image grafana/grafana:latest is not pinned by a tag"),
        ({"user": "root"}, "runs as root"),
        ({"logging": {"driver": "json-file"}}, "its log grows without end"),
        ({"read_only": False}, "no read_only"),
        ({"volumes": ["./deploy:/etc/x"]}, "./deploy:/etc/x is writable"),
        ({"volumes": ["models:/models"]}, "models:/models is writable"),
        ({"cap_drop": []}, "keeps privileges"),
        ({"environment": {"GF_SECURITY_ADMIN_PASSWORD": "admin"}}, "GF_SECURITY_ADMIN_PASSWORD is written in the file"),
    ],
)
def test_each_of_these_faults_is_seen(change, fault):
    described = copy.deepcopy(services())
    described["grafana"] = {**described["grafana"], **{k: v for k, v in change.items() if v is not None}}
    for key in (key for key, value in change.items() if value is None):
        del described["grafana"][key]
    if change.get("healthcheck", 0) is None:
        assert f"grafana: {fault}" in faults(described)
        return
    assert faults(described) == [f"grafana: {fault}"]


@pytest.mark.parametrize("name", REQUIRED)
def test_a_secret_that_nobody_set_is_an_error(name):
    with pytest.raises(KeyError, match=name):
        services({key: value for key, value in REQUIRED.items() if key != name})


@pytest.mark.parametrize("name", SERVERS)
def test_the_servers_command_is_one_that_serve_takes(name):
    service = services()[name]
    program, script, *words = service["command"]
    assert (program, script) == ("python3", "scripts/serve.py")
    chosen = options.parse(words)
    assert chosen.host == "0.0.0.0"
    assert not chosen.restart, "one alone starts it again, and that is compose"
    assert service["restart"] == "unless-stopped"
    inside = {int(port.rsplit(":", 1)[1]) for port in service["ports"]}
    assert inside == {chosen.http_port, chosen.grpc_port, chosen.metrics_port}
    mounted = {mount.split(":")[1] for mount in service["volumes"]}
    assert {str(place) for place in chosen.also_serve} <= mounted
    assert f"/{chosen.model.split('/')[1]}" in mounted
    assert f":{chosen.http_port}/v2/health/ready" in service["healthcheck"]["test"][-1]
    # Five seconds for those that are cut off to be told, and for the server to end.
    assert seconds(service["stop_grace_period"]) >= chosen.grace_seconds + 10


def test_the_gateways_command_is_one_that_gateway_takes(monkeypatch):
    service = services()["gateway"]
    monkeypatch.setattr("sys.argv", service["command"][1:])
    chosen = gateway._parse()
    host, port = chosen.url.split(":")
    for name in SERVERS:
        server = services()[name]
        assert host in server["networks"]["default"]["aliases"]
        assert int(port) == options.parse(server["command"][2:]).grpc_port
    assert service["ports"] == [f"127.0.0.1:9000:{chosen.port}"]
    assert f":{chosen.port}/health" in service["healthcheck"]["test"][-1]
    assert seconds(service["stop_grace_period"]) >= chosen.grace_seconds + 10


def test_the_model_that_is_prepared_is_the_one_that_is_served(monkeypatch, tmp_path, capsys, smollm2_dir):
    command = services()["prepare"]["command"]
    assert command[:2] == ["python3", "scripts/prepare_model.py"]
    assert command[-2:] == ["--cache-dir", "/models"]
    monkeypatch.setattr("sys.argv", [*command[1:-1], str(smollm2_dir.parent)])
    assert prepare_model.main() == 0
    prepared = capsys.readouterr().out.strip()
    for name in SERVERS:
        assert f"--model=/models/{prepared.rsplit('/', 1)[1]}" in services()[name]["command"]


def test_the_gpu_is_reserved_for_the_gpu_profile_alone():
    described = services()
    reserved = {name: described[name]["deploy"]["resources"]["reservations"] for name in SERVERS}
    assert reserved["server-gpu"].pop("devices") == [{"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}]
    assert reserved["server-gpu"] == reserved["server-cpu"] == {"memory": "2g"}
    assert {name for name in described if "deploy" in described[name]} == set(SERVERS)
    assert {name: described[name].get("profiles") for name in SERVERS} == {"server-cpu": ["cpu"], "server-gpu": ["gpu"]}


def test_everything_that_is_mounted_from_the_checkout_and_copied_into_the_image_is_there():
    sources = {mount.split(":")[0] for service in services().values() for mount in service["volumes"]}
    assert all((ROOT / source).is_dir() for source in sources if source.startswith("."))
    copied = re.findall(r"^COPY (.*) \S+$", (ROOT / "deploy/Dockerfile").read_text(), re.MULTILINE)
    names = {name for line in copied for name in line.split()}
    assert {"backend", "kernels", "scripts", "model_repository"} <= names
    assert all((ROOT / name).exists() for name in names)
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert let_through == names


def test_the_image_has_every_extra_but_those_of_tools_that_no_container_runs():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (installed,) = re.findall(r'-e "\.\[([\w,]+)\]"', (ROOT / "deploy/Dockerfile").read_text())
    assert set(extras) - set(installed.split(",")) == {"server", "loadtest", "bench", "top", "dev"}
    assert set(installed.split(",")) <= set(extras)


def test_the_example_of_an_environment_names_what_the_file_wants():
    wanted = set(re.findall(r"\$\{(\w+):\?", COMPOSE.read_text()))
    example = (ROOT / "deploy/example.env").read_text()
    given = dict(re.findall(r"^(\w+)=(.*)$", example, re.MULTILINE))
    assert given == dict.fromkeys(wanted, "")
    assert wanted == set(REQUIRED)
    offered = dict(re.findall(r"^# (\w+)=(.*)$", example, re.MULTILINE))
    defaults = dict(re.findall(r"\$\{(\w+):-([^}]*)\}", COMPOSE.read_text()))
    ports = {name for name in defaults if name.endswith("_PORT")}
    assert set(offered) == set(defaults) - ports
    assert {name: value for name, value in offered.items() if name != "OTLP_ENDPOINT"} == {
        name: defaults[name] for name in offered if name != "OTLP_ENDPOINT"
    }


@pytest.mark.skipif(not shutil.which("docker-compose"), reason="docker-compose is not installed")
def test_docker_compose_reads_the_file_as_we_do():
    line = ["docker-compose", "-f", str(COMPOSE), "--profile", "cpu", "--profile", "gpu", "config"]
    done = subprocess.run(line, capture_output=True, text=True, env={**os.environ, **REQUIRED}, timeout=60)
    assert done.returncode == 0, done.stderr
    read, mine = yaml.safe_load(done.stdout)["services"], services()
    for key in ("command", "image", "restart", "user", "read_only", "cap_drop"):
        assert {name: each.get(key) for name, each in read.items()} == {n: each.get(key) for n, each in mine.items()}


@pytest.mark.skipif(not shutil.which("docker-compose"), reason="docker-compose is not installed")
def test_docker_compose_wants_the_secrets():
    environment = {key: value for key, value in os.environ.items() if key not in REQUIRED}
    done = subprocess.run(
        ["docker-compose", "-f", str(COMPOSE), "config"], capture_output=True, text=True, env=environment
    )
    assert done.returncode != 0
    assert "set it in .env" in done.stderr

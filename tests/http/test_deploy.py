"""deploy/: what is built and run elsewhere, held against the daemon, the scripts and the schemas here.

Images are not built: their steps are the scripts', their packages those that the daemon is linked
with. kubernetes_validate (PyPI) checks the manifests against Kubernetes' own schemas where it is
installed; what arrayd itself needs of them is checked everywhere.
"""
import ctypes
import json
import os
import pathlib
import re
import shutil
import subprocess
import time

import pytest
import yaml

from client import REPO, Client
from conftest import CONTRACT, fake_gpu, find_binary, skip_without
from test_doctor import checks, find
from test_seen import metrics

pytestmark = pytest.mark.release_only  # it is the files of deploy/ that are tested here
DEPLOY = REPO / "deploy"
BUILD = pathlib.Path(find_binary()).resolve().parents[1]
HELP = subprocess.run([find_binary(), "--help"], capture_output=True, text=True, check=True).stdout
OPTIONS = re.findall(r"^  --([a-z-]+)", HELP, re.M)


def read(name):
    return (DEPLOY / name).read_text()


def packages(name):
    done = subprocess.run(["bash", "-c", f'. {DEPLOY}/lib.sh && echo "${{{name}[@]}}"'], capture_output=True,
                          text=True, check=True)
    return done.stdout.split()


def settings(conf):
    """name → values of a configuration file; each name is an option."""
    pairs = [re.fullmatch(r"([a-z-]+) = (.*)", line).groups() for line in conf.splitlines()
             if line and not line.startswith("#")]
    assert {name for name, _ in pairs} <= set(OPTIONS)
    return {name: [v for n, v in pairs if n == name] for name, _ in pairs}


def understood(conf, tmp_path):
    """The doctor takes the file; where it would listen and write is not this machine's."""
    (tmp_path / "arrayd.conf").write_text(conf)
    done = subprocess.run([find_binary(), "doctor", "--config", tmp_path / "arrayd.conf", "--backend", "cpu",
                           "--json"], capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 1), done.stderr
    assert find(json.loads(done.stdout)["checks"], "config")[0]["status"] == "ok"


# --- the image ---

def stages():
    """name → (base, instructions) of the Containerfile."""
    found, name = {}, None
    for line in re.sub(r"\\\n", " ", read("Containerfile")).splitlines():
        if not line or line.startswith("#"):
            continue
        word, rest = line.split(None, 1)
        if word == "FROM":
            base, name = re.fullmatch(r"(\S+) AS (\w+)", rest).groups()
            found[name] = (base, [])
        else:
            found[name][1].append((word, " ".join(rest.split())))
    return found


def test_the_containerfile_takes_what_is_there():
    found = stages()
    assert list(found) == ["build", "nvrtc", "kernels", "cpu", "cuda"] and found["cuda"][0] == "cpu"
    for name, (_, steps) in found.items():
        for word, rest in steps:
            if word == "COPY":
                *sources, _ = re.sub(r"--from=\w+ ", "", rest).split()
                origin = re.search(r"--from=(\w+)", rest)
                assert origin is None or origin[1] in found
                assert origin or all((REPO / s).exists() for s in sources), rest
            for script in re.findall(r"(?:/src/)?(deploy/[\w.]+)", rest) if word == "RUN" else ():
                assert (REPO / script).is_file(), script
            assert "apt-get install" not in rest, "packages are named in deploy/lib.sh"
    everything = dict(found["cpu"][1])
    assert everything["USER"] == "10001:10001" and json.loads(everything["ENTRYPOINT"]) == ["/usr/local/bin/arrayd"]
    assert json.loads(everything["CMD"]) == ["--config", "/etc/arrayd/arrayd.conf"]
    environment = dict(re.findall(r"(\w+)=(\S+)", dict(found["cuda"][1])["ENV"]))
    assert environment["ARRAYD_LIBNVRTC"].startswith("/usr/local/lib/nvrtc/libnvrtc.so.")
    assert environment["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"  # NVML is of the latter


@pytest.mark.in_turn
def test_the_image_s_kernels(tmp_path):
    """The build's step: another user can read them, and without NVRTC there is an empty folder."""
    run, = [rest for word, rest in stages()["kernels"][1] if word == "RUN" and "deploy/kernels" in rest]
    makes, holds = run.split("&&")  # an image without kernels is not built unnoticed
    assert makes.split()[-3:] == ["/image/usr/local/bin/arrayd", "/kernels", "$ARCHITECTURES"] and holds.strip() == '[ -n "$(ls -A /kernels)" ]'
    copied = [rest.split()[1:] for word, rest in stages()["cuda"][1] if word == "COPY" and "--from=kernels" in rest]
    assert copied == [["/kernels", *settings(read("container.conf"))["ready-kernels"]]]

    def made(name, library, *architectures):
        return subprocess.run([DEPLOY / "kernels", find_binary(), tmp_path / name, *architectures], capture_output=True, text=True,
                              timeout=1800, env={**os.environ, **(fake_gpu() or {}), "ARRAYD_LIBCUDA": "/nonexistent", **library})

    none = made("none", {"ARRAYD_LIBNVRTC": "/nonexistent"}, "sm_80")
    assert none.returncode == 0 and "no kernels" in none.stderr and not any((tmp_path / "none").iterdir())
    assert made("none", {}).returncode == 2
    if fake_gpu() is None:
        pytest.skip("no fake NVRTC in this build")
    done = made("some", {}, "sm_80", "sm_90")
    assert done.returncode == 0 and not done.stderr, done.stderr
    files = [f for f in (tmp_path / "some").rglob("*") if f.is_file()]
    assert len(files) >= 8 and all(f.stat().st_mode & 0o077 == 0o044 for f in files)  # a pack and three machines for each


@pytest.mark.in_turn
def test_the_image_has_what_the_daemon_is_linked_with():
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)', pathlib.Path("/etc/os-release").read_text(), re.M))
    if release.get("VERSION_CODENAME") not in stages()["cpu"][0]:
        pytest.skip("not the release that the images are made from")
    programs = [find_binary(), f"{find_binary()}-file"]
    needed = "".join(subprocess.run(["readelf", "-d", p], capture_output=True, text=True, check=True).stdout for p in programs)
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", needed)) - {"libasan.so.8", "libubsan.so.1", "libtsan.so.2"}
    libraries = "".join(subprocess.run(["ldd", p], capture_output=True, text=True, check=True).stdout for p in programs)
    owners = set()
    for name, path in re.findall(r"^\s*(\S+) => (/\S+)", libraries, re.M):
        if name in needed:
            path = os.path.realpath(path)  # which dpkg may know without the /usr
            known = [subprocess.run(["dpkg", "-S", p], capture_output=True, text=True).stdout
                     for p in (path, path.removeprefix("/usr"))]
            owners.add("".join(known).split(":")[0])
    assert owners - {"libc6", "libgcc-s1"} == set(packages("run_packages"))


# --- the configuration files ---

def test_the_example_is_understood(tmp_path):
    conf = read("arrayd.conf")
    understood(conf, tmp_path)
    settings(conf)
    settings(re.sub(r"^# (?=[a-z-]+ = )", "", conf, flags=re.M))  # what is commented out, too


def test_the_image_s_is_understood(tmp_path):
    understood(read("container.conf"), tmp_path)
    conf = settings(read("container.conf"))
    assert conf["listen"] == ["0.0.0.0:7411"] and "arrayd" in conf["allowed-host"]
    written = [*conf["state-dir"], *conf["kernel-cache"]]
    volumes = json.loads(dict(stages()["cpu"][1])["VOLUME"])
    assert all(any(path.startswith(v + "/") for v in volumes) for path in written)


# --- compose ---

@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load(read("compose.yaml"))


def test_compose_names_what_is_there(compose):
    for name, service in compose["services"].items():
        assert service["restart"] in ("on-failure", "unless-stopped")
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert (DEPLOY / source).is_file() if source.startswith("./") else source in compose["volumes"], volume
        assert set(service.get("secrets", ())) <= set(compose["secrets"])
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert name == "arrayd" or re.search(r":v?\d+\.\d+", service["image"]), "a version, not latest"
    arrayd = compose["services"]["arrayd"]
    assert arrayd["read_only"] is True and arrayd["cap_drop"] == ["ALL"]
    assert (DEPLOY / arrayd["build"]["context"]).resolve() == REPO
    assert re.search(r":-(\w+)", arrayd["build"]["target"])[1] in stages()
    secret, = arrayd["secrets"]
    assert settings(read("container.conf"))["accounts"] == [f"/run/secrets/{secret}"]


def test_the_health_check_of_compose(compose, daemon):
    first, *rest = compose["services"]["arrayd"]["healthcheck"]["test"]
    assert first == "CMD"

    def healthy(port):
        command = [part.replace("/7412", f"/{port}").replace("$$", "$") for part in rest]
        return subprocess.run(command, capture_output=True, timeout=10).returncode == 0

    assert healthy(daemon.port)
    assert not healthy(1)


def test_prometheus_asks_arrayd(compose):
    prometheus = yaml.safe_load(read("prometheus.yaml"))
    job, = prometheus["scrape_configs"]
    target, = job["static_configs"][0]["targets"]
    host, port = target.split(":")
    assert host in compose["services"] and host in settings(read("container.conf"))["allowed-host"]
    assert settings(read("container.conf"))["admin-listen"] == [f"0.0.0.0:{port}"]
    assert not any(port in published for published in compose["services"][host]["ports"])
    mounted = {v.split(":")[1] for v in compose["services"]["prometheus"]["volumes"]}
    assert all(f"/etc/prometheus/{rules}" in mounted for rules in prometheus["rule_files"])


def test_grafana_finds_its_dashboard(compose):
    source, = yaml.safe_load(read("grafana/datasources.yaml"))["datasources"]
    provider, = yaml.safe_load(read("grafana/dashboards.yaml"))["providers"]
    dashboard = json.loads(read("grafana/arrayd.json"))
    mounted = {v.split(":")[1] for v in compose["services"]["grafana"]["volumes"]}
    assert f"{provider['options']['path']}/arrayd.json" in mounted
    assert source["url"].split("/")[-1].split(":")[0] in compose["services"]
    used = set(re.findall(r'"datasource": \{\s*"type": "prometheus",\s*"uid": "(\w+)"', read("grafana/arrayd.json")))
    assert used == {source["uid"]}
    ids = [p["id"] for p in dashboard["panels"]]
    assert len(ids) == len(set(ids)) > 20
    taken = set()  # panels do not lie on each other
    for p in dashboard["panels"]:
        g = p["gridPos"]
        cells = {(x, y) for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])}
        assert not cells & taken and g["x"] + g["w"] <= 24
        taken |= cells


# --- the queries ---

def queries():
    for p in json.loads(read("grafana/arrayd.json"))["panels"]:
        for target in p.get("targets", ()):
            yield p["title"], target["expr"], target["legendFormat"]
    for group in yaml.safe_load(read("alerts.yaml"))["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["summary"] and rule["annotations"]["description"]
            yield rule["alert"], rule["expr"], " ".join(rule["annotations"].values()).replace("$labels.", "")


@pytest.fixture
def exposed(gpu_with, tmp_path):
    """name → labels of everything that /metrics may have: a daemon on a GPU that has done some work."""
    c = gpu_with("--state-dir", tmp_path / "state").client()
    c.expect(200, c.post("/v1/evaluate", {"expr": "sum(0.5 * 2)", "inline": True}))
    deadline = time.monotonic() + 10
    while "arrayd_gpu_ecc_errors_total" not in (found := metrics(c)) and time.monotonic() < deadline:
        time.sleep(0.05)
    c.close()
    return {name: {label for labels in samples for label in re.findall(r'(\w+)="', labels)}
            for name, samples in found.items()}


def test_every_query_is_about_what_is_measured(exposed):
    exposed["up"] = {"job", "instance"}
    checked = 0
    for title, expr, legend in queries():
        for opening, closing in ("()", "{}", "[]"):
            assert expr.count(opening) == expr.count(closing), expr
        names = set(re.findall(r"\b(?:arrayd_\w+|up)\b", expr))
        assert names, title
        assert names <= set(exposed), f"{title}: {sorted(names - set(exposed))}"
        labels = set().union(*(exposed[name] for name in names)) | {"job", "instance"}
        asked = {label.strip() for by in re.findall(r"\bby \(([^)]*)\)", expr) for label in by.split(",")}
        asked |= set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", expr)) | set(re.findall(r"\{\{\s*(\w+)\s*\}\}", legend))
        assert asked <= labels, f"{title}: {sorted(asked - labels)}"
        for name in re.findall(r"\b(?:rate|increase)\((\w+)", expr):
            assert name.endswith(("_total", "_bucket", "_sum", "_count")), f"{title}: {name} is no counter"
        checked += 1
    assert checked > 40


# --- Kubernetes ---

MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))


@pytest.fixture(scope="module")
def manifests():
    return {d["kind"]: d for path in MANIFESTS for d in yaml.safe_load_all(path.read_text())}


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda p: p.name)
def test_the_manifests_are_kubernetes_own(path):
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    for document in yaml.safe_load_all(path.read_text()):
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_the_pod_is_what_arrayd_needs(manifests, tmp_path, daemon_with):
    spec = manifests["StatefulSet"]["spec"]
    pod, = [spec["template"]["spec"]]
    container, = pod["containers"]
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    assert spec["serviceName"] == manifests["Service"]["metadata"]["name"]
    assert manifests["Service"]["spec"]["selector"] == spec["selector"]["matchLabels"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                            "capabilities": {"drop": ["ALL"]}}
    user = dict(stages()["cpu"][1])["USER"].split(":")
    assert [str(pod["securityContext"][k]) for k in ("runAsUser", "runAsGroup")] == user
    # Whatever is mounted is declared; whatever is written lies in a volume.
    volumes = {v["name"] for v in pod["volumes"]} | {v["metadata"]["name"] for v in spec["volumeClaimTemplates"]}
    mounts = {m["mountPath"]: m for m in container["volumeMounts"]}
    assert {m["name"] for m in mounts.values()} == volumes
    conf = manifests["ConfigMap"]["data"]["arrayd.conf"]
    understood(conf, tmp_path)
    conf = settings(conf)
    for path in (*conf["state-dir"], *conf["kernel-cache"]):
        mount, = [m for p, m in mounts.items() if path.startswith(p + "/")]
        assert not mount.get("readOnly")
    assert any(conf["accounts"][0].startswith(p + "/") for p in mounts)
    # The end: the snapshot and the open requests fit into the time that is given.
    drain = float(re.search(r"--drain-timeout .*\n.*default: (\d+)", HELP)[1])
    assert pod["terminationGracePeriodSeconds"] >= drain + float(conf["state-timeout"][0]) + 30
    # The probes, as the kubelet sends them: to the pod's address.
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}
    assert conf["listen"] == [f"0.0.0.0:{ports['http']}"] and conf["admin-listen"] == [f"0.0.0.0:{ports['admin']}"]
    assert spec["template"]["metadata"]["annotations"]["prometheus.io/port"] == str(ports["admin"])
    d = daemon_with("--admin-listen", "0.0.0.0:0")
    c = Client("127.0.0.1", d.admin_port, CONTRACT)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        get = container[probe]["httpGet"]
        assert get["port"] == "admin"
        assert c.get(get["path"], headers={"Host": f"10.1.2.3:{ports['admin']}"}).status == 200
    c.close()


# --- systemd, the man page, meson install ---

@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The tree that `meson install` makes, of this build folder."""
    if not (BUILD / "deploy/arrayd.1").exists() or not shutil.which("meson"):
        pytest.skip("not the whole build is there")
    root = tmp_path_factory.mktemp("installed")
    done = subprocess.run(["meson", "install", "-C", str(BUILD), "--no-rebuild", "--destdir", str(root)],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return root


def test_what_is_installed(installed, tmp_path):
    there = {p.relative_to(installed).as_posix() for p in installed.rglob("*") if p.is_file()}
    assert {"usr/local/bin/arrayd", "usr/local/share/man/man1/arrayd.1", "usr/local/etc/arrayd/arrayd.conf.example",
            "usr/local/lib/systemd/system/arrayd.service", "usr/local/lib/sysusers.d/arrayd.conf",
            "usr/local/share/doc/arrayd/docs/operating.md", "usr/local/share/doc/arrayd/openapi.yaml",
            "usr/local/share/doc/arrayd/examples/arrayd.json", "usr/local/share/doc/arrayd/examples/files.conf"} <= there
    assert not pathlib.Path(f"{find_binary()}-file").exists() or "usr/local/bin/arrayd-file" in there
    assert not [name for name in there if re.search(r"(test_|fuzz|bench|example-|(?<!/libarrayd)\.a$)", name)]
    skip_without("libmicrohttpd")  # nor does the loader find it
    done = subprocess.run([installed / "usr/local/bin/arrayd", "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("arrayd ")


def test_the_man_page(installed):
    page = (installed / "usr/local/share/man/man1/arrayd.1").read_text()
    assert "@" not in page
    told = {name.replace("\\-", "-") for name in re.findall(r"^\.BI \\-\\-(\S+)", page, re.M)}
    assert told == set(OPTIONS)
    for name in OPTIONS:  # with what the help says of it
        said = re.search(rf"^  --{name}(?: \S+)?\n        (.*)$", HELP, re.M)[1]
        assert said in page.replace("\\-", "-").replace("\\(aq", "'").replace("\\e", "\\"), name
    if not shutil.which("groff"):
        pytest.skip("no groff")
    done = subprocess.run(["groff", "-man", "-ww", "-z", "-K", "utf8"], input=page, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr


@pytest.fixture
def unit(installed, tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze")
    text = (installed / "usr/local/lib/systemd/system/arrayd.service").read_text()
    path = tmp_path / "arrayd.service"
    path.write_text(text.replace("/usr/local/bin", f"{installed}/usr/local/bin"))
    return path


def test_systemd_takes_the_unit(unit):
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True,
                          timeout=60)
    said = [line for line in (done.stdout + done.stderr).splitlines() if "arrayd" in line]
    assert done.returncode == 0 and not said, done.stdout + done.stderr


def test_the_unit_is_as_closed_as_a_gpu_lets_it_be(unit):
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=20", str(unit)],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr  # 2.0 of 10, which is "OK"


def seconds(span):
    number, unit = re.fullmatch(r"(\d+)(m|s|)", str(span)).groups()
    return int(number) * (60 if unit == "m" else 1)


def test_a_stop_is_given_the_time_it_needs(compose, unit):
    """drain-timeout and state-timeout, and half a minute for what is around them."""
    drain = float(re.search(r"--drain-timeout .*\n.*default: (\d+)", HELP)[1])
    example = settings(re.sub(r"^# (?=[a-z-]+ = )", "", read("arrayd.conf"), flags=re.M))
    given = re.search(r"^TimeoutStopSec=(.*)$", unit.read_text(), re.M)[1]
    assert seconds(given) >= drain + float(example["state-timeout"][0]) + 30
    given = compose["services"]["arrayd"]["stop_grace_period"]
    assert seconds(given) >= drain + float(settings(read("container.conf"))["state-timeout"][0]) + 30


def test_the_unit_never_gives_up(unit):
    """systemd lets go of what it stored once it no longer restarts the unit; a long start is not a failed one."""
    sections = dict(re.findall(r"^\[(\w+)\]\n(.*?)(?=^\[|\Z)", unit.read_text(), re.M | re.S))
    assert "\nStartLimitIntervalSec=0\n" in sections["Unit"]
    assert "\nTimeoutStartSec=infinity\n" in sections["Service"]


def test_the_unit_restarts_what_lost_its_device(unit):
    text = unit.read_text()
    status = re.search(r"#define LOST_EXIT +(\d+)", (REPO / "server/lost.h").read_text())[1]
    assert f"RestartForceExitStatus={status}\n" in text and "Restart=on-failure\n" in text
    options = re.findall(r"--([a-z-]+)", re.search(r"^ExecStart=(.*)$", text, re.M)[1])
    assert options and set(options) <= set(OPTIONS)
    conf = settings(read("arrayd.conf"))
    for path in conf["kernel-cache"]:
        assert path.startswith("/var/cache/arrayd") and "CacheDirectory=arrayd\n" in text
    assert any(a.startswith("unix:/run/arrayd/") for a in conf["listen"]) and "RuntimeDirectory=arrayd\n" in text


def test_the_doctor_reads_what_is_installed(installed, tmp_path):
    """The example with folders and a socket of this test's."""
    conf = (installed / "usr/local/etc/arrayd/arrayd.conf.example").read_text()
    conf = conf.replace("/run/arrayd", str(tmp_path)).replace("/var/cache/arrayd", str(tmp_path / "cache"))
    conf = conf.replace("127.0.0.1:7411", "127.0.0.1:0")
    (tmp_path / "arrayd.conf").write_text(conf)
    found = checks("--config", tmp_path / "arrayd.conf", "--backend", "cpu")
    assert [c["status"] for c in find(found, "listen")] == ["ok"]  # --listen of the command line wins


# --- the image's own steps, in the long run ---

@pytest.mark.slow
def test_nvrtc_is_fetched(tmp_path):
    done = subprocess.run([DEPLOY / "nvrtc", tmp_path / "nvrtc"], capture_output=True, text=True, timeout=600)
    if "pip" in done.stderr or "No matching distribution" in done.stderr:
        pytest.skip("pip found no package")
    assert done.returncode == 0, done.stderr
    name = dict(re.findall(r"(\w+)=(\S+)", dict(stages()["cuda"][1])["ENV"]))["ARRAYD_LIBNVRTC"].split("/")[-1]
    library = ctypes.CDLL(str(tmp_path / "nvrtc" / name))
    major, minor = ctypes.c_int(), ctypes.c_int()
    assert library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0
    assert f"=={major.value}.{minor.value}." in read("lib.sh")
    assert list((tmp_path / "nvrtc").glob("libnvrtc-builtins.so.*")) and (tmp_path / "nvrtc/LICENSE.nvrtc").exists()


def run_in(root, command, user="0:0"):
    mounted = f"mount --rbind /proc {root}/proc && mount --rbind /dev {root}/dev && exec \"$@\""
    return subprocess.run(["unshare", "--mount", "sh", "-c", mounted, "sh", "chroot", f"--userspec={user}", str(root), *command], capture_output=True, text=True,
                          timeout=300, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/"})


@pytest.mark.slow
def test_the_steps_of_the_image_in_a_chroot(installed, tmp_path, accounts):
    """The instructions of the stage `cpu`, over a system from debootstrap; then its user runs what is there."""
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        pytest.skip("needs root and debootstrap")
    base, steps = stages()["cpu"]
    release = re.search(r"debian:(\w+)-slim", base)[1]
    root = tmp_path / "root"
    done = subprocess.run(["debootstrap", "--variant=minbase", release, str(root)], capture_output=True, text=True,
                          timeout=900)
    if done.returncode:
        pytest.skip("debootstrap found no packages")
    (root / "src/deploy").mkdir(parents=True)
    shutil.copy(DEPLOY / "lib.sh", root / "src/deploy")
    for word, rest in steps:
        if word == "RUN":
            done = run_in(root, ["sh", "-c", re.sub(r"--mount=\S+ ", "", rest)])
            assert done.returncode == 0, done.stdout + done.stderr
        elif word == "COPY" and "--from=build" in rest:
            source, target = rest.split()[1:]
            shutil.copytree(str(installed) + source.removeprefix("/image"), str(root) + target, dirs_exist_ok=True)
        elif word == "COPY":
            source, target = rest.split()
            (root / target[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPO / source, str(root) + target)
    accounts.add("ann", role="operator")
    shutil.copy(accounts.path, root / "run/arrayd-accounts")
    os.chmod(root / "run/arrayd-accounts", 0o644)
    settled = dict(steps)
    binary, = json.loads(settled["ENTRYPOINT"])
    options = [*json.loads(settled["CMD"]), "--accounts", "/run/arrayd-accounts", "--listen", "0.0.0.0:0",
               "--backend", "cpu"]
    done = run_in(root, [binary, "doctor", *options], settled["USER"])
    assert done.returncode == 0 and " 0 failed" in done.stdout, done.stdout + done.stderr
    assert "arrayd-file opens files, confined by Landlock and seccomp" in done.stdout

"""Seen from outside: the figures of GPUs, the log line of a request."""
import json
import re
import socket
import time

import pytest

from client import Client
from conftest import CONTRACT
from test_framing import ask, request

SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)')


def metrics(c):
    """name → {labels: value} of /metrics."""
    found = {}
    for line in c.expect(200, c.get("/metrics")).body.decode().splitlines():
        if not line.startswith("#"):
            name, labels, value = SAMPLE.fullmatch(line).groups()
            found.setdefault(name, {})[labels or ""] = float(value)
    return found


def sampled(c, name, seconds=10):
    """The same, once there is that figure: it is taken by a thread of its own."""
    deadline = time.monotonic() + seconds
    while name not in (found := metrics(c)):
        assert time.monotonic() < deadline, f"no {name} in {sorted(found)}"
        time.sleep(0.02)
    return found


# --- GPUs ---

@pytest.fixture
def fake_with(gpu_with, monkeypatch):
    monkeypatch.delenv("ARRAYD_REAL_GPU", raising=False)
    return lambda *args, **environment: gpu_with(*args, environment=environment).client()


def test_figures_of_the_gpus(fake_with):
    c = fake_with(ARRAYD_FAKE_DEVICES="2")
    found = sampled(c, "arrayd_gpu_ecc_errors_total")
    while len(found["arrayd_gpu_ecc_errors_total"]) < 4:  # the second comes a moment later
        found = metrics(c)
    assert found["arrayd_gpu_temperature_celsius"] == {'device="0"': 41, 'device="1"': 42}
    assert found["arrayd_gpu_power_watts"] == {'device="0"': 123.5, 'device="1"': 124}
    assert found["arrayd_gpu_utilization_ratio"] == {'device="0"': 0.51, 'device="1"': 0.52}
    assert found["arrayd_gpu_memory_utilization_ratio"]['device="0"'] == 0.25
    assert found["arrayd_gpu_memory_used_bytes"]['device="1"'] == 1 << 30
    assert found["arrayd_gpu_clock_hertz"]['device="0"'] == 1.5e9
    assert found["arrayd_gpu_ecc_errors_total"] == {
        'device="0",kind="corrected"': 7, 'device="0",kind="uncorrected"': 0,
        'device="1",kind="corrected"': 7, 'device="1",kind="uncorrected"': 1}
    assert abs(found["arrayd_gpu_sampled_timestamp_seconds"]['device="0"'] - time.time()) < 30
    c.close()


def test_a_gpu_without_sensors_has_no_figures(fake_with):
    c = fake_with(ARRAYD_FAKE_NVML="blind")
    found = sampled(c, "arrayd_gpu_sampled_timestamp_seconds")
    assert [name for name in found if name.startswith("arrayd_gpu_")] == ["arrayd_gpu_sampled_timestamp_seconds"]
    c.close()


@pytest.mark.parametrize("environment", [{"ARRAYD_LIBNVML": "/nowhere/libnvidia-ml.so.1"},
                                         {"ARRAYD_FAKE_NVML": "gone"}])
def test_without_nvml_nothing_else_is_missing(fake_with, environment):
    c = fake_with(**environment)
    assert not [name for name in metrics(c) if name.startswith("arrayd_gpu_")]
    c.put("/v1/arrays/u?dtype=float64&shape=2", body=b"\0" * 16, content_type="application/octet-stream")
    assert c.get("/v1/arrays/u/data").status == 200
    c.close()


def test_a_gpu_that_does_not_answer_holds_up_nobody(fake_with):
    """Neither the figures nor the end of the daemon, which the fixture waits for."""
    c = fake_with(ARRAYD_FAKE_NVML="hang")
    for _ in range(3):
        begun = time.monotonic()
        assert "arrayd_gpu_temperature_celsius" not in metrics(c)
        assert time.monotonic() - begun < 5
    c.close()


# --- the addresses for those who watch ---

def test_admin_addresses_serve_health_and_metrics_alone(daemon_with, accounts):
    accounts.add("ann")
    d = daemon_with("--accounts", accounts.path, "--max-connections", "1", "--admin-listen", "127.0.0.1:0")
    taken = socket.create_connection((d.host, d.port))  # all that there may be
    admin = Client(d.host, d.admin_port, CONTRACT)
    for path in ("/healthz", "/readyz", "/metrics"):
        assert admin.get(path).status == 200
    assert "arrayd_http_connections" in metrics(admin)
    for path in ("/v1/info", "/openapi.json", "/v1/arrays/u"):
        admin.fails(404, "not_found", admin.get(path, check=False))  # of no path's contract
    admin.fails(404, "not_found", admin.post("/v1/evaluate", {"expr": "1"}))
    admin.fails(403, "forbidden", admin.get("/metrics", headers={"Host": "evil.example"}))
    admin.close()
    taken.close()
    c = Client(d.host, d.port, CONTRACT)  # elsewhere the figures are an operator's
    deadline = time.monotonic() + 10
    while (r := c.get("/metrics")).status != 401 and time.monotonic() < deadline:
        time.sleep(0.01)
    c.fails(401, "unauthorized", r)
    c.close()


def test_admin_addresses_need_no_accounts(daemon_with):
    """Others may reach them, for there is nothing to take; a page with a name of its own may not ask."""
    d = daemon_with("--admin-listen", "0.0.0.0:0", "--admin-listen", "127.0.0.1:0")
    assert re.search(r"admin_listen=0\.0\.0\.0:\d+,127\.0\.0\.1:\d+ ", d.log())
    c = Client("127.0.0.1", d.admin_port, CONTRACT)
    assert c.get("/healthz", headers={"Host": "10.0.0.7:80"}).status == 200
    c.fails(403, "forbidden", c.get("/healthz", headers={"Host": "evil.example"}))
    c.close()


# --- names ---

def test_names_follow_prometheus_rules(fake_with, tmp_path):
    """promtool's lint: a counter ends in _total and nothing else does, units are base units, every family
    has one HELP before one TYPE before its samples, a histogram's buckets rise to +Inf, its count."""
    c = fake_with("--allow-export", "--listen", "127.0.0.1:0", "--listen", f"unix:{tmp_path}/arrayd.sock")
    sampled(c, "arrayd_gpu_temperature_celsius")
    text = c.expect(200, c.get("/metrics")).body.decode()
    c.close()
    family, kind, helped, seen, buckets = None, None, None, set(), {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            helped, sentence = line[7:].split(" ", 1)
            assert sentence[0].isupper() and sentence.endswith("."), line
            continue
        if line.startswith("# TYPE "):
            family, kind = line[7:].split(" ")
            assert family == helped and family not in seen and family.startswith("arrayd_"), line
            assert (kind == "counter") == family.endswith("_total"), line
            assert not re.search(r"_(ms|us|ns|milli\w+|percent|kib|mib|gib|kb|mb|mhz|count|bucket|sum)(_total)?$", family)
            seen.add(family)
            continue
        name, labels, value = SAMPLE.fullmatch(line).groups()
        assert re.sub(r"_(bucket|sum|count)$", "", name) == family if kind == "histogram" else name == family, line
        if name.endswith("_bucket"):
            where, le = re.fullmatch(r'(.*),le="(.*)"', labels).groups()
            buckets.setdefault(where, []).append((float(le), float(value)))
        elif kind == "histogram" and name.endswith("_count"):
            assert sorted(buckets[labels]) == buckets[labels] and buckets[labels][-1] == (float("inf"), float(value))
            counts = [n for _, n in buckets[labels]]
            assert counts == sorted(counts)
    assert len(seen) > 40 and buckets


# --- principals ---

def test_what_principals_use(two_with):
    """Each has figures of his own, device time of queued work among them, and of programs."""
    ann, bob = two_with("--inline-elements", "0")
    ann.expect(201, ann.put("/v1/arrays/u?dtype=float64&shape=100000", body=b"\0" * 800000,
                            content_type="application/octet-stream"))
    ann.expect(200, ann.post("/v1/evaluate", {"expr": "exp(sin(u)) + 1", "out": "u"}))
    assert ann.get("/v1/arrays/u/data").status == 200
    now = metrics(ann)
    of = {name: {key.split('"')[1]: v for key, v in found.items()} for name, found in now.items()
          if name.startswith("arrayd_principal_")}
    assert of["arrayd_principal_memory_bytes"]["ann"] >= 800000
    assert of["arrayd_principal_bytes_in_total"]["ann"] >= 800000 <= of["arrayd_principal_bytes_out_total"]["ann"]
    assert of["arrayd_principal_requests_total"]["ann"] == 3 and of["arrayd_principal_arrays"]["ann"] == 1
    assert 0 < of["arrayd_principal_device_seconds_total"]["ann"] < 60
    assert all(found.get("bob", 0) in (0, 1) for found in of.values())  # his default session, if any
    assert of["arrayd_principal_device_seconds_total"].get("bob", 0) == 0

    worked = of["arrayd_principal_device_seconds_total"]["ann"]
    r = ann.expect(200, ann.post("/v1/programs?wait=1", {"steps": 50, "body": ["u = cos(u)"]}))
    assert r.json()["state"] == "done"
    now = metrics(bob)  # whoever asks
    assert now["arrayd_principal_device_seconds_total"]['principal="ann"'] > worked
    sid = ann.expect(201, ann.post("/v1/sessions", {})).json()["id"]
    ann.expect(204, ann.delete(f"/v1/sessions/{sid}"))  # what it has taken stays
    assert metrics(bob)["arrayd_principal_device_seconds_total"]['principal="ann"'] > worked


# --- the log ---

def test_only_what_w3c_calls_one_is_a_traceparent(daemon_with):
    """What is none is ignored, as the standard asks: it does not even raise the level of the line."""
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    good = [f"00-{trace}-{parent}-01", f"00-{trace}-{parent}-00", f"42-{trace}-{parent}-01-more",
            f"42-{trace}-{parent}-01"]
    bad = [f"00-{trace}-{parent}", f"00-{trace}-{parent}-01-more", f"ff-{trace}-{parent}-01", "nonsense",
           f"00-{trace.upper()}-{parent}-01", f"00-{'0' * 32}-{parent}-01", f"00-{trace}-{'0' * 16}-01",
           f"00-{trace[:-1]}-{parent}-01", f"00-{trace}a-{parent}-01", f"00-{trace}-{parent}-0g",
           f"42-{trace}-{parent}-01more", ""]
    d = daemon_with("--log-json")
    c = d.client()
    for value in (*good, *bad):
        c.expect(200, c.get("/healthz", headers={"traceparent": value}))
    c.close()
    d.stop()
    lines = [json.loads(line) for line in d.log().splitlines()]
    assert [entry["traceparent"] for entry in lines if entry["message"] == "request"] == good


def test_the_line_of_a_request(daemon_with):
    d = daemon_with("--log-json")
    c = d.client()
    c.expect(201, c.put("/v1/arrays/u?dtype=float64&shape=1000", body=b"\0" * 8000,
                        content_type="application/octet-stream"))
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    r = c.expect(200, c.post("/v1/evaluate", {"expr": "sum(u + 1)", "inline": True},
                             headers={"traceparent": parent}))
    c.close()
    d.stop()
    lines = [json.loads(line) for line in d.log().splitlines()]
    line, = (entry for entry in lines if entry["message"] == "request")
    assert line["id"] == r.headers["X-Request-Id"] and line["traceparent"] == parent
    assert line["principal"] == "local" and line["path"] == "/v1/evaluate" and line["method"] == "POST"
    assert int(line["status"]) == 200 and int(line["bytes_in"]) > 20 and int(line["bytes_out"]) == len(r.body)
    assert 0 <= float(line["device_ms"]) <= float(line["ms"])


def test_device_time_of_all_steps(daemon_with):
    """A picture is made in several: in the first most work is done; a result that is shown has its own before it."""
    d = daemon_with("--log-json", "--log-requests")
    c = d.client()
    c.create(name="u", shape=[2001, 1501], random={"distribution": "uniform", "seed": 1}, dtype="float64")

    def took(f):
        timing = c.expect(200, f()).headers["Server-Timing"]
        ms, total = (float(re.search(rf"\b{name};dur=([\d.]+)", timing)[1]) for name in (c.device, "total"))
        assert total / 20 < ms <= total, timing
        return ms

    ms = [took(lambda: c.get("/v1/arrays/u/data?width=100", accept="image/png")),
          took(lambda: c.post("/v1/evaluate?width=100", {"expr": "lgamma(u)"}, accept="image/png"))]
    c.close()
    d.stop()
    lines = [json.loads(line) for line in d.log().splitlines()]
    logged = [float(entry["device_ms"]) for entry in lines if entry["message"] == "request" and entry["path"].startswith(("/v1/arrays/u/data", "/v1/evaluate"))]
    assert logged == pytest.approx(ms, abs=0.01)


def test_a_line_for_every_request(daemon_with):
    """Asked for, each request has one, at the usual level: those without a principal and errors too."""
    d = daemon_with("--log-json", "--log-requests")
    c = d.client()
    c.expect(200, c.get("/healthz"))
    c.expect(201, c.put("/v1/arrays/u?dtype=float64&shape=1000", body=b"\0" * 8000,
                        content_type="application/octet-stream"))
    r = c.expect(200, c.post("/v1/evaluate", {"expr": "sum(u + 1)", "inline": True}))
    c.fails(404, "not_found", c.get("/v1/arrays/nobody"))
    c.close()
    d.stop()
    lines = [json.loads(line) for line in d.log().splitlines()]
    lines = [entry for entry in lines if entry["message"] == "request"]
    assert [(entry["method"], entry["path"], int(entry["status"])) for entry in lines] == [
        ("GET", "/healthz", 200), ("PUT", "/v1/arrays/u", 201), ("POST", "/v1/evaluate", 200),
        ("GET", "/v1/arrays/nobody", 404)]
    assert all(entry["level"] == "info" and entry["traceparent"] == "" for entry in lines)
    assert len({entry["id"] for entry in lines}) == 4
    assert [entry["principal"] for entry in lines[1:]] == ["local"] * 3
    put, line = lines[1:3]
    assert int(put["bytes_in"]) == 8000 and int(put["bytes_out"]) > 0
    assert line["id"] == r.headers["X-Request-Id"] and int(line["bytes_out"]) == len(r.body)
    assert int(line["bytes_in"]) > 20 and 0 <= float(line["device_ms"]) <= float(line["ms"])


def test_every_line_is_whole(daemon_with):
    """However long what a client sends is: what is shortened shows it, and nothing behind it is lost."""
    d = daemon_with("--log-json", "--log-requests")
    n = 0
    for length in (10, 199, 200, 201, 3900, 4000, 4096, 60000):
        for what in (b"A", b'"', b"\\", b"%C3%A9"):
            path = b"/" + what * (length // len(what))
            for line in (b"GET %s HTTP/1.1" % path, b"POST %s HTTP/1.1" % path):
                extra = () if line.startswith(b"GET") else (b"Transfer-Encoding: x",)
                ask(d, request(line, b"Host: localhost", b"Connection: close", *extra))
                n += 1
    d.stop()
    lines = [json.loads(line) for line in d.log().splitlines()]
    lines = [entry for entry in lines if entry["message"] == "request"]
    assert len(lines) == n and all(entry["status"].isdigit() and "device_ms" in entry for entry in lines)
    assert all((len(entry["path"]) == 201) == entry["path"].endswith("\u2026") for entry in lines)
    assert {entry["path"][-1] for entry in lines if entry["path"].startswith("/AAA")} == {"A", "\u2026"}
    assert max(map(len, d.log().splitlines())) < 1000


def test_tokens_that_nobody_has_leave_a_line(daemon_with, accounts):
    """One, whoever tries how often; those since are counted in the next."""
    accounts.add("ann")
    d = daemon_with("--accounts", accounts.path, "--log-json")
    c = d.client(always={"Authorization": "Bearer arrayd_" + "A" * 32})
    for _ in range(20):
        c.fails(401, "unauthorized", c.get("/v1/info"))
    c.close()
    lines = [json.loads(line) for line in d.log().splitlines()]
    line, = (entry for entry in lines if "tokens" in entry["message"])
    assert (line["level"], line["count"], line["last_from"]) == ("info", "1", "127.0.0.1")
    d.stop()
    lines = [json.loads(line) for line in d.log().splitlines()]
    assert [entry["count"] for entry in lines if "tokens" in entry["message"]] == ["1", "19"]
    assert "arrayd_AAA" not in d.log()

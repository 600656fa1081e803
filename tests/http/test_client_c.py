"""clients/c: its examples, its README, and tests/clients/client_c.c against daemons and what is none."""
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import threading

import numpy as np
import pytest

from client import REPO
from conftest import fake_gpu, find_binary, skip_without, until
from stand_in import no_reader, options
from test_files import air
from test_tls import make_certificate

BUILD = pathlib.Path(find_binary()).resolve().parents[1]
EXAMPLES = BUILD / "clients/c"
README = REPO / "clients/c/README.md"

pytestmark = pytest.mark.skipif(not (BUILD / "tests/clients/client_c").exists(), reason="a build without the C client")


def run(program, *args, expected=0, **environment):
    done = subprocess.run([BUILD / program, *map(str, args)], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **environment})
    assert done.returncode == expected, done.stdout[-2000:] + done.stderr[-6000:]
    return done.stdout


def scenario(name, address, *args, **environment):
    return run("tests/clients/client_c", name, address, *args, **environment)


@pytest.fixture
def address(daemon, api):  # api: what was made is deleted, and all memory is back
    return f"http://{daemon.host}:{daemon.port}"


@pytest.mark.parametrize("name", ["sessions", "arrays", "data", "npy", "evaluate", "mistakes", "jobs", "request",
                                  "threads", "large"])
def test_against_a_daemon(address, tmp_path, name):
    scenario(name, address, tmp_path)


@pytest.mark.parametrize("name", ["grids", "layouts", "figures", "pictures", "changes", "list_changes", "leases", "no_export"])
def test_access(address, name):
    run("tests/clients/client_c_access", name, address)


def test_exports(daemon_with, tmp_path):
    d = daemon_with("--backend", "cpu", "--listen", f"unix:{tmp_path}/a.sock", "--allow-export")
    run("tests/clients/client_c_access", "exports", f"unix:{d.unix}")


def test_exports_on_cuda(daemon_with, tmp_path):
    environment = fake_gpu() or pytest.skip("no fake driver in this build, or no g++")
    d = daemon_with("--backend", "cuda", "--listen", f"unix:{tmp_path}/a.sock", "--allow-export", environment=environment)
    run("tests/clients/client_c_access", "exports_cuda", f"unix:{d.unix}")


def test_exports_of_no_daemon(daemon_with, tmp_path):
    """Who hands descriptors over says something else than a descriptor, or nothing."""
    for line, told in ((b"", "connection"), (b"{}\n", "bad_result"), (b"x" * 5000, "bad_result"),
                       (b'{"status": 409, "code": "conflict", "detail": "no"}\n', "conflict")):
        path = tmp_path / f"{told}-{len(line)}.sock.fd"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(path))
            listener.listen()

            def hand_over():
                peer, _ = listener.accept()
                assert peer.recv(100) == b"x-1\n"
                peer.sendall(line)
                peer.close()

            thread = threading.Thread(target=hand_over)
            thread.start()
            body = json.dumps({"token": "x-1", "mode": "read", "kind": "memfd", "size": 8, "offset": 0, "shape": [1], "strides": [1],
                               "dtype": "float64", "device": 0, "socket": str(path), "lease": "l-1", "expires_s": 10}).encode()
            other = Other(reply(201, f"Content-Length: {len(body)}", body))
            assert scenario("fails", other.url, "export").split()[1] == told
            thread.join(30)
            other.end()


def test_shares(daemon_with, accounts):
    ann, bob = accounts.add("ann"), accounts.add("bob")
    accounts.add("o.p@x-y")
    d = daemon_with("--accounts", accounts.path)
    run("tests/clients/client_c_access", "shares", f"http://{d.host}:{d.port}", TOKEN=ann, OTHER=bob)


def test_links_and_an_operator(daemon_with, accounts):
    ann, olga = accounts.add("ann"), accounts.add("olga", role="operator")
    accounts.add("o.p@x-y")
    d = daemon_with("--accounts", accounts.path)
    run("tests/clients/client_c_access", "links", f"http://{d.host}:{d.port}", TOKEN=ann, OTHER=olga)


def test_files(daemon_with, tmp_path):
    air(tmp_path / "air.nc")
    (tmp_path / "a b&c").mkdir()
    d = daemon_with(*options(tmp_path, "--files", f"more={tmp_path}:ro"))
    run("tests/clients/client_c_files", f"http://{d.host}:{d.port}")
    until(lambda: no_reader(d))


def test_over_a_unix_socket(daemon_with, tmp_path):
    d = daemon_with("--listen", f"unix:{tmp_path}/a.sock")
    for name in ("data", "large", "request"):
        scenario(name, f"unix:{d.unix}", http_proxy="http://127.0.0.1:1")
    assert f"cannot connect to {tmp_path}/no.sock" in scenario("fails", f"unix:{tmp_path}/no.sock", "read")


def test_tokens(daemon_with, accounts):
    token = accounts.add("ann")
    d = daemon_with("--accounts", accounts.path)
    url = f"http://{d.host}:{d.port}"
    scenario("sessions", url, TOKEN=token)
    assert scenario("fails", url, "evaluate").startswith("401 unauthorized -1 ")
    assert scenario("fails", url, "upload", TOKEN=token[:-1] + "?").startswith("401 unauthorized -1 ")


def test_over_tls(daemon_with, tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("no openssl to make certificates")
    cert, key = make_certificate(tmp_path, "cert")
    d = daemon_with("--tls-cert", cert, "--tls-key", key)
    url = f"https://{d.host}:{d.port}"
    scenario("data", url, CA_FILE=str(cert))
    assert scenario("fails", url, "read").startswith("0 tls -1 cannot establish a trusted connection to https://")


def test_the_limits_of_a_daemon(daemon_with):
    d = daemon_with("--memory-limit", "64KiB")
    url = f"http://{d.host}:{d.port}"
    assert scenario("fails", url, "upload").startswith("507 out_of_memory -1 ")
    assert scenario("fails", url, "read").startswith("404 not_found -1 there is no array 'a'")


class Other:
    """Somebody who answers one request as he likes."""

    def __init__(self, answer, close=True):
        self.answer, self.close = answer, close
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        self.heads = []
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        connection, _ = self.listener.accept()
        connection.settimeout(30)
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(65536)
        self.heads.append(head)
        connection.sendall(self.answer)
        if self.close:
            connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 20):
            pass
        connection.close()

    def end(self):
        self.thread.join(30)
        self.listener.close()
        assert not self.thread.is_alive()


def reply(status, fields, body=b""):
    return f"HTTP/1.1 {status} X\r\n{fields}\r\n\r\n".encode() + body


OCTETS = "Content-Type: application/octet-stream\r\n"
PROBLEM = b'{"status": 503, "code": "overloaded", "detail": "too much"}'


@pytest.mark.parametrize("how, answer, told", [
    ("read", b"", "0 connection -1 the connection to "),
    ("read", b"good morning\r\n", "0 connection -1 "),
    ("read", reply(200, OCTETS + "Content-Length: 1000", bytes(10)), "0 connection -1 "),
    ("read", reply(200, OCTETS + "Content-Length: 1001", bytes(1001)), "0 bad_result -1 the size of the data differs"),
    ("read", reply(200, OCTETS + "Transfer-Encoding: chunked", b"3e9\r\n" + bytes(1001) + b"\r\n0\r\n\r\n"), "0 bad_result "),
    ("read", reply(200, OCTETS + "Transfer-Encoding: chunked", b"3\r\n123\r\n0\r\n\r\n"), "0 bad_result "),
    ("read", reply(200, "Content-Type: text/html\r\nContent-Length: 1000", bytes(1000)), "0 bad_result -1 the reply is not appl"),
    ("read", reply(302, "Location: http://127.0.0.1:1/\r\nContent-Length: 0"), "302 bad_result -1 "),
    ("evaluate", reply(200, "Content-Type: text/html\r\nContent-Length: 6", b"<html>"), "0 bad_result -1 the reply is not JSON"),
    ("evaluate", reply(201, "Content-Length: 2", b"{}"), "0 bad_result -1 the reply is neither"),
    ("evaluate", reply(201, "Content-Length: 16", b'{"id": "a-12345}'), "0 bad_result "),
    ("evaluate", reply(503, f"Retry-After: 7\r\nContent-Length: {len(PROBLEM)}", PROBLEM), "503 overloaded 7 too much"),
    ("evaluate", reply(502, "Content-Length: 3", b"no!"), "502 bad_result -1 "),
    ("evaluate", reply(500, "Content-Length: 200000", bytes(200000)), "500 bad_result -1 "),
    ("upload", b"", "0 connection -1 "),
    ("upload", reply(503, f"Retry-After: 1\r\nConnection: close\r\nContent-Length: {len(PROBLEM)}", PROBLEM), "503 overloaded 1 "),
], ids=map(str, range(16)))
def test_what_is_no_daemon(how, answer, told):
    other = Other(answer)
    said = scenario("fails", other.url, how)
    other.end()
    assert said.startswith(told)


def events(*texts):
    return reply(200, "Content-Type: text/event-stream\r\nConnection: close", "".join(texts).encode())


def event(name, data):
    return f"event: {name}\nid: e-1\ndata: {json.dumps(data)}\n\n"


FRAME = {"range": [0, 1], "bytes": 4, "png": "AAECAw=="}


@pytest.mark.parametrize("how, answer, told", [
    ("frames", events(event("frame", FRAME), "event: frame\ndata: {"), "0 connection -1 the events ended too early"),
    ("frames", events(event("frame", FRAME), event("end", {"reason": "stopping"})), "0 connection -1 the daemon stops"),
    ("frames", events(event("end", {"reason": "not_shared"})), "404 not_found -1 the array is no longer shared"),
    ("lists", events(event("end", {"reason": "login_ended"})), "401 unauthorized -1 "),
    ("lists", events(event("end", {"reason": "out_of_memory"})), "507 out_of_memory -1 "),
    ("frames", events(event("error", {"status": 422, "code": "bad_index", "detail": "no such row"})), "422 bad_index -1 no such row"),
    ("frames", events(event("frame", {**FRAME, "bytes": 5})), "0 bad_result -1 an event is not "),
    ("frames", events(event("frame", {**FRAME, "png": "AAECA!=="})), "0 bad_result "),
    ("frames", events(event("frame", {**FRAME, "png": "AAECA"})), "0 bad_result "),
    ("frames", events(event("frame", {**FRAME, "range": [0]})), "0 bad_result "),
    ("frames", events("event: frame\r\ndata: {\r\n\r\n"), "0 bad_result "),
    ("lists", events(event("arrays", {"arrays": [{}], "gone": [], "written": [], "first": True, "more": False})), "0 bad_result "),
    ("lists", events(event("jobs", {"jobs": [], "gone": [7], "first": True, "more": False})), "0 bad_result "),
    ("lists", events(event("jobs", {"jobs": [], "gone": [], "first": True, "more": False})), "0 connection -1 the events ended"),
    ("lists", reply(200, "Content-Type: application/json\r\nContent-Length: 2", b"{}"), "0 bad_result -1 the reply is not text/event-stream"),
    ("lists", reply(503, f"Retry-After: 7\r\nContent-Length: {len(PROBLEM)}", PROBLEM), "503 overloaded 7 too much"),
], ids=map(str, range(16)))
def test_events_that_go_wrong(how, answer, told):
    other = Other(answer)
    said = scenario("fails", other.url, how)
    other.end()
    assert said.startswith(told)


def test_nobody_there():
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    assert scenario("fails", f"http://127.0.0.1:{port}", "read").startswith("0 connection -1 cannot connect to http")
    assert scenario("fails", "http://[::1", "read").startswith("0 bad_argument ")


def test_the_client_s_time():
    other = Other(b"", close=False)
    assert scenario("fails", other.url, "read", TIMEOUT_MS="150").startswith(f"0 timeout -1 {other.url} did not reply in time")
    other.end()


def test_what_is_sent():
    other = Other(b"")
    scenario("fails", other.url, "upload", TOKEN="secret", SESSION="s-1234")
    other.end()
    head = other.heads[0].decode()
    assert head.startswith("POST /v1/arrays?dtype=uint8&shape=1048576 HTTP/1.1\r\n")
    for field in ("Authorization: Bearer secret", "Arrayd-Session: s-1234", "Content-Length: 1048576",
                  "Content-Type: application/octet-stream", "Accept: application/json"):
        assert f"\r\n{field}\r\n" in head, head


# --- examples and README ---

def test_example_quickstart(address):
    assert run(EXAMPLES / "example-quickstart", address) == "heat 100, hottest 60, in the middle 60\n"
    assert "connection" in subprocess.run([EXAMPLES / "example-quickstart", "http://127.0.0.1:1"], capture_output=True,
                                          text=True, timeout=60).stderr


def test_example_heat(address, api):
    said = run(EXAMPLES / "example-heat", address)
    assert "mean after 100 steps: 0.12" in said and re.search(r"^warm after \d+00 steps$", said, re.M)
    assert re.search(r"^not warm after 50 steps$", run(EXAMPLES / "example-heat", address, 50), re.M)
    assert len(api.list_all("/v1/sessions", "sessions")) == 1


def test_example_npy(address, tmp_path):
    x = np.random.default_rng(3).random((30, 40), dtype=np.float32)
    np.save(tmp_path / "x.npy", np.asfortranarray(x))
    args = (address, tmp_path / "x.npy")
    run(EXAMPLES / "example-npy", *args, "permute_dims(x, [1, 0])*2", tmp_path / "y.npy")
    y = np.load(tmp_path / "y.npy")
    assert y.dtype == np.float32 and np.array_equal(y, x.T*2)
    assert run(EXAMPLES / "example-npy", *args, "max(x) > 2", tmp_path / "z.npy") == "a single number: 0\n"
    run(EXAMPLES / "example-npy", *args, "x +", tmp_path / "z.npy", expected=1)
    assert not (tmp_path / "z.npy").exists()


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Environment in which pkg-config and the loader find what `meson install` has put somewhere."""
    if not (BUILD / "deploy/arrayd.1").exists() or not shutil.which("meson") or not shutil.which("pkg-config"):
        pytest.skip("not the whole build is there")
    if re.search(rb"lib[at]san\.so", (BUILD / "clients/c/libarrayd.so").read_bytes()):
        pytest.skip("a sanitized library is for sanitized programs")
    root = tmp_path_factory.mktemp("installed")
    done = subprocess.run(["meson", "install", "-C", str(BUILD), "--no-rebuild", "--destdir", str(root)],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    [pc] = root.rglob("arrayd.pc")
    [library] = root.rglob("libarrayd.so")
    return {**os.environ, "PKG_CONFIG_PATH": str(pc.parent), "PKG_CONFIG_SYSROOT_DIR": str(root),
            "LD_LIBRARY_PATH": str(library.parent), "REPO": str(REPO)}


def test_what_the_library_shows():
    names = subprocess.run(["nm", "-D", "--defined-only", BUILD / "clients/c/libarrayd.so"], capture_output=True,
                           text=True, check=True).stdout
    shown = {line.split()[-1] for line in names.splitlines() if " T " in line}
    headers = "".join(p.read_text() for p in (REPO / "clients/c/include").glob("*.h"))
    told = set(re.findall(r"\b(arrayd_\w+)\(", re.sub(r"/\*.*?\*/|static inline[^{]*", "", headers, flags=re.S)))
    assert shown == told and "arrayd_connect" in shown


def test_the_readme(installed, daemon, api, tmp_path):
    """Its ```c block is field.c; its ```sh blocks run in order, but for the build and the installation."""
    skip_without("libcjson")
    text = README.read_text().replace("127.0.0.1:7411", f"{daemon.host}:{daemon.port}")
    (tmp_path / "field.c").write_text(*re.findall(r"^```c\n(.*?)^```$", text, re.M | re.S))
    np.save(tmp_path / "field.npy", np.arange(12.0).reshape(3, 4))
    lines = [line for line in "".join(re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)).splitlines()
             if not re.match(r"(sudo )?(meson|ninja|\./deploy/|\./build/)", line)]
    assert len(lines) >= 4
    (tmp_path / "clients").symlink_to(REPO / "clients")
    done = subprocess.run(["bash", "-euxc", "\n".join(lines)], cwd=tmp_path, env=installed, capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the mean is 5.5" in done.stdout, done.stdout

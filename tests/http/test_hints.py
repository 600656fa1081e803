"""What messages say that helps on: options' names, what to write instead, where something ends."""
import os
import subprocess

import pytest

from conftest import find_binary


def detail(reply, status=422):
    assert reply.status == status, reply
    return reply.json()["detail"]


def test_hints(daemon_with):
    c = daemon_with("--backend", "cpu", "--max-inputs", 2).client()
    for name, shape in (("a", [4, 5]), ("b", [3]), ("d", [3]), ("e", [3])):
        c.put(f"/v1/arrays/{name}", {"shape": shape, "dtype": "float64"})
    ask = lambda x: c.post("/v1/evaluate", {"expr": x})
    assert detail(ask("laplacian(a, 'wrap')")).endswith("write boundary='wrap' to give a boundary")
    assert detail(ask("laplacian(a, 'wrapped')")).endswith("a value is expected here, not the text 'wrapped'")
    assert "max-inputs" in detail(ask("b+d+e"))
    said = detail(c.post("/v1/programs", {"body": ["b = a + 1", "a = b*2"], "steps": 2}))
    assert said.endswith('"b" is an array, so a temporary needs another name'), said
    assert "temporary" not in detail(c.post("/v1/programs", {"body": ["b[:2] = a", "a = a*2"], "steps": 2}))
    said = detail(c.post("/v1/programs", {"body": ["a[i, 1] += 1"], "steps": 2, "bind": {"i": 1}}))
    assert said.endswith("take(x, i) reads there, and x = where(index(0) == i, v, x) writes there"), said
    c.post("/v1/programs?wait=1", {"body": ["d = where(index(0) == i, 2, d)"], "steps": 2, "bind": {"i": 1}})
    assert c.get("/v1/arrays/d/data", headers={"Accept": "application/json"}).json() == [0, 2, 0]
    for i, k in ((-1, 19), (25, 5)):  # counts around
        assert [ask(f"unravel_index({i}, {axis}, [4, 5])").json()["value"] for axis in (0, 1)] == [k // 5, k % 5]
    c.close()


def test_large_json_says_what_to_send_instead(daemon_with):
    c = daemon_with("--backend", "cpu", "--max-json-body", "4KiB").client()
    body = b'{"dtype": "float64", "name": "' + b"a" * 5000 + b'", "data": [1]}'
    reply = c.post("/v1/arrays", body=body, content_type="application/json")
    assert "application/octet-stream or application/x-npy" in detail(reply, 413)
    c.close()


@pytest.mark.parametrize("args", (["--tls-cert=/dev/zero", "--tls-key=/dev/zero"], ["--tls-cert=FIFO", "--tls-key=FIFO"]))
def test_what_is_no_file_is_not_waited_for(tmp_path, args):
    os.mkfifo(tmp_path / "fifo")
    args = [a.replace("FIFO", str(tmp_path / "fifo")) for a in args]
    done = subprocess.run([find_binary(), "--backend", "cpu", "--listen", "127.0.0.1:0", *args], capture_output=True, text=True, timeout=60)
    assert done.returncode and "this is not a regular file" in done.stderr, done


def test_doctor_sees_bounds_within_smaller_ones(tmp_path):
    done = subprocess.run([find_binary(), "doctor", "--backend", "cpu", "--listen", "127.0.0.1:0", "--request-memory", "1MiB", "--max-request-memory", "2MiB"],
                          capture_output=True, text=True, timeout=120)
    assert "max-request-memory (2097152 bytes) is more than request-memory" in done.stdout

"""`arrayd doctor`: what it says of this machine, of wrong settings and of a GPU (the fake driver's)."""
import json
import os
import pathlib
import socket
import subprocess

import pytest

from conftest import fake_gpu, find_binary

GPU_VARIABLES = ("ARRAYD_LIBCUDA", "ARRAYD_LIBNVRTC", "ARRAYD_LIBNVML", "NVIDIA_VISIBLE_DEVICES")


def doctor(*options, environment=()):
    env = {k: v for k, v in os.environ.items() if k not in GPU_VARIABLES} | dict(environment)
    return subprocess.run([find_binary(), "doctor", *map(str, options)], capture_output=True, text=True,
                          env=env, timeout=120)


def checks(*options, environment=(), status=0):
    done = doctor("--listen", "127.0.0.1:0", *options, "--json", environment=environment)
    assert done.returncode == status or status is None, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["ok"] == (done.returncode == 0)
    for c in report["checks"]:
        assert set(c) == {"check", "status", "text", "advice"} and c["text"]
        assert c["status"] in ("ok", "warn", "fail")
    return report["checks"]


def find(found, what):
    return [c for c in found if c["check"] == what]


def test_the_cpu():
    found = checks("--backend", "cpu")
    assert [c["status"] for c in found].count("fail") == 0
    test, = find(found, "self-test")
    assert test["status"] == "ok" and "u + 1" in test["text"] and "correct" in test["text"]
    assert {"config", "descriptors", "memory", "listen", "gpu"} <= {c["check"] for c in found}


def test_text_and_json_say_the_same():
    text = doctor("--backend", "cpu", "--listen", "127.0.0.1:0").stdout.splitlines()
    found = checks("--backend", "cpu")
    heads = [line.split()[:2] for line in text[:-1] if not line.startswith(" ")]
    assert heads == [[c["status"], c["check"]] for c in found]
    counts = [sum(c["status"] == status for c in found) for status in ("ok", "warn", "fail")]
    assert text[-1] == "{} ok, {} warnings, {} failed".format(*counts)


def test_a_gpu_that_was_asked_for_and_is_not_there(tmp_path):
    nowhere = {"ARRAYD_LIBCUDA": str(tmp_path / "libcuda.so.1")}
    found = checks("--backend", "cuda", "--kernel-cache", "none", environment=nowhere, status=1)
    driver, = find(found, "driver")
    assert driver["status"] == "fail" and "NVIDIA driver" in driver["text"]
    assert [c["status"] for c in find(found, "self-test")] == ["ok", "fail"]  # the CPU works
    auto = checks("--backend", "auto", "--kernel-cache", "none", environment=nowhere)
    assert find(auto, "driver")[0]["status"] == "warn"


def test_the_gpu(tmp_path):
    fake = fake_gpu() or pytest.skip("no fake driver in this build, or no g++")
    found = checks("--backend", "cuda", "--kernel-cache", tmp_path / "k",
                   environment=fake | {"ARRAYD_FAKE_DEVICES": "2"}, status=None)
    # The files of a real driver's are what may be missing here.
    assert {c["check"] for c in found if c["status"] == "fail"} <= {"devices"}
    assert [c["status"] for c in find(found, "gpu")] == ["ok", "ok"]
    assert [c["text"].split(":")[0] for c in find(found, "self-test")] == [
        "cpu, device 0", "cuda, device 0", "cuda, device 1"]
    assert find(found, "kernel-cache")[0]["status"] == "ok" and not (tmp_path / "k").exists()
    assert find(found, "faulted") == []


def test_kernels_that_are_refused(tmp_path):
    fake = fake_gpu() or pytest.skip("no fake driver in this build, or no g++")
    (tmp_path / "k").mkdir(mode=0o700)
    kept = tmp_path / "k" / "faulted"
    kept.write_text("# a heading\nrefused yesterday\n" + "".join(
        f"{state} 2026-01-02T03:04:05Z {number:064x} flat a test's\n"
        for number, state in enumerate(("refused", "suspect", "refused"))))
    kept.chmod(0o600)
    found = checks("--backend", "cuda", "--kernel-cache", tmp_path / "k", environment=fake, status=None)
    warning, = find(found, "faulted")
    assert warning["status"] == "warn" and "2 kernels" in warning["text"]
    kept.unlink()
    os.mkfifo(kept)  # nobody writes into it, ever
    found = checks("--backend", "cuda", "--kernel-cache", tmp_path / "k", environment=fake, status=None)
    assert find(found, "faulted") == []


def test_a_compiler_that_is_missing_does_not_hide_the_gpu(tmp_path):
    fake = fake_gpu() or pytest.skip("no fake driver in this build, or no g++")
    found = checks("--kernel-cache", "none",
                   environment=fake | {"ARRAYD_LIBNVRTC": str(tmp_path / "libnvrtc.so")})
    assert find(found, "nvrtc")[0]["status"] == "warn" and "cuda-nvrtc" in find(found, "nvrtc")[0]["text"]
    assert find(found, "gpu")[0]["status"] == "ok"
    assert find(found, "self-test")[1]["status"] == "warn"


def test_no_gpu_in_the_machine():
    fake = fake_gpu() or pytest.skip("no fake driver in this build, or no g++")
    found = checks("--kernel-cache", "none", environment=fake | {"ARRAYD_FAKE_DEVICES": "0"})
    assert find(found, "gpu")[0]["status"] == "warn" and "no GPU" in find(found, "gpu")[0]["text"]


def test_an_address_that_is_taken_and_one_that_is_not_ours():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        found = checks("--backend", "cpu", "--listen", f"127.0.0.1:{s.getsockname()[1]}")
        assert [c["status"] for c in find(found, "listen")] == ["ok", "warn"]
    found = checks("--backend", "cpu", "--listen", "nonsense", status=1)
    assert [c["status"] for c in find(found, "listen")] == ["ok", "fail"]


def test_accounts(accounts, tmp_path):
    path = pathlib.Path(accounts.path)
    (tmp_path / "none").write_text("")
    found = checks("--backend", "cpu", "--accounts", tmp_path / "none")
    assert find(found, "accounts")[0]["status"] == "warn" and "token add" in find(found, "accounts")[0]["advice"]
    accounts.add("ann", role="operator")
    accounts.add("bob")
    found = checks("--backend", "cpu", "--accounts", path, "--listen", "0.0.0.0:0")
    assert "2 accounts, 1 of operators, 2 tokens" in find(found, "accounts")[0]["text"]
    assert [c["status"] for c in find(found, "listen")] == ["ok", "ok"]
    assert find(checks("--backend", "cpu", "--listen", "0.0.0.0:0", status=1), "listen")[1]["status"] == "fail"
    path.write_text("[ann]\n")
    path.chmod(0o600)
    assert find(checks("--backend", "cpu", "--accounts", path), "accounts")[0]["status"] == "warn"
    path.write_text("[ann]\nrole = king\n")
    found = checks("--backend", "cpu", "--accounts", path, status=1)
    assert find(found, "accounts")[0]["status"] == "fail" and "line 2" in find(found, "accounts")[0]["text"]


def test_certificates(tmp_path):
    (tmp_path / "cert.pem").write_text("no certificate\n")
    found = checks("--backend", "cpu", "--tls-cert", tmp_path / "cert.pem", "--tls-key", tmp_path / "key.pem", status=1)
    assert find(found, "listen")[0]["status"] == "fail" and "pem" in find(found, "listen")[0]["text"]


def test_the_state_folder(tmp_path):
    found = checks("--backend", "cpu", "--state-dir", tmp_path / "state")
    assert find(found, "state-dir")[0]["status"] == "ok" and not (tmp_path / "state").exists()
    (tmp_path / "file").write_text("")
    found = checks("--backend", "cpu", "--state-dir", tmp_path / "file", status=1)
    assert find(found, "state-dir")[0]["status"] == "fail"


def test_a_socket_is_left_as_it_was(tmp_path, daemon_with):
    daemon = daemon_with("--listen", f"unix:{tmp_path}/s")
    found = checks("--backend", "cpu", "--listen", f"unix:{tmp_path}/s")
    assert find(found, "listen")[1]["status"] == "warn"
    assert daemon.client().info()["version"]
    checks("--backend", "cpu", "--listen", f"unix:{tmp_path}/free")
    assert not (tmp_path / "free").exists()


def test_wrong_settings(tmp_path):
    (tmp_path / "c").write_text("max-arays = 3\n")
    done = doctor("--config", tmp_path / "c")
    assert done.returncode == 2 and "max-arays" in done.stderr and not done.stdout
    assert find(checks("--backend", "fpga", status=1), "config")[-1]["status"] == "fail"
    (tmp_path / "c").write_text("backend = cpu\n")
    assert str(tmp_path / "c") in find(checks("--config", tmp_path / "c"), "config")[0]["text"]
    assert doctor("--help").stdout.startswith("usage: arrayd doctor")


def test_exports(tmp_path):
    here = ["--backend", "cpu", "--allow-export"]
    assert find(checks(*here), "export")[0]["status"] == "warn"  # over TCP alone there are none
    assert [c["status"] for c in find(checks(*here, "--listen", f"unix:{tmp_path}/s"), "export")] == ["ok"]
    assert not list(tmp_path.iterdir())
    (tmp_path / "s.fd").touch()
    assert find(checks(*here, "--listen", f"unix:{tmp_path}/s", status=1), "export")[0]["status"] == "fail"
    assert not find(checks("--backend", "cpu", "--listen", f"unix:{tmp_path}/s"), "export")

"""An upgrade with a configuration that cannot be used: the running daemon goes on, and the command says why."""
import re
import shutil
import socket

import numpy as np
import pytest

from conftest import until
from test_keeper import upgrade
from test_tls import make_certificate


def refused(d, before, why):
    done = upgrade(d)
    assert done.returncode == 1 and why in done.stderr, done.stderr
    assert d.pid == before and why in d.log()


@pytest.mark.in_turn
def test_what_is_in_the_way(daemon_with, accounts, tmp_path):
    for name in ("ann", "bob"):
        accounts.add(name, role="operator")
    config, path, state = tmp_path / "config", tmp_path / "s", tmp_path / "state"
    right = f"listen = 127.0.0.1:0\nlisten = unix:{path}\naccounts = {accounts.path}\nstate-dir = {state}\n"
    config.write_text(right)
    d = daemon_with("--config", config, listen=None)
    before, c = d.pid, accounts.client(d, "bob")
    c.upload(np.arange(2000.0), "u")
    taken = socket.create_server(("127.0.0.1", 0))
    free = socket.create_server(("127.0.0.1", 0))
    for changed, why in (
            (right.replace(str(accounts.path), str(tmp_path / "nowhere")), "No such file"),
            (re.sub("accounts.*", "", right), "no accounts are configured"),
            (right.replace(str(state), str(config)), "Not a directory"),
            (right.replace(str(state), str(tmp_path / "a" / "b")), "No such file"),
            (right + f"listen = 127.0.0.1:{taken.getsockname()[1]}\n", "Address already in use"),
            (right + f"tls-cert = {tmp_path}/none\ntls-key = {tmp_path}/none\n", "none"),
            (right + "memory-limit = lots\n", "memory-limit")):
        config.write_text(changed)
        refused(d, before, why)
    config.write_text(right)
    good = accounts.path.read_text()
    for text, why in (("", "has no account"), (good + "[oops\n", "accounts: line")):
        accounts.write(text)
        refused(d, before, why)
    accounts.write(good)
    # the daemon's own addresses are no obstacle, whatever they are called; nor is one that is free
    port = free.getsockname()[1]
    free.close()
    config.write_text(right.replace("127.0.0.1:0", f"localhost:{d.port}") + f"listen = 127.0.0.1:{port}\n")
    c.close()
    done = upgrade(d)
    assert done.returncode == 0 and not done.stderr, d.log()
    assert path.is_socket() and restarts_of(d, accounts) == 1
    assert accounts.client(d, "bob").download("u").tolist() == np.arange(2000.0).tolist()
    taken.close()


def test_what_is_lost_is_told(daemon_with):
    d = daemon_with("--max-kept-arrays", 2)
    c = d.client()
    for name in ("a", "b"):
        c.create(name=name, shape=[1000], fill=1)
    c.close()
    done = upgrade(d)
    assert done.returncode == 0 and not done.stderr, done
    c.create(name="beyond", shape=[1000], fill=1)
    c.close()
    done = upgrade(d)
    assert done.returncode == 0 and "1 arrays or other things could not be taken over" in done.stderr, (done, d.log())
    done = upgrade(d)
    assert done.returncode == 0 and not done.stderr, "it is not there any more"


def restarts_of(d, accounts):
    c = accounts.client(d, "bob")
    n = c.info()["process"]["restarts"]
    c.close()
    return n


@pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl to make certificates")
def test_encryption_from_now_on(daemon_with, tmp_path):
    """The address stays, and only its socket is another one."""
    config = tmp_path / "config"
    config.write_text("listen = 127.0.0.1:0\n")
    d = daemon_with("--config", config, listen=None)
    cert, key = make_certificate(tmp_path, "cert")
    config.write_text(f"listen = 127.0.0.1:{d.port}\ntls-cert = {cert}\ntls-key = {key}\n")
    done = upgrade(d)
    assert done.returncode == 0, (done.stderr, d.log())
    until(lambda: "the daemon was upgraded" in d.log())


@pytest.mark.in_turn
def test_what_is_no_mesh(gpu_with, tmp_path):
    config = tmp_path / "config"
    config.write_text("mesh = all\n")
    d = gpu_with("--config", config, environment={"ARRAYD_FAKE_DEVICES": "2"})
    before, c = d.pid, d.client()
    for changed, why in (("mesh = 0,0\n", "mesh: GPU 0 is named twice"), ("mesh = 0,2\n", "names GPU 2, which is not there"), ("mesh = 0;1\n", "neither"),
                         ("default-device = mesh\n", "no mesh without --mesh"), ("default-device = x\n", "neither a device's number")):
        config.write_text(changed)
        refused(d, before, why)
    assert len(c.info()["devices"]) == 3
    c.close()
    config.write_text("mesh = 1,0\ndefault-device = mesh\n")
    done = upgrade(d)
    assert done.returncode == 0 and not done.stderr, d.log()
    assert c.info()["devices"][2]["parts"] == [1, 0]

"""What users have when a daemon starts with an accounts file that has lost its accounts."""
import os
import re
import signal
import subprocess

import numpy as np
import pytest

from conftest import find_binary, until

EMPTY = ["", "# an editor was here\n"]


def start(daemon_with, accounts, tmp_path):
    """A daemon with an array of bob's; its configuration file, the array's id."""
    for name in ("ann", "bob"):
        accounts.add(name, role="operator")
    config = tmp_path / "config"
    config.write_text(f"restart-limit = 50\nlisten = 127.0.0.1:0\naccounts = {accounts.path}\nstate-dir = {tmp_path / 'state'}\n")
    d = daemon_with("--config", config, listen=None)
    c = accounts.client(d, "bob")
    c.upload(np.arange(2000.0), "u")
    c.close()
    return d, config


def has(d, accounts):
    c = accounts.client(d, "bob")
    got = c.download("u")
    c.close()
    return got.tolist() == np.arange(2000.0).tolist()


def refusals(d):
    return len(re.findall(r"they would be deleted", d.log()))


@pytest.mark.parametrize("text", EMPTY)
def test_a_death_while_the_file_is_empty(daemon_with, accounts, tmp_path, text):
    d, _ = start(daemon_with, accounts, tmp_path)
    good = accounts.path.read_text()
    accounts.write(text)
    os.kill(d.pid, signal.SIGKILL)
    until(lambda: refusals(d) > 1)
    assert "has no account" in d.log() and "exit status 2" in d.log()
    accounts.write(good)
    until(lambda: d.log().count(" ready ") == 2)
    assert has(d, accounts)


def test_a_death_without_the_option(daemon_with, accounts, tmp_path):
    d, config = start(daemon_with, accounts, tmp_path)
    good = config.read_text()
    config.write_text(re.sub("accounts.*", "", good))
    os.kill(d.pid, signal.SIGKILL)
    until(lambda: refusals(d) > 1)
    assert "no accounts are configured" in d.log()
    config.write_text(good)
    until(lambda: d.log().count(" ready ") == 2)
    assert has(d, accounts)


def test_a_start_from_the_state(daemon_with, accounts, tmp_path):
    d, config = start(daemon_with, accounts, tmp_path)
    good, with_accounts = accounts.path.read_text(), config.read_text()
    d.stop()

    def refused(*options):
        done = subprocess.run([find_binary(), "--config", config, *options], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and "they would be deleted" in done.stderr, done
    accounts.write(EMPTY[1])
    refused()
    refused("--no-keeper")
    accounts.write(good)
    config.write_text(re.sub("accounts.*", "", with_accounts))
    refused()
    config.write_text(with_accounts)
    d = daemon_with("--config", config, listen=None)
    assert has(d, accounts)
    d.stop()
    # some accounts are missing: what they had is left out, as before
    accounts.write(good.replace("[bob]", "[eve]"))
    d = daemon_with("--config", config, listen=None)
    assert "no longer has an account" in d.log()


def test_nothing_to_restore(daemon_with, accounts, tmp_path):
    """A new daemon may start before its first account is made."""
    accounts.write("")
    d = daemon_with("--accounts", accounts.path, "--state-dir", tmp_path / "state")
    os.kill(d.pid, signal.SIGKILL)
    until(lambda: d.log().count(" ready ") == 2)
    d.stop()
    daemon_with("--accounts", accounts.path, "--state-dir", tmp_path / "state")

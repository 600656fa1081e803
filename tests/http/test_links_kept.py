"""Read-only links outlive the daemon, with the state on disk and with the journal, as long as they last; their keys are in neither."""
import json
import os
import signal
import time

import numpy as np
import pytest

from conftest import until
from test_links import URL, make
from test_login import SAME, browser, log_in
from test_state_passed import change_manifest


def kill(d, c):
    c.close()
    before = d.pid
    os.kill(before, signal.SIGKILL)
    until(lambda: d.pid not in (before, d.proc.pid))
    return d


@pytest.fixture(params=["state", "journal"])
def house(request, daemon_with, accounts, tmp_path):
    """The daemon, and what makes another of it."""
    accounts.add("ann")
    accounts.add("bob")
    options = ["--accounts", accounts.path]
    if request.param == "journal":
        d = daemon_with(*options, "--keep-arrays", "--restart-limit", 1000, "--restart-wait", 0)
        return d, kill
    options += ["--state-dir", tmp_path / "state", "--no-keeper"]

    def again(d, c):
        c.close()
        d.stop()
        return daemon_with(*options)

    return daemon_with(*options), again


def key_of(link):
    return URL.fullmatch(link["url"])[1]


def test_they_go_on(house, accounts):
    d, again = house
    ann, stranger = accounts.client(d, "ann"), d.client()
    ids = [ann.upload(np.arange(3.), name)["id"] for name in "uv"]
    some, whole, ended, brief = make(ann, arrays=["u"], expires_s=600), make(ann), make(ann), make(ann, expires_s=1)
    ann.expect(204, ann.delete(f"/v1/links/{ended['id']}"))
    cookies = [log_in(stranger, key_of(link), "link") for link in (some, whole)]
    login = log_in(stranger, accounts.token["ann"])
    before = ann.get("/v1/links").json()["links"][:2]
    over = time.monotonic() + 1
    d = again(d, ann)
    ann, stranger = accounts.client(d, "ann"), d.client()
    time.sleep(max(0, over - time.monotonic()))
    assert ann.get("/v1/links").json()["links"] == before and [x["id"] for x in before] == [some["id"], whole["id"]]
    for link in (ended, brief):
        stranger = d.client()
        stranger.fails(401, "unauthorized", stranger.post("/v1/login", {"link": key_of(link)}, headers=SAME))
    # browsers in which they are open go on, and the address opens them again
    stranger = d.client()
    for c in (browser(d, cookies[0]), browser(d, log_in(stranger, key_of(some), "link"))):
        assert c.get("/v1/login").json()["arrays"] == ids[:1]
        c.expect(200, c.get(f"/v1/arrays/{ids[0]}"))
        c.fails(404, "not_found", c.get(f"/v1/arrays/{ids[1]}"))
        c.fails(403, "forbidden", c.delete(f"/v1/arrays/{ids[0]}"))
        c.close()
    c = browser(d, cookies[1])
    assert len(c.get("/v1/arrays").json()["arrays"]) == 2
    c.close()
    c = browser(d, login)  # logins do not outlive the process
    assert c.get("/v1/login").json()["principal"] is None
    c.close()
    # one that is ended now is so for good, however it is remembered
    ann.expect(204, ann.delete(f"/v1/links/{whole['id']}"))
    c = browser(d, cookies[1])
    assert c.get("/v1/login").json()["principal"] is None
    c.close()
    stranger.close()
    d = again(d, ann)
    ann = accounts.client(d, "ann")
    assert ann.get("/v1/links").json()["links"] == before[:1]
    ann.close()


@pytest.mark.parametrize("asked", [True, False], ids=["a snapshot on demand", "that of the stop"])
def test_one_that_was_ended_does_not_come_back(daemon_with, accounts, tmp_path, asked):
    """However the process ends that ended it: the state has it from before."""
    accounts.add("ann", role="operator")
    options = "--accounts", accounts.path, "--state-dir", tmp_path / "state", "--no-keeper"
    d = daemon_with(*options)
    ann = accounts.client(d, "ann")
    link = make(ann)
    if asked:
        ann.expect(200, ann.post("/v1/snapshot"))
    else:
        ann.close()
        d.stop()
        d = daemon_with(*options)
        ann = accounts.client(d, "ann")
        assert [x["id"] for x in ann.get("/v1/links").json()["links"]] == [link["id"]]
    ann.expect(204, ann.delete(f"/v1/links/{link['id']}"))
    ann.close()
    d.expected = -signal.SIGKILL
    d.stop(signal.SIGKILL)
    d = daemon_with(*options)
    ann, stranger = accounts.client(d, "ann"), d.client()
    stranger.fails(401, "unauthorized", stranger.post("/v1/login", {"link": key_of(link)}, headers=SAME))
    assert ann.get("/v1/links").json()["links"] == []
    assert ("links are not restored" in d.log()) == (not asked)
    # and an orderly stop has what there is then
    kept = make(ann)
    for c in (ann, stranger):
        c.close()
    d.stop()
    ann = accounts.client(daemon_with(*options), "ann")
    assert [x["id"] for x in ann.get("/v1/links").json()["links"]] == [kept["id"]]
    ann.close()


def test_a_clock_that_is_behind_lengthens_nothing(daemon_with, accounts, tmp_path):
    accounts.add("ann")
    options = "--accounts", accounts.path, "--state-dir", tmp_path / "state", "--no-keeper"
    d = daemon_with(*options)
    ann = accounts.client(d, "ann")
    make(ann, expires_s=1)
    ann.close()
    d.stop()
    link, = json.loads(next(tmp_path.glob("state/snapshot-*/manifest.json")).read_text())["principals"][0]["links"]
    for what in ("seq", "expires_us"):  # as seen by a clock that is a day behind
        change_manifest(tmp_path, f'"{what}":{link[what]}', f'"{what}":{link[what] + 86400 * 10**6}')
    ann = accounts.client(daemon_with(*options), "ann")
    time.sleep(1.1)
    assert ann.get("/v1/links").json()["links"] == []
    ann.close()


def test_a_cookie_of_before_is_forgotten(house, accounts):
    """Logging out takes it back under the name that it has."""
    d, again = house
    ann, stranger = accounts.client(d, "ann"), d.client()
    link = make(ann)
    cookie = log_in(stranger, key_of(link), "link")
    stranger.close()
    d = again(d, ann)
    c = browser(d, f"arrayd-<script>xxxx={key_of(link)}; other=1; {cookie}")
    r = c.expect(204, c.post("/v1/logout"))
    told = [v for k, v in r.headers.pairs if k.lower() == "set-cookie"]
    assert len(told) == 2 and all("Max-Age=0" in v for v in told)
    assert told[0].split("=")[0] != cookie.split("=")[0] == told[1].split("=")[0]
    # a newer login counts before it
    new = log_in(d.client(), accounts.token["bob"])
    both = browser(d, f"{cookie}; {new}")
    assert both.get("/v1/login").json()["principal"] == "bob"
    both.close()
    c.close()


def test_an_account_that_is_gone_leaves_none(house, accounts):
    """An account of the name that comes back later is another one."""
    d, again = house
    ann, bob = accounts.client(d, "ann"), accounts.client(d, "bob")
    links = make(ann), make(bob)
    text = accounts.path.read_text()
    accounts.write(text[:text.index("[bob]")])
    accounts.reload(d)
    accounts.write(text)
    bob.close()
    d = again(d, ann)
    ann, bob = accounts.client(d, "ann"), accounts.client(d, "bob")
    assert [x["id"] for x in ann.get("/v1/links").json()["links"]] == [links[0]["id"]]
    assert bob.get("/v1/links").json()["links"] == []
    for c in (ann, bob):
        c.close()


def test_the_key_is_not_kept(daemon_with, accounts, tmp_path):
    accounts.add("ann")
    d = daemon_with("--accounts", accounts.path, "--state-dir", tmp_path / "state")
    c = accounts.client(d, "ann")
    link = make(c)
    c.close()
    d.stop()
    kept = b"".join(p.read_bytes() for p in (tmp_path / "state").rglob("*") if p.is_file())
    assert link["id"].encode() in kept and key_of(link).encode() not in kept


@pytest.mark.in_turn
def test_without_room_there_is_no_link(daemon_with):
    """None is made that would not be there after a restart."""
    c = daemon_with("--keep-arrays", "--journal-size", "4MiB", "--max-links", 100000).client()
    n, status = 0, 201
    while status == 201 and n < 20000:
        status = c.post("/v1/links", {"expires_s": 600}).status
        n += status == 201
    assert status == 507
    assert len(c.get("/v1/links").json()["links"]) == n

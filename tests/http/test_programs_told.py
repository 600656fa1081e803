"""What a job computes is told with it: to whom, how much, and as long as the job is there."""
import json
import signal

import numpy as np

from conftest import until
from test_links import URL, make
from test_login import SAME, log_in
from test_programs import job, jobs, run, start
from test_programs_events import events_of
from test_reductions import hold
from test_survive import keeping, kill

BODY = ["lap = laplacian(u)", "u += dt*lap"]
MORE = {"bind": {"dt": 0.125, "u": "field"}, "record": {"energy": "sum(u*u)"}, "record_every": 2, "until": "max(u) < 1e-9"}
TOLD = {"body": BODY, "bind": MORE["bind"], "record": MORE["record"], "until": MORE["until"]}


def test_as_it_was_sent(api):
    hold(api, "field", np.ones((4, 5)))
    want = {**TOLD, "arrays": [{"name": "u", "id": api.meta("field")["id"]}]}
    done = run(api, BODY, 4, **MORE)
    assert done["program"] == want and job(api, done["id"])["program"] == want
    api.expect(204, api.delete("/v1/arrays/field"))
    assert job(api, done["id"])["program"] == want
    assert [j["program"] for j in jobs(api)] == [{"body": BODY}]
    assert all("program" not in e for _, _, e in events_of(api.get(f"/v1/jobs/{done['id']}/events").body.decode()))


def size(told):
    """Bytes, as the daemon writes it."""
    return len(json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode())


def test_a_long_one_is_cut(api):
    hold(api, "x", np.zeros(3))
    body = [f"x += {k}.{'0' * 100}" for k in range(60)]
    j = run(api, body, 1, record={"s": "sum(x)"})
    told = j["program"]["body"]
    assert j["program"]["cut"] is True and "record" in j["program"] and not j["program"]["record"]
    assert told[:-1] == body[:len(told) - 1] and told[-1][-1] == "…" and body[len(told) - 1].startswith(told[-1][:-1])
    assert 4000 < size(j["program"]) <= 4096
    assert [j["program"] for j in jobs(api)] == [{"body": [body[0], body[1][:120 - len(body[0]) - 5] + "…"], "cut": True}]


def test_a_value_that_is_too_long_is_left_out(api):
    hold(api, "x", np.zeros(3))
    long = "+".join(["sum(x)"] * 700)
    told = run(api, ["x += 1"], 1, record={"long": long, "short": "sum(x)"})["program"]
    assert told["record"] == {"short": "sum(x)"} and told["cut"] is True and told["body"] == ["x += 1"]


def test_all_of_it_counts(api):
    """Names, and what JSON escapes, of whatever there is much of."""
    names = [f"x{k}" for k in range(150)]
    for name in names:
        hold(api, name, np.zeros(1))
    for body, binds in ((["x0 = b0"], 2000), ([f"{name} = 1" for name in names], 0), (["x0 = 1" + "\t"*3000], 0), (["x0 = 1 + 1 + 1 + 1"]*250, 0)):
        told = run(api, body, 1, bind={f"b{k}": 0 for k in range(binds)}, record={"s": "sum(x0)"})["program"]
        assert told["cut"] is True and 4000 < size(told) <= 4096, told
        assert told["body"] == body or (told["body"][-1][-1] == "…" and not told.get("record"))
        assert binds == 0 or 300 < len(told["bind"]) < binds


def test_who_sees_it(daemon_with, accounts):
    accounts.add("olga", role="operator")
    accounts.add("ann")
    d = daemon_with("--accounts", accounts.path)
    olga, ann, guest, friend = accounts.client(d, "olga"), accounts.client(d, "ann"), d.client(), d.client()
    hold(ann, "u", np.ones(3))
    ref = run(ann, ["u += 1"])["id"]
    olga.fails(404, "not_found", olga.get(f"/v1/jobs/{ref}"))
    assert [x["job"]["program"] for x in olga.get("/v1/admin/jobs").json()["jobs"]] == [{"body": ["u += 1"]}]
    for c, fields in ((guest, {"jobs": [ref]}), (friend, {})):
        c.always = {"Cookie": log_in(c, URL.fullmatch(make(ann, **fields)["url"])[1], "link"), **SAME}
    assert "program" not in job(guest, ref) and job(friend, ref)["program"]["body"] == ["u += 1"]
    for c in (olga, ann, guest, friend):
        c.close()


def test_in_the_next_daemon(daemon_with):
    """Of jobs that had ended as of those that go on, and twice."""
    d = keeping(daemon_with)
    api = d.client()
    hold(api, "field", np.ones((4, 5)))
    want = {**TOLD, "arrays": [{"name": "u", "id": api.meta("field")["id"]}]}
    refs = [run(api, BODY, 4, **MORE)["id"], start(api, BODY, 10**9, **{**MORE, "record_every": 10**5})]
    for _ in range(2):
        api.close()
        kill(d, signal.SIGKILL)
        assert [job(api, ref)["program"] for ref in refs] == [want, want]
    assert job(api, refs[1])["state"] in ("queued", "running")
    api.expect(200, api.delete(f"/v1/jobs/{refs[1]}"))
    api.expect(202, api.post(f"/v1/jobs/{refs[1]}/resume"))
    assert job(api, refs[1])["program"] == want
    api.expect(200, api.delete(f"/v1/jobs/{refs[1]}"))
    until(lambda: job(api, refs[1])["state"] == "cancelled")
    api.close()

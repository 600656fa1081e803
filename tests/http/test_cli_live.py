"""arrayd-cli run and top, and completion: what goes on while it is looked at, on terminals and elsewhere."""
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time

import numpy as np
import pytest

from cli import ANSI, Terminal, cli, environment
from conftest import until

from arrayd._bar import Bar, TransferBar  # noqa: E402  (cli.py has made it findable)
from arrayd.cli import main  # noqa: E402
from arrayd.cli._context import Context  # noqa: E402
from arrayd.cli._main import make_parser  # noqa: E402
from arrayd.cli._program import read  # noqa: E402
from arrayd.cli._sample import Watch, metrics  # noqa: E402
from arrayd.cli._top import lines  # noqa: E402

pytestmark = pytest.mark.release_only  # it is the client that is tested here

HEAT = """\
#!/usr/bin/env -S arrayd-cli run
# Heat in a plate.
@steps 40
@bind k = 0.2
@record warmest = max(u)   # "#" begins a comment
@record_every 10
lap = laplacian(u,         # the five points
                boundary="clamp")
u += k*lap
"""


@pytest.fixture
def run(daemon, api):  # api: what is left behind is seen
    return cli(daemon)


@pytest.fixture
def env(daemon, api, tmp_path):
    return environment(tmp_path / "bin", f"http://127.0.0.1:{daemon.port}")


def ok(done):
    assert done.status == 0, done
    return done


def fails(done, status, *texts):
    assert done.status == status and all(t in done.err for t in texts) and "Traceback" not in done.err, done
    return done.err


def heat(u, k, steps):
    for _ in range(steps):
        p = np.pad(u, 1, mode="edge")
        u = u + k * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u)
    return u


# --- run ---


def test_a_program_as_text(run, api, tmp_path):
    u = np.random.default_rng(1).random((9, 11))
    np.save(tmp_path / "u.npy", u)
    (tmp_path / "heat").write_text(HEAT)
    ok(run("put", tmp_path / "u.npy"))
    done = ok(run("run", tmp_path / "heat"))
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert rows[0] == ["step", "warmest"] and [r[0] for r in rows[1:]] == ["10", "20", "30", "40"]
    np.testing.assert_allclose([float(r[1]) for r in rows[1:]], [heat(u, 0.2, n).max() for n in (10, 20, 30, 40)], rtol=1e-12)
    np.testing.assert_allclose(api.download("u"), heat(u, 0.2, 40), rtol=1e-12)
    assert re.match(r"40 steps, \S+ m?s, \S+ (k )?steps/s", done.err)
    # options come before the file's; a file that is bound is nobody else's, and gone at the end
    done = ok(run("run", tmp_path / "heat", "--steps", "20", "-b", "k=0.1", "-b", f"u={tmp_path}/u.npy", "--record", "least=min(u)",
                  "--save", f"u={tmp_path}/out.npy"))
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), heat(u, 0.1, 20), rtol=1e-12)
    assert [line.count("\t") for line in done.out.splitlines()] == [2, 2, 2]
    assert ok(run("ls")).out == "u\n"
    done = ok(run("-q", "run", tmp_path / "heat", "--until", "max(u) < 1e6", "--json"))
    job = json.loads(done.out)
    assert job["stopped_by"] == "until" and job["step"] == 1 and done.err == ""
    done = ok(run("run", tmp_path / "heat", "--snapshot", "u=20"))
    ids = re.findall(r"^snapshot of u after step (\d+): (a-\w+)$", done.err, re.M)
    assert [step for step, _ in ids] == ["20", "40"]
    assert np.array_equal(api.download(ids[1][1]), api.download("u"))


def test_a_program_as_json(run, api):
    api.create(name="u", data=[1.0, 2.0])
    body = {"body": ["u += k"], "steps": 3, "bind": {"k": 2}, "record": {"s": "sum(u)"}}
    assert ok(run("run", "-", stdin=json.dumps(body).encode())).out == "step\ts\n1\t7.0\n2\t11.0\n3\t15.0\n"
    id_ = ok(run("run", "-", "--detach", "-b", "k=1", stdin=json.dumps(body).encode())).out.strip()
    assert api.expect(200, api.get(f"/v1/jobs/{id_}?wait=1")).json()["records"]["s"] == [17.0, 19.0, 21.0]


@pytest.mark.parametrize("text, words, status, said", [
    ("u += 1", [], 2, ["how many steps?"]),
    ("@stps 1\nu += 1", [], 1, ["standard input:1: there is no @stps"]),
    ("u += 1\n@steps no", [], 1, ["standard input:2: 'no' is not a whole number above 0"]),
    ("@record s\n", [], 1, ["standard input:1: 's' is not NAME=VALUE"]),
    ("@stop_on_nan now\n", [], 1, ["@stop_on_nan stands alone"]),
    ("@steps 1\n# c\nu += nobody", [], 1, ["standard input:3: ", "\n    u += nobody\n         ^"]),
    ("u += (\n1 +\n", ["--steps", "1"], 1, ["standard input:1: a bracket is not closed before the end"]),
    ("u += (\n1 +\nnobody)", ["--steps", "1"], 1, ["standard input:1: ", "\n    nobody)\n    ^"]),
    ("u += 1", ["--steps", "1", "--until", "who"], 1, ["--until: ", "\n    who\n    ^"]),
    ("@until u < who\nu += 1", ["--steps", "1"], 1, ["standard input:1: ", "\n    u < who\n        ^"]),
    ("u += 1", ["--steps", "1", "--record", "s=sin("], 1, ["--record s: ", "\n    sin("]),
    ("u += k", ["--steps", "1", "--bind", "k=nobody"], 1, ["bind k = nobody: there is no array 'nobody'"]),
    ("u += 1", ["--steps", "1", "--save", "u=x", "--detach"], 2, ["--save cannot be used with --detach"]),
    ("{", ["--steps", "1"], 1, ["standard input: Expecting property name"]),
    ('{"body": 7}', ["--steps", "1"], 1, ["standard input: body is not a list"]),
    ('{"body": ["u += 1", "u -= who"]}', ["--steps", "1"], 1, ["standard input: statement 2: ", "\n    u -= who\n         ^"]),
    ("v = take(u, astype(u*0, 'int64') + 9)\nu += v", ["--steps", "1"], 1,
     ["standard input:1: at step 1: an index is out of range", "\n    v = take(u, astype(u*0, 'int64') + 9)\n" + " "*37 + "^"]),
    ("u = u/0*0", ["--steps", "1", "--stop-on-nan"], 1, ["NaN"])])
def test_programs_that_are_wrong(run, api, text, words, status, said):
    api.create(name="u", data=[1.0, 2.0])
    fails(run("run", "-", *words, stdin=text.encode()), status, *said)
    assert api.download("u").tolist() == [1, 2]


def test_brackets_and_quotes_in_a_program():
    p = read("a = f('#(', [1,\n\n 2]) # (\n\n  b = \"]\\\"[\"\n", "p")
    assert p.body["body"] == ["a = f('#(', [1,\n\n 2])", 'b = "]\\"["'] and [w for w, _ in p.places.values()] == ["p:1", "p:5"]


@pytest.mark.in_turn
def test_interrupted(api, env, tmp_path):
    """Ctrl-C, a signal, and somebody else: the program is cancelled, and it is said where."""
    api.create(name="u", shape=[16])
    (tmp_path / "p").write_text("@steps 1e15\nu += 1\n")
    for how, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        p = subprocess.Popen(["arrayd-cli", "run", str(tmp_path / "p"), "--watch"], env=env, stderr=subprocess.PIPE, text=True)
        assert re.match(r"(running|queued) +0 % .* of 1 P steps", p.stderr.readline())  # --watch: also where no terminal is
        p.send_signal(how)
        said = p.communicate(timeout=20)[1]
        assert p.returncode == status and re.search(r"cancelled after step \d+ of 10{15}; the arrays are as of that step\n\Z", said)
        job = api.list_all("/v1/jobs", "jobs")[-1]
        assert job["state"] == "cancelled"
        assert f"after step {job['step']} " in said and api.download("u")[0] >= job["step"]
    # what is to be saved is, and whoever does not read on is no reason to go on
    np.save(tmp_path / "v.npy", np.zeros(16))
    (tmp_path / "q").write_text("v += 1\n")
    done = subprocess.run(["bash", "-c", "set -o pipefail; arrayd-cli run q --steps 4e9 -b v=v.npy --save v=out.npy --record 's=max(v)' "
                           "--record-every 5000 | head -n 3"], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 141 and done.stdout == "step\ts\n5000\t5000.0\n10000\t10000.0\n", done
    step = int(re.search(r"cancelled after step (\d+)", done.stderr)[1])
    assert np.load(tmp_path / "out.npy").tolist() == [step] * 16 and [m["name"] for m in api.list_all("/v1/arrays", "arrays")] == ["u"]
    p = subprocess.Popen(["arrayd-cli", "run", str(tmp_path / "p"), "--watch"], env=env, stderr=subprocess.PIPE, text=True)
    p.stderr.readline()
    api.expect(200, api.delete(f"/v1/jobs/{api.list_all('/v1/jobs', 'jobs')[-1]['id']}"))
    assert "was cancelled by another client" in p.communicate(timeout=20)[1] and p.returncode == 1


@pytest.mark.in_turn
def test_the_bar(api, env, tmp_path):
    """On a terminal: one line that never wraps, records above it, wiped away at the end."""
    api.create(name="u", shape=[200, 200])
    (tmp_path / "p").write_text("u += 1\n")
    t = Terminal(["arrayd-cli", "run", str(tmp_path / "p"), "--steps", "1e10", "--record", "s=max(u)", "--record-every", "20000"], env,
                 columns=100)
    text = t.until(r"running   0 % \|\W+\|.*of 10 G steps.* left  s [\d.e+]+")
    assert all(len(part) < 100 for part in re.split(r"[\r\n]+", text))
    t.until(r"\d+0000\t\d+0000\.0\r\n")
    t.resize(24, 40)
    t.until(r"\d0000\.0\r\n.*\rrunning   0 % [^|\r]{,28}\r")
    t.type("\x03")
    status, seen = t.end()
    assert status == 130 and re.search(r"(\r|\^C)arrayd-cli: cancelled after step \d+ of 10{10}; the arrays are as of that step\r\n\Z", ANSI.sub("", seen))


def test_bars(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    bar = Bar(False)
    assert [len(bar.drawn(x, 10)) for x in (-1, 0, 0.123, 0.5, 0.999, 1, 7)] == [12] * 7
    assert bar.drawn(1, 4) in ("|████|", "|####|") and bar.drawn(0.5, 4) in ("|██  |", "|##  |")
    bar = TransferBar("a name that is much longer than the line is", 1000, True)
    bar.add(250)
    for width in (10, 20, 40, 200):
        assert " 25 % " in bar.line(width)
    bar.clear()
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "250 B of 1000 B" in said  # no terminal: a line


# --- top ---


def test_top_as_data(run, api):
    s = api.expect(201, api.post("/v1/sessions", {"name": "busy", "memory_limit": 1 << 30})).json()["id"]
    mine = api.clone(session=s)
    mine.create(name="u", shape=[300, 300])
    job = mine.expect(202, mine.post("/v1/programs", {"body": ["u += 0.1*laplacian(u)"], "steps": 10**12})).json()["id"]
    while mine.get(f"/v1/jobs/{job}").json()["step"] == 0:
        time.sleep(0.01)
    found = [json.loads(line) for line in ok(run("top", "--json", "--count", "2", "--delay", "0.4")).out.splitlines()]
    assert len(found) == 2
    for t in found:
        assert 0.3 < t["interval_s"] < 20 and t["backend"] == api.info()["backend"] and t["you"]["name"] == "local"
        (session,) = [x for x in t["sessions"] if x["id"] == s]
        assert session["name"] == "busy" and session["bytes_in_use"] >= 720000 and session["arrays"] == 1
        assert 0 < session["device"] <= t["principals"][0]["device"] * 1.5
        # asked for one after the other, while the job goes on
        assert 0 < session["device_s"] <= t["you"]["device_s"] + t["interval_s"] and t["you"]["device_s"] > 0
        assert t["you"]["month_s"] > 0 and t["principals"][0]["month_s"] > 0
        (shown,) = [x for x in t["jobs"] if x["id"] == job]
        assert shown["state"] == "running" and shown["session"] == s and shown["device_s"] > 0
        assert t["metrics"]["requests_s"] > 0 and t["principals"][0]["name"] == "local"
    assert found[1]["you"]["requests"] > found[0]["you"]["requests"]
    mine.expect(200, mine.delete(f"/v1/jobs/{job}"))
    text = ok(run("top", "--once", "--delay", "0.1", "--sort", "name")).out
    assert re.search(r"^busy +s-\w+ +1 +\S+ \w+ +1\.0 GiB +\d", text, re.M) and re.search(rf"^{job} +busy +cancelled ", text, re.M)
    assert re.search(r"^USER .* DEVICE s +MONTH s ", text, re.M) and re.search(r"\bthis month [\d.]+ s", text)
    assert re.search(r"^device 0: (CPU|NVIDIA).* of [\d.]+ GiB(, \S+ \w+ kept for new arrays)?$", text, re.M) and "not shown" not in text
    mine.expect(204, mine.delete(f"/v1/jobs/{job}"))
    mine.close()


def test_top_says_what_it_may_not_see(accounts, daemon_with):
    accounts.add("ann")
    accounts.add("olga", role="operator")
    d = daemon_with("--accounts", accounts.path)
    ann, olga = (json.loads(ok(cli(d)("--token", accounts.token[n], "top", "--once", "--json", "--delay", "0.05")).out) for n in ("ann", "olga"))
    assert ann["metrics"] is None and ann["principals"] is None and "/metrics may not be read" in ann["hidden"][0]
    assert ann["you"]["requests"] > 0 and ann["you"]["requests_s"] > 0 and ann["you"]["device_s"] == 0
    assert {p["name"] for p in olga["principals"]} == {"ann", "olga"} and olga["hidden"] == []
    text = ok(cli(d)("--token", accounts.token["ann"], "top", "--once", "--delay", "0.05")).out
    assert "not shown: other users" in text and "USER" not in text and "you: ann (user" in text


@pytest.mark.in_turn
def test_top_shows_operators_everybody(accounts, daemon_with):
    accounts.add("ann")
    accounts.add("olga", role="operator")
    d = daemon_with("--accounts", accounts.path)
    ann = accounts.client(d, "ann")
    ann.create(name="u", shape=[300, 300])
    job = ann.post("/v1/programs", {"body": ["u += 0.1*laplacian(u)"], "steps": 10**12}).json()["id"]
    until(lambda: ann.get(f"/v1/jobs/{job}").json()["step"] > 0)
    top = [ok(cli(d)("--token", accounts.token[n], "top", "--once", "--delay", "0.1", *more)).out
           for n in ("ann", "olga") for more in ((), ("--json",))]
    assert "USER" not in top[0] and "olga" not in top[1]
    assert re.search(rf"^JOB +USER +SESSION .*\n{job} +ann +default +running .* u \+= 0\.1\*laplacian\(u\)$", top[2], re.M) and "not shown" not in top[2]
    assert len(re.findall(r"^default +(ann|olga) +s-", top[2], re.M)) == 2
    sample = json.loads(top[3])
    assert [(j["id"], j["owner"]) for j in sample["jobs"]] == [(job, "ann")] and sample["jobs"][0]["device_s"] > 0
    assert {s["owner"] for s in sample["sessions"]} == {"ann", "olga"}
    ann.delete(f"/v1/jobs/{job}")
    ann.close()


def test_jobs_of_top(daemon_with, monkeypatch):
    """Those that have ended are not listed again and again, and yet none that runs is missed."""
    monkeypatch.setattr("arrayd.cli._sample.PAGE", 2)
    monkeypatch.setattr("arrayd.cli._sample.AGAIN", 4)
    d = daemon_with()
    api = d.client()
    api.create(name="u", shape=[2])

    def start(steps):
        return api.post("/v1/programs" + ("?wait=1" if steps < 9 else ""), {"body": ["u += 1"], "steps": steps}).json()["id"]

    ids = [start(10**15)]
    api.delete(f"/v1/jobs/{ids[0]}")
    until(lambda: api.get(f"/v1/jobs/{ids[0]}").json()["state"] == "cancelled")
    ids += [start(3) for _ in range(6)]
    watch = Watch(Context(make_parser().parse_args(["--url", f"http://127.0.0.1:{d.port}", "top"])))
    assert [j["id"] for j in watch.look()["jobs"]] == ids[:1:-1]
    running = start(10**15)
    pages = requests(api)
    assert [j["id"] for j in watch.look()["jobs"]] == [running, ids[6]] and requests(api) - pages <= 2
    api.delete(f"/v1/jobs/{running}")
    for _ in range(2):
        assert running in [j["id"] for j in watch.look()["jobs"]]
    api.expect(202, api.post(f"/v1/jobs/{ids[0]}/resume"))  # it is before those that are listed
    assert any([j["id"] for j in watch.look()["jobs"]][0] == ids[0] for _ in range(4))
    api.delete(f"/v1/jobs/{ids[0]}")
    watch.context.close()
    api.close()


def requests(api):
    text = api.get("/metrics").body.decode()
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("arrayd_http_requests_total{") and 'route="/v1/admin/jobs"' in line)


def test_lines_of_top_fit():
    total, of = metrics('# HELP a b\nx_total{a="1"} 2\nx_total{a="2"} 3.5\ny_bucket{le="1"} 7\narrayd_principal_arrays{principal="bo"} 4\nz NaN\n')
    assert total["x_total"] == 5.5 and "y_bucket" not in total and of == {"bo": {"arrays": 4.0}}
    sample = {"version": "1", "backend": "cpu", "url": "u" * 99, "time": "2025-01-01T00:00:00Z", "metrics": None, "principals": None,
              "devices": [{"index": 0, "name": "d" * 99, "memory": 1 << 40, "free": 1}], "bytes_in_use": 5, "host_bytes_in_use": 5,
              "you": {"name": "a", "role": "user", "weight": 1, "quotas": {"device_memory": {"used": 1, "limit": None}}, "device_s": None},
              "sessions": [{"id": f"s-{k}", "name": None, "arrays": 1, "bytes_in_use": k, "memory_limit": None, "ttl_s": 5, "device_s": 9 - k}
                           for k in range(3)], "jobs": [], "hidden": ["x"]}
    for columns in (10, 40, 200):
        assert max(len(text) for text, _ in lines(sample, columns, "device")) <= columns
    wide = {**sample, "url": "http://127.0.0.1:7411",
            "devices": [{"index": 0, "name": "NVIDIA H200 of the other rack", "memory": 141 << 30, "free": 1 << 30}],
            "metrics": {"uptime_s": 98765.0, "connections": 123, "in_flight": 45, "turns_waiting": 6},
            "sessions": [{**x, "id": "s-" + "i" * 22, "name": "a name", "ttl_s": 3600, "memory_limit": 1 << 30, "device": 0.5}
                         for x in sample["sessions"]]}
    shown = [text for text, _ in lines(wide, 80, "device")]
    assert max(map(len, shown)) <= 80
    for text in (r"up 1 d 3 h", r"device 0: NVIDIA H200.* 140 GiB of 141 GiB$", r"\d+ connections", r"\b6 waiting for the device$",
                 r"^SESSION +ID .* TTL$", r"^a name +s-i+…? .* 1:00:00$"):
        assert re.search(text, "\n".join(shown), re.M), (text, shown)
    order = {sort: re.findall(r"s-\d", "".join(t for t, _ in lines(sample, 200, sort))) for sort in ("device", "memory", "name")}
    assert order == {"device": ["s-0", "s-1", "s-2"], "memory": ["s-2", "s-1", "s-0"], "name": ["s-0", "s-1", "s-2"]}


def test_top_on_a_terminal(daemon_with, tmp_path):
    d = daemon_with()
    api = d.client()
    for k in range(30):
        api.expect(201, api.post("/v1/sessions", {"name": f"session_{k}"}))
    env = environment(tmp_path / "bin", f"http://127.0.0.1:{d.port}")
    t = Terminal(["arrayd-cli", "top", "--delay", "0.2"], env)
    text = t.until(r"SESSION +ID +ARRAYS +MEMORY")
    assert "arrayd" in text
    t.resize(12, 60)
    assert "USER" in t.until(r"every 0.2 s")  # all of it again, for the new size
    t.type("s")
    t.until("memory")
    t.type("k" + "j" * 25)  # the lines below
    t.until(r"session_\d")
    t.resize(40, 120)
    t.until(r"q quits, s sorts.*arrows go on|lines \d+ to")
    d.proc.send_signal(signal.SIGSTOP)  # a daemon that answers nothing: keys are heard
    time.sleep(0.3)
    begun = time.monotonic()
    t.type("q")
    status, _ = t.end()
    assert status == 0 and time.monotonic() - begun < 5
    d.proc.send_signal(signal.SIGCONT)
    t = Terminal(["arrayd-cli", "top", "--delay", "0.1"], env)
    t.until("SESSION")
    d.stop()
    t.until("cannot connect|the daemon closed|shutting down")  # and goes on
    t.type("\x03")
    assert t.end()[0] == 130
    t = Terminal(["arrayd-cli", "top"], env)
    status, seen = t.end()
    assert status == 1 and "cannot connect" in seen
    api.close()


def test_top_elsewhere(env):
    """A terminal that curses does not know, and none at all: text again and again."""
    t = Terminal(["arrayd-cli", "top", "--delay", "0.1"], {**env, "TERM": "no-such-terminal"})
    t.until("(?s)SESSION.*SESSION")
    t.type("\x03")
    assert t.end()[0] == 130
    done = subprocess.run(["bash", "-c", "arrayd-cli top --delay 0.05 | head -n 3"], env=env, capture_output=True, text=True, timeout=60)
    assert len(done.stdout.splitlines()) == 3 and done.stderr == ""


# --- completion ---


@pytest.fixture
def offered(daemon, api, monkeypatch, capfd):
    """What the last of the words may become."""
    monkeypatch.setenv("ARRAYD_URL", f"http://127.0.0.1:{daemon.port}")
    for name in ("field", "fiend", "other"):
        api.create(name=name, shape=[2])

    def ask(*words):
        try:
            assert main(["__complete", *words]) == 0
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        out, err = capfd.readouterr()
        assert err == ""
        return [line.split("\t")[0] for line in out.splitlines()]

    return ask


def test_what_is_offered(offered, api, monkeypatch):
    nameless = api.create(shape=[1])["id"]
    assert offered("") == ["put", "get", "show", "eval", "ls", "import", "export", "rm", "info", "run", "top", "events", "completion"] and offered("r") == ["rm", "run"]
    assert offered("get", "fi") == ["field", "fiend"] and offered("get", "") == ["field", "fiend", "other", nameless]
    assert offered("get", "field", "") == [":files npy"] and offered("get", "field", "x", "") == []
    assert offered("rm", "field", "fi") == ["fiend"] and offered("rm", "a-") == [nameless]
    assert offered("put", "") == [":files npy"] and offered("run", "x") == [":files"]
    assert offered("eval", "2*fie") == ["2*field", "2*fiend"] and offered("eval", "1 - sq") == ["1 - square(", "1 - sqrt(", "1 - squeeze("]
    assert offered("eval", "2e") == [] and offered("eval", "field + ") == ["field + field", "field + fiend", "field + other", f"field + {nameless}"]
    assert offered("eval", "x", "--bind", "a=fie") == ["a=field", "a=fiend", ":files npy"]
    assert offered("eval", "x", "--bind", "oth") == ["other=other"] and offered("eval", "x", "--bind=a=oth") == ["--bind=a=other", ":files npy"]
    assert offered("eval", "x", "--dtype", "comp") == ["complex64", "complex128"] and offered("eval", "--dtype=bf") == ["--dtype=bfloat16"]
    assert offered("eval", "--fa") == ["--fast-math"] and "--token-file" in offered("ls", "--") and "-l" in offered("ls", "-")
    assert offered("--url", f"{os.environ['ARRAYD_URL']}", "get", "oth") == ["other"] and offered("--url", "") == []
    assert offered("top", "--sort", "") == ["device", "memory", "name"] and offered("completion", "") == ["bash", "zsh", "fish"]
    assert offered("run", "p", "--snapshot", "oth") == ["other="] and offered("eval", "--", "oth") == ["other"]
    assert offered("ls", "--session", "s-")[0].startswith("s-") and offered("--token-file", "") == [":files"]
    assert offered("nothing", "x") == [] and offered("get", "--nothing", "fi") == ["field", "fiend"] and offered() == offered("")
    for k in range(1, 40):  # whatever is typed
        offered(*"eval --bind a=b --bind =c=d '( -x -- -- --dtype= -o - get".split()[:k % 14], "=-:" * (k % 3))
    monkeypatch.setenv("ARRAYD_URL", "http://127.0.0.1:1")
    assert offered("get", "") == [] and offered("r") == ["rm", "run"]
    monkeypatch.setenv("ARRAYD_URL", "nonsense://")
    assert offered("get", "") == []


def test_a_daemon_that_does_not_answer_holds_nobody_up(env):
    """The name of the process is bash's to wait for."""
    server = socket.create_server(("127.0.0.1", 0))
    begun = time.monotonic()
    done = subprocess.run(["arrayd-cli", "__complete", "get", ""], env={**env, "ARRAYD_URL": f"http://127.0.0.1:{server.getsockname()[1]}"},
                          capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "") and time.monotonic() - begun < 10
    server.close()


TYPED = [("eval 'sum(2+oth", "eval 'sum(2+other"), ("--url URL eval x --bind a=oth", "--url URL eval x --bind a=other "),
         ("put na", "put name.npy ")]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_in_the_shell(shell, api, env, tmp_path):
    """Typed, with a tab after it, in the shell itself."""
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    api.create(name="other", shape=[2])
    (tmp_path / "name.npy").write_bytes(b"")
    (tmp_path / "none.txt").write_bytes(b"")
    env = {**env, "XDG_CONFIG_HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "HOME": str(tmp_path), "PS1": "> "}
    if shell == "fish":
        script = subprocess.run(["arrayd-cli", "completion", "fish"], env=env, capture_output=True, text=True, check=True).stdout
        (tmp_path / "c.fish").write_text(script)
        asked = "".join(f"complete -C {shlex.quote('arrayd-cli ' + a)}\n".replace("URL", env["ARRAYD_URL"]) for a, _ in TYPED)
        asked = asked.replace("'\"'\"'", "\\'")
        done = subprocess.run(["fish", "--no-config", "-c", f"source c.fish\n{asked}"], env=env, cwd=tmp_path, capture_output=True, text=True,
                              timeout=60)
        got = [line.split("\t")[0] for line in done.stdout.splitlines()]
        assert got == ["'sum(2+other", "a=other", "name.npy"], done
        return
    words, setup = {"bash": (["bash", "--norc", "-i"], ""),
                    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -u -D; ")}[shell]
    t = Terminal(words, {**env, "TERM": "dumb"}, columns=200, cwd=tmp_path)
    t.until("> ")
    t.type(f'PS1="ready"; {setup}eval "$(arrayd-cli completion {shell})"; PS1="re"ady\n')
    t.until(r"ready(?!.*ady)")
    for typed, becomes in TYPED:
        t.type("arrayd-cli " + typed.replace("URL", env["ARRAYD_URL"]) + "\t")
        t.until(re.escape("arrayd-cli " + becomes.replace("URL", env["ARRAYD_URL"])))
        t.type("\x15")
    t.type("exit\n")
    t.end()


def test_shells_read_their_scripts(tmp_path):
    for shell in ("bash", "zsh", "fish"):
        script = tmp_path / shell
        script.write_text(cli("http://127.0.0.1:1")("completion", shell).out)
        assert script.read_text().count("__complete") == 1
        if shutil.which(shell):
            done = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, "")

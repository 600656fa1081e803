"""The Python client and its command where replies of success are not what arrayd says: from something else, or of a version to come."""
import asyncio
import http.server
import json
import pathlib
import sys
import threading

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients" / "python" / "src"))
import arrayd  # noqa: E402
from arrayd import _replies as replies  # noqa: E402
from arrayd.cli import main  # noqa: E402

pytestmark = pytest.mark.release_only  # it is the client that is tested here

ARRAY = {"id": "a-1", "name": None, "shape": [3], "dtype": "float64", "nbytes": 24, "created": "2026-01-01T00:00:00Z"}
JOB = {"id": "j-1", "session": "s-1", "state": "running", "step": 1, "steps": 5, "steps_per_s": 1.5, "elapsed_s": 0, "device_s": 0.0}
INFO = {"backend": "cpu", "version": "9", "devices": [], "bytes_in_use": 0, "host_bytes_in_use": 0, "dtypes": [], "limits": {}, "operations": [],
        "state": {"kept": False, "restored_from": None}, "principal": {"name": "x", "role": "user", "weight": 1, "quotas": {}}}


class Other(http.server.ThreadingHTTPServer):
    """Says `said`, by the path where it has one, to whatever it is asked."""

    daemon_threads = True

    def __init__(self):
        self.said, self.kind = {}, "application/json"

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version, wbufsize = "HTTP/1.1", -1  # head and body in one piece

            def do_GET(self):
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                said = self.server.said
                body = said if isinstance(said, bytes) else said.get(self.path.split("?")[0], b"{}")
                body = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(200)
                self.send_header("Content-Type", self.server.kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_PUT = do_DELETE = do_GET

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d" % self.server_address[1]


@pytest.fixture(scope="module")
def serving():
    server = Other()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def other(serving):
    serving.said, serving.kind = {}, "application/json"
    return serving


ASKS = {  # what needs a reply of JSON, and the request that is named where it is none
    "info": (lambda xp: xp.info(), "GET /v1/info"),
    "array": (lambda xp: xp.array("u"), "GET /v1/arrays/u"),
    "metadata": (lambda xp: xp.metadata("u"), "GET /v1/arrays/u"),
    "save": (lambda xp: xp.save("u", xp.sqrt(xp.zeros(3))), "POST /v1/evaluate"),
    "upload": (lambda xp: xp.save("u", np.arange(3.0)), "PUT /v1/arrays/u"),
    "make": (lambda xp: xp.random((9,)).compute(), "POST /v1/arrays"),
    "compute": (lambda xp: (xp.zeros(3) + 1).compute(), "POST /v1/evaluate"),
    "evaluate": (lambda xp: xp.evaluate("u + 1"), "POST /v1/evaluate"),
    "session": (lambda xp: xp.session(), "POST /v1/sessions"),
    "program": (lambda xp: xp.program(["u = 1"], steps=1), "POST /v1/programs"),
    "job": (lambda xp: xp.job("j-1"), "GET /v1/jobs/j-1"),
    "grid": (lambda xp: xp.grid(3), "POST /v1/arrays"),
    "share": (lambda xp: xp.share("u", "ann"), "POST /v1/arrays/u/shares"),
    "shares": (lambda xp: xp.shares("u"), "GET /v1/arrays/u/shares"),
    "sessions": (lambda xp: xp.sessions(), "GET /v1/sessions"),
    "jobs": (lambda xp: xp.jobs(), "GET /v1/jobs"),
    "functions": (lambda xp: xp.functions(), "GET /v1/functions")}


@pytest.mark.parametrize("body", [b"{}", b"[]", b"null", b"17", b'"text"', b"", b"<html>gateway</html>", b'{"id": 5, "shape": "3", "dtype": []}'])
def test_other_json(other, body):
    """Each way of asking is a BadReply that names the request, with both clients; connecting is one."""
    xp = connected(other)
    other.said = body
    with pytest.raises(arrayd.BadReply, match="GET /v1/info: the reply"):
        arrayd.connect(other.url)
    for name, (ask, request) in ASKS.items():
        if name == "metadata" and json.loads(body if body.startswith(b"{") else b"null") is not None:
            continue  # an object is handed on as it is
        with pytest.raises(arrayd.BadReply, match=request) as e:
            ask(xp)
        assert e.value.code == "bad_reply" and e.value.status == 200 and "the reply" in e.value.detail, name
    with pytest.raises(arrayd.BadReply, match="GET /v1/arrays"):
        list(xp.arrays())
    with pytest.raises(arrayd.BadReply, match="POST /v1/evaluate: the reply has"):
        np.asarray(xp.ones(1000) + 1)
    xp.close()
    with pytest.raises(arrayd.BadReply, match="GET /v1/info"):
        asyncio.run(asynchronously(other.url, ASKS["info"][0]))
    for name, (ask, request) in ASKS.items():
        if name == "metadata" and body.startswith(b"{"):
            continue
        other.said = {"/v1/info": INFO, **dict.fromkeys([p.split(" ")[1] for _, p in ASKS.values() if p != "GET /v1/info"], body)}
        if name != "info":
            with pytest.raises(arrayd.BadReply, match=request):
                asyncio.run(asynchronously(other.url, ask))


def test_values_that_are_none(other):
    with connected(other) as xp:
        other.said = {"/v1/arrays/u": ARRAY}
        u = xp.array("u")
        for body in (b"", b"{}", b"\x93NUMPY\x01\x00", b"\x93NUMPY\x01\x00\x02\x00{}"):
            other.said = {"/v1/arrays/a-1/data": body}
            with pytest.raises(arrayd.BadReply, match="GET /v1/arrays/a-1/data: the reply is not an array"):
                u.read()
        other.said = {}
        with pytest.raises(arrayd.BadReply, match="no member 'location'"):
            u.location


def connected(other):
    other.said = {"/v1/info": INFO}
    return arrayd.connect(other.url)


async def asynchronously(url, ask):
    async with arrayd.aconnect(url) as xp:
        asked = ask(xp)
        return await asked


@pytest.mark.parametrize("change, where", [
    ({"shape": None}, "'/shape' of the reply is null, not a list"), ({"shape": [3, -1]}, "'/shape/1' of the reply is -1"),
    ({"shape": [True]}, "'/shape/0' of the reply is true"), ({"dtype": "float8"}, "'/dtype' of the reply is \"float8\", not a dtype"),
    ({"dtype": ["float64"]}, "'/dtype'"), ({"id": None}, "'/id' of the reply is null, not an id"),
    ({"id": "a-1\r\nX: y"}, "not an id"), ({"id": "../a"}, "not an id"), ({"id": "a-1\n"}, "not an id"), ({"name": 5}, "'/name' of the reply is 5")])
def test_the_member_is_named(other, change, where):
    with connected(other) as xp:
        other.said = {"/v1/arrays/u": {**ARRAY, **change}}
        with pytest.raises(arrayd.BadReply) as e:
            xp.array("u")
        assert where in e.value.detail and e.value.detail.startswith("GET /v1/arrays/u: ")
        other.said = {"/v1/arrays/u": {k: v for k, v in ARRAY.items() if k not in change}}
        if "name" not in change:  # without it the array has none
            with pytest.raises(arrayd.BadReply, match=f"no member '{next(iter(change))}'"):
                xp.array("u")
        other.said = {"/v1/arrays/u": {**ARRAY, "news": {"of": ["a", "newer", "daemon"]}}}
        assert xp.array("u").shape == (3,)


def test_a_job_that_changes_its_form(other):
    """Also in the stream of events."""
    with connected(other) as xp:
        other.said = {"/v1/jobs/j-1": JOB}
        job = xp.job("j-1")
        for said in (b"data: {\n\n", b"data: \xff\n\n", b'data: {"step": "one"}\n\n', b"data: []\n\n", b'data: {"records": {"e": 5}}\n\n'):
            other.said = {"/v1/jobs/j-1": JOB, "/v1/jobs/j-1/events": said}
            with pytest.raises(arrayd.BadReply, match="GET /v1/jobs/j-1/events: "):
                list(job.events())
        other.said = {}
        for ask in (job.refresh, job.cancel, job.resume, job.wait):
            with pytest.raises(arrayd.BadReply, match="no member 'id'"):
                ask()
        assert job.status == JOB


COMMANDS = {"info": ["info"], "info of an array": ["info", "u"], "ls": ["ls", "-l"], "eval": ["eval", "u + 1"], "eval --name": ["eval", "1", "--name", "v"],
            "eval --json": ["eval", "1", "--json"], "run": ["run", "FILE"], "top": ["top", "--once"], "put": ["put", "ARRAY", "u"]}


@pytest.mark.parametrize("body", [b"{}", b"[]", b"null", b"", b"<html>", b'{"arrays": [{}], "devices": [5], "id": 5, "value": [1], "shape": [], "dtype": "float64"}'])
def test_the_command(other, tmp_path, capsys, body):
    """One line on standard error, status 1, no traceback."""
    other.said = body
    np.save(tmp_path / "f.npy", np.arange(3.0))
    (tmp_path / "p.arrayd").write_text("@steps 3\nu = 1\n")
    for name, words in COMMANDS.items():
        if body.startswith(b"{") and name in ("info of an array", "eval --json"):
            continue  # an object is printed as it is
        words = [{"FILE": str(tmp_path / "p.arrayd"), "ARRAY": str(tmp_path / "f.npy")}.get(w, w) for w in words]
        assert main(["--url", other.url, "-q", *words]) == 1, name
        told = capsys.readouterr().err
        assert told.count("\n") == 1 and "the reply" in told and "/v1/" in told, (name, told)


def test_what_the_command_wants_is_no_more_than_there_is(other, capsys):
    other.said = {"/v1/info": INFO, "/v1/arrays": {"arrays": [ARRAY]}, "/v1/sessions": {"sessions": []}, "/v1/jobs": {"jobs": [JOB]}}
    for words, want in ((["info"], "arrayd 9"), (["ls", "-l"], "a-1"), (["top", "--once", "--delay", "0.1"], "running")):
        assert main(["--url", other.url, *words]) == 0
        assert want in capsys.readouterr().out


def test_forms():
    """Every alternative is told, each fault once; of what an export says, too."""
    export = {"socket": "/s", "token": "t", "lease": "l", "offset": 0, "strides": [-1], "shape": [3], "dtype": "int8"}
    assert replies.fault({**export, "kind": "memfd"}, replies.EXPORT) is None
    assert replies.fault({**export, "kind": "cuda", "uuid": "GPU-1"}, replies.EXPORT) is None
    assert "no member 'uuid'" in replies.fault({**export, "kind": "cuda"}, replies.EXPORT)
    assert "'/kind'" in replies.fault({**export, "kind": "hip"}, replies.EXPORT)
    assert replies.fault(7, replies.EXPORT) == "the reply is 7, not an object"
    assert replies.fault({"size": 5}, replies.HANDED_OVER) is None and replies.fault({"status": 403}, replies.HANDED_OVER) is None
    assert "no member 'size'" in replies.fault({}, replies.HANDED_OVER)
    for value in (1, True, "NaN", "9007199254740993", [0, "Infinity"], 0.5):
        assert replies.VALUE.holds(value)
    for value in (None, {}, [], [1], "x", [[], 1]):
        assert not replies.VALUE.holds(value)
    assert len(replies.fault({"id": "x" * 10_000, "name": ["y" * 10_000]}, replies.MADE)) < 200

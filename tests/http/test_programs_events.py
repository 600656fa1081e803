"""GET /v1/jobs/{id}/events: what is sent while a job goes on, at its end, and to who comes back."""
import json
import socket
import threading
import time

import numpy as np

from client import JSON
from streams import Stream
from test_framing import Reply, request, talk
from test_programs import job, run, start
from test_reductions import hold


def test_events(api):
    hold(api, "x", np.zeros(3))
    ref = start(api, ["x += 1"], record={"x": "x[0]"}, record_every=10_000, steps=10**9)
    s = socket.create_connection((api.host, api.port))
    s.settimeout(20)
    s.sendall(f"GET /v1/jobs/{ref}/events HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
    got = b""
    while got.count(b"\n\n") < 5:
        got += s.recv(65536)
    api.expect(200, api.delete(f"/v1/jobs/{ref}"))
    while chunk := s.recv(65536):
        got += chunk
    head, _, body = got.partition(b"\r\n\r\n")
    assert b"Content-Type: text/event-stream" in head and b" 200 " in head.split(b"\r\n")[0]
    events = [dict(line.split(": ", 1) for line in e.split("\n") if line and line[0] != ":")
              for e in body.decode().split("\n\n") if e.strip() and e[0] != ":"]
    data = [json.loads(e["data"]) for e in events]
    assert [e["event"] for e in events] == ["progress"] * (len(events) - 1) + ["end"]
    assert data[-1]["state"] == "cancelled"
    values = []
    for d in data:
        assert d["records_from"] == len(values)
        values += d["records"]["x"]
    assert values == [10_000.0 * (k + 1) for k in range(len(values))]
    assert [d["step"] for d in data] == sorted(d["step"] for d in data)
    r = api.expect(200, api.get(f"/v1/jobs/{ref}/events"))
    assert r.body.decode().startswith("event: end\nid: ")
    for accept, status in ((JSON, 406), ("text/event-stream", 200), ("text/*, application/json", 200)):
        api.expect(status, api.get(f"/v1/jobs/{ref}/events", accept=accept))


def test_head_has_no_body(api):
    """Nor the end of one that would come in chunks: what follows on a connection is the next reply."""
    hold(api, "x", np.zeros(3))
    ref = run(api, ["x += 1"])["id"]
    raw, closed = talk(api, request(f"HEAD /v1/jobs/{ref}/events HTTP/1.1".encode(), b"Host: localhost"))
    head = Reply(raw, True)
    assert head.status == 200 and head.headers["content-type"] == "text/event-stream"
    assert raw.endswith(b"\r\n\r\n") and raw.count(b"\r\n\r\n") == 1 and closed


def test_the_interval_and_the_end(daemon_with):
    """Between two events there is the interval, whatever changes meanwhile; the end is told at once."""
    c = daemon_with("--event-interval", "0.5").client()
    hold(c, "x", np.zeros(3))
    ref = start(c, ["x += 1"], steps=10**12)
    with Stream(c, f"/v1/jobs/{ref}/events") as s:
        s.wait("progress")
        began = time.monotonic()
        s.wait("progress", 4)
        assert time.monotonic() - began > 1.3
        c.expect(200, c.delete(f"/v1/jobs/{ref}"))
        began = time.monotonic()
        assert s.wait("end")["state"] == "cancelled" and time.monotonic() - began < 0.4
    c.close()


def events_of(text):
    """name, id and data of each event"""
    events = [dict(line.split(": ", 1) for line in e.split("\n")) for e in text.split("\n\n") if e and e[0] != ":"]
    return [(e["event"], e["id"], json.loads(e["data"])) for e in events]


def test_who_comes_back_to_the_events(api):
    """As browsers do when the reply ends: with the id of the last event. 204 tells them to stay away."""
    def back(last):
        return api.get(f"/v1/jobs/{ref}/events", headers={"Last-Event-ID": last})

    hold(api, "x", np.zeros(3))
    ref = run(api, ["x += 1"], steps=9000, record={"x": "x[0]"})["id"]
    first = api.expect(200, api.get(f"/v1/jobs/{ref}/events"))
    (_, middle, a), (name, last, b) = events_of(first.body.decode())
    assert name == "end" and len(a["records"]["x"]) == b["records_from"] == 8192
    assert api.expect(204, back(last)).body == b""
    assert events_of(api.expect(200, back(middle)).body.decode()) == [("end", last, b)]
    for unknown in ("", "7", "1.", "1.9001", "2.9000", "-1.0", "1.9000x", " 99999999999999999999.1"):
        assert api.expect(200, back(unknown)).body == first.body
    # one that goes on when it had ended
    ref = start(api, ["x = sqrt(x - x - 1)"], steps=10, stop_on_nan=True, record={"x": "x[0]"})
    (_, last, failed), = [e for e in events_of(api.get(f"/v1/jobs/{ref}/events").body.decode()) if e[0] == "end"]
    assert failed["state"] == "failed"
    api.expect(204, back(last))
    api.expect(202, api.post(f"/v1/jobs/{ref}/resume"))
    name, again, _ = events_of(api.expect(200, back(last)).body.decode())[-1]
    assert name == "end" and again != last
    api.expect(204, back(again))


def test_the_end_that_is_told_is_one(api):
    """Cancelled and resumed again and again: the last event is of a job that has ended, the others of one that goes on."""
    hold(api, "x", np.zeros(3))
    ref, seen, over = start(api, ["x += 1"], steps=10**12), [], threading.Event()

    def watch():
        c = api.clone()
        while not over.is_set():
            seen.extend(events_of(c.get(f"/v1/jobs/{ref}/events").body.decode()))
        c.close()

    watchers = [threading.Thread(target=watch) for _ in range(2)]
    for t in watchers:
        t.start()
    end = time.monotonic() + 0.7
    while time.monotonic() < end:
        assert api.expect(200, api.delete(f"/v1/jobs/{ref}")).json()["state"] == "cancelled"
        api.expect(202, api.post(f"/v1/jobs/{ref}/resume"))
    over.set()
    api.expect(200, api.delete(f"/v1/jobs/{ref}"))
    for t in watchers:
        t.join()
    assert {(name, d["state"] == "cancelled") for name, _, d in seen} <= {("end", True), ("progress", False)}
    assert seen[-1][0] == "end"


def test_many_values(api):
    """More than are printed in one go: the job has them all, its events one part after another."""
    hold(api, "x", np.zeros(3))
    r = run(api, ["x += 1"], steps=9000, record={"x": "x[0]", "y": "x[1] > 4"})
    want = {"x": [k + 1.0 for k in range(9000)], "y": [k > 3 for k in range(9000)]}
    assert r["records"] == want == job(api, r["id"])["records"]
    events = api.expect(200, api.get(f"/v1/jobs/{r['id']}/events")).body.decode().split("\n\n")
    assert [e.split("\n")[0] for e in events] == 2 * ["event: progress"] + ["event: end", ""]
    data = [json.loads(e.split("data: ")[1]) for e in events[:-1]]
    assert [d["records_from"] for d in data] == [0, 4096, 8192]
    assert {k: sum((d["records"][k] for d in data), []) for k in want} == want

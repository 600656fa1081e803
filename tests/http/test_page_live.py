"""The page's streams of events, in a browser: what changes is seen without asking, and is asked for where there is no stream."""
import time

import pytest

from browser import Browser
from conftest import until
from test_events import figure
from test_page_arrays import BOARD, drawn, look, names

pytestmark = [pytest.mark.in_turn, pytest.mark.release_only,  # it is the page that is tested here
              pytest.mark.skipif(bool(Browser.missing()), reason=str(Browser.missing()))]
STREAMS = "text/event-stream"
HIDE = "(is => { Object.defineProperty(document, 'hidden', { value: is, configurable: true }); document.dispatchEvent(new Event('visibilitychange')); return true; })"


def asked(page, part):
    """How often it has asked for addresses with that part, without their streams."""
    page.browser.read(0)
    return sum(part in url and "/events" not in url for url in page.asked)


def streams(page):
    page.browser.read(0)
    return sum("/events" in url for url in page.asked)


def running(c):
    c.create(name="u", shape=[64, 96], random={"distribution": "normal", "seed": 1})
    job = c.post("/v1/programs", {"body": ["u = where(u > 1, u - 2, u + 0.0131)"], "steps": 10**12}).json()["id"]
    return c.get("/v1/arrays/u").json()["id"], job


def without_streams(page, is_there="false"):
    """From now on each stream is refused, as by something that lies between, unless the condition is true."""
    page.run(f"""(real => {{ window.fetch = (url, how) => how.headers.Accept === "{STREAMS}" && !({is_there})
        ? Promise.reject(new TypeError("refused")) : real(url, how); return true; }})(window.fetch)""")


def test_a_picture_that_moves(visit, daemon_with):
    """Frames come without a request; for what is looked at then, where one looks at another part, and none when nobody looks."""
    d = daemon_with()
    c = d.client()
    ref, job = running(c)
    p = look(visit, d, ref)
    drawn(p, 2)()
    before, began = asked(p, "/data"), streams(p)
    assert began == 1
    drawn(p, 5)()
    assert (asked(p, "/data"), streams(p)) == (before, 1)
    rows = int(p.run(f"{BOARD}.getAttribute('aria-label').match(/rows 0 to (\\d+)/)[1]"))
    p.button("Zoom in")
    p.wait(f"Number({BOARD}.getAttribute('aria-label').match(/rows (\\d+)/)[1]) > 0")
    until(lambda: streams(p) == 2)
    drawn(p, 2)()
    before = asked(p, "/data")
    drawn(p, 4)()
    assert (asked(p, "/data"), streams(p)) == (before, 2) and rows == 64
    assert p.run(f"Number({BOARD}.getAttribute('aria-label').match(/rows (\\d+)/)[1]) > 0")  # still of that part
    c.delete(f"/v1/jobs/{job}")
    time.sleep(1)
    frames = p.run(f"{BOARD}.dataset.frames")
    time.sleep(1)
    assert p.run(f"{BOARD}.dataset.frames") == frames  # nothing changes
    another = drawn(p)
    c.post("/v1/evaluate", {"expr": "u + 1", "out": "u"})
    another()
    p.run("location.hash = '#node'")
    p.says("Running for")
    until(lambda: figure(c, 'arrayd_http_requests_total{route="/v1/arrays/{ref}/events",method="GET",status="200"}') == 2)  # both are over
    c.close()


def test_a_curve_that_moves(visit, daemon_with):
    d = daemon_with()
    c = d.client()
    ref = c.create(name="v", shape=[50], fill=1.0)["id"]
    p = visit(d, f"#array/{ref}")
    p.says("Mean")
    until(lambda: streams(p) == 1)
    p.wait("document.querySelector('.aside dl').innerText.includes('1')")
    time.sleep(1.5)
    before = asked(p, "/data")
    time.sleep(2.5)
    assert asked(p, "/data") == before
    c.post("/v1/evaluate", {"expr": "v + 41.5", "out": "v"})
    p.wait("document.querySelector('.aside').innerText.includes('42.5')")
    assert asked(p, "/data") == before + 1
    c.close()


def test_lists_that_change(visit, daemon_with):
    """Arrays that are made, renamed, written and deleted, jobs that begin and end: seen without a request."""
    d = daemon_with()
    c = d.client()
    c.create(name="first", shape=[3])
    p = visit(d, "#arrays")
    p.wait("document.querySelectorAll('tbody tr').length === 1")
    before = asked(p, "/v1/arrays")
    assert streams(p) == 1
    u = c.create(name="second", shape=[4, 5])["id"]
    p.says("second")
    assert names(p)[0] == "second"
    c.patch(f"/v1/arrays/{u}", {"name": "renamed", "read_only": True})
    p.says("renamed")
    p.says("read-only")
    c.post("/v1/evaluate", {"expr": "first + 1", "out": "first"})
    p.says("being written")
    p.wait("!document.querySelector('main').innerText.includes('being written')")
    c.patch(f"/v1/arrays/{u}", {"read_only": False})
    c.delete(f"/v1/arrays/{u}")
    p.wait("document.querySelectorAll('tbody tr').length === 1")
    assert (asked(p, "/v1/arrays"), streams(p)) == (before, 1)

    p.run("location.hash = '#jobs'")
    p.says("There are no jobs")
    before = asked(p, "/v1/jobs")
    job = c.post("/v1/programs", {"body": ["first += 1"], "steps": 10**12}).json()["id"]
    p.wait("document.querySelector('tbody .badge')?.innerText === 'running'")
    steps = p.texts("tbody td")[3]
    p.wait(f"document.querySelectorAll('tbody td')[3].innerText !== {steps!r}")
    c.delete(f"/v1/jobs/{job}")
    p.wait("document.querySelector('tbody .badge')?.innerText === 'cancelled'")
    c.delete(f"/v1/jobs/{job}")
    p.says("There are no jobs")
    assert asked(p, "/v1/jobs") == before
    c.close()


@pytest.mark.parametrize("view", ["arrays", "jobs", "array"])
def test_without_a_stream(visit, daemon_with, view):
    """Where streams are refused one asks, and takes one again when it is there."""
    d = daemon_with()
    c = d.client()
    ref, job = running(c)
    p = visit(d, "#node")
    p.says("Running for")
    without_streams(p, "window.there")
    p.run(f"location.hash = '#{view if view != 'array' else f'array/{ref}'}'")
    part = {"arrays": "/v1/arrays?", "jobs": "/v1/jobs?", "array": "/data"}[view]
    until(lambda: asked(p, part) >= 3)
    if view == "array":
        drawn(p, 2)()
    else:
        p.wait("document.querySelectorAll('tbody tr').length === 1")
    p.run("window.there = true")
    until(lambda: streams(p) == 1)
    time.sleep(0.7)  # what had been asked for
    before = asked(p, part)
    time.sleep(3)
    assert asked(p, part) == before
    c.delete(f"/v1/jobs/{job}")
    c.close()


def test_one_stream_a_page(visit, daemon_with):
    """Of six connections that a browser holds to a host streams take four at most, whatever its windows show; hidden ones hold none."""
    d = daemon_with()
    c = d.client()
    c.create(name="u", shape=[3])

    def open_now():
        return figure(c, "arrayd_http_requests_in_flight") - 1

    p = visit(d, "#arrays")
    p.says("Search by name")
    until(lambda: open_now() == 1)
    for view, n in (("jobs", 1), ("array/" + c.get("/v1/arrays/u").json()["id"], 1), ("node", 0), ("arrays", 1)):
        p.run(f"location.hash = '#{view}'")
        until(lambda n=n: open_now() == n)
        time.sleep(0.3)
        assert open_now() <= n + 1  # the view Node asks
    p.run(f"{HIDE}(true)")
    until(lambda: open_now() == 0)
    c.create(name="meanwhile", shape=[3])
    time.sleep(1)
    assert "meanwhile" not in p.text() and open_now() == 0
    p.run(f"{HIDE}(false)")
    p.says("meanwhile")
    until(lambda: open_now() == 1)
    p.run("location.hash = '#node'")
    p.says("Running for")
    p.run("Promise.all([0, 1, 2, 3].map(k => new Promise(done => { navigator.locks.request(`arrayd-stream-${k}`, () => (done(), new Promise(() => {}))); }))).then(() => true)")
    n = streams(p)
    p.run("location.hash = '#arrays'")
    p.says("Search by name")
    before = asked(p, "/v1/arrays?")
    until(lambda: asked(p, "/v1/arrays?") > before)
    assert streams(p) == n
    c.close()


def test_a_session_that_ends(visit, daemon_with):
    """While its arrays are looked at: the view goes on with those that there are."""
    d = daemon_with()
    c = d.client()
    session = c.expect(201, c.post("/v1/sessions", {"name": "short"})).json()["id"]
    p = visit(d, "#arrays")
    p.wait("document.querySelectorAll('select option').length === 3")
    until(lambda: streams(p) == 1)
    p.run(f"(s => {{ s.value = {session!r}; s.dispatchEvent(new Event('change')); return true; }})(document.querySelector('select'))")
    until(lambda: streams(p) == 2)
    p.refused += ("/v1/arrays", "/v1/events")
    c.expect(204, c.delete(f"/v1/sessions/{session}"))
    p.says("The session has ended.", "body")
    p.wait("document.querySelector('select').value !== ''")
    c.close()


def test_a_login_that_ends(visit, daemon_with, accounts):
    accounts.add("bob")
    d = daemon_with("--accounts", accounts.path)
    c = accounts.client(d, "bob")
    c.create(name="u", shape=[3, 4])
    link = c.post("/v1/links", {"expires_s": 60}).json()
    p = visit(d, link["url"].lstrip("/"))
    p.says("read-only", "header")
    p.run("location.hash = '#arrays'")
    p.wait("document.querySelectorAll('tbody tr').length === 1")
    p.refused += ("/v1/",)
    c.expect(204, c.delete(f"/v1/links/{link['id']}"))
    p.says("Log in")
    c.close()


def test_a_job_that_nobody_sees(visit, daemon_with):
    """A hidden window has no stream of the job's either; shown again it goes on."""
    d = daemon_with()
    c = d.client()
    ref, job = running(c)
    assert ref
    p = visit(d, f"#job/{job}")
    p.says("Steps per second")
    until(lambda: streams(p) == 1 and figure(c, "arrayd_http_requests_in_flight") == 2)
    p.run(f"{HIDE}(true)")
    until(lambda: figure(c, "arrayd_http_requests_in_flight") == 1)
    time.sleep(1)
    assert figure(c, "arrayd_http_requests_in_flight") == 1
    p.run(f"{HIDE}(false)")
    until(lambda: streams(p) == 2 and figure(c, "arrayd_http_requests_in_flight") == 2)
    c.delete(f"/v1/jobs/{job}")
    p.wait("document.querySelector('.badge').innerText === 'cancelled'")
    until(lambda: figure(c, "arrayd_http_requests_in_flight") == 1)
    c.close()

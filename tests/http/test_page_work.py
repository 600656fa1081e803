"""The page's jobs and expressions, in a browser: what runs is watched, stopped and resumed; what is typed is completed, checked, explained."""
import re
import subprocess
import sys

import numpy as np
import pytest

from browser import Browser
from client import REPO

pytestmark = [pytest.mark.in_turn, pytest.mark.release_only,  # it is the page that is tested here
              pytest.mark.skipif(bool(Browser.missing()), reason=str(Browser.missing()))]
BOX = "textarea"


def test_jobs(visit, daemon_with):
    d = daemon_with()
    c = d.client()
    c.create(name="u", shape=[256, 256], random={"distribution": "normal", "seed": 1})
    done = c.post("/v1/programs?wait=1", {"body": ["u += 0.1*laplacian(u)"], "steps": 5}).json()["id"]
    job = c.post("/v1/programs", {"body": ["u += 0.1*laplacian(u)"], "steps": 10_000_000, "record": {"energy": "sum(u*u)", "most": "max(u)"},
                                  "record_every": 100}).json()["id"]
    p = visit(d, "#jobs")
    p.wait("document.querySelectorAll('tbody tr').length === 2")
    assert "running" in p.text("tbody tr:first-child") and "10\u202f000\u202f000" in p.text("tbody tr:first-child")
    assert re.search(r"\d+ (min|h|d)", p.text("tbody tr:first-child td:nth-child(6)"))  # what remains
    assert "5 of 5" in p.text("tbody tr:last-child") and "100 %" in p.text("tbody tr:last-child")
    p.click("tbody tr:first-child a")
    p.says("energy")
    p.wait("/^energy: [\\d.]+/.test(document.querySelectorAll('canvas')[0].getAttribute('aria-label'))")
    steps = p.texts("dd")[0]
    p.wait(f"document.querySelector('dd').innerText !== {steps!r}")  # it goes on
    assert "a step" in p.text() and "most" in p.text()
    p.button("Stop")
    p.wait("document.querySelector('.badge').innerText === 'cancelled'")
    assert c.get(f"/v1/jobs/{job}").json()["state"] == "cancelled"
    at = c.get(f"/v1/jobs/{job}").json()["step"]
    p.button("Resume")
    p.wait("document.querySelector('.badge').innerText === 'running'")
    p.wait(f"parseInt(document.querySelector('dd').innerText.replace(/\\u202f/g, '')) > {at}")
    p.button("Stop")
    p.wait("document.querySelector('.badge').innerText === 'cancelled'")
    p.button("Remove")
    p.button("Cancel", "dialog")
    p.button("Remove")
    p.button("Remove", "dialog")
    p.wait("location.hash === '#jobs' && document.querySelectorAll('tbody tr').length === 1")
    p.button("Remove")
    p.button("Remove", "dialog")
    p.says("There are no jobs")
    assert c.get("/v1/jobs").json()["jobs"] == [] and done
    c.close()


def test_a_job_that_fails(visit, daemon_with):
    d = daemon_with()
    c = d.client()
    c.create(name="u", shape=[4], fill=1.0)
    job = c.post("/v1/programs?wait=1", {"body": ["u = u*2", "u = u - 4*u"], "steps": 10_000, "stop_on_nan": True}).json()
    assert job["state"] == "failed"
    p = visit(d, f"#job/{job['id']}")
    p.says(job["error"]["detail"])
    assert f"Step {job['failed_step']}" in p.text(".problem") and p.text(".badge") == "failed"
    c.close()


def test_completion(visit, daemon_with):
    d = daemon_with()
    c = d.client()
    c.create(name="pressure", shape=[3, 4])
    c.expect(201, c.post("/v1/functions", {"name": "presses", "params": ["x"], "expr": "2*x"}))
    p = visit(d, "#eval")
    p.click(BOX)
    p.type("lap")
    p.wait("document.querySelector('.choices li')")
    assert p.texts(".choices li") and p.text(".choices li[aria-selected=true]").startswith("laplacian")
    p.press("Enter")
    p.type("pres")
    p.wait("document.querySelectorAll('.choices li').length === 2")
    assert "3 × 4" in p.text(".choices") and "your function" in p.text(".choices")
    p.press("ArrowDown")
    assert p.text(".choices li[aria-selected=true]").startswith("pressure") or p.text(".choices li[aria-selected=true]").startswith("presses")
    p.press("ArrowUp")
    chosen = p.text(".choices li[aria-selected=true] span")
    p.press("Tab")
    assert p.run(f"document.querySelector('{BOX}').value") == f"laplacian({chosen}" + ("(" if chosen == "presses" else "")
    p.type(" + s")
    p.wait("!document.querySelector('.choices').hidden")
    p.press("Escape")
    assert p.run("document.querySelector('.choices').hidden")
    c.close()


def test_mistakes_at_their_place(visit, daemon_with):
    d = daemon_with()
    c = d.client()
    c.create(name="u", shape=[3, 4])
    p = visit(d, "#eval")
    p.refused += ("/v1/explain", "/v1/programs")
    for text, marked, words in (("u + nothing*2", "nothing", "'nothing'"), ("u + + ", "\u00a0", ""), ("  u @ 2", "@", ""), ("sqrt(u, 3)", None, "sqrt"), ("é + u", "é", "")):
        p.fill(BOX, text)
        p.press("Control+Enter")
        p.wait("document.querySelector('.behind mark')")
        mark = p.run("document.querySelector('.behind mark').textContent")
        assert mark == marked or marked is None, (text, mark)
        assert words in p.text("#mistake") and p.run(f"document.querySelector('{BOX}').getAttribute('aria-invalid')") == "true"
    p.type(" ")  # who goes on writing is no longer told
    p.wait("document.querySelector('#mistake').hidden && !document.querySelector('.behind mark')")
    p.button("Program")
    p.fill(BOX, "u += 1\n\nu *= unknown")
    p.button("Start")
    p.wait("document.querySelector('.behind mark')")
    assert p.run("document.querySelector('.behind mark').textContent") == "unknown"
    c.close()


def test_results(visit, daemon_with):
    d = daemon_with()
    c = d.client()
    c.upload(np.arange(12.0).reshape(3, 4), "u")
    c.upload(np.array([2**62 + 1, 3]), "whole")
    p = visit(d, "#eval")

    def evaluate(text):
        p.run("document.querySelector('.result')?.remove()")
        p.fill(BOX, text)
        p.press("Escape")
        p.button("Evaluate")
        p.wait("document.querySelector('.result')")
        return p.text(".result")

    assert "66.0" in evaluate("sum(u)")
    assert str(2**62 + 1) in evaluate("max(whole)")  # all its digits
    assert "3.0 − 2.0i" in evaluate("3 - 2j + sum(u)*0")
    assert "[0.0 + 0.0i, 0.0 + 1.0i" in evaluate("1j*u[0]") and "[NaN, 1.0" in evaluate("u[0]/u[0]")
    assert "[0.0, 4.0, 8.0]" in evaluate("u[:, 0]") and p.run("document.querySelector('.result canvas') !== null")
    before = len(c.get("/v1/arrays").json()["arrays"])
    assert "Picture 3 × 4 float64" in evaluate("u - mean(u)")
    p.wait("document.querySelector('img.picture').naturalWidth > 4")
    assert "Colours from 1000000 to 1000000.11" in evaluate("u/100 + 1000000")
    evaluate("u - mean(u)")
    assert len(c.get("/v1/arrays").json()["arrays"]) == before  # to look at something makes nothing
    assert p.texts(".kernel h3") and "reads" in p.text(".kernel") and "u" in p.texts(".kernel .chips li")
    p.click(".kernel summary")
    assert "kernel over" in p.text(".kernel pre")
    p.fill(".tools input", "kept")
    assert "kept" in evaluate("u*2")
    assert c.download("kept").tolist() == (2 * np.arange(12.0).reshape(3, 4)).tolist()
    p.click(".result a")
    p.says("3 × 4 float64", "h1")
    c.close()


def test_a_program(visit, daemon_with):
    d = daemon_with()
    c = d.client()
    c.upload(np.ones((64, 64)), "u")
    p = visit(d, "#eval")
    p.button("Program")
    p.fill(BOX, "lap = laplacian(u, boundary='wrap')\nu += 0.1*lap")
    p.press("Escape")
    p.button("Explain")
    p.says("Before it starts")
    p.says("1\u202f000 steps")
    p.says("it holds 64.0 KiB until it ends")
    p.says("Expected, not promised")
    assert len(p.texts(".kernel")) == 1
    p.fill(".tools label:nth-child(1) input", "200")
    p.fill(".tools label:nth-child(2) input", "total = sum(u)")
    p.fill(".tools label:nth-child(3) input", "20")
    p.button("Start")
    p.wait("location.hash.startsWith('#job/')")
    p.says("total 4096")
    p.says("Memory moved")
    p.says("Forms of kernels")
    p.wait("document.querySelector('.badge').innerText === 'done'")
    job = c.get("/v1/jobs").json()["jobs"][0]
    assert job["steps"] == 200 and len(c.get(f"/v1/jobs/{job['id']}").json()["records"]["total"]) == 10
    c.close()


def test_copied_as_programs(visit, daemon_with, tmp_path):
    """What is copied does the same: it is run."""
    d = daemon_with()
    c = d.client()
    c.upload(np.arange(5.0), "u")
    p = visit(d, "#eval")
    p.fill(BOX, "sum(u)*2 + where(u[0] == 0, 1, 0)")
    p.press("Escape")

    def copied(language):
        p.button(language)
        return p.wait(f"document.querySelector('.copy[aria-label=\"As {language}\"]')?.textContent")

    run = {"text": True, "capture_output": True, "timeout": 60, "check": True}
    assert '"value":21.0' in subprocess.run(["bash", "-c", copied("curl") + " -s"], **run).stdout
    path = {"PYTHONPATH": str(REPO / "clients/python/src")}
    assert "21.0" in subprocess.run([sys.executable, "-c", copied("Python")], env=path, **run).stdout
    module = tmp_path / "copied.mjs"
    module.write_text(copied("JavaScript").replace('"arrayd"', f'"{REPO}/clients/js/arrayd.js"'))
    assert "21" in subprocess.run(["node", module], **run).stdout
    other = c.expect(201, c.post("/v1/sessions", {"name": "other"})).json()["id"]
    c.expect(201, c.post("/v1/arrays", {"name": "u", "data": [100.0]}, headers={"Arrayd-Session": other}))
    p.run("location.hash = '#sessions'")
    p.says("other")
    p.run("location.hash = '#eval'")
    p.choose("main select", other)  # another u
    p.fill(BOX, "sum(u)")
    p.press("Escape")
    assert '"value":100.0' in subprocess.run(["bash", "-c", copied("curl") + " -s"], **run).stdout
    assert "100.0" in subprocess.run([sys.executable, "-c", copied("Python")], env=path, **run).stdout
    assert other in copied("curl")
    module.write_text(copied("JavaScript").replace('"arrayd"', f'"{REPO}/clients/js/arrayd.js"'))
    assert "100" in subprocess.run(["node", module], **run).stdout
    p.choose("main select", p.run("[...document.querySelectorAll('main option')].find(o => o.innerText === 'default').value"))
    c.create(name="large", shape=[5000])
    before = len(c.get("/v1/arrays").json()["arrays"])
    for text, size, said in (("u*2", 5, "8"), ("large*u[4]", 5000, "")):  # as the page does: shown or, where that is much, kept in a file
        p.fill(BOX, text)
        p.press("Escape")
        found = [copied(language) for language in ("curl", "Python", "JavaScript")]
        assert not any("s-" in t for t in found)  # the default session needs no name, and may be another one tomorrow
        out = subprocess.run(["bash", "-c", found[0] + " -s"], cwd=tmp_path, **run).stdout
        assert f'"data":[0.0,2.0,4.0,6.0,{said}.0]' in out if said else np.load(tmp_path / "result.npy").shape == (size,)
        assert said in subprocess.run([sys.executable, "-c", found[1]], env=path, **run).stdout
        module.write_text(found[2].replace('"arrayd"', f'"{REPO}/clients/js/arrayd.js"'))
        assert (said or "5000") in subprocess.run(["node", module], **run).stdout
    assert len(c.get("/v1/arrays").json()["arrays"]) == before
    p.button("Program")
    p.fill(BOX, "u += 1")
    p.press("Escape")
    p.fill(".tools label:nth-child(1) input", "3")
    p.fill(".tools label:nth-child(2) input", "total = sum(u)")
    p.fill(".tools label:nth-child(3) input", "1")
    assert '"state":"done"' in subprocess.run(["bash", "-c", copied("curl") + " -s"], **run).stdout
    assert "40.0" in subprocess.run([sys.executable, "-c", copied("Python") + "print(job.records)"], env=path, **run).stdout
    module.write_text(copied("JavaScript").replace('"arrayd"', f'"{REPO}/clients/js/arrayd.js"'))
    assert "done" in subprocess.run(["node", module], **run).stdout
    assert c.download("u")[0] == 9
    c.close()

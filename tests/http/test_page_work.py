"""The page's jobs and expressions, in a browser: what runs is watched, stopped and resumed; what is typed is completed, checked, explained."""
import re
import subprocess
import sys

import numpy as np
import pytest

from browser import Browser
from client import REPO
from conftest import until
from stand_in import exported, imported, options, write

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
    assert re.search(r"\d+ (min|h|d)", p.text("tbody tr:first-child td:nth-child(7)"))  # what remains
    assert p.text("tbody tr:first-child td:nth-child(2)") == "u += 0.1*laplacian(u)"
    assert "5 of 5" in p.text("tbody tr:last-child") and "100 %" in p.text("tbody tr:last-child")
    p.click("tbody tr:first-child a")
    p.says("energy")
    p.wait("/^energy: [\\d.]+/.test(document.querySelectorAll('canvas')[0].getAttribute('aria-label'))")
    steps = p.texts("dd")[0]
    p.wait(f"document.querySelector('dd').innerText !== {steps!r}")  # it goes on
    assert "a step" in p.text() and "most" in p.text()
    assert p.text("pre") == "u += 0.1*laplacian(u)" and "energy = sum(u*u), most = max(u)" in p.text()
    assert p.run("document.querySelector('.chips a').getAttribute('href')") == f"#array/{c.get('/v1/arrays/u').json()['id']}"
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
    p.run("window.isOld = true; location.reload()")  # which loses nothing that was typed
    p.wait("!window.isOld && document.querySelector('textarea')?.value === 'é + u'")
    p.press("Control+Enter")
    p.wait("document.querySelector('.behind mark')")
    p.type(" ")  # who goes on writing is no longer told
    p.wait("document.querySelector('#mistake').hidden && !document.querySelector('.behind mark')")
    p.button("Program")
    p.fill(BOX, "u += 1\n\nu *= unknown")
    p.button("Start")
    p.wait("document.querySelector('.behind mark')")
    assert p.run("document.querySelector('.behind mark').textContent") == "unknown"
    c.close()


def test_mistakes_beside_the_text(visit, daemon_with):
    """The field is marked whose place the error has, and none of the text; an error without a place marks nothing."""
    d = daemon_with("--max-arrays", "1")
    c = d.client()
    c.create(name="u", shape=[3, 4])
    p = visit(d, "#eval")
    p.refused += ("/v1/explain", "/v1/programs", "/v1/evaluate")

    def blamed(button, words):
        p.button(button)
        p.wait("!document.querySelector('#mistake').hidden")
        assert words in p.text("#mistake")
        assert not p.run("document.querySelector('.behind mark') || document.querySelector('textarea[aria-invalid]')")
        return p.run("[...document.querySelectorAll('input[aria-invalid]')].map(e => e.name)")

    p.fill(BOX, "u + 1")
    p.press("Escape")
    p.fill("input[name=name]", "2nd")
    assert blamed("Evaluate", "Keep it as: ") == ["name"]
    p.fill("input[name=name]", "second")
    assert p.run("document.querySelector('#mistake').hidden && !document.querySelector('input[aria-invalid]')")
    assert blamed("Evaluate", "array") == []  # the quota
    p.button("Program")
    p.fill(BOX, "u += 1")
    p.press("Escape")
    for name, bad, good, words in (("steps", "1.5", "3", "Steps: "), ("steps", "-5", "3", "Steps: "), ("steps", "many", "3", "Steps: a whole number"), ("steps", "", "3", "Steps: a whole number"),
                                   ("record", "nope = sum(nope)", "n = sum(u)", "Record: "), ("record_every", "0", "1", "Every so many steps: ")):
        p.fill(f"input[name={name}]", bad)
        assert blamed("Start", words) == [name], bad
        p.fill(f"input[name={name}]", good)
    p.button("Start")
    p.wait("location.hash.startsWith('#job/')")
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
    p.fill(BOX, "u[0, :2]*0 + 1")
    for button in ("Cancel", "Replace"):  # it is not replaced without a word
        p.press("Control+Enter")
        p.says("There is an array of that name, 3 × 4 float64", "dialog")
        assert c.download("kept").shape == (3, 4)
        p.button(button, "dialog")
    p.says("kept 2 float64", ".result")
    assert c.download("kept").tolist() == [1, 1]
    p.click(".result a")
    p.says("2 float64", "h1")
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
    p.says("Expected, not promised: at least")
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


def test_files_that_are_imported(visit, daemon_with, tmp_path):
    """Their steps are bytes; what has failed says why, and cannot be resumed."""
    write(tmp_path / "a.nc", {"a": np.arange(300_000.), "b": np.zeros(3)})
    d = daemon_with(*options(tmp_path))
    c = d.client()
    imported(c, "a.nc", variables=[{"variable": "a", "name": "part", "index": ":262144"}])
    imported(c, "a.nc", "failed", variables=["no"])
    exported(c, "b.nc", ["part"])
    p = visit(d, "#jobs")
    p.wait("document.querySelectorAll('tbody tr').length === 3")
    rows = [p.text(f"tbody tr:nth-child({k})") for k in (1, 2, 3)]
    assert "export data/b.nc" in rows[0] and "import data/a.nc" in rows[2] and "2.0 MiB of 2.0 MiB" in rows[2] and "Resume" not in "".join(rows)
    p.click("tbody tr:nth-child(2) a")
    p.says("the file has no variable 'no'", "main > section .problem")
    assert p.text(".problem").startswith("the file") and "Resume" not in p.text() and "Steps" not in p.text()
    p.click("h1 a")
    p.click("tbody tr:nth-child(3) a")
    p.says("a[:262144] as part")
    p.says("2.0 MiB of 2.0 MiB")
    p.click("h1 a")
    p.click("tbody tr:nth-child(1) a")
    p.says("Exports to")
    p.says("data/b.nc")
    c.close()


def test_what_takes_long_is_given_up(visit, daemon_with):
    d = daemon_with("--threads", "1")
    c = d.client()
    c.create(name="u", shape=[1 << 22], random={"distribution": "normal", "seed": 1})
    p = visit(d, "#eval")
    p.fill(BOX, "sum(" + " + ".join(f"gamma(sin(u*{k}))" for k in range(1, 60)) + ")")
    p.press("Escape")
    p.button("Evaluate")
    p.says("Under way for 1 s")
    p.button("Give up")
    p.wait("!document.querySelector('.under').hasChildNodes() && !document.querySelector('[aria-busy]')")
    assert p.run("document.querySelector('#notice').hidden && document.querySelector('#mistake').hidden && !document.querySelector('.result')")
    p.fill(BOX, "u[0]*0 + 7")
    p.press("Control+Enter")
    p.says("7", ".result")
    c.close()


FILE = """# Heat, until it hardly changes any more
@steps 50
@bind k = 0.1   # of the plate
@record warmest = max(field)
@record_every 5
@until change < 1e-30
@until_every 7
@snapshot field = 25

flow = k*laplacian(field,     # the five points: ( is not a bracket
                   boundary='clamp')
change = max(abs(flow))
  field += flow
"""


def test_the_text_of_a_program_file(visit, daemon_with, tmp_path):
    """The box takes what `arrayd-cli run` takes, and marks mistakes where they are in it; copies of it do the same."""
    d = daemon_with()
    c = d.client()
    c.upload(np.outer(np.arange(8.0), np.arange(9.0)), "field")
    p = visit(d, "#eval")
    p.refused += ("/v1/explain", "/v1/programs")
    p.button("Program")
    for wrong, marked, words in (("# nothing", "# nothing", "no statement"), ("x = max(field\n", "x = max(field\n", "not closed"), ("@bind k\nfield += 1", "@bind k", "NAME = "),
                                 ("@steps 1.5\nfield += 1", "@steps 1.5", "whole number"), ("@nothing 2\nfield += 1", "@nothing 2", "there is no @nothing"),
                                 ("# é 𝄞\nfield += (1 +  # 𝄞 (\n  F*2)", "F", "@bind"), ("@until field < G\nfield += 1", "G", "'G'"), ("@record n = H\nfield += 1", "H", "'H'")):
        p.fill(BOX, wrong)
        p.press("Escape")
        p.button("Start")
        p.wait("document.querySelector('.behind mark')")
        assert p.run("document.querySelector('.behind mark').textContent") == marked and words in p.text("#mistake") and "let" not in p.text("#mistake").split()
    p.fill(BOX, FILE)
    p.press("Escape")
    p.button("Explain")
    p.says("50 steps")

    def job(n):
        until(lambda: len(c.get("/v1/jobs").json()["jobs"]) == n)
        ref = c.get("/v1/jobs").json()["jobs"][-1]["id"]
        found = c.get(f"/v1/jobs/{ref}?wait=1").json()
        return found["steps"], found["record_every"], len(found["records"]["warmest"]), [s["step"] for s in found["snapshots"]]

    copies = {}
    for language in ("curl", "Python", "JavaScript"):
        p.button(language)
        copies[language] = p.wait(f"document.querySelector('.copy[aria-label=\"As {language}\"]')?.textContent")
    p.button("Start")
    p.wait("location.hash.startsWith('#job/')")
    first = job(1)
    assert first == (50, 5, 10, [25, 50])
    run = {"text": True, "capture_output": True, "timeout": 60, "check": True}
    subprocess.run(["bash", "-c", copies["curl"] + " -s"], **run)
    assert job(2) == first
    subprocess.run([sys.executable, "-c", copies["Python"]], env={"PYTHONPATH": str(REPO / "clients/python/src")}, **run)
    assert job(3) == first
    module = tmp_path / "copied.mjs"
    module.write_text(copies["JavaScript"].replace('"arrayd"', f'"{REPO}/clients/js/arrayd.js"'))
    subprocess.run(["node", module], **run)
    assert job(4) == first
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

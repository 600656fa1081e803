"""The page's arrays, in a browser: a thousand of them in the table, and one as a picture that is looked at from all sides."""
import time

import numpy as np
import pytest

from browser import Browser

pytestmark = [pytest.mark.in_turn, pytest.mark.release_only,  # it is the page that is tested here
              pytest.mark.skipif(bool(Browser.missing()), reason=str(Browser.missing()))]
BOARD = "document.querySelector('.board')"


def names(page):
    return page.texts("tbody th")


def facts(page):
    """What is said of the array: by term. All is read at once: the figures come, and come anew, while one reads."""
    return dict(page.run("[...document.querySelectorAll('.aside dt')].map(e => [e.innerText, e.nextElementSibling.innerText])"))


def at(page, row, column, rows, columns):
    """Where the middle of an element is on the board, in parts of its size, while all of the array is seen."""
    w, h = page.run(f"(b => [b.clientWidth, b.clientHeight])({BOARD})")
    scale = min(w / columns, h / rows)
    return 0.5 + (column + 0.5 - columns / 2) * scale / w, 0.5 + (row + 0.5 - rows / 2) * scale / h


def colours(page, *places, canvas=".board"):
    """The colours of a canvas at places of it. They are read from a copy: who reads a canvas itself makes it slower."""
    return page.run("""((from, places) => {
        const to = Object.assign(document.createElement("canvas"), { width: from.width, height: from.height });
        const context = to.getContext("2d", { willReadFrequently: true });
        context.drawImage(from, 0, 0);
        return places.map(([x, y]) => [...context.getImageData(Math.floor(from.width * x), Math.floor(from.height * y), 1, 1).data]);
    })""" + f"(document.querySelector('{canvas}'), {[list(p) for p in places]})")


def drawn(page, more=1):
    """Waits until so many pictures more have been drawn."""
    before = int(page.run(f"{BOARD}?.dataset.frames ?? 0") or 0)
    return lambda: page.wait(f"Number({BOARD}.dataset.frames) >= {before + more}")


def look(visit, d, ref, **kw):
    page = visit(d, f"#array/{ref}", **kw)
    page.wait(f"{BOARD}?.dataset.frames >= 1")
    return page


def label(page):
    return page.run(f"{BOARD}.getAttribute('aria-label')")


def test_a_thousand(visit, daemon_with):
    d = daemon_with()
    c = d.client()
    for k in range(1, 1001):
        c.create(name=f"field_{k}", shape=[k, 2], dtype=("float32", "int8")[k % 2])
    p = visit(d, "#arrays")
    p.says("1\u202f000")
    assert names(p)[0] == "field_1000" and len(names(p)) < 1000  # the newest first; not more rows than are read
    p.click("thead button")
    assert names(p)[:3] == ["field_1", "field_2", "field_3"] and p.run("document.querySelector('th[aria-sort]').ariaSort") == "ascending"
    p.click("th:nth-child(4) button")  # bytes, the most first
    assert names(p)[:2] == ["field_1000", "field_998"] and p.texts("tbody tr:first-child td")[:3] == ["1000 × 2", "float32", "7.8 KiB"]
    p.click("th:nth-child(4) button")
    assert names(p)[0] == "field_1"
    p.fill("input[type=search]", "int8 field_77")
    assert sorted(names(p)) == sorted(f"field_{k}" for k in (77, 771, 773, 775, 777, 779)) and "6 of 1\u202f000" in p.text()
    for text in ("77 × 2", "77x2", "77,2", "(77, 2)", "[77,2] int8"):  # the whole shape
        p.fill("input[type=search]", text)
        assert names(p) == ["field_77"], text
    p.fill("input[type=search]", "(77, 2) float32")
    assert names(p) == []
    p.fill("input[type=search]", "field_5 float32")
    p.click("tbody a")
    p.says("Figures")
    assert p.run("location.hash").startswith("#array/a-")
    c.expect(204, c.delete("/v1/arrays/field_1"))
    c.create(name="brand_new", shape=[3])
    p.click("nav a[href='#arrays']")
    p.says("brand_new")
    c.create(name="newer_still", shape=[3])
    p.says("newer_still")  # it comes by itself
    c.close()


def test_pages_of_a_list(visit, daemon_with):
    """What comes in pages is kept from one time to the next, but no page that is no longer asked for."""
    d = daemon_with()
    c = d.client()
    first, *others = (c.create(name=f"u{k}", shape=[2])["id"] for k in range(5) if not time.sleep(0.005))  # the oldest first
    p = visit(d, "#node")
    p.says("Running for")
    p.run("import('/page/api.js').then(({ list }) => { window.had = new Map(); window.listed = async () => "
          "[(await list('v1/admin/arrays', 'arrays', { had, query: { limit: 2 } })).map(a => a.array.id), [...had.values()].map(({ page }) => page.arrays.length)]; })")
    assert p.run("listed()") == [[first, *others], [2, 2, 1]]
    assert p.run("listed()")[0] == [first, *others] and p.run("performance.getEntriesByType('resource').slice(-3).every(e => e.responseStatus === 304)")
    c.expect(204, c.delete(f"/v1/arrays/{first}"))
    assert p.run("listed()") == [others, [2, 2]]
    c.close()


def test_nothing_is_left_of_a_pause(visit, daemon_with):
    """A view that asks again and again has one signal for as long as it is open."""
    p = visit(daemon_with(), "#node")
    p.says("Running for")
    p.run("import('/page/api.js').then(async ({ pause }) => { window.leaving = new AbortController(); for (const ms of [1, 2, 3]) await pause(ms, leaving.signal);"
          " window.pausing = pause(1e6, leaving.signal); })")
    signal = p.call("Runtime.evaluate", expression="leaving.signal")["result"]["objectId"]
    assert len(p.call("DOMDebugger.getEventListeners", objectId=signal)["listeners"]) == 1
    p.run("leaving.abort()")
    p.run("pausing")


def test_upload(visit, daemon_with, tmp_path):
    """A file becomes an array of its name or another; what there is of that name stays."""
    d = daemon_with()
    c = d.client()
    c.create(name="my_field_2", shape=[3])
    file = tmp_path / "my field-2.npy"
    np.save(file, np.arange(6, dtype="int16").reshape(2, 3))
    p = visit(d, "#arrays")
    p.refused += ("/v1/arrays?",)
    p.says("my_field_2")

    def upload():
        root = p.call("DOM.getDocument")["root"]["nodeId"]
        p.call("DOM.setFileInputFiles", files=[str(file)], nodeId=p.call("DOM.querySelector", nodeId=root, selector="input[type=file]")["nodeId"])
        p.says("Upload my field-2.npy", "dialog")

    upload()
    assert p.run("document.querySelector('dialog input').value") == "my_field_2"
    p.button("Upload", "dialog")
    p.says("my_field_2", "#why")
    assert p.run("document.querySelector('dialog input').value") == "my_field_2"  # to be mended, not to be typed anew
    p.fill("dialog input", "other")
    p.button("Upload", "dialog")
    p.says("2 × 3 int16", "h1")
    assert c.download("other").tolist() == [[0, 1, 2], [3, 4, 5]] and c.meta("my_field_2")["shape"] == [3]
    c.close()


def test_sessions_and_one_that_ends(visit, daemon_with):
    d = daemon_with()
    c = d.client()
    c.create(name="in_default", shape=[3])
    second = c.expect(201, c.post("/v1/sessions", {"name": "second"})).json()["id"]
    c.expect(201, c.post("/v1/arrays", {"name": "in_second", "shape": [4]}, headers={"Arrayd-Session": second}))
    p = visit(d, "#arrays")
    p.refused += ("/v1/arrays",)
    p.says("in_default")
    p.choose("select", second)
    p.says("in_second")
    assert names(p) == ["in_second"]
    c.expect(204, c.delete(f"/v1/sessions/{second}"))
    p.says("The session has ended", "body")
    p.says("in_default")
    assert p.texts("option") == ["default", "Everybody's"]
    c.close()


def test_the_picture(visit, daemon_with):
    d = daemon_with()
    c = d.client()
    a = np.arange(60 * 80, dtype="float32").reshape(60, 80)
    ref = c.upload(a, "u")["id"]
    p = look(visit, d, ref)
    assert "u" in p.text("h1") and "60 × 80 float32" in p.text("h1")
    p.says("Greatest")
    said = facts(p)
    assert said["Least"] == "0" and said["Greatest"] == "4799" and said["Mean"] in ("2400", "2399.5"), said
    dark, bright = colours(p, at(p, 0, 0, 60, 80), at(p, 59, 79, 60, 80))
    assert dark[3] == bright[3] == 255 and np.abs(np.subtract(dark[:3], (68, 1, 84))).max() < 12  # viridis
    assert np.abs(np.subtract(bright[:3], (253, 231, 37))).max() < 12
    scale = colours(p, (0.5, 0), (0.5, 0.999), canvas=".scale")
    assert np.abs(np.subtract(scale[0][:3], (253, 231, 37))).max() < 12 and p.texts(".ends span") == ["4799", "0"]

    done = drawn(p)
    p.choose(".tools select", "gray")
    done()
    assert colours(p, at(p, 59, 79, 60, 80))[0][:3] == [255] * 3
    p.hover(".board", at(p, 0, 0, 60, 80))
    p.says("u[0, 0] = 0.0")
    p.hover(".board", at(p, 59, 78, 60, 80))
    p.says("u[59, 78] = 4798.0")

    done = drawn(p)
    spot = at(p, 15, 20, 60, 80)
    p.wheel(".board", -1000, spot)  # closer, about the element under the pointer
    done()
    p.wait(f"!{BOARD}.getAttribute('aria-label').includes('rows 0 to 60')")
    p.hover(".board", spot)
    p.says("u[15, 20] = 1220.0")
    assert "from 0 to" not in label(p)  # what is asked for is what is seen
    before = label(p)
    done = drawn(p)
    p.drag(".board", (0.5, 0.5), (0.3, 0.5))
    done()
    assert label(p) != before
    p.run(f"{BOARD}.focus()")
    done = drawn(p)
    p.press("0")
    done()
    p.wait(f"{BOARD}.getAttribute('aria-label').includes('rows 0 to 60, columns 0 to 80')")

    p.fill("[aria-label='Value of the last colour']", "1000")
    done = drawn(p)
    p.press("Enter")
    done()
    assert "colours from 0 to 1000" in label(p) and colours(p, at(p, 50, 40, 60, 80))[0][:3] == [255] * 3
    c.close()


def test_slices(visit, daemon_with):
    """Sliders go along the other axes, a film plays along one, and any two axes are shown."""
    d = daemon_with()
    c = d.client()
    a = np.broadcast_to(np.arange(6)[:, None, None] * 100.0, (6, 20, 30)) + np.arange(30)
    ref = c.upload(np.ascontiguousarray(a), "stack")["id"]
    p = look(visit, d, ref)
    assert "colours from 200 to 229" in label(p)  # the slice in the middle
    slider = "input[type=range]"
    p.run(f"document.querySelector('{slider}').focus()")
    p.press("End")
    p.wait(f"{BOARD}.getAttribute('aria-label').includes('colours from 500 to 529')")
    p.press("ArrowLeft")
    p.wait(f"{BOARD}.getAttribute('aria-label').includes('colours from 400 to 429')")
    assert p.text(".slider output") == "4"
    p.says("429", ".aside")  # the figures are those of the slice
    done = drawn(p, 8)
    p.button("Play")
    done()
    p.button("Stop")
    p.choose(".tools:nth-of-type(2) select", "0")  # down is the first axis now
    p.wait(f"{BOARD}.getAttribute('aria-label').includes('rows 0 to 6, columns 0 to 30')")
    assert "colours from 0 to 529" in label(p)
    p.choose(".tools:nth-of-type(2) label:nth-child(2) select", "0")  # changes places with the other
    p.wait(f"{BOARD}.getAttribute('aria-label').includes('rows 0 to 30, columns 0 to 6')")
    right, left = colours(p, at(p, 15, 5, 30, 6), at(p, 15, 0, 30, 6))
    assert sum(right[:3]) > sum(left[:3])  # the axis with the hundreds goes across
    c.close()


def test_colours_and_odd_ones(visit, daemon_with):
    d = daemon_with()
    c = d.client()
    rgb = np.zeros((10, 20, 3), "uint8")
    rgb[..., 0] = 255
    p = look(visit, d, c.upload(rgb, "red")["id"])
    assert colours(p, (0.5, 0.5)) == [[255, 0, 0, 255]]
    done = drawn(p)
    p.click("input[type=checkbox]")  # three numbers, then, along a third axis
    done()
    p.wait("document.querySelector('.slider')")
    hole = np.ones((4, 4))
    hole[1, 1] = np.nan
    p = look(visit, d, c.upload(hole, "hole")["id"])
    assert [c[3] for c in colours(p, at(p, 1, 1, 4, 4), at(p, 1, 2, 4, 4))] == [0, 255]  # NaN is nothing
    p.says("NaN")
    p = visit(d, f"#array/{c.upload(np.arange(5000.0), 'line')['id']}")
    p.wait("document.querySelector('canvas[aria-label^=\"Elements of line: 4\"]')")
    p.says("Every 3rd element is shown")
    p = visit(d, f"#array/{c.create(name='one', shape=[], fill=2.5)['id']}")
    p.says("2.5")
    p = visit(d, f"#array/{c.create(name='none', shape=[0, 4])['id']}")
    p.says("has no elements")
    c.close()


def test_a_running_program(visit, daemon_with):
    """The picture of what Gray-Scott makes changes by itself, at its own pace; when nothing is written, nothing is sent."""
    d = daemon_with()
    c = d.client()
    n = 128
    v = np.zeros((n, n), "float32")
    v[50:70, 50:70] = 0.5
    c.upload(np.ones((n, n), "float32") - v, "u")
    ref = c.upload(v, "v")["id"]
    p = look(visit, d, ref)
    first = p.run(f"{BOARD}.toDataURL()")
    job = c.post("/v1/programs", {"body": ["r = u*v*v", "du = 0.16*laplacian(u, boundary='wrap') - r + F*(1 - u)",
                                           "v += 0.08*laplacian(v, boundary='wrap') + r - (F + k)*v", "u += du"],
                                  "bind": {"F": 0.06, "k": 0.062}, "steps": 10_000_000}).json()["id"]
    drawn(p, 3)()
    second = p.run(f"{BOARD}.toDataURL()")
    drawn(p, 2)()
    assert len({first, second, p.run(f"{BOARD}.toDataURL()")}) == 3
    c.expect(200, c.delete(f"/v1/jobs/{job}"))
    c.get(f"/v1/jobs/{job}?wait=1")
    p.browser.read(0.1)
    p.wait("new Promise(done => setTimeout(() => done(true), 1500))")
    still = int(p.run(f"{BOARD}.dataset.frames"))
    p.wait("new Promise(done => setTimeout(() => done(true), 1500))")
    assert int(p.run(f"{BOARD}.dataset.frames")) == still
    c.close()


def test_hands(visit, daemon_with, accounts):
    d = daemon_with()
    c = d.client()
    ref = c.create(name="u", shape=[20, 30])["id"]
    p = look(visit, d, ref)
    p.button("Rename")
    p.fill("dialog input", "renamed")
    p.button("Rename", "dialog")
    p.says("now called renamed", "body")
    assert c.meta("renamed")["id"] == ref
    p.button("Make read-only")
    p.says("Make writable")
    assert c.meta(ref)["read_only"]
    p.button("Make writable")
    p.says("Make read-only")
    p.button("Delete")
    p.says("Delete renamed?", "dialog")
    p.button("Cancel", "dialog")
    p.wait("!document.querySelector('dialog')")
    assert c.meta(ref)["id"] == ref
    p.button("Delete")
    p.button("Delete", "dialog")
    p.says("There are no arrays")
    assert c.get("/v1/arrays").json()["arrays"] == []
    c.close()


def test_hands_that_are_refused(visit, daemon_with):
    """A dialog stays with what was typed; what is told otherwise is in sight wherever one is, until one does the next thing."""
    d = daemon_with()
    c = d.client()
    ref = c.create(name="u", shape=[20, 30])["id"]
    c.create(name="taken", shape=[2])
    p = look(visit, d, ref, width=400)
    p.refused += (ref,)
    p.button("Rename")
    for name, words in (("2nd", "Name: "), ("taken", "taken")):
        p.fill("dialog input", name)
        p.run("document.querySelector('dialog input').removeAttribute('pattern')")
        p.press("Enter")
        p.wait("document.querySelector('#why') && !document.querySelector('#why').hidden")
        assert words in p.text("#why") and p.run("document.querySelector('dialog input').value") == name
    p.fill("dialog input", "free")
    p.press("Enter")
    p.says("now called free", "#notice")
    lease = c.expect(201, c.post(f"/v1/arrays/{ref}/lease", {"mode": "read", "ttl_s": 100})).json()["token"]
    p.button("Delete")
    p.button("Delete", "dialog")
    p.wait("document.querySelector('#notice.error:not([hidden])')")
    p.wait("document.querySelector('.board')?.dataset.frames >= 1")
    p.run("scrollTo(0, document.body.scrollHeight)")
    assert p.run("scrollY > 300 && (r => r.top >= 0 && r.bottom <= innerHeight)(document.querySelector('#notice').getBoundingClientRect())")
    c.expect(204, c.delete(f"/v1/arrays/{ref}/lease", headers={"Arrayd-Lease": lease}))
    p.button("Make read-only")
    p.says("Make writable")
    assert p.run("document.querySelector('#notice').hidden")
    c.close()


def test_looking_ends_before_the_array(visit, daemon_with):
    """While the reply to its deletion is on its way the live view asks for no picture. Where it cannot be deleted, one looks on."""
    d = daemon_with()
    c = d.client()
    ref = c.create(name="u", shape=[20, 30])["id"]
    kept = c.create(name="kept", shape=[20, 30])["id"]
    p = look(visit, d, ref)
    p.run("""(real => { window.fetch = async (url, how) => {
        const reply = await real(url, how);
        if (how.method === "DELETE")
            await new Promise(done => setTimeout(done, 1500));
        return reply;
    }; return true; })(window.fetch)""")
    p.button("Delete")
    p.button("Delete", "dialog")
    p.says("kept")
    assert [a["id"] for a in c.get("/v1/arrays").json()["arrays"]] == [kept]

    p = look(visit, d, kept)
    p.refused += (f"/v1/arrays/{kept}",)
    p.run("""(real => { window.fetch = (url, how) => how.method === "DELETE" ? Promise.reject(new TypeError("Failed to fetch")) : real(url, how); return true; })(window.fetch)""")
    p.run(f"{BOARD}.dataset.old = '1'")
    p.button("Delete")
    p.button("Delete", "dialog")
    p.says("The daemon does not answer", "#notice")
    p.wait(f"!{BOARD}.dataset.old && {BOARD}.dataset.frames >= 1")
    c.close()


def test_what_is_said_of_it(visit, daemon_with):
    """Names of axes, the unit, attributes, and the coordinates, by which one goes to their arrays."""
    d = daemon_with()
    c = d.client()
    c.create(name="lat_of_it", shape=[3], fill=40.0, units="degrees_north")
    ref = c.create(name="t2m", shape=[3, 4], dims=["lat", "lon"], units="K", attrs={"long_name": "temperature"},
                   coords={"lat": {"array": "lat_of_it", "dims": ["lat"]}})["id"]
    p = look(visit, d, ref)
    p.says("Coordinates")
    said = facts(p)
    assert said["Axes"] == "lat, lon" and said["Units"] == "K" and said["Coordinates"] == "lat on lat" and "Attributes" in p.text()
    p.click("dd .chips a")
    p.says("lat_of_it", "h1")
    c.close()

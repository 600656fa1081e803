"""One array as the page shows it, in a browser: what changes of it, its digits, its holes, coordinates and units, colours."""
import time

import numpy as np
import pytest

from browser import Browser
from conftest import until
from test_page_arrays import BOARD, at, colours, drawn, facts, label, look

pytestmark = [pytest.mark.in_turn, pytest.mark.release_only,  # it is the page that is tested here
              pytest.mark.skipif(bool(Browser.missing()), reason=str(Browser.missing()))]
FROM, TO = ("[aria-label='Value of the first colour']", "[aria-label='Value of the last colour']")


def value(page, selector):
    return page.run(f"document.querySelector(\"{selector}\").value")


@pytest.mark.parametrize("live", ["500", "0"])
def test_what_others_change(visit, daemon_with, live):
    """A name, a unit, a lock, another shape: seen while one looks, and without losing one's place where the shape is the same."""
    d = daemon_with()
    c = d.client()
    ref = c.upload(np.arange(60 * 80, dtype="float32").reshape(60, 80), "u")["id"]
    p = look(visit, d, ref)
    p.choose(".tools label:last-child select", live)
    done = drawn(p)
    p.button("Zoom in")
    done()
    c.expect(200, c.patch(f"/v1/arrays/{ref}", {"name": "pressure", "read_only": True, "attrs": {"seen": "yes"}}))
    p.says("pressure", "h1")
    p.says("Make writable")
    p.says("Attributes")
    assert "rows 0 to 60" not in label(p) and facts(p)["Access"] == "read-only" and p.run("document.title") == "arrayd: pressure"
    c.expect(200, c.patch(f"/v1/arrays/{ref}", {"read_only": False, "units": "hPa", "dims": ["lat", "lon"]}))
    p.says("hPa", ".ends")
    p.says("lat (60)", "main")
    p.refused += (f"/v1/arrays/{ref}/",)  # what is asked for before the page knows
    c.expect(200, c.post(f"/v1/arrays/{ref}/resize", {"shape": [30, 20]}))
    p.says("30 × 20 float32", "h1")
    p.wait(f"{BOARD}.getAttribute('aria-label').includes('rows 0 to 30, columns 0 to 20')")
    p.wait("document.querySelector('.aside').innerText.includes('600')")
    c.expect(200, c.post(f"/v1/arrays/{ref}/resize", {"shape": [600]}))
    p.wait("document.querySelector('canvas[aria-label^=\"Elements of pressure: 0\"]')")
    assert not p.run(BOARD)
    c.close()


def test_what_is_no_news(visit, daemon_with):
    """What is known of an array is asked for rarely, and a picture is not made anew by it."""
    d = daemon_with()
    c = d.client()
    ref = c.create(name="u", shape=[6, 8])["id"]
    p = look(visit, d, ref)
    p.says("Greatest")
    time.sleep(1)
    p.browser.read(0)
    before, frames = len(p.asked), p.run(f"{BOARD}.dataset.frames")
    time.sleep(4.2)
    p.browser.read(0)
    assert 1 <= len(p.asked) - before <= 3 and all(url.endswith(ref) for url in p.asked[before:]) and p.run(f"{BOARD}.dataset.frames") == frames
    c.close()


def test_digits(visit, daemon_with):
    """As many as tell figures apart: near to each other, of 64 bits, and of records."""
    d = daemon_with()
    c = d.client()
    near = (1e6 + np.linspace(0, 0.5, 200).reshape(10, 20)).astype("float64")
    p = look(visit, d, c.upload(near, "near")["id"])
    p.says("Greatest")
    said = facts(p)
    assert (said["Least"], said["Greatest"]) == ("1000000", "1000000.5") and said["Mean"].startswith("1000000.25") and said["Median"].startswith("1000000.2")
    high, low = p.texts(".ends span")
    assert float(high) == 1000000.5 and float(low) == 1e6 and "from 1000000 to 1000000.5" in label(p)
    assert (value(p, FROM), value(p, TO)) == ("1000000", "1000000.5")
    p.choose(".tools label:nth-child(2) select", "fixed")
    assert p.run("document.querySelectorAll('[aria-invalid=true]').length") == 0
    assert p.run("(e => e.scrollWidth <= e.clientWidth)(document.querySelector('.scalebox'))")
    p = look(visit, d, c.create(name="even", shape=[4, 5], fill=3.25)["id"])
    p.choose(".tools label:nth-child(2) select", "fixed")
    assert p.run("document.querySelectorAll('[aria-invalid=true]').length") == 0  # nobody typed anything
    p = look(visit, d, c.upload(np.array([[2**62 + 1, 3], [7, -2**60 - 1]]), "whole")["id"])
    p.says("Greatest")
    assert (facts(p)["Least"], facts(p)["Greatest"]) == (str(-2**60 - 1), str(2**62 + 1))
    p = look(visit, d, c.upload(np.array([[0.1, 0.2], [0.3, 1 / 3]], "float32"), "short")["id"])
    p.says("Greatest")
    assert (facts(p)["Least"], facts(p)["Greatest"]) == ("0.1", "0.33333334")

    job = c.post("/v1/programs?wait=1", {"body": ["near += 0.0625"], "steps": 4, "record": {"most": "max(near)"}}).json()["id"]
    p = visit(d, f"#job/{job}")
    p.says("most 1000000.75")
    p.run("document.querySelector('.chart canvas').focus()")
    assert p.run("document.querySelector('.chart canvas').getAttribute('aria-label')") == "most: 1000000.75"
    c.close()


@pytest.mark.parametrize("dark", [False, True])
def test_holes(visit, daemon_with, dark):
    """NaN is chequered, within the array only, and the page says so where there are any."""
    d = daemon_with()
    c = d.client()
    a = np.ones((40, 10))
    a[10:20] = np.nan
    p = look(visit, d, c.upload(a, "a")["id"], dark=dark)
    p.says("NaN", ".below")
    left, top, width, height = p.run("(s => ['left', 'top', 'width', 'height'].map(k => parseFloat(s[k])))(document.querySelector('.nothing').style)")
    board = p.run(f"(b => [b.clientWidth, b.clientHeight])({BOARD})")
    assert abs(height - board[1]) < 2 and abs(width - height / 4) < 2 and abs(left + width / 2 - board[0] / 2) < 2 and abs(top) < 2
    assert "conic" in p.run("getComputedStyle(document.querySelector('.nothing')).backgroundImage")
    done = drawn(p)
    p.button("Zoom in")
    done()
    p.wait(f"parseFloat(document.querySelector('.nothing').style.height) > {1.9 * height}")
    c.post("/v1/evaluate", {"expr": "where(isnan(a), 2, a)", "out": "a"})
    p.wait("document.querySelector('.holes').hidden")
    c.close()


def test_coordinates(visit, daemon_with):
    """At the slider, under the pointer, with units; an element by its words; and the first row at the bottom, as on a map."""
    d = daemon_with()
    c = d.client()
    for name, values, unit in (("level", [1000, 500], "millibars"), ("lat", np.arange(30) - 10.5, "degrees_north"), ("lon", [0, 90, 180, 270], "degrees_east")):
        c.upload(np.array(values, "float64"), name)
        c.expect(200, c.patch(f"/v1/arrays/{name}", {"units": unit}))
    a = np.arange(240, dtype="float64").reshape(2, 30, 4)
    a[0, 29, 3] = np.nan
    ref = c.upload(a, "wind")["id"]
    dims = ["level", "lat", "lon"]
    c.expect(200, c.patch(f"/v1/arrays/{ref}", {"units": "m/s", "dims": dims, "coords": {k: {"array": k, "dims": [k]} for k in dims}}))
    p = look(visit, d, ref)
    p.says("1000 millibars", ".slider")
    p.says("m/s", ".ends")
    p.hover(".board", at(p, 0, 1, 30, 4))
    p.says("wind[0, 0, 1] = 1.0 m/s at level 1000 millibars, lat -10.5 degrees_north, lon 90 degrees_east")
    p.hover(".board", at(p, 29, 3, 30, 4))
    p.says("wind[0, 29, 3] = NaN m/s")
    p.run("document.querySelector('input[type=range]').focus()")
    p.press("End")
    p.says("500 millibars", ".slider")
    p.wait(f"{BOARD}.getAttribute('aria-label').includes('from 120 to 239')")
    first, last = colours(p, at(p, 0, 0, 30, 4), at(p, 29, 3, 30, 4))
    p.click(".check:last-child input")
    until(lambda: colours(p, at(p, 29, 0, 30, 4), at(p, 0, 3, 30, 4)) == [first, last])
    p.hover(".board", at(p, 29, 1, 30, 4))
    p.says("wind[1, 0, 1] = 121.0 m/s at level 500 millibars, lat -10.5")
    p.wheel(".board", -1000, at(p, 29, 0, 30, 4))
    p.wait(f"/rows 0 to ([1-9]|1.)\\b/.test({BOARD}.getAttribute('aria-label'))")  # the lower part is that of the first row
    p = look(visit, d, c.upload(np.array([[1 + 2j, 3 - 1j]]), "waves")["id"])
    p.hover(".board", at(p, 0, 1, 1, 2))
    p.says("waves[0, 1] = 3.0 − 1.0i")
    c.close()


def test_an_image_of_floats(visit, daemon_with):
    """The first two axes and a slider at first, colours when one asks for them, by the range of the values; controls without effect are not there."""
    d = daemon_with()
    c = d.client()
    rgb = np.zeros((10, 20, 3), "float32")
    rgb[:, :10, 0] = 50
    rgb[:, 10:, 2] = 25
    p = look(visit, d, c.upload(rgb, "photo")["id"])
    assert "rows 0 to 10, columns 0 to 20" in label(p) and len(p.texts(".slider")) == 1
    p.click(".check input")
    until(lambda: colours(p, (0.2, 0.5), (0.8, 0.5)) == [[255, 0, 0, 255], [0, 0, 128, 255]])
    assert not p.run("document.querySelector('.scalebox').checkVisibility()") and not p.run("document.querySelector('.tools .field').checkVisibility()")
    assert p.texts(".tools:first-child label:nth-child(2) option") == ["0 to 1", "the whole slice", "fixed"]
    p.hover(".board", (0.2, 0.5))
    p.says("] = [50.0, 0.0, 0.0]")
    p.click(".check input")
    p.says("Colours")
    c.close()


def test_edges_of_elements(visit, daemon_with):
    """Of three long rows each has one colour down to its edge."""
    d = daemon_with()
    c = d.client()
    p = look(visit, d, c.upload(np.repeat([[0.0], [5.0], [10.0]], 5000, axis=1), "rows")["id"])
    column = colours(p, *[(0.5, (k + 0.5) / 60) for k in range(60)])
    assert len({tuple(x) for x in column}) == 3
    c.close()


def test_files_of_it(visit, daemon_with):
    """The picture as it is seen, with its bar, and the array for NumPy."""
    d = daemon_with()
    c = d.client()
    a = np.arange(2 * 6 * 8, dtype="float32").reshape(2, 6, 8)
    p = look(visit, d, c.upload(a, "u")["id"])
    p.says("Greatest")
    p.run("""(real => {
        window.saved = [];
        let blob;
        URL.createObjectURL = b => { blob = b; return real.call(URL, b); };
        HTMLAnchorElement.prototype.click = async function () {
            const image = this.download.endsWith('.png') ? await createImageBitmap(blob) : null;
            saved.push([this.download, image?.width, image?.height, [...new Uint8Array(await blob.arrayBuffer()).slice(0, 200)]]);
        };
    })(URL.createObjectURL)""")
    p.button("Save the picture")
    name, width, height, _ = p.wait("saved[0]")
    assert name == "u[0,0-6,0-8].png" and width > 400 and abs((width - 74) / height - 8 / 6) < 0.05
    p.run("""(() => { // before the picture of other axes has come there is none to save
        const axis = [...document.querySelectorAll("label")].find(e => e.textContent.startsWith("Down")).querySelector("select");
        axis.value = "0";
        axis.dispatchEvent(new Event("change"));
        [...document.querySelectorAll("button")].find(e => e.textContent === "Save the picture").click();
    })()""")
    p.wait("document.querySelector('.board').getAttribute('aria-label').includes('rows 0 to 2')")
    assert p.run("document.querySelector('#notice').hidden && saved.length === 1")
    p.button("Download .npy")
    name, _, _, head = p.wait("saved[1]")
    assert name == "u.npy" and bytes(head[:6]) == b"\x93NUMPY" and b"(2, 6, 8)" in bytes(head)
    c.close()

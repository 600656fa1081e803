"""The page by the keyboard alone: Tab reaches all that can be used, in the order in which it stands, and one sees where one is."""
import numpy as np
import pytest

from browser import Browser
from page_views import BOARD, enter, furnish, go

pytestmark = [pytest.mark.in_turn, pytest.mark.release_only,  # it is the page that is tested here
              pytest.mark.skipif(bool(Browser.missing()), reason=str(Browser.missing()))]
USABLE = """[...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex="0"]')]
    .filter(e => !e.disabled && e.checkVisibility() && e.getClientRects().length)"""
WHERE = """(e => { const box = e.getBoundingClientRect(), style = getComputedStyle(e);
    return { at: e.dataset.stop, what: e.outerHTML.slice(0, 90), seen: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1 && box.width > 0 &&
        box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth }; })(document.activeElement)"""


def walk(page):
    """Tabs through the view: what was reached, in order, each with whether one sees that it has the focus."""
    page.run("document.activeElement.blur(); scrollTo(0, 0)")
    stops = page.run(f"{USABLE}.map((e, i) => (e.dataset.stop = i, i)).length")
    page.run("(p => { document.body.prepend(p); p.tabIndex = -1; p.focus(); p.remove(); })(document.createElement('p'))")  # from the beginning
    found = []
    for _ in range(stops):
        page.press("Tab")
        found.append(page.run(WHERE))
    return found


def reaches_all(page):
    found = walk(page)
    for _ in range(3):
        if all("at" in stop for stop in found):
            break
        found = walk(page)  # something new was shown meanwhile
    assert [stop.get("at") for stop in found] == [str(i) for i in range(len(found))], [stop["what"] for stop in found]
    assert [stop["what"] for stop in found if not stop["seen"]] == []
    return found


@pytest.mark.parametrize("width", [1280, 400])
def test_tab_goes_everywhere(visit, daemon_with, accounts, width):
    house = furnish(daemon_with, accounts)
    p = enter(visit, house, width=width)
    p.refused += ("/v1/explain",)
    for name in ("arrays", "slices", "line", "jobs", "job", "program", "sessions", "admin", "node"):
        go(p, house, name)
        assert len(reaches_all(p)) > 8, name


def focus(page, selector):
    """By Tab, as a person would get there."""
    for _ in range(100):
        if page.run(f"document.activeElement.matches({selector!r})"):
            return
        page.press("Tab")
    raise AssertionError(f"Tab does not reach {selector}")


def test_enter_in_a_dialog(visit, daemon_with, accounts):
    """It does what the dialog is for, and deletes nothing by itself."""
    accounts.add("ann")
    accounts.add("bob")
    d = daemon_with("--accounts", accounts.path)
    c = accounts.client(d, "ann")
    ref = c.create(name="u", shape=[4, 5])["id"]
    p = enter(visit, {"daemon": d, "tokens": accounts.token}, "ann", f"#array/{ref}")
    for button, control, text, said in (("Rename", "name", "other", "now called other"), ("Share", "principal", "bob", "bob, read")):
        p.button(button)
        p.fill(f"dialog input[name={control}]", text)
        p.press("Enter")
        p.says(said, "body")
    p.button("Delete")
    p.press("Enter")
    p.wait("!document.querySelector('dialog')")
    assert c.meta(ref)["name"] == "other"
    p.run("location.hash = '#sessions'")
    p.button("New session")
    p.fill("dialog input[name=name]", "second")
    p.press("Enter")
    p.says("second")
    assert [s["name"] for s in c.list_all("/v1/sessions", "sessions")] == ["default", "second"]
    c.close()


def test_the_arrays(visit, daemon_with):
    """Sorted, searched, chosen, linked to and opened."""
    d = daemon_with()
    c = d.client()
    for name in ("b", "a", "zebra"):
        c.upload(np.ones((4, 5)), name)
    p = visit(d, "#arrays")
    p.wait("document.querySelectorAll('tbody tr').length === 3")
    focus(p, "thead button")
    p.press("Enter")
    assert p.texts("tbody th") == ["a", "b", "zebra"] and p.run("document.activeElement.innerText") == "Name"
    p.press("/")
    p.type("zeb")
    p.wait("document.querySelectorAll('tbody tr').length === 1")
    focus(p, "tbody input")
    p.press(" ")
    p.press("Shift+Tab")
    while p.run("document.activeElement.innerText") != "Link to the chosen":
        p.press("Shift+Tab")
    p.press("Enter")
    p.says("Read-only link", "dialog")
    p.press("Escape")
    p.wait("!document.querySelector('dialog') && document.activeElement.innerText === 'Link to the chosen'")
    focus(p, "tbody a")
    p.press("Enter")
    c.close()
    p.says("4 × 5 float64", "h1")
    assert p.run("document.activeElement.id") == "main"  # what had the focus is gone: one goes on with the array
    p.press("Tab")
    assert p.run("document.activeElement.innerText") == "Arrays" and p.run("document.activeElement.closest('h1') !== null")


def test_an_array(visit, daemon_with):
    """Colours, slices, the view and its values; what is done with it does not lose the place."""
    d = daemon_with()
    c = d.client()
    ref = c.upload(np.arange(3 * 40 * 60.0).reshape(3, 40, 60), "stack")["id"]
    p = visit(d, f"#array/{ref}")
    p.wait(BOARD)
    focus(p, ".tools select")
    p.press("ArrowDown")
    p.wait("document.querySelector('.tools select').value === 'magma'")
    focus(p, ".board")
    p.says("stack[1, 20, 30] = 3630.0")  # in the middle, under a cross
    whole = p.run("document.querySelector('.board').getAttribute('aria-label')")
    for _ in range(3):
        p.press("=")
    p.press("ArrowRight")
    p.wait(f"document.querySelector('.board').getAttribute('aria-label') !== {whole!r}")
    p.wait("/stack\\[1, 20, 3[1-9]\\] = 363\\d/.test(document.querySelector('.below').innerText)")
    p.press("0")
    p.says("stack[1, 20, 30] = 3630.0")
    focus(p, "input[type=range]")
    p.press("ArrowRight")
    p.wait("document.querySelector('.slider output').innerText === '2'")
    assert "stack[" not in p.text(".below")
    focus(p, ".slider button")
    p.press(" ")
    p.wait("document.activeElement.innerText === 'Stop'")
    p.press(" ")
    focus(p, ".aside button")
    p.press("Tab")
    assert p.run("document.activeElement.innerText") == "Make read-only"
    p.press("Enter")
    p.wait("document.activeElement.innerText === 'Make writable'")
    c.close()


def test_a_curve(visit, daemon_with):
    """The arrow keys go along it; what the pointer shows there is drawn."""
    d = daemon_with()
    c = d.client()
    ref = c.upload(np.arange(100.0), "line")["id"]
    c.close()
    p = visit(d, f"#array/{ref}")
    p.says("Greatest")
    focus(p, ".chart canvas")
    picture = "document.querySelector('.chart canvas').toDataURL()"
    before = p.run(picture)
    p.press("ArrowLeft")
    p.wait(f"{picture} !== {before!r}")
    marked = p.run(picture)
    p.press("ArrowLeft")
    p.wait(f"{picture} !== {marked!r}")
    p.press("Tab")
    p.wait(f"{picture} === {before!r}")

"""The page by axe-core's rules, in every view: what it finds is a mistake for people who do not see, hear or point as others do.

axe-core is not part of the project: deploy/lib.sh fetches it. It is run by the debugging protocol, which the page's policy does not bind.
"""
import json
import pathlib
import subprocess

import pytest

from browser import Browser
from client import REPO
from conftest import find_binary
from page_views import VIEWS, enter, furnish, go

pytestmark = [pytest.mark.in_turn, pytest.mark.release_only,  # it is the page that is tested here
              pytest.mark.skipif(bool(Browser.missing()), reason=str(Browser.missing()))]


@pytest.fixture(scope="session")
def axe():
    """The text of axe-core, kept in the build folder."""
    folder = pathlib.Path(find_binary()).resolve().parents[1] / "axe"
    done = subprocess.run(["bash", "-c", '. "$0/deploy/lib.sh" && axe_core "$1"', REPO, folder], capture_output=True, text=True, timeout=300)
    if done.returncode and ("No matching distribution" in done.stderr or "No module named pip" in done.stderr):
        pytest.skip(f"axe-core cannot be fetched: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return (folder / "axe.min.js").read_text()


def violations(page, axe):
    """What axe-core has against the page as it is now: the rule, and where it is broken."""
    if not page.run("'axe' in window"):
        page.run(f"{axe};0")
    found = json.loads(page.run("axe.run({resultTypes: ['violations']}).then(found => JSON.stringify(found.violations))"))
    return [(rule["id"], [(node["target"], node["failureSummary"]) for node in rule["nodes"][:5]]) for rule in found]


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("dark", [False, True])
def test_every_view(visit, daemon_with, accounts, axe, width, dark):
    house = furnish(daemon_with, accounts)
    p = enter(visit, house, width=width, dark=dark)
    p.refused += ("/v1/explain",)
    found = {}
    for name in VIEWS:
        go(p, house, name)
        found[name] = violations(p, axe)
    p.run("document.querySelector('dialog')?.close()")
    p.button("Log out", ".who")
    p.says("This daemon has accounts")
    found["login"] = violations(p, axe)
    guest = visit(house["daemon"], house["link"], width=width, dark=dark)
    guest.says("What this link shows")
    found["link"] = violations(guest, axe)
    olga = accounts.client(house["daemon"], "olga")
    olga.expect(204, olga.delete(f"/v1/links/{olga.get('/v1/links').json()['links'][0]['id']}"))
    olga.close()
    guest.refused += ("/v1/",)
    guest.run("window.isOld = true; location.reload()")
    guest.wait("!window.isOld")
    guest.says("The link has ended")
    found["ended"] = violations(guest, axe)
    assert {name: broken for name, broken in found.items() if broken} == {}


def test_where_there_is_nothing_yet(visit, daemon_with, axe):
    """Nor has it anything against a page that has nothing to show; it does find what is wrong."""
    p = visit(daemon_with(), "#node")
    for name, words in (("node", "Running for"), ("arrays", "no arrays yet"), ("sessions", "You have shared no array"), ("eval", "Keep it as"), ("admin/audit", "Nothing has been done"),
                        ("jobs", "There are no jobs")):
        p.run(f"location.hash = '#{name}'")
        p.says(words)
        assert violations(p, axe) == [], name
    p.run("document.querySelector('main').insertAdjacentHTML('beforeend', '<button></button><p id=pale>words</p>');"
          "document.querySelector('#pale').style.color = '#aaa'")
    assert [rule for rule, _ in violations(p, axe)] == ["button-name", "color-contrast"]

"""What the views look like, beside pictures that are kept in tests/golden/page: a view that has fallen apart is seen, whatever the cause.

A screenshot is made small, so that letters are grey lines, and compared with a tolerance. What differs from run to run or from machine to
machine is made the same before the page has it, and the letters are those of one font (browser.py).

    ARRAYD_GOLDEN_WRITE=1 python3 -m pytest -q tests/http/test_page_kept.py     writes the pictures anew: look at them before they are kept
"""
import base64
import json
import os

import pytest

from browser import Browser
from client import REPO
from page_views import VIEWS, enter, furnish, go

pytestmark = [pytest.mark.in_turn, pytest.mark.release_only,  # it is the page that is tested here
              pytest.mark.skipif(bool(Browser.missing()), reason=str(Browser.missing()))]
FOLDER = REPO / "tests/golden/page"
LOOKS = {"wide": {"width": 1280, "height": 1100}, "narrow": {"width": 400, "height": 1100, "dark": True}}
SMALLER = {"wide": 6, "narrow": 4}
MOST_BYTES = 40 << 10
FAR = 12  # of 255: a pixel that differs by more is another one
MOST = 0.0015  # of the pixels
# Figures from the daemon are changed before the page has them. Ids are asked for again: they are changed where they are shown.
STEADY = r"""
const THEN = '2027-01-14T20:00:00Z';
const FIGURES = { device_s: 1.5, elapsed_s: 2.5, steps_per_s: 1234.5, requests_total: 120, memory: 64 * 2 ** 30, free: 48 * 2 ** 30, bytes_in_use: 12 * 2 ** 20, used: 12, limit: null,
    created: THEN, ended: THEN, last_used: THEN, started: THEN, at: THEN, expires: '2027-01-20T08:00:00Z', version: '1.2.3', pass: { steps: 1 }, wholes: [], source: '', cached: true,
    note: undefined,
    expected: { by: 'copy_rate', copy_rate: 10 * 2 ** 30, device_s: 1.5, share: 1, elapsed_s: 2.5, ends: THEN } };
const same = value => Array.isArray(value) ? value.map(same) : value === null || typeof value !== 'object' ? value
    : Object.fromEntries(Object.entries(value).map(([key, v]) => [key, key in FIGURES ? FIGURES[key] : same(v)]));
const asked = window.fetch;
window.fetch = async (...how) => {
    const reply = await asked(...how);
    const kind = reply.headers.get('Content-Type') ?? '';
    if (!/json|text.plain/.test(kind))
        return reply;
    const headers = new Headers(reply.headers);
    headers.delete('Server-Timing');
    if (!/json/.test(kind)) // the metrics
        return new Response((await reply.text()).replace(/^(arrayd_(?!arrays|sessions)\S+(?:\{.*\})?) \S+$/gm, '$1 0'), { status: reply.status, headers });
    const found = same(await reply.json());
    if (found.devices)
        found.devices = [{ ...found.devices[0], name: 'a device' }];
    return new Response(JSON.stringify(found), { status: reply.status, headers });
};
Date.now = () => 1800000000000;
const plain = text => text.replace(/\b([ajsv]-)([\w-]{8,})/g, (_, kind, rest) => kind + 'x'.repeat(rest.length)).replace(/, [\d.]+ [mµ]?s$/, ', 10.0 ms')
    .replace(/\b20\d\d-\d\d-\d\dT[\d:.]+Z/g, THEN).replace(/\b\d+ d \d+ h\b/, '46 d 23 h'); // ages of what events tell of
new MutationObserver(() => {
    const all = document.createTreeWalker(document, NodeFilter.SHOW_TEXT);
    while (all.nextNode()) {
        const text = plain(all.currentNode.data);
        if (text !== all.currentNode.data)
            all.currentNode.data = text;
    }
}).observe(document, { childList: true, characterData: true, subtree: true });
"""


SMALL = """(async (shot, kept, by) => {
    const read = async text => {
        const image = new Image();
        image.src = `data:image/png;base64,${text}`;
        await image.decode();
        return image;
    };
    const image = await read(shot);
    const canvas = document.createElement('canvas');
    [canvas.width, canvas.height] = [image.width / by, image.height / by];
    const context = canvas.getContext('2d', { willReadFrequently: true });
    context.imageSmoothingQuality = 'high';
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    const now = context.getImageData(0, 0, canvas.width, canvas.height);
    now.data.forEach((v, i) => { now.data[i] = Math.min(255, Math.round(v / 8) * 8); });
    context.putImageData(now, 0, 0);
    const png = canvas.toDataURL('image/png').split(',')[1];
    if (kept === null)
        return { png };
    const old = await read(kept);
    if (old.width !== canvas.width || old.height !== canvas.height)
        return { png, part: 1 };
    context.drawImage(old, 0, 0);
    const then = context.getImageData(0, 0, canvas.width, canvas.height).data;
    let other = 0;
    for (let i = 0; i < then.length; i += 4)
        other += [0, 1, 2].some(k => Math.abs(then[i + k] - now.data[i + k]) > %d);
    return { png, part: other / (then.length / 4) };
})""" % FAR


@pytest.fixture
def compared(chromium, tmp_path):
    """compared(page, name, by): the part of the pixels that differ from those kept under that name, and the screenshot's file."""
    lens = chromium.page()

    def compare(page, name, by):
        file = FOLDER / f"{name}.png"
        writing = os.environ.get("ARRAYD_GOLDEN_WRITE")
        kept = None if writing else base64.b64encode(file.read_bytes()).decode()
        shot = tmp_path / f"{name}.png"
        found = lens.run(f"{SMALL}({json.dumps(base64.b64encode(page.screenshot(shot)).decode())}, {json.dumps(kept)}, {by})")
        if writing:
            FOLDER.mkdir(exist_ok=True)
            file.write_bytes(base64.b64decode(found["png"]))
        return found.get("part", 0), shot

    yield compare
    lens.close()


@pytest.fixture
def still(visit):
    """A visit to a page whose clock stands and whose figures are always the same."""
    def start(daemon, place, **kw):
        page = visit(daemon, place, **kw)
        page.call("Emulation.setTimezoneOverride", timezoneId="UTC")
        page.call("Page.addScriptToEvaluateOnNewDocument", source=STEADY)
        page.run("window.isOld = true")
        page.call("Page.reload")
        page.wait("!window.isOld && document.readyState === 'complete'")
        return page

    return start


def settled(page, house, name):
    go(page, house, name)
    page.mouse("mouseMoved", 0, 0)
    page.run("scrollTo(0, 0)")
    page.wait("new Promise(done => setTimeout(() => done(true), 300))")  # bars grow to their length


@pytest.mark.parametrize("look", LOOKS)
def test_every_view(still, daemon_with, accounts, compared, look):
    house = furnish(daemon_with, accounts, "--backend", "cpu")
    p = enter(still, house, **LOOKS[look])
    p.refused += ("/v1/explain",)
    other = {}
    for name in VIEWS:
        settled(p, house, name)
        part, shot = compared(p, f"{name}-{look}", SMALLER[look])
        if part > MOST:
            other[name] = f"{part:.1%} of it is other than in tests/golden/page: {shot}"
    assert other == {}


BREAKS = [("array", ".two", "display"), ("node", ".tiles", "display"), ("arrays", "th.right, td.right", "text-align"), ("sessions", ".cards", "display"), ("job", ".facts", "display"),
          ("eval", "button.primary", "background"), ("share", "dialog .buttons", "justify-content"), ("program", ".tools", "display"), ("quotas", ".pairs", "display"),
          ("jobs", "progress, meter", "height"), ("mistake", ".problem", "color")]


def test_what_is_broken_is_seen(still, daemon_with, accounts, compared, monkeypatch):
    """A line of the style sheet that is lost, here and there."""
    monkeypatch.delenv("ARRAYD_GOLDEN_WRITE", raising=False)
    house = furnish(daemon_with, accounts, "--backend", "cpu")
    p = enter(still, house, **LOOKS["wide"])
    p.refused += ("/v1/explain",)
    missed = []
    for name, selector, line in BREAKS:
        settled(p, house, name)
        p.run("window.broken = [...document.styleSheets[0].cssRules].find(rule => rule.selectorText === "
              f"{json.dumps(selector)} && rule.style.getPropertyValue('{line}')); window.whole = broken.style.cssText; broken.style.removeProperty('{line}')")
        p.wait("new Promise(done => setTimeout(() => done(true), 300))")
        if compared(p, f"{name}-wide", SMALLER["wide"])[0] <= MOST:
            missed.append((name, selector))
        p.run("broken.style.cssText = whole")
    assert missed == []


def test_the_kept_ones_are_small():
    kept = {path.stem: path.stat().st_size for path in FOLDER.iterdir()}
    assert sorted(kept) == sorted(f"{name}-{look}" for name in VIEWS for look in LOOKS)
    assert max(kept.values()) <= MOST_BYTES

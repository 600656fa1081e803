"""What the page's tests look at: a daemon with something of everything, and the views of it, as an operator and a visitor see them.

    house = furnish(daemon, accounts)
    page = enter(visit, house, width=400, dark=True)
    for name in VIEWS: go(page, house, name)
"""
import json

import numpy as np

LONG = "a_name_that_is_as_long_as_a_name_may_be_which_is_quite_a_length_"
GRAY_SCOTT = ["r = u*v*v", "du = 0.16*laplacian(u, boundary='wrap') - r + F*(1 - u)", "v += 0.08*laplacian(v, boundary='wrap') + r - (F + k)*v", "u += du"]
BOARD = "document.querySelector('.board')?.dataset.frames >= 1 && document.querySelectorAll('.aside dt').length > 12"
BOX = "textarea"


def furnish(daemon_with, accounts, *options):
    """A daemon, and by name what is to be looked at in it: ids of arrays and jobs, the address of a link."""
    for name, role in (("olga", "operator"), ("bob", "user"), ("nobody_yet", "user")):
        accounts.add(name, role=role)
    d = daemon_with("--accounts", accounts.path, *options)
    c, bob = accounts.client(d, "olga"), accounts.client(d, "bob")
    house = {"daemon": d, "tokens": accounts.token}
    y, x = np.mgrid[-1:1:120j, -1.5:1.5:180j]
    house["scalar"] = c.create(name="scalar", shape=[], fill=2.5)["id"]
    house["line"] = c.upload(np.sin(np.arange(5000) / 300) * np.exp(-np.arange(5000) / 2000), "line")["id"]
    house["stack"] = c.upload(np.stack([np.cos(9 * (x * x + y * y) + k) for k in range(5)]).astype("float32"), "stack")["id"]
    c.create(name="lat_of_it", shape=[120], fill=40.0, units="degrees_north")
    house["field"] = c.upload(np.sin(3 * x) * np.cos(4 * y), "temperature")["id"]
    c.expect(200, c.patch(f"/v1/arrays/{house['field']}", {"units": "K", "dims": ["lat", "lon"], "attrs": {"long_name": "air temperature", "levels": [1, 2, 3]},
                                                           "coords": {"lat": {"array": "lat_of_it", "dims": ["lat"]}}}))
    c.expect(201, c.post(f"/v1/arrays/{house['field']}/shares", {"principal": "bob", "access": "read"}))
    house["long"] = c.create(name=LONG[:64], shape=[12, 340, 56, 7], dtype="complex64")["id"]
    c.expect(200, c.patch(f"/v1/arrays/{house['long']}", {"read_only": True}))
    house["empty"] = c.create(name="empty", shape=[0, 4])["id"]
    c.expect(201, c.post("/v1/arrays/stack/views", {"index": "2", "name": "part_of_stack"}))
    c.expect(201, c.post("/v1/functions", {"name": "energy_of", "params": ["x"], "expr": "sum(x*x)"}))
    c.expect(201, c.post("/v1/sessions", {"name": "second", "ttl_s": 86400, "memory_limit": 1 << 20}))
    c.create(name="w", shape=[64, 64], random={"distribution": "normal", "seed": 2})
    house["done"] = c.post("/v1/programs?wait=1", {"body": ["w += 0.1*laplacian(w)"], "steps": 400, "record": {"energy": "sum(w*w)", "most": "max(w)"},
                                                   "record_every": 10, "snapshot": {"w": 200}}).json()["id"]
    house["failed"] = c.post("/v1/programs?wait=1", {"body": ["w = w*2", "w = w - 4*w"], "steps": 10_000, "stop_on_nan": True}).json()["id"]
    bob.create(name="of_bob", shape=[300, 200])
    house["link"] = c.expect(201, c.post("/v1/links", {"expires_s": 86400, "arrays": [house["field"], house["line"]], "jobs": [house["done"]]})).json()["url"].removeprefix("/")
    c.expect(204, c.delete("/v1/admin/principals/nobody_yet"))
    c.close()
    bob.close()
    return house


def enter(visit, house, who="olga", place="#node", **kw):
    """The page of one who has logged in."""
    page = visit(house["daemon"], place, **kw)
    page.says("Log in")
    page.fill("input[type=password]", house["tokens"][who])
    page.press("Enter")
    page.wait(f"document.querySelector('.who .name')?.innerText === {json.dumps(who)}")
    return page


def typed(page, text, *keys):
    page.wait(f"document.querySelector('{BOX}')")
    page.fill(BOX, text)
    for key in keys:
        page.press(key)


def in_tab(page, title):
    page.wait("document.querySelector('.tabs button')")
    page.button(title, ".tabs")


def value(page):
    in_tab(page, "Expression")
    typed(page, "sum(temperature*temperature) + 1", "Escape", "Control+Enter")
    page.wait("document.querySelector('.kernel')")


def drawn(page):
    in_tab(page, "Expression")
    typed(page, "temperature - mean(temperature)", "Escape", "Control+Enter")
    page.wait("document.querySelector('img.picture')?.naturalWidth > 4")


def mistake(page):
    in_tab(page, "Expression")
    typed(page, "temperature + 2*unknown_name - 1", "Escape", "Control+Enter")
    page.wait("document.querySelector('.behind mark')")


def choices(page):
    in_tab(page, "Expression")
    typed(page, "temperature + lin")
    page.wait("!document.querySelector('.choices').hidden")


def program(page):
    in_tab(page, "Program")
    typed(page, "lap = laplacian(temperature, boundary='wrap')\ntemperature += 0.1*lap", "Escape")
    page.button("Explain")
    page.says("Before it starts")


def asked(button, title):
    def act(page):
        page.button(button)
        page.says(title, "dialog")
    return act


def rows(n):
    return lambda page: page.wait(f"document.querySelectorAll('tbody tr').length >= {n}")


def said(*words):
    return lambda page: [page.says(w) for w in words]


# By name: the place, where a name of the house's may stand in braces, and what is waited for or done there.
VIEWS = {
    "node": ("node", lambda p: p.wait("document.querySelectorAll('tbody tr').length >= 2")),
    "arrays": ("arrays", rows(9)),
    "array": ("array/{field}", lambda p: p.wait(BOARD)),
    "slices": ("array/{stack}", lambda p: p.wait(BOARD)),
    "long": ("array/{long}", lambda p: p.wait(BOARD)),
    "line": ("array/{line}", said("Every 3rd", "Greatest")),
    "scalar": ("array/{scalar}", said("2.5", "Greatest")),
    "empty": ("array/{empty}", said("no elements")),
    "share": ("array/{field}", lambda p: (p.wait(BOARD), asked("Share", "Share the array")(p))),
    "delete": ("array/{field}", lambda p: (p.wait(BOARD), asked("Delete", "Delete temperature?")(p))),
    "jobs": ("jobs", rows(2)),
    "job": ("job/{done}", said("energy", "most", "Copies")),
    "failed": ("job/{failed}", said("Step", "failed")),
    "eval": ("eval", value),
    "drawn": ("eval", drawn),
    "mistake": ("eval", mistake),
    "choices": ("eval", choices),
    "program": ("eval", program),
    "sessions": ("sessions", said("second", "energy_of", "Device memory", "bob, read", "temperature, line, job j-")),
    "admin": ("admin", rows(2)),
    "quotas": ("admin", asked("Quotas", "Weight and quotas of")),
    "admin-sessions": ("admin/sessions", rows(3)),
    "admin-jobs": ("admin/jobs", rows(2)),
    "admin-arrays": ("admin/arrays", rows(10)),
    "audit": ("admin/audit", said("delete principal")),
}


def go(page, house, name):
    """Shows a view, from another one, and waits until all of it is there."""
    place, act = VIEWS[name]
    page.run("document.querySelector('dialog')?.close(); location.hash = '#none'")
    page.wait("document.querySelector('main').dataset.view === 'node'")
    if place != "node":
        page.run(f"location.hash = '#{place.format(**house)}'")
        page.wait(f"document.querySelector('main').dataset.view === '{place.split('/')[0]}'")
    act(page)
    page.wait("![...document.querySelectorAll('main button')].some(b => b.textContent === 'Give up')")  # of what took long

"""The page's people, in a browser: logging in and out, sessions, links that only show, an operator's hands, and names meant to do harm."""
import json
import re
import time

import numpy as np
import pytest

from browser import Browser
from conftest import until
from test_page_live import HIDE

pytestmark = [pytest.mark.in_turn, pytest.mark.release_only,  # it is the page that is tested here
              pytest.mark.skipif(bool(Browser.missing()), reason=str(Browser.missing()))]
HARM = "<img src=x onerror=document.title='harmed'><script>document.title='harmed'</script><a href='javascript:alert(1)'>"


@pytest.fixture
def house(daemon_with, accounts):
    """A daemon with two users and an operator: it, and their clients."""
    for name, role in (("ann", "user"), ("bob", "user"), ("olga", "operator")):
        accounts.add(name, role=role)
    d = daemon_with("--accounts", accounts.path)
    clients = [accounts.client(d, name) for name in ("ann", "bob", "olga")]
    yield d, *clients
    for c in clients:
        c.close()


@pytest.fixture
def enter(visit, accounts):
    def start(d, name, place="", **kw):
        page = visit(d, place, **kw)
        page.says("Log in")
        page.fill("input[type=password]", accounts.token[name])
        page.press("Enter")
        page.wait(f"document.querySelector('.who .name')?.innerText === {json.dumps(name)}")
        return page

    return start


def test_logging_in_and_out(house, visit, accounts):
    d, ann, *_ = house
    ann.create(name="secret_of_ann", shape=[2, 3])
    p = visit(d, "#arrays")
    p.refused += ("/v1/login",)
    p.says("This daemon has accounts")
    assert p.texts("nav a") == [] and "arrays" not in p.text().lower()
    token = accounts.token["ann"]
    p.fill("input[type=password]", ("x" if token[0] != "x" else "y") + token[1:])  # any other than it has
    p.button("Log in")
    p.says("No account has this token")
    p.fill("input[type=password]", accounts.token["ann"])
    p.press("Enter")
    p.says("secret_of_ann")
    assert p.text(".who .name") == "ann" and p.text(".who .role") == "user" and "Everybody" not in p.texts("nav a")
    cookies = p.call("Network.getCookies")["cookies"]
    assert len(cookies) == 1 and cookies[0]["httpOnly"] and cookies[0]["sameSite"] == "Strict" and accounts.token["ann"] not in str(cookies)
    stored = p.run("JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}, location.href])")
    assert stored == json.dumps(["", {}, {}, p.run("location.href")], separators=(",", ":")) and accounts.token["ann"] not in stored
    p.run("location.reload()")
    p.says("secret_of_ann")  # one stays logged in
    p.button("Log out", ".who")
    p.says("This daemon has accounts")
    p.run("location.reload()")
    p.says("This daemon has accounts")
    assert "secret_of_ann" not in p.text("body")


def test_another_login_in_another_window(house, enter, accounts):
    """The window that shows ann does nothing as bob, and finds out when it is looked at."""
    d, ann, bob, _ = house
    ann.create(name="of_ann", shape=[2, 3])
    p = enter(d, "ann", "#eval")  # where nothing is asked by itself
    p.refused += ("/v1/",)

    def become(name):
        p.run(f"fetch('v1/login', {{method: 'POST', headers: {{'Content-Type': 'application/json'}}, body: JSON.stringify({{token: {json.dumps(accounts.token[name])}}})}}).then(r => r.status)")

    p.fill("textarea", "2*pi")
    p.press("Escape")
    p.fill(".tools input", "of_ann_too")
    become("bob")
    p.button("Evaluate")
    p.says("You are bob now", "#notice")
    assert p.text(".who .name") == "bob" and p.run("document.querySelector('textarea').value") == ""
    assert [len(c.list_all("/v1/arrays", "arrays")) for c in (ann, bob)] == [1, 0]
    become("ann")
    p.run("dispatchEvent(new Event('focus'))")
    p.says("You are ann now", "#notice")
    assert p.text(".who .name") == "ann"
    p.click("nav a[href='#arrays']")
    p.says("of_ann")


def test_logging_out_everywhere(house, enter, accounts):
    """One's own logins, and for an operator a user's."""
    d, *_ = house
    here, there, olga = enter(d, "ann", "#sessions"), enter(d, "ann", "#jobs"), enter(d, "olga", "#admin")
    for p in (here, there):
        p.refused += ("/v1/",)
    here.button("Log out everywhere")
    here.says("this one included", "dialog")
    here.button("Log out", "dialog")
    here.says("This daemon has accounts")
    there.says("no longer logged in")
    there = enter(d, "bob", "#jobs")
    there.refused += ("/v1/",)
    olga.wait("[...document.querySelectorAll('tbody tr')].some(r => r.innerText.includes('bob') && (r.dataset.row = '1'))")
    olga.button("End logins", "[data-row]")
    olga.button("End logins", "dialog")
    there.says("no longer logged in")


def test_a_login_that_ends(house, enter):
    d, _, _, olga = house
    p = enter(d, "ann", "#jobs")
    p.refused += ("/v1/",)
    p.says("There are no jobs")
    olga.expect(204, olga.delete("/v1/admin/principals/ann"))
    p.says("no longer logged in")


def test_others_are_not_seen(house, enter):
    d, ann, bob, _ = house
    ann.create(name="of_ann", shape=[2, 3])
    bob.create(name="of_bob", shape=[2, 3])
    job = ann.post("/v1/programs", {"body": ["of_ann += 1"], "steps": 10**9}).json()["id"]
    p = enter(d, "bob", "#arrays")
    p.says("of_bob")
    for place in ("arrays", "jobs", "sessions", "node", "admin"):
        p.run(f"location.hash = '#{place}'")
        p.wait(f"document.querySelector('main').dataset.view === '{place}'")
        p.browser.read(0.7)
        assert "ann" not in p.text("body").replace("channel", ""), place
    assert "Only operators" in p.text()
    ann.delete(f"/v1/jobs/{job}")


def test_sessions_and_shares(house, enter):
    d, ann, bob, _ = house
    ann.create(name="u", shape=[2, 3])
    p = enter(d, "ann", "#sessions")
    p.says("You have shared no array")
    p.button("New session")
    p.fill("dialog input[name=name]", "second")
    p.fill("dialog input[name=memory_limit]", "16")
    p.button("Create", "dialog")
    p.says("second")
    assert [s for s in ann.list_all("/v1/sessions", "sessions") if s["name"] == "second"][0]["memory_limit"] == 16 << 20
    p.click("nav a[href='#arrays']")
    p.click("tbody a")
    p.button("Share")
    p.fill("dialog input[name=principal]", "bob")
    p.button("Share", "dialog")
    p.says("bob, read")
    ref = ann.get("/v1/arrays").json()["arrays"][0]["id"]
    assert bob.meta(ref)["shape"] == [2, 3]
    bobs = enter(d, "bob", "#arrays")
    bobs.button("Show them")
    bobs.says("ann")
    assert bobs.texts("tbody tr td:nth-child(5)") == ["ann"] and not bobs.run("document.querySelector('tbody input')")
    bobs.click("tbody a")
    bobs.says("About it")
    assert bobs.texts(".aside .buttons > *") == ["Save the picture", "Download .npy", "Download bytes"] and "Shared with" not in bobs.text(".aside")
    assert bobs.run("[...document.querySelectorAll('dt')].find(t => t.innerText === 'Owner').nextElementSibling.innerText") == "ann"
    bobs.run("location.hash = '#sessions'")
    bobs.says("You have shared no array")
    p.click("nav a[href='#sessions']")
    p.wait("document.querySelector('main').dataset.view === 'sessions'")
    p.says("bob, read")
    p.run("location.hash = '#array/" + ref + "'")
    p.button("Take back")
    p.button("Take back", "dialog")
    p.says("With nobody")
    bob.fails(404, "not_found", bob.get(f"/v1/arrays/{ref}"))
    p.click("nav a[href='#sessions']")
    p.says("second")
    p.wait("((r) => r && (r.querySelector('button').id = 'end'))([...document.querySelectorAll('tbody tr')].find(r => r.innerText.includes('second')))")
    p.click("#end")
    p.button("End", "dialog")
    p.wait("!document.querySelector('main').innerText.includes('second')")


def test_links(house, enter, visit):
    """A link shows one array, or all that is one's own, to people without an account, and lets nobody do anything."""
    d, ann, *_ = house
    ann.upload(np.arange(12.0).reshape(3, 4), "shown")
    ann.create(name="hidden", shape=[5, 6])
    p = enter(d, "ann", "#arrays")
    p.says("hidden")
    p.run("[...document.querySelectorAll('tbody a')].find(a => a.innerText === 'shown').id = 'it'")
    p.click("#it")
    p.button("Link")
    p.button("Make the link", "dialog")
    address = p.wait("document.querySelector('dialog input[readonly]')?.value")
    p.button("Close", "dialog")
    guest = visit(d, address.removeprefix(f"http://{d.host}:{d.port}/"))
    guest.says("3 × 4 float64")
    guest.wait("Number(document.querySelector('.board').dataset.frames) >= 1")
    assert "link=" not in guest.run("location.href") and "read-only" in guest.text("header")
    assert guest.texts("nav a") == ["What is shown"] and "hidden" not in guest.text("body")
    assert not {"Delete", "Rename", "Share", "Link"} & set(guest.texts("main button"))
    assert guest.text(".who .name") == "ann’s link" and re.fullmatch(r"read-only, until \d{4}-\d\d-\d\d \d\d:\d\d", guest.text(".who .role"))
    for place in ("arrays", "jobs", "sessions"):  # there is nothing there that one may see
        guest.run(f"location.hash = '#{place}'")
        guest.wait("location.hash.startsWith('#array/') && document.querySelector('.board')?.dataset.frames >= 1")
    assert guest.run("document.querySelector('#notice').hidden") and guest.text("nav a[aria-current]") == "What is shown"
    p.click("nav a[href='#sessions']")
    p.wait("[...document.querySelectorAll('table[aria-label=\"read-only links\"] tbody th')].map(e => e.innerText).join() === 'shown'")
    p.button("New link")
    p.button("Make the link", "dialog")
    whole = p.wait("document.querySelector('dialog input[readonly]')?.value")
    p.button("Close", "dialog")
    p.says("all of yours")
    wall = visit(d, whole.removeprefix(f"http://{d.host}:{d.port}/"))
    wall.says("Your arrays")
    assert wall.texts("nav a") == ["Node", "Arrays", "Jobs"]
    wall.click("nav a[href='#arrays']")
    wall.says("hidden")
    wall.click("nav a[href='#jobs']")
    wall.says("There are no jobs")
    for link in ann.get("/v1/links").json()["links"]:
        ann.expect(204, ann.delete(f"/v1/links/{link['id']}"))
    for page in (guest, wall):
        page.refused += ("/v1/",)
        page.says("The link has ended")
        page.run("window.isOld = true; location.reload()")
        page.wait("!window.isOld")
        page.says("The link has ended")
    guest.goto("about:blank")
    guest.goto(address)  # as one who has it in a mail
    guest.says("The link has ended")
    assert "oken" not in guest.text("body").replace("Log in with a token", "") and guest.texts("nav a") == []
    guest.button("Log in with a token")
    guest.says("This daemon has accounts")


def make_link(page):
    """Its address, from the dialog that shows it."""
    page.button("Make the link", "dialog")
    return page.wait("document.querySelector('dialog input[readonly]')?.value")


NO_CLIPBOARD = "Object.defineProperty(navigator, 'clipboard', {value: undefined, configurable: true})"  # as without TLS from another machine


def test_a_links_address_stays(house, enter):
    """It is told once: it is there until one has closed its dialog, and can be copied where a page may not write to the clipboard."""
    d, ann, *_ = house
    p = enter(d, "ann", "#sessions")
    p.run(NO_CLIPBOARD)
    for copies, said in (("true", "Copied."), ("false", "Marked: copy it with Ctrl+C.")):
        p.run(f"document.execCommand = what => (window.copied = [what, getSelection().toString() || document.activeElement.value], {copies})")
        p.button("New link")
        address = make_link(p)
        p.button("Copy", "dialog")
        p.says(said, "dialog")
        assert p.run("window.copied") == ["copy", address] and "#link=" in address
        assert p.run("document.querySelector('dialog input[readonly]').value") == address and "Cancel" not in p.texts("dialog button")
        p.button("Close", "dialog")
        p.wait("!document.querySelector('dialog')")
    assert len(ann.get("/v1/links").json()["links"]) == 2


def test_links_to_several_and_to_a_job(house, enter, visit):
    d, ann, *_ = house
    for name in ("u", "v", "hidden"):
        ann.create(name=name, shape=[4, 4])
    job = ann.post("/v1/programs?wait=1", {"body": ["u += 1"], "steps": 3}).json()["id"]
    p = enter(d, "ann", "#arrays")
    p.says("hidden")
    assert p.run("[...document.querySelectorAll('main button')].find(b => b.innerText === 'Link to the chosen' || b.textContent === 'Link to the chosen').hidden")
    for name in ("u", "v"):
        p.click(f"tbody input[aria-label='Choose {name}']")
    p.button("Link to the chosen")
    several = make_link(p)
    p.button("Close", "dialog")
    p.run(f"location.hash = '#job/{job}'")
    p.button("Link")
    of_job = make_link(p)
    p.button("Close", "dialog")
    guest = visit(d, several.split("/")[-1])
    guest.says("What this link shows")
    assert guest.texts("main li a") == ["u", "v"] and "hidden" not in guest.text("body")
    guest = visit(d, of_job.split("/")[-1])
    guest.wait("document.querySelector('.badge')?.innerText === 'done'")
    assert guest.texts("main button") == []


def test_a_link_opened_where_one_is_logged_in(house, enter, visit):
    """A link that is pasted where the page is shown is opened, its key is not left in the address, and one's own login is lost only if one says so."""
    d, ann, bob, _ = house
    ann.create(name="of_ann", shape=[2, 3])
    bob.create(name="of_bob", shape=[2, 3])
    key = bob.expect(201, bob.post("/v1/links", {"expires_s": 600})).json()["url"].removeprefix("/")
    p = enter(d, "ann", "#arrays")
    p.says("of_ann")
    p.run(f"location.hash = {json.dumps(key)}")
    p.says("logged in as ann", "dialog")
    assert "link=" not in p.run("location.href")
    p.button("Cancel", "dialog")
    p.says("Running for")
    assert p.text(".who .name") == "ann" and "read-only" not in p.text("header")
    p.run("location.hash = '#link=' + 'x'.repeat(43)")
    p.refused += ("/v1/login",)
    p.button("Open it", "dialog")
    p.says("The link is unknown, or over", "#notice")
    assert p.text(".who .name") == "ann"
    p.run("location.hash = '#arrays'")
    p.says("of_ann")
    p.goto(f"{p.origin}/{key}")
    p.button("Open it", "dialog")
    p.wait("document.querySelector('.who .name')?.innerText === 'bob’s link'")
    p.click("nav a[href='#arrays']")
    p.says("of_bob")
    assert "of_ann" not in p.text("body") and "link=" not in p.run("location.href")
    p.run(f"location.hash = {json.dumps(key)}")  # one link after another: nothing is lost
    p.wait("!location.href.includes('link=') && document.querySelector('main').dataset.view === 'node'")
    assert not p.run("document.querySelector('dialog')")


def test_a_job_after_the_login_has_ended(house, enter):
    d, ann, _, olga = house
    ann.create(name="u", shape=[64, 64])
    job = ann.post("/v1/programs", {"body": ["u += 1"], "steps": 10**9}).json()["id"]
    p = enter(d, "ann", f"#job/{job}")
    p.refused += ("/v1/",)
    p.wait("document.querySelector('.badge')?.innerText === 'running'")
    p.run("fetch('v1/logout', {method: 'POST'}).then(r => r.status)")  # as in another window
    p.says("no longer logged in")
    assert p.texts("header button") == []
    ann.delete(f"/v1/jobs/{job}")


def test_a_job_after_a_restart(daemon_with, accounts, enter):
    """Logins end with the process: the page finds that out when the next one answers."""
    accounts.add("ann")
    d = daemon_with("--accounts", accounts.path)
    ann = accounts.client(d, "ann")
    ann.create(name="u", shape=[64, 64])
    job = ann.post("/v1/programs", {"body": ["u += 1"], "steps": 10**9}).json()["id"]
    p = enter(d, "ann", f"#job/{job}")
    p.refused += ("",)
    p.wait("document.querySelector('.badge')?.innerText === 'running'")
    ann.close()
    d.stop()
    daemon_with("--accounts", accounts.path, "--listen", f"127.0.0.1:{d.port}")
    p.says("no longer logged in", seconds=60)


def test_how_often_an_operator_s_page_asks(house, enter):
    """As docs/page.md says: the table that is shown, every two seconds, and none while nobody sees it."""
    d, *_, olga = house

    def asked(table):
        found = re.search(rf'^arrayd_http_requests_total{{route="/v1/admin/{table}",method="GET",status="200"}} (\d+)$', olga.get("/metrics").body.decode(), re.M)
        return int(found[1]) if found else 0

    p = enter(d, "olga", "#admin/jobs")
    until(lambda: asked("jobs"))
    before, others = asked("jobs"), asked("sessions") + asked("arrays")
    time.sleep(8)
    assert 2 <= asked("jobs") - before <= 4 and asked("sessions") + asked("arrays") == others
    p.run(f"{HIDE}(true)")
    time.sleep(1)
    before = asked("jobs")
    time.sleep(5)
    assert asked("jobs") == before


def test_an_operators_hands(house, enter):
    d, ann, bob, olga = house
    ann.create(name="u", shape=[64, 64])
    ann.create(name="v", shape=[64, 64])
    ann.expect(201, ann.post("/v1/sessions", {"name": "of_ann"}))
    job = ann.post("/v1/programs", {"body": ["u += 1"], "steps": 10**9}).json()["id"]
    bob.create(name="w", shape=[4])
    p = enter(d, "olga", "#admin")
    p.refused += ("/v1/admin/principals/ann",)
    p.wait("document.querySelectorAll('tbody tr').length === 3")

    def tab(name, label):
        p.click(f".tabs a[href='#admin/{name}']")
        p.wait(f"document.querySelector('main table')?.getAttribute('aria-label') === {json.dumps(label)}")

    def row(words):
        p.wait(f"[...document.querySelectorAll('tbody tr')].some(r => r.innerText.includes({json.dumps(words)}) && (document.querySelectorAll('[data-row]')"
               ".forEach(e => delete e.dataset.row), r.dataset.row = '1', true))")
        return "[data-row]"

    headings = p.texts("thead th")
    column = next(i for i, text in enumerate(headings) if "This month" in text)
    took = lambda name: p.run(f"document.querySelector({json.dumps(row(name))}).cells[{column}].innerText")
    until(lambda: took("ann") != took("bob"))  # ann has a job
    p.button("Quotas", row("ann"))
    p.fill("dialog input[name=weight]", "7")
    p.fill("dialog input[name=device_memory]", "2 GiB")
    p.button("Change", "dialog")
    p.wait("[...document.querySelectorAll('tbody tr')].some(r => r.innerText.includes('ann') && r.innerText.includes('2.0 GiB'))")
    ann_now = [x for x in olga.list_all("/v1/admin/principals", "principals") if x["name"] == "ann"][0]
    assert ann_now["weight"] == 7 and ann_now["changed"] == {"weight": 7, "device_memory": 2 << 30}
    p.button("Quotas", row("ann"))
    p.fill("dialog input[name=device_memory]", " ")
    p.button("Change", "dialog")
    until(lambda: [x for x in olga.list_all("/v1/admin/principals", "principals") if x["name"] == "ann"][0]["changed"] == {"weight": 7})
    p.button("Quotas", row("ann"))
    p.fill("dialog input[name=sessions]", "7")
    for name, text, words in (("arrays", "many", "Arrays: “many” is not a number"), ("arrays", "2.5", "Arrays: “2.5” is not a whole number"), ("arrays", "0", "Arrays: 0 cannot be a limit"),
                              ("weight", "2.5", "Weight: “2.5” is not a whole number"), ("weight", "5000", "Weight: "), ("body", "8 M", "such as 2 GiB or 2 GB")):
        was = p.run(f"document.querySelector('dialog input[name={name}]').value")
        p.fill(f"dialog input[name={name}]", text)
        p.press("Enter")
        p.says(words, "dialog")
        assert p.run("[...document.querySelectorAll('dialog [aria-invalid]')].map(e => e.name)") == [name]
        p.fill(f"dialog input[name={name}]", was or " ")
    p.fill("dialog input[name=arrays]", "1\u202f000")
    p.fill("dialog input[name=body]", "8 MB")
    p.fill("dialog input[name=host_memory]", "2e9")
    p.button("Change", "dialog")
    p.wait("!document.querySelector('dialog')")
    assert [x for x in olga.list_all("/v1/admin/principals", "principals") if x["name"] == "ann"][0]["changed"] == {
        "weight": 7, "sessions": 7, "arrays": 1000, "body": 8_000_000, "host_memory": 2_000_000_000}

    tab("jobs", "everybody's jobs")
    p.says("running")
    p.button("Stop", row("ann"))
    p.says("can be resumed by its owner", "dialog")
    p.button("Stop", "dialog")
    until(lambda: ann.get(f"/v1/jobs/{job}").json()["state"] == "cancelled")
    tab("arrays", "everybody's arrays")
    p.button("Delete", row("\tv\t"))
    p.button("Cancel", "dialog")
    p.button("Delete", row("64 × 64"))
    p.button("Delete", "dialog")
    until(lambda: len(ann.get("/v1/arrays").json()["arrays"]) == 1)
    tab("sessions", "everybody's sessions")
    p.button("End", row("of_ann"))
    p.button("End", "dialog")
    until(lambda: [s["name"] for s in ann.list_all("/v1/sessions", "sessions")] == ["default"])
    tab("principals", "users")
    p.button("End", row("bob"))
    p.says("End bob?", "dialog")
    p.button("End", "dialog")
    until(lambda: bob.get("/v1/info").status == 401)
    tab("audit", "what was done")
    p.says("delete principal")
    for words in ("set principal", "cancel job", "delete array", "delete session", "bob"):
        assert words in p.text() or words.split()[0] in p.text(), words
    p.click("nav a[href='#arrays']")
    p.choose("select", "everybody")
    p.says("ann")
    assert p.texts("tbody a") == []  # to see that it is there is not to see what is in it


def test_two_at_work(house, enter):
    """An operator sees whose work the device does, a user only the own part of it."""
    d, ann, bob, _ = house
    jobs = []
    for c, name in ((ann, "u"), (bob, "w")):
        c.create(name=name, shape=[512, 512])
        jobs.append((c, c.post("/v1/programs", {"body": [f"{name} += 0.1*laplacian({name})"], "steps": 10**8}).json()["id"]))
    p, mine = enter(d, "olga", "#node"), enter(d, "ann", "#node")
    shares = "document.querySelector('canvas[aria-label^=\"Share of the device\"]').getAttribute('aria-label').match(/(ann|bob) \\d\\d/g)?.length"
    p.wait(f"{shares} === 2", 60)
    p.wait("[...document.querySelectorAll('tbody tr')].filter(r => /^(ann|bob)/.test(r.innerText) && /2.0 MiB|[4-9].0 MiB/.test(r.innerText)).length === 2")
    mine.wait("parseInt([...document.querySelectorAll('.tile')].find(t => t.innerText.startsWith('Your share')).querySelector('dd').innerText) > 5", 60)
    assert "bob" not in mine.text("body") and mine.texts("tbody th") == ["ann"]
    for c, job in jobs:
        c.expect(200, c.delete(f"/v1/jobs/{job}"))


def harmful(text):
    """A reply in which everything that somebody may have chosen, and what the daemon says of it, is meant to do harm."""
    def change(value):
        if isinstance(value, dict):
            return {key: HARM if key in CHOSEN and isinstance(v, str) else [HARM, HARM] if key == "dims" else change(v) for key, v in value.items()}
        return [change(v) for v in value] if isinstance(value, list) else value
    reply = change(json.loads(text))
    if isinstance(reply, dict) and "strides" in reply:
        reply.update(attrs={HARM: [HARM]}, units=HARM, dims=[HARM] * len(reply["shape"]), coords={HARM: {"array": HARM, "dims": [HARM]}})
    if isinstance(reply, dict) and "records" in reply:
        reply["records"] = {HARM: v for v in reply["records"].values()}
    return json.dumps(reply)


CHOSEN = {"name", "owner", "principal", "who", "target", "from", "detail", "title", "expr", "waiting", "note", "version", "backend", "why", "source", "action", "result",
          "dtype", "session", "reason", "access", "kernels", "text"}


def test_names_meant_to_harm(house, enter):
    """Whatever others have chosen is text: nothing of it runs, and nothing is fetched."""
    d, ann, bob, olga = house
    ann.expect(201, ann.post("/v1/functions", {"name": "harm", "params": ["x"], "expr": "x + 1"}))
    ref = ann.create(name="u", shape=[8, 8])["id"]
    ann.expect(201, ann.post(f"/v1/arrays/{ref}/shares", {"principal": "bob", "access": "read"}))
    job = ann.post("/v1/programs?wait=1", {"body": ["u += 1"], "steps": 3, "record": {"a_b": "sum(u)"}}).json()["id"]
    olga.expect(204, olga.delete("/v1/admin/principals/bob"))
    for name, places in (("ann", ["node", "arrays", f"array/{ref}", f"job/{job}", "eval", "sessions"]),
                         ("olga", ["sessions", *[f"admin/{tab}" for tab in ("principals", "sessions", "jobs", "arrays", "audit")]])):
        p = enter(d, name, "#jobs")
        p.refused += ("/v1/explain", "/v1/evaluate", "/v1/arrays", "/v1/jobs")
        p.intercept(harmful, "*/v1/*")
        for place in places:
            p.run(f"location.hash = {json.dumps(place)}")
            p.wait("document.querySelector('main').innerText.includes('<img src=x') || document.querySelector('textarea')")
            p.browser.read(0.5)
            if place == "eval":
                for text in ("u + 1", "sum(u)", "no_such_name"):
                    p.fill("textarea", text)
                    p.press("Control+Enter")
                    p.browser.read(1)
                p.fill("textarea", HARM)
                for language in ("curl", "Python", "JavaScript"):
                    p.button(language)
                    p.wait(f"document.querySelector('.copy')?.getAttribute('aria-label') === 'As {language}'")
            assert p.run("document.title").startswith("arrayd: ") and p.run("document.querySelectorAll('main script, img[src=x]').length") == 0
        for place in ("array/", "job/", "admin/", ""):
            p.run(f"location.hash = {json.dumps(place + HARM)}")
            p.browser.read(0.3)
        assert p.run("document.querySelectorAll('main script, img[src=x]').length") == 0
        assert p.run("document.title") != "harmed" and not any(url.endswith("/x") for url in p.asked)

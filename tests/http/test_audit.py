"""The record of who did what: its entries, and the file audit-log."""
import json
import os
import re
from pathlib import Path

import pytest

from conftest import until
from test_admin import actions, everybodys, house, lines_of  # noqa: F401 (house: a fixture)
from test_login import SAME, log_in


def test_the_audit_is_bounded(daemon_with):
    d = daemon_with("--audit-entries", 5)
    c = d.client()
    for i in range(9):
        c.delete(f"/v1/admin/arrays/x{i}")
    entries = everybodys(c, "audit")
    assert [(x["number"], x["target"]) for x in entries] == [(i + 1, f"x{i}") for i in range(4, 9)]
    page = c.get("/v1/admin/audit?limit=2&after=6").json()
    assert [x["number"] for x in page["entries"]] == [7, 8] and page["next"] == "8"
    assert c.info()["limits"]["audit_entries"] == 5
    c.close()


def test_refused_tokens_are_one_entry_a_minute(house, accounts, tmp_path):
    """However often the audit is read meanwhile; what is left of the count is told at the end."""
    d, ann, bob, eve = house("--audit-log", tmp_path / "audit")
    wrong = d.client(always={"Authorization": "Bearer arrayd_" + "A" * 32})
    for _ in range(20):
        assert wrong.get("/v1/info").status == 401
        entries = [x for x in everybodys(ann, "audit") if x["action"] == "login"]
        assert [x["count"] for x in entries] == [1]
    wrong.close()
    d.stop()
    entries = [x for x in lines_of(tmp_path / "audit") if x["action"] == "login"]
    assert [x["count"] for x in entries] == [1, 19] and all(x["who"] is None and x["result"] == "unauthorized" for x in entries)
    assert "AAAA" not in json.dumps(entries)


def test_no_name_breaks_a_line(daemon_with, tmp_path):
    path = tmp_path / "audit"
    d = daemon_with("--audit-log", path)
    c = d.client()
    names = ['","who":"x', "\\", "\\n{}", "'<script>", "x" * 500, "a,b;c", "${jndi}", "..."]
    for name in names:
        c.fails(404, "not_found", c.delete(f"/v1/admin/principals/{name}"))
    c.close()
    d.stop()
    lines = path.read_bytes().split(b"\n")
    assert lines.pop() == b"" and len(lines) == len(names)
    for line in lines:
        x = json.loads(line)
        assert (x["who"], x["action"], x["result"]) == ("local", "delete_principal", "not_found")


def test_the_file_is_rotated(daemon_with, tmp_path):
    path = tmp_path / "audit"
    d = daemon_with("--audit-log", path, "--audit-log-size", 4096, "--audit-log-files", 2)
    c = d.client()
    limits = c.info()["limits"]
    assert (limits["audit_log_size"], limits["audit_log_files"]) == (4096, 2)
    for i in range(120):
        c.delete(f"/v1/admin/arrays/x{i}")
    c.close()
    d.stop()
    found = sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("audit"))
    assert found == ["audit", "audit.1", "audit.2"]
    numbers = []
    for name in reversed(found):
        text = (tmp_path / name).read_text()
        assert len(text) <= 4096 and text.endswith("\n") and (tmp_path / name).stat().st_mode & 0o777 == 0o600
        numbers += [json.loads(line)["number"] for line in text.splitlines()]
    assert numbers == list(range(numbers[0], 121)) and numbers[0] > 1


def test_what_cannot_be_rotated_does_not_grow(daemon_with, tmp_path):
    """Lines are left out, and their number is in the file once it can be rotated again."""
    path, older = tmp_path / "audit", [tmp_path / f"audit.{i}" for i in (1, 2)]
    d = daemon_with("--audit-log", path, "--audit-log-size", 4096, "--audit-log-files", 1)
    c = d.client()
    older[0].mkdir()
    for i in range(60):
        c.delete(f"/v1/admin/arrays/x{i}")
    until(lambda: "audit could not be written" in d.log())
    assert d.log().count("audit could not be written") == 1
    until(lambda: path.stat().st_size > 3500)
    assert path.stat().st_size <= 4096 and not any(older[0].iterdir())
    older[0].rmdir()
    c.delete("/v1/admin/arrays/y")
    until(lambda: older[0].exists() and path.exists() and any(x["target"] == "y" for x in lines_of(path)))
    now, last = lines_of(path), lines_of(older[0])[-1]["number"]
    lost = next(x for x in now if x["action"] == "audit_lost")
    late = sum(x["target"].startswith("x") for x in now)  # had not been written yet when there was room again
    assert (lost["count"], lost["who"], lost["result"]) == (60 - last - late, None, "state_failed") and 10 < last < 50
    assert not older[1].exists()
    assert "audit_lost" in [x[1] for x in actions(c)]
    c.close()


def test_something_else_has_the_files_name(daemon_with, tmp_path):
    """Neither a pipe that nobody reads nor somebody's file gets a line, and neither holds anything up."""
    path, other, passwords = tmp_path / "audit", tmp_path / "other", b"root:x:0"
    d = daemon_with("--audit-log", path)
    c = d.client()
    c.delete("/v1/admin/arrays/w")
    until(lambda: len(lines_of(path)) == 1)
    os.link(path, tmp_path / "moved")
    for put in (lambda: os.mkfifo(other), lambda: other.write_bytes(passwords)):
        put()
        other.replace(path)
        for _ in range(3):
            assert c.delete("/v1/admin/arrays/x").status == 404
    d.stop()
    assert path.read_bytes() == passwords and d.log().count("audit could not be written") == 1
    assert [x["target"] for x in lines_of(tmp_path / "moved")] == ["w"]
    c.close()


def test_the_file_is_moved_away(daemon_with, tmp_path):
    path, moved = tmp_path / "audit", tmp_path / "moved"
    d = daemon_with("--audit-log", path)
    c = d.client()
    c.delete("/v1/admin/arrays/x")
    until(lambda: len(lines_of(path)) == 1)
    path.rename(moved)
    c.delete("/v1/admin/arrays/y")
    until(lambda: path.exists() and len(lines_of(path)) == 1)
    path.unlink()
    c.delete("/v1/admin/arrays/z")
    until(lambda: path.exists() and len(lines_of(path)) == 1)
    assert [x["target"] for x in lines_of(moved)] == ["x"] and [x["target"] for x in lines_of(path)] == ["z"]
    assert path.stat().st_mode & 0o777 == 0o600
    c.close()


def test_all_is_written_at_the_end(daemon_with, tmp_path):
    path = tmp_path / "audit"
    d = daemon_with("--audit-log", path, "--audit-entries", 1)
    c = d.client()
    for i in range(200):
        c.patch("/v1/admin/principals/local", {"weight": i + 1})
    c.close()
    d.stop()
    assert [x["target"] for x in lines_of(path)] == [f"local weight={i + 1}" for i in range(200)]


def test_a_thread_of_its_own_writes(house, tmp_path):
    """What is done, and refused, on the listener's threads too."""
    path = tmp_path / "audit"
    d, ann, bob, eve = house("--audit-log", path)
    for i in range(20):
        ann.patch("/v1/admin/principals/bob", {"weight": i + 1})
    bob.fails(403, "forbidden", bob.get("/v1/admin/audit"))
    until(lambda: path.exists() and len(lines_of(path)) == 21)
    wrote = [int(re.search(r"wchar: (\d+)", (task / "io").read_text())[1]) for task in Path(f"/proc/{d.pid}/task").iterdir()
             if (task / "comm").read_text() == "arrayd-audit\n"]
    assert wrote == [path.stat().st_size]


@pytest.mark.parametrize("is_link", [False, True])
def test_the_next_daemon_goes_on(daemon_with, tmp_path, is_link):
    """With the entries and the numbers, through a rotation, a line that was torn off and others that are no entries."""
    path = tmp_path / "audit"
    if is_link:
        path.symlink_to(tmp_path / "elsewhere")
    options = ("--audit-log", path, "--audit-log-size", 4096, "--audit-log-files", 9, "--audit-entries", 60)
    before, last = [], 0
    for end in ("", '{"number":4', '{"number":1}\nnot JSON\n'):
        d = daemon_with(*options)
        c = d.client()
        assert everybodys(c, "audit") == before[-60:]
        for i in range(50):
            c.delete(f"/v1/admin/arrays/x'{i}")
        before = everybodys(c, "audit")
        assert [x["number"] for x in before] == list(range(last + 50 - len(before) + 1, last + 51))
        last += 50
        assert [x["number"] for x in c.get(f"/v1/admin/audit?after={last - 3}").json()["entries"]] == [last - 2, last - 1, last]
        c.close()
        d.stop()
        with path.open("a") as f:
            f.write(end)
    lines = [json.loads(line) for p in (*sorted(tmp_path.glob("audit.?"), reverse=True), path) for line in p.read_text().splitlines() if "count" in line]
    assert [x["number"] for x in lines] == list(range(1, 151)) and lines[-60:] == before


def test_numbers_that_began_again_are_not_mixed(daemon_with, tmp_path):
    """As versions wrote them that did not go on: what has the same numbers as later entries is not shown."""
    path = tmp_path / "audit"
    line = {"at": "2026-01-02T03:04:05.678Z", "who": None, "from": None, "action": "snapshot", "target": "", "result": "ok", "count": 1}
    path.write_text("".join(json.dumps({"number": n, **line}, separators=(",", ":")) + "\n" for n in (7, 8, 9, 1, 2, 4)))
    d = daemon_with("--audit-log", path)
    c = d.client()
    c.delete("/v1/admin/arrays/x")
    entries = everybodys(c, "audit")
    assert [x["number"] for x in entries] == [1, 2, 4, 5] and entries[2] == {"number": 4, **line}
    page = c.get("/v1/admin/audit?limit=2&after=1").json()
    assert [x["number"] for x in page["entries"]] == [2, 4] and page["next"] == "4"
    c.close()


@pytest.mark.parametrize("rest", ['{"numb', "\0" * 9000], ids=["half a line", "unwritten blocks"])
def test_half_a_line_is_removed(daemon_with, tmp_path, rest):
    path = tmp_path / "audit"
    path.write_text('{"number":1}\n' + rest)
    d = daemon_with("--audit-log", path)
    c = d.client()
    c.delete("/v1/admin/arrays/x")
    c.close()
    d.stop()
    lines = path.read_text().splitlines()
    assert lines[0] == '{"number":1}' and json.loads(lines[1])["action"] == "delete_array" and len(lines) == 2


def test_what_is_no_audit_log(daemon_with, tmp_path):
    path = tmp_path / "passwords"
    path.write_text("root:x:0")
    (tmp_path / "data").write_text('{"name": "a"}')
    for wrong, why in ((path, "not an audit log"), (tmp_path / "data", "not an audit log"), (tmp_path, "Is a directory"), (tmp_path / "no" / "audit", "No such file")):
        with pytest.raises(RuntimeError, match=why):
            daemon_with("--audit-log", wrong, "--no-keeper")
    assert path.read_text() == "root:x:0" and (tmp_path / "data").read_text() == '{"name": "a"}'


def entries_of(c, *actions):
    return [x for x in everybodys(c, "audit") if x["action"] in actions]


def test_logins_and_links(house, accounts, tmp_path):
    """Who made, opened and ended them, by their ids, and what was refused; never a key."""
    path = tmp_path / "audit"
    d, ann, bob, _ = house("--audit-log", path, "--max-logins", 2, "--max-links", 1)
    stranger, secrets = d.client(), []

    def said():
        return [(x["who"], x["action"], x["target"].split(" ")[0], x["result"]) for x in
                entries_of(ann, "login", "logout", "end_login", "make_link", "open_link", "end_link")]

    for _ in range(3):
        secrets.append(log_in(stranger, accounts.token["bob"]).split("=")[1])
    logins = [x["target"].split(" ")[0] for x in entries_of(ann, "login")]
    assert len(set(logins)) == 3 and all(re.fullmatch(r"bob/v-\w{22}", x) for x in logins)
    assert re.fullmatch(r"bob/\S+ until \d{4}-\S+Z", entries_of(ann, "login")[0]["target"])
    assert said() == [("bob", "login", logins[0], "ok"), ("bob", "login", logins[1], "ok"),
                      ("bob", "end_login", logins[0][4:] + ",", "ok"), ("bob", "login", logins[2], "ok")]
    seen = len(said())
    name = log_in(stranger, accounts.token["ann"]).split("=")[0]
    out = d.client(always={"Cookie": f"{name}={secrets[2]}", **SAME})
    out.expect(204, out.post("/v1/logout"))
    out.expect(204, out.post("/v1/logout"))  # it is over: nothing ends
    assert [x[:2] for x in said()[seen:]] == [("ann", "login"), ("bob", "logout")] and said()[-1][2] == logins[2][4:]

    seen = len(said())
    link = bob.expect(201, bob.post("/v1/links", {"expires_s": 60})).json()
    key = link["url"].split("=")[1]
    secrets.append(key)
    log_in(stranger, key, "link")
    bob.fails(429, "quota_exceeded", bob.post("/v1/links", {"expires_s": 60}))
    bob.fails(404, "not_found", bob.delete(f"/v1/links/{key}"))  # a mistake that must not tell it
    bob.expect(204, bob.delete(f"/v1/links/{link['id']}"))
    stranger.fails(401, "unauthorized", stranger.post("/v1/login", {"link": key}, headers=SAME))
    mine = f"bob/{link['id']}"
    assert said()[seen:] == [("bob", "make_link", mine, "ok"), (None, "open_link", mine, "ok"), ("bob", "make_link", "", "quota_exceeded"),
                             ("bob", "end_link", "bob/", "not_found"), ("bob", "end_link", mine, "ok"), (None, "open_link", "", "unauthorized")]
    stranger = d.client()
    stranger.fails(403, "forbidden", stranger.post("/v1/login", {"token": accounts.token["bob"]}, headers={"Sec-Fetch-Site": "cross-site"}))
    assert said()[-1] == (None, "login", "", "forbidden")
    d.stop()
    text = path.read_text() + d.log()
    assert not [s for s in (*secrets, *accounts.token.values()) if s in text] and "make_link" in text


def test_each_user_is_counted_alone(house, accounts, tmp_path):
    """Of however many there are: what one does is not told of another, nor hidden behind it."""
    many = [f"u{k:03}" for k in range(130)]
    for name in many:
        accounts.add(name)
    d, ann, bob, eve = house("--audit-log", tmp_path / "audit")
    stranger = d.client()
    for _ in range(30):
        log_in(stranger, accounts.token["bob"])
    for name in many:
        log_in(stranger, accounts.token[name])
    logins = [x["who"] for x in everybodys(ann, "audit") if x["action"] == "login"]
    assert logins == ["bob"] * 20 + many
    d.stop()
    assert [(x["who"], x["count"]) for x in lines_of(tmp_path / "audit") if x["count"] > 1 and x["action"] == "login"] == [("bob", 10)]


def test_nobody_fills_the_audit_with_logins(house, accounts, tmp_path):
    """A user's own are bounded; what is beyond is one entry of each kind at the end; others', and other kinds, stay."""
    d, ann, bob, eve = house("--audit-log", tmp_path / "audit", "--max-logins", 10)
    ann.delete("/v1/admin/arrays/x")
    stranger = d.client()
    for _ in range(90):
        log_in(stranger, accounts.token["bob"])
    eve.expect(201, eve.post("/v1/links", {"expires_s": 60}))
    for _ in range(25):
        bob.fails(422, "bad_field", bob.post("/v1/links", {"expires_s": -1}))
    link = bob.expect(201, bob.post("/v1/links", {"expires_s": 60})).json()
    for _ in range(30):
        log_in(stranger, link["url"].split("=")[1], "link")
    bob.expect(204, bob.delete(f"/v1/links/{link['id']}"))
    found = [(x["who"], x["action"], x["result"]) for x in everybodys(ann, "audit")]
    assert sorted(found[1:41]) == [("bob", "end_login", "ok")] * 20 + [("bob", "login", "ok")] * 20
    assert found[41:] == [("eve", "make_link", "ok"), *[("bob", "make_link", "bad_field")] * 20, ("bob", "make_link", "ok"),
                          *[(None, "open_link", "ok")] * 20, ("bob", "end_link", "ok")]
    d.stop()
    rest = [(x["who"], x["action"], x["count"]) for x in lines_of(tmp_path / "audit") if x["count"] > 1]
    assert sorted(rest, key=str) == [("bob", "end_login", 80 - 20), ("bob", "login", 90 - 20), ("bob", "make_link", 5), (None, "open_link", 10)]

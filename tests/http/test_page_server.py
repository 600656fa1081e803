"""The files of the page at `/`: what is served of them, how, and to whom. The page itself has tests of its own."""
import gzip
import re
import socket

import pytest

from client import REPO

FOLDER = REPO / "clients/page"
FILES = re.findall(r"'([\w.-]+)'", (FOLDER / "meson.build").read_text())
POLICY = {"default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "img-src": "'self' blob: data:",
          "connect-src": "'self'", "base-uri": "'none'", "frame-ancestors": "'none'", "form-action": "'self'"}
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "json": "application/json"}


def path_of(name):
    return "/" if name == "index.html" else f"/page/{name}"


def test_the_folder_and_its_list_agree():
    assert sorted(FILES) == sorted(p.name for p in FOLDER.iterdir() if p.is_file() and p.name not in ("meson.build", "README.md"))
    assert "index.html" in FILES


@pytest.mark.parametrize("name", FILES)
def test_files(api, name):
    text = (FOLDER / name).read_bytes()
    for coding in (None, "identity", "gzip;q=0", "br"):
        r = api.expect(200, api.get(path_of(name), headers={"Accept-Encoding": coding} if coding else None))
        assert r.body == text and "Content-Encoding" not in r.headers
        assert r.type == TYPES[name.rsplit(".", 1)[1]] and int(r.headers["Content-Length"]) == len(text)
        if r.type.startswith("text/"):
            assert r.headers["Content-Type"].endswith("; charset=utf-8")
    packed = api.expect(200, api.get(path_of(name), headers={"Accept-Encoding": "gzip, deflate, br, zstd"}))
    small = len(gzip.compress(text, 9, mtime=0)) < len(text)
    assert packed.headers.get("Content-Encoding") == ("gzip" if small else None)
    assert (gzip.decompress(packed.body) if small else packed.body) == text and packed.type == r.type
    assert not small or packed.body[4:8] == bytes(4)  # no time: the same files give the same daemon
    assert (packed.headers["ETag"] == r.headers["ETag"]) is not small
    head = api.request("HEAD", path_of(name))
    assert head.status == 200 and head.headers["ETag"] == r.headers["ETag"] and head.headers["Content-Length"] == str(len(text))


@pytest.mark.parametrize("name", FILES)
def test_what_a_browser_is_told(api, name):
    for headers in ({}, {"Accept-Encoding": "gzip"}, {"If-None-Match": "*"}):
        r = api.get(path_of(name), headers=headers)
        assert r.status == (304 if "If-None-Match" in headers else 200)
        told = dict(part.strip().split(" ", 1) for part in r.headers["Content-Security-Policy"].split(";"))
        assert told == POLICY
        assert r.headers["X-Content-Type-Options"] == "nosniff" and r.headers["Referrer-Policy"] == "no-referrer"
        assert r.headers["Cache-Control"] == "no-cache" and r.headers["Vary"] == "Accept-Encoding"
        assert "Access-Control-Allow-Origin" not in r.headers and "Set-Cookie" not in r.headers


def test_unchanged_files_are_not_sent_again(api):
    plain = api.get("/").headers["ETag"]
    packed = api.get("/", headers={"Accept-Encoding": "gzip"}).headers["ETag"]
    for known, coding, status in ((plain, "identity", 304), (f'"x", W/{plain}', "identity", 304), (packed, "gzip", 304),
                                  (plain, "gzip", 200), (packed, "identity", 200), ('"x"', "gzip", 200), ("x", "gzip", 200)):
        r = api.get("/", headers={"If-None-Match": known, "Accept-Encoding": coding})
        assert r.status == status and (r.body == b"") is (status == 304)
        assert r.headers["ETag"] == (packed if coding == "gzip" else plain)


def test_nothing_else_is_there(api):
    for path in ("/page/nothing.js", "/page/..", "/page/meson.build", "/page/README.md", "/page/index.html/", "/page//index.html"):
        api.fails(404, "not_found", api.get(path))
    api.fails(400, "bad_query", api.get("/?x=1"))
    assert api.get("/page/").status == 404 and api.get("/page").status == 404


def test_the_files_name_no_other_host():
    for name in FILES:
        text = (FOLDER / name).read_text(errors="replace")
        assert not re.search(r"""(?:src|href|url|import|fetch)\s*[=(]?\s*["'(](?:https?:)?//""", text), name
        if name.endswith(".html"):  # what the policy would refuse
            assert not re.search(r"<style|\sstyle=|<script(?![^>]*\bsrc=)|\son\w+=", text), name
            used = re.findall(r"""(?:src|href)="([^"]+)\"""", text)
            assert {u.removeprefix("/page/") for u in used if u.startswith("/page/")} <= set(FILES)


def test_arrays_are_no_scripts(api):
    """The policy lets the page run what the daemon serves. An array can have any bytes: a browser must not take it for a script."""
    text = b"alert(document.cookie)"
    api.expect(201, api.request("POST", f"/v1/arrays?dtype=uint8&shape={len(text)}&name=u", text, content_type="application/octet-stream"))
    r = api.get("/v1/arrays/u/data", accept="*/*")
    assert r.body == text and r.type == "application/octet-stream" and r.headers["X-Content-Type-Options"] == "nosniff"
    part = api.get("/v1/arrays/u/data", headers={"Range": "bytes=0-3"})
    assert part.status == 206 and part.headers["X-Content-Type-Options"] == "nosniff"


def test_everybody_gets_it(daemon_with, accounts):
    """It is the same for all, and has no secrets; what it shows comes from routes that want a token."""
    accounts.add("ann")
    d = daemon_with("--accounts", accounts.path)
    c = d.client()
    assert c.expect(200, c.get("/")).body == (FOLDER / "index.html").read_bytes()
    c.fails(401, "unauthorized", c.get("/v1/info"))
    c.close()


def test_a_daemon_without_it(daemon_with):
    d = daemon_with("--page=off")
    c = d.client()
    for path in ("/", "/page/index.html", "/page/nothing"):
        r = c.get(path)
        assert "page" in c.fails(404, "not_found", r)["detail"] and "Content-Security-Policy" not in r.headers
    c.expect(200, c.get("/v1/info"))
    c.close()


def test_never_where_no_token_is_asked_for(daemon_with):
    d = daemon_with("--admin-listen", "127.0.0.1:0")
    host, port = re.search(r"admin_listen=(\S+):(\d+)", d.log()).groups()
    for path in ("/", "/page/index.html"):
        with socket.create_connection((host, int(port)), timeout=10) as s:
            s.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            assert s.makefile("rb").readline().split()[1] == b"404"

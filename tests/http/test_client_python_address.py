"""Where the Python client takes its daemon to be: below a path of a proxy's, never with a password in the address."""
import asyncio
import http.client
import http.server
import pathlib
import sys
import threading

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients" / "python" / "src"))
import arrayd  # noqa: E402

pytestmark = pytest.mark.release_only  # it is the client that is tested here


@pytest.fixture
def proxy(daemon):
    """Serves the daemon below /user/ann/arrayd, and a page of HTML elsewhere."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version, wbufsize = "HTTP/1.1", -1

        def do_GET(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            prefix = "/user/ann/arrayd"
            if not self.path.startswith(prefix + "/"):
                self.answer(404, [("Content-Type", "text/html")], b"<html>no such page</html>")
                return
            c = http.client.HTTPConnection(daemon.host, daemon.port)
            kept = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection", "content-length")}
            c.request(self.command, self.path[len(prefix):], body or None, {**kept, "Host": "localhost"})
            r = c.getresponse()
            self.answer(r.status, [(k, v) for k, v in r.getheaders() if k.lower() not in ("content-length", "connection", "date")], r.read())
            c.close()

        def answer(self, status, headers, body):
            self.send_response(status)
            for k, v in headers:
                self.send_header(k, v)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PUT = do_DELETE = do_PATCH = do_GET

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield "127.0.0.1:%d" % server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("path", ["/user/ann/arrayd", "/user/ann/arrayd/"])
@pytest.mark.parametrize("scheme", ["http://", ""])
def test_below_a_path(proxy, scheme, path):
    with arrayd.connect(scheme + proxy + path) as xp:
        x = xp.asarray(np.arange(5.0))
        assert float(xp.sum(x * 2)) == 20 and np.array_equal(np.asarray(x + 1), np.arange(5.0) + 1)

    async def twice():
        async with arrayd.aconnect(scheme + proxy + path) as xp:
            return await (xp.asarray(np.arange(3)) * 2).numpy()

    assert np.array_equal(asyncio.run(twice()), [0, 2, 4])


def test_where_no_daemon_is(proxy):
    """A page of HTML is none of the daemon's errors: not that something is not found."""
    with pytest.raises(arrayd.BadReply, match="404 with a page of HTML: is an arrayd daemon there"):
        arrayd.connect(f"http://{proxy}/user/bob")


@pytest.mark.parametrize("url", ["http://ann:s3cret@host:7411", "ann:s3cret@host", "https://s3cret@host/path"])
def test_no_passwords(url):
    async def connecting(url):
        await arrayd.aconnect(url)

    for connect in (arrayd.connect, lambda url: asyncio.run(connecting(url))):
        with pytest.raises(ValueError, match="token=") as e:
            connect(url)
        assert "s3cret" not in str(e.value)


@pytest.mark.parametrize("url", ["http://host/a?b=c", "http://host/#a", "http://host/ä", "http://host/a b", "ftp://host", "http:///path"])
def test_other_addresses(url):
    with pytest.raises(ValueError):
        arrayd.connect(url)

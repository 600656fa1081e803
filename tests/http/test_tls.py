"""TLS: certificate and key, old and new, what goes through, what happens where a reply would be written by hand."""
import shutil
import signal
import socket
import ssl
import subprocess
import threading

import numpy as np
import pytest

from client import OCTETS
from conftest import find_binary, until


def make_certificate(folder, name, days=30, subject="localhost"):
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-keyout", key, "-out", cert, "-days", str(days), "-subj", f"/CN={subject}",
                    "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True, timeout=60)
    return cert, key


@pytest.fixture
def files(tmp_path):
    """cert.pem and cert.key in use; other.* beside them."""
    if not shutil.which("openssl"):
        pytest.skip("no openssl to make certificates")
    make_certificate(tmp_path, "other")
    return make_certificate(tmp_path, "cert")


def trusting(cert):
    return ssl.create_default_context(cafile=cert)


def options(files):
    return "--tls-cert", files[0], "--tls-key", files[1]


def connect(daemon, cert):
    s = trusting(cert).wrap_socket(socket.create_connection((daemon.host, daemon.port), timeout=20), server_hostname="localhost")
    return s


def replies(s):
    data = b""
    try:
        while piece := s.recv(65536):
            data += piece
    except ssl.SSLEOFError:
        pass  # closed without a word of TLS
    return data


@pytest.fixture(params=["cpu", "cuda"])
def start(request, daemon_with):
    if request.param == "cpu":
        return lambda *args: daemon_with("--backend", "cpu", *args)
    return request.getfixturevalue("gpu_with")


@pytest.mark.in_turn
def test_it_serves(start, files):
    """Bodies of many records both ways, with waits in between, several at once."""
    d = start(*options(files), "--slab-memory", "5MiB")
    context = trusting(files[0])
    x = np.random.default_rng(1).integers(0, 256, 20_000_000, dtype=np.uint8)
    failed = []

    def work(k):
        c = d.client(tls=context)
        try:
            c.put(f"/v1/arrays/u{k}?shape={x.size}&dtype=uint8", body=x.tobytes(), content_type=OCTETS)
            assert c.get(f"/v1/arrays/u{k}/data", accept=OCTETS).body == x.tobytes()
            for i in range(100):
                assert c.post("/v1/evaluate", {"expr": f"{i} + 1"}).json()["value"] == i + 1
            chunks = [x[i:i + 100_000].tobytes() for i in range(0, x.size, 100_000)]
            c.expect(204, c.put(f"/v1/arrays/u{k}/data", body=chunks, content_type=OCTETS, chunked=True))
            assert c.post("/v1/evaluate", {"expr": f"max(u{k})"}).json()["value"] == 255
        except BaseException as e:
            failed.append(e)
        c.close()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not failed, failed


def test_unix_sockets_stay_plain(daemon_with, files, tmp_path):
    d = daemon_with(*options(files), "--listen", "127.0.0.1:0", "--listen", f"unix:{tmp_path}/s")
    assert d.client(unix=f"{tmp_path}/s").get("/healthz").status == 200
    assert d.client(tls=trusting(files[0])).get("/healthz").status == 200


def test_with_accounts(daemon_with, files, accounts):
    accounts.add("ann")
    d = daemon_with(*options(files), "--accounts", accounts.path, listen="0.0.0.0:0")
    c = d.client(tls=trusting(files[0]))
    c.host = "127.0.0.1"
    c.fails(401, "unauthorized", c.get("/v1/info"))
    assert c.get("/v1/info", headers={"Authorization": f"Bearer {accounts.token['ann']}"}).status == 200
    assert "unencrypted" not in d.log()


def test_tokens_in_the_clear_are_warned_of(daemon_with, accounts):
    accounts.add("ann")
    assert "unencrypted" in daemon_with("--accounts", accounts.path, listen="0.0.0.0:0").log()
    assert "unencrypted" not in daemon_with("--accounts", accounts.path).log()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_versions(daemon_with, files):
    d = daemon_with(*options(files))
    context = trusting(files[0])
    for version, name in ((ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")):
        context.minimum_version = context.maximum_version = version
        c = d.client(tls=context)
        assert c.get("/healthz").status == 200 and c.conn.sock.version() == name
        c.close()
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version = ssl.TLSVersion.TLSv1
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, OSError)):
        old.wrap_socket(socket.create_connection((d.host, d.port), timeout=20), server_hostname="localhost")


def test_a_new_certificate(daemon_with, files, tmp_path):
    d = daemon_with(*options(files))
    before = d.client(tls=trusting(files[0]))
    before.expect(200, before.get("/healthz"))
    for suffix in ("pem", "key"):
        shutil.copy(tmp_path / f"other.{suffix}", tmp_path / f"cert.{suffix}")
    hangup(d, "certificate was reloaded")
    before.expect(200, before.get("/healthz"))  # the same connection
    c = d.client(tls=trusting(tmp_path / "other.pem"))
    c.expect(200, c.get("/healthz"))
    for text, told in ((None, "key"), ("nonsense", "tls-key")):
        if text:
            (tmp_path / "cert.key").write_text(text)
        else:
            make_certificate(tmp_path, "third")
            shutil.copy(tmp_path / "third.key", tmp_path / "cert.key")
        hangup(d, "certificate is unchanged", told)
        again = c.clone()
        again.expect(200, again.get("/healthz"))
        again.close()


@pytest.mark.in_turn
@pytest.mark.release_only  # a sanitizer keeps what was freed for a while
def test_the_same_certificate_again(daemon_with, files):
    """SIGHUP comes for the accounts, too: a certificate that is as it was takes no more memory."""
    d = daemon_with(*options(files))

    def memory_after(n):
        for _ in range(n):
            hangup(d, "certificate was reloaded")
        with open(f"/proc/{d.pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("RssAnon:"))

    before = memory_after(50)
    assert memory_after(200) < before + 400  # KiB
    c = d.client(tls=trusting(files[0]))
    c.expect(200, c.get("/healthz"))
    c.close()


def hangup(d, *said):
    before = d.log().count("SIGHUP")
    d.proc.send_signal(signal.SIGHUP)
    until(lambda: d.log().count("SIGHUP") != before)
    last = [line for line in d.log().splitlines() if "SIGHUP" in line][-1]
    assert all(s in last for s in said), last


def test_a_certificate_that_ends_is_warned_of(daemon_with, files, tmp_path):
    cert, key = make_certificate(tmp_path, "short", days=1)
    assert " warn the certificate was loaded" in daemon_with("--tls-cert", cert, "--tls-key", key).log()
    assert " info the certificate was loaded" in daemon_with(*options(files)).log()


@pytest.mark.parametrize("args,told", [
    (("--tls-cert", "cert.pem"), "must be given together"), (("--tls-key", "cert.key"), "must be given together"),
    (("--tls-cert", "none.pem", "--tls-key", "cert.key"), "none.pem"), (("--tls-cert", "cert.pem", "--tls-key", "none"), "tls-key"),
    (("--tls-cert", "cert.pem", "--tls-key", "other.key"), "cert.pem"), (("--tls-cert", "cert.key", "--tls-key", "cert.pem"), "tls-cert")])
def test_a_wrong_start_says_why(files, tmp_path, args, told):
    done = subprocess.run([find_binary(), "--backend", "cpu", "--listen", "127.0.0.1:0", *args], cwd=tmp_path,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and told in done.stderr, done


def test_a_refused_body_gets_its_reply(daemon_with, files):
    """What is written by hand goes through TLS too: never in the clear into the middle of it."""
    d = daemon_with(*options(files), "--max-json-body", "1KiB", "--max-unread-body", "64KiB")
    s = connect(d, files[0])
    s.sendall(b"POST /v1/evaluate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10000000\r\n\r\n{")
    assert replies(s).startswith(b"HTTP/1.1 413 ")
    s.close()
    s = connect(d, files[0])
    s.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx")
    assert replies(s).startswith(b"HTTP/1.1 400 ")
    s.close()


def test_deadlines_close(daemon_with, files):
    d = daemon_with(*options(files), "--header-timeout", "0.5", "--body-timeout", "0.5", "--unread-body-timeout", "0.5")
    plain = socket.create_connection((d.host, d.port), timeout=20)  # no handshake at all
    half = connect(d, files[0])
    half.sendall(b"GET /healthz HT")
    body = connect(d, files[0])
    body.sendall(b"PUT /v1/arrays/u HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc")
    for s in (plain, half, body):
        data = replies(s)
        assert data == b"" or data.startswith(b"HTTP/1.1 408"), data
        s.close()
    c = d.client(tls=trusting(files[0]))
    c.expect(200, c.get("/healthz"))
    c.close()


def test_plain_http_is_no_tls(daemon_with, files):
    d = daemon_with(*options(files))
    s = socket.create_connection((d.host, d.port), timeout=20)
    s.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    try:
        assert b"HTTP/" not in s.recv(1000)
    except ConnectionResetError:
        pass
    s.close()
    for _ in range(50):  # clients that leave in the middle of the handshake
        s = socket.create_connection((d.host, d.port), timeout=20)
        s.sendall(b"\x16\x03\x01\x02\x00\x01")
        s.close()
    c = d.client(tls=trusting(files[0]))
    c.expect(200, c.get("/healthz"))
    c.close()

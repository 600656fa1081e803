"""arrayd-cli show: pictures on terminals that know kitty's protocol, sixels or neither, beside the daemon's PNG files."""
import base64
import os
import re
import signal
import struct
import subprocess
import time
import zlib

import numpy as np
import pytest

from cli import Terminal, cli, environment
from test_pictures import PNG, read_png

from arrayd.cli import _screen  # noqa: E402  (cli.py has made it findable)
from arrayd.cli._context import Failure  # noqa: E402
from arrayd.cli._pixels import CUBE, Pixels, decoded, of_256, sixel  # noqa: E402
from arrayd.cli._show import fitted  # noqa: E402

pytestmark = pytest.mark.release_only  # it is the client that is tested here

KITTY, SIXEL, NEITHER = "\x1b_Gi=31;OK\x1b\\\x1b[?62;c", "\x1b[6;16;8t\x1b[?62;4;22c", "\x1b[?6c"
LINE = "u: 30×40 (y, x) float64, -3.5 … 9 m/s"


@pytest.fixture
def run(daemon, api, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "24")
    return cli(daemon)


@pytest.fixture
def env(daemon, api, tmp_path):
    return {k: v for k, v in environment(tmp_path / "bin", f"http://127.0.0.1:{daemon.port}").items()
            if k not in ("COLUMNS", "LINES", "COLORTERM", "TMUX", "TERM_PROGRAM")}


@pytest.fixture
def u(api):
    """A field with a hole, with units and names of axes."""
    a = np.random.default_rng(4).uniform(-3.5, 9, (30, 40))
    a[0, 0], a[-1, -1] = -3.5, 9
    a[3:6, 10:13] = np.nan
    api.upload(a, "u")
    api.expect(200, api.patch("/v1/arrays/u", {"dims": ["y", "x"], "units": "m/s"}))
    return a


def png(api, query, ref="u"):
    return api.expect(200, api.get(f"/v1/arrays/{ref}/data?{query}", accept=PNG)).body


def shown(env, *words, answer=None, term="xterm-256color", rows=24, columns=100, pixels=(0, 0), **more):
    """Status, and what came to the terminal, without what it was asked; `answer`: what it says to that."""
    t = Terminal(["arrayd-cli", "show", *words], {**env, "TERM": term, **more}, rows, columns, pixels=pixels)
    if answer is not None:
        end = time.monotonic() + 30
        while "\x1b[c" not in t.seen:
            assert t.read(0.05) and time.monotonic() < end, t.seen
        for part in re.split("(?<=\\\\)", answer):  # not all at once
            t.type(part)
            time.sleep(0.02)
    status, seen = t.end()
    asked = _screen.ASKED.decode()
    assert (asked in seen) == (answer is not None), seen[:200]
    return status, seen.replace(asked, "")


# --- what a terminal makes of it ---


def level(n):
    """Of the 256 colours, one of the upper 240."""
    if n >= 232:
        return (8 + 10 * (n - 232),) * 3
    return tuple(CUBE[v] for v in ((n - 16) // 36, (n - 16) // 6 % 6, (n - 16) % 6))


def of_blocks(text):
    """RGBA, two pixels a letter."""
    rows = []
    for line in text.splitlines():
        letter = ground = None
        upper, lower = [], []
        for code, mark in re.findall(r"\x1b\[([\d;]*)m|(.)", line):
            numbers = [int(v or 0) for v in code.split(";")]
            while not mark and numbers:
                n = numbers.pop(0)
                colour = None
                if n in (38, 48):
                    kind = numbers.pop(0)
                    colour = level(numbers.pop(0)) if kind == 5 else tuple(numbers[:3])
                    del numbers[:3 if kind == 2 else 0]
                letter, ground = (None, None) if n == 0 else (colour, ground) if n == 38 else (letter, colour)
                assert n in (0, 38, 48, 49)
            if mark:
                assert mark in "▀▄ " and not (mark == " " and ground)
                upper.append({"▀": letter, "▄": ground, " ": None}[mark])
                lower.append({"▀": ground, "▄": letter, " ": None}[mark])
        assert letter is None and ground is None  # nothing is left coloured
        rows += [upper, lower]
    return np.array([[(*c, 255) if c else (0, 0, 0, 0) for c in row] for row in rows])


def of_sixel(text):
    head = re.match(r'\x1bP0;1;0q"1;1;(\d+);(\d+)', text)
    width, height = map(int, head.groups())
    out, colours = np.zeros(((height + 5) // 6 * 6, width, 4), int), {}
    x = y = colour = 0
    body = text[head.end():text.index("\x1b\\")]
    for number, given, count, mark, move in re.findall(r"#(\d+)(?:;2;(\d+;\d+;\d+))?|(?:!(\d+))?([?-~])|([$-])", body):
        if given:
            colours[int(number)] = [int(v) * 255 / 100 for v in given.split(";")]
        elif number:
            colour = int(number)
        elif move:
            x, y = 0, y + 6 * (move == "-")
        else:
            n, bits = int(count or 1), ord(mark) - 63
            for k in range(6):
                if bits >> k & 1:
                    assert not out[y + k, x:x + n, 3].any()  # no pixel twice
                    out[y + k, x:x + n] = [*np.round(colours[colour]), 255]
            x += n
            assert x <= width
    return out[:height]


def of_kitty(text):
    parts = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", text)
    assert parts[0][0].startswith("a=T,f=100,q=2,m=") and all(re.fullmatch("m=[01]", head) for head, _ in parts[1:])
    assert [head[-1] for head, _ in parts] == ["1"] * (len(parts) - 1) + ["0"]
    assert all(len(data) == 4096 for _, data in parts[:-1]) and 0 < len(parts[-1][1]) <= 4096
    return base64.b64decode("".join(data for _, data in parts))


def same(got, want, most=0):
    assert got.shape == want.shape
    clear = want[..., 3] < 128
    assert ((got[..., 3] == 0) == clear).all()
    assert (np.abs(got[..., :3].astype(int) - want[..., :3])[~clear].max(initial=0)) <= most


# --- what is drawn ---


def test_elsewhere(run, api, u):
    """Where standard output is no terminal: half blocks, as large as COLUMNS and LINES say."""
    done = run("show", "u")
    assert done.status == 0 and not done.err and done.out.splitlines()[-1] == LINE
    want = read_png(png(api, "cmap=viridis&width=40&height=30"))  # elements are drawn whole: 44 rows have room for 30 once
    got = of_blocks(done.out[:done.out.index("u: ")])
    same(got, want, 47)  # 256 colours: half of what is between two of them
    assert (run("show", "u", "-q").out + LINE + "\n") == done.out


def test_true_colours(run, api, u, monkeypatch):
    monkeypatch.setenv("COLORTERM", "truecolor")
    for words, query in (((), "cmap=viridis&width=40&height=30"), (("--cmap", "magma", "--lo", "0", "--hi", "5"), "cmap=magma&lo=0&hi=5&width=40&height=30"),
                         (("--width", "17", "--pool", "max"), "cmap=viridis&width=17&pool=max"), (("--height", "11"), "cmap=viridis&height=11"),
                         (("--width", "50", "--height", "7", "--percentiles", "10,90"), "cmap=viridis&width=50&height=7&percentiles=10,90"),
                         (("--bar",), "cmap=viridis&bar=true&width=40&height=30"), (("--slice", "[::3, 5:9]"), "cmap=viridis&index=::3,5:9&width=16&height=40"),
                         (("--index", "::3, 5:9"), "cmap=viridis&index=::3,5:9&width=16&height=40")):
        done = run("show", "u", *words)
        assert done.status == 0, (words, done)
        body, line = done.out.rsplit("\n", 2)[:2]
        want = read_png(png(api, query))
        got = of_blocks(body)
        if len(want) % 2:  # a last half row is nothing
            assert not got[-1].any()
            got = got[:-1]
        same(got, want)
    assert line == "u[::3, 5:9]: 10×4 (y, x) float64, " + line.split(", ")[-1] and line.endswith(" m/s")
    assert [m["name"] for m in api.list_all("/v1/arrays", "arrays")] == ["u"]  # views are gone


def test_colours_of_a_last_axis(run, api, monkeypatch):
    monkeypatch.setenv("COLORTERM", "24bit")
    a = np.random.default_rng(5).integers(0, 256, (20, 30, 4), dtype=np.uint8)
    a[..., 3] = np.where(a[..., 3] < 100, 0, 255)
    for name, x in (("rgba", a), ("rgb", a[..., :3])):
        api.create(name=name, data=x.tolist(), dtype="uint8")
        want = np.concatenate([x, np.full((20, 30, 4 - x.shape[2]), 255, np.uint8)], -1)
        done = run("show", name, "--width", "30", "--height", "20")
        same(of_blocks(done.out.rsplit("\n", 2)[0]), want)
        assert done.out.splitlines()[-1] == f"{name}: 20×30×{x.shape[2]} uint8, 0 … 255"
        got = of_sixel(run("show", name, "--width", "30", "--height", "20", "--as", "sixel").out)  # more colours than registers
        same(got, want, 52)
    flat = np.random.default_rng(6).random((40, 60, 3))*0.002 + [0.3, 0.5, 0.77]  # their patterns have the colour as their mean
    api.upload(np.where(np.arange(60)[:, None] < 40, flat, np.random.default_rng(7).random((40, 60, 3))), "flat")
    got = of_sixel(run("show", "flat", "--width", "60", "--height", "40", "--as", "sixel").out)
    assert np.abs(got[:, :40, :3].mean((0, 1)) - [76.5, 127.5, 196.4]).max() < 2.5


def test_expressions(run, api, u):
    done = run("show", "--expr", "k*u + d", "-b", "k=2", "--let", "d=u*0 + 1", "--slice", ":10", "--lo", "0", "--hi", "1")
    assert done.status == 0 and done.out.splitlines()[-1].startswith("(k*u + d)[:10]: 10×40") and ", 0 … 1" in done.out.splitlines()[-1], done
    assert run("show", "--expr", "-", "--width", "10", stdin=b"u*2\n").out.splitlines()[-1].startswith("u*2: 30×40")
    assert [m["name"] for m in api.list_all("/v1/arrays", "arrays")] == ["u"]
    assert run("show", "--expr", "1 + nobody").err.splitlines()[1:] == ["    1 + nobody", "        ^"]


def test_another_users_array(accounts, daemon_with):
    """Which may be looked at, and of which only its owner makes views."""
    accounts.add("ann")
    accounts.add("bob")
    d = daemon_with("--accounts", accounts.path)
    ann, bob = accounts.client(d, "ann"), accounts.client(d, "bob")
    ref = ann.upload(np.arange(1200.0).reshape(30, 40))["id"]
    ann.expect(200, ann.patch(f"/v1/arrays/{ref}", {"units": "K"}))
    ann.expect(201, ann.post(f"/v1/arrays/{ref}/shares", {"principal": "bob", "access": "read"}))
    for words, line in (((), f"{ref}: 30×40 float64, 0 … 1199 K"), (("--slice", ":10, ::2"), f"{ref}[:10, ::2]: 10×20 float64, 0 … 398 K")):
        done = cli(d)("--token", accounts.token["bob"], "show", ref, *words, "--width", "40", "--height", "30")
        assert done.status == 0 and done.out.splitlines()[-1] == line, done
    assert "is a number" in cli(d)("--token", accounts.token["bob"], "show", ref, "--slice", "1, 1").err
    assert bob.list_all("/v1/arrays", "arrays") == []
    ann.close()
    bob.close()


def test_files(run, api, u, tmp_path):
    done = run("show", "u", "-o", tmp_path / "u.png", "--bar")
    assert done.status == 0 and not done.out and done.err.startswith(f"{tmp_path}/u.png: ")
    assert (tmp_path / "u.png").read_bytes() == png(api, "cmap=viridis&bar=true")
    assert run("show", "--expr", "u + 0", "-o", "-", "--cmap", "gray").data == png(api, "cmap=gray")


def test_mistakes(run, api, u, tmp_path, monkeypatch):
    api.create(name="v", shape=[2, 3, 4, 5])
    api.create(name="empty", shape=[0, 5])
    for words, status, said in (((), 2, "either REF"), (("u", "--expr", "u"), 2, "either REF"), (("u", "-b", "k=1"), 2, "are for --expr"),
                                (("u", "-o", "u.jpg"), 2, "show writes .png files"), (("u", "-o", "u.png", "--as", "sixel"), 2, "--as is for the terminal"),
                                (("u", "--as", "ascii"), 2, "invalid choice"), (("v",), 1, "the shape 2×3×4×5: a picture is of two axes"),
                                (("v",), 1, "as with --slice 0, 0"), (("u", "--slice", "0"), 1, "u[0] has the shape 40: a picture"),
                                (("--expr", "sum(u*0)"), 1, "sum(u*0) is a number"), (("nobody",), 1, "there is no array 'nobody'"),
                                (("u", "--cmap", "none"), 1, "cmap must be one of"), (("u", "--width", "0"), 1, "width"), (("empty",), 1, "")):
        done = run("show", *words)
        assert done.status == status and said in done.err and not done.out and "Traceback" not in done.err, (words, done)
    assert run("show", "v", "--slice", "0, 0").status == 0
    api.expect(200, api.patch("/v1/arrays/u", {"units": "\u202ex", "dims": ["é", None]}))  # what turns a terminal's line around is not written to it
    assert run("show", "u").out.splitlines()[-1] == "u: 30×40 (é, -) float64, -3.5 … 9 \\u202ex"


def test_an_encoding_without_blocks(env, u):
    done = subprocess.run(["arrayd-cli", "show", "u"], env={**env, "PYTHONIOENCODING": "latin-1"}, capture_output=True, timeout=60)
    assert done.returncode == 2 and b"has no half blocks: write a file with -o" in done.stderr and not done.stdout


@pytest.mark.parametrize("shape, room, size", [((30, 40), (100, 44), (40, 30)), ((300, 400), (100, 44), (59, 44)), ((10, 10), (100, 44), (40, 40)),
                                               ((1, 1000), (100, 44), (100, 1)), ((1000, 1), (100, 44), (1, 44)), ((7, 3), (1, 1), (1, 1)),
                                               ((4, 4, 3), (9, 8), (8, 8)), ((333, 333), (1000, 332), (332, 332))])
def test_sizes(shape, room, size):
    assert fitted(shape, room) == size


# --- which way ---


def test_a_terminal_that_knows_kittys_protocol(env, api, u):
    status, seen = shown(env, "u", answer=KITTY, pixels=(800, 384))
    assert status == 0 and seen.endswith(LINE + "\r\n")
    assert of_kitty(seen) == png(api, "cmap=viridis&width=440&height=330")  # eight pixels a column, 16 a line; 22 lines
    assert len(of_kitty(seen)) > 3072 * 2
    for term in ("xterm-kitty", "xterm-ghostty"):  # nobody asks
        status, seen = shown(env, "u", term=term, pixels=(1000, 480))
        assert of_kitty(seen) == png(api, "cmap=viridis&width=560&height=420")


@pytest.mark.in_turn
def test_a_terminal_that_has_sixels(env, api, u):
    want = read_png(png(api, "cmap=viridis&width=440&height=330"))
    status, seen = shown(env, "u", answer=SIXEL)  # which says how large a cell is
    assert status == 0 and seen.endswith(LINE + "\r\n")
    same(of_sixel(seen), want, 2)
    same(of_sixel(shown(env, "u", term="foot", pixels=(800, 384))[1]), want, 2)
    same(of_sixel(shown(env, "u", "--as", "sixel", answer=SIXEL)[1]), want, 2)
    assert shown(env, "u", "--as", "sixel", answer=NEITHER)[0] == 0


@pytest.mark.in_turn
def test_other_terminals(env, api, u):
    for answer, more in ((NEITHER, {}), ("", {}), ("\x1b[?1", {}), (None, {"term": "linux"}), (None, {"term": "dumb"}), (None, {"term": "screen.xterm"}),
                         (None, {"TERM_PROGRAM": "Apple_Terminal"}), (NEITHER, {"term": "screen-256color", "TMUX": "x"})):
        begun = time.monotonic()
        status, seen = shown(env, "u", answer=answer, COLORTERM="truecolor", **more)
        assert status == 0 and seen.endswith(LINE + "\r\n") and time.monotonic() - begun < 30, (answer, more, seen[-300:])
        same(of_blocks(seen[:seen.index("u: ")].replace("\r", "")), read_png(png(api, "cmap=viridis&width=40&height=30")))
    status, seen = shown(env, "u", answer=NEITHER, rows=12, columns=20)
    assert of_blocks(seen[:seen.index("u: ")].replace("\r", "")).shape == (16, 20, 4)
    status, seen = shown(env, "u", "--width", "101", "--as", "blocks")
    assert status == 1 and "101 pixels across, and the terminal 100 columns" in seen


@pytest.mark.in_turn
def test_modes_are_as_they_were(env, u):
    """Also where nothing is answered, and after Ctrl-C; and in the background nobody is asked."""
    env = {**env, "TERM": "xterm"}
    for typed, status in (("\x1b[?62;c", 0), ("", 0), ("\x03", 130)):
        t = Terminal(["bash", "-c", "trap : INT; stty -g; arrayd-cli show u; echo ended $?; stty -g"], env)
        while "\x1b[c" not in t.seen:
            assert t.read(5)
        t.type(typed)
        seen = t.end()[1]
        modes = re.findall(r"[0-9a-f]+(?::[0-9a-f]+){8,}", seen)
        assert len(modes) == 2 and modes[0] == modes[1] and f"ended {status}\r\n" in seen, seen[-500:]
    t = Terminal(["bash", "-c", "set -m; arrayd-cli show u & wait; echo ended $?"], env)
    seen = t.end()[1]
    assert "ended 0" in seen and LINE in seen and "\x1b[c" not in seen


def test_standard_input_is_not_the_terminals_answer(env, u):
    """What is asked is answered on the terminal; an expression comes by a pipe."""
    t = Terminal(["bash", "-c", "echo 'u*1' | arrayd-cli show --expr -"], {**env, "TERM": "xterm"}, pixels=(800, 384))
    while "\x1b[c" not in t.seen:
        assert t.read(5)
    t.type(KITTY)
    status, seen = t.end()
    assert status == 0 and len(of_kitty(seen.replace(_screen.ASKED.decode(), ""))) > 1000 and "u*1: 30×40" in seen


def test_a_terminal_that_hangs_up(env, u):
    t = Terminal(["arrayd-cli", "show", "u"], {**env, "TERM": "xterm"})
    while "\x1b[c" not in t.seen:
        assert t.read(5)
    os.kill(t.pid, signal.SIGTERM)
    assert t.end()[0] == 143


# --- its parts ---


def file_of(width, height, kind, rows, *chunks, bits=8):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)) + b"".join(chunk(*c) for c in chunks)
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def test_files_are_read():
    p = decoded(file_of(3, 2, 2, bytes([0, 1, 2, 3, 4, 5, 6, 1, 2, 3, 1, 250, 1, 1, 10, 1, 1, 0, 0, 0])))
    assert [[p.colours[k] for k in row] for row in p.rows] == [[(1, 2, 3), (4, 5, 6), (1, 2, 3)], [(250, 1, 1), (4, 2, 2), (4, 2, 2)]]
    p = decoded(file_of(2, 1, 6, bytes([0, 1, 2, 3, 127, 4, 5, 6, 128])))
    assert [p.colours[k] for k in p.rows[0]] == [None, (4, 5, 6)]
    p = decoded(file_of(3, 1, 3, bytes([1, 0, 1, 0]), (b"PLTE", bytes(range(6))), (b"tRNS", b"\0")))
    assert [p.colours[k] for k in p.rows[0]] == [None, (3, 4, 5), (3, 4, 5)]
    good = file_of(1, 1, 2, bytes(4))
    for bad in (good[:30], good[:-20], file_of(1, 1, 0, bytes(2)), file_of(1, 1, 2, bytes(3)), file_of(1, 1, 2, bytes([4, 0, 0, 0])),
                file_of(1, 1, 2, bytes(4), bits=16), good[:8]):
        with pytest.raises(Failure, match="the picture cannot be read"):
            decoded(bad)


def test_runs_and_bands():
    rows = [[0] * 20, [0, 1] * 10] + [[1] * 20] * 5
    assert re.sub(r'^\x1bP0;1;0q"1;1;20;7', "", sixel(Pixels(20, 7, rows, [(255, 0, 0), None]))) == \
        "#0;2;100;0;0#0" + "B@" * 9 + "B@-" + "-\x1b\\"


@pytest.mark.parametrize("colour, number", [((0, 0, 0), 16), ((255, 255, 255), 231), ((255, 0, 0), 196), ((128, 128, 128), 244), ((95, 135, 175), 67), ((250, 5, 90), 197)])
def test_256_colours(colour, number):
    assert of_256(colour) == number

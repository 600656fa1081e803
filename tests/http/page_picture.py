"""Makes the picture of docs/page.md: a running Gray-Scott as the page shows it.

    ARRAYD_BIN=build/server/arrayd python3 tests/http/page_picture.py docs/page.png
"""
import sys
import time

import numpy as np

from browser import Browser
from conftest import Daemon

N, SECONDS = 400, 25
BODY = ["r = u*v*v", "du = 0.16*laplacian(u, boundary='wrap') - r + F*(1 - u)", "v += 0.08*laplacian(v, boundary='wrap') + r - (F + k)*v", "u += du"]


def main(file):
    d = Daemon()
    c = d.client()
    rng = np.random.default_rng(3)
    v = np.zeros((N, N), "float32")
    for i, j in rng.integers(10, N - 30, (20, 2)):
        v[i:i + 14, j:j + 14] = 0.25
    c.upload(1 - 2 * v, "u")
    ref = c.upload(v, "v")["id"]
    job = c.post("/v1/programs", {"body": BODY, "bind": {"F": 0.0545, "k": 0.062}, "steps": 6000}).json()["id"]
    browser = Browser()
    page = browser.page(width=1280, height=900)
    page.goto(f"http://{d.host}:{d.port}/#array/{ref}")
    page.wait("document.querySelector('.board')?.dataset.frames > 3")
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and c.get(f"/v1/jobs/{job}").json()["state"] == "running":
        browser.read(0.2)
    page.wait("new Promise(done => setTimeout(() => done(true), 3000))")  # the figures come after the picture
    page.screenshot(file)
    browser.close()
    c.close()
    d.stop()


main(sys.argv[1])

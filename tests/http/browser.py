"""A headless Chromium, driven by its DevTools protocol through a pipe: what a person does with mouse and keyboard, and what one sees.

    browser = Browser()                       Debian's chromium; Browser.missing() says why there is none
    page = browser.page(width=400, dark=True) each page has cookies of its own, as another person's browser would
    page.goto(url); page.click("nav a[href='#arrays']"); page.wait("document.querySelectorAll('tbody tr').length === 3")

A page keeps what went wrong in `errors` (exceptions, the console's errors, violations of the content security policy) and the
addresses that it asked for in `asked`, with the bytes that came over the wire in `received`.
"""
import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

TIMEOUT = 30
KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), "ArrowDown": (40, ""), "ArrowUp": (38, ""), "ArrowLeft": (37, ""),
        "ArrowRight": (39, ""), "Home": (36, ""), "End": (35, ""), "Backspace": (8, ""), " ": (32, " ")}
MODIFIERS = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}


class Browser:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    fonts = "/usr/share/fonts/truetype/dejavu"  # no others are used, so that a page looks the same on each machine

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="arrayd-chromium-", ignore_cleanup_errors=True)
        below, self.writes = os.pipe()
        self.reads, above = os.pipe()
        there, back = (fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (below, above))  # out of the way of 3 and 4
        options = ["--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self.folder.name}", "--no-first-run", "--disable-gpu",
                   "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
                   "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb", "--font-render-hinting=none",
                   *(["--no-sandbox"] if os.getuid() == 0 else [])]
        fonts = os.path.join(self.folder.name, "fonts.conf")
        with open(fonts, "w") as f:
            f.write(f"<fontconfig><dir>{self.fonts}</dir><cachedir>{self.folder.name}/fonts</cachedir>"
                    "<match><test name='family'><string>monospace</string></test><edit name='family' mode='assign'><string>DejaVu Sans Mono</string></edit></match>"
                    "<match><edit name='family' mode='append_last'><string>DejaVu Sans</string></edit></match></fontconfig>")
        # The protocol's pipes are the descriptors 3 and 4.
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec 3<&{there} 4>&{back} {there}<&- {back}>&-; exec "$@"', "-", self.program, *options, "about:blank"],
            pass_fds=(there, back), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "FONTCONFIG_FILE": fonts})
        for end in (there, back, below, above):
            os.close(end)
        self.buffer, self.number, self.replies, self.pages = b"", 0, {}, {}
        self.call("Browser.getVersion")

    @classmethod
    def missing(cls):
        if not cls.program:
            return "no chromium: Debian's package chromium"
        return None if os.path.isdir(cls.fonts) else "no fonts: Debian's package fonts-dejavu-core"

    def read(self, seconds):
        """Takes what comes within that time: replies are kept for who waits, events are given to their page."""
        ready = select.select([self.reads], [], [], max(0, seconds))[0]
        if not ready:
            return
        chunk = os.read(self.reads, 1 << 20)
        if not chunk:
            raise RuntimeError("chromium has ended")
        *messages, self.buffer = (self.buffer + chunk).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self.replies[message["id"]] = message
            elif message.get("sessionId") in self.pages:
                self.pages[message["sessionId"]].event(message["method"], message["params"])

    def call(self, method, session=None, seconds=TIMEOUT, **params):
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.writes, data):]
        deadline = time.monotonic() + seconds
        while number not in self.replies:
            if time.monotonic() > deadline:
                raise TimeoutError(method)
            self.read(deadline - time.monotonic())
        reply = self.replies.pop(number)
        if "error" in reply:
            raise RuntimeError(f"{method}: {reply['error']}")
        return reply["result"]

    def page(self, width=1280, height=900, dark=False, scale=1):
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, context)
        self.pages[session] = page
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False)
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        return page

    def close(self):
        try:
            self.call("Browser.close")
        except (RuntimeError, OSError, TimeoutError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.reads)
        os.close(self.writes)
        self.folder.cleanup()


class Page:
    def __init__(self, browser, session, context):
        self.browser, self.session, self.context = browser, session, context
        self.errors, self.asked, self.received, self.failed = [], [], 0, []
        self.change = None

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def event(self, method, params):
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(f"{details['text']} {details.get('exception', {}).get('description', '')}")
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            entry = params["entry"]
            # A refused request is told apart: some are asked for, such as that of a wrong expression.
            (self.failed if entry["source"] == "network" else self.errors).append(f"{entry['text']} {entry.get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])
        elif method == "Fetch.requestPaused":
            self.answer(params)
        elif method == "Network.loadingFinished":
            self.received += params["encodedDataLength"]
        elif method == "Page.javascriptDialogOpening":
            self.errors.append(f"a dialog of the browser's: {params['message']}")

    def intercept(self, change, pattern):
        """From now on the page gets replies from matching addresses as `change` of their text makes them."""
        self.change = change
        self.call("Fetch.enable", patterns=[{"urlPattern": pattern, "requestStage": "Response"}])

    def answer(self, paused):
        number = paused["requestId"]
        kind = {h["name"].lower(): h["value"] for h in paused.get("responseHeaders", [])}.get("content-type", "")
        try:
            if "json" not in kind:
                self.call("Fetch.continueRequest", requestId=number)
                return
            body = self.call("Fetch.getResponseBody", seconds=5, requestId=number)
            text = base64.b64decode(body["body"]).decode() if body["base64Encoded"] else body["body"]
            self.call("Fetch.fulfillRequest", requestId=number, responseCode=paused["responseStatusCode"], responseHeaders=[{"name": "Content-Type", "value": kind}],
                      body=base64.b64encode(self.change(text).encode()).decode())
        except TimeoutError:  # a request that was aborted just then may never be answered
            pass
        except RuntimeError as error:
            if "InterceptionId" not in str(error):  # else the page does not want it any more
                raise

    def goto(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def run(self, script):
        """The value of an expression in the page; a promise is waited for."""
        reply = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, userGesture=True)
        if "exceptionDetails" in reply:
            raise RuntimeError(f"{script}: {reply['exceptionDetails'].get('exception', {}).get('description')}")
        return reply["result"].get("value")

    def wait(self, condition, seconds=TIMEOUT):
        """Until the expression is true in the page; returns its value."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                value = self.run(f"(v => v instanceof Node || v)({condition})")
            except RuntimeError as error:  # the page changes just now, or has not got so far
                value, last = None, str(error)
            else:
                last = f"{value!r}"
            if value:
                return value
            if time.monotonic() > deadline:
                read = " | ".join(self.text("body").split("\n"))
                raise AssertionError(f"{condition} stays {last}; errors: {self.errors + self.failed}; the page says: {read[:3000]}")
            self.browser.read(0.03)

    def text(self, selector="main"):
        """What a person reads there."""
        return self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def texts(self, selector):
        return self.run(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.innerText)")

    def says(self, words, selector="main", seconds=TIMEOUT):
        return self.wait(f"document.querySelector({json.dumps(selector)})?.innerText.includes({json.dumps(words)})", seconds)

    def place(self, selector, at=(0.5, 0.5), seconds=TIMEOUT):
        """A point of an element, once it is there and seen, in pixels of the window."""
        quoted = json.dumps(selector)
        self.wait(f"(e => e && e.getClientRects().length && (e.scrollIntoView({{block: 'nearest', inline: 'nearest'}}), true))"
                  f"(document.querySelector({quoted}))", seconds)
        box = None
        for _ in range(100):  # what comes later may push it away
            last, box = box, self.run(f"(r => r && [r.x, r.y, r.width, r.height])(document.querySelector({quoted})?.getBoundingClientRect())")
            if box and box == last:
                break
            self.browser.read(0.05)
        assert box, f"{selector} has gone"
        x, y, w, h = box
        return x + w * at[0], y + h * at[1]

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, selector, at=(0.5, 0.5), seconds=TIMEOUT):
        """Once more where the page has pushed the element away in that moment, as a person would."""
        quoted = json.dumps(selector)
        for _ in range(20):
            x, y = self.place(selector, at, seconds)
            # What is made anew just then is clicked all the same where it says the same: a second click would be one too many.
            if self.run(f"((e, top) => e && (e === top || e.contains(top)) && (clicked = false, document.addEventListener('click', ({{target: t}}) =>"
                        f"clicked ||= e.contains(t) || t.tagName === e.tagName && t.textContent === e.textContent, {{once: true, capture: true}}), true))"
                        f"(document.querySelector({quoted}), document.elementFromPoint({x}, {y}))"):
                self.mouse("mouseMoved", x, y)
                self.mouse("mousePressed", x, y, button="left", clickCount=1)
                self.mouse("mouseReleased", x, y, button="left", clickCount=1)
                if self.run("globalThis.clicked !== false"):
                    return
            self.browser.read(0.1)
        raise AssertionError(f"{selector} is covered, or takes no clicks")

    def button(self, text, within="main"):
        """Clicks the button that says so; what is made anew in that moment is looked for again."""
        mark = (f"[...document.querySelectorAll({json.dumps(within + ' button')})].some(b => (b.textContent.trim() === {json.dumps(text)} &&"
                " (document.querySelectorAll('[data-asked]').forEach(e => delete e.dataset.asked), b.dataset.asked = '1', true)))")
        for _ in range(5):
            self.wait(mark)
            try:
                return self.click("[data-asked]", seconds=3)
            except AssertionError:
                continue
        self.click("[data-asked]")

    def hover(self, selector, at=(0.5, 0.5)):
        self.mouse("mouseMoved", *self.place(selector, at))

    def drag(self, selector, start, end, steps=5):
        x0, y0 = self.place(selector, start)
        x1, y1 = self.place(selector, end)
        self.mouse("mouseMoved", x0, y0)
        self.mouse("mousePressed", x0, y0, button="left", clickCount=1)
        for k in range(1, steps + 1):
            self.mouse("mouseMoved", x0 + (x1 - x0) * k / steps, y0 + (y1 - y0) * k / steps, button="left", buttons=1)
        self.mouse("mouseReleased", x1, y1, button="left", clickCount=1)

    def wheel(self, selector, by, at=(0.5, 0.5)):
        x, y = self.place(selector, at)
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=by)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def fill(self, selector, text):
        self.click(selector)
        self.run("document.activeElement.select?.()")
        self.press("Backspace")
        self.type(text)

    def choose(self, selector, value):
        """Of a list that opens; its window is the system's, out of a page's reach."""
        self.place(selector)
        self.run(f"(e => {{ e.value = {json.dumps(value)}; e.dispatchEvent(new Event('change', {{bubbles: true}})) }})"
                 f"(document.querySelector({json.dumps(selector)}))")

    def press(self, key):
        """A key, or several at once: "Control+Enter"."""
        *held, key = key.split("+")
        code, text = KEYS.get(key, (ord(key[0].upper()), key))
        common = {"key": key, "code": key if key in KEYS and key != " " else f"Digit{key}" if key.isdigit() else "", "windowsVirtualKeyCode": code,
                  "modifiers": sum(MODIFIERS[h] for h in held)}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": text} if text and not held else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def screenshot(self, file=None):
        png = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        if file:
            with open(file, "wb") as f:
                f.write(png)
        return png

    def close(self):
        self.browser.pages.pop(self.session, None)
        self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)

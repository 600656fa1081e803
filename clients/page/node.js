/**
 * node.js: the node as it is now, and what the last minutes cost. An operator sees everybody's figures, from
 * /metrics; others see the devices and their own use, from /v1/info.
 */
import { get, isOperator, metrics, poll, state } from "./api.js";
import { curves, parts } from "./chart.js";
import { bytes, count, duration, el, rate } from "./dom.js";

const EVERY = 1000; // ms
const RARELY = 5; // seconds between two readings of what is long: the devices, and the latencies of each route
const KEPT = 300; // readings and seconds
const TIMES = "arrayd_http_request_seconds";
const NAMES = ["arrayd_http_requests_total", "arrayd_http_requests_waiting", "arrayd_device_turns_waiting", "arrayd_arrays", "arrayd_sessions",
    "arrayd_gpu_utilization_ratio", "arrayd_gpu_temperature_celsius",
    "arrayd_gpu_power_watts", ...["device_seconds_total", "requests_total", "memory_bytes", "turns_waiting"].map(name => `arrayd_principal_${name}`)];

const total = (found, name, wanted = {}) => (found.get(name) ?? [])
    .filter(({ labels }) => Object.entries(wanted).every(([k, v]) => labels[k] === v))
    .reduce((sum, { value }) => sum + value, 0);

const by = (found, name, label) => Object.fromEntries((found.get(name) ?? []).map(({ labels, value }) => [labels[label], value]));

/** The duration below which a part of the requests between two readings stayed, from their histograms. */
function quantile(now, before, part) {
    const bounds = new Map();
    const add = (found, sign) => {
        for (const { labels, value } of found)
            if (!/events$/.test(labels.route)) // a reply that goes on as long as someone listens
                bounds.set(Number(labels.le.replace("+Inf", "Infinity")), (bounds.get(Number(labels.le.replace("+Inf", "Infinity"))) ?? 0) + sign * value);
    };
    add(now, 1);
    add(before, -1);
    const sorted = [...bounds].sort(([a], [b]) => a - b);
    const all = sorted.at(-1)?.[1] ?? 0;
    if (all <= 0)
        return NaN;
    let low = 0, under = 0;
    for (const [bound, n] of sorted) {
        if (n >= part * all)
            return bound === Infinity ? low : low + (bound - low) * (part * all - under) / Math.max(1, n - under);
        [low, under] = [bound, n];
    }
    return low;
}

/** One figure with its name. */
function tile(name) {
    const value = el("dd", { text: "–" });
    return { element: el("div", { class: "tile" }, el("dt", { text: name }), value), set(text) { value.textContent = text; } };
}

/** "devices 0, 1 and 2": those that a mesh consists of. */
const members = d => `devices ${d.parts.slice(0, -1).join(", ")} and ${d.parts.at(-1)}`;

function device(d) {
    const bar = parts({ label: `Memory of device ${d.index}` });
    const figures = el("p", { class: "soft figures" });
    return {
        element: el("section", { class: "card" }, el("h2", {}, el("span", { text: d.name }), " ", el("span", { class: "soft", text: d.parts ? `device ${d.index}: ${members(d)} together` : `device ${d.index}` })),
            bar.element, figures),
        /** Of a mesh: its arrays, and what is kept for them, lie in memory of its GPUs, whose cards have all that is there. */
        set(now, words) {
            const others = Math.max(0, now.memory - now.free - now.used);
            bar.set(now.memory, [["arrays", "arrays", now.used], ["kept for new arrays", "caches", now.kept], [now.parts ? "not the mesh’s" : "other", "other", others],
                ["free", "free", now.free - now.kept]].map(([name, kind, value]) => ({ name, kind, value, say: bytes(value) })));
            figures.textContent = words;
        },
    };
}

/** What is read every second, as operators see it and as others do, whose figures are in what is long. `before` is the last reading. */
async function read(before, signal) {
    const isRare = !before || !isOperator() || performance.now() / 1e3 - before.longAt > RARELY - 0.5;
    const info = isRare ? await get("v1/info", { signal }) : before.info;
    state.info = info;
    const at = performance.now() / 1e3;
    if (!isOperator()) {
        const { name, requests_total: requests, device_s: busy } = info.principal;
        return { at, info, found: null, requests, device: { [name]: busy } };
    }
    const found = await metrics(isRare ? [...NAMES, TIMES] : NAMES, signal);
    return { at, info, found, longAt: isRare ? at : before.longAt, whole: isRare ? found : before.whole, requests: total(found, "arrayd_http_requests_total"),
        device: by(found, "arrayd_principal_device_seconds_total", "principal") };
}

export function show(place, _, signal) {
    const { info } = state;
    const isAll = isOperator();
    const tiles = {
        requests: tile(isAll ? "Requests per second" : "Your requests per second"),
        median: isAll ? tile("Median latency") : null,
        slow: isAll ? tile("99 % are below") : null,
        queue: isAll ? tile("In the queue") : null,
        busy: tile(isAll ? "Device busy" : "Your share of the device"),
        arrays: tile(isAll ? "Arrays" : "Your arrays"),
        sessions: tile(isAll ? "Sessions" : "Your sessions"),
        up: tile("Running for"),
    };
    const cards = info.devices.map(device);
    const requests = curves({ label: "Requests per second", say: rate, sayX: ago, zero: true, legend: false });
    const percent = y => `${Math.round(y * 100)} %`;
    const shares = curves({ label: "Share of the device's time by user", say: percent, sayX: ago, zero: true, top: 1 });
    const latency = curves({ label: "Latency", say: y => (Number.isFinite(y) ? duration(y) : "–"), sayX: ago, zero: true });
    const users = el("tbody");
    const kept = [];

    function ago(x) {
        return x > -0.5 ? "now" : `${duration(Math.round(-x)).replace(/\.0 s$/, " s")} ago`;
    }

    place.append(el("h1", { class: "visually-hidden", text: "Node" }),
        info.note ? el("p", { class: "soft note", text: `${info.note[0].toUpperCase()}${info.note.slice(1)}.` }) : "",
        el("dl", { class: "tiles" }, Object.values(tiles).filter(Boolean).map(t => t.element)),
        el("div", { class: "cards" }, cards.map(c => c.element)),
        el("div", { class: "cards" },
            el("section", { class: "card" }, el("h2", { text: isAll ? "Requests per second" : "Your requests per second" }), requests.element),
            el("section", { class: "card" }, el("h2", { text: isAll ? "Share of the device's time" : "Your share of the device's time" }), shares.element),
            isAll ? el("section", { class: "card" }, el("h2", { text: "Latency" }), latency.element) : null),
        el("section", { class: "card" }, el("h2", {}, el("span", { text: "What the last minutes cost" }), " ", el("span", { class: "soft", text: "since this view was opened, five at most" })), el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "What the last minutes cost" },
            el("table", {}, el("thead", {}, el("tr", {}, ["User", "Weight", "Share now", "Device time", "Requests", "Memory", "Waiting"].map((t, i) =>
                el("th", { scope: "col", text: t, class: i ? "right" : false })))), users))));

    function draw() {
        const now = kept.at(-1), before = kept.at(-2), first = kept[0];
        const found = now.found;
        now.info.devices.forEach((d, i) => {
            const sensor = name => found?.get(`arrayd_gpu_${name}`)?.find(m => m.labels.device === String(d.index))?.value;
            const [busy, heat, power] = ["utilization_ratio", "temperature_celsius", "power_watts"].map(sensor);
            cards[i]?.set(d, [d.parts ? `${bytes(d.memory)}, the memory of ${members(d)}` : `${bytes(d.memory)} in all`, busy !== undefined && `${Math.round(busy * 100)} % busy`,
                heat !== undefined && `${heat} °C`, power !== undefined && `${Math.round(power)} W`]
                .filter(Boolean).join(" · "));
        });
        tiles.arrays.set(count(found ? total(found, "arrayd_arrays") : now.info.principal.quotas.arrays.used));
        tiles.sessions.set(count(found ? total(found, "arrayd_sessions") : now.info.principal.quotas.sessions.used + 1));
        tiles.up.set(duration((Date.now() - Date.parse(now.info.process.started)) / 1e3));
        if (found)
            tiles.queue.set(count(total(found, "arrayd_device_turns_waiting") + total(found, "arrayd_http_requests_waiting")));
        if (!before)
            return;
        const steps = kept.slice(1).map((k, i) => ({ now: k, before: kept[i], x: k.at - now.at, took: k.at - kept[i].at }));
        const xs = steps.map(s => s.x);
        const perSecond = steps.map(s => Math.max(0, s.now.requests - s.before.requests) / s.took);
        requests.set([{ name: "", xs, ys: perSecond }]);
        tiles.requests.set(rate(perSecond.at(-1)));
        const share = (s, name) => Math.max(0, (s.now.device[name] ?? 0) - (s.before.device[name] ?? 0)) / s.took;
        const names = Object.keys(now.device);
        const used = name => (now.device[name] ?? 0) - (first.device[name] ?? 0);
        const most = names.toSorted((a, b) => used(b) - used(a));
        shares.set(most.slice(0, 6).map(name => ({ name, xs, ys: steps.map(s => share(s, name)) })));
        // Over some readings: one is too short for work of some milliseconds.
        const recent = { now, before: kept.at(-Math.min(kept.length, isAll ? 6 : 2)) };
        recent.took = now.at - recent.before.at;
        tiles.busy.set(percent(Math.min(1, names.reduce((sum, name) => sum + share(recent, name), 0))));
        if (found) {
            const long = kept.filter(k => k.longAt === k.at);
            const of = (k, i, part) => quantile(k.whole.get(`${TIMES}_bucket`) ?? [], long[i].whole.get(`${TIMES}_bucket`) ?? [], part);
            const [median, slow] = [0.5, 0.99].map(part => long.slice(1).map((k, i) => of(k, i, part)));
            tiles.median.set(words(median.at(-1)));
            tiles.slow.set(words(slow.at(-1)));
            latency.set([["median", median], ["99 %", slow]].map(([name, ys]) => ({ name, xs: long.slice(1).map(k => k.at - now.at), ys })));
        }
        const own = now.info.principal;
        const figure = (metric, name, mine) => (found ? by(found, metric, "principal")[name] ?? 0 : mine);
        const weights = state.weights ?? {};
        users.replaceChildren(...most.map(name => el("tr", {}, el("th", { scope: "row", text: name }),
            ...[name === own.name ? own.weight : weights[name] ?? "–", percent(Math.min(1, share(recent, name))), duration(used(name)),
                count(figure("arrayd_principal_requests_total", name, own.requests_total) -
                    (first.found ? by(first.found, "arrayd_principal_requests_total", "principal")[name] ?? 0 : first.requests)),
                bytes(figure("arrayd_principal_memory_bytes", name, own.quotas.device_memory.used)),
                count(figure("arrayd_principal_turns_waiting", name, 0))]
                .map(text => el("td", { class: "right", text: String(text) })))));
    }
    const words = x => (Number.isFinite(x) ? duration(x) : "–");

    poll(isAll ? EVERY : RARELY * EVERY, signal, async () => {
        kept.push(await read(kept.at(-1), signal));
        while (kept.length > KEPT || kept.at(-1).at - kept[0].at > KEPT)
            kept.shift();
        draw();
    });
    if (isAll)
        poll(20 * EVERY, signal, async () => {
            const { principals } = await get("v1/admin/principals", { query: { limit: 1000 }, signal });
            state.weights = Object.fromEntries(principals.map(p => [p.name, p.weight]));
        });
}

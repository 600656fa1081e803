// README.md's examples are one program: it runs, and prints what the comments beside its console.log say.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import test from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { token, url } from "./live.js";

const folder = fileURLToPath(new URL("..", import.meta.url));
const text = fs.readFileSync(path.join(folder, "README.md"), "utf8");

test("the examples", async () => {
    const program = [...text.matchAll(/^```js\n(.*?)^```$/gms)].map(m => m[1]).join("");
    const told = [...program.matchAll(/^(?:.*console\.log\(.*\) )?\/\/ (.*)$/gm)].map(m => m[1]);
    assert(told.length > 10);
    const place = fs.mkdtempSync(path.join(os.tmpdir(), "arrayd-js-"));
    try {
        fs.mkdirSync(path.join(place, "node_modules"));
        fs.symlinkSync(folder, path.join(place, "node_modules", "arrayd"), "dir");
        const options = `connect(${JSON.stringify(url)}, { token: ${JSON.stringify(token)} })`;
        fs.writeFileSync(path.join(place, "readme.mjs"), program.replace('connect("http://127.0.0.1:7411")', options));
        const { stdout } = await promisify(execFile)(process.execPath, ["readme.mjs"], { cwd: place, timeout: 30_000 });
        assert.deepEqual(stdout.trim().replace(/\n {2}|\n(?=\])/g, " ").split("\n"), told);
    } finally {
        fs.rmSync(place, { recursive: true });
    }
});

test("links lead somewhere", () => {
    for (const [, target] of text.matchAll(/\]\(([^)#]+)/g))
        assert(fs.existsSync(path.join(folder, target)), target);
});

test("the package has its files", () => {
    const { exports, files, types, version } = JSON.parse(fs.readFileSync(path.join(folder, "package.json"), "utf8"));
    const modules = names => names.filter(f => /\.(d\.ts|js)$/.test(f)).sort();
    assert.deepEqual(modules(files), modules(fs.readdirSync(folder)));
    for (const file of [...files, types, ...Object.values(exports["."])])
        assert(fs.existsSync(path.join(folder, file)), file);
    const project = fs.readFileSync(path.join(folder, "../../meson.build"), "utf8");
    assert.equal(version, /version: '(.*)'/.exec(project)[1]);
});

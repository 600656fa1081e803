/**
 * copies.js: what was typed, as a line of curl, a program in Python, or one in JavaScript, which shows what the page shows and leaves
 * nothing behind. `result` is what Explain said of an expression's; none: it is taken for a small one. A session of null is the default one.
 */

const MOST = 4096; // elements that are printed
const isLarge = result => result?.shape.reduce((a, b) => a * b, 1) > MOST;

const address = () => location.origin;

const shell = text => `'${text.replaceAll("'", "'\\''")}'`;

/** A string as Python and JavaScript both read it. */
const quoted = text => JSON.stringify(text);

/** A member of a program's request as Python writes it; an array is bound as an object of the client's. */
const inPython = (value, isBound) => (value === true ? "True" : typeof value === "string" ? (isBound ? `xp.array(${quoted(value)})` : quoted(value)) : typeof value === "number" ? String(value)
    : `{${Object.entries(value).map(([k, v]) => `${quoted(k)}: ${inPython(v, isBound)}`).join(", ")}}`);

function curl(body, isProgram, name, { login, session, result }) {
    const isFile = !isProgram && !name && isLarge(result);
    const sent = isProgram || isFile ? body : name ? { ...body, name } : result?.shape.length === 0 ? body : { ...body, inline: true };
    const headers = [isFile ? "-o result.npy -H 'Accept: application/x-npy'" : "", login?.required ? "-H \"Authorization: Bearer $ARRAYD_TOKEN\"" : "", session ? `-H ${shell(`Arrayd-Session: ${session}`)}` : ""].filter(Boolean);
    return ["curl", ...headers, "--json", shell(JSON.stringify(sent)), shell(`${address()}/v1/${isProgram ? "programs?wait=1" : "evaluate"}`)].join(" ");
}

function python(body, isProgram, name, { login, session }) {
    const lines = ["import arrayd", "", `xp = arrayd.connect(${quoted(address())}${session ? `, session=${quoted(session)}` : ""})${login?.required ? "    # the token is ARRAYD_TOKEN's of the environment" : ""}`];
    if (isProgram) {
        const { body: statements, ...rest } = body;
        const said = Object.entries(rest).map(([key, value]) => `, ${key}=${inPython(value, key === "bind")}`).join("");
        lines.push(`job = xp.program([${statements.map(quoted).join(", ")}]${said})`, "print(job.wait(progress=True))");
    } else {
        lines.push(`x = xp.evaluate(${quoted(body.expr)})`);
        lines.push(name ? `xp.save(${quoted(name)}, x)` : "print(x)");
    }
    return `${lines.join("\n")}\n`;
}

function javascript(body, isProgram, name, { login, session, result }) {
    const options = [login?.required ? "token: process.env.ARRAYD_TOKEN" : "", session ? `session: ${quoted(session)}` : ""].filter(Boolean).join(", ");
    const lines = ["import { connect } from \"arrayd\"", "", `const daemon = connect(${quoted(address())}${options ? `, { ${options} }` : ""})`];
    if (isProgram) {
        const { body: statements, ...rest } = body;
        lines.push(`const job = await daemon.start(${JSON.stringify(statements)}, ${JSON.stringify(rest)})`, "console.log(await job.wait())");
    } else
        lines.push(`console.log(await daemon.${name ? "evaluate" : isLarge(result) ? "compute" : "value"}(${quoted(body.expr)}${name ? `, { name: ${quoted(name)} }` : ""}))`);
    return `${lines.join("\n")}\n`;
}

export const COPIES = { curl, Python: python, JavaScript: javascript };

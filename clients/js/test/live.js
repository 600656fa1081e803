// What the tests share: the daemon they are run against, and a session for each of them.
import test from "node:test";
import { ArraydError, connect } from "../arrayd.js";

export const url = process.env.ARRAYD_URL;
export const token = process.env.ARRAYD_TOKEN;
/** An origin that the daemon was started to let in. */
export const origin = process.env.ARRAYD_ORIGIN;

export const client = options => connect(url, { token, ...options });

/** A test with a session of its own, which is deleted afterwards. */
export function live(name, body) {
    test(name, async () => {
        const session = await client().createSession();
        try {
            await body(session);
        } finally {
            await session.delete();
        }
    });
}

/** What a promise is rejected with, which must be an ArraydError of this code. */
export async function fails(code, promise) {
    const error = await promise.then(() => undefined, e => e);
    if (!(error instanceof ArraydError) || error.code !== code)
        throw error ?? new Error(`nothing was thrown, ${code} was expected`);
    return error;
}

export async function collect(iterable) {
    const all = [];
    for await (const item of iterable)
        all.push(item);
    return all;
}

const encoder = new TextEncoder();

/**
 * A client of nobody, whose requests get these answers in turn: a Response, a list of the parts of a stream, an error. And what it was
 * asked: each Last-Event-ID, and each address.
 */
export function answering(answers) {
    const asked = [], addresses = [];
    const fetch = async (address, { headers }) => {
        asked.push(headers["Last-Event-ID"]);
        addresses.push(address);
        const answer = answers.shift();
        if (answer instanceof Error)
            throw answer;
        if (!Array.isArray(answer))
            return answer;
        return new Response(new ReadableStream({
            pull(controller) {
                const chunk = answer.shift();
                if (chunk === undefined)
                    controller.close();
                else
                    chunk instanceof Error ? controller.error(chunk) : controller.enqueue(encoder.encode(chunk));
            },
        }));
    };
    return [connect("http://elsewhere.example", { fetch }), asked, addresses];
}

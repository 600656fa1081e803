/**
 * access.js: who may use a daemon, and what each has: logins of browsers, read-only links, and what operators see and end. A
 * module of its own, since few programs need it: import { Access } from "arrayd/access".
 * docs/security.md and docs/operating.md say what the requests do.
 */

/** As one part of a path: fetch resolves "." and "..", and the daemon takes no escapes. */
function inPath(name) {
    if (name === "." || name === "..")
        throw new TypeError(`'${name}' names nothing`);
    return encodeURIComponent(name).replaceAll("%40", "@");
}
const ids = things => things?.map(x => (typeof x === "string" ? x : x.id));

/** What a client's account may do beyond its own arrays. */
export class Access {
    constructor(client) { this.client = client; }

    #send(method, path, { signal, ...body } = {}) { return this.client.json(method, path, { signal, body }); }
    #end(path, options) { return this.client.json("DELETE", path, options); }
    #all(key, options) { return this.client.pages(key, options, undefined, `/admin/${key}`); }

    /** POST /v1/login: has a page's browser log in, with `token` (an account's) or `link` (the key of a link). */
    logIn(how) { return this.#send("POST", "/login", how); }
    /** GET /v1/login: who one is, and until when. */
    login(options) { return this.client.json("GET", "/login", options); }
    /** POST /v1/logout: ends the login of the browser's cookie. */
    logOut(options) { return this.client.json("POST", "/logout", options); }
    /** DELETE /v1/logins, or, for operators, of a principal: ends all logins; how many there were. */
    async endLogins({ principal, ...options } = {}) {
        return (await this.#end(principal === undefined ? "/logins" : `/admin/principals/${inPath(principal)}/logins`, options)).ended;
    }

    /** POST /v1/links: a link for `expires_s` seconds to some `arrays` and `jobs`, or to all of one's own; `url` is told only now. */
    createLink({ arrays, jobs, ...options }) { return this.#send("POST", "/links", { ...options, arrays: ids(arrays), jobs: ids(jobs) }); }
    /** GET /v1/links. */
    async links(options) { return (await this.client.json("GET", "/links", options)).links; }
    /** DELETE /v1/links/{id}. */
    deleteLink(id, options) { return this.#end(`/links/${inPath(id)}`, options); }

    /** GET /v1/admin/…: everybody's, for operators; `limit` is the size of a page. */
    principals(options) { return this.#all("principals", options); }
    sessions(options) { return this.#all("sessions", options); }
    jobs(options) { return this.#all("jobs", options); }
    arrays(options) { return this.#all("arrays", options); }
    /** GET /v1/admin/audit: who did what. */
    audit(options) { return this.client.pages("entries", options, undefined, "/admin/audit"); }
    /** PATCH /v1/admin/principals/{principal}: `weight` and `quotas`; null: as in the accounts file. */
    setPrincipal(name, changes) { return this.#send("PATCH", `/admin/principals/${inPath(name)}`, changes); }
    /** DELETE /v1/admin/principals/{principal}: ends it and all that it has. */
    endPrincipal(name, options) { return this.#end(`/admin/principals/${inPath(name)}`, options); }
    /** DELETE /v1/admin/sessions/{id}, …/jobs/{id} (cancels one that runs, removes one that has ended), …/arrays/{id}. */
    endSession(id, options) { return this.#end(`/admin/sessions/${inPath(id)}`, options); }
    endJob(id, options) { return this.#end(`/admin/jobs/${inPath(id)}`, options); }
    endArray(id, options) { return this.#end(`/admin/arrays/${inPath(id)}`, options); }

    /** GET /v1/faults: what is refused or suspected since it faulted. */
    faults(options) { return this.client.json("GET", "/faults", options); }
    /** DELETE /v1/faults/{which}: allows a piece of work, or a user, again. */
    forgetFault(which, options) { return this.#end(`/faults/${inPath(which)}`, options); }
    /** DELETE /v1/faults. */
    forgetFaults(options) { return this.#end("/faults", options); }
}

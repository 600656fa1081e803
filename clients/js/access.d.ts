/** access.d.ts: logins, read-only links, and what operators see and end. */
import type { ArrayMeta, Client, Integer, JobMeta, RequestOptions, SessionMeta } from "./arrayd.js";

/** Who sent a request. */
export interface LoginMeta {
    /** Whether the daemon has accounts. */
    required: boolean;
    principal: string | null;
    /** viewer: by a read-only link. */
    role: "user" | "operator" | "viewer" | null;
    /** Of a login; RFC 3339. */
    expires: string | null;
    /** What a link shows; null: not only some. */
    arrays: string[] | null;
    jobs: string[] | null;
}

export interface LinkMeta {
    id: string;
    created: string;
    expires: string;
    /** What it shows; null: not only some. */
    arrays: string[] | null;
    jobs: string[] | null;
}

type Lists = RequestOptions & { limit?: number };
type Things = ReadonlyArray<string | { id: string }>;

/** What a client's account may do beyond its own arrays. Other than logins and links it is for operators: else `forbidden`. */
export class Access {
    constructor(client: Client);
    readonly client: Client;

    /** Has the browser of a page at the daemon's own address log in: a cookie that scripts cannot read. @throws ArraydError `unauthorized` */
    logIn(how: { signal?: AbortSignal } & ({ token: string } | { link: string })): Promise<LoginMeta>;
    login(options?: RequestOptions): Promise<LoginMeta>;
    logOut(options?: RequestOptions): Promise<void>;
    /** One's own, or a principal's; how many there were. */
    endLogins(options?: RequestOptions & { principal?: string }): Promise<number>;

    /** A read-only link that lasts `expires_s` seconds; `url` goes behind the daemon's address, and is told only now. */
    createLink(options: { signal?: AbortSignal; expires_s: number; arrays?: Things; jobs?: Things }): Promise<LinkMeta & { url: string }>;
    links(options?: RequestOptions): Promise<LinkMeta[]>;
    deleteLink(id: string, options?: RequestOptions): Promise<void>;

    /** All accounts that have been used, with their quotas. */
    principals(options?: Lists): AsyncGenerator<Record<string, any>, void>;
    sessions(options?: Lists): AsyncGenerator<{ owner: string; session: SessionMeta; last_used: string | null }, void>;
    jobs(options?: Lists): AsyncGenerator<{ owner: string; job: JobMeta }, void>;
    arrays(options?: Lists): AsyncGenerator<{ owner: string; array: ArrayMeta } & Record<string, any>, void>;
    audit(options?: Lists): AsyncGenerator<{
        number: Integer; at: string; who: string | null; from: string | null; action: string; target: string; result: string; count: Integer;
    }, void>;
    /** null: as in the accounts file; 0: no quota. */
    setPrincipal(name: string, changes: { signal?: AbortSignal; weight?: number | null; quotas?: Record<string, Integer | null> }): Promise<Record<string, any>>;
    endPrincipal(name: string, options?: RequestOptions): Promise<void>;
    endSession(id: string, options?: RequestOptions): Promise<void>;
    /** Cancels a job that runs; removes one that has ended. */
    endJob(id: string, options?: RequestOptions): Promise<JobMeta | undefined>;
    endArray(id: string, options?: RequestOptions): Promise<void>;

    faults(options?: RequestOptions): Promise<Record<string, any>>;
    /** `which` is the key of a piece of work, or a user's name. */
    forgetFault(which: string, options?: RequestOptions): Promise<void>;
    forgetFaults(options?: RequestOptions): Promise<void>;
}

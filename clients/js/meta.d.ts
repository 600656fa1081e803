/** meta.d.ts: what the daemon says of what it has. Types alone, which arrayd.d.ts hands on. */
import type { Dtype, Integer } from "./types.js";

export type Boundary = "periodic" | readonly [Face, Face];
export interface Face {
    type: "dirichlet" | "neumann" | "none";
    value?: number;
}

/** What the daemon says of an array (docs/arrays.md). */
export interface ArrayMeta {
    id: string;
    name: string | null;
    dtype: Dtype;
    shape: Integer[];
    /** In elements. */
    strides: Integer[];
    /** In elements. */
    offset: Integer;
    /** Elements. */
    size: Integer;
    /** Bytes. */
    nbytes: Integer;
    /** Bytes of an element. */
    itemsize: number;
    ghost: number[];
    boundary: Boundary[];
    spacing: number[];
    /** Absent, as the next three, unless set; in lists, too. */
    attrs?: Record<string, unknown>;
    /** The array's id; it may be gone. Absent in lists. */
    coords?: Record<string, { array: string; dims: string[] }>;
    dims?: (string | null)[];
    units?: string;
    /** The id of the array it is a view of, while that exists. */
    view_of?: string;
    /** Of an array that another user shares: whose it is. */
    owner?: string;
    references: number;
    session: string;
    created: string;
    restored_from?: string;
    read_only: boolean;
    /** It goes with the last array that has it among its `coords`. */
    coordinate?: true;
    location: "device" | "host";
    device: number;
    /** Of an array that is divided among several GPUs: how many along each axis, the first row on each, and their numbers. */
    placement?: { parts: number[]; rows: Integer[]; devices: number[] };
}

export type Access = "read" | "write";

export interface LeaseMeta {
    token: string;
    mode: Access;
    expires: string;
}

/** An account that an array is shared with. */
export interface ShareMeta {
    principal: string;
    access: Access;
}

/** Extents that fit several shapes (docs/grids.md). */
export interface LayoutMeta {
    /** For the `padded` of arrays that are created. */
    padded: number[];
    /** In elements. */
    strides: Integer[];
    /** For each shape, what is left over along each axis. */
    pads: number[][];
}

/** What the daemon says of a session. */
export interface SessionMeta {
    id: string;
    name: string | null;
    default: boolean;
    /** Seconds without a request after which it is deleted. */
    ttl_s: number | null;
    /** Bytes. */
    memory_limit: Integer | null;
    device: number;
    created: string;
    /** Bytes. */
    bytes_in_use: Integer;
    arrays: number;
    /** Seconds that the device worked for it. */
    device_s: number;
}

/** What the daemon says of a job (docs/programs.md). */
export interface JobMeta {
    id: string;
    session: string;
    state: "queued" | "running" | "done" | "failed" | "cancelled";
    /** What it computes; not in its events. */
    program?: JobProgram;
    /** Whole steps that the arrays have seen. */
    step: Integer;
    steps: Integer;
    steps_per_s: number;
    /** Seconds that are left, while it runs. */
    eta_s?: number;
    /** Seconds. */
    elapsed_s: number;
    /** Seconds that the device worked for it. */
    device_s: number;
    /** Bytes that its kernels have read and written. */
    bytes_moved: Integer;
    /** That rate, as a fraction of the one at which the device copies memory. */
    memory_speed?: number;
    /** Forms of its kernels. */
    forms?: string[];
    pass?: Record<string, unknown>;
    created: string;
    ended?: string;
    stopped_by?: "until";
    record_every?: number;
    /** The number of the first value that is listed. */
    records_from?: number;
    /** Value k is that after step (records_from + k + 1)*record_every. */
    records?: Record<string, Array<number | bigint | boolean>>;
    /** Copies that were made: arrays of the session. */
    snapshots?: Array<{ name: string; step: number; id: string }>;
    error?: Problem;
    failed_step?: number;
    /** Its place in the body. */
    failed_statement?: number;
}

/** A program as it was sent, cut where it is long; in lists the first words of the statements. */
export interface JobProgram {
    body: string[];
    bind?: Record<string, unknown>;
    record?: Record<string, unknown>;
    until?: unknown;
    /** The arrays that it assigns. */
    arrays?: Array<{ name: string; id: string }>;
    /** Something of it is missing. */
    cut?: true;
}

/** Problem details, RFC 9457. */
export interface Problem {
    type?: string;
    title?: string;
    status: number;
    code: string;
    detail: string;
    pointer?: string;
    offset?: number;
}

/** types.d.ts: elements, numbers, what holds them, and how they are looked at. Types alone, which arrayd.d.ts hands on. */

export type Dtype = "bool" | "int8" | "int16" | "int32" | "int64" | "uint8" | "uint16" | "uint32" | "uint64"
    | "float16" | "bfloat16" | "float32" | "float64" | "complex64" | "complex128";

/** A number of the daemon's: a bigint where it lies beyond ±(2^53 - 1), exact both ways. */
export type Integer = number | bigint;
/** A complex number, [re, im]. */
export type Complex = [number, number];
/** One element: a bigint of int64 and uint64, whatever its size; a boolean of bool; [re, im] of complex types. */
export type Scalar = number | bigint | boolean | Complex;
/** Lists as deep as the array has axes. */
export type Nested = Scalar | Nested[];
/** An element, or nested lists of them. */
export type Value = Scalar | Nested;
/** What is sent for one: typed arrays may stand for lists of numbers. */
export type Lists = number | bigint | boolean | ArrayBufferView | readonly Lists[];
/** One extent, or those of all axes; [] is a single number. */
export type Shape = number | readonly Integer[];
/** What holds elements: see Client.array for which types go with which. */
export type TypedArray = Int8Array | Uint8Array | Uint8ClampedArray | Int16Array | Uint16Array | Int32Array
    | Uint32Array | BigInt64Array | BigUint64Array | Float32Array | Float64Array;
/** Bytes: typed arrays (Float16Array among them, where there is one), DataView, ArrayBuffer. */
export type Binary = ArrayBufferView | ArrayBuffer | SharedArrayBuffer;

/** How a picture looks (docs/data.md). */
export interface PictureOptions {
    cmap?: "gray" | "viridis" | "plasma" | "inferno" | "magma" | "cividis" | "turbo" | "coolwarm" | "twilight" | "RdBu_r";
    /** The values of the first and the last colour; or percentiles in their places. */
    lo?: number;
    hi?: number;
    percentiles?: readonly [number, number];
    /** Pixels. */
    width?: number;
    height?: number;
    /** What a pixel is of its elements. */
    pool?: "mean" | "max" | "min" | "nearest";
    /** A colour bar on the right. */
    bar?: boolean;
}

/** Of complex numbers the figures are of their absolute values; null: there is no finite element. */
export interface SummaryMeta {
    dtype: Dtype;
    shape: Integer[];
    of: "elements" | "abs";
    count: Integer;
    finite: Integer;
    nan: Integer;
    inf: Integer;
    minus_inf: Integer;
    min: number | bigint | boolean | null;
    max: number | bigint | boolean | null;
    mean: number | null;
    std: number | null;
    histogram: { lo: number; hi: number; below: Integer; above: Integer; counts: Integer[] };
    percentiles: Array<{ percent: number; value: number | null; error: number | null }>;
}

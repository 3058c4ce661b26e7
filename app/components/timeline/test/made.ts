// A tile server for tests. It makes tiles from slices, independently of the tested code.

import { COLUMNS } from "../src/wire";

export interface Event {
  start: number;
  dur: number;
  kind: string;
}

/** A small random generator with a seed, so that a failing round can be repeated. */
export function random(seed: number): () => number {
  let state = seed * 2654435761 + 12345;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Answer requests for tiles of one row (lane 7). Tiles of at most `few` slices are complete. */
export function served(events: Event[], few: number): (address: string) => Promise<ArrayBuffer> {
  return (address) => {
    const query = new URLSearchParams(address.split("?")[1]);
    return Promise.resolve(encoded(events, few, Number(query.get("level")), Number(query.get("index"))));
  };
}

function encoded(events: Event[], few: number, level: number, index: number): ArrayBuffer {
  const [column, begin] = [2 ** level, index * COLUMNS * 2 ** level];
  const end = begin + COLUMNS * column;
  const touching = events.filter((e) => e.start < end && (e.start + e.dur > begin || e.start >= begin));
  const complete = touching.length <= few;
  const slices = complete ? touching : touching.filter((e) => e.dur >= column);
  const sums = new Map<number, Event[]>();
  for (const e of complete ? [] : touching) {
    if (e.dur >= column || e.start < begin) continue;
    const at = Math.floor((e.start - begin) / column);
    sums.set(at, [...(sums.get(at) ?? []), e]);
  }
  const kinds = ["a", "b"];
  const header = new TextEncoder().encode(JSON.stringify({
    source: "gpu", level, index, complete, slices: slices.length, sums: sums.size, rows: [[7, 0]], kinds, names: { 0: "name" },
  }));
  const pad = (bytes: Uint8Array) => {
    const padded = new Uint8Array(Math.ceil(bytes.length / 8) * 8).fill(32);
    padded.set(bytes);
    return padded;
  };
  const bytes = (column: { buffer: ArrayBufferLike }) => pad(new Uint8Array(column.buffer as ArrayBuffer));
  const places = [...sums.keys()];
  const busy = (e: Event[]) => e.reduce((sum, one) => sum + one.dur, 0);
  const mostly = (e: Event[]) => {
    const of = kinds.map((kind) => busy(e.filter((one) => one.kind === kind)));
    return of[1] > of[0] ? 1 : 0;
  };
  const parts = [
    bytes(Uint32Array.of(header.length, pad(header).length)), pad(header),
    bytes(Float64Array.from(slices, (e) => e.start)), bytes(Float64Array.from(slices, (e) => e.dur)),
    bytes(Uint32Array.from(slices, (e) => events.indexOf(e))), bytes(new Uint32Array(slices.length)),
    bytes(new Uint16Array(slices.length)), bytes(Uint8Array.from(slices, (e) => kinds.indexOf(e.kind))),
    bytes(Float64Array.from(places, (at) => busy(sums.get(at)!))), bytes(Uint32Array.from(places, (at) => sums.get(at)!.length)),
    bytes(Uint16Array.from(places)), bytes(new Uint16Array(places.length)), bytes(Uint8Array.from(places, (at) => mostly(sums.get(at)!))),
  ];
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all.buffer;
}

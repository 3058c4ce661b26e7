// Decodes tiles from the server; app/api/timeline.py describes their layout.

/** Slices and sums of one row of a tile, as positions in the tile's columns. Slices are sorted by start. */
export interface Row {
  slices: Uint32Array;
  sums: Uint32Array;
}

export interface Tile {
  source: string;
  level: number;
  index: number;
  complete: boolean;
  start: Float64Array;
  dur: Float64Array;
  id: Uint32Array;
  name: Uint32Array;
  kind: Uint8Array;
  sumBusy: Float64Array;
  sumCount: Uint32Array;
  sumColumn: Uint16Array;
  sumKind: Uint8Array;
  kinds: string[];
  names: Map<number, string>;
  rows: Map<string, Row>;
  bytes: number;
}

export const COLUMNS = 1024;

export function rowKey(lane: number, depth: number): string {
  return `${lane}/${depth}`;
}

interface Header {
  source: string;
  level: number;
  index: number;
  complete: boolean;
  slices: number;
  sums: number;
  rows: [number, number][];
  kinds: string[];
  names: Record<string, string>;
}

/** Return all tiles of an answer. */
export function decode(buffer: ArrayBuffer): Tile[] {
  const tiles: Tile[] = [];
  for (let at = 0; at < buffer.byteLength; ) {
    const begin = at;
    const [length, padded] = new Uint32Array(buffer, at, 2);
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, at + 8, length))) as Header;
    at += 8 + padded;
    const take = <T>(make: (buffer: ArrayBuffer, at: number, n: number) => T, n: number, size: number): T => {
      const column = make(buffer, at, n);
      at += Math.ceil((n * size) / 8) * 8;
      return column;
    };
    const f64 = (n: number) => take((b, o, c) => new Float64Array(b, o, c), n, 8);
    const u32 = (n: number) => take((b, o, c) => new Uint32Array(b, o, c), n, 4);
    const u16 = (n: number) => take((b, o, c) => new Uint16Array(b, o, c), n, 2);
    const u8 = (n: number) => take((b, o, c) => new Uint8Array(b, o, c), n, 1);
    const [n, m] = [header.slices, header.sums];
    const [start, dur, id, name, row, kind] = [f64(n), f64(n), u32(n), u32(n), u16(n), u8(n)];
    const [sumBusy, sumCount, sumColumn, sumRow, sumKind] = [f64(m), u32(m), u16(m), u16(m), u8(m)];
    tiles.push({
      source: header.source, level: header.level, index: header.index, complete: header.complete,
      start, dur, id, name, kind, sumBusy, sumCount, sumColumn, sumKind,
      kinds: header.kinds,
      names: new Map(Object.entries(header.names).map(([key, value]) => [Number(key), value])),
      rows: byRow(header.rows, row, start, sumRow),
      bytes: at - begin + 8 * (n + m),
    });
  }
  return tiles;
}

function byRow(rows: [number, number][], row: Uint16Array, start: Float64Array, sumRow: Uint16Array): Map<string, Row> {
  const slices: number[][] = rows.map(() => []);
  const sums: number[][] = rows.map(() => []);
  row.forEach((r, i) => slices[r].push(i));
  sumRow.forEach((r, i) => sums[r].push(i));
  return new Map(
    rows.map(([lane, depth], r) => [
      rowKey(lane, depth),
      { slices: Uint32Array.from(slices[r].sort((a, b) => start[a] - start[b])), sums: Uint32Array.from(sums[r]) },
    ]),
  );
}

// Sums one row by pixel: which share of each pixel's time is filled, and with what. Slices of at least two pixels are drawn separately;
// all others are summed, so that no work of the recording is missing.

import type { Piece } from "./tiles";
import type { Span } from "./types";
import { COLUMNS, rowKey, type Tile } from "./wire";

export const ALONE_PX = 2;

/** A slice that is drawn separately, from and to in pixels. */
export interface Bar {
  from: number;
  to: number;
  tile: Tile;
  slice: number;
}

export class Columns {
  /** Filled share of each pixel's time; above 1 if slices overlap. */
  readonly fill: Float32Array;
  /** The kind that fills most of each pixel, as a position in `kinds`. */
  readonly kind: Uint8Array;
  readonly kinds: string[] = [];
  bars: Bar[] = [];
  private readonly most: Float32Array;

  constructor(readonly width: number) {
    this.fill = new Float32Array(width);
    this.kind = new Uint8Array(width);
    this.most = new Float32Array(width);
  }

  /** Sum a row of `pieces` in `view`. */
  read(pieces: Piece[], view: Span, lane: number, depth: number): void {
    this.fill.fill(0);
    this.most.fill(0);
    this.bars = [];
    const scale = this.width / (view.end - view.start);
    const key = rowKey(lane, depth);
    for (const piece of pieces) {
      const row = piece.tile?.rows.get(key);
      if (!piece.tile || !row) continue;
      this.slices(piece.tile, row.slices, piece, view, scale);
      this.sums(piece.tile, row.sums, piece, view, scale);
    }
  }

  private slices(tile: Tile, which: Uint32Array, piece: Piece, view: Span, scale: number): void {
    const [low, high] = [Math.max(piece.start, view.start), Math.min(piece.end, view.end)];
    const kindOf = tile.kinds.map((kind) => this.numberOf(kind));
    for (const i of which) {
      const start = tile.start[i];
      if (start >= high) break;
      const end = start + tile.dur[i];
      if (end < low || (end === low && start < low)) continue;
      if ((end - start) * scale >= ALONE_PX) {
        // drawn separately, and only once: in the piece where it begins, or in the first one in view
        if (start >= piece.start || piece.start <= view.start) {
          this.bars.push({ from: (start - view.start) * scale, to: (end - view.start) * scale, tile, slice: i });
        }
      } else {
        this.add((Math.max(start, low) - view.start) * scale, (Math.min(end, high) - view.start) * scale, kindOf[tile.kind[i]]);
      }
    }
  }

  private sums(tile: Tile, which: Uint32Array, piece: Piece, view: Span, scale: number): void {
    const column = 2 ** tile.level;
    const origin = tile.index * COLUMNS * column;
    const kindOf = tile.kinds.map((kind) => this.numberOf(kind));
    const [low, high] = [Math.max(piece.start, view.start), Math.min(piece.end, view.end)];
    for (const i of which) {
      const start = origin + tile.sumColumn[i] * column;
      const [from, to] = [Math.max(start, low), Math.min(start + column, high)];
      if (to > from) {
        const busy = tile.sumBusy[i] / column;
        this.add((from - view.start) * scale, (to - view.start) * scale, kindOf[tile.sumKind[i]], busy);
      }
    }
  }

  /** Fill `share` of the time from one pixel to another. */
  private add(from: number, to: number, kind: number, share = 1): void {
    const last = Math.min(Math.floor(to), this.width - 1);
    for (let x = Math.max(Math.floor(from), 0); x <= last; x++) {
      const part = (Math.min(to, x + 1) - Math.max(from, x)) * share;
      // a slice without a duration is visible too
      const seen = part > 0 ? part : Number.MIN_VALUE;
      this.fill[x] += Math.max(part, 1e-6);
      if (seen > this.most[x] || !this.most[x]) {
        this.most[x] = Math.max(seen, 1e-9);
        this.kind[x] = kind;
      }
    }
  }

  private numberOf(kind: string): number {
    const at = this.kinds.indexOf(kind);
    return at >= 0 ? at : this.kinds.push(kind) - 1;
  }
}

// Loads and caches the tiles that a view needs. While a tile loads, a coarser one is drawn.

import type { Span, Track } from "./types";
import { COLUMNS, decode, type Tile } from "./wire";

/** Largest number of cached bytes; a screen needs about one megabyte. */
export const BUDGET = 96 * 2 ** 20;
const AT_ONCE = 4; // simultaneous requests: a browser opens six connections to a server, and the page needs some
const RETRY_MS = 2000;

/** A time range and the tile to draw it from. */
export interface Piece extends Span {
  tile: Tile | null;
}

/** Return the level whose columns are at most as wide as a pixel, and more than half as wide. */
export function levelOf(nsPerPixel: number): number {
  return Math.max(0, Math.floor(Math.log2(Math.max(nsPerPixel, 1))));
}

function widthOf(level: number): number {
  return COLUMNS * 2 ** level;
}

/** A view that needs tiles: for each track, the sources. */
export interface Look {
  view: Span;
  level: number;
  sources: string[][];
}

interface Wanted {
  track: number;
  level: number;
  index: number;
  sources: string[];
}

export class Tiles {
  bytes = 0;
  failed = "";
  private readonly cached = new Map<string, Tile>();
  private readonly requested = new Map<string, number>();
  private queue: Wanted[] = [];
  private inFlight = 0;
  private stopped = false;

  constructor(
    private readonly tracks: Track[],
    private readonly arrived: () => void,
    private readonly get: (address: string) => Promise<ArrayBuffer> = fetched,
    private readonly budget = BUDGET,
  ) {}

  stop(): void {
    this.stopped = true;
    this.queue = [];
  }

  /** Return the pieces of a source in `view`, sorted by time, on the track's own clock. */
  pieces(track: number, source: string, view: Span, level: number): Piece[] {
    const pieces: Piece[] = [];
    const width = widthOf(level);
    for (let index = Math.max(0, Math.floor(view.start / width)); index * width < view.end; index++) {
      const start = index * width;
      const tile = this.best(track, source, level, index);
      const before = pieces[pieces.length - 1];
      if (tile && before?.tile === tile) before.end = start + width;
      else pieces.push({ start, end: start + width, tile });
    }
    return pieces;
  }

  /** Request the missing tiles of these views, first those in the middle of the first view. Earlier requests that have not started are dropped. */
  want(views: Look[]): void {
    const wanted = new Set<string>();
    this.queue = views.flatMap((look) => this.missing(look, wanted));
    this.pump();
  }

  /** Return the missing tiles of a view that are not in `among` yet, and add them to it. */
  private missing({ view, level, sources }: Look, among: Set<string>): Wanted[] {
    const width = widthOf(level);
    const middle = (view.start + view.end) / 2;
    const wanted: Wanted[] = [];
    this.tracks.forEach((track, t) => {
      const [first, last] = [view.start - track.offset, view.end - track.offset];
      for (let index = Math.max(0, Math.floor(first / width)); index * width < last; index++) {
        const missing = (sources[t] ?? []).filter((source) => !this.known(t, source, level, index) && !among.has(key(t, source, level, index)));
        for (const source of missing) among.add(key(t, source, level, index));
        if (missing.length) wanted.push({ track: t, level, index, sources: missing });
      }
    });
    const far = (w: Wanted) => Math.abs((w.index + 0.5) * width + this.tracks[w.track].offset - middle);
    return wanted.sort((a, b) => far(a) - far(b));
  }

  /** Return whether all tiles of the view have arrived. */
  settled(): boolean {
    return !this.queue.length && !this.inFlight;
  }

  private best(track: number, source: string, level: number, index: number): Tile | null {
    for (let up = 0; level + up < 53; up++) {
      const tile = this.at(key(track, source, level + up, Math.floor(index / 2 ** up)));
      if (tile) return tile;
    }
    return null;
  }

  private at(key: string): Tile | undefined {
    const tile = this.cached.get(key);
    if (tile) {
      this.cached.delete(key); // move it to the end: the first entry of the map is the least recently used one
      this.cached.set(key, tile);
    }
    return tile;
  }

  private known(track: number, source: string, level: number, index: number): boolean {
    if (this.cached.has(key(track, source, level, index))) return true;
    for (let up = 1; level + up < 53; up++) {
      if (this.cached.get(key(track, source, level + up, Math.floor(index / 2 ** up)))?.complete) return true;
    }
    return (this.requested.get(key(track, source, level, index)) ?? 0) > Date.now();
  }

  private pump(): void {
    while (!this.stopped && this.inFlight < AT_ONCE && this.queue.length) void this.fetch(this.queue.shift()!);
  }

  private async fetch(wanted: Wanted): Promise<void> {
    const track = this.tracks[wanted.track];
    const keys = wanted.sources.map((source) => key(wanted.track, source, wanted.level, wanted.index));
    for (const k of keys) this.requested.set(k, Infinity);
    this.inFlight++;
    try {
      const query = `recording=${track.recording}&device=${track.device}&level=${wanted.level}&index=${wanted.index}`;
      const tiles = decode(await this.get(`${track.api}/tiles?${query}&sources=${wanted.sources.join(",")}`));
      for (const k of keys) this.requested.delete(k);
      for (const tile of tiles) this.keep(key(wanted.track, tile.source, tile.level, tile.index), tile);
      this.failed = "";
    } catch (problem) {
      for (const k of keys) this.requested.set(k, Date.now() + RETRY_MS);
      this.failed = problem instanceof Error ? problem.message : "The server did not answer.";
      if (!this.stopped) setTimeout(() => { if (!this.stopped) this.arrived(); }, RETRY_MS);
    } finally {
      this.inFlight--;
      this.pump();
      if (!this.stopped) this.arrived();
    }
  }

  private keep(key: string, tile: Tile): void {
    this.cached.set(key, tile);
    this.bytes += tile.bytes;
    for (const [oldest, old] of this.cached) {
      if (this.bytes <= this.budget) break;
      this.cached.delete(oldest);
      this.bytes -= old.bytes;
    }
  }
}

function key(track: number, source: string, level: number, index: number): string {
  return `${track}/${source}/${level}/${index}`;
}

export async function fetched(address: string): Promise<ArrayBuffer> {
  const answer = await fetch(address, { credentials: "same-origin" });
  if (!answer.ok) throw new Error(await sentenceOf(answer));
  return answer.arrayBuffer();
}

/** Return the server's sentence about an error. */
export async function sentenceOf(answer: Response): Promise<string> {
  try {
    return ((await answer.json()) as { error: { sentence: string } }).error.sentence;
  } catch {
    return `The server answered ${answer.status}.`;
  }
}

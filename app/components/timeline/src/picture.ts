// The interface of the timeline for its parts (input, details, search), which do not know each other.

import type { Painter, Scene } from "./draw";
import type { Placed } from "./lanes";
import type { Tiles } from "./tiles";
import type { Note, PageData, Slice, Span } from "./types";

export interface Picture {
  readonly root: HTMLElement;
  readonly lanesCanvas: HTMLCanvasElement;
  readonly data: PageData;
  readonly tiles: Tiles;
  readonly scene: Scene;
  readonly painter: Painter;
  readonly drawer: { focus(): void };
  readonly finder: { readonly words: string; focus(): void; search(words: string): void; step(by: number): void };
  readonly findings: { readonly rule: string | null; open(rule: string | undefined, report?: boolean, go?: boolean): void; next(by: number): void; step(by: number): void };
  readonly losses: { next(): Promise<void> };
  readonly note: (note: Note) => void;
  readonly width: number;
  readonly target: Span;
  nsPerPixel(): number;
  go(view: Span, jump?: boolean, smooth?: boolean): void;
  select(slice: Slice | null): void;
  choose(slice: Slice, near?: Span): void;
  selectRange(range: Span | null, done: boolean): void;
  /** Return whether a height of the canvas is on the time axis, which stays at the top while lanes scroll. */
  onAxis(y: number): boolean;
  /** Go to a view of one track, and scroll the lanes to it. */
  fly(track: number, view: Span): void;
  /** Scroll the lanes to the selected slice. */
  revealSelected(): void;
  /** Change the height of the selected lane's rows, else of all rows, by a factor. */
  resizeRows(factor: number): void;
  rowAt(y: number): { lane: Placed; depth: number } | null;
  say(words: string): void;
  draw(): void;
  remap(): void;
  moved(jump: boolean): void;
}

// Draws one frame: every lane in view, from tiles.

import { Columns } from "./columns";
import { duration, time } from "./format";
import { LETTER, lostLabel, stepLabel, stepName } from "./labels";
import { topOf, type Placed } from "./lanes";
import { fit, kindOf, readable, texture, type Ink } from "./paint";
import { levelOf, type Tiles } from "./tiles";
import type { Line, Mark, PageData, Slice, Span } from "./types";
import { drawUncounted } from "./uncounted";
import { tick } from "./view";

export const AXIS_PX = 22;
const POINTER_PX = 6; // half the width of the triangle that points at the current mark
const TEXT_PX = 26; // narrower slices have no name
const TEXTURED_PX = 8; // narrower slices have no texture
const PHONE_PX = 400; // narrower lanes are those of a phone
const LABEL_PX = 9; // half the height of the plain field behind a label on a texture

/** The content of a frame. `mark` is the index of the current mark, or -1. If `same` is the id of a name, slices with other names are faded. */
export interface Scene {
  data: PageData;
  view: Span;
  lanes: Placed[];
  marks: Mark[];
  mark: number;
  selected: Slice | null;
  range: Span | null;
  same: number | null;
}

/** The columns of each row as they were drawn, to find what is under the pointer. */
export interface Drawn {
  rows: Map<string, Columns>;
}

export class Painter {
  readonly drawn: Drawn = { rows: new Map() };
  private readonly columns = new Map<string, Columns>();

  constructor(
    private readonly context: CanvasRenderingContext2D,
    private readonly tiles: Tiles,
    private readonly ink: Ink,
  ) {}

  /** Draw a frame of `width` × `height` CSS pixels; only rows between `top` and `bottom` are visible. */
  frame(scene: Scene, width: number, height: number, top: number, bottom: number): void {
    const context = this.context;
    context.clearRect(0, 0, width, height);
    context.font = `12px ${this.ink.font}`;
    context.textBaseline = "middle";
    this.grid(scene, width, height);
    this.drawn.rows.clear();
    for (const lane of scene.lanes) {
      const y = lane.top + AXIS_PX;
      if (y > bottom || y + lane.height < top) continue;
      if (lane.kind === "steps") this.steps(scene, lane, y, width);
      else if (lane.kind === "lines") this.lines(scene, lane, y, width);
      else if (lane.kind === "slices") this.slices(scene, lane, y, width, top, bottom);
    }
    this.axis(scene, width, top);
    this.marks(scene, width, height, top);
    this.range(scene, width, height, top);
  }

  private grid(scene: Scene, width: number, height: number): void {
    const { view } = scene;
    const ns = view.end - view.start;
    const step = tick(ns, width, tickRoom(width));
    this.context.fillStyle = this.ink.line;
    for (let at = Math.ceil(view.start / step) * step; at < view.end; at += step) {
      const x = Math.round(((at - view.start) / ns) * width);
      this.context.fillRect(x, 0, 1, height);
    }
  }

  /** Draw the time axis over the lanes that have scrolled below it. */
  private axis(scene: Scene, width: number, top: number): void {
    const { view, data } = scene;
    const ns = view.end - view.start;
    const step = tick(ns, width, tickRoom(width));
    this.context.fillStyle = this.ink.page;
    this.context.fillRect(0, top, width, AXIS_PX - 1);
    this.context.fillStyle = this.ink.line;
    this.context.fillRect(0, top + AXIS_PX - 1, width, 1);
    this.context.font = `11px ${this.ink.font}`;
    this.context.fillStyle = this.ink.muted;
    for (let at = Math.ceil(view.start / step) * step; at < view.end; at += step) {
      const x = ((at - view.start) / ns) * width;
      if (x < width - 40) this.context.fillText(time(at, step, data.extent), x + 3, top + AXIS_PX / 2 - 1);
    }
    this.context.font = `12px ${this.ink.font}`;
  }

  private steps(scene: Scene, lane: Placed, y: number, width: number): void {
    const { view } = scene;
    const scale = width / (view.end - view.start);
    let [pixel, counted] = [-1, false];
    for (const step of lane.steps!) {
      if (step.end <= view.start || step.start >= view.end) continue;
      const from = Math.max((step.start - view.start) * scale, 0);
      const to = Math.min((step.end - view.start) * scale, width);
      if (to <= pixel + 1 && step.counted === counted) continue; // of thousands of steps, a dozen may share one pixel
      [pixel, counted] = [Math.floor(from), step.counted];
      const colour = this.colour(scene, "steps", step.counted ? "counted" : "uncounted");
      this.context.fillStyle = colour;
      this.context.fillRect(from, y, Math.max(to - from - (to - from > 3 ? 1 : 0), 1), lane.height);
      if (to - from > TEXT_PX) {
        this.context.fillStyle = readable(colour);
        this.context.fillText(stepLabel(step, to - from - 8), from + 5, y + lane.height / 2 + 0.5);
      }
    }
  }

  private lines(scene: Scene, lane: Placed, y: number, width: number): void {
    const { view, data } = scene;
    const context = this.context;
    const top = topOf(lane.lines!);
    const scale = width / (view.end - view.start);
    context.fillStyle = this.ink.line;
    context.fillRect(0, y + lane.height, width, 1);
    context.save();
    context.beginPath();
    context.rect(0, y, width, lane.height);
    context.clip();
    let sampled = false;
    for (const line of lane.lines!) {
      context.strokeStyle = data.dark ? line.dark : line.light;
      context.lineWidth = 1.5;
      const heightOf = (value: number) => y + lane.height - 1 - (value / top) * (lane.height - 3);
      if (lane.lines!.length === 1) shade(context, line, view, scale, heightOf, y + lane.height);
      context.beginPath();
      sampled = trace(context, line, view, scale, heightOf) || sampled;
      context.stroke();
    }
    context.restore();
    if (sampled) return;
    context.fillStyle = this.ink.muted;
    context.fillText("no sample in view", 4, y + lane.height / 2);
  }

  private slices(scene: Scene, lane: Placed, y: number, width: number, top: number, bottom: number): void {
    const track = scene.data.tracks[lane.track];
    const view = { start: scene.view.start - track.offset, end: scene.view.end - track.offset };
    const level = levelOf((view.end - view.start) / width);
    const pieces = this.tiles.pieces(lane.track, lane.spec!.source, view, level);
    if (lane.spec!.source === "gaps") drawUncounted(this.context, scene, lane, y, width, this.ink);
    this.waiting(pieces, view, y, lane.height, width);
    for (let depth = 0; depth < lane.rows; depth++) {
      const at = y + depth * lane.row;
      if (at > bottom || at + lane.row < top) continue;
      const id = `${lane.id}/${depth}`;
      let columns = this.columns.get(id);
      if (!columns || columns.width !== Math.ceil(width)) this.columns.set(id, (columns = new Columns(Math.ceil(width))));
      columns.read(pieces, view, lane.spec!.lane, depth);
      this.drawn.rows.set(id, columns);
      this.sums(scene, lane, columns, at);
      this.bars(scene, lane, columns, depth, at, width);
    }
  }

  /** Draw a quiet line where tiles are still loading. */
  private waiting(pieces: { start: number; end: number; tile: unknown }[], view: Span, y: number, height: number, width: number): void {
    const scale = width / (view.end - view.start);
    this.context.fillStyle = this.ink.line;
    for (const piece of pieces) {
      if (piece.tile) continue;
      const from = Math.max((piece.start - view.start) * scale, 0);
      this.context.fillRect(from, y + height / 2 - 1, Math.min((piece.end - view.start) * scale, width) - from, 2);
    }
  }

  /** Draw one bar per pixel column; its height is the share of the column's time in which something runs. Equal neighbours are one rectangle. */
  private sums(scene: Scene, lane: Placed, columns: Columns, y: number): void {
    const { fill, kind, width } = columns;
    const room = lane.row - 1;
    const colours = columns.kinds.map((k) => this.colour(scene, lane.spec!.source, k));
    let from = 0;
    let high = 0;
    for (let x = 0; x <= width; x++) {
      const now = x < width && fill[x] > 0 ? Math.max(1, Math.round(Math.min(fill[x], 1) * room)) : 0;
      if (now === high && (!now || kind[x] === kind[from])) continue;
      if (high) {
        this.context.fillStyle = colours[kind[from]];
        this.context.fillRect(from, y + room - high, x - from, high);
      }
      from = x;
      high = now;
    }
  }

  private bars(scene: Scene, lane: Placed, columns: Columns, depth: number, y: number, width: number): void {
    const context = this.context;
    const source = lane.spec!.source;
    const room = lane.row - 1;
    for (const bar of columns.bars) {
      const { tile, slice } = bar;
      const from = Math.max(Math.round(bar.from), 0);
      const to = Math.min(Math.max(Math.round(bar.to), from + 1), width);
      const kind = tile.kinds[tile.kind[slice]];
      const [label, , , mark] = kindOf(scene.data, source, kind);
      const colour = this.colour(scene, source, kind);
      context.globalAlpha = scene.same !== null && tile.name[slice] !== scene.same && source !== "gaps" ? 0.35 : 1;
      context.fillStyle = colour;
      context.fillRect(from, y, Math.max(to - from - (to - from > 3 ? 1 : 0), 1), room);
      const textured = Boolean(mark) && to - from >= TEXTURED_PX;
      if (textured) this.textured(from, y, to - from - 1, room, mark, scene.data.dark);
      const name = source === "gaps" ? lostLabel(label, tile.dur[slice], to - from - 7) : (tile.names.get(tile.name[slice]) ?? label);
      const text = to - from > TEXT_PX ? fit(name, to - from - 7, LETTER, stepName) : "";
      if (text && textured) {
        context.fillStyle = colour;
        context.fillRect(from, y + Math.max(room / 2 - LABEL_PX, 0), context.measureText(text).width + 8, Math.min(2 * LABEL_PX, room));
      }
      if (text) {
        context.fillStyle = readable(colour);
        context.fillText(text, from + 4, y + room / 2 + 0.5);
      }
      context.globalAlpha = 1;
      if (this.isSelected(scene, lane, tile.id[slice], tile.start[slice], depth)) {
        context.strokeStyle = this.ink.text;
        context.lineWidth = 2;
        context.strokeRect(from + 1, y + 1, Math.max(to - from - 3, 1), room - 2);
      }
    }
  }

  private isSelected(scene: Scene, lane: Placed, id: number, start: number, depth: number): boolean {
    const chosen = scene.selected;
    if (!chosen || chosen.track !== lane.track || chosen.source !== lane.spec!.source || chosen.depth !== depth) return false;
    return chosen.lane === lane.spec!.lane && (chosen.source === "gaps" ? chosen.start === start : chosen.id === id);
  }

  private textured(x: number, y: number, width: number, height: number, mark: string, dark: boolean): void {
    const pattern = texture(this.context, mark, dark);
    if (!pattern) return;
    this.context.fillStyle = pattern;
    this.context.fillRect(x, y, width, height);
  }

  private colour(scene: Scene, source: string, kind: string): string {
    return kindOf(scene.data, source, kind)[scene.data.dark ? 2 : 1];
  }

  /** Highlight each place of the open finding, the current one more strongly, and draw a flag at each note of the viewer. */
  private marks(scene: Scene, width: number, height: number, top: number): void {
    const { view } = scene;
    const scale = width / (view.end - view.start);
    scene.marks.forEach((mark, i) => {
      if (mark.end < view.start || mark.start > view.end) return;
      const from = (mark.start - view.start) * scale;
      const to = Math.max((mark.end - view.start) * scale, from + 2);
      this.context.globalAlpha = i === scene.mark ? 0.16 : 0.07;
      this.context.fillStyle = this.ink.accent;
      this.context.fillRect(from, AXIS_PX, to - from, height);
      this.context.globalAlpha = 1;
      this.context.fillRect(from, top + AXIS_PX - 5, Math.max(to - from, 3), i === scene.mark ? 5 : 2);
      if (i === scene.mark) this.pointer((from + to) / 2, height, top);
    });
    this.context.fillStyle = this.ink.text;
    for (const note of scene.data.notes) {
      if (note.end < view.start || note.start > view.end) continue;
      const from = Math.max((note.start - view.start) * scale, 0);
      this.context.fillRect(from, top + AXIS_PX - 3, Math.max(Math.min((note.end - view.start) * scale, width) - from, 3), 2);
      this.context.fillRect(from, top + AXIS_PX - 9, 2, 8);
    }
  }

  /** Draw a pointer above the current place, because microseconds in a whole step would be invisible. */
  private pointer(x: number, height: number, top: number): void {
    this.context.beginPath();
    this.context.moveTo(x - POINTER_PX, top + AXIS_PX - 2 * POINTER_PX);
    this.context.lineTo(x + POINTER_PX, top + AXIS_PX - 2 * POINTER_PX);
    this.context.lineTo(x, top + AXIS_PX);
    this.context.fill();
    this.context.fillRect(Math.round(x), top + AXIS_PX, 1, height);
  }

  private range(scene: Scene, width: number, height: number, top: number): void {
    if (!scene.range) return;
    const scale = width / (scene.view.end - scene.view.start);
    const from = (scene.range.start - scene.view.start) * scale;
    const to = (scene.range.end - scene.view.start) * scale;
    this.context.fillStyle = this.ink.accent;
    this.context.globalAlpha = 0.14;
    this.context.fillRect(from, AXIS_PX, to - from, height);
    this.context.globalAlpha = 1;
    for (const x of [from, to]) this.context.fillRect(Math.round(x), 0, 1, height);
    const words = duration(scene.range.end - scene.range.start);
    const middle = Math.min(Math.max((from + to) / 2 - (words.length * LETTER) / 2, 3), width - 70);
    this.context.fillStyle = this.ink.page;
    this.context.fillRect(middle - 3, top + 1, words.length * LETTER + 6, AXIS_PX - 6);
    this.context.fillStyle = this.ink.accent;
    this.context.fillText(words, middle, top + AXIS_PX / 2 - 1);
  }
}

/** Return the least distance of two ticks in pixels; a phone has room for short labels only. */
function tickRoom(width: number): number {
  return width < PHONE_PX ? 56 : 96;
}

/** Shade the area below a sampled line, so that a constant high value does not look like an empty lane. */
function shade(context: CanvasRenderingContext2D, line: Line, view: Span, scale: number, at: (value: number) => number, bottom: number): void {
  const x = (time: number) => Math.round((time - view.start) * scale);
  context.beginPath();
  for (let i = 1; i < line.times.length; i++) {
    const value = line.values[i];
    if (value === null || line.times[i] < view.start || line.times[i - 1] > view.end) continue;
    context.rect(x(line.times[i - 1]), at(value), x(line.times[i]) - x(line.times[i - 1]), bottom - at(value));
  }
  context.globalAlpha = 0.16;
  context.fillStyle = context.strokeStyle;
  context.fill();
  context.globalAlpha = 1;
}

/** Trace a sampled line; a value counts for the time up to its sample. Return whether any part is in view. */
export function trace(context: Pick<CanvasRenderingContext2D, "moveTo" | "lineTo">, line: Line, view: Span, scale: number, at: (value: number) => number): boolean {
  let before: number | null = null;
  let seen = false;
  for (let i = 0; i < line.times.length; i++) {
    const value = line.values[i];
    const x = (line.times[i] - view.start) * scale;
    const from = i ? (line.times[i - 1] - view.start) * scale : x;
    if (value === null || x < -10) {
      before = value === null ? null : value;
      continue;
    }
    if (before === null) context.moveTo(from, at(value));
    else context.lineTo(from, at(value));
    context.lineTo(x, at(value));
    seen ||= x >= 0 && from < (view.end - view.start) * scale;
    before = value;
    if (from > (view.end - view.start) * scale) break;
  }
  return seen;
}

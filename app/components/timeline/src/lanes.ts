// The positions of lanes: the viewer folds them or pins them to the top. They do not move with time.

import type { LaneSpec, Line, Step, Track } from "./types";

/** Least and largest height of a row: a finger or a label needs the least one; few lanes share the room up to the largest. */
export const ROW_PX = 24;
export const MAX_ROW_PX = 64;
const SIZED_PX = [12, 200] as const; // heights to which a viewer can drag a row
const LOST_PX = 10; // the row of lost time is this much higher than others, because it matters most
const LINE_PX = 15; // height of a line's name beside the panel; the panel's range is below the names
const GAP_PX = 4;

/** A lane with its position: `rows` rows of `row` pixels each, from `top` downwards. */
export interface Placed {
  kind: "steps" | "lines" | "slices" | "track" | "quiet";
  id: string;
  label: string;
  track: number;
  top: number;
  height: number;
  row: number;
  rows: number;
  spec?: LaneSpec;
  lines?: Line[];
  /** How many lines of telemetry are folded away. */
  more?: number;
  steps?: Step[];
  folds: boolean;
  folded: boolean;
  pinned: boolean;
}

/** How many rows of an open lane have content, by the lane's id; see rows.ts. */
export type Needed = ReadonlyMap<string, number>;

/** The viewer's changes to lanes, which the address contains. */
export class LaneChoice {
  readonly changed = new Set<string>();
  readonly pinned: string[] = [];
  /** Heights of a row in pixels, of the lanes that the viewer has resized. */
  readonly sized = new Map<string, number>();

  /** Read the changes from the address. */
  read(text: string | undefined): void {
    this.changed.clear();
    this.pinned.length = 0;
    this.sized.clear();
    for (const part of (text ?? "").split(",").filter(Boolean)) {
      if (part.startsWith("!")) this.pinned.push(part.slice(1));
      else if (part.includes("~")) this.size(part.slice(0, part.lastIndexOf("~")), Number(part.slice(part.lastIndexOf("~") + 1)));
      else this.changed.add(part);
    }
  }

  toString(): string {
    return [...this.changed, ...this.pinned.map((id) => `!${id}`), ...[...this.sized].map(([id, px]) => `${id}~${px}`)].join(",");
  }

  /** Set the height of a lane's rows; null means the height that fits the window. */
  size(id: string, px: number | null): void {
    if (px === null) this.sized.delete(id);
    else if (Number.isFinite(px)) this.sized.set(id, Math.round(Math.min(Math.max(px, SIZED_PX[0]), SIZED_PX[1])));
  }

  fold(id: string): void {
    if (!this.changed.delete(id)) this.changed.add(id);
  }

  pin(id: string): void {
    const at = this.pinned.indexOf(id);
    if (at >= 0) this.pinned.splice(at, 1);
    else this.pinned.push(id);
  }
}

/** Return the largest height of a row with which all lanes fit into `room` pixels, else the least height. */
export function rowFor(room: number, height: (row: number) => number): number {
  for (let row = MAX_ROW_PX; row > ROW_PX; row--) if (height(row) <= room) return row;
  return ROW_PX;
}

/** Return every lane with its position, pinned lanes first, and the height of all. A row that was not resized has `row` pixels. */
export function placed(tracks: Track[], steps: Step[], lines: Line[], choice: LaneChoice, needed: Needed = new Map(), row = ROW_PX): { lanes: Placed[]; height: number } {
  const lanes: Placed[] = [];
  if (tracks[0].mark) lanes.push(head(tracks[0], 0)); // all lanes below, with telemetry, belong to this run
  const mark = tracks[0].mark ? `${tracks[0].mark} · ` : "";
  if (steps.length) lanes.push({ ...single("steps", "steps", `${mark}Steps`, ROW_PX), steps });
  const panels: Placed[] = [];
  const units = [...new Set(lines.map((line) => line.unit))];
  const open = choice.changed.has(`lines-${units[0]}`);
  for (const unit of units) {
    const [id, of] = [`lines-${unit}`, lines.filter((line) => line.unit === unit)];
    const first = unit === units[0];
    if (!first && !open && !choice.pinned.includes(id)) continue;
    const shown = first && !open ? of.slice(0, 1) : of;
    const lane = single("lines", id, of.map((l) => l.label).join(", "), Math.max(LINE_PX * (shown.length + 1), row + LOST_PX));
    panels.push({ ...lane, lines: shown, folds: first && lines.length > 1, folded: !open, more: first && !open ? lines.length - 1 : 0 });
  }
  tracks.forEach((track, t) => {
    if (tracks.length > 1 && !(t === 0 && track.mark)) lanes.push(head(track, t));
    if (track.steps?.length) lanes.push({ ...single("steps", `steps-${t}`, `${track.mark} · Steps`, ROW_PX), track: t, steps: track.steps });
    const own = track.lanes.filter((spec) => !spec.quiet).map((spec) => slices(spec, t, tracks.length > 1, choice, needed, row));
    const host = own.findIndex((lane) => lane.spec!.source !== "gaps" && lane.spec!.source !== "gpu");
    if (t === 0) own.splice(host < 0 ? own.length : host, 0, ...panels); // telemetry of the GPU is below its streams
    lanes.push(...own, ...quietOnes(track, t, tracks.length > 1, choice, needed, row));
  });
  for (const lane of lanes) {
    lane.pinned = choice.pinned.includes(lane.id);
    resize(lane, choice.sized.get(lane.id));
  }
  const order = [...lanes.filter((lane) => lane.pinned), ...lanes.filter((lane) => !lane.pinned)];
  let top = 0;
  for (const lane of order) {
    lane.top = top;
    top += lane.height + GAP_PX;
  }
  return { lanes: order, height: top };
}

/** Return the id of the row that hides the quiet threads of a track. */
export function quietId(t: number, several: boolean): string {
  return several ? `${t}.quiet` : "quiet";
}

/** Return the row that counts the quiet threads of a track and, if it is open, their lanes. */
function quietOnes(track: Track, t: number, several: boolean, choice: LaneChoice, needed: Needed, height: number): Placed[] {
  const specs = track.lanes.filter((spec) => spec.quiet);
  if (!specs.length) return [];
  const threads = new Set(specs.map((spec) => spec.lane)).size;
  const id = quietId(t, several);
  const open = choice.changed.has(id);
  const row: Placed = { ...single("quiet", id, `${threads} quiet thread${threads > 1 ? "s" : ""}`, ROW_PX), track: t, folds: true, folded: !open };
  return open ? [row, ...specs.map((spec) => slices(spec, t, several, choice, needed, height))] : [row];
}

/** Return the value at the top of a panel of lines. */
export function topOf(lines: Line[]): number {
  return Math.max(...lines.map((line) => line.top ?? Math.max(...line.values.map((v) => v ?? 0)))) || 1;
}

function resize(lane: Placed, px: number | undefined): void {
  if (px === undefined) return;
  lane.row = px;
  lane.height = px * lane.rows;
}

function head(track: Track, t: number): Placed {
  return { ...single("track", `track-${t}`, track.label, ROW_PX), track: t };
}

function single(kind: Placed["kind"], id: string, label: string, height: number): Placed {
  return { kind, id, label, track: 0, top: 0, height, row: height, rows: 1, folds: false, folded: false, pinned: false };
}

function slices(spec: LaneSpec, track: number, several: boolean, choice: LaneChoice, needed: Needed, height: number): Placed {
  const id = several ? `${track}.${spec.id}` : spec.id;
  const folds = spec.rows > 1 || spec.source === "python";
  const folded = folds && Boolean(spec.folded) !== choice.changed.has(id);
  const rows = folded ? 1 : Math.min(needed.get(id) ?? spec.rows, spec.rows);
  const row = spec.source === "gaps" ? Math.min(height + LOST_PX, MAX_ROW_PX) : height;
  return { kind: "slices", id, label: spec.label, track, top: 0, height: rows * row, row, rows, spec, folds, folded, pinned: false };
}

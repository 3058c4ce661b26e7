// Where lanes lie: they fold and are pinned to the top, and stay where they are while time moves.

import type { LaneSpec, Line, Step, Track } from "./types";

export const ROW_PX = 18;
export const NESTED_PX = 15;
export const LOST_PX = 26; // what a reader comes for is larger than the rest
const LINE_PX = 15; // a line of telemetry has its name beside it, and under the names what the panel's height is
const GAP_PX = 6;
const HEAD_PX = 22;

/** A lane in its place. `rows` of `row` pixels each follow each other from `top` on. */
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
  steps?: Step[];
  folds: boolean;
  folded: boolean;
  pinned: boolean;
}

/** How many rows of an open lane there is something to see in, by its id: see rows.ts. */
export type Needed = ReadonlyMap<string, number>;

/** What a reader has changed about lanes; the address holds it. */
export class LaneChoice {
  readonly changed = new Set<string>();
  readonly pinned: string[] = [];

  /** Read what the address holds. */
  read(text: string | undefined): void {
    this.changed.clear();
    this.pinned.length = 0;
    for (const part of (text ?? "").split(",").filter(Boolean)) {
      if (part.startsWith("!")) this.pinned.push(part.slice(1));
      else this.changed.add(part);
    }
  }

  toString(): string {
    return [...this.changed, ...this.pinned.map((id) => `!${id}`)].join(",");
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

/** Return every lane in its place, pinned ones first, and the height of all. */
export function placed(tracks: Track[], steps: Step[], lines: Line[], choice: LaneChoice, needed: Needed = new Map()): { lanes: Placed[]; height: number } {
  const lanes: Placed[] = [];
  if (tracks[0].mark) lanes.push(head(tracks[0], 0)); // all that follows, telemetry too, is of this run
  const mark = tracks[0].mark ? `${tracks[0].mark} · ` : "";
  if (steps.length) lanes.push({ ...single("steps", "steps", `${mark}Steps`, ROW_PX + 2), steps });
  const panels: Placed[] = [];
  const units = [...new Set(lines.map((line) => line.unit))];
  for (const unit of units) {
    const of = lines.filter((line) => line.unit === unit);
    panels.push({ ...single("lines", `lines-${unit}`, of.map((l) => l.label).join(", "), LINE_PX * (of.length + 1)), lines: of });
  }
  tracks.forEach((track, t) => {
    if (tracks.length > 1 && !(t === 0 && track.mark)) lanes.push(head(track, t));
    if (track.steps?.length) lanes.push({ ...single("steps", `steps-${t}`, `${track.mark} · Steps`, ROW_PX + 2), track: t, steps: track.steps });
    const own = track.lanes.filter((spec) => !spec.quiet).map((spec) => slices(spec, t, tracks.length > 1, choice, needed));
    const host = own.findIndex((lane) => lane.spec!.source !== "gaps" && lane.spec!.source !== "gpu");
    if (t === 0) own.splice(host < 0 ? own.length : host, 0, ...panels); // telemetry is the GPU's: under what it did
    lanes.push(...own, ...quietOnes(track, t, tracks.length > 1, choice, needed));
  });
  for (const lane of lanes) lane.pinned = choice.pinned.includes(lane.id);
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

/** Return the row that counts the threads of a track that do almost nothing, and under it, once it is open, their lanes. */
function quietOnes(track: Track, t: number, several: boolean, choice: LaneChoice, needed: Needed): Placed[] {
  const specs = track.lanes.filter((spec) => spec.quiet);
  if (!specs.length) return [];
  const threads = new Set(specs.map((spec) => spec.lane)).size;
  const id = quietId(t, several);
  const open = choice.changed.has(id);
  const row: Placed = { ...single("quiet", id, `${threads} quiet thread${threads > 1 ? "s" : ""}`, ROW_PX), track: t, folds: true, folded: !open };
  return open ? [row, ...specs.map((spec) => slices(spec, t, several, choice, needed))] : [row];
}

/** Return the value at the top of a panel of lines. */
export function topOf(lines: Line[]): number {
  return Math.max(...lines.map((line) => line.top ?? Math.max(...line.values.map((v) => v ?? 0)))) || 1;
}

function head(track: Track, t: number): Placed {
  return { ...single("track", `track-${t}`, track.label, HEAD_PX), track: t };
}

function single(kind: Placed["kind"], id: string, label: string, height: number): Placed {
  return { kind, id, label, track: 0, top: 0, height, row: height, rows: 1, folds: false, folded: false, pinned: false };
}

function slices(spec: LaneSpec, track: number, several: boolean, choice: LaneChoice, needed: Needed): Placed {
  const id = several ? `${track}.${spec.id}` : spec.id;
  const folds = spec.rows > 1 || spec.source === "python";
  const folded = folds && Boolean(spec.folded) !== choice.changed.has(id);
  const rows = folded ? 1 : Math.min(needed.get(id) ?? spec.rows, spec.rows);
  const row = spec.source === "gaps" ? LOST_PX : spec.rows > 1 ? NESTED_PX : ROW_PX;
  return { kind: "slices", id, label: spec.label, track, top: 0, height: rows * row, row, rows, spec, folds, folded, pinned: false };
}

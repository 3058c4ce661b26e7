// What the page hands to the timeline, and what the pieces of the timeline hand to each other. Times are ns after the recording's start.

/** A kind of slice: its label, its colour on a light and on a dark page, and the texture of wide pieces ("" for none). */
export type Kind = [label: string, light: string, dark: string, texture: string];

/** A lane: where its slices come from, how it is called, how many rows it has when open. */
export interface LaneSpec {
  id: string;
  source: string;
  lane: number;
  label: string;
  rows: number;
  folded?: boolean;
  /** Of a thread that does almost nothing: hidden behind a row that counts such threads. */
  quiet?: boolean;
}

/** One device of one recording, with its lanes. `offset` is added to its times: ranks, and two runs, stand on one clock. */
export interface Track {
  /** The address of its run: what is asked of this track is asked there. */
  api: string;
  recording: string;
  device: number;
  label: string;
  offset: number;
  lanes: LaneSpec[];
  /** "A" or "B" where two runs are in the picture. */
  mark?: string;
  /** Of a second run: its steps. The first one's are the page's. */
  steps?: Step[];
}

export interface Step {
  start: number;
  end: number;
  name: string;
  counted: boolean;
}

/** A line of telemetry: a value holds for the time up to its own. A null breaks the line. */
export interface Line {
  label: string;
  unit: string;
  light: string;
  dark: string;
  top: number | null;
  times: number[];
  values: (number | null)[];
}

/** A place that a finding names. */
export interface Mark {
  start: number;
  end: number;
}

/** What somebody wrote about a place. */
export interface Note extends Mark {
  text: string;
}

export interface Finding {
  rule: string;
  action: string;
  title: string;
  gain: string;
  fix: string;
  marks: Mark[];
}

/** A rank's counted steps: start and end on the picture's clock, ms that it works and that it waits for others, by how much it works longer than the median rank. */
export interface HeatRow {
  track: number;
  label: string;
  steps: [start: number, end: number, own: number, wait: number, late: number, name: string][];
}

/** The run's own step and the profiled one, in ms and in words. */
export interface Scale {
  run: number;
  profiled: number;
  words: [run: string, profiled: string];
  sentence: string;
}

export interface PageData {
  heat: HeatRow[];
  scale: Scale | null;
  dark: boolean;
  extent: number;
  tracks: Track[];
  steps: Step[];
  lines: Line[];
  kinds: Record<string, Record<string, Kind>>;
  findings: Finding[];
  notes: Note[];
  /** The slice of the row that was chosen last in the page's tables; `turn` counts choices. */
  visit: { slice: string; turn: number } | null;
  /** The address as it was when the page was made. */
  place: Place;
}

/** What the address holds. `t0` and `t1` are ms; a slice is track:source:id. */
export interface Place {
  t0?: string;
  t1?: string;
  slice?: string;
  finding?: string;
  find?: string;
  lanes?: string;
}

export interface Span {
  start: number;
  end: number;
}

/** A place on the canvas, in pixels. */
export interface Point {
  x: number;
  y: number;
}

/** A slice that is chosen or under the pointer. `id` is that of its source's table; pieces of lost time have none. */
export interface Slice extends Span {
  track: number;
  source: string;
  lane: number;
  depth: number;
  kind: string;
  id: number;
  name: string;
}

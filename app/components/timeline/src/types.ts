// The data that the page sends to the timeline, and that its parts exchange. Times are ns after the recording's start.

/** A kind of slice: its label, its colours on a light and on a dark page, and the texture of wide pieces ("" for none). */
export type Kind = [label: string, light: string, dark: string, texture: string];

/** A lane: the source of its slices, its name, and its number of rows when it is open. */
export interface LaneSpec {
  id: string;
  source: string;
  lane: number;
  label: string;
  rows: number;
  folded?: boolean;
  /** Whether the thread does almost nothing. Such threads are hidden behind a row that counts them. */
  quiet?: boolean;
}

/** One device of one recording, with its lanes. `offset` is added to its times, so that ranks and two runs share one clock. */
export interface Track {
  /** The address of the run's API, for requests about this track. */
  api: string;
  recording: string;
  device: number;
  label: string;
  offset: number;
  lanes: LaneSpec[];
  /** "A" or "B" if two runs are shown. */
  mark?: string;
  /** The steps of a second run; those of the first one are in the page's data. */
  steps?: Step[];
}

export interface Step {
  start: number;
  end: number;
  name: string;
  counted: boolean;
}

/** A line of telemetry: a value counts for the time up to its sample. A null breaks the line. */
export interface Line {
  label: string;
  unit: string;
  light: string;
  dark: string;
  top: number | null;
  times: number[];
  values: (number | null)[];
}

/** A place of a finding. */
export interface Mark {
  start: number;
  end: number;
}

/** A viewer's note on a place. */
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

/** A rank's counted steps: start and end on the timeline's clock, the ms that it works and waits for others, and how much longer it works than the median rank. */
export interface HeatRow {
  track: number;
  label: string;
  steps: [start: number, end: number, own: number, wait: number, late: number, name: string][];
}

/** The run's step and the profiled step, in ms and as text. */
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
  /** The slice of the row that was last selected in the page's tables; `turn` counts selections. */
  visit: { slice: string; turn: number } | null;
  /** The place in the address when the page was built. */
  place: Place;
}

/** The place in the address. `t0` and `t1` are ms; a slice is track:source:id. */
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

/** A slice that is selected or under the pointer. `id` is from the table of its source; lost time has none. */
export interface Slice extends Span {
  track: number;
  source: string;
  lane: number;
  depth: number;
  kind: string;
  id: number;
  name: string;
}

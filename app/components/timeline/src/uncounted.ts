// Marks the time outside the counted steps, where an empty lane of lost time would look like useful time.

import type { Scene } from "./draw";
import { LETTER } from "./labels";
import type { Placed } from "./lanes";
import type { Ink } from "./paint";
import type { PageData, Span, Step } from "./types";

const WORDS = ["not counted: no cause analysis here", "not counted"];

/** Draw a line and, if there is room, a text where a lane of lost time is outside the counted steps. */
export function drawUncounted(context: CanvasRenderingContext2D, scene: Scene, lane: Placed, y: number, width: number, ink: Ink): void {
  const { view, data } = scene;
  const scale = width / (view.end - view.start);
  for (const span of uncounted(data, lane.track)) {
    if (span.end <= view.start || span.start >= view.end) continue;
    const from = Math.max((span.start - view.start) * scale, 0);
    const room = Math.min((span.end - view.start) * scale, width) - from;
    if (room < 2) continue;
    context.fillStyle = ink.line;
    context.fillRect(from, y + lane.height - 4, room - 1, 3);
    const text = WORDS.find((words) => words.length * LETTER <= room - 8);
    context.fillStyle = ink.muted;
    if (text) context.fillText(text, from + 4, y + lane.height / 2 - 1);
  }
}

const spans = new WeakMap<Step[], Span[]>();

/** Return the time ranges of a track outside its counted steps. The result is empty if no step counts, because the whole recording is then analysed for causes. */
export function uncounted(data: PageData, track: number): Span[] {
  const steps = track ? data.tracks[track].steps : data.steps;
  if (!steps) return [];
  let found = spans.get(steps);
  if (!found) spans.set(steps, (found = outside(data, steps)));
  return found;
}

function outside(data: PageData, steps: Step[]): Span[] {
  const counted = steps.filter((step) => step.counted);
  if (!counted.length) return [];
  const found: Span[] = [];
  let from = 0;
  for (const step of counted) {
    if (step.start > from) found.push({ start: from, end: step.start });
    from = Math.max(from, step.end);
  }
  return from < data.extent ? [...found, { start: from, end: data.extent }] : found;
}

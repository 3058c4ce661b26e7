// What stands inside steps and pieces of lost time.

import { duration } from "./format";
import { fit } from "./paint";
import type { Step } from "./types";

export const LETTER = 6.1; // width of a letter of 11 px, about
const DIGIT = 5.7; // and of a digit: a length fits where a name as long does not
const CAUSE_LETTERS = 8; // fewer of a cause do not name it

/** Return the most that fits of a step's name and length, the length before the name: "ProfilerStep#7 · 753 ms", "#7 · 753 ms", "753 ms", and that it does not count. */
export function stepLabel(step: Step, room: number): string {
  const length = duration(step.end - step.start);
  const short = step.name.replace(/ \(not counted:.*/, "").replace(/^ProfilerStep/, "");
  const not = step.counted ? [] : [`${short} (not counted) · ${length}`, `${short}, not counted`];
  const labels = [`${step.name} · ${length}`, ...not, `${short} · ${length}`, length];
  return labels.find((label) => label.length * LETTER <= room) ?? (length.length * DIGIT <= room ? length : fit(short, room, LETTER));
}

/** Return a cause with how long it lasted where both fit, else the cause; nothing where a few of its letters would be all. */
export function lostLabel(label: string, ns: number, room: number): string {
  const whole = `${label} · ${duration(ns)}`;
  if (whole.length * LETTER <= room) return whole;
  return room >= Math.min(label.length, CAUSE_LETTERS) * LETTER ? label : "";
}

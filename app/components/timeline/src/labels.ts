// Texts inside steps and pieces of lost time.

import { duration } from "./format";
import type { Step } from "./types";

export const LETTER = 6.6; // approximate width of a letter at 12 px
const DIGIT = 6.2; // approximate width of a digit, which is narrower
const STEP_PREFIX = /^(ProfilerStep(?=#\d)|Optimizer\.step#\w+\.step (?=\d))/; // the names that the profiler and PyTorch give to steps

/** Return a step's short name: #7 for "ProfilerStep#7" and "Optimizer.step#Adam.step 7"; other names are unchanged. */
export function stepName(name: string): string {
  return STEP_PREFIX.test(name) ? `#${name.replace(STEP_PREFIX, "").replace("#", "")}` : name;
}

/** Return the longest text that fits: "#7 · 753 ms", "#7" or "753 ms", and whether the step does not count. A name is never cut. */
export function stepLabel(step: Step, room: number): string {
  const length = duration(step.end - step.start);
  const short = stepName(step.name.replace(/ \(not counted:.*/, ""));
  const not = step.counted ? [] : [`${short} (not counted) · ${length}`, `${short}, not counted`];
  const labels = [...not, `${short} · ${length}`, short];
  return labels.find((label) => label.length * LETTER <= room) ?? [short, length].find((label) => label.length * DIGIT <= room) ?? "";
}

/** Return the cause and the duration if both fit, else the cause, else the duration; the colour shows the cause too. */
export function lostLabel(label: string, ns: number, room: number): string {
  return [`${label} · ${duration(ns)}`, label, duration(ns)].find((text) => text.length * LETTER <= room) ?? "";
}

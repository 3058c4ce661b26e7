// What stands inside steps and pieces of lost time.

import { duration } from "./format";
import type { Step } from "./types";

export const LETTER = 6.6; // width of a letter of 12 px, about
const DIGIT = 6.2; // and of a digit: a length fits where a name as long does not
const STEP_PREFIX = /^(ProfilerStep(?=#\d)|Optimizer\.step#\w+\.step (?=\d))/; // what the profiler and PyTorch call each step

/** Return a step's name without what all steps are called: "ProfilerStep#7" and "Optimizer.step#Adam.step 7" are #7; other names as they are. */
export function stepName(name: string): string {
  return STEP_PREFIX.test(name) ? `#${name.replace(STEP_PREFIX, "").replace("#", "")}` : name;
}

/** Return the most that fits of a step's short name and length, the length before the name: "#7 · 753 ms", "753 ms", "#7", and that it does not count; a part of a name is none. */
export function stepLabel(step: Step, room: number): string {
  const length = duration(step.end - step.start);
  const short = stepName(step.name.replace(/ \(not counted:.*/, ""));
  const not = step.counted ? [] : [`${short} (not counted) · ${length}`, `${short}, not counted`];
  const labels = [...not, `${short} · ${length}`, length];
  return labels.find((label) => label.length * LETTER <= room) ?? [length, short].find((label) => label.length * DIGIT <= room) ?? "";
}

/** Return a cause with how long it lasted where both fit, else the cause, else how long; its colour names it too. */
export function lostLabel(label: string, ns: number, room: number): string {
  return [`${label} · ${duration(ns)}`, label, duration(ns)].find((text) => text.length * LETTER <= room) ?? "";
}

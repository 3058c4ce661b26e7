// Decodes steps. The page sends thousands of them, so names are runs of numbers and times are differences.

import type { Step } from "./types";

/** `times` has two numbers per step: the ns from the end of the previous step (or 0), and its length. A run of names has a count, the text, the first
 * number (the others follow it) or null, and why the steps do not count or null. */
export interface SentSteps {
  times: string;
  names: [many: number, text: string, number: number | null, why: string | null][];
}

/** Return the steps with `offset` added to their times. */
export function stepsOf(sent: SentSteps, offset = 0): Step[] {
  const times = sent.times.split(" ").map(Number);
  const steps: Step[] = [];
  let end = offset;
  for (const [many, text, number, why] of sent.names) {
    for (let i = 0; i < many; i++) {
      const start = end + times[2 * steps.length];
      end = start + times[2 * steps.length + 1];
      const name = `${text}${number === null ? "" : number + i}`;
      steps.push({ start, end, name: why ? `${name} (not counted: ${why})` : name, counted: why === null });
    }
  }
  return steps;
}

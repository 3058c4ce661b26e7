// Steps as the page sends them: thousands are there by the kilobyte, so their names come as runs of numbers and their times as differences.

import type { Step } from "./types";

/** `times` holds of each step the ns from the end of the one before it (or 0) and its own length. A run of names is how many there are, their text, the number
 * behind the first one's (the next have the next numbers), and why they do not count; null where there is no number, and where they count. */
export interface SentSteps {
  times: string;
  names: [many: number, text: string, number: number | null, why: string | null][];
}

/** Read steps, `offset` added to their times. */
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

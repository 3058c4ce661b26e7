// The buttons above the lanes, and the list of steps.

import type { Picture } from "./picture";
import { around } from "./view";

/** Connect the toolbar. `forget` removes the way back, because the whole recording is its beginning. */
export function showToolbar(picture: Picture, forget: () => void): void {
  const { root, data } = picture;
  const on = (name: string, act: () => void) => {
    root.querySelector<HTMLButtonElement>(`.${name}`)!.onclick = act;
  };
  const scaled = (factor: number) => picture.go(around(picture.target, factor, data.extent), false, true);
  const shifted = (share: number) => {
    const by = (picture.target.end - picture.target.start) * share;
    picture.go({ start: picture.target.start + by, end: picture.target.end + by }, false, true);
  };
  on("whole", () => { picture.go({ start: 0, end: data.extent }, true); forget(); });
  on("in", () => scaled(0.4));
  on("out", () => scaled(2.5));
  on("earlier", () => shifted(-0.5));
  on("later", () => shifted(0.5));
  root.querySelector<HTMLButtonElement>(".longest")!.hidden = !data.tracks[0].lanes.some((lane) => lane.source === "gaps");
  on("longest", () => void picture.losses.next());
  const steps = root.querySelector<HTMLSelectElement>(".step")!;
  steps.hidden = !data.steps.length;
  steps.replaceChildren(new Option("Go to step", ""));
  steps.onfocus = steps.onpointerdown = () => {
    if (steps.length < 2) steps.append(...data.steps.map((step, i) => new Option(step.name, String(i)))); // added on demand: thousands of them take as long as the first frame
  };
  steps.onchange = () => {
    const step = data.steps[Number(steps.value)];
    if (steps.value && step) picture.go(around(step, 1.06, data.extent), true);
    steps.value = "";
  };
}

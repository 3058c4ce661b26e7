// Around the lanes: the heat map of ranks and steps, and the run's step beside the profiled one.

import { button, element } from "./dom";
import { duration } from "./format";
import type { Picture } from "./picture";
import type { PageData } from "./types";
import { around } from "./view";

const ROOM = 1.06; // a step is shown with this many times its own length
const WORDED = 96; // up to this number of squares, each shows its number
const WORDED_STEPS = 12;
const [FAINT, STRONG] = [6, 44]; // % of the colour in a square; text is readable even on the strongest
const NAMED_ROWS = 8; // with more rows, only the first and the last one have a name
const LEAST = 0.02; // share of the longest step; smaller values have no text

/** Draw the heat map. A square is stronger, the longer a rank works than the others in a step, or waits for them. */
export function showHeat(place: HTMLElement, picture: Picture): void {
  const { heat, kinds, dark } = picture.data;
  place.hidden = !heat.length;
  if (!heat.length) return;
  const [late, waits] = [kinds.page.accent, kinds.gaps.comm_wait].map((kind) => kind[dark ? 2 : 1]);
  const longest = Math.max(...heat.flatMap((row) => row.steps.map((step) => step[2] + step[3])));
  const most = Math.max(...heat.flatMap((row) => row.steps.map((step) => Math.max(step[3], step[4]))), LEAST * longest);
  const squares = heat.reduce((sum, row) => sum + row.steps.length, 0);
  const worded = squares <= WORDED && heat[0].steps.length <= WORDED_STEPS && heat.length <= NAMED_ROWS;
  place.classList.toggle("worded", worded);
  place.classList.toggle("dense", heat.length > NAMED_ROWS);
  const rows = heat.map((row, i) => element("div", { class: "row" },
    element("span", { class: "name" }, heat.length <= NAMED_ROWS || i === 0 || i === heat.length - 1 ? row.label.split(" ·")[0] : ""),
    element("span", { class: "squares" }, ...row.steps.map(([start, end, own, wait, over, name]) => {
      const isLate = over >= wait;
      const [value, colour] = isLate ? [over, late] : [wait, waits];
      const said = value < LEAST * longest ? "" : isLate ? `+${duration(value * 1e6)}` : `waits ${duration(value * 1e6)}`;
      const strength = FAINT + (STRONG - FAINT) * Math.min(value / most, 1);
      // The name repeats the text of the square, so that voice control can use it.
      const words = `${row.label}, ${name}: ${duration(own * 1e6)} by itself${over ? `, +${duration(over * 1e6)} against the median rank` : ""}, waits ${duration(wait * 1e6)}`;
      return button(worded ? said : "", () => picture.fly(row.track, around({ start, end }, ROOM, picture.data.extent)), {
        title: words, "aria-label": words, style: `background:color-mix(in srgb, ${colour} ${strength.toFixed(0)}%, transparent)`,
        ...(worded ? {} : { tabindex: "-1" }),
      });
    }))));
  const key = (colour: string, label: string) => element("span", {}, element("i", { class: "swatch", style: `background:${colour}` }), label);
  place.replaceChildren(
    element("div", { class: "row keys" }, element("span", { class: "name" }, "Ranks and steps"),
      element("span", {}, key(late, "works longer than the median rank"), key(waits, "waits for others"), "Select a square to go there.")),
    ...rows);
}

/** Show both steps as bars on one scale, and what the profiler adds. */
export function showScale(place: HTMLElement, { scale, kinds, dark }: PageData): void {
  place.hidden = !scale;
  if (!scale) return;
  const longest = Math.max(scale.run, scale.profiled);
  const colour = (kind: "counted" | "uncounted") => kinds.steps[kind][dark ? 2 : 1];
  const bar = (label: string, ms: number, words: string, kind: "counted" | "uncounted") => element("div", {},
    element("span", {}, label),
    element("span", { class: "track" },
      element("i", { style: `width:${(100 * Math.min(ms, scale.run)) / longest}%;background:${colour(kind)}` }),
      ms > scale.run ? element("i", { class: "added", style: `width:${(100 * (ms - scale.run)) / longest}%` }) : null),
    element("b", {}, words));
  place.replaceChildren(
    bar("run", scale.run, scale.words[0], "counted"), bar("profile, mean", scale.profiled, scale.words[1], "uncounted"),
    element("p", {}, scale.sentence));
}

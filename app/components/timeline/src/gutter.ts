// The names of lanes beside the picture: they fold and pin them.

import { element } from "./dom";
import { AXIS_PX } from "./draw";
import { topOf, type LaneChoice, type Placed } from "./lanes";

export class Gutter {
  constructor(
    private readonly place: HTMLElement,
    private readonly choice: LaneChoice,
    private readonly dark: boolean,
    private readonly changed: () => void,
  ) {}

  show(lanes: Placed[], height: number): void {
    const held = (document.activeElement?.shadowRoot?.activeElement ?? document.activeElement)?.getAttribute("data-key");
    this.place.style.height = `${height}px`;
    this.place.replaceChildren(...lanes.map((lane) => this.name(lane)));
    if (held) this.place.querySelector<HTMLElement>(`[data-key="${CSS.escape(held)}"]`)?.focus();
  }

  private name(lane: Placed): HTMLElement {
    const row = document.createElement("div");
    row.style.top = `${lane.top + AXIS_PX}px`;
    row.style.height = `${lane.height + 2}px`;
    if (lane.kind === "track") row.className = "track";
    const name = document.createElement("span");
    name.className = "name";
    name.title = lane.label;
    if (lane.lines) name.append(...lane.lines.map((line) => element("span", { class: "line" }, element("span", { class: "swatch", style: `background:${this.dark ? line.dark : line.light}` }), line.label)), element("span", { class: "line scale" }, `0 to ${Math.round(topOf(lane.lines))} ${lane.lines[0].unit}`));
    else name.append(lane.label);
    if (lane.height < 30) name.classList.add("one");
    if (lane.folds) row.append(this.button(lane, "fold", lane.folded ? "▶" : "▼", !lane.folded, `${lane.label}: all rows`));
    row.append(name);
    if (lane.kind !== "track" && lane.kind !== "quiet") row.append(this.button(lane, "pin", "⌃", lane.pinned, `${lane.label}: keep at the top`));
    return row;
  }

  private button(lane: Placed, what: "fold" | "pin", sign: string, pressed: boolean, label: string): HTMLElement {
    const button = document.createElement("button");
    button.className = what;
    button.textContent = sign;
    button.title = what === "pin" ? (pressed ? "Unpin" : "Keep at the top") : pressed ? "Fold" : "Show all rows";
    button.setAttribute("data-key", `${what} ${lane.id}`);
    button.setAttribute("aria-label", label);
    button.setAttribute(what === "pin" ? "aria-pressed" : "aria-expanded", String(pressed));
    button.onclick = () => {
      this.choice[what](lane.id);
      this.changed();
    };
    return button;
  }
}

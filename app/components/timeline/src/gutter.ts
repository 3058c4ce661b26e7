// The names of lanes, with buttons that fold and pin them.

import { element } from "./dom";
import { AXIS_PX } from "./draw";
import { topOf, type LaneChoice, type Placed } from "./lanes";

const LINES_PX = 30; // in a lower lane, the names are on one line

export class Gutter {
  constructor(
    private readonly place: HTMLElement,
    private readonly choice: LaneChoice,
    private readonly dark: boolean,
    private readonly changed: () => void,
  ) {}

  show(lanes: Placed[], height: number): void {
    const focused = (document.activeElement?.shadowRoot?.activeElement ?? document.activeElement)?.getAttribute("data-key");
    this.place.style.height = `${height}px`;
    this.place.replaceChildren(element("div", { class: "corner" }), ...lanes.map((lane) => this.name(lane)));
    if (focused) this.place.querySelector<HTMLElement>(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  private name(lane: Placed): HTMLElement {
    const row = document.createElement("div");
    row.style.top = `${lane.top + AXIS_PX}px`;
    row.style.height = `${lane.height + 2}px`;
    if (lane.kind === "track") row.className = "track";
    const name = document.createElement("span");
    name.className = "name";
    name.title = lane.label;
    if (lane.lines) name.append(...lane.lines.map((line) => element("span", { class: "line" }, element("span", { class: "swatch", style: `background:${this.dark ? line.dark : line.light}` }), `${line.label}${lane.more ? ` +${lane.more}` : ""}`)), element("span", { class: "line scale" }, `0 to ${Math.round(topOf(lane.lines))} ${lane.lines[0].unit}`));
    else name.append(lane.label);
    if (lane.height < LINES_PX) name.classList.add("one");
    if (lane.folds) row.append(this.button(lane, "fold", lane.folded ? "▶" : "▼", !lane.folded, `${lane.label}: all rows`));
    row.append(name);
    if (lane.kind !== "track" && lane.kind !== "quiet") row.append(this.button(lane, "pin", "⌃", lane.pinned, `${lane.label}: keep at the top`));
    if (lane.kind === "slices" || lane.kind === "lines") row.append(this.edge(lane));
    return row;
  }

  /** Return the lower edge of a lane. Dragging it changes the height of the lane's rows; a double click undoes that. */
  private edge(lane: Placed): HTMLElement {
    const edge = element("i", { class: "edge", title: "Drag to resize; double-click to restore" });
    edge.onpointerdown = (begin) => {
      begin.preventDefault();
      const move = (event: PointerEvent) => {
        this.choice.size(lane.id, lane.row + (event.clientY - begin.clientY) / lane.rows);
        this.changed();
      };
      const end = () => document.removeEventListener("pointermove", move);
      document.addEventListener("pointermove", move); // on the page, because this edge is created again with each step
      document.addEventListener("pointerup", end, { once: true });
    };
    edge.ondblclick = () => {
      this.choice.size(lane.id, null);
      this.changed();
    };
    return edge;
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

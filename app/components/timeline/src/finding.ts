// The open finding: its card above the lanes, and the way from one of its places to the next.

import { fetchJson, button, element } from "./dom";
import { count } from "./format";
import type { Picture } from "./picture";
import type { Finding, Mark } from "./types";
import { around, showing } from "./view";

const LISTED = 3; // changes in the list: more are not read at a glance
const STEP_ROOM = 1.06; // a step is shown with this many times its own length
const ROOM = 8; // a place is shown with this many times its own length around it

export class FindingBar {
  rule = "";

  constructor(private readonly place: HTMLElement, private readonly changes: HTMLElement, private readonly picture: Picture) {
    this.list();
  }

  /** The findings with a predicted gain, the largest first. */
  private get withGain(): Finding[] {
    return this.picture.data.findings.filter((finding) => finding.gain);
  }

  private list(): void {
    this.changes.hidden = Boolean(this.rule) || !this.withGain.length;
    this.changes.replaceChildren(element("span", { class: "words" }, this.withGain.length > 1 ? "What to change (each alone):" : "What to change:"), element("div", {}, ...this.withGain.slice(0, LISTED).map((finding) => {
      const change = button("", () => this.open(finding.rule, true, true), { title: `${finding.title}. ${finding.fix}` });
      change.append(element("span", { class: "title" }, finding.action), element("strong", {}, finding.gain));
      return change;
    })));
  }

  /** Open the next finding with a gain; after the last one, none is open. */
  next(by: number): void {
    const rules = ["", ...this.withGain.map((finding) => finding.rule)];
    this.open(rules[(Math.max(rules.indexOf(this.rule), 0) + by + rules.length) % rules.length], true, true);
  }

  /** Mark the places of a finding; "" or an unknown rule removes the marks. With `go`, the view moves to the longest place. */
  open(rule: string | undefined, report = false, go = false): void {
    const finding = this.picture.data.findings.find((f) => f.rule === rule);
    if (this.rule === (finding?.rule ?? "")) return;
    this.rule = finding?.rule ?? "";
    this.picture.scene.marks = [];
    this.picture.scene.mark = -1;
    if (finding && !this.changes.hidden) this.place.style.height = `${this.changes.offsetHeight}px`; // so that the lanes below do not move
    this.place.hidden = !finding;
    this.list();
    if (finding) void this.load(go);
    else this.picture.remap();
    if (report) this.picture.moved(false);
  }

  private async load(go: boolean): Promise<void> {
    const { tracks, findings } = this.picture.data;
    const finding = findings.find((f) => f.rule === this.rule)!;
    const of = tracks[0];
    let marks = finding.marks;
    try {
      const answer = await fetchJson<{ places: [number, number][] }>(
        `${of.api}/occurrences?recording=${of.recording}&device=${of.device}&rule=${encodeURIComponent(this.rule)}`,
      );
      if (answer.places.length) marks = answer.places.map(([start, end]) => ({ start: start + of.offset, end: end + of.offset }));
    } catch {
      // If the request fails, the marks that the page sent are shown: they are some of the places.
    }
    if (this.rule !== finding.rule) return; // another finding was opened meanwhile
    this.picture.scene.marks = marks;
    if (go && marks.length) this.begin();
    else this.nearest();
    this.show();
    this.picture.remap();
  }

  /** Begin with the longest place and show its whole step. The first place may be the shortest of hundreds. */
  private begin(): void {
    const { scene, data, target } = this.picture;
    const length = (mark: Mark) => mark.end - mark.start;
    scene.mark = scene.marks.reduce((best, mark, i) => (length(mark) > length(scene.marks[best]) ? i : best), 0);
    const longest = scene.marks[scene.mark];
    const step = data.steps.find((s) => s.start <= longest.start && s.end >= longest.end);
    this.picture.go(step ? around(step, STEP_ROOM, data.extent) : showing(longest, target, ROOM, data.extent), true);
  }

  /** Make the first place in view the current one; without one, the first place. */
  private nearest(): void {
    const { scene: { marks }, target } = this.picture;
    const first = marks.findIndex((mark) => mark.end > target.start && mark.start < target.end);
    this.picture.scene.mark = first >= 0 ? first : marks.length ? 0 : -1;
  }

  step(by: number): void {
    const { marks, mark } = this.picture.scene;
    if (marks.length) this.to((mark + by + marks.length) % marks.length);
  }

  private to(index: number): void {
    this.picture.scene.mark = index;
    this.show();
    const { scene: { marks }, target } = this.picture;
    const seen = showing(marks[index], target, ROOM, this.picture.data.extent);
    if (seen === target) this.picture.remap();
    else this.picture.go(seen, true);
  }

  private show(): void {
    const finding = this.picture.data.findings.find((f) => f.rule === this.rule);
    if (!finding) return;
    const { marks, mark } = this.picture.scene;
    this.place.replaceChildren(
      element("span", { class: "group" },
        marks.length
          ? element("span", { class: "group" },
            element("span", { role: "status" }, `${count(mark + 1)} of ${count(marks.length)}`),
            button("‹", () => this.step(-1), { "aria-label": "Previous place", title: "[" }),
            button("›", () => this.step(1), { "aria-label": "Next place", title: "]" }))
          : "",
        button("Leave", () => this.open("", true), { title: "Remove the marks" })),
      element("strong", {}, finding.title, finding.gain ? ` ${finding.gain}` : ""),
      element("p", {}, finding.fix),
    );
  }
}

// The finding in question: its card over the picture, and its places, one after the other.

import { asked, button, element } from "./dom";
import { count } from "./format";
import type { Picture } from "./picture";
import type { Finding, Mark } from "./types";
import { around, showing } from "./view";

const LISTED = 3; // of what to change: more are no longer read at first look
const STEP_ROOM = 1.06; // and a step with as much
const ROOM = 8; // a place is shown with so many times its own length around it

export class FindingBar {
  rule = "";

  constructor(private readonly place: HTMLElement, private readonly changes: HTMLElement, private readonly picture: Picture) {
    this.list();
  }

  /** What to change, as it is first seen: the findings that bring something, the most first. */
  private get worth(): Finding[] {
    return this.picture.data.findings.filter((finding) => finding.gain);
  }

  private list(): void {
    this.changes.hidden = Boolean(this.rule) || !this.worth.length;
    this.changes.replaceChildren(element("span", { class: "words" }, "What to change (each alone):"), element("div", {}, ...this.worth.slice(0, LISTED).map((finding) => {
      const change = button("", () => this.open(finding.rule, true, true), { title: `${finding.title}. ${finding.fix}` });
      change.append(element("span", { class: "title" }, finding.action), element("strong", {}, finding.gain));
      return change;
    })));
  }

  /** Open the next of what to change; behind the last none is open. */
  next(by: number): void {
    const rules = ["", ...this.worth.map((finding) => finding.rule)];
    this.open(rules[(Math.max(rules.indexOf(this.rule), 0) + by + rules.length) % rules.length], true, true);
  }

  /** Mark the places of a finding; "" or an unknown one marks none. With `go`, the view moves to the first. */
  open(rule: string | undefined, tell = false, go = false): void {
    const finding = this.picture.data.findings.find((f) => f.rule === rule);
    if (this.rule === (finding?.rule ?? "")) return;
    this.rule = finding?.rule ?? "";
    this.picture.scene.marks = [];
    this.picture.scene.mark = -1;
    if (finding && !this.changes.hidden) this.place.style.height = `${this.changes.offsetHeight}px`; // the picture under it stays where it is
    this.place.hidden = !finding;
    this.list();
    if (finding) void this.load(go);
    else this.picture.remap();
    if (tell) this.picture.moved(false);
  }

  private async load(go: boolean): Promise<void> {
    const { tracks, findings } = this.picture.data;
    const finding = findings.find((f) => f.rule === this.rule)!;
    const of = tracks[0];
    let marks = finding.marks;
    try {
      const answer = await asked<{ places: [number, number][] }>(
        `${of.api}/occurrences?recording=${of.recording}&device=${of.device}&rule=${encodeURIComponent(this.rule)}`,
      );
      if (answer.places.length) marks = answer.places.map(([start, end]) => ({ start: start + of.offset, end: end + of.offset }));
    } catch {
      // The marks that came with the page are some of its places.
    }
    if (this.rule !== finding.rule) return; // another finding was opened meanwhile
    this.picture.scene.marks = marks;
    if (go && marks.length) this.begin();
    else this.nearest();
    this.show();
    this.picture.remap();
  }

  /** Begin at the longest place, in the step that it lies in: the first may be the shortest of hundreds, and alone it shows nothing of the others. */
  private begin(): void {
    const { scene, data, target } = this.picture;
    const length = (mark: Mark) => mark.end - mark.start;
    scene.mark = scene.marks.reduce((best, mark, i) => (length(mark) > length(scene.marks[best]) ? i : best), 0);
    const longest = scene.marks[scene.mark];
    const step = data.steps.find((s) => s.start <= longest.start && s.end >= longest.end);
    this.picture.go(step ? around(step, STEP_ROOM, data.extent) : showing(longest, target, ROOM, data.extent), true);
  }

  /** The place in question is the first in view, where one is: from there they are counted. */
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
        button("Leave", () => this.open("", true), { title: "Take the marks away" })),
      element("strong", {}, finding.title, finding.gain ? ` ${finding.gain}` : ""),
      element("p", {}, finding.fix),
    );
  }
}

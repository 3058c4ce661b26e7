// What is known of the chosen slice, piece of lost time or stretch of time, under the picture.

import { asked, button, element, scroller } from "./dom";
import { AXIS_PX } from "./draw";
import { count, duration, exact, share } from "./format";
import type { Link } from "./links";
import { kindOf } from "./paint";
import type { Picture } from "./picture";
import type { Slice, Span } from "./types";
import { around } from "./view";

interface SliceDetails {
  slice: Slice;
  title: string;
  facts: [string, string][];
  links: Link[];
  stack: { name: string; yours: boolean }[];
  same: { count: number; total_ns: number; longest_ns: number; name_id: number } | null;
  evidence?: string | null;
  to_do?: string | null;
  finding?: { rule: string; title: string; gain: string; fix: string } | null;
}

interface Part {
  label: string;
  light: string;
  dark: string;
}

interface Stretch {
  busy_share: number | null;
  owners: (Part & { ns: number })[];
  lost: (Part & { ms: number })[];
  operations: { name: string; count: number; ms: number }[];
  kinds: number;
}

const ROOM_PX = 6; // between a chosen row and the details
const FRAMES = 12; // of a stack shown at first

export class Drawer {
  links: Link[] = [];
  private turn = 0;

  constructor(private readonly place: HTMLElement, private readonly picture: Picture) {
    place.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      picture.select(null);
      picture.lanesCanvas.focus({ preventScroll: true });
    });
  }

  focus(): void {
    if (!this.place.hidden) this.place.focus();
  }

  /** Choose the slice that the address or a row of the page's tables names (track:source:id), and tell which it is. */
  async restore(text: string | undefined): Promise<Slice | null> {
    const [track, source, id] = (text ?? "").split(":");
    if (!id || !this.picture.data.tracks[Number(track)]) return null;
    const details = await this.ask(Number(track), source, id);
    if (details) this.picture.choose(details.slice);
    return details?.slice ?? null;
  }

  async show(slice: Slice | null): Promise<void> {
    const turn = ++this.turn;
    this.links = [];
    if (!slice) {
      this.place.hidden = true;
      this.picture.say("");
      return;
    }
    const by = this.picture.data.tracks[slice.track].offset;
    const details = await this.ask(slice.track, slice.source, String(slice.source === "gaps" ? Math.round(slice.start - by) : slice.id));
    if (turn !== this.turn || !details) return;
    this.links = details.links;
    this.fill(slice, details);
    this.picture.draw();
  }

  private async ask(track: number, source: string, id: string): Promise<SliceDetails | null> {
    const { tracks } = this.picture.data;
    const of = tracks[track];
    try {
      const details = await asked<SliceDetails>(`${of.api}/slice?recording=${of.recording}&device=${of.device}&source=${encodeURIComponent(source)}&id=${encodeURIComponent(id)}`);
      for (const slice of [details.slice, ...details.links]) {
        slice.track = track;
        slice.start += of.offset;
        slice.end += of.offset;
      }
      return details;
    } catch (problem) {
      this.picture.say(problem instanceof Error ? problem.message : String(problem));
      return null;
    }
  }

  private fill(slice: Slice, details: SliceDetails): void {
    const { data } = this.picture;
    const length = slice.end - slice.start;
    const label = kindOf(data, slice.source, slice.kind)[0];
    const facts: [string, string][] = [
      ["Lasts", exact(length)],
      ["Begins at", exact(slice.start)],
      ...(slice.source === "gaps" ? [] : [["Kind", label] as [string, string]]),
      ...details.facts,
    ];
    const { same } = details;
    if (same) facts.push(["All of this name", `${count(same.count)}, ${duration(same.total_ns)} together, longest ${duration(same.longest_ns)}`]);
    this.place.replaceChildren(
      this.head(details.title, slice, !data.tracks[slice.track].mark || slice.track === 0), // a note is kept with the page's run
      details.evidence ? element("p", {}, details.evidence) : "",
      details.to_do ? element("p", {}, element("strong", {}, "What helps: "), details.to_do) : "",
      details.finding ? this.findingLine(details.finding) : "",
      this.actions(slice, details) ?? "",
      element("div", { class: "columns" }, list(facts), this.stack(details.stack)),
    );
    this.open();
    // what is said of lost time is how long it was, and why
    this.picture.say(slice.source === "gaps" ? `${details.title}, at ${duration(slice.start)}. ${details.evidence ?? ""}` : `${details.title}: ${duration(length)}, at ${duration(slice.start)}.`);
  }

  /** Show what was filled in. It stays in sight over the end of the picture, so the page moves where it would hide the chosen row. */
  private open(): void {
    this.place.hidden = false;
    this.place.scrollTop = 0;
    const chosen = this.picture.scene.selected;
    const lane = chosen && this.picture.scene.lanes.find((l) => l.track === chosen.track && l.spec?.source === chosen.source && l.spec.lane === chosen.lane);
    if (!lane) return;
    const row = AXIS_PX + lane.top + Math.min(chosen.depth + 1, lane.rows) * lane.row;
    const hidden = this.picture.lanesCanvas.getBoundingClientRect().top + row + ROOM_PX - this.place.getBoundingClientRect().top;
    if (hidden > 0) scroller(this.place)?.scrollBy({ top: hidden });
  }

  private findingLine(finding: NonNullable<SliceDetails["finding"]>): HTMLElement {
    return element("p", {}, element("strong", {}, `${finding.title} ${finding.gain}. `), finding.fix, " ",
      this.picture.findings.rule !== finding.rule && button("Mark all its places", () => this.picture.findings.open(finding.rule, true, true)));
  }

  private head(title: string, span: Span, noted = true): HTMLElement {
    return element("div", { class: "top" }, element("h3", {}, title),
      element("span", { class: "group" },
        noted && this.noteForm(span),
        button("Zoom to it", () => this.picture.go(around(span, 1.6, this.picture.data.extent), true), { title: "F" }),
        button("×", () => this.picture.select(null), { "aria-label": "Close" })));
  }

  private stack(frames: SliceDetails["stack"]): HTMLElement | null {
    if (!frames.length) return null;
    const items = frames.map((frame) => element("li", frame.yours ? { class: "yours" } : {}, frame.name));
    const rest = items.slice(FRAMES);
    const shown = element("ol", { class: "stack", "aria-label": "Python stack, your own line first" }, ...items.slice(0, FRAMES));
    if (rest.length) {
      const more = button(`${rest.length} more frames`, () => more.parentElement!.replaceWith(...rest));
      shown.append(element("li", {}, more));
    }
    return shown;
  }

  private actions(slice: Slice, details: SliceDetails): HTMLElement | null {
    const does = element("div", { class: "does" });
    const lost = slice.source === "gaps";
    const names = { launch: "Launched by", kernel: "Launches", operator: lost ? "Host was in" : "Inside", call: "Runtime call", end: "Ended by" };
    for (const link of details.links.slice(0, 6)) {
      does.append(button(`${names[link.role]} ${link.name}`, () => this.picture.choose(link)));
    }
    if (details.links.length > 6) does.append(`and ${details.links.length - 6} more`);
    const launch = details.links.find((link) => link.role === "launch");
    if (launch && slice.source === "gpu") does.append(`starts ${duration(slice.start - launch.start)} after its launch`);
    const { same } = details;
    if (same && same.count > 1) {
      const all = button("Show all of these", () => {
        this.picture.scene.same = this.picture.scene.same === same.name_id ? null : same.name_id;
        all.setAttribute("aria-pressed", String(this.picture.scene.same !== null));
        this.picture.draw();
      });
      does.append(all, button("Find each", () => this.picture.finder.search(details.title)));
    }
    return does.childNodes.length ? does : null;
  }

  /** A line to write about a place; it is kept with the run. */
  private noteForm(span: Span): HTMLElement {
    const input = element("input", { placeholder: "Note on this place", "aria-label": "Note on this place", maxlength: "300" });
    const form = element("form", { class: "group" }, input, element("button", { type: "submit" }, "Keep"));
    form.onsubmit = (event) => {
      event.preventDefault();
      if (!input.value.trim()) return;
      this.picture.note({ start: Math.round(span.start), end: Math.round(span.end), text: input.value });
      input.value = "";
    };
    return form;
  }

  /** Show what a stretch of time comes to on the first device, of two runs on that of each. */
  async showRange(range: Span | null): Promise<void> {
    const turn = ++this.turn;
    this.links = [];
    this.place.hidden = true;
    if (!range) return;
    const { tracks } = this.picture.data;
    const sides = tracks.filter((track, i) => i === 0 || track.mark);
    try {
      const details = await Promise.all(sides.map((of) => {
        const [start, end] = [Math.round(range.start - of.offset), Math.round(range.end - of.offset)];
        return asked<Stretch>(`${of.api}/stretch?recording=${of.recording}&device=${of.device}&start=${start}&end=${end}`);
      }));
      if (turn === this.turn) this.fillRange(range, sides.map((of) => of.mark ?? ""), details);
    } catch (problem) {
      this.picture.say(problem instanceof Error ? problem.message : String(problem));
    }
  }

  private fillRange(range: Span, marks: string[], sides: Stretch[]): void {
    const length = range.end - range.start;
    const busy = sides.map((side, i) => {
      const of = marks[i] ? `${marks[i]}: ` : "";
      return of + (side.busy_share === null ? "there is no GPU operation in" : `the GPU is busy ${share(side.busy_share)} of`);
    }).join("; ");
    const title = `${busy[0].toUpperCase()}${busy.slice(1)} these ${duration(length)}`;
    this.place.replaceChildren(
      this.head(title, range),
      ...sides.map((side, i) => this.sums(side, length, marks[i] ? `${marks[i]}: ` : "")),
    );
    this.open();
    this.picture.say(`${title}.`);
  }

  private sums(side: Stretch, length: number, of: string): HTMLElement {
    const part = (p: Part, ns: number) => [this.swatch(p), duration(ns), share(ns / length)];
    return element("div", { class: "columns" },
      table(`${of}Who owned the time`, side.owners.map((o) => part(o, o.ns))),
      table(`${of}Lost time by cause`, side.lost.map((l) => part(l, l.ms * 1e6))),
      table(`${of}GPU operations, ${Math.min(side.operations.length, side.kinds)} of ${side.kinds} names`,
        side.operations.map((o) => [o.name, `${count(o.count)} ×`, duration(o.ms * 1e6)])));
  }

  private swatch(part: Part): HTMLElement {
    const colour = this.picture.data.dark ? part.dark : part.light;
    return element("span", {}, element("span", { class: "swatch", style: `background:${colour}` }), part.label);
  }
}

function list(facts: [string, string][]): HTMLElement {
  return element("dl", {}, ...facts.flatMap(([term, value]) => [element("dt", {}, term), element("dd", {}, value)]));
}

function table(caption: string, rows: (Node | string)[][]): HTMLElement | null {
  if (!rows.length) return null;
  const cells = (row: (Node | string)[]) => element("tr", {}, ...row.map((cell, i) => element("td", i ? { class: "n" } : typeof cell === "string" ? { title: cell } : {}, cell)));
  const heading = element("caption", { style: "text-align:left;opacity:.7" }, caption);
  return element("table", {}, heading, element("tbody", {}, ...rows.map(cells)));
}

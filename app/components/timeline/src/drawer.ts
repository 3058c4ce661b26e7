// What is known of the chosen slice, piece of lost time or stretch of time, under the picture.

import { asked, button, element } from "./dom";
import { count, duration, exact, share } from "./format";
import { choose } from "./input";
import type { Link } from "./links";
import { kindOf } from "./paint";
import type { Timeline } from "./timeline";
import type { Slice, Span } from "./types";
import { around } from "./view";

interface Told {
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

const FRAMES = 12; // of a stack shown at first

export class Drawer {
  links: Link[] = [];
  private turn = 0;

  constructor(private readonly place: HTMLElement, private readonly timeline: Timeline) {
    place.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      timeline.select(null);
      timeline.lanesCanvas.focus({ preventScroll: true });
    });
  }

  focus(): void {
    if (!this.place.hidden) this.place.focus();
  }

  /** Choose the slice that the address names. */
  async restore(text: string | undefined): Promise<void> {
    const [track, source, id] = (text ?? "").split(":");
    if (!id || !this.timeline.data.tracks[Number(track)]) return;
    const told = await this.ask(Number(track), source, id);
    if (told) choose(this.timeline, told.slice);
  }

  async show(slice: Slice | null): Promise<void> {
    const turn = ++this.turn;
    this.links = [];
    if (!slice) {
      this.place.hidden = true;
      this.timeline.say("");
      return;
    }
    const by = this.timeline.data.tracks[slice.track].offset;
    const told = await this.ask(slice.track, slice.source, String(slice.source === "gaps" ? Math.round(slice.start - by) : slice.id));
    if (turn !== this.turn || !told) return;
    this.links = told.links;
    this.fill(slice, told);
    this.timeline.draw();
  }

  private async ask(track: number, source: string, id: string): Promise<Told | null> {
    const { api, tracks } = this.timeline.data;
    const of = tracks[track];
    try {
      const told = await asked<Told>(`${api}/slice?recording=${of.recording}&device=${of.device}&source=${encodeURIComponent(source)}&id=${encodeURIComponent(id)}`);
      for (const slice of [told.slice, ...told.links]) {
        slice.track = track;
        slice.start += of.offset;
        slice.end += of.offset;
      }
      return told;
    } catch (problem) {
      this.timeline.say(problem instanceof Error ? problem.message : String(problem));
      return null;
    }
  }

  private fill(slice: Slice, told: Told): void {
    const { data } = this.timeline;
    const length = slice.end - slice.start;
    const label = kindOf(data, slice.source, slice.kind)[0];
    const facts: [string, string][] = [
      ["Lasts", exact(length)],
      ["Begins at", exact(slice.start)],
      ...(slice.source === "gaps" ? [] : [["Kind", label] as [string, string]]),
      ...told.facts,
    ];
    const { same } = told;
    if (same) facts.push(["All of this name", `${count(same.count)}, ${duration(same.total_ns)} together, longest ${duration(same.longest_ns)}`]);
    this.place.replaceChildren(
      this.head(told.title, slice),
      told.evidence ? element("p", {}, told.evidence) : "",
      told.to_do ? element("p", {}, element("strong", {}, "What helps: "), told.to_do) : "",
      told.finding ? this.findingLine(told.finding) : "",
      element("div", { class: "columns" }, list(facts), this.stack(told.stack)),
      this.actions(slice, told),
    );
    this.place.hidden = false;
    this.timeline.say(`${told.title}: ${duration(length)}, at ${duration(slice.start)}.`);
  }

  private findingLine(finding: NonNullable<Told["finding"]>): HTMLElement {
    return element("p", {}, element("strong", {}, `${finding.title} ${finding.gain}. `), finding.fix, " ",
      button("Mark all its places", () => this.timeline.findings.open(finding.rule, true, true)));
  }

  private head(title: string, span: Span): HTMLElement {
    return element("div", { class: "top" }, element("h3", {}, title),
      element("span", { class: "group" },
        button("Zoom to it", () => this.timeline.go(around(span, 1.6, this.timeline.data.extent), true), { title: "F" }),
        button("×", () => this.timeline.select(null), { "aria-label": "Close" })));
  }

  private stack(frames: Told["stack"]): HTMLElement | null {
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

  private actions(slice: Slice, told: Told): HTMLElement {
    const does = element("div", { class: "does" });
    const names = { launch: "Launched by", kernel: "Launches", operator: "Inside", python: "Inside", gap: "Wait" };
    for (const link of told.links.slice(0, 6)) {
      does.append(button(`${names[link.role]} ${link.name}`, () => choose(this.timeline, link)));
    }
    if (told.links.length > 6) does.append(`and ${told.links.length - 6} more`);
    const launch = told.links.find((link) => link.role === "launch");
    if (launch && slice.source === "gpu") does.append(`starts ${duration(slice.start - launch.start)} after its launch`);
    const { same } = told;
    if (same && same.count > 1) {
      const all = button("Show all of these", () => {
        this.timeline.scene.same = this.timeline.scene.same === same.name_id ? null : same.name_id;
        all.setAttribute("aria-pressed", String(this.timeline.scene.same !== null));
        this.timeline.draw();
      });
      does.append(all, button("Find each", () => this.timeline.finder.search(told.title)));
    }
    does.append(this.noteForm(slice));
    return does;
  }

  /** A line to write about a place; it is kept with the run. */
  private noteForm(span: Span): HTMLElement {
    const input = element("input", { placeholder: "Note on this place", "aria-label": "Note on this place", maxlength: "300" });
    const form = element("form", { class: "group" }, input, element("button", { type: "submit" }, "Keep"));
    form.onsubmit = (event) => {
      event.preventDefault();
      if (!input.value.trim()) return;
      this.timeline.note({ start: Math.round(span.start), end: Math.round(span.end), text: input.value });
      input.value = "";
    };
    return form;
  }

  /** Show what a stretch of time comes to on the first device. */
  async showRange(range: Span | null): Promise<void> {
    const turn = ++this.turn;
    this.links = [];
    this.place.hidden = true;
    if (!range) return;
    const { api, tracks } = this.timeline.data;
    const of = tracks[0];
    try {
      const [start, end] = [Math.round(range.start - of.offset), Math.round(range.end - of.offset)];
      const told = await asked<Stretch>(`${api}/stretch?recording=${of.recording}&device=${of.device}&start=${start}&end=${end}`);
      if (turn === this.turn) this.fillRange(range, told);
    } catch (problem) {
      this.timeline.say(problem instanceof Error ? problem.message : String(problem));
    }
  }

  private fillRange(range: Span, told: Stretch): void {
    const length = range.end - range.start;
    const busy = told.busy_share === null ? "There is no GPU operation in" : `The GPU works ${share(told.busy_share)} of`;
    const title = `${busy} these ${duration(length)}`;
    const part = (p: Part, ns: number) => [this.swatch(p), duration(ns), share(ns / length)];
    this.place.replaceChildren(
      this.head(title, range),
      element("div", { class: "columns" },
        table("Who owned the time", told.owners.map((o) => part(o, o.ns))),
        table("Lost time by cause", told.lost.map((l) => part(l, l.ms * 1e6))),
        table(`GPU operations, ${Math.min(told.operations.length, told.kinds)} of ${told.kinds} names`,
          told.operations.map((o) => [o.name, `${count(o.count)} ×`, duration(o.ms * 1e6)]))),
      element("div", { class: "does" }, button("Zoom in", () => this.timeline.go(range, true), { title: "F" }), this.noteForm(range)),
    );
    this.place.hidden = false;
    this.timeline.say(`${title}.`);
  }

  private swatch(part: Part): HTMLElement {
    const colour = this.timeline.data.dark ? part.dark : part.light;
    return element("span", {}, element("span", { class: "swatch", style: `background:${colour}` }), part.label);
  }
}

function list(facts: [string, string][]): HTMLElement {
  return element("dl", {}, ...facts.flatMap(([term, value]) => [element("dt", {}, term), element("dd", {}, value)]));
}

function table(caption: string, rows: (Node | string)[][]): HTMLElement | null {
  if (!rows.length) return null;
  const cells = (row: (Node | string)[]) => element("tr", {}, ...row.map((cell, i) => element("td", i ? { class: "n" } : {}, cell)));
  const heading = element("caption", { style: "text-align:left;opacity:.7" }, caption);
  return element("table", {}, heading, element("tbody", {}, ...rows.map(cells)));
}

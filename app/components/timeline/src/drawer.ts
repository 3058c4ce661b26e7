// The details of the selected slice, lost time or time range, beside or below the lanes.

import { fetchJson, button, element, scroller } from "./dom";
import { column, count, duration, exact, share } from "./format";
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
  texture: string;
}

interface Stretch {
  trusted: boolean;
  works_share: number | null;
  parts: (Part & { ms: number })[];
  operations: { name: string; count: number; ms: number }[];
}

const ROOM_PX = 8; // distance from the details to the end of the window
const FRAMES = 12; // frames of a stack that are shown at first

export class Drawer {
  links: Link[] = [];
  private turn = 0;
  private readonly glanced: HTMLElement;
  private seen = "";

  constructor(private readonly place: HTMLElement, private readonly picture: Picture) {
    this.glanced = picture.root.querySelector(".glance")!;
    place.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      picture.select(null);
      picture.lanesCanvas.focus({ preventScroll: true });
    });
  }

  focus(): void {
    if (!this.place.hidden) this.place.focus();
  }

  /** Select and return the slice with the name `track:source:id`, from the address or a table of the page. */
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
      this.close();
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
      const details = await fetchJson<SliceDetails>(`${of.api}/slice?recording=${of.recording}&device=${of.device}&source=${encodeURIComponent(source)}&id=${encodeURIComponent(id)}`);
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
      ["Lasts", raw(length)],
      ["Begins at", raw(slice.start)],
      ...(slice.source === "gaps" ? [] : [["Kind", label] as [string, string]]),
      ...details.facts,
    ];
    const { same } = details;
    if (same) facts.push(["All of this name", `${count(same.count)}, ${duration(same.total_ns)} together, longest ${duration(same.longest_ns)}`]);
    this.place.replaceChildren(
      this.head(details.title, slice),
      details.evidence ? element("p", {}, details.evidence) : "",
      details.to_do ? element("p", {}, element("strong", {}, "What helps: "), details.to_do) : "",
      details.finding ? this.findingLine(details.finding) : "",
      this.actions(slice, details) ?? "",
      element("div", { class: "columns" }, list(facts), this.stack(details.stack)),
      !data.tracks[slice.track].mark || slice.track === 0 ? this.noteForm(slice) : "", // notes are stored in the page's run only
    );
    this.open();
    // the title of lost time already contains its length and cause
    this.picture.say(slice.source === "gaps" ? `${details.title}, at ${duration(slice.start)}. ${details.evidence ?? ""}` : `${details.title}: ${duration(length)}, at ${duration(slice.start)}.`);
  }

  /** Show the details beside or below the lanes. The page scrolls if they would be out of sight. */
  private open(): void {
    this.place.hidden = false;
    this.glanced.hidden = true;
    this.place.scrollTop = 0;
    this.picture.revealSelected();
    if (this.beside) return;
    const hidden = this.place.getBoundingClientRect().bottom + ROOM_PX - window.innerHeight;
    if (hidden > 0) scroller(this.place)?.scrollBy({ top: hidden });
  }

  private close(): void {
    this.place.hidden = true;
    this.glanced.hidden = false;
    void this.glance(this.picture.target);
  }

  private get beside(): boolean {
    return getComputedStyle(this.place.parentElement!).getPropertyValue("--beside") === "1";
  }

  /** Sum up the view, if nothing is selected and the details are beside the lanes. */
  async glance(view: Span): Promise<void> {
    const key = `${view.start} ${view.end}`;
    if (!this.beside || this.glanced.hidden || this.seen === key) return;
    this.seen = key;
    try {
      const sides = await this.stretches(view);
      if (this.seen !== key) return;
      const { title, sums } = this.summary(view, sides);
      this.glanced.replaceChildren(element("h3", {}, "In view"), element("p", {}, `${title}.`), ...sums);
      const rows = [...this.glanced.querySelectorAll("tbody tr")]; // the tables below the lanes have the other rows
      while (rows.length && this.glanced.scrollHeight > this.glanced.clientHeight) {
        const body = rows.at(-1)!.parentElement!;
        rows.pop()!.remove();
        if (!body.childElementCount) body.parentElement!.remove();
      }
    } catch {
      this.seen = ""; // the lanes show the server's error
    }
  }

  private findingLine(finding: NonNullable<SliceDetails["finding"]>): HTMLElement {
    return element("p", {}, element("strong", {}, `${finding.title} ${finding.gain}. `), finding.fix, " ",
      this.picture.findings.rule !== finding.rule && button("Mark all its places", () => this.picture.findings.open(finding.rule, true, true)));
  }

  private head(title: string, span: Span): HTMLElement {
    return element("div", { class: "top" }, element("h3", {}, title),
      element("span", { class: "group" },
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

  /** Return a field for a note on a place; the note is stored in the run. */
  private noteForm(span: Span): HTMLElement {
    const input = element("input", { placeholder: "Note on this place", "aria-label": "Note on this place", maxlength: "300" });
    const form = element("form", { class: "group" }, input, element("button", { type: "submit" }, "Save"));
    form.onsubmit = (event) => {
      event.preventDefault();
      if (!input.value.trim()) return;
      this.picture.note({ start: Math.round(span.start), end: Math.round(span.end), text: input.value });
      input.value = "";
    };
    return form;
  }

  /** Sum up a time range of the first device; of two runs, of the first device of each. */
  async showRange(range: Span | null): Promise<void> {
    const turn = ++this.turn;
    this.links = [];
    if (!range) return this.close();
    try {
      const sides = await this.stretches(range);
      if (turn === this.turn) this.fillRange(range, sides);
    } catch (problem) {
      this.picture.say(problem instanceof Error ? problem.message : String(problem));
    }
  }

  /** Fetch the sums of a time range: of the first device; of two runs, of the first device of each. */
  private async stretches(range: Span): Promise<[mark: string, of: Stretch][]> {
    const sides = this.picture.data.tracks.filter((track, i) => i === 0 || track.mark);
    return Promise.all(sides.map(async (of) => {
      const [start, end] = [Math.round(range.start - of.offset), Math.round(range.end - of.offset)];
      const query = `recording=${of.recording}&device=${of.device}&start=${start}&end=${end}`;
      return [of.mark ? `${of.mark}: ` : "", await fetchJson<Stretch>(`${of.api}/stretch?${query}`)] as [string, Stretch];
    }));
  }

  private summary(range: Span, sides: [string, Stretch][]): { title: string; sums: HTMLElement[] } {
    const length = range.end - range.start;
    const busy = sides.map(([mark, side]) =>
      mark + (!side.trusted ? "GPU times cannot be trusted in" : side.works_share === null ? "there is no GPU operation in" : `the GPU works ${share(side.works_share)} of`)).join("; ");
    return {
      title: `${busy[0].toUpperCase()}${busy.slice(1)} these ${duration(length)}`,
      sums: sides.map(([mark, side]) => this.sums(side, length, mark)),
    };
  }

  private fillRange(range: Span, sides: [string, Stretch][]): void {
    const { title, sums } = this.summary(range, sides);
    this.place.replaceChildren(this.head(title, range), ...sums, this.noteForm(range));
    this.open();
    this.picture.say(`${title}.`);
  }

  private sums(side: Stretch, length: number, of: string): HTMLElement {
    const parts = column(side.parts.map((part) => part.ms * 1e6)), operations = column(side.operations.map((o) => o.ms * 1e6));
    return element("div", { class: "columns" },
      table(`${of}Where the time goes`, side.parts.map((part, i) => [this.swatch(part), parts[i], share(part.ms * 1e6 / length)])),
      table(`${of}Longest GPU operations`, side.operations.map((o, i) => [o.name, `${count(o.count)} ×`, operations[i]])));
  }

  private swatch(part: Part): HTMLElement {
    const colour = this.picture.data.dark ? part.dark : part.light;
    return element("span", { title: part.label }, element("span", { class: "swatch", "data-texture": part.texture, style: `background-color:${colour}` }), part.label);
  }
}

/** Return a time with all nanoseconds, in a readable unit and in ns. */
function raw(ns: number): string {
  return Math.abs(ns) < 1e3 ? exact(ns) : `${exact(ns)} (${count(Math.round(ns))} ns)`;
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

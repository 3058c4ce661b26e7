// Search: how many slices have a name, and from one to the next.

import { asked } from "./dom";
import { count } from "./format";
import { choose } from "./input";
import type { Timeline } from "./timeline";
import type { Slice } from "./types";

interface Found {
  count: number;
  position: number;
  hit: Slice | null;
}

export class Finder {
  words = "";
  private at = -1;
  private turn = 0;
  private readonly input: HTMLInputElement;
  private readonly said: HTMLElement;

  constructor(place: HTMLElement, private readonly timeline: Timeline) {
    this.input = place.querySelector("input")!;
    this.said = place.querySelector(".found")!;
    this.input.onkeydown = (event) => {
      event.stopPropagation(); // letters are not keys of the picture here
      if (event.key === "Enter") this.search(this.input.value, event.shiftKey ? -1 : 1);
      else if (event.key === "Escape") {
        this.input.value = "";
        this.search("");
        timeline.lanesCanvas.focus({ preventScroll: true });
      }
    };
    this.input.oninput = () => { if (!this.input.value) this.search(""); };
    place.querySelector<HTMLButtonElement>(".next")!.onclick = () => this.search(this.input.value, 1);
    place.querySelector<HTMLButtonElement>(".previous")!.onclick = () => this.search(this.input.value, -1);
  }

  /** Show the words of the address, without moving. */
  start(words: string | undefined): void {
    this.words = this.input.value = words ?? "";
  }

  focus(): void {
    this.input.focus();
    this.input.select();
  }

  search(words: string, by = 1): void {
    if (words !== this.words) this.at = Math.floor(this.timeline.scene.view.start) - 1;
    this.words = this.input.value = words;
    if (words) this.step(by);
    else {
      this.turn++;
      this.said.textContent = "";
      this.timeline.moved(false);
    }
  }

  step(by: number): void {
    if (this.words) void this.go(by);
  }

  private async go(by: number): Promise<void> {
    const turn = ++this.turn;
    const { api, tracks, extent } = this.timeline.data;
    const of = tracks[0];
    const chosen = this.timeline.scene.selected;
    const from = Math.round(this.at - of.offset);
    const query = `recording=${of.recording}&device=${of.device}&q=${encodeURIComponent(this.words)}&at=${from}${by < 0 ? "&back" : ""}`;
    try {
      const found = await asked<Found>(`${api}/find?${query}`);
      if (turn !== this.turn) return;
      this.said.textContent = found.hit ? `${count(found.position)} of ${count(found.count)}` : "none";
      if (!found.hit) return;
      const hit: Slice = { ...found.hit, track: 0, start: found.hit.start + of.offset, end: found.hit.end + of.offset };
      this.at = hit.start;
      const { view } = this.timeline.scene;
      const length = hit.end - hit.start;
      choose(this.timeline, hit);
      // nearer, where the match would be a hair
      if (length / (view.end - view.start) < 0.004) {
        const half = Math.min(length * 40 + 1000, extent / 2);
        const middle = (hit.start + hit.end) / 2;
        this.timeline.go({ start: middle - half, end: middle + half }, chosen === null, true);
      }
    } catch (problem) {
      this.said.textContent = "";
      this.timeline.say(problem instanceof Error ? problem.message : String(problem));
    }
  }
}

// Search: how many slices have a name, and from one to the next.

import { asked } from "./dom";
import { count } from "./format";
import type { Picture } from "./picture";
import type { Slice } from "./types";

interface Match {
  count: number;
  position: number;
  hit: Slice | null;
}

export class Finder {
  words = "";
  private at = -1;
  private turn = 0;
  private readonly input: HTMLInputElement;
  private readonly count: HTMLElement;

  constructor(place: HTMLElement, private readonly picture: Picture) {
    this.input = place.querySelector("input")!;
    this.count = place.querySelector(".found")!;
    this.input.onkeydown = (event) => {
      event.stopPropagation(); // letters are not keys of the picture here
      if (event.key === "Enter") this.search(this.input.value, event.shiftKey ? -1 : 1);
      else if (event.key === "Escape") {
        this.input.value = this.words; // what was found stays, for N and P to walk through; Escape in the picture forgets it
        picture.lanesCanvas.focus({ preventScroll: true });
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
    if (words !== this.words) this.at = Math.floor(this.picture.target.start) - 1;
    this.words = this.input.value = words;
    if (words) this.step(by);
    else {
      this.turn++;
      this.count.textContent = "";
      this.picture.moved(false);
    }
  }

  step(by: number): void {
    if (this.words) void this.go(by);
  }

  private async go(by: number): Promise<void> {
    const turn = ++this.turn;
    const { tracks, extent } = this.picture.data;
    const chosen = this.picture.scene.selected;
    const track = chosen?.track ?? 0;
    const of = tracks[track];
    const from = Math.round(this.at - of.offset);
    const query = `recording=${of.recording}&device=${of.device}&q=${encodeURIComponent(this.words)}&at=${from}${by < 0 ? "&back" : ""}`;
    try {
      const match = await asked<Match>(`${of.api}/find?${query}`);
      if (turn !== this.turn) return;
      this.count.textContent = match.hit ? `${count(match.position)} of ${count(match.count)}` : "none";
      if (!match.hit) return;
      const hit: Slice = { ...match.hit, track, start: match.hit.start + of.offset, end: match.hit.end + of.offset };
      this.at = hit.start;
      const view = this.picture.target;
      const length = hit.end - hit.start;
      this.picture.choose(hit);
      // nearer, where the match would be a hair
      if (length / (view.end - view.start) < 0.004) {
        const half = Math.min(length * 40 + 1000, extent / 2);
        const middle = (hit.start + hit.end) / 2;
        this.picture.go({ start: middle - half, end: middle + half }, chosen === null, true);
      }
    } catch (problem) {
      this.count.textContent = "";
      this.picture.say(problem instanceof Error ? problem.message : String(problem));
    }
  }
}

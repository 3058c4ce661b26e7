// Search: counts the slices with a name, and leads from one to the next.

import { fetchJson } from "./dom";
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
      event.stopPropagation(); // letters are text here, not keys of the timeline
      if (event.key === "Enter") this.search(this.input.value, event.shiftKey ? -1 : 1);
      else if (event.key === "Escape") {
        this.input.value = this.words; // N and P still lead through the matches; Escape in the lanes ends the search
        picture.lanesCanvas.focus({ preventScroll: true });
      }
    };
    this.input.oninput = () => { if (!this.input.value) this.search(""); };
    place.querySelector<HTMLButtonElement>(".next")!.onclick = () => this.search(this.input.value, 1);
    place.querySelector<HTMLButtonElement>(".previous")!.onclick = () => this.search(this.input.value, -1);
  }

  /** Show the searched words of the address, without a move. */
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
      const match = await fetchJson<Match>(`${of.api}/find?${query}`);
      if (turn !== this.turn) return;
      this.count.textContent = match.hit ? `${count(match.position)} of ${count(match.count)}` : "none";
      if (!match.hit) return;
      const hit: Slice = { ...match.hit, track, start: match.hit.start + of.offset, end: match.hit.end + of.offset };
      this.at = hit.start;
      const view = this.picture.target;
      const length = hit.end - hit.start;
      this.picture.choose(hit);
      // zoom in if the match would be thinner than a few pixels
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

// Selects the longest piece of lost time in view, then the next longest.

import { fetchJson } from "./dom";
import type { Picture } from "./picture";
import type { Slice, Span } from "./types";
import { around } from "./view";

const ROOM = 8; // a piece is shown with this many times its own length around it

export class Losses {
  private stretch: Span = { start: 0, end: 0 };
  private place = 0;
  private shown: Slice | null = null;

  constructor(private readonly picture: Picture) {}

  /** Select the longest piece in view; if one is selected, the next longest. The track is that of the selected slice, else the first. */
  async next(): Promise<void> {
    const { data, scene, target } = this.picture;
    if (this.shown && scene.selected === this.shown) this.place++;
    else [this.stretch, this.place] = [{ ...target }, 0];
    const track = scene.selected?.track ?? 0;
    const of = data.tracks[track];
    const [start, end] = [Math.round(this.stretch.start - of.offset), Math.round(this.stretch.end - of.offset)];
    try {
      const { slice } = await fetchJson<{ slice: Slice | null }>(
        `${of.api}/longest?recording=${of.recording}&device=${of.device}&start=${start}&end=${end}&nth=${this.place}`,
      );
      if (!slice) {
        this.picture.say(this.place ? "There is no other lost time there." : "No time is lost in view.");
        return;
      }
      slice.track = track;
      slice.start += of.offset;
      slice.end += of.offset;
      this.shown = slice;
      this.picture.choose(slice, around(slice, ROOM, data.extent));
    } catch (problem) {
      this.picture.say(problem instanceof Error ? problem.message : String(problem));
    }
  }
}

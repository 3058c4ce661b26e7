// Counts the rows of nested lanes that have content, so that dozens of almost empty rows do not push other lanes out of sight.

import { ALONE_PX } from "./columns";
import type { Placed } from "./lanes";
import { levelOf, type Tiles } from "./tiles";
import type { Span, Track } from "./types";
import { rowKey } from "./wire";


export class Rows {
  readonly needed = new Map<string, number>();

  /** Add the rows that `view` needs; return whether anything changed. Rows are only added, so that lanes do not move while the viewer zooms and pans. After a jump (`anew`), the rows of earlier views no longer count. */
  fit(lanes: Placed[], tracks: Track[], tiles: Tiles, view: Span, width: number, anew: boolean): boolean {
    let changed = false;
    for (const lane of lanes) {
      if (!lane.spec || !lane.folds || lane.folded) continue;
      const rows = Math.max(rowsIn(lane, tracks[lane.track], tiles, view, width), 1);
      changed = this.set(lane.id, anew ? rows : Math.max(rows, this.needed.get(lane.id) ?? 0)) || changed;
    }
    return changed;
  }

  /** Add the row of the selected slice; return whether anything changed. */
  include(lane: Placed, depth: number): boolean {
    return depth >= (this.needed.get(lane.id) ?? lane.rows) && this.set(lane.id, depth + 1);
  }

  private set(id: string, rows: number): boolean {
    const changed = this.needed.get(id) !== rows;
    this.needed.set(id, rows);
    return changed;
  }
}

/** Return the number of rows with slices that are drawn separately, and one more if anything is nested deeper: that row shows the sum, as a folded lane does. */
function rowsIn(lane: Placed, track: Track, tiles: Tiles, view: Span, width: number): number {
  const own = { start: view.start - track.offset, end: view.end - track.offset };
  const pixel = (own.end - own.start) / width;
  const pieces = tiles.pieces(lane.track, lane.spec!.source, own, levelOf(pixel));
  let nested = 0; // 1 if anything is nested deeper
  for (let depth = lane.spec!.rows - 1; depth >= 0; depth--) {
    const key = rowKey(lane.spec!.lane, depth);
    const alone = pieces.some(({ tile }) => tile?.rows.get(key)?.slices.some((i) =>
      tile.dur[i] >= ALONE_PX * pixel && tile.start[i] < own.end && tile.start[i] + tile.dur[i] > own.start));
    if (alone) return depth + 1 + nested;
    if (pieces.some(({ tile }) => tile?.rows.has(key))) nested = 1;
  }
  return nested;
}

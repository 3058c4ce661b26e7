// Finds what is under the pointer, and the neighbours of a slice.

import type { Columns } from "./columns";
import type { Placed } from "./lanes";
import { levelOf, type Piece } from "./tiles";
import type { Picture } from "./picture";
import type { Slice, Span } from "./types";
import { rowKey } from "./wire";

/** Return the slice at a pixel of a row; null between slices, or if several short slices share the pixel. */
export function sliceAt(picture: Picture, lane: Placed, depth: number, x: number): Slice | null {
  const columns = picture.painter.drawn.rows.get(`${lane.id}/${depth}`);
  const bar = columns?.bars.findLast((b) => x >= b.from - 0.5 && x < Math.max(b.to, b.from + 1) + 0.5);
  if (bar) return slice(lane, depth, bar.tile, bar.slice, offset(picture, lane));
  return alone(picture, lane, depth, x);
}

/** Return the short slice at a pixel if it is the only one. */
function alone(picture: Picture, lane: Placed, depth: number, x: number): Slice | null {
  const view = picture.scene.view;
  const unit = picture.nsPerPixel();
  const near: Span = { start: view.start + (x - 1.5) * unit, end: view.start + (x + 1.5) * unit };
  const slices = rowSlices(picture, lane, depth, near).filter((s) => s.end >= near.start && s.start <= near.end);
  return slices.length === 1 ? slices[0] : null;
}

/** Return the filled share and the main kind of a pixel without a separate slice; null if it is empty. */
export function sumAt(columns: Columns | undefined, x: number): { share: number; kind: string } | null {
  const at = Math.floor(x);
  if (!columns || !(columns.fill[at] > 0)) return null;
  return { share: Math.min(columns.fill[at], 1), kind: columns.kinds[columns.kind[at]] };
}

/** Return the separate slices of a row in or next to a span, sorted by start. */
export function rowSlices(picture: Picture, lane: Placed, depth: number, span: Span): Slice[] {
  if (!lane.spec) return [];
  const by = offset(picture, lane);
  const view = picture.scene.view;
  const own = { start: span.start - by, end: span.end - by };
  const level = levelOf((view.end - view.start) / picture.width);
  const pieces: Piece[] = picture.tiles.pieces(lane.track, lane.spec.source, own, level);
  const slices = new Map<string, Slice>();
  for (const { tile } of pieces) {
    for (const i of tile?.rows.get(rowKey(lane.spec.lane, depth))?.slices ?? []) {
      const one = slice(lane, depth, tile!, i, by);
      slices.set(`${one.id} ${one.start}`, one);
    }
  }
  return [...slices.values()].sort((a, b) => a.start - b.start);
}

function offset(picture: Picture, lane: Placed): number {
  return picture.data.tracks[lane.track].offset;
}

function slice(lane: Placed, depth: number, tile: Piece["tile"] & object, i: number, by: number): Slice {
  return {
    track: lane.track,
    source: lane.spec!.source,
    lane: lane.spec!.lane,
    depth,
    kind: tile.kinds[tile.kind[i]],
    id: tile.id[i],
    name: tile.names.get(tile.name[i]) ?? "",
    start: tile.start[i] + by,
    end: tile.start[i] + tile.dur[i] + by,
  };
}

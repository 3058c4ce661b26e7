// The whole recording as a strip: how busy the GPU (without one, the host) is, where findings are, and which part is in view.

import { Columns } from "./columns";
import type { Scene } from "./draw";
import { kindOf, type Ink } from "./paint";
import type { Tiles } from "./tiles";
import type { LaneSpec, PageData } from "./types";

export const MAP_PX = 44;
const MARK_PX = 6; // height of the places of findings, at the top
const LOST_BASE = 19;
const HOST_LANES = 4; // threads in the strip of a run without a GPU: more could not be distinguished

/** A lane in the strip: its lower edge and height in pixels. */
interface Band {
  lane: LaneSpec;
  base: number;
  room: number;
}

/** Return the lanes of the strip: the GPU's at the bottom and lost time above; without a GPU, the host's threads. */
function bands(lanes: LaneSpec[]): Band[] {
  const gpu = lanes.filter((lane) => lane.source === "gpu" || lane.source === "gaps");
  if (gpu.length) return gpu.map((lane) => (lane.source === "gaps" ? { lane, base: LOST_BASE, room: LOST_BASE - MARK_PX - 2 } : { lane, base: MAP_PX - 1, room: MAP_PX - LOST_BASE - 3 }));
  const host = lanes.filter((lane) => lane.source === "operators").slice(0, HOST_LANES);
  const room = (MAP_PX - MARK_PX - 2) / Math.max(host.length, 1);
  return host.map((lane, i) => ({ lane, base: MARK_PX + room * (i + 1), room: room - 1 }));
}

/** Return the sources of slices that the strip needs. */
export function mapSources(data: PageData): string[] {
  return [...new Set(bands(data.tracks[0]?.lanes ?? []).map((band) => band.lane.source))];
}

/** Draw the strip of the first track from tiles of `level`. */
export function drawMap(context: CanvasRenderingContext2D, scene: Scene, tiles: Tiles, ink: Ink, width: number, level: number): void {
  const { data } = scene;
  context.clearRect(0, 0, width, MAP_PX);
  const whole = { start: 0, end: data.extent };
  const columns = new Columns(Math.ceil(width));
  for (const { lane, base, room } of bands(data.tracks[0]?.lanes ?? [])) {
    columns.read(tiles.pieces(0, lane.source, whole, level), whole, lane.lane, 0);
    for (const bar of columns.bars) {
      const kind = kindOf(data, lane.source, bar.tile.kinds[bar.tile.kind[bar.slice]]);
      context.fillStyle = kind[data.dark ? 2 : 1];
      context.fillRect(bar.from, base - room, Math.max(bar.to - bar.from, 1), room);
    }
    columns.fill.forEach((fill, x) => {
      if (!fill) return;
      context.fillStyle = kindOf(data, lane.source, columns.kinds[columns.kind[x]])[data.dark ? 2 : 1];
      const high = Math.max(Math.min(fill, 1) * room, 1);
      context.fillRect(x, base - high, 1, high);
    });
  }
  const scale = width / data.extent;
  context.fillStyle = scene.marks.length ? ink.accent : ink.muted;
  const marks = scene.marks.length ? scene.marks : data.findings.flatMap((finding) => finding.marks);
  for (const finding of marks) context.fillRect(finding.start * scale - 1, 1, Math.max((finding.end - finding.start) * scale, 2), MARK_PX - 2);
  const chosen = scene.marks[scene.mark];
  if (chosen) point(context, ((chosen.start + chosen.end) / 2) * scale, ink);
}

/** Draw a pointer above the current place. */
function point(context: CanvasRenderingContext2D, x: number, ink: Ink): void {
  context.fillStyle = ink.text;
  context.beginPath();
  context.moveTo(x - MARK_PX, 0);
  context.lineTo(x + MARK_PX, 0);
  context.lineTo(x, MARK_PX + 2);
  context.fill();
}

/** Draw which part is in view. */
export function drawWindow(context: CanvasRenderingContext2D, scene: Scene, ink: Ink, width: number): void {
  if (scene.view.end - scene.view.start >= scene.data.extent) return;
  const scale = width / scene.data.extent;
  const from = scene.view.start * scale;
  const to = Math.max(scene.view.end * scale, from + 2);
  context.fillStyle = ink.page;
  context.globalAlpha = 0.72;
  context.fillRect(0, 0, from, MAP_PX);
  context.fillRect(to, 0, width - to, MAP_PX);
  context.globalAlpha = 1;
  context.strokeStyle = ink.accent;
  context.lineWidth = 1.5;
  context.strokeRect(from + 0.75, 0.75, Math.max(to - from - 1.5, 1), MAP_PX - 1.5);
}

// The whole recording in a strip: how full the GPU is, where findings lie, and what part is in view.

import { Columns } from "./columns";
import type { Scene } from "./draw";
import { kindOf, type Ink } from "./paint";
import { levelOf, type Tiles } from "./tiles";

export const MAP_PX = 44;

/** Draw the strip: the first GPU lanes from below, lost time of the first track on top. */
export function drawMap(context: CanvasRenderingContext2D, scene: Scene, tiles: Tiles, ink: Ink, width: number): void {
  const { data } = scene;
  context.clearRect(0, 0, width, MAP_PX);
  const whole = { start: 0, end: data.extent };
  const level = levelOf(data.extent / width);
  const columns = new Columns(Math.ceil(width));
  const lanes = data.tracks[0]?.lanes.filter((lane) => lane.source === "gpu" || lane.source === "gaps") ?? [];
  for (const lane of lanes) {
    const lost = lane.source === "gaps";
    const [base, room] = lost ? [12, 10] : [MAP_PX - 1, MAP_PX - 15];
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
  context.fillStyle = ink.accent;
  for (const finding of scene.marks) context.fillRect(finding.start * scale - 1, 0, Math.max((finding.end - finding.start) * scale, 2), 3);
}

/** Draw what part is in view over the strip. */
export function drawWindow(context: CanvasRenderingContext2D, scene: Scene, ink: Ink, width: number): void {
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

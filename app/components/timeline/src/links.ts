// Draws arrows over the lanes, from a launch to what it launched.

import { AXIS_PX, type Scene } from "./draw";
import type { Placed } from "./lanes";
import type { Ink } from "./paint";
import type { Slice } from "./types";

/** A slice that is related to the selected one: its launch, or what it launched. For lost time: what the host did, and what ended the loss. */
export interface Link extends Slice {
  role: "launch" | "kernel" | "operator" | "call" | "end";
}

const MAX_ARROWS = 200; // a graph launch has thousands of kernels, and more arrows would hide the lanes

export function drawLinks(context: CanvasRenderingContext2D, scene: Scene, links: Link[], ink: Ink, width: number): void {
  const chosen = scene.selected;
  if (!chosen) return;
  const at = (slice: Slice): { lane: Placed; y: number } | null => {
    const lane = scene.lanes.find((l) => l.track === slice.track && l.spec?.source === slice.source && l.spec.lane === slice.lane);
    if (!lane) return null;
    return { lane, y: AXIS_PX + lane.top + Math.min(slice.depth, lane.rows - 1) * lane.row + lane.row / 2 };
  };
  const scale = width / (scene.view.end - scene.view.start);
  const x = (time: number) => Math.min(Math.max((time - scene.view.start) * scale, -60), width + 60);
  context.strokeStyle = context.fillStyle = ink.text;
  context.lineWidth = 1.25;
  for (const link of links.slice(0, MAX_ARROWS)) {
    if (link.role !== "launch" && link.role !== "kernel") continue;
    const [from, to] = link.role === "launch" ? [link, chosen] : [chosen, link];
    const [a, b] = [at(from), at(to)];
    if (!a || !b) continue;
    const [x0, x1] = [x(from.start), x(to.start)];
    if (Math.max(x0, x1) < -50 || Math.min(x0, x1) > width + 50) continue;
    const bend = Math.max(Math.min(Math.abs(x1 - x0) / 2, 60), 12);
    context.beginPath();
    context.moveTo(x0, a.y);
    context.bezierCurveTo(x0 + bend, a.y, x1 - bend, b.y, x1 - 2, b.y);
    context.stroke();
    context.beginPath();
    context.moveTo(x1, b.y);
    context.lineTo(x1 - 7, b.y - 3.5);
    context.lineTo(x1 - 7, b.y + 3.5);
    context.fill();
  }
}

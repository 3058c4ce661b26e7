// Pointer, wheel, touch and keys.

import { AXIS_PX } from "./draw";
import { duration, share } from "./format";
import { rowSlices, sliceAt, sumAt } from "./hit";
import { MAP_PX } from "./minimap";
import { kindOf } from "./paint";
import type { Timeline } from "./timeline";
import type { Slice, Span } from "./types";
import { around, moved, zoomed } from "./view";

const DRAG_PX = 4; // less is a click with an unsteady hand
const WHEEL_ZOOM = 0.0022; // of a wheel's pixel: a notch of 100 zooms by a quarter
const WHEEL_LINE_PX = 16;
const KEY_SPEED = 1.1; // views a second that A and D move by; W and S zoom by e to this power

/** Listen for everything a reader does to the picture; returns what ends it. */
export function listen(timeline: Timeline): () => void {
  const ends = [pointer(timeline), wheel(timeline), map(timeline), keys(timeline)];
  return () => ends.forEach((end) => end());
}

function on<K extends keyof HTMLElementEventMap>(
  element: HTMLElement, type: K, act: (event: HTMLElementEventMap[K]) => void, options?: AddEventListenerOptions,
): () => void {
  element.addEventListener(type, act, options);
  return () => element.removeEventListener(type, act, options);
}

function pointer(timeline: Timeline): () => void {
  const canvas = timeline.lanesCanvas;
  const touches = new Map<number, PointerEvent>();
  let drag: { x: number; y: number; view: Span; pan: boolean; moved: boolean } | null = null;
  const time = (x: number) => timeline.scene.view.start + x * timeline.nsPerPixel();
  const down = (event: PointerEvent) => {
    touches.set(event.pointerId, event);
    canvas.setPointerCapture(event.pointerId);
    const pan = event.pointerType === "touch" || event.button === 1 || event.shiftKey || event.offsetY < AXIS_PX;
    if (event.button > 1) return;
    drag = { x: event.offsetX, y: event.offsetY, view: timeline.target, pan, moved: false };
    hideTip(timeline);
  };
  const move = (event: PointerEvent) => {
    if (touches.size === 2 && touches.has(event.pointerId)) return pinch(timeline, touches, event);
    if (!drag) return hover(timeline, event.offsetX, event.offsetY);
    const by = event.offsetX - drag.x;
    if (Math.abs(by) > DRAG_PX) drag.moved = true;
    if (!drag.moved) return;
    if (drag.pan) timeline.go(moved(drag.view, -by * timeline.nsPerPixel(), timeline.data.extent));
    else timeline.selectRange({ start: time(Math.min(event.offsetX, drag.x)), end: time(Math.max(event.offsetX, drag.x)) }, false);
  };
  const up = (event: PointerEvent) => {
    touches.delete(event.pointerId);
    if (!drag) return;
    const was = drag;
    drag = null;
    if (!was.moved) click(timeline, event.offsetX, event.offsetY);
    else if (!was.pan) timeline.selectRange(timeline.scene.range, true);
  };
  const cancel = (event: PointerEvent) => {
    touches.delete(event.pointerId);
    drag = null;
  };
  const twice = (event: MouseEvent) => {
    const found = under(timeline, event.offsetX, event.offsetY);
    if (found) timeline.go(around(found, 1.6, timeline.data.extent), true);
  };
  const ends = [
    on(canvas, "pointerdown", down), on(canvas, "pointermove", move), on(canvas, "pointerup", up), on(canvas, "pointercancel", cancel),
    on(canvas, "pointerleave", () => hideTip(timeline)), on(canvas, "dblclick", twice),
  ];
  return () => ends.forEach((end) => end());
}

/** Two fingers: what lies under them stays under them. */
function pinch(timeline: Timeline, touches: Map<number, PointerEvent>, event: PointerEvent): void {
  const other = [...touches.values()].find((touch) => touch.pointerId !== event.pointerId)!;
  const before = touches.get(event.pointerId)!;
  const gap = Math.abs(event.offsetX - other.offsetX) || 1;
  const was = Math.abs(before.offsetX - other.offsetX) || 1;
  const at = timeline.scene.view.start + other.offsetX * timeline.nsPerPixel();
  timeline.go(zoomed(timeline.scene.view, was / gap, at, timeline.data.extent));
  touches.set(event.pointerId, event);
}

function under(timeline: Timeline, x: number, y: number): Slice | null {
  const row = timeline.rowAt(y);
  return row?.lane.kind === "slices" ? sliceAt(timeline, row.lane, row.depth, x) : null;
}

function click(timeline: Timeline, x: number, y: number): void {
  timeline.lanesCanvas.focus({ preventScroll: true });
  const row = timeline.rowAt(y);
  if (row?.lane.kind === "steps") {
    const at = timeline.scene.view.start + x * timeline.nsPerPixel();
    const step = timeline.data.steps.find((s) => at >= s.start && at < s.end);
    timeline.selectRange(step ? { start: step.start, end: step.end } : null, true);
    return;
  }
  const found = under(timeline, x, y);
  if (!found && row?.lane.kind === "slices") {
    const columns = timeline.painter.drawn.rows.get(`${row.lane.id}/${row.depth}`);
    if (sumAt(columns, x)) {
      // several slices in a pixel: go nearer, where they part
      timeline.go(zoomed(timeline.scene.view, 0.12, timeline.scene.view.start + x * timeline.nsPerPixel(), timeline.data.extent), true);
      return;
    }
  }
  timeline.select(found);
}

function hover(timeline: Timeline, x: number, y: number): void {
  const row = timeline.rowAt(y);
  const tip = timeline.root.querySelector<HTMLElement>(".tip")!;
  let words = "";
  if (row?.lane.kind === "slices") {
    const found = sliceAt(timeline, row.lane, row.depth, x);
    const sum = found ? null : sumAt(timeline.painter.drawn.rows.get(`${row.lane.id}/${row.depth}`), x);
    const label = (kind: string) => kindOf(timeline.data, row.lane.spec!.source, kind)[0];
    if (found) words = `${found.source === "gaps" || !found.name ? label(found.kind) : found.name}\n${duration(found.end - found.start)}`;
    else if (sum) words = `Many, mostly ${label(sum.kind)}\n${share(sum.share)} of ${duration(timeline.nsPerPixel())} filled. Select to zoom in.`;
  } else if (row?.lane.kind === "lines") {
    const at = timeline.scene.view.start + x * timeline.nsPerPixel();
    words = row.lane.lines!.map((line) => {
      const value = line.values[line.times.findIndex((t) => t >= at)];
      return value === null || value === undefined ? "" : `${line.label}: ${Math.round(value * 10) / 10} ${line.unit}`;
    }).filter(Boolean).join("\n");
  }
  timeline.lanesCanvas.style.cursor = y < AXIS_PX ? "grab" : words ? "pointer" : "crosshair";
  tip.hidden = !words;
  if (!words) return;
  tip.style.whiteSpace = "pre-line";
  tip.textContent = words;
  tip.style.left = `${Math.min(x + 12, Math.max(timeline.width - tip.offsetWidth - 4, 0))}px`;
  tip.style.top = `${y + 16}px`;
}

function hideTip(timeline: Timeline): void {
  timeline.root.querySelector<HTMLElement>(".tip")!.hidden = true;
}

/** The wheel zooms where the picture has the focus or Ctrl is held; else the page scrolls, as everywhere. */
function wheel(timeline: Timeline): () => void {
  const canvas = timeline.lanesCanvas;
  const turned = (event: WheelEvent) => {
    const unit = event.deltaMode === 1 ? WHEEL_LINE_PX : 1;
    const [dx, dy] = [event.deltaX * unit, event.deltaY * unit];
    const focused = (canvas.getRootNode() as Document | ShadowRoot).activeElement === canvas;
    const zooms = event.ctrlKey || event.metaKey || (focused && Math.abs(dy) > Math.abs(dx) && !event.shiftKey);
    if (zooms) {
      const at = timeline.scene.view.start + event.offsetX * timeline.nsPerPixel();
      timeline.go(zoomed(timeline.scene.view, Math.exp(dy * WHEEL_ZOOM), at, timeline.data.extent));
    } else if (Math.abs(dx) > Math.abs(dy) || event.shiftKey) {
      timeline.go(moved(timeline.scene.view, (dx || dy) * timeline.nsPerPixel(), timeline.data.extent));
    } else return;
    event.preventDefault();
    hideTip(timeline);
  };
  return on(canvas, "wheel", turned, { passive: false });
}

function map(timeline: Timeline): () => void {
  const canvas = timeline.root.querySelector<HTMLCanvasElement>(".map")!;
  let grip: number | null = null;
  const at = (event: PointerEvent) => (event.offsetX / Math.max(canvas.clientWidth, 1)) * timeline.data.extent;
  const to = (time: number) => {
    const length = timeline.target.end - timeline.target.start;
    timeline.go({ start: time - length / 2, end: time + length / 2 });
  };
  const ends = [
    on(canvas, "pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      const { start, end } = timeline.target;
      const time = at(event);
      grip = time >= start && time <= end && end - start < timeline.data.extent ? time - (start + end) / 2 : 0;
      if (end - start >= timeline.data.extent) timeline.go(around({ start: time, end: time + 1 }, timeline.data.extent / 8, timeline.data.extent), true);
      else to(time - grip);
    }),
    on(canvas, "pointermove", (event) => { if (grip !== null && event.offsetY < MAP_PX * 4) to(at(event) - grip); }),
    on(canvas, "pointerup", () => { grip = null; }),
    on(canvas, "pointercancel", () => { grip = null; }),
  ];
  return () => ends.forEach((end) => end());
}

function keys(timeline: Timeline): () => void {
  const canvas = timeline.lanesCanvas;
  const down = new Set<string>();
  let last = 0;
  const glide = (now: number) => {
    if (!down.size) return;
    const seconds = Math.min((now - last) / 1000, 0.05);
    last = now;
    const { view } = timeline.scene;
    const amount = KEY_SPEED * seconds * 2;
    const middle = (view.start + view.end) / 2;
    if (down.has("w")) timeline.go(zoomed(view, Math.exp(-amount), middle, timeline.data.extent));
    if (down.has("s")) timeline.go(zoomed(view, Math.exp(amount), middle, timeline.data.extent));
    const by = (down.has("d") ? 1 : 0) - (down.has("a") ? 1 : 0);
    if (by) timeline.go(moved(timeline.scene.view, (by * (view.end - view.start) * amount) / 2, timeline.data.extent));
    requestAnimationFrame(glide);
  };
  const pressed = (event: KeyboardEvent) => {
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if ("wasd".includes(key)) {
      if (!down.size) { last = performance.now(); requestAnimationFrame(glide); }
      down.add(key);
    } else if (!act(timeline, key, event.shiftKey)) return;
    event.preventDefault();
    event.stopPropagation();
  };
  const ends = [
    on(canvas, "keydown", pressed),
    on(canvas, "keyup", (event) => down.delete(event.key.toLowerCase())),
    on(canvas, "blur", () => down.clear()),
  ];
  const slash = (event: KeyboardEvent) => {
    const target = event.composedPath()[0] as HTMLElement;
    if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName ?? "")) return;
    event.preventDefault();
    timeline.finder.focus();
  };
  document.addEventListener("keydown", slash);
  ends.push(() => document.removeEventListener("keydown", slash));
  return () => ends.forEach((end) => end());
}

/** Do what a key says; false for a key that says nothing. */
function act(timeline: Timeline, key: string, shift: boolean): boolean {
  const { scene } = timeline;
  const chosen = scene.selected ?? scene.range;
  if (key === "ArrowRight" || key === "ArrowLeft") step(timeline, key === "ArrowRight" ? 1 : -1);
  else if (key === "ArrowDown" || key === "ArrowUp") climb(timeline, key === "ArrowDown" ? 1 : -1);
  else if (key === "Enter") timeline.drawer.focus();
  else if (key === "Escape") { timeline.selectRange(null, true); timeline.select(null); }
  else if (key === "f" && chosen) timeline.go(around(chosen, scene.range ? 1 : 1.6, timeline.data.extent), true);
  else if (key === "0" || key === "Home") timeline.go({ start: 0, end: timeline.data.extent }, true);
  else if (key === "n" || key === "]") (timeline.findings.rule && !timeline.finder.words ? timeline.findings.step(1) : timeline.finder.step(shift ? -1 : 1));
  else if (key === "p" || key === "[") (timeline.findings.rule && !timeline.finder.words ? timeline.findings.step(-1) : timeline.finder.step(-1));
  else return false;
  return true;
}

/** Choose the next slice of the row, or the first in view. */
function step(timeline: Timeline, by: number): void {
  const { selected, view, lanes } = timeline.scene;
  const lane = selected
    ? lanes.find((l) => l.track === selected.track && l.spec?.source === selected.source && l.spec.lane === selected.lane)
    : (lanes.find((l) => l.spec?.source === "gpu") ?? lanes.find((l) => l.spec));
  if (!lane) return;
  const depth = selected?.depth ?? 0;
  const room = view.end - view.start;
  const slices = rowSlices(timeline, lane, depth, { start: view.start - room / 2, end: view.end + room / 2 });
  const next = !selected
    ? slices.find((s) => s.start >= view.start && s.start < view.end)
    : by > 0
      ? slices.find((s) => s.start > selected.start || (s.start === selected.start && s.id > selected.id))
      : slices.findLast((s) => s.start < selected.start || (s.start === selected.start && s.id < selected.id));
  if (next) choose(timeline, next);
  else timeline.say(`There is no ${by > 0 ? "later" : "earlier"} slice near on this row that can be told apart. Zoom in for shorter ones.`);
}

/** Choose the slice a row below or above, at the same time. */
function climb(timeline: Timeline, by: number): void {
  const { selected, lanes } = timeline.scene;
  if (!selected) return step(timeline, 1);
  const rows = lanes.filter((l) => l.spec).flatMap((lane) => Array.from({ length: lane.rows }, (_, depth) => ({ lane, depth })));
  let at = rows.findIndex(({ lane, depth }) => lane.track === selected.track && lane.spec!.source === selected.source && lane.spec!.lane === selected.lane && depth === selected.depth);
  for (at += by; at >= 0 && at < rows.length; at += by) {
    const { lane, depth } = rows[at];
    const slices = rowSlices(timeline, lane, depth, timeline.scene.view);
    const found = slices.find((s) => s.start <= selected.start && s.end > selected.start) ?? slices.find((s) => s.start < selected.end && s.end > selected.start);
    if (found) return choose(timeline, found);
  }
}

export function choose(timeline: Timeline, slice: Slice): void {
  const { view } = timeline.scene;
  timeline.select(slice);
  timeline.reveal(slice.track, slice.source, slice.lane, slice.depth);
  if (slice.start < view.start || slice.start > view.end) {
    const middle = (slice.start + Math.min(slice.end, slice.start + (view.end - view.start) / 2)) / 2;
    const half = (view.end - view.start) / 2;
    timeline.go({ start: middle - half, end: middle + half }, false, true);
  }
}

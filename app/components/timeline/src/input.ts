// Handles mouse, wheel and keys; touch.ts handles fingers.

import { duration, share } from "./format";
import { rowSlices, sliceAt, sumAt } from "./hit";
import { MAP_PX } from "./minimap";
import { kindOf } from "./paint";
import type { Picture } from "./picture";
import { fingers } from "./touch";
import type { Slice, Span } from "./types";
import { around, moved, zoomed } from "./view";

const DRAG_PX = 4; // a shorter drag is a click with an unsteady hand
const FINGER_PX = 10; // a finger may miss its target by this much
const WHEEL_ZOOM = 0.0022; // per pixel of a wheel: a notch of 100 zooms by a quarter
const WHEEL_LINE_PX = 16;
const NOTCH_PX = 40; // a wheel's notch is one event of at least this size; a trackpad begins with smaller ones
const PAUSE_MS = [1500, 250] as const; // wheel events with a shorter pause are one movement of the hand: without and with a move of the pointer
const LETTERS = /^[wasdlgmfnpt0[\]]$/i;
const TALLER = 1.25;
const TAP_S = 0.05; // a tapped key moves as if it was pressed for this time
const KEY_SPEED = 1.1; // views per second for A and D; W and S zoom by e to this power

/** Listen to mouse, wheel, keys and fingers; return a function that stops it. */
export function listen(picture: Picture): () => void {
  const ends = [pointer(picture), wheel(picture), map(picture), keys(picture)];
  return () => ends.forEach((end) => end());
}

function on<K extends keyof HTMLElementEventMap>(
  element: HTMLElement, type: K, act: (event: HTMLElementEventMap[K]) => void, options?: AddEventListenerOptions,
): () => void {
  element.addEventListener(type, act, options);
  return () => element.removeEventListener(type, act, options);
}

function pointer(picture: Picture): () => void {
  const canvas = picture.lanesCanvas;
  let drag: { x: number; view: Span; pan: boolean; moved: boolean } | null = null;
  const time = (x: number) => picture.scene.view.start + x * picture.nsPerPixel();
  const mouse = (act: (event: PointerEvent) => void) => (event: PointerEvent) => { if (event.pointerType !== "touch") act(event); };
  const down = (event: PointerEvent) => {
    canvas.setPointerCapture(event.pointerId);
    const pan = event.button === 1 || event.shiftKey || picture.onAxis(event.offsetY);
    if (event.button > 1) return;
    drag = { x: event.offsetX, view: picture.target, pan, moved: false };
    hideTip(picture);
  };
  const move = (event: PointerEvent) => {
    if (!drag) return hover(picture, event.offsetX, event.offsetY);
    const by = event.offsetX - drag.x;
    if (Math.abs(by) > DRAG_PX) drag.moved = true;
    if (!drag.moved) return;
    if (drag.pan) picture.go(moved(drag.view, -by * picture.nsPerPixel(), picture.data.extent));
    else picture.selectRange({ start: time(Math.min(event.offsetX, drag.x)), end: time(Math.max(event.offsetX, drag.x)) }, false);
  };
  const up = (event: PointerEvent) => {
    if (!drag) return;
    const was = drag;
    drag = null;
    if (!was.moved) click(picture, event.offsetX, event.offsetY);
    else if (!was.pan) picture.selectRange(picture.scene.range, true);
  };
  const twice = (event: MouseEvent) => {
    const slice = under(picture, event.offsetX, event.offsetY);
    if (slice) picture.go(around(slice, 1.6, picture.data.extent), true);
  };
  const ends = [
    on(canvas, "pointerdown", mouse(down)), on(canvas, "pointermove", mouse(move)), on(canvas, "pointerup", mouse(up)),
    on(canvas, "pointercancel", () => { drag = null; }), on(canvas, "pointerleave", () => hideTip(picture)), on(canvas, "dblclick", twice),
    fingers(picture, (x, y) => click(picture, x, y, FINGER_PX)),
  ];
  return () => ends.forEach((end) => end());
}

function under(picture: Picture, x: number, y: number): Slice | null {
  const row = picture.rowAt(y);
  return row?.lane.kind === "slices" ? sliceAt(picture, row.lane, row.depth, x) : null;
}

/** Select the slice at a place, else one within `reach` pixels. */
function click(picture: Picture, x: number, y: number, reach = 0): void {
  picture.lanesCanvas.focus({ preventScroll: true });
  const row = picture.rowAt(y);
  if (row?.lane.kind === "steps") {
    const at = picture.scene.view.start + x * picture.nsPerPixel();
    const step = row.lane.steps!.find((s) => at >= s.start && at < s.end);
    picture.selectRange(step ? { start: step.start, end: step.end } : null, true);
    return;
  }
  const columns = row?.lane.kind === "slices" ? picture.painter.drawn.rows.get(`${row.lane.id}/${row.depth}`) : undefined;
  for (let by = 0; by <= reach; by++) {
    for (const near of by ? [x - by, x + by] : [x]) {
      const slice = under(picture, near, y);
      if (slice) return picture.select(slice);
      if (!sumAt(columns, near)) continue;
      // several slices in one pixel: zoom in until they are separate
      picture.go(zoomed(picture.scene.view, 0.12, picture.scene.view.start + near * picture.nsPerPixel(), picture.data.extent), true);
      return;
    }
  }
  picture.select(null);
}

function hover(picture: Picture, x: number, y: number): void {
  const row = picture.rowAt(y);
  const tip = picture.root.querySelector<HTMLElement>(".tip")!;
  let words = "";
  if (row?.lane.kind === "slices") {
    const slice = sliceAt(picture, row.lane, row.depth, x);
    const sum = slice ? null : sumAt(picture.painter.drawn.rows.get(`${row.lane.id}/${row.depth}`), x);
    const label = (kind: string) => kindOf(picture.data, row.lane.spec!.source, kind)[0];
    const length = slice ? duration(slice.end - slice.start) : "";
    if (slice) words = slice.source === "gaps" || !slice.name ? `${label(slice.kind)}\n${length}` : `${slice.name}\n${length} · ${label(slice.kind)}`;
    else if (sum) words = `Many, mostly ${label(sum.kind)}\n${share(sum.share)} of ${duration(picture.nsPerPixel())} filled. Select to zoom in.`;
  } else if (row?.lane.kind === "lines") {
    const at = picture.scene.view.start + x * picture.nsPerPixel();
    words = row.lane.lines!.map((line) => {
      const value = line.values[line.times.findIndex((t) => t >= at)];
      return value === null || value === undefined ? "" : `${line.label}: ${Math.round(value * 10) / 10} ${line.unit}`;
    }).filter(Boolean).join("\n");
  }
  picture.lanesCanvas.style.cursor = picture.onAxis(y) ? "grab" : words ? "pointer" : "crosshair";
  tip.hidden = !words;
  if (!words) return;
  tip.style.whiteSpace = "pre-line";
  tip.textContent = words;
  tip.style.left = `${Math.min(x + 12, Math.max(picture.width - tip.offsetWidth - 4, 0))}px`;
  tip.style.top = `${y + 16}px`;
}

function hideTip(picture: Picture): void {
  picture.root.querySelector<HTMLElement>(".tip")!.hidden = true;
}

/**
 * Zoom by wheel if the movement begins over the lanes. The page scrolls instead if the movement began elsewhere, if the whole
 * recording is in view already, or if it is a trackpad. A pinch on a trackpad zooms; browsers report it as Ctrl and wheel.
 */
function wheel(picture: Picture): () => void {
  const canvas = picture.lanesCanvas;
  let [last, zooms] = [-Infinity, false];
  let pointer = "";
  /** Handle every wheel event of the page: the first event of a movement decides whether it zooms. */
  const begins = (event: WheelEvent) => {
    const place = `${event.clientX} ${event.clientY}`;
    if (event.timeStamp - last > PAUSE_MS[place === pointer ? 0 : 1]) {
      const notch = event.deltaMode !== 0 || Math.abs(event.deltaY) >= NOTCH_PX;
      const { start, end } = picture.target;
      const whole = end - start >= picture.data.extent && event.deltaY > 0;
      zooms = event.composedPath()[0] === canvas && notch && !whole;
    }
    [last, pointer] = [event.timeStamp, place];
  };
  const turned = (event: WheelEvent) => {
    const unit = event.deltaMode === 1 ? WHEEL_LINE_PX : 1;
    const [dx, dy] = [event.deltaX * unit, event.deltaY * unit];
    const sideways = Math.abs(dx) > Math.abs(dy) || event.shiftKey;
    if (event.ctrlKey || event.metaKey || (zooms && !sideways)) {
      const at = picture.scene.view.start + event.offsetX * picture.nsPerPixel();
      picture.go(zoomed(picture.scene.view, Math.exp(dy * WHEEL_ZOOM), at, picture.data.extent));
    } else if (sideways) {
      picture.go(moved(picture.scene.view, (dx || dy) * picture.nsPerPixel(), picture.data.extent));
    } else return;
    event.preventDefault();
    hideTip(picture);
  };
  document.addEventListener("wheel", begins, { passive: true, capture: true });
  const end = on(canvas, "wheel", turned, { passive: false });
  return () => {
    document.removeEventListener("wheel", begins, { capture: true });
    end();
  };
}

function map(picture: Picture): () => void {
  const canvas = picture.root.querySelector<HTMLCanvasElement>(".map")!;
  let grip: number | null = null;
  const at = (event: PointerEvent) => (event.offsetX / Math.max(canvas.clientWidth, 1)) * picture.data.extent;
  const to = (time: number) => {
    const length = picture.target.end - picture.target.start;
    picture.go({ start: time - length / 2, end: time + length / 2 });
  };
  const ends = [
    on(canvas, "pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      const { start, end } = picture.target;
      const time = at(event);
      grip = time >= start && time <= end && end - start < picture.data.extent ? time - (start + end) / 2 : 0;
      if (end - start >= picture.data.extent) picture.go(around({ start: time, end: time + 1 }, picture.data.extent / 8, picture.data.extent), true);
      else to(time - grip);
    }),
    on(canvas, "pointermove", (event) => { if (grip !== null && event.offsetY < MAP_PX * 4) to(at(event) - grip); }),
    on(canvas, "pointerup", () => { grip = null; }),
    on(canvas, "pointercancel", () => { grip = null; }),
  ];
  return () => ends.forEach((end) => end());
}

function keys(picture: Picture): () => void {
  const canvas = picture.lanesCanvas;
  const down = new Set<string>();
  let last = 0;
  const glide = (now: number) => {
    if (!down.size) return;
    shift(Math.min((now - last) / 1000, 0.05));
    last = now;
    requestAnimationFrame(glide);
  };
  /** Move by what the pressed keys do in `seconds`, starting from the end of the current move. */
  const shift = (seconds: number) => {
    const { extent } = picture.data;
    const amount = KEY_SPEED * seconds * 2;
    const zoom = Math.exp(((down.has("s") ? 1 : 0) - (down.has("w") ? 1 : 0)) * amount);
    const by = ((down.has("d") ? 1 : 0) - (down.has("a") ? 1 : 0)) * (amount / 2);
    const { target } = picture;
    const nearer = zoomed(target, zoom, (target.start + target.end) / 2, extent);
    if (zoom !== 1 || by) picture.go(moved(nearer, by * (nearer.end - nearer.start), extent));
  };
  const pressed = (event: KeyboardEvent) => {
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if ("wasd".includes(key)) {
      if (down.has(key)) return event.preventDefault();
      if (!down.size) { last = performance.now(); requestAnimationFrame(glide); }
      down.add(key);
      shift(TAP_S);
    } else if (!act(picture, key, event.shiftKey)) return;
    event.preventDefault();
    event.stopPropagation();
  };
  const ends = [
    on(canvas, "keydown", pressed),
    on(canvas, "keyup", (event) => down.delete(event.key.toLowerCase())),
    on(canvas, "blur", () => down.clear()),
  ];
  /** Handle letters if nothing else has the focus, so that the viewer need not click the lanes first. */
  const anywhere = (event: KeyboardEvent) => {
    const target = event.composedPath()[0] as HTMLElement;
    const around = (canvas.getRootNode() as ShadowRoot).host ?? canvas; // a click beside the lanes focuses the element that scrolls them
    const led = /^(A|BUTTON)$/.test(target.tagName); // the link that led here still has the focus, and does not use letters
    const ours = led || target.contains(around) || (picture.root.contains(target) && target !== canvas && !/^(INPUT|SELECT)$/.test(target.tagName));
    if (!ours || !LETTERS.test(event.key)) return;
    canvas.focus({ preventScroll: true });
    pressed(event);
  };
  document.addEventListener("keydown", anywhere);
  ends.push(() => document.removeEventListener("keydown", anywhere));
  const slash = (event: KeyboardEvent) => {
    const target = event.composedPath()[0] as HTMLElement;
    if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName ?? "")) return;
    event.preventDefault();
    picture.finder.focus();
  };
  document.addEventListener("keydown", slash);
  ends.push(() => document.removeEventListener("keydown", slash));
  return () => ends.forEach((end) => end());
}

/** Handle a key; return whether it has a meaning here. */
function act(picture: Picture, key: string, shift: boolean): boolean {
  const { scene } = picture;
  const chosen = scene.selected ?? scene.range ?? scene.marks[scene.mark];
  if (key === "ArrowRight" || key === "ArrowLeft") step(picture, key === "ArrowRight" ? 1 : -1);
  else if (key === "ArrowDown" || key === "ArrowUp") climb(picture, key === "ArrowDown" ? 1 : -1);
  else if (key === "Enter") picture.drawer.focus();
  else if (key === "Escape") {
    if (scene.selected || scene.range) { picture.selectRange(null, true); picture.select(null); }
    else picture.finder.search("");
  }
  else if (key === "f" && chosen) picture.go(around(chosen, scene.range ? 1 : 1.6, picture.data.extent), true);
  else if (key === "g") picture.findings.next(shift ? -1 : 1);
  else if (key === "m") picture.selectRange({ ...(scene.selected ?? picture.target) }, true);
  else if (key === "t") picture.resizeRows(shift ? 1 / TALLER : TALLER);
  else if (key === "l") void picture.losses.next();
  else if (key === "0" || key === "Home") picture.go({ start: 0, end: picture.data.extent }, true);
  else if ("np[]".includes(key) && !picture.finder.words && !picture.findings.rule) picture.say("There is no search yet. Press / to find slices by name, or G to open a change.");
  else if (key === "n" || key === "]") (picture.findings.rule && !picture.finder.words ? picture.findings.step(1) : picture.finder.step(shift ? -1 : 1));
  else if (key === "p" || key === "[") (picture.findings.rule && !picture.finder.words ? picture.findings.step(-1) : picture.finder.step(-1));
  else return false;
  return true;
}

/** Select the next slice of the row, or the first one in view. */
function step(picture: Picture, by: number): void {
  const { selected, lanes } = picture.scene;
  const view = picture.target;
  const lane = selected
    ? lanes.find((l) => l.track === selected.track && l.spec?.source === selected.source && l.spec.lane === selected.lane)
    : (lanes.find((l) => l.spec?.source === "gpu") ?? lanes.find((l) => l.spec));
  if (!lane) return;
  const depth = selected?.depth ?? 0;
  const room = view.end - view.start;
  const slices = rowSlices(picture, lane, depth, { start: view.start - room / 2, end: view.end + room / 2 });
  const next = !selected
    ? slices.find((s) => s.start >= view.start && s.start < view.end)
    : by > 0
      ? slices.find((s) => s.start > selected.start || (s.start === selected.start && s.id > selected.id))
      : slices.findLast((s) => s.start < selected.start || (s.start === selected.start && s.id < selected.id));
  if (next) picture.choose(next);
  else picture.say(`There is no ${by > 0 ? "later" : "earlier"} slice nearby on this row that is drawn separately. Zoom in to see shorter ones.`);
}

/** Select the slice one row below or above, at the same time. */
function climb(picture: Picture, by: number): void {
  const { selected, lanes } = picture.scene;
  if (!selected) return step(picture, 1);
  const rows = lanes.filter((l) => l.spec).flatMap((lane) => Array.from({ length: lane.folded ? 1 : lane.spec!.rows }, (_, depth) => ({ lane, depth })));
  let at = rows.findIndex(({ lane, depth }) => lane.track === selected.track && lane.spec!.source === selected.source && lane.spec!.lane === selected.lane && depth === selected.depth);
  for (at += by; at >= 0 && at < rows.length; at += by) {
    const { lane, depth } = rows[at];
    const slices = rowSlices(picture, lane, depth, picture.scene.view);
    const slice = slices.find((s) => s.start <= selected.start && s.end > selected.start) ?? slices.find((s) => s.start < selected.end && s.end > selected.start);
    if (slice) return picture.choose(slice);
  }
}

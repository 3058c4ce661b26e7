// Handles fingers: one taps, moves the view or, after a pause, selects a range; two zoom.

import type { Picture } from "./picture";
import type { Point, Span } from "./types";
import { moved, pinched } from "./view";

const TAP_PX = 8; // a finger that moves less is a tap
const HOLD_MS = 400; // the time after which phones select words

/** The action of one finger, with the point where it began. */
interface Drag {
  at: Point;
  view: Span;
  does: "nothing yet" | "moves" | "selects";
  hold: number;
}

/** Listen to fingers; return a function that stops it. The browser itself scrolls up and down (touch-action: pan-y). */
export function fingers(picture: Picture, tap: (x: number, y: number) => void): () => void {
  const canvas = picture.lanesCanvas;
  // points instead of events, because an event's offset changes when it leaves the shadow root
  const down = new Map<number, Point>();
  let drag: Drag | null = null;

  const begin = (at: Point, does: Drag["does"]) => {
    const own: Drag = { at, view: picture.target, does, hold: 0 };
    own.hold = window.setTimeout(() => {
      if (own.does !== "nothing yet" || picture.onAxis(at.y)) return;
      own.does = "selects";
      select(at.x, at.x + 1, false);
    }, HOLD_MS);
    drag = own;
  };
  const leave = () => {
    if (drag) clearTimeout(drag.hold);
    drag = null;
  };
  const select = (a: number, b: number, done: boolean) => {
    const { start } = picture.scene.view;
    const unit = picture.nsPerPixel();
    picture.selectRange({ start: start + Math.min(a, b) * unit, end: start + Math.max(a, b) * unit }, done);
  };
  const follow = (at: Point) => {
    if (!drag) return;
    const by = at.x - drag.at.x;
    if (drag.does === "selects") return select(drag.at.x, at.x, false);
    if (Math.abs(by) > TAP_PX) drag.does = "moves";
    if (drag.does === "moves") picture.go(moved(drag.view, -by * picture.nsPerPixel(), picture.data.extent));
  };

  const listeners: Partial<Record<keyof HTMLElementEventMap, (event: PointerEvent) => void>> = {
    pointerdown: (event) => {
      const at = { x: event.offsetX, y: event.offsetY };
      canvas.setPointerCapture(event.pointerId);
      down.set(event.pointerId, at);
      leave();
      if (down.size === 1) begin(at, "nothing yet");
    },
    pointermove: (event) => {
      const before = down.get(event.pointerId);
      if (!before) return;
      const at = { x: event.offsetX, y: event.offsetY };
      down.set(event.pointerId, at);
      if (down.size === 1) return follow(at);
      const other = [...down].find(([id]) => id !== event.pointerId)![1];
      picture.go(pinched(picture.scene.view, picture.width, [before, other], [at, other], picture.data.extent));
    },
    pointerup: (event) => {
      const was = drag;
      down.delete(event.pointerId);
      leave();
      if (down.size) return begin([...down.values()][0], "moves"); // one of two fingers is left, so this is no tap
      if (was?.does === "nothing yet") tap(event.offsetX, event.offsetY);
      else if (was?.does === "selects") select(was.at.x, event.offsetX, true);
    },
    pointercancel: (event) => {
      down.delete(event.pointerId);
      leave();
    },
  };
  const ends = Object.entries(listeners).map(([type, act]) => {
    const heard = (event: Event) => { if ((event as PointerEvent).pointerType === "touch") act(event as PointerEvent); };
    canvas.addEventListener(type, heard);
    return () => canvas.removeEventListener(type, heard);
  });
  return () => { leave(); ends.forEach((end) => end()); };
}

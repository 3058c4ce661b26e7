import assert from "node:assert/strict";
import { test } from "node:test";

import { listen } from "../src/input";
import type { Picture } from "../src/picture";
import type { Span } from "../src/types";

/** A picture in an endless move: `view` does not change, and `go` stores the target. */
function gliding(view: Span, to: Span): { picture: Picture; press: (key: string) => void } {
  const canvas = new EventTarget() as unknown as HTMLCanvasElement;
  Object.assign(canvas, { getRootNode: () => globalThis.document });
  globalThis.document = new EventTarget() as unknown as Document;
  globalThis.requestAnimationFrame = () => 0;
  const picture = {
    root: { querySelector: () => canvas, contains: () => false },
    lanesCanvas: canvas, data: { extent: 1e9 }, scene: { view, lanes: [], marks: [] }, target: to,
    go(next: Span) { this.target = next; },
  } as unknown as Picture;
  listen(picture);
  return { picture, press: (key) => canvas.dispatchEvent(Object.assign(new Event("keydown", { cancelable: true }), { key })) };
}

test("a wheel zooms if its movement begins over the picture, otherwise the page scrolls", () => {
  const { picture } = gliding({ start: 0, end: 1e8 }, { start: 0, end: 1e8 });
  let now = 0;
  /** Turn a wheel after a pause; return whether the picture used the event. */
  const turn = (pause: number, event: Partial<WheelEvent>, over = true): boolean => {
    now += pause;
    const wheel = Object.assign(new Event("wheel", { cancelable: true }), { deltaMode: 0, deltaX: 0, offsetX: 50, ...event });
    Object.defineProperties(wheel, { timeStamp: { value: now }, composedPath: { value: () => [over ? picture.lanesCanvas : document] } });
    document.dispatchEvent(wheel);
    return over && !picture.lanesCanvas.dispatchEvent(wheel);
  };
  Object.assign(picture, { nsPerPixel: () => 1e6 });
  assert.ok(turn(2000, { deltaY: -100 }), "a notch, without a click first");
  assert.ok(turn(2000, { deltaY: -3, deltaMode: 1 }), "in lines");
  assert.ok(!turn(2000, { deltaY: -4 }) && !turn(20, { deltaY: -90 }), "two fingers on a trackpad, however fast they become");
  assert.ok(turn(2000, { deltaY: -4, ctrlKey: true }), "a pinch");
  assert.ok(!turn(2000, { deltaY: 100 }, false) && !turn(400, { deltaY: -100 }), "the picture came under the pointer while the page scrolled");
  picture.target.start = 0;
  picture.target.end = 1e9;
  assert.ok(!turn(2000, { deltaY: 100 }), "there is nothing to zoom out of");
});

test("a key pressed during a move starts from the target of the move", () => {
  const [drawn, to] = [{ start: 0, end: 1e8 }, { start: 5e8, end: 5.1e8 }];
  const length = to.end - to.start;
  for (const [key, sign] of [["d", 1], ["a", -1]] as const) {
    const { picture, press } = gliding(drawn, to);
    press(key);
    const by = (picture.target.start - to.start) / length;
    assert.ok(sign * by > 0 && sign * by < 0.2, `${key}: a tap is a small part of the view, not ${by} of it`);
    assert.ok(Math.abs(picture.target.end - picture.target.start - length) < 1);
  }
  for (const [key, sign] of [["w", -1], ["s", 1]] as const) {
    const { picture, press } = gliding(drawn, to);
    press(key);
    assert.ok(Math.abs(picture.target.start + picture.target.end - to.start - to.end) < 1, "around its middle");
    assert.ok(sign * Math.log((picture.target.end - picture.target.start) / length) > 0);
  }
  const { picture, press } = gliding(drawn, to);
  press("w");
  const nearer = picture.target;
  press("d");
  assert.ok(picture.target.start > nearer.start && picture.target.end - picture.target.start < nearer.end - nearer.start, "both that are held");
});

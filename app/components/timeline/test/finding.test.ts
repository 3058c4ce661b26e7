import assert from "node:assert/strict";
import { test } from "node:test";

import { FindingBar } from "../src/finding";
import type { Picture } from "../src/picture";

/** An element that accepts all content and shows nothing. */
function blank(): HTMLElement {
  return { hidden: false, replaceChildren() {}, append() {}, setAttribute() {} } as unknown as HTMLElement;
}

test("a late error of one finding does not change the marks of another", async () => {
  const failures: (() => void)[] = [];
  globalThis.document = { createElement: blank } as unknown as Document;
  globalThis.fetch = () => new Promise((_, fail) => failures.push(() => fail(new Error("late"))));
  const finding = (rule: string, start: number) => ({ rule, title: rule, gain: "", fix: "", marks: [{ start, end: start + 1 }] });
  const scene = { marks: [], mark: -1, view: { start: 0, end: 100 } };
  const data = { findings: [finding("a", 1), finding("b", 50)], tracks: [{ api: "", recording: "r", device: 0, offset: 0 }], extent: 100 };
  const bar = new FindingBar(blank(), blank(), { data, scene, target: scene.view, remap() {}, moved() {} } as unknown as Picture);
  bar.open("a");
  bar.open("b");
  failures[1]();
  await new Promise(setImmediate);
  assert.deepEqual(scene.marks, [{ start: 50, end: 51 }]);
  failures[0]();
  await new Promise(setImmediate);
  assert.deepEqual(scene.marks, [{ start: 50, end: 51 }]);
});

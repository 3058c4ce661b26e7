import assert from "node:assert/strict";
import { test } from "node:test";

import { LaneChoice, placed, type Placed } from "../src/lanes";
import { Rows } from "../src/rows";
import type { Tiles } from "../src/tiles";

const WIDTH = 1000;
const spec = { id: "operators-0", source: "operators", lane: 0, label: "ops", rows: 9 };
const track = { api: "", recording: "r", device: 0, label: "", offset: 0, lanes: [spec] };

/** Tiles with one slice per row: [row, start, length]. */
function holding(...slices: [number, number, number][]): Tiles {
  const rows = new Map(slices.map(([depth], i) => [`0/${depth}`, { slices: Uint32Array.of(i), sums: new Uint32Array() }]));
  const tile = { start: slices.map((s) => s[1]), dur: slices.map((s) => s[2]), rows };
  return { pieces: () => [{ start: 0, end: 1e9, tile }] } as unknown as Tiles;
}

function lanes(rows: Rows): Placed[] {
  return placed([track], [], [], new LaneChoice(), rows.needed).lanes;
}

test("a lane has a row for each separately drawn slice and one for nested slices", () => {
  const rows = new Rows();
  const tiles = holding([0, 0, 9e5], [1, 1e5, 4e5], [2, 1e5, 1500], [3, 1e5, 800]);
  assert.equal(lanes(rows)[0].rows, 9, "until something is known of it");
  assert.ok(rows.fit(lanes(rows), [track], tiles, { start: 0, end: 1e6 }, WIDTH, true));
  assert.equal(lanes(rows)[0].rows, 3, "two by themselves; 1.5 pixels nest in them");
  assert.ok(!rows.fit(lanes(rows), [track], tiles, { start: 0, end: 1e6 }, WIDTH, false), "the same view changes nothing");
  assert.ok(rows.fit(lanes(rows), [track], tiles, { start: 1e5, end: 2e5 }, WIDTH, false));
  assert.equal(lanes(rows)[0].rows, 4, "nearer, all are by themselves, and nothing nests in the last");
});

test("rows are only added, except after a jump, and added for the selected slice", () => {
  const rows = new Rows();
  const tiles = holding([0, 0, 9e5], [1, 1e5, 1000], [2, 1e5, 300]);
  rows.fit(lanes(rows), [track], tiles, { start: 1e5, end: 1.1e5 }, WIDTH, true);
  assert.equal(lanes(rows)[0].rows, 3);
  rows.fit(lanes(rows), [track], tiles, { start: 5e5, end: 6e5 }, WIDTH, false);
  assert.equal(lanes(rows)[0].rows, 3, "lanes below stay where they are");
  rows.fit(lanes(rows), [track], tiles, { start: 0, end: 1e6 }, WIDTH, true);
  assert.equal(lanes(rows)[0].rows, 2);
  assert.ok(rows.include(lanes(rows)[0], 4));
  assert.equal(lanes(rows)[0].rows, 5);
  assert.ok(!rows.include(lanes(rows)[0], 3));
});

// Compares the drawn columns of a row with a plain sum over its slices, at random zooms.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Columns } from "../src/columns";
import { levelOf, Tiles } from "../src/tiles";
import type { Span, Track } from "../src/types";
import { COLUMNS } from "../src/wire";
import { random, served, type Event } from "./made";

const TRACK: Track = { api: "", recording: "r", device: 0, label: "", offset: 0, lanes: [] };
const EXTENT = 40_000_000;
const WIDTH = 700;

/** Slices of one row that follow each other, of lengths from nanoseconds to milliseconds. */
function row(seed: number): Event[] {
  const next = random(seed);
  const events: Event[] = [];
  for (let at = 0; at < EXTENT - 2_000_000; ) {
    const dur = Math.floor(10 ** (next() * 5.5));
    events.push({ start: at, dur, kind: next() < 0.5 ? "a" : "b" });
    at += dur + Math.floor(next() * 10 ** (next() * 6));
  }
  return events;
}

async function columnsOf(events: Event[], view: Span): Promise<Columns> {
  const level = levelOf((view.end - view.start) / WIDTH);
  let done: () => void = () => {};
  const tiles: Tiles = new Tiles([TRACK], () => { if (tiles.settled()) done(); }, served(events, 40));
  const arrived = new Promise<void>((resolve) => { done = resolve; });
  tiles.want([{ view, level, sources: [["gpu"]] }]);
  await arrived;
  const columns = new Columns(WIDTH);
  columns.read(tiles.pieces(0, "gpu", view, level), view, 7, 0);
  return columns;
}

/** Return the filled share of each pixel: sums, and separately drawn slices at whole pixels. */
function shown(columns: Columns): Float64Array {
  const share = Float64Array.from(columns.fill, (fill) => Math.min(fill, 1));
  for (const bar of columns.bars) {
    for (let x = Math.max(Math.floor(bar.from), 0); x < Math.min(Math.ceil(bar.to), WIDTH); x++) {
      share[x] += Math.max(Math.min(bar.to, x + 1) - Math.max(bar.from, x), 0);
    }
  }
  return share;
}

test("the drawn busy share is exact to a pixel at random zooms", async () => {
  const next = random(3);
  for (let round = 0; round < 25; round++) {
    const events = row(round);
    const length = EXTENT * 10 ** (-4 * next());
    const start = next() * (EXTENT - length);
    const view = { start, end: start + length };
    const columns = await columnsOf(events, view);
    const share = shown(columns);
    const unit = length / WIDTH;
    let [drawn, wanted] = [0, 0];
    for (let x = 0; x < WIDTH; x++) {
      const [low, high] = [start + x * unit, start + (x + 1) * unit];
      drawn += share[x];
      for (const e of events) wanted += Math.max(Math.min(e.start + e.dur, high) - Math.max(e.start, low), 0) / unit;
      // a summed slice is drawn from the column in which it begins, so it may end a column later
      assert.ok(Math.abs(drawn - wanted) <= 2.01, `pixel ${x} of round ${round}: ${drawn} drawn, ${wanted} recorded`);
    }
  }
});

test("every slice that covers a pixel is drawn once", async () => {
  for (let round = 0; round < 15; round++) {
    const events = row(100 + round);
    const next = random(round);
    const length = EXTENT * 10 ** (-3 * next());
    const start = next() * (EXTENT - length);
    const view = { start, end: start + length };
    const columns = await columnsOf(events, view);
    const wide = events.filter((e) => e.dur / (length / WIDTH) >= 2 && e.start < view.end && e.start + e.dur > view.start);
    const drawn = columns.bars.map((bar) => bar.tile.start[bar.slice]).sort((a, b) => a - b);
    assert.deepEqual(drawn, wide.map((e) => e.start));
    for (const e of events) {
      const x = Math.floor(((e.start + e.dur / 2 - view.start) / length) * WIDTH);
      const seen = x < 0 || x >= WIDTH || [x - 1, x, x + 1].some((at) => shown(columns)[at] > 0);
      if (e.dur / (length / WIDTH) >= 1) assert.ok(seen, `a slice of ${e.dur} ns at ${e.start} is not drawn`);
    }
  }
});

test("a coarser tile is drawn while a tile loads, and no tile is requested twice", async () => {
  const events = row(1);
  const addresses: string[] = [];
  const answer = served(events, 40);
  let done: () => void = () => {};
  const tiles: Tiles = new Tiles([TRACK], () => { if (tiles.settled()) done(); }, (address) => { addresses.push(address); return answer(address); });
  const all = { view: { start: 0, end: EXTENT }, level: levelOf(EXTENT / WIDTH), sources: [["gpu"]] };
  let arrived = new Promise<void>((resolve) => { done = resolve; });
  tiles.want([all, all]);
  tiles.want([all]);
  await arrived;
  const asked = addresses.length;
  assert.equal(asked, Math.ceil(EXTENT / (COLUMNS * 2 ** all.level)));
  const near = { start: 1_000_000, end: 1_100_000 };
  assert.ok(tiles.pieces(0, "gpu", near, 5).every((piece) => piece.tile));
  arrived = new Promise<void>((resolve) => { done = resolve; });
  tiles.want([{ view: near, level: 5, sources: [["gpu"]] }]);
  await arrived;
  tiles.want([{ view: near, level: 2, sources: [["gpu"]] }]);
  const complete = tiles.pieces(0, "gpu", near, 5).every((piece) => piece.tile!.complete);
  assert.equal(addresses.length > asked, true);
  if (complete) assert.ok(tiles.settled(), "a complete tile needs no nearer one");
});

test("the cache drops the least recently used tiles", async () => {
  let done: () => void = () => {};
  const addresses: string[] = [];
  const answer = served(row(2), 0);
  const get = (address: string) => { addresses.push(address); return answer(address); };
  const tiles: Tiles = new Tiles([TRACK], () => { if (tiles.settled()) done(); }, get, 12_000);
  const look = async (index: number) => {
    const arrived = new Promise<void>((resolve) => { done = resolve; });
    const view = { start: index * 2 ** 19 + 1, end: index * 2 ** 19 + 2 };
    tiles.want([{ view, level: 9, sources: [["gpu"]] }]);
    if (!tiles.settled()) await arrived;
    assert.ok(tiles.pieces(0, "gpu", view, 9)[0].tile);
  };
  for (let index = 0; index < 60; index++) {
    await look(index);
    await look(0);
    assert.ok(tiles.bytes <= 12_000);
  }
  assert.equal(addresses.filter((address) => address.includes("index=0&")).length, 1);
  await look(1);
  assert.equal(addresses.filter((address) => address.includes("index=1&")).length, 2);
});

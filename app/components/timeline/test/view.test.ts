import assert from "node:assert/strict";
import { test } from "node:test";

import { column, duration, exact, share, time } from "../src/format";
import { lostLabel, stepLabel, stepName } from "../src/labels";
import { LaneChoice, placed, rowFor } from "../src/lanes";
import { trace } from "../src/draw";
import { fit, readable } from "../src/paint";
import type { PageData } from "../src/types";
import { uncounted } from "../src/uncounted";
import { around, between, clamped, moved, pinched, showing, tick, zoomed } from "../src/view";
import { random } from "./made";

test("a zoom keeps the time under the pointer", () => {
  const next = random(9);
  for (let round = 0; round < 200; round++) {
    const view = { start: 4e5 + next() * 1e5, end: 6e5 + next() * 1e5 };
    const at = view.start + next() * (view.end - view.start);
    const nearer = zoomed(view, 0.1 + next(), at, 1e6);
    const [before, after] = [view, nearer].map((v) => (at - v.start) / (v.end - v.start));
    if (nearer.start > 0 && nearer.end < 1e6) assert.ok(Math.abs(before - after) < 1e-9);
  }
});

test("a pinch keeps the times under both fingers", () => {
  const [width, extent] = [400, 1e9];
  const view = { start: 3e8, end: 5e8 };
  const time = (span: typeof view, x: number) => span.start + (x * (span.end - span.start)) / width;
  const [before, after] = [[100, 180], [60, 300]].map(([a, b]) => [{ x: a, y: 50 }, { x: b, y: 50 }] as [{ x: number; y: number }, { x: number; y: number }]);
  const nearer = pinched(view, width, before, after, extent);
  assert.ok(Math.abs((view.end - view.start) / (nearer.end - nearer.start) - 3) < 1e-9);
  for (const finger of [0, 1]) assert.ok(Math.abs(time(view, before[finger].x) - time(nearer, after[finger].x)) < 1);
  const upright = pinched(view, width, [{ x: 90, y: 10 }, { x: 90, y: 60 }], [{ x: 90, y: 10 }, { x: 90, y: 110 }], extent);
  assert.ok(Math.abs((upright.end - upright.start) / (view.end - view.start) - 0.5) < 1e-9, "fingers one above the other zoom as well");
});

test("views stay inside the recording and have a minimum length", () => {
  assert.deepEqual(clamped({ start: -50, end: 150 }, 100_000), { start: 0, end: 1000 });
  assert.deepEqual(clamped({ start: 90_000, end: 130_000 }, 100_000), { start: 60_000, end: 100_000 });
  assert.deepEqual(clamped({ start: -1e9, end: 1e9 }, 100_000), { start: 0, end: 100_000 });
  assert.deepEqual(moved({ start: 10, end: 20 }, 1e9, 100), { start: 90, end: 100 });
  assert.deepEqual(clamped({ start: 3, end: 4 }, 500), { start: 0, end: 500 });
  assert.deepEqual(around({ start: 4000, end: 6000 }, 2, 100_000), { start: 3000, end: 7000 });
});

test("a move begins and ends at the given views and stays between them", () => {
  const [from, to] = [{ start: 0, end: 1e6 }, { start: 5e5, end: 5.1e5 }];
  assert.deepEqual(between(from, to, 0), from);
  const last = between(from, to, 1);
  assert.ok(Math.abs(last.start - to.start) < 1e-3 && Math.abs(last.end - to.end) < 1e-3);
  for (let s = 0; s <= 1; s += 0.1) {
    const now = between(from, to, s);
    assert.ok(now.start >= -1e-6 && now.end <= 1e6 + 1e-6 && now.end > now.start);
  }
});

test("ticks are round and far enough apart", () => {
  for (const ns of [1e3, 3.7e4, 8e6, 2.2e9, 5e11]) {
    const step = tick(ns, 1000, 96);
    assert.ok((step / ns) * 1000 >= 96 - 1e-6);
    assert.match(step.toPrecision(3), /^(1\.00|2\.00|5\.00)|^(1|2|5)00$|^(10|20|50)\.0$/);
  }
});

test("numbers are formatted with units", () => {
  assert.equal(duration(165_694), "166\u00a0µs");
  assert.equal(duration(67), "67\u00a0ns");
  assert.equal(duration(2_400), "2.4\u00a0µs");
  assert.deepEqual(column([4_143_000, 468_000, 2_000, 0]), ["4.14\u00a0ms", "0.47\u00a0ms", "<\u00a00.01\u00a0ms", "0.00\u00a0ms"]);
  assert.deepEqual(column([613_000, 50_400]), ["613\u00a0µs", "50\u00a0µs"]);
  assert.deepEqual(column([0]), ["0\u00a0ns"]);
  assert.equal(exact(41_203_117), "41.203\u202f117\u00a0ms");
  assert.equal(exact(12), "12\u00a0ns");
  assert.equal(share(0.0004), "<0.1 %");
  assert.equal(share(0.624), "62\u00a0%");
  assert.equal(share(0.00779), "0.78\u00a0%");
  assert.equal(share(0.99999), "99.9\u00a0%");
  assert.equal(share(1), "100\u00a0%");
  assert.equal(time(46_250_000, 50_000, 1e9), "46.25\u00a0ms");
  assert.equal(time(1_250_000_000, 50_000_000, 2e9), "1.25\u00a0s");
});

test("names are cut to their space and have contrast on every colour", () => {
  assert.equal(fit("aten::mm", 100, 6), "aten::mm");
  assert.equal(fit("aten::convolution", 66, 6), "convolution", "the namespace is removed first");
  assert.equal(fit("aten::convolution", 48, 6), "convolu…");
  assert.equal(fit("aten::convolution", 24, 6), "", "three letters are too few for a name");
  assert.equal(fit("aten::mm", 12, 6), "mm");
  assert.equal(fit("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 110, 6), "enumerate", "a whole word is better than a cut name");
  assert.equal(fit("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 40, 6), "", "six letters would be no name");
  assert.equal(readable("#0072B2"), "#ffffff");
  assert.equal(readable("#9AD1F5"), "#000000");
  assert.equal(readable("#7D93AB"), "#000000");
  assert.equal(fit("ProfilerStep#12", 40, 6, stepName), "#12", "a step has a short name");
});

function again(choice: LaneChoice): LaneChoice {
  const read = new LaneChoice();
  read.read(choice.toString());
  return read;
}

test("folded and pinned lanes are in the address", () => {
  const lanes = [
    { id: "gpu-7", source: "gpu", lane: 7, label: "Stream 7", rows: 1 },
    { id: "operators-0", source: "operators", lane: 0, label: "ops", rows: 5 },
    { id: "python-0", source: "python", lane: 0, label: "Python", rows: 30, folded: true },
  ];
  const track = { recording: "r", device: 0, label: "", offset: 0, lanes };
  const choice = new LaneChoice();
  choice.read("operators-0,!python-0");
  const shown = placed([track], [], [], choice).lanes;
  assert.deepEqual(shown.map((l) => [l.id, l.rows, l.pinned]), [["python-0", 1, true], ["gpu-7", 1, false], ["operators-0", 1, false]]);
  choice.fold("operators-0");
  choice.pin("python-0");
  choice.fold("python-0");
  assert.equal(choice.toString(), "python-0");
  assert.deepEqual(placed([track], [], [], choice).lanes.map((l) => l.rows), [1, 5, 30]);
  choice.size("python-0", 50.4);
  assert.equal(choice.toString(), again(choice).toString(), "the address holds what was resized");
  assert.equal(placed([track], [], [], again(choice)).lanes.find((l) => l.id === "python-0")!.row, 50);
  choice.size("python-0", null);
  const heights = (room: number) => placed([track], [], [], choice, new Map(), rowFor(room, (row) => placed([track], [], [], choice, new Map(), row).height)).lanes[0].row;
  assert.deepEqual([100, 36 * 30 + 20, 9999].map(heights), [24, 30, 64], "rows fill the room, between a least and a most height");
  const tops = placed([track], [], [], choice).lanes.map((l) => [l.top, l.top + l.height]);
  tops.slice(1).forEach(([top], i) => assert.ok(top >= tops[i][1]));
});

test("a place is shown without a zoom unless it is too large for the view", () => {
  const step = { start: 100_000, end: 200_000 };
  assert.deepEqual(showing({ start: 120_000, end: 120_010 }, step, 8, 1e6), step, "it is there already");
  assert.deepEqual(showing({ start: 450_000, end: 450_010 }, step, 8, 1e6), { start: 400_005, end: 500_005 }, "moved, as long as before");
  assert.deepEqual(showing({ start: 400_000, end: 440_000 }, step, 8, 1e6), { start: 260_000, end: 580_000 }, "8 times the place");
  assert.deepEqual(showing({ start: 400_000, end: 440_000 }, { start: 0, end: 1e6 }, 8, 1e6), { start: 260_000, end: 580_000 }, "nearer than the whole");
});

test("time outside the counted steps is distinguished from time without losses", () => {
  const step = (start: number, end: number, counted: boolean) => ({ start, end, counted, name: `ProfilerStep#${start}${counted ? "" : " (not counted: warm-up)"}` });
  const steps = [step(10, 30, false), step(30, 50, true), step(50, 70, true)];
  const data = { extent: 100, steps, tracks: [{ offset: 0 }, { offset: 5, steps: [{ start: 5, end: 25, name: "a", counted: true }] }, { offset: 0 }] } as unknown as PageData;
  assert.deepEqual(uncounted(data, 0), [{ start: 0, end: 30 }, { start: 70, end: 100 }]);
  assert.deepEqual(uncounted(data, 1), [{ start: 0, end: 5 }, { start: 25, end: 100 }], "a second run's, on this clock");
  assert.deepEqual(uncounted(data, 2), [], "another rank's steps are not sent");
  assert.deepEqual(uncounted({ ...data, steps: [steps[0]] } as PageData, 0), [], "without a counted step causes are sought everywhere");
  assert.equal(stepLabel(steps[0], 140), "#10, not counted");
  assert.equal(stepLabel(steps[1], 80), "#30 · 20\u00a0ns");
});

test("a label that does not fit is replaced by a shorter one or left out", () => {
  const step = { start: 0, end: 57_500_000, counted: true, name: "Optimizer.step#Adam.step 12" };
  assert.equal(stepLabel(step, 300), "#12 · 57.5\u00a0ms");
  assert.equal(stepLabel(step, 45), "#12", "all short steps show the same kind of text");
  assert.equal(stepLabel(step, 20), "#12");
  assert.equal(stepLabel(step, 10), "");
  assert.equal(stepLabel({ ...step, name: "epoch of mine" }, 30), "", "a name of the user's own has no short one");
  assert.equal(lostLabel("data loader", 613_000_000, 150), "data loader · 613\u00a0ms");
  assert.equal(lostLabel("data loader", 613_000_000, 75), "data loader");
  assert.equal(lostLabel("data loader", 613_000_000, 60), "613\u00a0ms");
  assert.equal(lostLabel("data loader", 613_000_000, 20), "");
});

test("nearly idle threads are folded into a row that the address can open", () => {
  const lanes = [
    { id: "calls-0", source: "calls", lane: 0, label: "Main calls", rows: 1 },
    { id: "calls-3", source: "calls", lane: 3, label: "thread 3 calls", rows: 1, quiet: true },
    { id: "calls-4", source: "calls", lane: 4, label: "thread 4 calls", rows: 1, quiet: true },
  ];
  const track = { api: "", recording: "r", device: 0, label: "", offset: 0, lanes };
  const choice = new LaneChoice();
  const shown = () => placed([track], [], [], choice).lanes.map((lane) => [lane.id, lane.label, lane.folded]);
  assert.deepEqual(shown(), [["calls-0", "Main calls", false], ["quiet", "2 quiet threads", true]]);
  choice.read("quiet");
  assert.deepEqual(shown().map(([id]) => id), ["calls-0", "quiet", "calls-3", "calls-4"]);
  assert.equal(shown()[1][2], false);
});

test("telemetry is one line until its panel is opened", () => {
  const line = (unit: string, label: string) => ({ label, unit, light: "", dark: "", top: 100, times: [], values: [] });
  const track = { api: "", recording: "r", device: 0, label: "", offset: 0, lanes: [] };
  const choice = new LaneChoice();
  const shown = () => placed([track], [], [line("%", "GPU activity"), line("%", "tensor pipe"), line("W", "power")], choice).lanes.map((lane) => [lane.lines?.map((l) => l.label).join(), lane.more]);
  assert.deepEqual(shown(), [["GPU activity", 2]]);
  choice.read("!lines-W");
  assert.deepEqual(shown(), [["power", 0], ["GPU activity", 2]], "an old link may pin a panel");
  choice.read("lines-%");
  assert.deepEqual(shown(), [["GPU activity,tensor pipe", 0], ["power", 0]]);
});

test("a panel knows if it has a telemetry sample in view", () => {
  const ignored = { moveTo() {}, lineTo() {} };
  const line = { label: "", unit: "%", light: "", dark: "", top: 100, times: [10, 20, 30], values: [1, 2, null] };
  const seen = (start: number, end: number) => trace(ignored, line, { start, end }, 1, (v) => v);
  assert.ok(seen(0, 100) && seen(12, 15), "a value holds for the time up to its sample");
  assert.ok(!seen(21, 29) && !seen(30, 100) && !seen(0, 5));
});

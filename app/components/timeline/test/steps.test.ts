import assert from "node:assert/strict";
import test from "node:test";

import { stepsOf } from "../src/steps";

test("steps survive encoding", () => {
  const sent = { times: "5 10 0 20 -3 4 1 1", names: [[2, "step#", 9, null], [1, "last", null, "cut off"], [1, "x", 0, ""]] } as never;
  assert.deepEqual(stepsOf(sent, 100), [
    { start: 105, end: 115, name: "step#9", counted: true },
    { start: 115, end: 135, name: "step#10", counted: true },
    { start: 132, end: 136, name: "last (not counted: cut off)", counted: false },
    { start: 137, end: 138, name: "x0", counted: false },
  ]);
  assert.deepEqual(stepsOf({ times: "", names: [] }), []);
});

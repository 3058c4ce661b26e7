// src/dom.ts
function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.filter((child) => child !== null && child !== void 0 && child !== false));
  return made;
}
function button(label, act2, attributes = {}) {
  const made = element("button", { type: "button", ...attributes }, label);
  made.onclick = act2;
  return made;
}
async function fetchJson(address) {
  const answer = await fetch(address, { credentials: "same-origin" });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error?.sentence ?? `The server answered ${answer.status}.`);
  return body;
}
function scroller(inside) {
  let place = inside.getRootNode().host ?? inside;
  while (place.parentElement) {
    place = place.parentElement;
    if (place.scrollHeight > place.clientHeight && /auto|scroll/.test(getComputedStyle(place).overflowY)) return place;
  }
  return null;
}

// src/format.ts
var NO_BREAK = " ";
function duration(ns) {
  const [unit, size2] = unitOf(Math.abs(ns));
  return `${figures(ns / size2)}${NO_BREAK}${unit}`;
}
function column(durations) {
  const longest = Math.max(0, ...durations.map(Math.abs));
  const [unit, size2] = unitOf(longest);
  const decimals = unit === "ns" ? 0 : Math.max(0, 2 - Math.floor(Math.log10(longest / size2)));
  const least = 10 ** -decimals;
  return durations.map((ns) => `${ns > 0 && ns / size2 < least / 2 ? `<${NO_BREAK}${least.toFixed(decimals)}` : (ns / size2).toFixed(decimals)}${NO_BREAK}${unit}`);
}
function exact(ns) {
  const [unit, size2] = unitOf(Math.abs(ns));
  const digits = Math.round(Math.log10(size2));
  const [whole, rest = ""] = (ns / size2).toFixed(digits).split(".");
  return `${whole}${rest ? `.${rest.replace(/(\d{3})(?=\d)/g, "$1 ")}` : ""}${NO_BREAK}${unit}`;
}
function unitOf(ns) {
  if (ns >= 1e9) return ["s", 1e9];
  if (ns >= 1e6) return ["ms", 1e6];
  return ns >= 1e3 ? ["µs", 1e3] : ["ns", 1];
}
function figures(value) {
  if (value === 0) return "0";
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  const text = value.toFixed(Math.min(digits, 6));
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}
function time(ns, step2, extent) {
  const [unit, size2] = extent >= 1e9 && step2 >= 1e6 ? ["s", 1e9] : ["ms", 1e6];
  return `${(ns / size2).toFixed(Math.max(0, Math.round(Math.log10(size2) - Math.floor(Math.log10(step2) + 1e-9))))}${NO_BREAK}${unit}`;
}
function share(part) {
  if (part > 0 && part < 1e-3) return "<0.1 %";
  const rounded = Number((100 * part).toPrecision(2));
  return `${figures(part < 1 && rounded >= 100 ? 99.9 : rounded)}${NO_BREAK}%`;
}
function count(n) {
  return String(n).replace(/\B(?=(\d{3})+$)/g, " ");
}

// src/view.ts
var NEAREST_NS = 1e3;
function clamped(span, extent) {
  const length = Math.min(Math.max(span.end - span.start, Math.min(NEAREST_NS, extent)), extent);
  const middle = (span.start + span.end) / 2;
  const start = Math.min(Math.max(middle - length / 2, 0), extent - length);
  return { start, end: start + length };
}
function zoomed(span, factor, at, extent) {
  const length = Math.min(Math.max((span.end - span.start) * factor, Math.min(NEAREST_NS, extent)), extent);
  const share2 = (at - span.start) / (span.end - span.start);
  const start = Math.min(Math.max(at - share2 * length, 0), extent - length);
  return { start, end: start + length };
}
function moved(span, by, extent) {
  const start = Math.min(Math.max(span.start + by, 0), extent - (span.end - span.start));
  return { start, end: start + span.end - span.start };
}
function pinched(span, width, before, after, extent) {
  const gap = ([a, b]) => Math.max(Math.hypot(a.x - b.x, a.y - b.y), 1);
  const middle = ([a, b]) => (a.x + b.x) / 2;
  const at = span.start + middle(before) * (span.end - span.start) / width;
  const scaled = zoomed(span, gap(before) / gap(after), at, extent);
  return moved(scaled, (middle(before) - middle(after)) * (scaled.end - scaled.start) / width, extent);
}
function around(span, factor, extent) {
  const middle = (span.start + span.end) / 2;
  const half = Math.max(span.end - span.start, 1) * factor / 2;
  return clamped({ start: middle - half, end: middle + half }, extent);
}
function showing(place, span, factor, extent) {
  const near = around(place, factor, extent);
  const length = span.end - span.start;
  if (length >= extent || near.end - near.start > length) return near;
  if (place.start >= span.start && place.end <= span.end) return span;
  return moved(span, (place.start + place.end) / 2 - (span.start + span.end) / 2, extent);
}
function between(from, to, share2) {
  const eased = 1 - (1 - share2) ** 3;
  const [a, b] = [from.end - from.start, to.end - to.start];
  const length = a * (b / a) ** eased;
  const weight = Math.abs(b - a) < 1e-9 * a ? eased : (length - a) / (b - a);
  const start = from.start + (to.start - from.start) * weight;
  return { start, end: start + length };
}
function tick(ns, width, room) {
  const least = ns / Math.max(width, 1) * room;
  const power = 10 ** Math.floor(Math.log10(least));
  return power * ([1, 2, 5].find((n) => n * power >= least) ?? 10);
}

// src/crumbs.ts
var SHOWN = 3;
var Crumbs = class {
  constructor(root, extent, jump) {
    this.extent = extent;
    this.jump = jump;
    this.place = root.querySelector(".crumbs");
    this.whole = root.querySelector(".whole");
  }
  views = [];
  place;
  whole;
  push(view) {
    if (!this.isWhole(view)) this.views.push(view);
  }
  pop() {
    this.views.pop();
  }
  clear() {
    this.views = [];
  }
  /** Show the buttons, and the name of `view`. */
  show(view) {
    const whole = this.isWhole(view);
    this.whole.disabled = whole;
    const shown = `${this.views.length} ${this.name(view)}`;
    if (this.place.getAttribute("data-shown") === shown) return;
    this.place.setAttribute("data-shown", shown);
    const here = document.createElement("span");
    here.className = "here";
    here.textContent = whole ? duration(this.extent) : this.name(view);
    const first = Math.max(this.views.length - SHOWN, 0);
    this.place.replaceChildren(...this.views.slice(first).map((crumb, i) => this.button(crumb, first + i)), here);
  }
  button(view, index) {
    const button2 = document.createElement("button");
    button2.textContent = `${this.name(view)} ›`;
    button2.onclick = () => {
      this.views.length = index;
      this.jump(view);
      this.views.length = index;
    };
    return button2;
  }
  isWhole(view) {
    return view.start <= 0 && view.end >= this.extent;
  }
  name(view) {
    const step2 = tick(view.end - view.start, 100, 10);
    return `${duration(view.end - view.start)} from ${time(view.start, step2, this.extent)}`;
  }
};

// src/wire.ts
var COLUMNS = 1024;
function rowKey(lane, depth) {
  return `${lane}/${depth}`;
}
function decode(buffer) {
  const tiles = [];
  for (let at = 0; at < buffer.byteLength; ) {
    const begin = at;
    const [length, padded] = new Uint32Array(buffer, at, 2);
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, at + 8, length)));
    at += 8 + padded;
    const take = (make, n2, size2) => {
      const column2 = make(buffer, at, n2);
      at += Math.ceil(n2 * size2 / 8) * 8;
      return column2;
    };
    const f64 = (n2) => take((b, o, c) => new Float64Array(b, o, c), n2, 8);
    const u32 = (n2) => take((b, o, c) => new Uint32Array(b, o, c), n2, 4);
    const u16 = (n2) => take((b, o, c) => new Uint16Array(b, o, c), n2, 2);
    const u8 = (n2) => take((b, o, c) => new Uint8Array(b, o, c), n2, 1);
    const [n, m] = [header.slices, header.sums];
    const [start, dur, id, name, row, kind] = [f64(n), f64(n), u32(n), u32(n), u16(n), u8(n)];
    const [sumBusy, sumCount, sumColumn, sumRow, sumKind] = [f64(m), u32(m), u16(m), u16(m), u8(m)];
    tiles.push({
      source: header.source,
      level: header.level,
      index: header.index,
      complete: header.complete,
      start,
      dur,
      id,
      name,
      kind,
      sumBusy,
      sumCount,
      sumColumn,
      sumKind,
      kinds: header.kinds,
      names: new Map(Object.entries(header.names).map(([key2, value]) => [Number(key2), value])),
      rows: byRow(header.rows, row, start, sumRow),
      bytes: at - begin + 8 * (n + m)
    });
  }
  return tiles;
}
function byRow(rows, row, start, sumRow) {
  const slices2 = rows.map(() => []);
  const sums = rows.map(() => []);
  row.forEach((r, i) => slices2[r].push(i));
  sumRow.forEach((r, i) => sums[r].push(i));
  return new Map(
    rows.map(([lane, depth], r) => [
      rowKey(lane, depth),
      { slices: Uint32Array.from(slices2[r].sort((a, b) => start[a] - start[b])), sums: Uint32Array.from(sums[r]) }
    ])
  );
}

// src/columns.ts
var ALONE_PX = 2;
var Columns = class {
  constructor(width) {
    this.width = width;
    this.fill = new Float32Array(width);
    this.kind = new Uint8Array(width);
    this.most = new Float32Array(width);
  }
  /** Filled share of each pixel's time; above 1 if slices overlap. */
  fill;
  /** The kind that fills most of each pixel, as a position in `kinds`. */
  kind;
  kinds = [];
  bars = [];
  most;
  /** Sum a row of `pieces` in `view`. */
  read(pieces, view, lane, depth) {
    this.fill.fill(0);
    this.most.fill(0);
    this.bars = [];
    const scale = this.width / (view.end - view.start);
    const key2 = rowKey(lane, depth);
    for (const piece of pieces) {
      const row = piece.tile?.rows.get(key2);
      if (!piece.tile || !row) continue;
      this.slices(piece.tile, row.slices, piece, view, scale);
      this.sums(piece.tile, row.sums, piece, view, scale);
    }
  }
  slices(tile, which, piece, view, scale) {
    const [low, high] = [Math.max(piece.start, view.start), Math.min(piece.end, view.end)];
    const kindOf2 = tile.kinds.map((kind) => this.numberOf(kind));
    for (const i of which) {
      const start = tile.start[i];
      if (start >= high) break;
      const end = start + tile.dur[i];
      if (end < low || end === low && start < low) continue;
      if ((end - start) * scale >= ALONE_PX) {
        if (start >= piece.start || piece.start <= view.start) {
          this.bars.push({ from: (start - view.start) * scale, to: (end - view.start) * scale, tile, slice: i });
        }
      } else {
        this.add((Math.max(start, low) - view.start) * scale, (Math.min(end, high) - view.start) * scale, kindOf2[tile.kind[i]]);
      }
    }
  }
  sums(tile, which, piece, view, scale) {
    const column2 = 2 ** tile.level;
    const origin = tile.index * COLUMNS * column2;
    const kindOf2 = tile.kinds.map((kind) => this.numberOf(kind));
    const [low, high] = [Math.max(piece.start, view.start), Math.min(piece.end, view.end)];
    for (const i of which) {
      const start = origin + tile.sumColumn[i] * column2;
      const [from, to] = [Math.max(start, low), Math.min(start + column2, high)];
      if (to > from) {
        const busy = tile.sumBusy[i] / column2;
        this.add((from - view.start) * scale, (to - view.start) * scale, kindOf2[tile.sumKind[i]], busy);
      }
    }
  }
  /** Fill `share` of the time from one pixel to another. */
  add(from, to, kind, share2 = 1) {
    const last = Math.min(Math.floor(to), this.width - 1);
    for (let x = Math.max(Math.floor(from), 0); x <= last; x++) {
      const part = (Math.min(to, x + 1) - Math.max(from, x)) * share2;
      const seen = part > 0 ? part : Number.MIN_VALUE;
      this.fill[x] += Math.max(part, 1e-6);
      if (seen > this.most[x] || !this.most[x]) {
        this.most[x] = Math.max(seen, 1e-9);
        this.kind[x] = kind;
      }
    }
  }
  numberOf(kind) {
    const at = this.kinds.indexOf(kind);
    return at >= 0 ? at : this.kinds.push(kind) - 1;
  }
};

// src/labels.ts
var LETTER = 6.6;
var DIGIT = 6.2;
var STEP_PREFIX = /^(ProfilerStep(?=#\d)|Optimizer\.step#\w+\.step (?=\d))/;
function stepName(name) {
  return STEP_PREFIX.test(name) ? `#${name.replace(STEP_PREFIX, "").replace("#", "")}` : name;
}
function stepLabel(step2, room) {
  const length = duration(step2.end - step2.start);
  const short = stepName(step2.name.replace(/ \(not counted:.*/, ""));
  const not = step2.counted ? [] : [`${short} (not counted) · ${length}`, `${short}, not counted`];
  const labels = [...not, `${short} · ${length}`, short];
  return labels.find((label) => label.length * LETTER <= room) ?? [short, length].find((label) => label.length * DIGIT <= room) ?? "";
}
function lostLabel(label, ns, room) {
  return [`${label} · ${duration(ns)}`, label, duration(ns)].find((text) => text.length * LETTER <= room) ?? "";
}

// src/lanes.ts
var ROW_PX = 24;
var MAX_ROW_PX = 64;
var SIZED_PX = [12, 200];
var LOST_PX = 10;
var LINE_PX = 15;
var GAP_PX = 4;
var LaneChoice = class {
  changed = /* @__PURE__ */ new Set();
  pinned = [];
  /** Heights of a row in pixels, of the lanes that the viewer has resized. */
  sized = /* @__PURE__ */ new Map();
  /** Read the changes from the address. */
  read(text) {
    this.changed.clear();
    this.pinned.length = 0;
    this.sized.clear();
    for (const part of (text ?? "").split(",").filter(Boolean)) {
      if (part.startsWith("!")) this.pinned.push(part.slice(1));
      else if (part.includes("~")) this.size(part.slice(0, part.lastIndexOf("~")), Number(part.slice(part.lastIndexOf("~") + 1)));
      else this.changed.add(part);
    }
  }
  toString() {
    return [...this.changed, ...this.pinned.map((id) => `!${id}`), ...[...this.sized].map(([id, px]) => `${id}~${px}`)].join(",");
  }
  /** Set the height of a lane's rows; null means the height that fits the window. */
  size(id, px) {
    if (px === null) this.sized.delete(id);
    else if (Number.isFinite(px)) this.sized.set(id, Math.round(Math.min(Math.max(px, SIZED_PX[0]), SIZED_PX[1])));
  }
  fold(id) {
    if (!this.changed.delete(id)) this.changed.add(id);
  }
  pin(id) {
    const at = this.pinned.indexOf(id);
    if (at >= 0) this.pinned.splice(at, 1);
    else this.pinned.push(id);
  }
};
function rowFor(room, height) {
  for (let row = MAX_ROW_PX; row > ROW_PX; row--) if (height(row) <= room) return row;
  return ROW_PX;
}
function placed(tracks, steps, lines, choice, needed = /* @__PURE__ */ new Map(), row = ROW_PX) {
  const lanes = [];
  if (tracks[0].mark) lanes.push(head(tracks[0], 0));
  const mark = tracks[0].mark ? `${tracks[0].mark} · ` : "";
  if (steps.length) lanes.push({ ...single("steps", "steps", `${mark}Steps`, ROW_PX), steps });
  const panels = [];
  const units = [...new Set(lines.map((line) => line.unit))];
  const open = choice.changed.has(`lines-${units[0]}`);
  for (const unit of units) {
    const [id, of] = [`lines-${unit}`, lines.filter((line) => line.unit === unit)];
    const first = unit === units[0];
    if (!first && !open && !choice.pinned.includes(id)) continue;
    const shown = first && !open ? of.slice(0, 1) : of;
    const lane = single("lines", id, of.map((l) => l.label).join(", "), Math.max(LINE_PX * (shown.length + 1), row + LOST_PX));
    panels.push({ ...lane, lines: shown, folds: first && lines.length > 1, folded: !open, more: first && !open ? lines.length - 1 : 0 });
  }
  tracks.forEach((track, t) => {
    if (tracks.length > 1 && !(t === 0 && track.mark)) lanes.push(head(track, t));
    if (track.steps?.length) lanes.push({ ...single("steps", `steps-${t}`, `${track.mark} · Steps`, ROW_PX), track: t, steps: track.steps });
    const own = track.lanes.filter((spec) => !spec.quiet).map((spec) => slices(spec, t, tracks.length > 1, choice, needed, row));
    const host = own.findIndex((lane) => lane.spec.source !== "gaps" && lane.spec.source !== "gpu");
    if (t === 0) own.splice(host < 0 ? own.length : host, 0, ...panels);
    lanes.push(...own, ...quietOnes(track, t, tracks.length > 1, choice, needed, row));
  });
  for (const lane of lanes) {
    lane.pinned = choice.pinned.includes(lane.id);
    resize(lane, choice.sized.get(lane.id));
  }
  const order = [...lanes.filter((lane) => lane.pinned), ...lanes.filter((lane) => !lane.pinned)];
  let top = 0;
  for (const lane of order) {
    lane.top = top;
    top += lane.height + GAP_PX;
  }
  return { lanes: order, height: top };
}
function quietId(t, several) {
  return several ? `${t}.quiet` : "quiet";
}
function quietOnes(track, t, several, choice, needed, height) {
  const specs = track.lanes.filter((spec) => spec.quiet);
  if (!specs.length) return [];
  const threads = new Set(specs.map((spec) => spec.lane)).size;
  const id = quietId(t, several);
  const open = choice.changed.has(id);
  const row = { ...single("quiet", id, `${threads} quiet thread${threads > 1 ? "s" : ""}`, ROW_PX), track: t, folds: true, folded: !open };
  return open ? [row, ...specs.map((spec) => slices(spec, t, several, choice, needed, height))] : [row];
}
function topOf(lines) {
  return Math.max(...lines.map((line) => line.top ?? Math.max(...line.values.map((v) => v ?? 0)))) || 1;
}
function resize(lane, px) {
  if (px === void 0) return;
  lane.row = px;
  lane.height = px * lane.rows;
}
function head(track, t) {
  return { ...single("track", `track-${t}`, track.label, ROW_PX), track: t };
}
function single(kind, id, label, height) {
  return { kind, id, label, track: 0, top: 0, height, row: height, rows: 1, folds: false, folded: false, pinned: false };
}
function slices(spec, track, several, choice, needed, height) {
  const id = several ? `${track}.${spec.id}` : spec.id;
  const folds = spec.rows > 1 || spec.source === "python";
  const folded = folds && Boolean(spec.folded) !== choice.changed.has(id);
  const rows = folded ? 1 : Math.min(needed.get(id) ?? spec.rows, spec.rows);
  const row = spec.source === "gaps" ? Math.min(height + LOST_PX, MAX_ROW_PX) : height;
  return { kind: "slices", id, label: spec.label, track, top: 0, height: rows * row, row, rows, spec, folds, folded, pinned: false };
}

// src/paint.ts
function inkOf(element2, { dark, kinds }) {
  const style = getComputedStyle(element2);
  const value = (name, other) => style.getPropertyValue(name).trim() || other;
  return {
    text: value("--st-text-color", dark ? "#fafafa" : "#1f2430"),
    page: value("--st-background-color", dark ? "#0e1117" : "#ffffff"),
    muted: kinds.page.muted[dark ? 2 : 1],
    line: dark ? "rgba(255,255,255,0.12)" : "rgba(0,0,0,0.10)",
    accent: kinds.page.accent[dark ? 2 : 1],
    font: value("--st-font", "sans-serif")
  };
}
function kindOf(data, source, kind) {
  return data.kinds[source]?.[kind] ?? data.kinds.page.unknown;
}
var textures = /* @__PURE__ */ new Map();
function texture(context, mark, dark) {
  const key2 = `${mark}${dark}`;
  if (!textures.has(key2)) textures.set(key2, drawnTexture(context, mark, dark));
  return textures.get(key2);
}
var STROKES = {
  "/": [[0, 8, 8, 0], [-2, 2, 2, -2], [6, 10, 10, 6]],
  "\\": [[0, 0, 8, 8], [6, -2, 10, 2], [-2, 6, 2, 10]],
  x: [[0, 0, 8, 8], [0, 8, 8, 0]],
  "-": [[0, 4, 8, 4]],
  "|": [[4, 0, 4, 8]],
  "+": [[0, 4, 8, 4], [4, 0, 4, 8]],
  ".": [[3, 4, 5, 4]]
};
function drawnTexture(context, mark, dark) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 8;
  const brush = canvas.getContext("2d");
  if (!brush || !STROKES[mark]) return null;
  brush.strokeStyle = dark ? "rgba(0,0,0,0.38)" : "rgba(255,255,255,0.45)";
  brush.lineWidth = 1.5;
  for (const [x0, y0, x1, y1] of STROKES[mark]) {
    brush.beginPath();
    brush.moveTo(x0, y0);
    brush.lineTo(x1, y1);
    brush.stroke();
  }
  return context.createPattern(canvas, "repeat");
}
var MIDDLE_LUMINANCE = 0.179;
function readable(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => {
    const part = parseInt(colour.slice(at, at + 2), 16) / 255;
    return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > MIDDLE_LUMINANCE ? "#000000" : "#ffffff";
}
var fitted = /* @__PURE__ */ new Map();
var MAX_FITTED = 2e4;
var LETTERS_LEAST = 8;
function fit(name, room, letter, brief = (whole) => whole) {
  const most = Math.floor(room / letter);
  if (name.length <= most) return name;
  name = brief(name).replace(/^(\w+::)+/, "");
  if (name.length <= most) return name;
  const word = [name.split("#")[0], name.split(/[(<#]/)[0]].find((one) => one.length >= LETTERS_LEAST && one.length <= most);
  if (word || most < LETTERS_LEAST) return word ?? "";
  const key2 = `${most} ${name}`;
  let text = fitted.get(key2);
  if (text === void 0) {
    if (fitted.size > MAX_FITTED) fitted.clear();
    fitted.set(key2, text = `${name.slice(0, most - 1)}…`);
  }
  return text;
}

// src/tiles.ts
var BUDGET = 96 * 2 ** 20;
var AT_ONCE = 4;
var RETRY_MS = 2e3;
function levelOf(nsPerPixel) {
  return Math.max(0, Math.floor(Math.log2(Math.max(nsPerPixel, 1))));
}
function widthOf(level) {
  return COLUMNS * 2 ** level;
}
var Tiles = class {
  constructor(tracks, arrived, get = fetched, budget = BUDGET) {
    this.tracks = tracks;
    this.arrived = arrived;
    this.get = get;
    this.budget = budget;
  }
  bytes = 0;
  failed = "";
  cached = /* @__PURE__ */ new Map();
  requested = /* @__PURE__ */ new Map();
  queue = [];
  inFlight = 0;
  stopped = false;
  stop() {
    this.stopped = true;
    this.queue = [];
  }
  /** Return the pieces of a source in `view`, sorted by time, on the track's own clock. */
  pieces(track, source, view, level) {
    const pieces = [];
    const width = widthOf(level);
    for (let index = Math.max(0, Math.floor(view.start / width)); index * width < view.end; index++) {
      const start = index * width;
      const tile = this.best(track, source, level, index);
      const before = pieces[pieces.length - 1];
      if (tile && before?.tile === tile) before.end = start + width;
      else pieces.push({ start, end: start + width, tile });
    }
    return pieces;
  }
  /** Request the missing tiles of these views, first those in the middle of the first view. Earlier requests that have not started are dropped. */
  want(views) {
    const wanted = /* @__PURE__ */ new Set();
    this.queue = views.flatMap((look) => this.missing(look, wanted));
    this.pump();
  }
  /** Return the missing tiles of a view that are not in `among` yet, and add them to it. */
  missing({ view, level, sources }, among) {
    const width = widthOf(level);
    const middle = (view.start + view.end) / 2;
    const wanted = [];
    this.tracks.forEach((track, t) => {
      const [first, last] = [view.start - track.offset, view.end - track.offset];
      for (let index = Math.max(0, Math.floor(first / width)); index * width < last; index++) {
        const missing = (sources[t] ?? []).filter((source) => !this.known(t, source, level, index) && !among.has(key(t, source, level, index)));
        for (const source of missing) among.add(key(t, source, level, index));
        if (missing.length) wanted.push({ track: t, level, index, sources: missing });
      }
    });
    const far = (w) => Math.abs((w.index + 0.5) * width + this.tracks[w.track].offset - middle);
    return wanted.sort((a, b) => far(a) - far(b));
  }
  /** Return whether all tiles of the view have arrived. */
  settled() {
    return !this.queue.length && !this.inFlight;
  }
  best(track, source, level, index) {
    for (let up = 0; level + up < 53; up++) {
      const tile = this.at(key(track, source, level + up, Math.floor(index / 2 ** up)));
      if (tile) return tile;
    }
    return null;
  }
  at(key2) {
    const tile = this.cached.get(key2);
    if (tile) {
      this.cached.delete(key2);
      this.cached.set(key2, tile);
    }
    return tile;
  }
  known(track, source, level, index) {
    if (this.cached.has(key(track, source, level, index))) return true;
    for (let up = 1; level + up < 53; up++) {
      if (this.cached.get(key(track, source, level + up, Math.floor(index / 2 ** up)))?.complete) return true;
    }
    return (this.requested.get(key(track, source, level, index)) ?? 0) > Date.now();
  }
  pump() {
    while (!this.stopped && this.inFlight < AT_ONCE && this.queue.length) void this.fetch(this.queue.shift());
  }
  async fetch(wanted) {
    const track = this.tracks[wanted.track];
    const keys2 = wanted.sources.map((source) => key(wanted.track, source, wanted.level, wanted.index));
    for (const k of keys2) this.requested.set(k, Infinity);
    this.inFlight++;
    try {
      const query = `recording=${track.recording}&device=${track.device}&level=${wanted.level}&index=${wanted.index}`;
      const tiles = decode(await this.get(`${track.api}/tiles?${query}&sources=${wanted.sources.join(",")}`));
      for (const k of keys2) this.requested.delete(k);
      for (const tile of tiles) this.keep(key(wanted.track, tile.source, tile.level, tile.index), tile);
      this.failed = "";
    } catch (problem) {
      for (const k of keys2) this.requested.set(k, Date.now() + RETRY_MS);
      this.failed = problem instanceof Error ? problem.message : "The server did not answer.";
      if (!this.stopped) setTimeout(() => {
        if (!this.stopped) this.arrived();
      }, RETRY_MS);
    } finally {
      this.inFlight--;
      this.pump();
      if (!this.stopped) this.arrived();
    }
  }
  keep(key2, tile) {
    this.cached.set(key2, tile);
    this.bytes += tile.bytes;
    for (const [oldest, old] of this.cached) {
      if (this.bytes <= this.budget) break;
      this.cached.delete(oldest);
      this.bytes -= old.bytes;
    }
  }
};
function key(track, source, level, index) {
  return `${track}/${source}/${level}/${index}`;
}
async function fetched(address) {
  const answer = await fetch(address, { credentials: "same-origin" });
  if (!answer.ok) throw new Error(await sentenceOf(answer));
  return answer.arrayBuffer();
}
async function sentenceOf(answer) {
  try {
    return (await answer.json()).error.sentence;
  } catch {
    return `The server answered ${answer.status}.`;
  }
}

// src/uncounted.ts
var WORDS = ["not counted: no cause analysis here", "not counted"];
function drawUncounted(context, scene, lane, y, width, ink) {
  const { view, data } = scene;
  const scale = width / (view.end - view.start);
  for (const span of uncounted(data, lane.track)) {
    if (span.end <= view.start || span.start >= view.end) continue;
    const from = Math.max((span.start - view.start) * scale, 0);
    const room = Math.min((span.end - view.start) * scale, width) - from;
    if (room < 2) continue;
    context.fillStyle = ink.line;
    context.fillRect(from, y + lane.height - 4, room - 1, 3);
    const text = WORDS.find((words) => words.length * LETTER <= room - 8);
    context.fillStyle = ink.muted;
    if (text) context.fillText(text, from + 4, y + lane.height / 2 - 1);
  }
}
var spans = /* @__PURE__ */ new WeakMap();
function uncounted(data, track) {
  const steps = track ? data.tracks[track].steps : data.steps;
  if (!steps) return [];
  let found = spans.get(steps);
  if (!found) spans.set(steps, found = outside(data, steps));
  return found;
}
function outside(data, steps) {
  const counted = steps.filter((step2) => step2.counted);
  if (!counted.length) return [];
  const found = [];
  let from = 0;
  for (const step2 of counted) {
    if (step2.start > from) found.push({ start: from, end: step2.start });
    from = Math.max(from, step2.end);
  }
  return from < data.extent ? [...found, { start: from, end: data.extent }] : found;
}

// src/draw.ts
var AXIS_PX = 22;
var POINTER_PX = 6;
var TEXT_PX = 26;
var TEXTURED_PX = 8;
var PHONE_PX = 400;
var LABEL_PX = 9;
var Painter = class {
  constructor(context, tiles, ink) {
    this.context = context;
    this.tiles = tiles;
    this.ink = ink;
  }
  drawn = { rows: /* @__PURE__ */ new Map() };
  columns = /* @__PURE__ */ new Map();
  /** Draw a frame of `width` × `height` CSS pixels; only rows between `top` and `bottom` are visible. */
  frame(scene, width, height, top, bottom) {
    const context = this.context;
    context.clearRect(0, 0, width, height);
    context.font = `12px ${this.ink.font}`;
    context.textBaseline = "middle";
    this.grid(scene, width, height);
    this.drawn.rows.clear();
    for (const lane of scene.lanes) {
      const y = lane.top + AXIS_PX;
      if (y > bottom || y + lane.height < top) continue;
      if (lane.kind === "steps") this.steps(scene, lane, y, width);
      else if (lane.kind === "lines") this.lines(scene, lane, y, width);
      else if (lane.kind === "slices") this.slices(scene, lane, y, width, top, bottom);
    }
    this.axis(scene, width, top);
    this.marks(scene, width, height, top);
    this.range(scene, width, height, top);
  }
  grid(scene, width, height) {
    const { view } = scene;
    const ns = view.end - view.start;
    const step2 = tick(ns, width, tickRoom(width));
    this.context.fillStyle = this.ink.line;
    for (let at = Math.ceil(view.start / step2) * step2; at < view.end; at += step2) {
      const x = Math.round((at - view.start) / ns * width);
      this.context.fillRect(x, 0, 1, height);
    }
  }
  /** Draw the time axis over the lanes that have scrolled below it. */
  axis(scene, width, top) {
    const { view, data } = scene;
    const ns = view.end - view.start;
    const step2 = tick(ns, width, tickRoom(width));
    this.context.fillStyle = this.ink.page;
    this.context.fillRect(0, top, width, AXIS_PX - 1);
    this.context.fillStyle = this.ink.line;
    this.context.fillRect(0, top + AXIS_PX - 1, width, 1);
    this.context.font = `11px ${this.ink.font}`;
    this.context.fillStyle = this.ink.muted;
    for (let at = Math.ceil(view.start / step2) * step2; at < view.end; at += step2) {
      const x = (at - view.start) / ns * width;
      if (x < width - 40) this.context.fillText(time(at, step2, data.extent), x + 3, top + AXIS_PX / 2 - 1);
    }
    this.context.font = `12px ${this.ink.font}`;
  }
  steps(scene, lane, y, width) {
    const { view } = scene;
    const scale = width / (view.end - view.start);
    let [pixel, counted] = [-1, false];
    for (const step2 of lane.steps) {
      if (step2.end <= view.start || step2.start >= view.end) continue;
      const from = Math.max((step2.start - view.start) * scale, 0);
      const to = Math.min((step2.end - view.start) * scale, width);
      if (to <= pixel + 1 && step2.counted === counted) continue;
      [pixel, counted] = [Math.floor(from), step2.counted];
      const colour = this.colour(scene, "steps", step2.counted ? "counted" : "uncounted");
      this.context.fillStyle = colour;
      this.context.fillRect(from, y, Math.max(to - from - (to - from > 3 ? 1 : 0), 1), lane.height);
      if (to - from > TEXT_PX) {
        this.context.fillStyle = readable(colour);
        this.context.fillText(stepLabel(step2, to - from - 8), from + 5, y + lane.height / 2 + 0.5);
      }
    }
  }
  lines(scene, lane, y, width) {
    const { view, data } = scene;
    const context = this.context;
    const top = topOf(lane.lines);
    const scale = width / (view.end - view.start);
    context.fillStyle = this.ink.line;
    context.fillRect(0, y + lane.height, width, 1);
    context.save();
    context.beginPath();
    context.rect(0, y, width, lane.height);
    context.clip();
    let sampled = false;
    for (const line of lane.lines) {
      context.strokeStyle = data.dark ? line.dark : line.light;
      context.lineWidth = 1.5;
      const heightOf = (value) => y + lane.height - 1 - value / top * (lane.height - 3);
      if (lane.lines.length === 1) shade(context, line, view, scale, heightOf, y + lane.height);
      context.beginPath();
      sampled = trace(context, line, view, scale, heightOf) || sampled;
      context.stroke();
    }
    context.restore();
    if (sampled) return;
    context.fillStyle = this.ink.muted;
    context.fillText("no sample in view", 4, y + lane.height / 2);
  }
  slices(scene, lane, y, width, top, bottom) {
    const track = scene.data.tracks[lane.track];
    const view = { start: scene.view.start - track.offset, end: scene.view.end - track.offset };
    const level = levelOf((view.end - view.start) / width);
    const pieces = this.tiles.pieces(lane.track, lane.spec.source, view, level);
    if (lane.spec.source === "gaps") drawUncounted(this.context, scene, lane, y, width, this.ink);
    this.waiting(pieces, view, y, lane.height, width);
    for (let depth = 0; depth < lane.rows; depth++) {
      const at = y + depth * lane.row;
      if (at > bottom || at + lane.row < top) continue;
      const id = `${lane.id}/${depth}`;
      let columns = this.columns.get(id);
      if (!columns || columns.width !== Math.ceil(width)) this.columns.set(id, columns = new Columns(Math.ceil(width)));
      columns.read(pieces, view, lane.spec.lane, depth);
      this.drawn.rows.set(id, columns);
      this.sums(scene, lane, columns, at);
      this.bars(scene, lane, columns, depth, at, width);
    }
  }
  /** Draw a quiet line where tiles are still loading. */
  waiting(pieces, view, y, height, width) {
    const scale = width / (view.end - view.start);
    this.context.fillStyle = this.ink.line;
    for (const piece of pieces) {
      if (piece.tile) continue;
      const from = Math.max((piece.start - view.start) * scale, 0);
      this.context.fillRect(from, y + height / 2 - 1, Math.min((piece.end - view.start) * scale, width) - from, 2);
    }
  }
  /** Draw one bar per pixel column; its height is the share of the column's time in which something runs. Equal neighbours are one rectangle. */
  sums(scene, lane, columns, y) {
    const { fill, kind, width } = columns;
    const room = lane.row - 1;
    const colours = columns.kinds.map((k) => this.colour(scene, lane.spec.source, k));
    let from = 0;
    let high = 0;
    for (let x = 0; x <= width; x++) {
      const now = x < width && fill[x] > 0 ? Math.max(1, Math.round(Math.min(fill[x], 1) * room)) : 0;
      if (now === high && (!now || kind[x] === kind[from])) continue;
      if (high) {
        this.context.fillStyle = colours[kind[from]];
        this.context.fillRect(from, y + room - high, x - from, high);
      }
      from = x;
      high = now;
    }
  }
  bars(scene, lane, columns, depth, y, width) {
    const context = this.context;
    const source = lane.spec.source;
    const room = lane.row - 1;
    for (const bar of columns.bars) {
      const { tile, slice: slice2 } = bar;
      const from = Math.max(Math.round(bar.from), 0);
      const to = Math.min(Math.max(Math.round(bar.to), from + 1), width);
      const kind = tile.kinds[tile.kind[slice2]];
      const [label, , , mark] = kindOf(scene.data, source, kind);
      const colour = this.colour(scene, source, kind);
      context.globalAlpha = scene.same !== null && tile.name[slice2] !== scene.same && source !== "gaps" ? 0.35 : 1;
      context.fillStyle = colour;
      context.fillRect(from, y, Math.max(to - from - (to - from > 3 ? 1 : 0), 1), room);
      const textured = Boolean(mark) && to - from >= TEXTURED_PX;
      if (textured) this.textured(from, y, to - from - 1, room, mark, scene.data.dark);
      const name = source === "gaps" ? lostLabel(label, tile.dur[slice2], to - from - 7) : tile.names.get(tile.name[slice2]) ?? label;
      const text = to - from > TEXT_PX ? fit(name, to - from - 7, LETTER, stepName) : "";
      if (text && textured) {
        context.fillStyle = colour;
        context.fillRect(from, y + Math.max(room / 2 - LABEL_PX, 0), context.measureText(text).width + 8, Math.min(2 * LABEL_PX, room));
      }
      if (text) {
        context.fillStyle = readable(colour);
        context.fillText(text, from + 4, y + room / 2 + 0.5);
      }
      context.globalAlpha = 1;
      if (this.isSelected(scene, lane, tile.id[slice2], tile.start[slice2], depth)) {
        context.strokeStyle = this.ink.text;
        context.lineWidth = 2;
        context.strokeRect(from + 1, y + 1, Math.max(to - from - 3, 1), room - 2);
      }
    }
  }
  isSelected(scene, lane, id, start, depth) {
    const chosen = scene.selected;
    if (!chosen || chosen.track !== lane.track || chosen.source !== lane.spec.source || chosen.depth !== depth) return false;
    return chosen.lane === lane.spec.lane && (chosen.source === "gaps" ? chosen.start === start : chosen.id === id);
  }
  textured(x, y, width, height, mark, dark) {
    const pattern = texture(this.context, mark, dark);
    if (!pattern) return;
    this.context.fillStyle = pattern;
    this.context.fillRect(x, y, width, height);
  }
  colour(scene, source, kind) {
    return kindOf(scene.data, source, kind)[scene.data.dark ? 2 : 1];
  }
  /** Highlight each place of the open finding, the current one more strongly, and draw a flag at each note of the viewer. */
  marks(scene, width, height, top) {
    const { view } = scene;
    const scale = width / (view.end - view.start);
    scene.marks.forEach((mark, i) => {
      if (mark.end < view.start || mark.start > view.end) return;
      const from = (mark.start - view.start) * scale;
      const to = Math.max((mark.end - view.start) * scale, from + 2);
      this.context.globalAlpha = i === scene.mark ? 0.16 : 0.07;
      this.context.fillStyle = this.ink.accent;
      this.context.fillRect(from, AXIS_PX, to - from, height);
      this.context.globalAlpha = 1;
      this.context.fillRect(from, top + AXIS_PX - 5, Math.max(to - from, 3), i === scene.mark ? 5 : 2);
      if (i === scene.mark) this.pointer((from + to) / 2, height, top);
    });
    this.context.fillStyle = this.ink.text;
    for (const note of scene.data.notes) {
      if (note.end < view.start || note.start > view.end) continue;
      const from = Math.max((note.start - view.start) * scale, 0);
      this.context.fillRect(from, top + AXIS_PX - 3, Math.max(Math.min((note.end - view.start) * scale, width) - from, 3), 2);
      this.context.fillRect(from, top + AXIS_PX - 9, 2, 8);
    }
  }
  /** Draw a pointer above the current place, because microseconds in a whole step would be invisible. */
  pointer(x, height, top) {
    this.context.beginPath();
    this.context.moveTo(x - POINTER_PX, top + AXIS_PX - 2 * POINTER_PX);
    this.context.lineTo(x + POINTER_PX, top + AXIS_PX - 2 * POINTER_PX);
    this.context.lineTo(x, top + AXIS_PX);
    this.context.fill();
    this.context.fillRect(Math.round(x), top + AXIS_PX, 1, height);
  }
  range(scene, width, height, top) {
    if (!scene.range) return;
    const scale = width / (scene.view.end - scene.view.start);
    const from = (scene.range.start - scene.view.start) * scale;
    const to = (scene.range.end - scene.view.start) * scale;
    this.context.fillStyle = this.ink.accent;
    this.context.globalAlpha = 0.14;
    this.context.fillRect(from, AXIS_PX, to - from, height);
    this.context.globalAlpha = 1;
    for (const x of [from, to]) this.context.fillRect(Math.round(x), 0, 1, height);
    const words = duration(scene.range.end - scene.range.start);
    const middle = Math.min(Math.max((from + to) / 2 - words.length * LETTER / 2, 3), width - 70);
    this.context.fillStyle = this.ink.page;
    this.context.fillRect(middle - 3, top + 1, words.length * LETTER + 6, AXIS_PX - 6);
    this.context.fillStyle = this.ink.accent;
    this.context.fillText(words, middle, top + AXIS_PX / 2 - 1);
  }
};
function tickRoom(width) {
  return width < PHONE_PX ? 56 : 96;
}
function shade(context, line, view, scale, at, bottom) {
  const x = (time2) => Math.round((time2 - view.start) * scale);
  context.beginPath();
  for (let i = 1; i < line.times.length; i++) {
    const value = line.values[i];
    if (value === null || line.times[i] < view.start || line.times[i - 1] > view.end) continue;
    context.rect(x(line.times[i - 1]), at(value), x(line.times[i]) - x(line.times[i - 1]), bottom - at(value));
  }
  context.globalAlpha = 0.16;
  context.fillStyle = context.strokeStyle;
  context.fill();
  context.globalAlpha = 1;
}
function trace(context, line, view, scale, at) {
  let before = null;
  let seen = false;
  for (let i = 0; i < line.times.length; i++) {
    const value = line.values[i];
    const x = (line.times[i] - view.start) * scale;
    const from = i ? (line.times[i - 1] - view.start) * scale : x;
    if (value === null || x < -10) {
      before = value === null ? null : value;
      continue;
    }
    if (before === null) context.moveTo(from, at(value));
    else context.lineTo(from, at(value));
    context.lineTo(x, at(value));
    seen ||= x >= 0 && from < (view.end - view.start) * scale;
    before = value;
    if (from > (view.end - view.start) * scale) break;
  }
  return seen;
}

// src/find.ts
var Finder = class {
  constructor(place, picture) {
    this.picture = picture;
    this.input = place.querySelector("input");
    this.count = place.querySelector(".found");
    this.input.onkeydown = (event) => {
      event.stopPropagation();
      if (event.key === "Enter") this.search(this.input.value, event.shiftKey ? -1 : 1);
      else if (event.key === "Escape") {
        this.input.value = this.words;
        picture.lanesCanvas.focus({ preventScroll: true });
      }
    };
    this.input.oninput = () => {
      if (!this.input.value) this.search("");
    };
    place.querySelector(".next").onclick = () => this.search(this.input.value, 1);
    place.querySelector(".previous").onclick = () => this.search(this.input.value, -1);
  }
  words = "";
  at = -1;
  turn = 0;
  input;
  count;
  /** Show the searched words of the address, without a move. */
  start(words) {
    this.words = this.input.value = words ?? "";
  }
  focus() {
    this.input.focus();
    this.input.select();
  }
  search(words, by = 1) {
    if (words !== this.words) this.at = Math.floor(this.picture.target.start) - 1;
    this.words = this.input.value = words;
    if (words) this.step(by);
    else {
      this.turn++;
      this.count.textContent = "";
      this.picture.moved(false);
    }
  }
  step(by) {
    if (this.words) void this.go(by);
  }
  async go(by) {
    const turn = ++this.turn;
    const { tracks, extent } = this.picture.data;
    const chosen = this.picture.scene.selected;
    const track = chosen?.track ?? 0;
    const of = tracks[track];
    const from = Math.round(this.at - of.offset);
    const query = `recording=${of.recording}&device=${of.device}&q=${encodeURIComponent(this.words)}&at=${from}${by < 0 ? "&back" : ""}`;
    try {
      const match = await fetchJson(`${of.api}/find?${query}`);
      if (turn !== this.turn) return;
      this.count.textContent = match.hit ? `${count(match.position)} of ${count(match.count)}` : "none";
      if (!match.hit) return;
      const hit = { ...match.hit, track, start: match.hit.start + of.offset, end: match.hit.end + of.offset };
      this.at = hit.start;
      const view = this.picture.target;
      const length = hit.end - hit.start;
      this.picture.choose(hit);
      if (length / (view.end - view.start) < 4e-3) {
        const half = Math.min(length * 40 + 1e3, extent / 2);
        const middle = (hit.start + hit.end) / 2;
        this.picture.go({ start: middle - half, end: middle + half }, chosen === null, true);
      }
    } catch (problem) {
      this.count.textContent = "";
      this.picture.say(problem instanceof Error ? problem.message : String(problem));
    }
  }
};

// src/gutter.ts
var LINES_PX = 30;
var Gutter = class {
  constructor(place, choice, dark, changed) {
    this.place = place;
    this.choice = choice;
    this.dark = dark;
    this.changed = changed;
  }
  show(lanes, height) {
    const focused = (document.activeElement?.shadowRoot?.activeElement ?? document.activeElement)?.getAttribute("data-key");
    this.place.style.height = `${height}px`;
    this.place.replaceChildren(element("div", { class: "corner" }), ...lanes.map((lane) => this.name(lane)));
    if (focused) this.place.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }
  name(lane) {
    const row = document.createElement("div");
    row.style.top = `${lane.top + AXIS_PX}px`;
    row.style.height = `${lane.height + 2}px`;
    if (lane.kind === "track") row.className = "track";
    const name = document.createElement("span");
    name.className = "name";
    name.title = lane.label;
    if (lane.lines) name.append(...lane.lines.map((line) => element("span", { class: "line" }, element("span", { class: "swatch", style: `background:${this.dark ? line.dark : line.light}` }), `${line.label}${lane.more ? ` +${lane.more}` : ""}`)), element("span", { class: "line scale" }, `0 to ${Math.round(topOf(lane.lines))} ${lane.lines[0].unit}`));
    else name.append(lane.label);
    if (lane.height < LINES_PX) name.classList.add("one");
    if (lane.folds) row.append(this.button(lane, "fold", lane.folded ? "▶" : "▼", !lane.folded, `${lane.label}: all rows`));
    row.append(name);
    if (lane.kind !== "track" && lane.kind !== "quiet") row.append(this.button(lane, "pin", "⌃", lane.pinned, `${lane.label}: keep at the top`));
    if (lane.kind === "slices" || lane.kind === "lines") row.append(this.edge(lane));
    return row;
  }
  /** Return the lower edge of a lane. Dragging it changes the height of the lane's rows; a double click undoes that. */
  edge(lane) {
    const edge = element("i", { class: "edge", title: "Drag to resize; double-click to restore" });
    edge.onpointerdown = (begin) => {
      begin.preventDefault();
      const move = (event) => {
        this.choice.size(lane.id, lane.row + (event.clientY - begin.clientY) / lane.rows);
        this.changed();
      };
      const end = () => document.removeEventListener("pointermove", move);
      document.addEventListener("pointermove", move);
      document.addEventListener("pointerup", end, { once: true });
    };
    edge.ondblclick = () => {
      this.choice.size(lane.id, null);
      this.changed();
    };
    return edge;
  }
  button(lane, what, sign, pressed, label) {
    const button2 = document.createElement("button");
    button2.className = what;
    button2.textContent = sign;
    button2.title = what === "pin" ? pressed ? "Unpin" : "Keep at the top" : pressed ? "Fold" : "Show all rows";
    button2.setAttribute("data-key", `${what} ${lane.id}`);
    button2.setAttribute("aria-label", label);
    button2.setAttribute(what === "pin" ? "aria-pressed" : "aria-expanded", String(pressed));
    button2.onclick = () => {
      this.choice[what](lane.id);
      this.changed();
    };
    return button2;
  }
};

// src/minimap.ts
var MAP_PX = 44;
var MARK_PX = 6;
var LOST_BASE = 19;
var HOST_LANES = 4;
function bands(lanes) {
  const gpu = lanes.filter((lane) => lane.source === "gpu" || lane.source === "gaps");
  if (gpu.length) return gpu.map((lane) => lane.source === "gaps" ? { lane, base: LOST_BASE, room: LOST_BASE - MARK_PX - 2 } : { lane, base: MAP_PX - 1, room: MAP_PX - LOST_BASE - 3 });
  const host = lanes.filter((lane) => lane.source === "operators").slice(0, HOST_LANES);
  const room = (MAP_PX - MARK_PX - 2) / Math.max(host.length, 1);
  return host.map((lane, i) => ({ lane, base: MARK_PX + room * (i + 1), room: room - 1 }));
}
function mapSources(data) {
  return [...new Set(bands(data.tracks[0]?.lanes ?? []).map((band) => band.lane.source))];
}
function drawMap(context, scene, tiles, ink, width, level) {
  const { data } = scene;
  context.clearRect(0, 0, width, MAP_PX);
  const whole = { start: 0, end: data.extent };
  const columns = new Columns(Math.ceil(width));
  for (const { lane, base, room } of bands(data.tracks[0]?.lanes ?? [])) {
    columns.read(tiles.pieces(0, lane.source, whole, level), whole, lane.lane, 0);
    for (const bar of columns.bars) {
      const kind = kindOf(data, lane.source, bar.tile.kinds[bar.tile.kind[bar.slice]]);
      context.fillStyle = kind[data.dark ? 2 : 1];
      context.fillRect(bar.from, base - room, Math.max(bar.to - bar.from, 1), room);
    }
    columns.fill.forEach((fill, x) => {
      if (!fill) return;
      context.fillStyle = kindOf(data, lane.source, columns.kinds[columns.kind[x]])[data.dark ? 2 : 1];
      const high = Math.max(Math.min(fill, 1) * room, 1);
      context.fillRect(x, base - high, 1, high);
    });
  }
  const scale = width / data.extent;
  context.fillStyle = scene.marks.length ? ink.accent : ink.muted;
  const marks = scene.marks.length ? scene.marks : data.findings.flatMap((finding) => finding.marks);
  for (const finding of marks) context.fillRect(finding.start * scale - 1, 1, Math.max((finding.end - finding.start) * scale, 2), MARK_PX - 2);
  const chosen = scene.marks[scene.mark];
  if (chosen) point(context, (chosen.start + chosen.end) / 2 * scale, ink);
}
function point(context, x, ink) {
  context.fillStyle = ink.text;
  context.beginPath();
  context.moveTo(x - MARK_PX, 0);
  context.lineTo(x + MARK_PX, 0);
  context.lineTo(x, MARK_PX + 2);
  context.fill();
}
function drawWindow(context, scene, ink, width) {
  if (scene.view.end - scene.view.start >= scene.data.extent) return;
  const scale = width / scene.data.extent;
  const from = scene.view.start * scale;
  const to = Math.max(scene.view.end * scale, from + 2);
  context.fillStyle = ink.page;
  context.globalAlpha = 0.72;
  context.fillRect(0, 0, from, MAP_PX);
  context.fillRect(to, 0, width - to, MAP_PX);
  context.globalAlpha = 1;
  context.strokeStyle = ink.accent;
  context.lineWidth = 1.5;
  context.strokeRect(from + 0.75, 0.75, Math.max(to - from - 1.5, 1), MAP_PX - 1.5);
}

// src/drawer.ts
var ROOM_PX = 8;
var FRAMES = 12;
var Drawer = class {
  constructor(place, picture) {
    this.place = place;
    this.picture = picture;
    this.glanced = picture.root.querySelector(".glance");
    place.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      picture.select(null);
      picture.lanesCanvas.focus({ preventScroll: true });
    });
  }
  links = [];
  turn = 0;
  glanced;
  seen = "";
  focus() {
    if (!this.place.hidden) this.place.focus();
  }
  /** Select and return the slice with the name `track:source:id`, from the address or a table of the page. */
  async restore(text) {
    const [track, source, id] = (text ?? "").split(":");
    if (!id || !this.picture.data.tracks[Number(track)]) return null;
    const details = await this.ask(Number(track), source, id);
    if (details) this.picture.choose(details.slice);
    return details?.slice ?? null;
  }
  async show(slice2) {
    const turn = ++this.turn;
    this.links = [];
    if (!slice2) {
      this.close();
      this.picture.say("");
      return;
    }
    const by = this.picture.data.tracks[slice2.track].offset;
    const details = await this.ask(slice2.track, slice2.source, String(slice2.source === "gaps" ? Math.round(slice2.start - by) : slice2.id));
    if (turn !== this.turn || !details) return;
    this.links = details.links;
    this.fill(slice2, details);
    this.picture.draw();
  }
  async ask(track, source, id) {
    const { tracks } = this.picture.data;
    const of = tracks[track];
    try {
      const details = await fetchJson(`${of.api}/slice?recording=${of.recording}&device=${of.device}&source=${encodeURIComponent(source)}&id=${encodeURIComponent(id)}`);
      for (const slice2 of [details.slice, ...details.links]) {
        slice2.track = track;
        slice2.start += of.offset;
        slice2.end += of.offset;
      }
      return details;
    } catch (problem) {
      this.picture.say(problem instanceof Error ? problem.message : String(problem));
      return null;
    }
  }
  fill(slice2, details) {
    const { data } = this.picture;
    const length = slice2.end - slice2.start;
    const label = kindOf(data, slice2.source, slice2.kind)[0];
    const facts = [
      ["Lasts", raw(length)],
      ["Begins at", raw(slice2.start)],
      ...slice2.source === "gaps" ? [] : [["Kind", label]],
      ...details.facts
    ];
    const { same } = details;
    if (same) facts.push(["All of this name", `${count(same.count)}, ${duration(same.total_ns)} together, longest ${duration(same.longest_ns)}`]);
    this.place.replaceChildren(
      this.head(details.title, slice2),
      details.evidence ? element("p", {}, details.evidence) : "",
      details.to_do ? element("p", {}, element("strong", {}, "What helps: "), details.to_do) : "",
      details.finding ? this.findingLine(details.finding) : "",
      this.actions(slice2, details) ?? "",
      element("div", { class: "columns" }, list(facts), this.stack(details.stack)),
      !data.tracks[slice2.track].mark || slice2.track === 0 ? this.noteForm(slice2) : ""
      // notes are stored in the page's run only
    );
    this.open();
    this.picture.say(slice2.source === "gaps" ? `${details.title}, at ${duration(slice2.start)}. ${details.evidence ?? ""}` : `${details.title}: ${duration(length)}, at ${duration(slice2.start)}.`);
  }
  /** Show the details beside or below the lanes. The page scrolls if they would be out of sight. */
  open() {
    this.place.hidden = false;
    this.glanced.hidden = true;
    this.place.scrollTop = 0;
    this.picture.revealSelected();
    if (this.beside) return;
    const hidden = this.place.getBoundingClientRect().bottom + ROOM_PX - window.innerHeight;
    if (hidden > 0) scroller(this.place)?.scrollBy({ top: hidden });
  }
  close() {
    this.place.hidden = true;
    this.glanced.hidden = false;
    void this.glance(this.picture.target);
  }
  get beside() {
    return getComputedStyle(this.place.parentElement).getPropertyValue("--beside") === "1";
  }
  /** Sum up the view, if nothing is selected and the details are beside the lanes. */
  async glance(view) {
    const key2 = `${view.start} ${view.end}`;
    if (!this.beside || this.glanced.hidden || this.seen === key2) return;
    this.seen = key2;
    try {
      const sides = await this.stretches(view);
      if (this.seen !== key2) return;
      const { title, sums } = this.summary(view, sides);
      this.glanced.replaceChildren(element("h3", {}, "In view"), element("p", {}, `${title}.`), ...sums);
      const rows = [...this.glanced.querySelectorAll("tbody tr")];
      while (rows.length && this.glanced.scrollHeight > this.glanced.clientHeight) {
        const body = rows.at(-1).parentElement;
        rows.pop().remove();
        if (!body.childElementCount) body.parentElement.remove();
      }
    } catch {
      this.seen = "";
    }
  }
  findingLine(finding) {
    return element(
      "p",
      {},
      element("strong", {}, `${finding.title} ${finding.gain}. `),
      finding.fix,
      " ",
      this.picture.findings.rule !== finding.rule && button("Mark all its places", () => this.picture.findings.open(finding.rule, true, true))
    );
  }
  head(title, span) {
    return element(
      "div",
      { class: "top" },
      element("h3", {}, title),
      element(
        "span",
        { class: "group" },
        button("Zoom to it", () => this.picture.go(around(span, 1.6, this.picture.data.extent), true), { title: "F" }),
        button("×", () => this.picture.select(null), { "aria-label": "Close" })
      )
    );
  }
  stack(frames) {
    if (!frames.length) return null;
    const items = frames.map((frame) => element("li", frame.yours ? { class: "yours" } : {}, frame.name));
    const rest = items.slice(FRAMES);
    const shown = element("ol", { class: "stack", "aria-label": "Python stack, your own line first" }, ...items.slice(0, FRAMES));
    if (rest.length) {
      const more = button(`${rest.length} more frames`, () => more.parentElement.replaceWith(...rest));
      shown.append(element("li", {}, more));
    }
    return shown;
  }
  actions(slice2, details) {
    const does = element("div", { class: "does" });
    const lost = slice2.source === "gaps";
    const names = { launch: "Launched by", kernel: "Launches", operator: lost ? "Host was in" : "Inside", call: "Runtime call", end: "Ended by" };
    for (const link of details.links.slice(0, 6)) {
      does.append(button(`${names[link.role]} ${link.name}`, () => this.picture.choose(link)));
    }
    if (details.links.length > 6) does.append(`and ${details.links.length - 6} more`);
    const launch = details.links.find((link) => link.role === "launch");
    if (launch && slice2.source === "gpu") does.append(`starts ${duration(slice2.start - launch.start)} after its launch`);
    const { same } = details;
    if (same && same.count > 1) {
      const all = button("Show all of these", () => {
        this.picture.scene.same = this.picture.scene.same === same.name_id ? null : same.name_id;
        all.setAttribute("aria-pressed", String(this.picture.scene.same !== null));
        this.picture.draw();
      });
      does.append(all, button("Find each", () => this.picture.finder.search(details.title)));
    }
    return does.childNodes.length ? does : null;
  }
  /** Return a field for a note on a place; the note is stored in the run. */
  noteForm(span) {
    const input = element("input", { placeholder: "Note on this place", "aria-label": "Note on this place", maxlength: "300" });
    const form = element("form", { class: "group" }, input, element("button", { type: "submit" }, "Save"));
    form.onsubmit = (event) => {
      event.preventDefault();
      if (!input.value.trim()) return;
      this.picture.note({ start: Math.round(span.start), end: Math.round(span.end), text: input.value });
      input.value = "";
    };
    return form;
  }
  /** Sum up a time range of the first device; of two runs, of the first device of each. */
  async showRange(range) {
    const turn = ++this.turn;
    this.links = [];
    if (!range) return this.close();
    try {
      const sides = await this.stretches(range);
      if (turn === this.turn) this.fillRange(range, sides);
    } catch (problem) {
      this.picture.say(problem instanceof Error ? problem.message : String(problem));
    }
  }
  /** Fetch the sums of a time range: of the first device; of two runs, of the first device of each. */
  async stretches(range) {
    const sides = this.picture.data.tracks.filter((track, i) => i === 0 || track.mark);
    return Promise.all(sides.map(async (of) => {
      const [start, end] = [Math.round(range.start - of.offset), Math.round(range.end - of.offset)];
      const query = `recording=${of.recording}&device=${of.device}&start=${start}&end=${end}`;
      return [of.mark ? `${of.mark}: ` : "", await fetchJson(`${of.api}/stretch?${query}`)];
    }));
  }
  summary(range, sides) {
    const length = range.end - range.start;
    const busy = sides.map(([mark, side]) => mark + (!side.trusted ? "GPU times cannot be trusted in" : side.works_share === null ? "there is no GPU operation in" : `the GPU works ${share(side.works_share)} of`)).join("; ");
    return {
      title: `${busy[0].toUpperCase()}${busy.slice(1)} these ${duration(length)}`,
      sums: sides.map(([mark, side]) => this.sums(side, length, mark))
    };
  }
  fillRange(range, sides) {
    const { title, sums } = this.summary(range, sides);
    this.place.replaceChildren(this.head(title, range), ...sums, this.noteForm(range));
    this.open();
    this.picture.say(`${title}.`);
  }
  sums(side, length, of) {
    const parts = column(side.parts.map((part) => part.ms * 1e6)), operations = column(side.operations.map((o) => o.ms * 1e6));
    return element(
      "div",
      { class: "columns" },
      table(`${of}Where the time goes`, side.parts.map((part, i) => [this.swatch(part), parts[i], share(part.ms * 1e6 / length)])),
      table(`${of}Longest GPU operations`, side.operations.map((o, i) => [o.name, `${count(o.count)} ×`, operations[i]]))
    );
  }
  swatch(part) {
    const colour = this.picture.data.dark ? part.dark : part.light;
    return element("span", { title: part.label }, element("span", { class: "swatch", "data-texture": part.texture, style: `background-color:${colour}` }), part.label);
  }
};
function raw(ns) {
  return Math.abs(ns) < 1e3 ? exact(ns) : `${exact(ns)} (${count(Math.round(ns))} ns)`;
}
function list(facts) {
  return element("dl", {}, ...facts.flatMap(([term, value]) => [element("dt", {}, term), element("dd", {}, value)]));
}
function table(caption, rows) {
  if (!rows.length) return null;
  const cells = (row) => element("tr", {}, ...row.map((cell, i) => element("td", i ? { class: "n" } : typeof cell === "string" ? { title: cell } : {}, cell)));
  const heading = element("caption", { style: "text-align:left;opacity:.7" }, caption);
  return element("table", {}, heading, element("tbody", {}, ...rows.map(cells)));
}

// src/finding.ts
var LISTED = 3;
var STEP_ROOM = 1.06;
var ROOM = 8;
var FindingBar = class {
  constructor(place, changes, picture) {
    this.place = place;
    this.changes = changes;
    this.picture = picture;
    this.list();
  }
  rule = "";
  /** The findings with a predicted gain, the largest first. */
  get withGain() {
    return this.picture.data.findings.filter((finding) => finding.gain);
  }
  list() {
    this.changes.hidden = Boolean(this.rule) || !this.withGain.length;
    this.changes.replaceChildren(element("span", { class: "words" }, this.withGain.length > 1 ? "What to change (each alone):" : "What to change:"), element("div", {}, ...this.withGain.slice(0, LISTED).map((finding) => {
      const change = button("", () => this.open(finding.rule, true, true), { title: `${finding.title}. ${finding.fix}` });
      change.append(element("span", { class: "title" }, finding.action), element("strong", {}, finding.gain));
      return change;
    })));
  }
  /** Open the next finding with a gain; after the last one, none is open. */
  next(by) {
    const rules = ["", ...this.withGain.map((finding) => finding.rule)];
    this.open(rules[(Math.max(rules.indexOf(this.rule), 0) + by + rules.length) % rules.length], true, true);
  }
  /** Mark the places of a finding; "" or an unknown rule removes the marks. With `go`, the view moves to the longest place. */
  open(rule, report = false, go = false) {
    const finding = this.picture.data.findings.find((f) => f.rule === rule);
    if (this.rule === (finding?.rule ?? "")) return;
    this.rule = finding?.rule ?? "";
    this.picture.scene.marks = [];
    this.picture.scene.mark = -1;
    if (finding && !this.changes.hidden) this.place.style.height = `${this.changes.offsetHeight}px`;
    this.place.hidden = !finding;
    this.list();
    if (finding) void this.load(go);
    else this.picture.remap();
    if (report) this.picture.moved(false);
  }
  async load(go) {
    const { tracks, findings } = this.picture.data;
    const finding = findings.find((f) => f.rule === this.rule);
    const of = tracks[0];
    let marks = finding.marks;
    try {
      const answer = await fetchJson(
        `${of.api}/occurrences?recording=${of.recording}&device=${of.device}&rule=${encodeURIComponent(this.rule)}`
      );
      if (answer.places.length) marks = answer.places.map(([start, end]) => ({ start: start + of.offset, end: end + of.offset }));
    } catch {
    }
    if (this.rule !== finding.rule) return;
    this.picture.scene.marks = marks;
    if (go && marks.length) this.begin();
    else this.nearest();
    this.show();
    this.picture.remap();
  }
  /** Begin with the longest place and show its whole step. The first place may be the shortest of hundreds. */
  begin() {
    const { scene, data, target } = this.picture;
    const length = (mark) => mark.end - mark.start;
    scene.mark = scene.marks.reduce((best, mark, i) => length(mark) > length(scene.marks[best]) ? i : best, 0);
    const longest = scene.marks[scene.mark];
    const step2 = data.steps.find((s) => s.start <= longest.start && s.end >= longest.end);
    this.picture.go(step2 ? around(step2, STEP_ROOM, data.extent) : showing(longest, target, ROOM, data.extent), true);
  }
  /** Make the first place in view the current one; without one, the first place. */
  nearest() {
    const { scene: { marks }, target } = this.picture;
    const first = marks.findIndex((mark) => mark.end > target.start && mark.start < target.end);
    this.picture.scene.mark = first >= 0 ? first : marks.length ? 0 : -1;
  }
  step(by) {
    const { marks, mark } = this.picture.scene;
    if (marks.length) this.to((mark + by + marks.length) % marks.length);
  }
  to(index) {
    this.picture.scene.mark = index;
    this.show();
    const { scene: { marks }, target } = this.picture;
    const seen = showing(marks[index], target, ROOM, this.picture.data.extent);
    if (seen === target) this.picture.remap();
    else this.picture.go(seen, true);
  }
  show() {
    const finding = this.picture.data.findings.find((f) => f.rule === this.rule);
    if (!finding) return;
    const { marks, mark } = this.picture.scene;
    this.place.replaceChildren(
      element(
        "span",
        { class: "group" },
        marks.length ? element(
          "span",
          { class: "group" },
          element("span", { role: "status" }, `${count(mark + 1)} of ${count(marks.length)}`),
          button("‹", () => this.step(-1), { "aria-label": "Previous place", title: "[" }),
          button("›", () => this.step(1), { "aria-label": "Next place", title: "]" })
        ) : "",
        button("Leave", () => this.open("", true), { title: "Remove the marks" })
      ),
      element("strong", {}, finding.title, finding.gain ? ` ${finding.gain}` : ""),
      element("p", {}, finding.fix)
    );
  }
};

// src/hit.ts
function sliceAt(picture, lane, depth, x) {
  const columns = picture.painter.drawn.rows.get(`${lane.id}/${depth}`);
  const bar = columns?.bars.findLast((b) => x >= b.from - 0.5 && x < Math.max(b.to, b.from + 1) + 0.5);
  if (bar) return slice(lane, depth, bar.tile, bar.slice, offset(picture, lane));
  return alone(picture, lane, depth, x);
}
function alone(picture, lane, depth, x) {
  const view = picture.scene.view;
  const unit = picture.nsPerPixel();
  const near = { start: view.start + (x - 1.5) * unit, end: view.start + (x + 1.5) * unit };
  const slices2 = rowSlices(picture, lane, depth, near).filter((s) => s.end >= near.start && s.start <= near.end);
  return slices2.length === 1 ? slices2[0] : null;
}
function sumAt(columns, x) {
  const at = Math.floor(x);
  if (!columns || !(columns.fill[at] > 0)) return null;
  return { share: Math.min(columns.fill[at], 1), kind: columns.kinds[columns.kind[at]] };
}
function rowSlices(picture, lane, depth, span) {
  if (!lane.spec) return [];
  const by = offset(picture, lane);
  const view = picture.scene.view;
  const own = { start: span.start - by, end: span.end - by };
  const level = levelOf((view.end - view.start) / picture.width);
  const pieces = picture.tiles.pieces(lane.track, lane.spec.source, own, level);
  const slices2 = /* @__PURE__ */ new Map();
  for (const { tile } of pieces) {
    for (const i of tile?.rows.get(rowKey(lane.spec.lane, depth))?.slices ?? []) {
      const one = slice(lane, depth, tile, i, by);
      slices2.set(`${one.id} ${one.start}`, one);
    }
  }
  return [...slices2.values()].sort((a, b) => a.start - b.start);
}
function offset(picture, lane) {
  return picture.data.tracks[lane.track].offset;
}
function slice(lane, depth, tile, i, by) {
  return {
    track: lane.track,
    source: lane.spec.source,
    lane: lane.spec.lane,
    depth,
    kind: tile.kinds[tile.kind[i]],
    id: tile.id[i],
    name: tile.names.get(tile.name[i]) ?? "",
    start: tile.start[i] + by,
    end: tile.start[i] + tile.dur[i] + by
  };
}

// src/touch.ts
var TAP_PX = 8;
var HOLD_MS = 400;
function fingers(picture, tap) {
  const canvas = picture.lanesCanvas;
  const down = /* @__PURE__ */ new Map();
  let drag = null;
  const begin = (at, does) => {
    const own = { at, view: picture.target, does, hold: 0 };
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
  const select = (a, b, done) => {
    const { start } = picture.scene.view;
    const unit = picture.nsPerPixel();
    picture.selectRange({ start: start + Math.min(a, b) * unit, end: start + Math.max(a, b) * unit }, done);
  };
  const follow = (at) => {
    if (!drag) return;
    const by = at.x - drag.at.x;
    if (drag.does === "selects") return select(drag.at.x, at.x, false);
    if (Math.abs(by) > TAP_PX) drag.does = "moves";
    if (drag.does === "moves") picture.go(moved(drag.view, -by * picture.nsPerPixel(), picture.data.extent));
  };
  const listeners = {
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
      const other = [...down].find(([id]) => id !== event.pointerId)[1];
      picture.go(pinched(picture.scene.view, picture.width, [before, other], [at, other], picture.data.extent));
    },
    pointerup: (event) => {
      const was = drag;
      down.delete(event.pointerId);
      leave();
      if (down.size) return begin([...down.values()][0], "moves");
      if (was?.does === "nothing yet") tap(event.offsetX, event.offsetY);
      else if (was?.does === "selects") select(was.at.x, event.offsetX, true);
    },
    pointercancel: (event) => {
      down.delete(event.pointerId);
      leave();
    }
  };
  const ends = Object.entries(listeners).map(([type, act2]) => {
    const heard = (event) => {
      if (event.pointerType === "touch") act2(event);
    };
    canvas.addEventListener(type, heard);
    return () => canvas.removeEventListener(type, heard);
  });
  return () => {
    leave();
    ends.forEach((end) => end());
  };
}

// src/input.ts
var DRAG_PX = 4;
var FINGER_PX = 10;
var WHEEL_ZOOM = 22e-4;
var WHEEL_LINE_PX = 16;
var NOTCH_PX = 40;
var PAUSE_MS = [1500, 250];
var LETTERS = /^[wasdlgmfnpt0[\]]$/i;
var TALLER = 1.25;
var TAP_S = 0.05;
var KEY_SPEED = 1.1;
function listen(picture) {
  const ends = [pointer(picture), wheel(picture), map(picture), keys(picture)];
  return () => ends.forEach((end) => end());
}
function on(element2, type, act2, options) {
  element2.addEventListener(type, act2, options);
  return () => element2.removeEventListener(type, act2, options);
}
function pointer(picture) {
  const canvas = picture.lanesCanvas;
  let drag = null;
  const time2 = (x) => picture.scene.view.start + x * picture.nsPerPixel();
  const mouse = (act2) => (event) => {
    if (event.pointerType !== "touch") act2(event);
  };
  const down = (event) => {
    canvas.setPointerCapture(event.pointerId);
    const pan = event.button === 1 || event.shiftKey || picture.onAxis(event.offsetY);
    if (event.button > 1) return;
    drag = { x: event.offsetX, view: picture.target, pan, moved: false };
    hideTip(picture);
  };
  const move = (event) => {
    if (!drag) return hover(picture, event.offsetX, event.offsetY);
    const by = event.offsetX - drag.x;
    if (Math.abs(by) > DRAG_PX) drag.moved = true;
    if (!drag.moved) return;
    if (drag.pan) picture.go(moved(drag.view, -by * picture.nsPerPixel(), picture.data.extent));
    else picture.selectRange({ start: time2(Math.min(event.offsetX, drag.x)), end: time2(Math.max(event.offsetX, drag.x)) }, false);
  };
  const up = (event) => {
    if (!drag) return;
    const was = drag;
    drag = null;
    if (!was.moved) click(picture, event.offsetX, event.offsetY);
    else if (!was.pan) picture.selectRange(picture.scene.range, true);
  };
  const twice = (event) => {
    const slice2 = under(picture, event.offsetX, event.offsetY);
    if (slice2) picture.go(around(slice2, 1.6, picture.data.extent), true);
  };
  const ends = [
    on(canvas, "pointerdown", mouse(down)),
    on(canvas, "pointermove", mouse(move)),
    on(canvas, "pointerup", mouse(up)),
    on(canvas, "pointercancel", () => {
      drag = null;
    }),
    on(canvas, "pointerleave", () => hideTip(picture)),
    on(canvas, "dblclick", twice),
    fingers(picture, (x, y) => click(picture, x, y, FINGER_PX))
  ];
  return () => ends.forEach((end) => end());
}
function under(picture, x, y) {
  const row = picture.rowAt(y);
  return row?.lane.kind === "slices" ? sliceAt(picture, row.lane, row.depth, x) : null;
}
function click(picture, x, y, reach = 0) {
  picture.lanesCanvas.focus({ preventScroll: true });
  const row = picture.rowAt(y);
  if (row?.lane.kind === "steps") {
    const at = picture.scene.view.start + x * picture.nsPerPixel();
    const step2 = row.lane.steps.find((s) => at >= s.start && at < s.end);
    picture.selectRange(step2 ? { start: step2.start, end: step2.end } : null, true);
    return;
  }
  const columns = row?.lane.kind === "slices" ? picture.painter.drawn.rows.get(`${row.lane.id}/${row.depth}`) : void 0;
  for (let by = 0; by <= reach; by++) {
    for (const near of by ? [x - by, x + by] : [x]) {
      const slice2 = under(picture, near, y);
      if (slice2) return picture.select(slice2);
      if (!sumAt(columns, near)) continue;
      picture.go(zoomed(picture.scene.view, 0.12, picture.scene.view.start + near * picture.nsPerPixel(), picture.data.extent), true);
      return;
    }
  }
  picture.select(null);
}
function hover(picture, x, y) {
  const row = picture.rowAt(y);
  const tip = picture.root.querySelector(".tip");
  let words = "";
  if (row?.lane.kind === "slices") {
    const slice2 = sliceAt(picture, row.lane, row.depth, x);
    const sum = slice2 ? null : sumAt(picture.painter.drawn.rows.get(`${row.lane.id}/${row.depth}`), x);
    const label = (kind) => kindOf(picture.data, row.lane.spec.source, kind)[0];
    const length = slice2 ? duration(slice2.end - slice2.start) : "";
    if (slice2) words = slice2.source === "gaps" || !slice2.name ? `${label(slice2.kind)}
${length}` : `${slice2.name}
${length} · ${label(slice2.kind)}`;
    else if (sum) words = `Many, mostly ${label(sum.kind)}
${share(sum.share)} of ${duration(picture.nsPerPixel())} filled. Select to zoom in.`;
  } else if (row?.lane.kind === "lines") {
    const at = picture.scene.view.start + x * picture.nsPerPixel();
    words = row.lane.lines.map((line) => {
      const value = line.values[line.times.findIndex((t) => t >= at)];
      return value === null || value === void 0 ? "" : `${line.label}: ${Math.round(value * 10) / 10} ${line.unit}`;
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
function hideTip(picture) {
  picture.root.querySelector(".tip").hidden = true;
}
function wheel(picture) {
  const canvas = picture.lanesCanvas;
  let [last, zooms] = [-Infinity, false];
  let pointer2 = "";
  const begins = (event) => {
    const place = `${event.clientX} ${event.clientY}`;
    if (event.timeStamp - last > PAUSE_MS[place === pointer2 ? 0 : 1]) {
      const notch = event.deltaMode !== 0 || Math.abs(event.deltaY) >= NOTCH_PX;
      const { start, end: end2 } = picture.target;
      const whole = end2 - start >= picture.data.extent && event.deltaY > 0;
      zooms = event.composedPath()[0] === canvas && notch && !whole;
    }
    [last, pointer2] = [event.timeStamp, place];
  };
  const turned = (event) => {
    const unit = event.deltaMode === 1 ? WHEEL_LINE_PX : 1;
    const [dx, dy] = [event.deltaX * unit, event.deltaY * unit];
    const sideways = Math.abs(dx) > Math.abs(dy) || event.shiftKey;
    if (event.ctrlKey || event.metaKey || zooms && !sideways) {
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
function map(picture) {
  const canvas = picture.root.querySelector(".map");
  let grip = null;
  const at = (event) => event.offsetX / Math.max(canvas.clientWidth, 1) * picture.data.extent;
  const to = (time2) => {
    const length = picture.target.end - picture.target.start;
    picture.go({ start: time2 - length / 2, end: time2 + length / 2 });
  };
  const ends = [
    on(canvas, "pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      const { start, end } = picture.target;
      const time2 = at(event);
      grip = time2 >= start && time2 <= end && end - start < picture.data.extent ? time2 - (start + end) / 2 : 0;
      if (end - start >= picture.data.extent) picture.go(around({ start: time2, end: time2 + 1 }, picture.data.extent / 8, picture.data.extent), true);
      else to(time2 - grip);
    }),
    on(canvas, "pointermove", (event) => {
      if (grip !== null && event.offsetY < MAP_PX * 4) to(at(event) - grip);
    }),
    on(canvas, "pointerup", () => {
      grip = null;
    }),
    on(canvas, "pointercancel", () => {
      grip = null;
    })
  ];
  return () => ends.forEach((end) => end());
}
function keys(picture) {
  const canvas = picture.lanesCanvas;
  const down = /* @__PURE__ */ new Set();
  let last = 0;
  const glide = (now) => {
    if (!down.size) return;
    shift(Math.min((now - last) / 1e3, 0.05));
    last = now;
    requestAnimationFrame(glide);
  };
  const shift = (seconds) => {
    const { extent } = picture.data;
    const amount = KEY_SPEED * seconds * 2;
    const zoom = Math.exp(((down.has("s") ? 1 : 0) - (down.has("w") ? 1 : 0)) * amount);
    const by = ((down.has("d") ? 1 : 0) - (down.has("a") ? 1 : 0)) * (amount / 2);
    const { target } = picture;
    const nearer = zoomed(target, zoom, (target.start + target.end) / 2, extent);
    if (zoom !== 1 || by) picture.go(moved(nearer, by * (nearer.end - nearer.start), extent));
  };
  const pressed = (event) => {
    const key2 = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if ("wasd".includes(key2)) {
      if (down.has(key2)) return event.preventDefault();
      if (!down.size) {
        last = performance.now();
        requestAnimationFrame(glide);
      }
      down.add(key2);
      shift(TAP_S);
    } else if (!act(picture, key2, event.shiftKey)) return;
    event.preventDefault();
    event.stopPropagation();
  };
  const ends = [
    on(canvas, "keydown", pressed),
    on(canvas, "keyup", (event) => down.delete(event.key.toLowerCase())),
    on(canvas, "blur", () => down.clear())
  ];
  const anywhere = (event) => {
    const target = event.composedPath()[0];
    const around2 = canvas.getRootNode().host ?? canvas;
    const led = /^(A|BUTTON)$/.test(target.tagName);
    const ours = led || target.contains(around2) || picture.root.contains(target) && target !== canvas && !/^(INPUT|SELECT)$/.test(target.tagName);
    if (!ours || !LETTERS.test(event.key)) return;
    canvas.focus({ preventScroll: true });
    pressed(event);
  };
  document.addEventListener("keydown", anywhere);
  ends.push(() => document.removeEventListener("keydown", anywhere));
  const slash = (event) => {
    const target = event.composedPath()[0];
    if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName ?? "")) return;
    event.preventDefault();
    picture.finder.focus();
  };
  document.addEventListener("keydown", slash);
  ends.push(() => document.removeEventListener("keydown", slash));
  return () => ends.forEach((end) => end());
}
function act(picture, key2, shift) {
  const { scene } = picture;
  const chosen = scene.selected ?? scene.range ?? scene.marks[scene.mark];
  if (key2 === "ArrowRight" || key2 === "ArrowLeft") step(picture, key2 === "ArrowRight" ? 1 : -1);
  else if (key2 === "ArrowDown" || key2 === "ArrowUp") climb(picture, key2 === "ArrowDown" ? 1 : -1);
  else if (key2 === "Enter") picture.drawer.focus();
  else if (key2 === "Escape") {
    if (scene.selected || scene.range) {
      picture.selectRange(null, true);
      picture.select(null);
    } else picture.finder.search("");
  } else if (key2 === "f" && chosen) picture.go(around(chosen, scene.range ? 1 : 1.6, picture.data.extent), true);
  else if (key2 === "g") picture.findings.next(shift ? -1 : 1);
  else if (key2 === "m") picture.selectRange({ ...scene.selected ?? picture.target }, true);
  else if (key2 === "t") picture.resizeRows(shift ? 1 / TALLER : TALLER);
  else if (key2 === "l") void picture.losses.next();
  else if (key2 === "0" || key2 === "Home") picture.go({ start: 0, end: picture.data.extent }, true);
  else if ("np[]".includes(key2) && !picture.finder.words && !picture.findings.rule) picture.say("There is no search yet. Press / to find slices by name, or G to open a change.");
  else if (key2 === "n" || key2 === "]") picture.findings.rule && !picture.finder.words ? picture.findings.step(1) : picture.finder.step(shift ? -1 : 1);
  else if (key2 === "p" || key2 === "[") picture.findings.rule && !picture.finder.words ? picture.findings.step(-1) : picture.finder.step(-1);
  else return false;
  return true;
}
function step(picture, by) {
  const { selected, lanes } = picture.scene;
  const view = picture.target;
  const lane = selected ? lanes.find((l) => l.track === selected.track && l.spec?.source === selected.source && l.spec.lane === selected.lane) : lanes.find((l) => l.spec?.source === "gpu") ?? lanes.find((l) => l.spec);
  if (!lane) return;
  const depth = selected?.depth ?? 0;
  const room = view.end - view.start;
  const slices2 = rowSlices(picture, lane, depth, { start: view.start - room / 2, end: view.end + room / 2 });
  const next = !selected ? slices2.find((s) => s.start >= view.start && s.start < view.end) : by > 0 ? slices2.find((s) => s.start > selected.start || s.start === selected.start && s.id > selected.id) : slices2.findLast((s) => s.start < selected.start || s.start === selected.start && s.id < selected.id);
  if (next) picture.choose(next);
  else picture.say(`There is no ${by > 0 ? "later" : "earlier"} slice nearby on this row that is drawn separately. Zoom in to see shorter ones.`);
}
function climb(picture, by) {
  const { selected, lanes } = picture.scene;
  if (!selected) return step(picture, 1);
  const rows = lanes.filter((l) => l.spec).flatMap((lane) => Array.from({ length: lane.folded ? 1 : lane.spec.rows }, (_, depth) => ({ lane, depth })));
  let at = rows.findIndex(({ lane, depth }) => lane.track === selected.track && lane.spec.source === selected.source && lane.spec.lane === selected.lane && depth === selected.depth);
  for (at += by; at >= 0 && at < rows.length; at += by) {
    const { lane, depth } = rows[at];
    const slices2 = rowSlices(picture, lane, depth, picture.scene.view);
    const slice2 = slices2.find((s) => s.start <= selected.start && s.end > selected.start) ?? slices2.find((s) => s.start < selected.end && s.end > selected.start);
    if (slice2) return picture.choose(slice2);
  }
}

// src/overview.ts
var ROOM2 = 1.06;
var WORDED = 96;
var WORDED_STEPS = 12;
var [FAINT, STRONG] = [6, 44];
var NAMED_ROWS = 8;
var LEAST = 0.02;
function showHeat(place, picture) {
  const { heat, kinds, dark } = picture.data;
  place.hidden = !heat.length;
  if (!heat.length) return;
  const [late, waits] = [kinds.page.accent, kinds.gaps.comm_wait].map((kind) => kind[dark ? 2 : 1]);
  const longest = Math.max(...heat.flatMap((row) => row.steps.map((step2) => step2[2] + step2[3])));
  const most = Math.max(...heat.flatMap((row) => row.steps.map((step2) => Math.max(step2[3], step2[4]))), LEAST * longest);
  const squares = heat.reduce((sum, row) => sum + row.steps.length, 0);
  const worded = squares <= WORDED && heat[0].steps.length <= WORDED_STEPS && heat.length <= NAMED_ROWS;
  place.classList.toggle("worded", worded);
  place.classList.toggle("dense", heat.length > NAMED_ROWS);
  const rows = heat.map((row, i) => element(
    "div",
    { class: "row" },
    element("span", { class: "name" }, heat.length <= NAMED_ROWS || i === 0 || i === heat.length - 1 ? row.label.split(" ·")[0] : ""),
    element("span", { class: "squares" }, ...row.steps.map(([start, end, own, wait, over, name]) => {
      const isLate = over >= wait;
      const [value, colour] = isLate ? [over, late] : [wait, waits];
      const said = value < LEAST * longest ? "" : isLate ? `+${duration(value * 1e6)}` : `waits ${duration(value * 1e6)}`;
      const strength = FAINT + (STRONG - FAINT) * Math.min(value / most, 1);
      const words = `${row.label}, ${name}: ${duration(own * 1e6)} by itself${over ? `, +${duration(over * 1e6)} against the median rank` : ""}, waits ${duration(wait * 1e6)}`;
      return button(worded ? said : "", () => picture.fly(row.track, around({ start, end }, ROOM2, picture.data.extent)), {
        title: words,
        "aria-label": words,
        style: `background:color-mix(in srgb, ${colour} ${strength.toFixed(0)}%, transparent)`,
        ...worded ? {} : { tabindex: "-1" }
      });
    }))
  ));
  const key2 = (colour, label) => element("span", {}, element("i", { class: "swatch", style: `background:${colour}` }), label);
  place.replaceChildren(
    element(
      "div",
      { class: "row keys" },
      element("span", { class: "name" }, "Ranks and steps"),
      element("span", {}, key2(late, "works longer than the median rank"), key2(waits, "waits for others"), "Select a square to go there.")
    ),
    ...rows
  );
}
function showScale(place, { scale, kinds, dark }) {
  place.hidden = !scale;
  if (!scale) return;
  const longest = Math.max(scale.run, scale.profiled);
  const colour = (kind) => kinds.steps[kind][dark ? 2 : 1];
  const bar = (label, ms, words, kind) => element(
    "div",
    {},
    element("span", {}, label),
    element(
      "span",
      { class: "track" },
      element("i", { style: `width:${100 * Math.min(ms, scale.run) / longest}%;background:${colour(kind)}` }),
      ms > scale.run ? element("i", { class: "added", style: `width:${100 * (ms - scale.run) / longest}%` }) : null
    ),
    element("b", {}, words)
  );
  place.replaceChildren(
    bar("run", scale.run, scale.words[0], "counted"),
    bar("profile, mean", scale.profiled, scale.words[1], "uncounted"),
    element("p", {}, scale.sentence)
  );
}

// src/links.ts
var MAX_ARROWS = 200;
function drawLinks(context, scene, links, ink, width) {
  const chosen = scene.selected;
  if (!chosen) return;
  const at = (slice2) => {
    const lane = scene.lanes.find((l) => l.track === slice2.track && l.spec?.source === slice2.source && l.spec.lane === slice2.lane);
    if (!lane) return null;
    return { lane, y: AXIS_PX + lane.top + Math.min(slice2.depth, lane.rows - 1) * lane.row + lane.row / 2 };
  };
  const scale = width / (scene.view.end - scene.view.start);
  const x = (time2) => Math.min(Math.max((time2 - scene.view.start) * scale, -60), width + 60);
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

// src/losses.ts
var ROOM3 = 8;
var Losses = class {
  constructor(picture) {
    this.picture = picture;
  }
  stretch = { start: 0, end: 0 };
  place = 0;
  shown = null;
  /** Select the longest piece in view; if one is selected, the next longest. The track is that of the selected slice, else the first. */
  async next() {
    const { data, scene, target } = this.picture;
    if (this.shown && scene.selected === this.shown) this.place++;
    else [this.stretch, this.place] = [{ ...target }, 0];
    const track = scene.selected?.track ?? 0;
    const of = data.tracks[track];
    const [start, end] = [Math.round(this.stretch.start - of.offset), Math.round(this.stretch.end - of.offset)];
    try {
      const { slice: slice2 } = await fetchJson(
        `${of.api}/longest?recording=${of.recording}&device=${of.device}&start=${start}&end=${end}&nth=${this.place}`
      );
      if (!slice2) {
        this.picture.say(this.place ? "There is no other lost time there." : "No time is lost in view.");
        return;
      }
      slice2.track = track;
      slice2.start += of.offset;
      slice2.end += of.offset;
      this.shown = slice2;
      this.picture.choose(slice2, around(slice2, ROOM3, data.extent));
    } catch (problem) {
      this.picture.say(problem instanceof Error ? problem.message : String(problem));
    }
  }
};

// src/rows.ts
var Rows = class {
  needed = /* @__PURE__ */ new Map();
  /** Add the rows that `view` needs; return whether anything changed. Rows are only added, so that lanes do not move while the viewer zooms and pans. After a jump (`anew`), the rows of earlier views no longer count. */
  fit(lanes, tracks, tiles, view, width, anew) {
    let changed = false;
    for (const lane of lanes) {
      if (!lane.spec || !lane.folds || lane.folded) continue;
      const rows = Math.max(rowsIn(lane, tracks[lane.track], tiles, view, width), 1);
      changed = this.set(lane.id, anew ? rows : Math.max(rows, this.needed.get(lane.id) ?? 0)) || changed;
    }
    return changed;
  }
  /** Add the row of the selected slice; return whether anything changed. */
  include(lane, depth) {
    return depth >= (this.needed.get(lane.id) ?? lane.rows) && this.set(lane.id, depth + 1);
  }
  set(id, rows) {
    const changed = this.needed.get(id) !== rows;
    this.needed.set(id, rows);
    return changed;
  }
};
function rowsIn(lane, track, tiles, view, width) {
  const own = { start: view.start - track.offset, end: view.end - track.offset };
  const pixel = (own.end - own.start) / width;
  const pieces = tiles.pieces(lane.track, lane.spec.source, own, levelOf(pixel));
  let nested = 0;
  for (let depth = lane.spec.rows - 1; depth >= 0; depth--) {
    const key2 = rowKey(lane.spec.lane, depth);
    const alone2 = pieces.some(({ tile }) => tile?.rows.get(key2)?.slices.some((i) => tile.dur[i] >= ALONE_PX * pixel && tile.start[i] < own.end && tile.start[i] + tile.dur[i] > own.start));
    if (alone2) return depth + 1 + nested;
    if (pieces.some(({ tile }) => tile?.rows.has(key2))) nested = 1;
  }
  return nested;
}

// src/toolbar.ts
function showToolbar(picture, forget) {
  const { root, data } = picture;
  const on2 = (name, act2) => {
    root.querySelector(`.${name}`).onclick = act2;
  };
  const scaled = (factor) => picture.go(around(picture.target, factor, data.extent), false, true);
  const shifted = (share2) => {
    const by = (picture.target.end - picture.target.start) * share2;
    picture.go({ start: picture.target.start + by, end: picture.target.end + by }, false, true);
  };
  on2("whole", () => {
    picture.go({ start: 0, end: data.extent }, true);
    forget();
  });
  on2("in", () => scaled(0.4));
  on2("out", () => scaled(2.5));
  on2("earlier", () => shifted(-0.5));
  on2("later", () => shifted(0.5));
  root.querySelector(".longest").hidden = !data.tracks[0].lanes.some((lane) => lane.source === "gaps");
  on2("longest", () => void picture.losses.next());
  const steps = root.querySelector(".step");
  steps.hidden = !data.steps.length;
  steps.replaceChildren(new Option("Go to step", ""));
  steps.onfocus = steps.onpointerdown = () => {
    if (steps.length < 2) steps.append(...data.steps.map((step2, i) => new Option(step2.name, String(i))));
  };
  steps.onchange = () => {
    const step2 = data.steps[Number(steps.value)];
    if (steps.value && step2) picture.go(around(step2, 1.06, data.extent), true);
    steps.value = "";
  };
}

// src/timeline.ts
var SETTLED_MS = 500;
var MOVE_MS = 180;
var REST_MS = 300;
var END_PX = 4;
var ROOM4 = 8;
var Timeline = class {
  constructor(root, data, report, note) {
    this.data = data;
    this.report = report;
    this.note = note;
    this.root = root;
    this.whole = new Promise((drawn) => {
      this.isWhole = drawn;
    });
    this.lanesCanvas = root.querySelector(".lanes");
    this.overCanvas = root.querySelector(".over");
    this.mapCanvas = root.querySelector(".map");
    this.ink = inkOf(root, data);
    this.choice.read(data.place.lanes);
    this.tiles = new Tiles(data.tracks, () => this.arrived());
    this.painter = new Painter(this.lanesCanvas.getContext("2d"), this.tiles, this.ink);
    this.scene = {
      data,
      view: this.viewOf(data.place),
      lanes: [],
      marks: [],
      mark: -1,
      selected: null,
      range: null,
      same: null
    };
    this.gutter = new Gutter(root.querySelector(".gutter"), this.choice, data.dark, () => {
      this.layout(true);
      this.moved(false);
    });
    this.drawer = new Drawer(root.querySelector(".drawer"), this);
    this.finder = new Finder(root.querySelector(".find"), this);
    this.findings = new FindingBar(root.querySelector(".finding"), root.querySelector(".changes"), this);
    this.crumbs = new Crumbs(root, data.extent, (view) => this.go(view, true));
    showToolbar(this, () => this.crumbs.clear());
    showHeat(root.querySelector(".heat"), this);
    showScale(root.querySelector(".scale-strip"), data);
    this.stop.push(listen(this));
    const seen = new ResizeObserver(() => this.resize());
    const body = root.querySelector(".body");
    for (const part of [body, root.querySelector(".stage")]) seen.observe(part);
    body.onscroll = () => this.draw();
    this.stop.push(() => seen.disconnect());
    const back = () => this.back();
    window.addEventListener("popstate", back);
    this.stop.push(() => window.removeEventListener("popstate", back));
    this.resize();
    this.notes(data.notes);
    this.findings.open(data.place.finding);
    this.finder.start(data.place.find);
    void this.drawer.restore(data.place.slice);
  }
  root;
  lanesCanvas;
  tiles;
  ink;
  scene;
  drawer;
  finder;
  findings;
  losses = new Losses(this);
  width = 0;
  height = 0;
  painter;
  frames = [];
  /** Resolves with the first frame in which every tile of the view is drawn. */
  whole;
  isWhole;
  choice = new LaneChoice();
  rows = new Rows();
  gutter;
  mapCanvas;
  overCanvas;
  mapPicture = document.createElement("canvas");
  stop = [];
  crumbs;
  move = null;
  mapStale = true;
  dirty = false;
  settle = 0;
  rest = 0;
  row = 0;
  lanesHeight = 0;
  fitted = false;
  jumped = false;
  ended = false;
  end() {
    this.ended = true;
    this.tiles.stop();
    clearTimeout(this.settle);
    clearTimeout(this.rest);
    for (const stop of this.stop) stop();
  }
  /** Go to a view. Breadcrumbs and Back lead back from a jump. */
  go(view, jump = false, smooth = jump) {
    const to = clamped(view, this.data.extent);
    if (jump) this.crumbs.push(this.target);
    const [length, before] = [to, this.target].map((span) => span.end - span.start);
    if (jump && Math.abs(length - before) > before / 100) this.jumped = true;
    if (smooth && !matchMedia("(prefers-reduced-motion: reduce)").matches) {
      this.move = { from: this.scene.view, to, begun: performance.now() };
    } else {
      this.move = null;
      this.scene.view = to;
    }
    this.moved(jump);
  }
  /** Show the viewers' notes: a flag at each place, and a button that leads to it. */
  notes(notes) {
    this.data.notes = notes;
    const place = this.root.querySelector(".notes");
    place.hidden = !notes.length;
    place.replaceChildren("Notes: ", ...notes.map((note) => button(note.text, () => this.go(around(note, 1.6, this.data.extent), true))));
    this.draw();
  }
  /** Go to the slice of a row in the page's tables. */
  async visit(slice2) {
    const place = await this.drawer.restore(slice2);
    if (!place) return;
    this.go(around(place, ROOM4, this.data.extent), true);
    this.lanesCanvas.focus();
  }
  /** The view at the end of the current move. */
  get target() {
    return this.move?.to ?? this.scene.view;
  }
  select(slice2) {
    this.scene.selected = slice2;
    this.scene.range = null;
    this.scene.same = null;
    void this.drawer.show(slice2);
    this.moved(false);
  }
  /** Select a slice and scroll to it; with `near`, jump to that view. */
  choose(slice2, near) {
    const view = this.target;
    this.select(slice2);
    this.reveal(slice2.track, slice2.source, slice2.lane, slice2.depth);
    if (near) this.go(near, true);
    else if (slice2.start < view.start || slice2.start > view.end) {
      const middle = (slice2.start + Math.min(slice2.end, slice2.start + (view.end - view.start) / 2)) / 2;
      const half = (view.end - view.start) / 2;
      this.go({ start: middle - half, end: middle + half }, false, true);
    }
  }
  selectRange(range, done) {
    this.scene.range = range;
    if (done) {
      this.scene.selected = null;
      void this.drawer.showRange(range);
    }
    this.draw();
  }
  /** Show a sentence below the timeline; screen readers read it aloud. */
  say(words) {
    this.root.querySelector(".said").textContent = words;
  }
  draw() {
    if (this.dirty || this.ended) return;
    this.dirty = true;
    requestAnimationFrame(() => this.frame());
  }
  /** Draw, and report the new place to the page. */
  moved(jump) {
    this.draw();
    this.rested();
    clearTimeout(this.settle);
    if (jump) this.report(this.place(), true);
    else this.settle = window.setTimeout(() => this.report(this.place(), false), SETTLED_MS);
  }
  nsPerPixel() {
    return (this.scene.view.end - this.scene.view.start) / Math.max(this.width, 1);
  }
  onAxis(y) {
    return y < this.body.scrollTop + AXIS_PX;
  }
  /** Return the lane at a height of the canvas, and the row in it. */
  rowAt(y) {
    if (this.onAxis(y)) return null;
    const at = y - AXIS_PX;
    const lane = this.scene.lanes.find((l) => at >= l.top && at < l.top + l.height);
    return lane ? { lane, depth: Math.min(Math.floor((at - lane.top) / lane.row), lane.rows - 1) } : null;
  }
  fly(track, view) {
    this.go(view, true);
    const head2 = this.scene.lanes.find((l) => l.track === track && (l.kind === "track" || l.spec));
    if (head2) this.body.scrollTop = head2.kind === "track" && head2.track ? head2.top : 0;
  }
  revealSelected() {
    const chosen = this.scene.selected;
    if (chosen) this.reveal(chosen.track, chosen.source, chosen.lane, chosen.depth);
  }
  resizeRows(factor) {
    const { lanes, selected } = this.scene;
    const resized = lanes.filter((l) => l.kind === "slices" || l.kind === "lines");
    const own = resized.filter((l) => selected && l.track === selected.track && l.spec?.source === selected.source && l.spec.lane === selected.lane);
    for (const lane of own.length ? own : resized) this.choice.size(lane.id, lane.row * factor);
    this.layout();
    this.moved(false);
  }
  get body() {
    return this.root.querySelector(".body");
  }
  /** Scroll to a row of a lane, and open the lane if it is folded. */
  reveal(track, source, laneNumber, depth) {
    const find = () => this.scene.lanes.find((l) => l.track === track && l.spec?.source === source && l.spec.lane === laneNumber);
    let lane = find();
    if (!lane && this.data.tracks[track]?.lanes.some((l) => l.quiet && l.source === source && l.lane === laneNumber)) {
      this.choice.fold(quietId(track, this.data.tracks.length > 1));
      this.layout();
      lane = find();
    }
    if (lane?.folded && depth > 0) {
      this.choice.fold(lane.id);
      this.layout();
      lane = find();
    }
    if (!lane) return;
    if (!lane.folded && this.rows.include(lane, depth)) this.layout();
    lane = find();
    const { body } = this;
    const y = lane.top + depth * lane.row + AXIS_PX;
    if (y < body.scrollTop + AXIS_PX || y > body.scrollTop + body.clientHeight - lane.row) body.scrollTop = Math.max(y - body.clientHeight / 2, 0);
  }
  viewOf(place) {
    const [t0, t1] = [Number(place.t0 ?? NaN) * 1e6, Number(place.t1 ?? NaN) * 1e6];
    const whole = { start: 0, end: this.data.extent };
    if (!Number.isFinite(t0) || !Number.isFinite(t1)) return whole;
    const [start, end] = [Math.max(Math.min(t0, t1), 0), Math.min(Math.max(t0, t1), this.data.extent)];
    return end > start ? clamped({ start, end }, this.data.extent) : whole;
  }
  place() {
    const view = this.target;
    const whole = view.start <= 0 && view.end >= this.data.extent;
    const chosen = this.scene.selected;
    return {
      ...whole ? {} : { t0: (view.start / 1e6).toFixed(6), t1: (view.end / 1e6).toFixed(6) },
      ...chosen ? { slice: `${chosen.track}:${chosen.source}:${chosen.source === "gaps" ? Math.round(chosen.start) : chosen.id}` } : {},
      ...this.findings.rule ? { finding: this.findings.rule } : {},
      ...this.finder.words ? { find: this.finder.words } : {},
      ...this.choice.toString() ? { lanes: this.choice.toString() } : {}
    };
  }
  /** After the browser's Back or Forward: show the place in the address. */
  back() {
    const query = new URLSearchParams(location.search);
    const place = Object.fromEntries(query);
    this.crumbs.pop();
    this.move = null;
    this.scene.view = this.viewOf(place);
    if ((place.lanes ?? "") !== this.choice.toString()) {
      this.choice.read(place.lanes);
      this.layout();
    }
    this.findings.open(place.finding, false);
    this.finder.start(place.find);
    if (!place.slice) this.select(null);
    else if (place.slice !== this.place().slice) void this.drawer.restore(place.slice);
    this.draw();
  }
  /** Compute the position of each lane; with `refit`, rows get the height that fills the window. */
  layout(refit = false) {
    const { tracks, steps, lines } = this.data;
    const at = (row) => placed(tracks, steps, lines, this.choice, this.rows.needed, row);
    if (refit || !this.row) this.row = rowFor(this.body.clientHeight - AXIS_PX - END_PX, (row) => at(row).height);
    const { lanes, height } = at(this.row);
    this.scene.lanes = lanes;
    this.lanesHeight = height + AXIS_PX + END_PX;
    this.fill(true);
  }
  resize() {
    const width = Math.max(this.root.querySelector(".stage").clientWidth, 50);
    const another = width !== this.width;
    this.width = width;
    if (another || !this.scene.lanes.length) this.layout(true);
    else this.fill(false);
  }
  /** Make the canvases as high as the lanes, but at least as high as the visible area. */
  fill(named) {
    const { body } = this;
    const height = Math.max(this.lanesHeight, body.clientHeight);
    if (named || height !== this.height) this.gutter.show(this.scene.lanes, height);
    this.height = height;
    size(this.lanesCanvas, this.width, height);
    size(this.overCanvas, this.width, height);
    this.root.querySelector(".strip").style.paddingRight = `${body.offsetWidth - body.clientWidth - 2}px`;
    size(this.mapCanvas, Math.max(this.mapCanvas.clientWidth, 50), MAP_PX);
    this.mapStale = true;
    this.frame();
  }
  arrived() {
    this.mapStale = true;
    if (this.tiles.failed) this.say(this.tiles.failed);
    this.draw();
    if (this.fitted) this.rested();
    else this.fit();
  }
  rested() {
    clearTimeout(this.rest);
    this.rest = window.setTimeout(() => this.fit(), REST_MS);
  }
  /** Give lanes the rows that the view needs, once it does not move and all tiles have arrived. */
  fit() {
    if (this.ended || this.move || !this.tiles.settled()) return;
    const { lanes, view, selected } = this.scene;
    const anew = !this.fitted || this.jumped || view.start <= 0 && view.end >= this.data.extent;
    this.fitted = true;
    this.jumped = false;
    let changed = this.rows.fit(lanes, this.data.tracks, this.tiles, view, this.width, anew);
    const lane = selected && lanes.find((l) => l.track === selected.track && l.spec?.source === selected.source && l.spec.lane === selected.lane);
    if (lane && !lane.folded) changed = this.rows.include(lane, selected.depth) || changed;
    if (changed) this.layout(anew);
    void this.drawer.glance(this.target);
  }
  frame() {
    this.dirty = false;
    if (this.ended) return;
    const begun = performance.now();
    this.advance(begun);
    const { body } = this;
    this.painter.frame(this.scene, this.width, this.height, body.scrollTop, body.scrollTop + body.clientHeight);
    const over = this.overCanvas.getContext("2d");
    over.clearRect(0, 0, this.width, this.height);
    drawLinks(over, this.scene, this.drawer.links, this.ink, this.width);
    this.map();
    this.crumbs.show(this.scene.view);
    this.tiles.want([
      { view: this.target, level: levelOf((this.target.end - this.target.start) / this.width), sources: this.sources() },
      { view: { start: 0, end: this.data.extent }, level: this.mapLevel, sources: [mapSources(this.data)] }
    ]);
    if (this.tiles.settled()) this.isWhole();
    this.frames.push(performance.now() - begun);
    if (this.frames.length > 600) this.frames.shift();
  }
  advance(now) {
    if (!this.move) return;
    const share2 = Math.min((now - this.move.begun) / MOVE_MS, 1);
    this.scene.view = share2 >= 1 ? this.move.to : between(this.move.from, this.move.to, share2);
    if (share2 >= 1) this.move = null;
    this.draw();
  }
  get mapWidth() {
    return Math.max(this.mapCanvas.clientWidth, 50);
  }
  /** The level of the whole recording in the lanes. The strip is only a little wider, so it needs no tiles of its own. */
  get mapLevel() {
    return levelOf(this.data.extent / this.width);
  }
  map() {
    const width = this.mapWidth;
    if (this.mapStale) {
      size(this.mapPicture, width, MAP_PX);
      drawMap(this.mapPicture.getContext("2d"), this.scene, this.tiles, this.ink, width, this.mapLevel);
      this.mapStale = false;
    }
    const context = this.mapCanvas.getContext("2d");
    context.clearRect(0, 0, width, MAP_PX);
    context.drawImage(this.mapPicture, 0, 0, width, MAP_PX);
    drawWindow(context, this.scene, this.ink, width);
  }
  /** Draw the strip again, because the marks have changed. */
  remap() {
    this.mapStale = true;
    this.draw();
  }
  /** Return the sources that visible lanes need, by track. Hidden lanes request nothing. */
  sources() {
    return this.data.tracks.map((_, t) => [
      ...new Set(this.scene.lanes.filter((lane) => lane.track === t && lane.spec).map((lane) => lane.spec.source))
    ]);
  }
};
function size(canvas, width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  if (!canvas.classList.contains("map")) {
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
}

// src/steps.ts
function stepsOf(sent, offset2 = 0) {
  const times = sent.times.split(" ").map(Number);
  const steps = [];
  let end = offset2;
  for (const [many, text, number, why] of sent.names) {
    for (let i = 0; i < many; i++) {
      const start = end + times[2 * steps.length];
      end = start + times[2 * steps.length + 1];
      const name = `${text}${number === null ? "" : number + i}`;
      steps.push({ start, end, name: why ? `${name} (not counted: ${why})` : name, counted: why === null });
    }
  }
  return steps;
}

// src/main.ts
var mounted = /* @__PURE__ */ new WeakMap();
var PLACES = ["t0", "t1", "slice", "finding", "find", "lanes"];
var KEYS = [
  ["W S", "zoom in and out"],
  ["A D", "earlier and later"],
  ["← →", "previous and next slice of the row"],
  ["↑ ↓", "the row above and below"],
  ["F", "zoom to the selection, else to the place of a finding"],
  ["0", "the whole recording"],
  ["L", "the longest lost time in view, then the next"],
  ["G", "the next change, with its places marked"],
  ["/", "find by name; Enter and Shift Enter lead to the next and previous match, Esc leads back"],
  ["P N", "previous and next match, or place of a finding; so do [ and ]"],
  ["Enter", "to the details"],
  ["Esc", "close the details, then end the search"],
  ["M", "sums of the selected slice, else of the view"],
  ["Drag", "select a time range"],
  ["Shift drag", "move; so does dragging the time axis or the strip"],
  ["Wheel", "zoom at the pointer; over the names of the lanes it scrolls. On a trackpad, two fingers scroll and a pinch zooms"],
  ["Drag a lane's lower edge", "make it higher or lower; T and Shift T do so with the selected lane, else with all; a double click undoes it"]
];
function main_default(component) {
  const root = component.parentElement.querySelector(".timeline");
  const of = JSON.stringify([component.data.dark, component.data.tracks, component.data.kinds, component.data.extent]);
  const turn = component.data.visit?.turn ?? 0;
  const before = mounted.get(root);
  const reportDrawn = ({ whole }) => {
    if (component.data.waits) void whole.then(() => component.setTriggerValue("drawn", true));
  };
  if (before?.of === of) {
    before.timeline.notes(component.data.notes);
    if (turn > before.turn) void before.timeline.visit(component.data.visit.slice);
    before.turn = turn;
    reportDrawn(before.timeline);
    return;
  }
  before?.timeline.end();
  help(root);
  const { steps, tracks, ...data } = component.data;
  const onClock = tracks.map((track) => ({ ...track, steps: track.steps && stepsOf(track.steps, track.offset) }));
  const timeline = new Timeline(root, { ...data, steps: stepsOf(steps), tracks: onClock }, (place, jump) => {
    if (!jump) replace(place);
    component.setStateValue("place", { ...place, jump });
  }, (note) => component.setTriggerValue("note", note));
  mounted.set(root, { timeline, of, turn });
  root.classList.remove("waits");
  reportDrawn(timeline);
  void timeline.whole.then(() => performance.mark("timeline-whole"));
  window.sawtoothTimeline = timeline;
  return () => {
    setTimeout(() => {
      if (mounted.get(root)?.timeline === timeline && !root.isConnected) {
        timeline.end();
        mounted.delete(root);
      }
    });
  };
}
function replace(place) {
  const query = new URLSearchParams(location.search);
  for (const name of PLACES) {
    const value = place[name];
    if (value === void 0) query.delete(name);
    else query.set(name, value);
  }
  history.replaceState(history.state, "", `${location.pathname}?${query}`);
}
function help(root) {
  const dialog = root.querySelector(".help");
  dialog.replaceChildren(...KEYS.map(([keys2, does]) => element("p", {}, element("kbd", {}, keys2), ` ${does}`)));
  dialog.onclick = () => dialog.close();
  root.querySelector(".keys").onclick = () => dialog.showModal();
}
export {
  main_default as default
};

// The staircase of a run: the step now, and after each selected change. The data contains every choice, so a selection needs no request.
// app/page/staircase.py passes the data; app/words/staircase.py makes all of its texts.
const SVG = "http://www.w3.org/2000/svg", NARROW = 640, LABEL_ROOM = 24, MIN_SHADE = 0.8, MIN_SEEN = 1.5, MIN_LOSS = 0.01, PHONE_ROOM = 190;
const kept = new WeakMap(); // by root: the selected and open changes, for the time in which the page is drawn again

function node(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value == null) continue;
    if (name === "class") made.className = value; else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

function drawn(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// Returns a duration with 2 to 3 significant digits and a unit, like app/format.py; with a step, in the unit of the step, like part_ms.
function duration(ms, step) {
  if (ms >= 0.01 && ms < 0.9995 && step >= 0.9995 && step < 999.5) return `${ms.toPrecision(2)}\u00a0ms`;
  const [value, unit] = ms < 0.9995 ? [ms * 1000, "µs"] : ms < 999.5 ? [ms, "ms"] : [ms / 1000, "s"];
  return `${value >= 99.95 ? Math.round(value) : value.toPrecision(3)}\u00a0${unit}`;
}

function ink(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#FFFFFF";
}

// Returns a sentence as nodes: text between backticks is code, and a label before the first colon is bold.
function rich(text) {
  const cause = text.startsWith("Cause: ") ? [node("b", {}, "Cause: ")] : [];
  return [...cause, ...text.slice(cause.length ? 7 : 0).split("`").flatMap((part, i) => (i % 2 ? [node("code", {}, ...part.split(/(?<= )/).map((word) => node("span", {}, word))), part.includes(" ") ? copies(part, "Copy") : null] : [part])).filter((part) => part !== null)];
}

// Returns the headline's pieces as nodes. The step before and after the change, and the factor, stay together on one line if they fit.
function headline(pieces) {
  const made = pieces.map(([kind, piece]) => (kind === "text" ? piece : node("span", { class: kind }, piece))), then = pieces.findIndex(([kind]) => kind === "then");
  if (then < 1) return made;
  const [, before, now] = /^(.*?)((?:≈?\u00a0?\d[^ ]* )?→ )?$/s.exec(pieces[then - 1][1]);
  return [...made.slice(0, then - 1), before, node("span", { class: "numbers" }, (now || "").replaceAll(" ", "\u00a0"), ...made.slice(then))];
}

function copies(text, label) {
  const button = node("button", { type: "button", class: "copy" }, label);
  button.onclick = () => { void navigator.clipboard?.writeText(text); button.textContent = "Copied"; };
  return button;
}

class Staircase {
  constructor(root, data, tell) {
    this.root = root; this.data = data; this.tell = tell;
    this.states = data.states; this.changes = data.changes;
    this.choice = data.choice; this.open = data.open;
    this.pen = document.createElement("canvas").getContext("2d");
    this.font = getComputedStyle(root).fontFamily;
  }

  find(selector) { return this.root.querySelector(selector); }
  colour(kind) { return this.data.dark ? kind.dark : kind.light; }
  state(choice) { return this.states[choice]; }
  on(i) { return Boolean(this.choice >> i & 1); }
  before(i) { return this.choice & ((1 << i) - 1); } // the selected changes before change i
  width(text, size, weight) { this.pen.font = `${weight} ${size}px ${this.font}`; return this.pen.measureText(text).width; }

  build() {
    this.panorama();
    this.root.style.setProperty("--good", this.data.good || "currentColor");
    const now = this.state(0), proofs = (this.data.measured || []).map((of) => this.measured(of));
    this.find(".stairs").hidden = !this.data.bars;
    this.find(".stairs").replaceChildren(...[
      this.halves(), this.row(-1), proofs.length ? this.group("Predicted after each change") : null, ...this.changes.flatMap((_, i) => [...this.others(i), this.row(i)]),
      proofs.length ? this.group("Measured in a later run", "own") : null, ...proofs, this.key(),
    ].filter(Boolean));
    this.scale = Math.max(now.ms, ...(this.data.measured || []).map((measured) => measured.ms));
    this.update();
    if (this.open !== null) this.show(this.open);
    this.find(".stairs").onclick = (event) => { const hit = event.target.closest(".hit[aria-expanded]"); if (hit) this.toggle(Number(hit.dataset.row)); };
    this.find(".stairs").onchange = (event) => { if (event.target.matches("input")) this.tick(Number(event.target.dataset.change)); };
    this.find(".stairs").onkeydown = (event) => this.key_pressed(event);
    this.sized = new ResizeObserver(() => this.update(true));
    this.sized.observe(this.find(".stairs"));
    this.back = () => this.follow();
    window.addEventListener("popstate", this.back);
  }

  end() {
    this.sized.disconnect();
    window.removeEventListener("popstate", this.back);
  }

  halves() {
    const [works, waits] = this.data.busy;
    if (!works) return null;
    const lost = this.data.kinds.map((kind) => kind.lost), parts = this.state(0).parts;
    const of = (wanted) => parts.reduce((sum, [kind, ms]) => sum + (Boolean(lost[kind]) === wanted ? ms : 0), 0);
    const half = (weight, text, time) => node("span", { style: `flex:${weight} 1 0` }, node("i", {}, text, node("b", {}, time)));
    const wait = of(true) > 0 && half(of(true), "waits ", waits);
    if (wait) wait.firstChild.append(node("span", { class: "of" }, this.data.busy[2] || ""));
    return node("div", { class: "grid" }, node("span"), node("div", { class: "halves" }, of(false) > 0 && half(of(false), "the GPU works ", works), wait));
  }

  // The names of parts that are too narrow for a label in the first bar, below all bars.
  key() {
    this.named = node("p", { class: "key" });
    return this.named;
  }

  // A heading of predicted or of measured bars; without measured bars, the rows need none.
  group(text, kind = "") {
    return node("div", { class: `grid group ${kind}` }, node("span"), node("p", {}, text));
  }

  segments() {
    return this.data.kinds.map((kind, i) => {
      const colour = this.colour(kind);
      return node("span", { class: "seg", "data-kind": i, "data-texture": kind.texture, style: `background-color:${colour};color:${ink(colour)}` });
    });
  }

  row(i) {
    const row = i + 1, change = this.changes[i], fixed = !this.data.complete;
    const tick = i < 0 ? node("div", { class: "tick" }, node("span", {}, this.data.now || "now", this.data.rank ? node("small", {}, this.data.rank) : null)) : node("div", { class: "tick" }, node("label", {}, node("span", { "aria-hidden": "true" }, String(change.number)),
      fixed ? null : node("input", { type: "checkbox", "data-change": i, "aria-label": `Include: ${change.name}` })));
    const bar = node("span", { class: "bar", "aria-hidden": "true" }, ...this.segments());
    if (i >= 0) bar.append(...["gone", "reach"].map((part) => node("span", { class: part })));
    const hit = node("button", { class: "hit", type: "button", "aria-expanded": "false", "aria-controls": `open-${row}`, "data-row": row }, node("span", { class: "spoken" }), i >= 0 ? node("span", { class: "lab", "aria-hidden": "true" }) : null, bar);
    return node("div", { class: `grid row${i < 0 ? " now" : ""}`, "data-row": row }, tick, hit, node("div", { class: "val" }), node("div", { class: "open", id: `open-${row}`, hidden: true }));
  }

  // The measured step after a change, next to the predicted one.
  measured(measured) {
    const bar = node("span", { class: "bar", "aria-hidden": "true" }, ...this.segments());
    const hit = node("a", { class: "hit", href: measured.address }, node("span", { class: "spoken" }, `${measured.name}, measured: ${measured.text}. Compare both runs`), node("span", { class: "lab", "aria-hidden": "true" }), bar);
    const row = node("div", { class: "grid row was", "data-measured": measured.name }, node("div", { class: "tick" }), hit, node("div", { class: "val" }, node("b", {}, measured.text), node("em", {}, measured.factor)));
    row.measured = measured;
    return row;
  }

  // The changes without a bar whose numbers are directly before that of change i.
  others(i) {
    const after = i ? this.changes[i - 1].number : 0;
    return (this.data.between || []).filter(([number]) => number > after && number < this.changes[i].number).map(([number, name, gain]) =>
      node("div", { class: "grid other" }, node("div", { class: "tick" }, String(number)), node("p", {}, `${name} `, node("i", {}, `${gain}; not part of this chart`))));
  }

  fill(row, parts) {
    let at = 0;
    const by = new Map(parts.map(([kind, ms, text]) => [kind, [ms, text]]));
    for (const segment of row.querySelectorAll(".seg")) {
      const [ms, text] = by.get(Number(segment.dataset.kind)) || [0, ""], share = ms / this.scale * 100;
      segment.style.left = `${at}%`; segment.style.width = `${share}%`; at += share;
      segment.title = text ? `${this.data.kinds[segment.dataset.kind].label}: ${text}` : "";
    }
  }

  place(element, low, high) { element.style.left = `${low}%`; element.style.width = `${Math.max(high - low, 0)}%`; }
  at(ms) { return Math.min(ms / this.scale * 100, 100.4); }

  update(quiet = false) {
    const all = this.state(this.choice), now = this.state(0), first = this.find(".row.now"), room = first.querySelector(".bar").offsetWidth || 800;
    const phone = this.root.offsetWidth <= NARROW, last = 31 - Math.clz32(this.choice);
    this.fill(first, now.parts);
    this.named.replaceChildren();
    for (const [kind, ms, time] of now.parts) {
      const segment = first.querySelector(`[data-kind="${kind}"]`), name = this.data.kinds[kind].label, wide = ms / this.scale * room;
      const fits = (text) => wide > this.width(text, 14.5, 600) + LABEL_ROOM;
      segment.replaceChildren(...(fits(`${name} ${time}`) ? [node("em", {}, `${name} `, node("b", {}, time))] : fits(time) ? [node("em", {}, node("b", {}, time))] : []));
      if (!fits(`${name} ${time}`) && wide >= MIN_SEEN) this.named.append(node("span", {}, this.swatch(kind), `${name} ${time}`));
    }
    const later = new Set(this.changes.flatMap((_, i) => this.state(this.choice & ((2 << i) - 1)).parts.filter(([, ms]) => ms / this.scale * room >= MIN_SEEN).map(([kind]) => kind)));
    for (const [kind] of now.parts) later.delete(kind);
    for (const kind of later) this.named.append(node("span", {}, this.swatch(kind), this.data.kinds[kind].label));
    if (this.changes.length && this.data.states[this.data.first].span) this.named.append(node("span", {}, node("i", { class: "reach sw" }), this.data.interval));
    first.querySelector(".val").replaceChildren(node("b", {}, now.text));
    first.querySelector(".spoken").textContent = `Now a step takes ${now.text}. Where it goes`;
    this.changes.forEach((change, i) => this.update_row(change, i, all, { room, phone, last }));
    for (const row of this.root.querySelectorAll(".row.was")) {
      this.fill(row, row.measured.parts);
      const { after, name, ms } = row.measured, numbers = this.changes.slice(0, after).map((change) => change.number);
      const predicted = after && this.state((1 << after) - 1), said = predicted ? `with change${after > 1 ? "s" : ""} ${numbers.join(", ").replace(/, (\d+)$/, " and $1")}, predicted ${predicted.text}` : "";
      this.label(row, [ms], node("b", {}, name), [said], { room, phone }, "compare");
    }
    this.place_caption();
    this.write(all, quiet);
  }

  // Moves the label of the marked step to the right of the curve's name, if both would overlap.
  place_caption() {
    const one = this.find(".plot .one"), name = this.find(".plot .cap");
    if (!one) return;
    const width = one.parentNode.offsetWidth, half = one.offsetWidth / 2, middle = parseFloat(one.dataset.middle) / 100 * width;
    one.style.left = `${Math.min(Math.max(middle, name.offsetWidth + half), Math.max(width - half, 0))}px`;
  }

  update_row(change, i, all, { room, phone, last }) {
    const now = this.state(0).ms, row = this.find(`.row[data-row="${i + 1}"]`), before = this.state(this.before(i)), state = this.state(this.before(i) | (this.on(i) ? 1 << i : 0)), off = !this.on(i);
    row.classList.toggle("off", off); row.classList.toggle("last", i === last);
    const box = row.querySelector("input");
    if (box) box.checked = !off;
    row.querySelector(".tick label > span").textContent = `${!off && this.before(i) ? "+" : ""}${change.number}`; // a bar includes the changes above it
    this.fill(row, state.parts);
    const of = (name) => row.querySelector(`.${name}`);
    this.place(of("gone"), this.at(state.ms), this.at(before.ms));
    this.place(of("reach"), this.at(state.low), this.at(state.high));
    of("reach").hidden = state.limit;
    const gain = off ? all.ms - (this.state(this.choice | 1 << i) || all).ms : before.ms - state.ms, some = gain > 0.0005 * this.scale;
    const cost = [change.cost, change.unsure ? "low confidence" : ""].filter(Boolean).join(", ");
    const texts = off ? [`not included: ${some ? `would save ≈\u00a0${duration(gain, now)}${this.choice ? " more" : ""}` : "no further gain"}${change.unsure ? ", low confidence" : ""}`] : some ? [...this.removed(before, state, gain), ""].map((text) => [`${state.limit ? `saves at most ${duration(gain, now)}` : `saves ≈\u00a0${this.shorter(before, state)}`}${text}`, cost].filter(Boolean).join(" · ")) : ["makes the next change possible"];
    this.label(row, off ? [before.ms] : [state.ms, before.ms], node("b", {}, change.name), texts, { room, phone }, change.diffs.length ? "show the code" : "show why");
    row.querySelector(".val").replaceChildren(node("b", {}, state.text), node("em", {}, state.factor), node("span", {}, state.span));
    of("spoken").textContent = `${change.name}: ${off ? "not included" : `${before.text} to ${state.text}${state.span ? `, between ${state.span}` : ""}`}. Show the change and its evidence`;
  }

  // Returns the difference of the shown times, so that the numbers add up, like app/format.py.
  shorter(before, after) {
    const [[from, unit], [to, other]] = [before, after].map((state) => state.text.replace(/^[≈≥]\u00a0/, "").replaceAll(",", "").split("\u00a0"));
    const less = from - to, digits = (from.split(".")[1] || "").length;
    return unit === other && less >= 10 ** -digits / 2 ? `${less.toFixed(digits)}\u00a0${unit}` : duration(before.ms - after.ms, this.state(0).ms);
  }

  // Returns what a change shortens: its parts if there are several, such as ": data loader 613 ms, copies 6.45 ms", and whether they are waits or work.
  removed(before, state, gain) {
    const left = new Map(state.parts.map(([kind, ms]) => [kind, ms]));
    const losses = before.parts.map(([kind, ms]) => [kind, ms - (left.get(kind) || 0)]).filter(([, ms]) => ms >= MIN_LOSS * gain).sort((a, b) => b[1] - a[1]);
    const lost = losses.map(([kind]) => Boolean(this.data.kinds[kind].lost)), alike = this.data.busy.length && losses.length && lost.every((one) => one === lost[0]);
    return [losses.length > 1 ? `: ${losses.slice(0, 2).map(([kind, ms]) => `${this.data.kinds[kind].label} ${duration(ms, this.state(0).ms)}`).join(", ")}` : null, alike ? (lost[0] ? " of waits" : " of work") : null].filter(Boolean);
  }

  // Writes the label of a bar that ends at `ends[0]`, with the first of `texts` that fits between two ends: inside the removed part, else behind it.
  // If none fits, the label is above the bar, so that it covers no end.
  label(row, ends, name, texts, { room, phone }, more = "") {
    const label = row.querySelector(".lab"), edges = [...ends.map((ms) => this.at(ms) / 100 * room + 3), room + 3];
    const wide = (text) => this.width(`${name.textContent}${text}${more}`, 15.5, 600) + LABEL_ROOM + (more ? 8 : 0);
    const fits = phone ? [] : texts.flatMap((text) => edges.slice(1).flatMap((end, i) => (edges[i] + wide(text) <= end - 3 ? [[text, edges[i]]] : [])));
    const above = (one) => (phone ? this.width(one, 15.5, 400) <= room - PHONE_ROOM : wide(one) <= room), [text, left] = fits[0] ?? [texts.find(above) ?? texts.at(-1), null];
    label.replaceChildren(name, ...(text ? [node("i", {}, text)] : []), ...(more ? [node("u", {}, more)] : []));
    label.style.left = left === null ? "" : `${left}px`;
    row.classList.toggle("above", left === null && !phone);
  }

  swatch(kind) {
    const of = this.data.kinds[kind];
    return node("i", { class: "seg sw", "data-texture": of.texture, style: `background-color:${this.colour(of)}` });
  }

  write(state, quiet) {
    const title = this.find("h1"), text = state.title.map(([, piece]) => piece).join("") + state.whole;
    if (this.written !== text) {
      this.written = text;
      title.replaceChildren(...headline(state.title));
      this.find(".whole").replaceChildren(...rich(state.whole));
      this.find(".under").replaceChildren(...rich(state.under));
      if (!quiet && this.spoken) this.find(".said").textContent = text;
      this.spoken = true;
    }
    document.title = state.tab;
    this.find(".facts").replaceChildren(...state.facts.map(([label, value]) => node("div", {}, node("dt", {}, label), node("dd", {}, value))));
  }

  tick(i) {
    const begun = performance.now();
    this.choice ^= 1 << i;
    this.update();
    this.keep();
    this.root.dataset.redrawMs = (performance.now() - begun).toFixed(1); // for measurements
  }

  toggle(row) {
    this.show(this.open === row ? null : row);
    this.keep();
  }

  show(row) {
    for (const panel of this.root.querySelectorAll(".open")) {
      const mine = row !== null && panel.id === `open-${row}`;
      panel.hidden = !mine;
      panel.replaceChildren(...(mine ? (row ? this.details(this.changes[row - 1]) : this.breakdown()) : []));
      panel.parentNode.querySelector(".hit").setAttribute("aria-expanded", String(mine));
    }
    this.open = row;
  }

  key_pressed(event) {
    const hits = [...this.root.querySelectorAll(".hit")], at = hits.indexOf(this.root.getRootNode().activeElement);
    if (at < 0) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const next = hits[at + (event.key === "ArrowDown" ? 1 : -1)];
      if (next) { event.preventDefault(); next.focus(); }
    } else if (event.key === "Escape" && this.open !== null) this.toggle(this.open);
    else if (event.key === "x" && this.data.complete && at > 0 && at <= this.changes.length) this.tick(at - 1);
  }

  breakdown() {
    const now = this.state(0), rows = now.parts.map(([kind, ms, time]) => node("tr", {}, node("td", {}, this.swatch(kind), this.data.kinds[kind].label), node("td", { class: "n" }, time), node("td", { class: "n" }, `${(100 * ms / now.ms).toFixed(1)}\u00a0%`)));
    return [node("h2", {}, `Where the ${now.text} go`), node("table", {}, node("tbody", {}, ...rows)), node("div", {}, ...this.data.notes.map((note) => node("p", { class: "quiet" }, note)))];
  }

  details(change) {
    const [heads, rows] = change.evidence, number = (cell) => /^(<\u00a0)?[−-]?[\d.,]+(\u00a0\S+)?$/.test(cell);
    const of = heads.map((_, i) => (rows.every((cells) => !cells[i] || number(cells[i])) ? "n" : null));
    const several = new Set(change.diffs.map(([framework]) => framework)).size > 1;
    const diffs = change.diffs.flatMap(([framework, diff]) => [several ? node("p", { class: "quiet" }, `In ${framework}`) : null, this.diff(diff)]);
    const acts = node("div", { class: "acts" }, change.diffs.length ? copies(change.diffs[0][1], "Copy the change") : null, change.timeline ? node("a", { href: change.timeline, target: "_self" }, "Show on the timeline") : null);
    return [
      node("h2", {}, change.title),
      node("div", {}, node("p", {}, change.fix), ...diffs, change.where ? node("p", { class: "quiet" }, change.where) : null),
      node("div", {}, node("p", {}, `Alone: ${change.gain}.`), rows.length ? node("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "The evidence" }, node("table", { class: of.every(Boolean) ? "numbers" : "named" }, node("thead", {}, node("tr", {}, ...heads.map((head, i) => node("th", { scope: "col", class: of[i] }, head)))), node("tbody", {}, ...rows.map((cells) => node("tr", {}, ...cells.map((cell, i) => node("td", { class: of[i], title: of[i] ? null : cell }, cell))))))) : null,
        ...change.notes.map((note) => node("p", { class: "quiet" }, note)), acts),
    ];
  }

  diff(text) {
    return node("div", { class: "diff", role: "group", tabindex: 0, "aria-label": "The change as code" }, ...text.split("\n").map((line) => node("div", { class: line[0] === "-" ? "m" : line[0] === "+" ? "p" : null }, line)));
  }

  panorama() {
    const place = this.find(".panorama"), of = this.data.panorama;
    place.hidden = !of;
    place.classList.toggle("alone", Boolean(of) && !of.step); // its caption has its own line
    if (!of) return;
    const x = (share) => 1000 * share, y = (value) => 100 - Math.min(value, 100), [a, b] = of.step || [0, 0], colour = this.data.dark ? of.dark : of.light;
    const traced = (spans) => {
      let line = "", area = "", up = false, end = 0;
      for (const [from, to, value] of spans) {
        if (value === null) { if (up) area += `L${x(end)} 100Z`; up = false; continue; }
        line += `${up ? "L" : "M"}${x(from)} ${y(value)}L${x(to)} ${y(value)}`;
        area += `${up ? "L" : `M${x(from)} 100L`}${x(from)} ${y(value)}L${x(to)} ${y(value)}`;
        up = true; end = to;
      }
      return [line, up ? `${area}L${x(end)} 100Z` : area];
    };
    const [line, area] = traced(of.spans), [peers] = traced(of.peers || []), [top, middle_of, bottom] = of.axis || ["100\u00a0%", "50", "0"];
    const svg = drawn("svg", { viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img", "aria-label": of.alt });
    const stroke = { fill: "none", "vector-effect": "non-scaling-stroke" };
    svg.append(drawn("path", { ...stroke, d: "M0 0H1000M0 50H1000", stroke: "currentColor", opacity: 0.2, "stroke-dasharray": "2 4" }), drawn("path", { ...stroke, d: "M0 100H1000", stroke: "currentColor", opacity: 0.5 }),
      drawn("path", { d: area, fill: colour, opacity: 0.2 }), ...(of.slow || []).map(([from, to]) => drawn("rect", { x: x(from), y: 0, width: x(to) - x(from), height: 100, fill: of.alarm, opacity: 0.16 })), ...(peers ? [drawn("path", { ...stroke, d: peers, stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": "6 4" })] : []), drawn("path", { ...stroke, d: line, stroke: colour, "stroke-width": 1.6 }));
    const wedge = drawn("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" }), accent = "var(--accent)";
    if (of.step) {
      svg.append(drawn("rect", { x: x(a), y: 0, width: Math.max(x(b) - x(a), MIN_SHADE), height: 100, fill: accent, opacity: 0.32 }), drawn("path", { ...stroke, d: `M${x(a)} 0V100M${x(b)} 0V100`, stroke: accent, "stroke-width": 1.2 }));
      wedge.append(drawn("polygon", { points: `${100 * a},0 ${100 * b},0 100,100 0,100`, fill: accent, opacity: 0.1 }), drawn("path", { ...stroke, d: `M${100 * a} 0L0 100M${100 * b} 0L100 100`, stroke: accent, opacity: 0.45 }));
    }
    const middle = Math.min(Math.max(50 * (a + b), 8), 92);
    place.replaceChildren(node("div", { class: "y", "aria-hidden": "true" }, node("span", { style: "top:0" }, top), node("span", { style: "top:50%" }, middle_of), node("span", { style: "top:100%" }, bottom)),
      node("div", { class: "plot" }, node("span", { class: "cap" }, node("b", { style: `color:${colour}` }, of.name), node("span", { class: "long" }, " over the whole recording"), node("span", { class: of.step ? "length" : null }, `, ${of.length}${of.steady || ""}`)), of.step && node("span", { class: "one", "data-middle": middle, style: `left:${middle}%` }, of.label), of.holes ? node("span", { class: "cap hole" }, "gaps: not sampled") : null, of.fault ? node("span", { class: "fault", style: `left:${100 * of.slow[0][0]}%;color:${of.alarm}` }, of.fault) : null,
        of.reference ? node("span", { class: "cap hole" }, node("i", {}), of.reference) : null, ...(of.times || []).map((time, i) => node("span", { class: "time", style: ["left:0", "left:50%;transform:translateX(-50%)", "right:0"][i] }, time)), svg),
      ...(of.step ? [node("div", { class: "side" }), node("span", { class: "side" }), node("div", { class: "wedge" }, wedge)] : []));
  }

  // Each change of the view is one entry of the browser's history. The page reads the same names from the address.
  keep() {
    this.remember();
    const query = new URLSearchParams(location.search), rules = this.changes.filter((_, i) => this.on(i)).map((change) => change.rule);
    if (this.choice === this.data.first) query.delete("fixes"); else query.set("fixes", rules.join(",") || "none");
    if (this.open === null) query.delete("open"); else query.set("open", String(this.open));
    history.pushState(history.state, "", `${location.pathname}?${query.toString().replaceAll("%2C", ",")}`);
  }

  remember() { kept.set(this.root, { of: this.data.of, choice: this.choice, open: this.open }); }

  // After Back or Forward, shows the state in the address.
  follow() {
    const query = new URLSearchParams(location.search);
    if (!this.root.isConnected || !location.pathname.endsWith("/verdict") || query.has("view") || (query.get("run") ?? this.data.of) !== this.data.of) return;
    const rules = query.get("fixes"), bar = query.get("open");
    this.choice = rules === null ? this.data.first : this.changes.reduce((choice, change, i) => choice | (rules.split(",").includes(change.rule) ? 1 << i : 0), 0);
    this.update();
    this.show(bar === null ? null : Number(bar));
    this.remember();
  }
}

const drawings = new WeakMap();

export default function (component) {
  const root = component.parentElement.querySelector(".verdict"), data = component.data, before = kept.get(root);
  drawings.get(root)?.end();
  const stairs = new Staircase(root, before?.of === data.of ? { ...data, choice: before.choice, open: before.open } : data);
  drawings.set(root, stairs);
  stairs.build();
  root.getRootNode().host?.setAttribute("data-drawn", ""); // app/templates/first_paint.css shows the page from now on
  document.fonts?.ready.then(() => root.isConnected && stairs.update(true)); // Labels are measured in the font of the page.
  return () => stairs.end();
}

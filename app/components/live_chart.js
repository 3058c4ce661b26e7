// Draws the running GPU: tiles with a number and a line each, and one panel per unit. Each second they are drawn again in the same elements.
const LEFT = 40, TICK = 11;

function fit(canvas) {
  const box = canvas.getBoundingClientRect(), scale = window.devicePixelRatio || 1;
  const [width, height] = [Math.round(box.width * scale), Math.round(box.height * scale)];
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, box.width, box.height);
  return [pen, box.width, box.height];
}

// A sample is the value of the time before it, so the line first goes up or down and then right. Missing samples (null) leave a gap.
function path(pen, points, x, y) {
  pen.beginPath();
  for (let i = 0; i < points.length; i += 2) {
    if (points[i + 1] === null) continue;
    if (i && points[i - 1] !== null) pen.lineTo(x(points[i - 2]), y(points[i + 1])); else pen.moveTo(x(points[i]), y(points[i + 1]));
    pen.lineTo(x(points[i]), y(points[i + 1]));
  }
  pen.stroke();
}

function highestValue(lines) {
  let top = 0;
  for (const line of lines) for (let i = 1; i < line.points.length; i += 2) top = Math.max(top, line.points[i]);
  return top;
}

function roundedUp(top) {
  const unit = 10 ** Math.floor(Math.log10(top || 1));
  return [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((n) => n * unit).find((n) => n >= top * 1.02) || top;
}

// Returns as many round times before the newest sample as fit, in seconds, minutes, hours or days.
function times(window_s, width) {
  const most = Math.max(2, Math.min(5, Math.floor(width / 90)));
  const step = [1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800].find((s) => window_s / s <= most) || window_s / 2;
  const [unit, name] = step >= 86400 ? [86400, "d"] : step >= 3600 ? [3600, "h"] : step >= 60 ? [60, "min"] : [1, "s"];
  const ticks = [];
  for (let t = step; t <= window_s * 1.001; t += step) ticks.push([-t, `−${+(t / unit).toPrecision(3)} ${name}`]);
  return ticks;
}

function drawPanel(canvas, panel, data, ink) {
  const [pen, width, height] = fit(canvas), bottom = height - 20, top = panel.top || roundedUp(highestValue(panel.lines));
  const x = (t) => LEFT + (width - LEFT) * (1 + t / data.window), y = (v) => bottom - (bottom - 8) * v / top;
  pen.font = `${TICK}px ${getComputedStyle(canvas).fontFamily}`;
  pen.lineWidth = 1;
  for (const share of [0, 0.5, 1]) {
    const value = (panel.top ? Math.round(panel.top / 10) * 10 : top) * share;
    pen.globalAlpha = 0.18; pen.strokeStyle = ink; pen.beginPath(); pen.moveTo(LEFT, y(value)); pen.lineTo(width, y(value)); pen.stroke();
    pen.globalAlpha = 0.85; pen.fillStyle = ink; pen.textAlign = "right"; pen.fillText(+value.toPrecision(3), LEFT - 6, y(value) + 4);
  }
  if (panel.period) {
    pen.globalAlpha = 0.14; pen.fillStyle = panel.lines[0].colour;
    pen.fillRect(x(-panel.period), 8, x(0) - x(-panel.period), bottom - 8);
  }
  pen.globalAlpha = 0.85; pen.fillStyle = ink;
  pen.textAlign = "right"; pen.fillText("newest sample", width, height - 4);
  const free = width - pen.measureText("newest sample").width - 12;
  for (const [t, text] of times(data.window, width - LEFT)) {
    const half = pen.measureText(text).width / 2, at = Math.max(x(t), LEFT + half);
    if (at + half <= free) { pen.textAlign = "center"; pen.fillText(text, at, height - 4); }
  }
  pen.globalAlpha = 1; pen.save(); pen.beginPath(); pen.rect(LEFT, 0, width, height); pen.clip();
  // the text describes the first line, so it is drawn last, above the others
  for (const line of [...panel.lines].reverse()) { pen.strokeStyle = line.colour; pen.lineWidth = line.faint ? 1 : 1.6; pen.globalAlpha = line.faint ? 0.6 : 1; path(pen, line.points, x, y); }
  pen.restore(); pen.globalAlpha = 1;
}

function drawSpark(canvas, tile, window_s) {
  const [pen, width, height] = fit(canvas), top = tile.top || highestValue([tile]) || 1;
  pen.strokeStyle = tile.colour; pen.lineWidth = 1.3;
  path(pen, tile.points, (t) => width * (1 + t / window_s), (v) => height - 2 - (height - 4) * Math.min(v / top, 1));
}

const node = (name, className) => { const made = document.createElement(name); if (className) made.className = className; return made; };
const write = (element, text) => { if (element.textContent !== text) element.textContent = text; };

// Adds or removes children until each entry has one, and returns them in pairs.
function children(parent, entries, make) {
  while (parent.children.length > entries.length) parent.lastElementChild.remove();
  while (parent.children.length < entries.length) parent.append(make());
  return entries.map((entry, i) => [parent.children[i], entry]);
}

function tiles(parent, entries, window_s, pick) {
  const make = () => { const tile = node(pick ? "button" : "div", "tile"); tile.append(node("span"), node("b"), node("span"), node("canvas")); return tile; };
  for (const [tile, entry] of children(parent, entries, make)) {
    const [label, value, note, canvas] = tile.children;
    write(label, entry.label); write(value, entry.value); write(note, entry.note || "");
    note.hidden = !entry.note; note.title = entry.note || "";
    if (pick) { tile.type = "button"; tile.setAttribute("aria-pressed", String(Boolean(entry.chosen))); tile.onclick = () => pick(entry.device); }
    drawSpark(canvas, entry, window_s);
  }
}

function panels(parent, data, ink) {
  const make = () => { const panel = node("figure", "panel"); panel.append(node("figcaption", "head"), node("canvas")); return panel; };
  children(parent, data.panels, make).forEach(([panel, entry], i) => {
    const [head, canvas] = panel.children;
    panel.className = i ? "panel" : "panel first";
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${entry.heading}: ${entry.lines.map((line) => `${line.name} ${line.now}`).join(", ")}`);
    const band = entry.period ? [{ name: "one period", colour: entry.lines[0].colour, band: true }] : [];
    // The heading of a panel with one line names this line.
    const named = entry.lines.length > 1 ? [{ heading: entry.heading }, ...entry.lines] : [{ ...entry.lines[0], name: entry.heading }];
    const words = [...named, ...band];
    for (const [item, line] of children(head, words, () => { const made = node("span"); made.append(node("i"), node("strong")); return made; })) {
      const [swatch, name] = item.children;
      swatch.hidden = Boolean(line.heading); swatch.style.background = line.colour || "";
      swatch.className = line.band ? "band" : line.faint ? "faint" : ""; swatch.style.display = line.heading ? "none" : "";
      write(name, line.heading || line.name);
    }
    drawPanel(canvas, entry, data, ink);
  });
}

export default function (component) {
  const { parentElement, data, setTriggerValue } = component;
  const [gpus, now, lanes] = parentElement.querySelector(".live").children;
  const draw = () => {
    const ink = getComputedStyle(parentElement.querySelector(".live")).color;
    tiles(gpus, data.gpus, data.recent, (device) => setTriggerValue("picked", device));
    tiles(now, data.now, data.recent);
    panels(lanes, data, ink);
  };
  draw();
  const watch = new ResizeObserver(draw);
  watch.observe(lanes);
  return () => watch.disconnect();
}

// Draws the answer as a slide of 1920 × 1080 pixels, always on white, and saves it.
const W = 1920, H = 1080, MARGIN = 96, INK = "#1F2328", QUIET = "#5F6670", ACCENT = "#0072B2";
const FONT = '"Source Sans", "Source Sans Pro", system-ui, sans-serif';

function font(pen, size, weight = 400) { pen.font = `${weight} ${size}px ${FONT}`; }

// Writes text in at most `most` lines of at most `width`, and returns the y below. A longer text ends with "…".
function paragraph(pen, text, x, y, width, line, most) {
  const lines = [""];
  for (const word of String(text).split(" ")) {
    const longer = lines[lines.length - 1] ? `${lines[lines.length - 1]} ${word}` : word;
    if (pen.measureText(longer).width <= width || !lines[lines.length - 1]) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  if (lines.length > most) { lines.length = most; lines[most - 1] = `${lines[most - 1]} …`; }
  for (const one of lines) { pen.fillText(one, x, y); y += line; }
  return y;
}

function hatch(pen, x, y, width, height) {
  pen.save(); pen.beginPath(); pen.rect(x, y, width, height); pen.clip();
  pen.strokeStyle = "rgba(255,255,255,0.45)"; pen.lineWidth = 3; pen.beginPath();
  for (let at = x - height; at < x + width; at += 13) { pen.moveTo(at, y + height); pen.lineTo(at + height, y); }
  pen.stroke(); pen.restore();
}

function label(pen, text, x, y, width, height) {
  font(pen, 26, 600);
  const wide = pen.measureText(text).width + 24;
  if (wide > width - 8) return;
  pen.fillStyle = "#FFFFFF"; pen.fillRect(x + (width - wide) / 2, y + height / 2 - 21, wide, 42);
  pen.fillStyle = INK; pen.fillText(text, x + (width - wide) / 2 + 12, y + height / 2 + 9);
}

function bars(pen, list, y) {
  const left = MARGIN + 110, whole = W - left - MARGIN - 200, height = 104;
  for (const bar of list) {
    font(pen, 28); pen.fillStyle = INK; pen.fillText(bar.name, MARGIN, y + height / 2 + 9);
    const width = whole * parseFloat(bar.width) / 100, total = bar.parts.reduce((sum, part) => sum + part.weight, 0) || 1;
    let x = left;
    const named = [];
    for (const part of bar.parts) {
      const wide = width * part.weight / total;
      pen.fillStyle = part.colour; pen.fillRect(x, y, wide, height);
      if (part.texture) hatch(pen, x, y, wide, height);
      if (part.label) named.push([part.label, x, wide]);
      x += wide;
    }
    for (const [text, at, wide] of named) label(pen, text, at, y, wide, height);
    const end = left + width + 18, middle = y + height / 2 + 10;
    font(pen, 30, 600); pen.fillStyle = INK; pen.fillText(bar.time, end, bar.ratio ? middle - 20 : middle);
    if (bar.ratio) { font(pen, 28, 700); pen.fillStyle = ACCENT; pen.fillText(bar.ratio, end, middle + 20); }
    y += height + 28;
  }
  return y;
}

// Draws one line under the bars, with the names of the parts that are too narrow for them.
function legend(pen, parts, y) {
  let x = MARGIN + 110;
  font(pen, 25);
  for (const part of parts) {
    const wide = pen.measureText(part.hint).width + 62;
    if (x + wide > W - MARGIN) break;
    pen.fillStyle = part.colour; pen.fillRect(x, y - 20, 22, 22);
    if (part.texture) hatch(pen, x, y - 20, 22, 22);
    pen.fillStyle = QUIET; pen.fillText(part.hint, x + 32, y);
    x += wide;
  }
}

function draw(slide) {
  const canvas = document.createElement("canvas");
  canvas.width = W; canvas.height = H;
  const pen = canvas.getContext("2d");
  pen.fillStyle = "#FFFFFF"; pen.fillRect(0, 0, W, H);
  pen.fillStyle = INK; font(pen, 62, 700);
  let y = paragraph(pen, slide.title, MARGIN, 160, W - 2 * MARGIN, 76, 2);
  font(pen, 34); pen.fillStyle = QUIET;
  y = paragraph(pen, slide.under, MARGIN, y, W - 2 * MARGIN, 46, 2) + (slide.before ? 76 : 0);
  let x = MARGIN;
  for (const [text, weight, colour] of [[slide.before, 400, INK], [slide.after && "→", 400, INK], [slide.after, 700, INK], [slide.times, 700, ACCENT]]) {
    if (!text) continue;
    font(pen, 76, weight); pen.fillStyle = colour; pen.fillText(text, x, y); x += pen.measureText(text).width + 28;
  }
  for (const [name, value] of slide.facts) {
    font(pen, 36, 700); pen.fillStyle = INK; pen.fillText(value, x + 24, y - 26);
    const wide = pen.measureText(value).width;
    font(pen, 25); pen.fillStyle = QUIET; pen.fillText(name, x + 24, y + 6);
    x += Math.max(wide, pen.measureText(name).width) + 48;
  }
  y = bars(pen, slide.bars, y + 54) + 12;
  legend(pen, slide.small, y);
  y += slide.small.length ? 68 : 28;
  for (const line of slide.lines) {
    if (y > H - 130) break;
    font(pen, 34); pen.fillStyle = INK;
    y = paragraph(pen, line, MARGIN, y, W - 2 * MARGIN, 46, 1) + 8;
  }
  font(pen, 25); pen.fillStyle = QUIET; pen.fillText(slide.foot, MARGIN, H - 56);
  return canvas;
}

export default function (component) {
  const { parentElement, data } = component;
  const state = parentElement.querySelector(".state");
  parentElement.querySelector("button").onclick = async () => {
    const blob = await new Promise((done) => draw(data).toBlob(done, "image/png"));
    if (!blob) { state.textContent = "This browser could not save the picture."; return; }
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `${data.file}.png`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  };
}

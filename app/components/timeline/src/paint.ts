// Colours, textures and names for drawing on a canvas.

import type { Kind, PageData } from "./types";

export interface Ink {
  text: string;
  muted: string;
  page: string;
  line: string;
  accent: string;
  font: string;
}

/** Return the page's colours and font, read from the timeline's element. */
export function inkOf(element: Element, { dark, kinds }: PageData): Ink {
  const style = getComputedStyle(element);
  const value = (name: string, other: string) => style.getPropertyValue(name).trim() || other;
  return {
    text: value("--st-text-color", dark ? "#fafafa" : "#1f2430"),
    page: value("--st-background-color", dark ? "#0e1117" : "#ffffff"),
    muted: kinds.page.muted[dark ? 2 : 1],
    line: dark ? "rgba(255,255,255,0.12)" : "rgba(0,0,0,0.10)",
    accent: kinds.page.accent[dark ? 2 : 1],
    font: value("--st-font", "sans-serif"),
  };
}

export function kindOf(data: PageData, source: string, kind: string): Kind {
  return data.kinds[source]?.[kind] ?? data.kinds.page.unknown;
}

const textures = new Map<string, CanvasPattern | null>();

/** Return the texture of a class on wide pieces, so that classes differ not only in hue. */
export function texture(context: CanvasRenderingContext2D, mark: string, dark: boolean): CanvasPattern | null {
  const key = `${mark}${dark}`;
  if (!textures.has(key)) textures.set(key, drawnTexture(context, mark, dark));
  return textures.get(key)!;
}

const STROKES: Record<string, [number, number, number, number][]> = {
  "/": [[0, 8, 8, 0], [-2, 2, 2, -2], [6, 10, 10, 6]],
  "\\": [[0, 0, 8, 8], [6, -2, 10, 2], [-2, 6, 2, 10]],
  x: [[0, 0, 8, 8], [0, 8, 8, 0]],
  "-": [[0, 4, 8, 4]],
  "|": [[4, 0, 4, 8]],
  "+": [[0, 4, 8, 4], [4, 0, 4, 8]],
  ".": [[3, 4, 5, 4]],
};

function drawnTexture(context: CanvasRenderingContext2D, mark: string, dark: boolean): CanvasPattern | null {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 8;
  const brush = canvas.getContext("2d");
  if (!brush || !STROKES[mark]) return null;
  brush.strokeStyle = dark ? "rgba(0,0,0,0.38)" : "rgba(255,255,255,0.45)"; // as in app/templates/textures.css
  brush.lineWidth = 1.5;
  for (const [x0, y0, x1, y1] of STROKES[mark]) {
    brush.beginPath();
    brush.moveTo(x0, y0);
    brush.lineTo(x1, y1);
    brush.stroke();
  }
  return context.createPattern(canvas, "repeat");
}

const MIDDLE_LUMINANCE = 0.179; // black and white have equal contrast (4.58:1) at this luminance

/** Return black or white, whichever has more contrast on a colour such as #0072B2. */
export function readable(colour: string): string {
  const [r, g, b] = [1, 3, 5].map((at) => {
    const part = parseInt(colour.slice(at, at + 2), 16) / 255;
    return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > MIDDLE_LUMINANCE ? "#000000" : "#ffffff";
}

const fitted = new Map<string, string>();
const MAX_FITTED = 20000;
const LETTERS_LEAST = 8; // fewer letters, such as "enum…", are useless

/**
 * Return a name that fits into `room` pixels with about `letter` pixels per letter: the name, else its `brief` form without its
 * namespace, else its first word, such as "enumerate" of "enumerate(DataLoader)#…", else its beginning. The result is empty if
 * only a few letters would be left.
 */
export function fit(name: string, room: number, letter: number, brief: (name: string) => string = (whole) => whole): string {
  const most = Math.floor(room / letter);
  if (name.length <= most) return name;
  name = brief(name).replace(/^(\w+::)+/, "");
  if (name.length <= most) return name;
  const word = [name.split("#")[0], name.split(/[(<#]/)[0]].find((one) => one.length >= LETTERS_LEAST && one.length <= most);
  if (word || most < LETTERS_LEAST) return word ?? "";
  const key = `${most} ${name}`;
  let text = fitted.get(key);
  if (text === undefined) {
    if (fitted.size > MAX_FITTED) fitted.clear();
    fitted.set(key, (text = `${name.slice(0, most - 1)}…`));
  }
  return text;
}

// Formats numbers.

const NO_BREAK = "\u00a0";

/** Return a duration with three significant digits: 41.2 ms, 3.21 µs. */
export function duration(ns: number): string {
  const [unit, size] = unitOf(Math.abs(ns));
  return `${figures(ns / size)}${NO_BREAK}${unit}`;
}

/** Return durations in the unit and with the decimals of the longest, so that a column aligns: 4.14 ms, 0.47 ms. */
export function column(durations: number[]): string[] {
  const longest = Math.max(0, ...durations.map(Math.abs));
  const [unit, size] = unitOf(longest);
  const decimals = unit === "ns" ? 0 : Math.max(0, 2 - Math.floor(Math.log10(longest / size)));
  const least = 10 ** -decimals;
  return durations.map((ns) => `${ns > 0 && ns / size < least / 2 ? `<${NO_BREAK}${least.toFixed(decimals)}` : (ns / size).toFixed(decimals)}${NO_BREAK}${unit}`);
}

/** Return a duration with all nanoseconds: 41.203 117 ms. */
export function exact(ns: number): string {
  const [unit, size] = unitOf(Math.abs(ns));
  const digits = Math.round(Math.log10(size));
  const [whole, rest = ""] = (ns / size).toFixed(digits).split(".");
  return `${whole}${rest ? `.${rest.replace(/(\d{3})(?=\d)/g, "$1\u202f")}` : ""}${NO_BREAK}${unit}`;
}

function unitOf(ns: number): [string, number] {
  if (ns >= 1e9) return ["s", 1e9];
  if (ns >= 1e6) return ["ms", 1e6];
  return ns >= 1e3 ? ["µs", 1e3] : ["ns", 1];
}

export function figures(value: number): string {
  if (value === 0) return "0";
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  const text = value.toFixed(Math.min(digits, 6));
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** Return a time on the axis, with as many digits as its ticks need. */
export function time(ns: number, step: number, extent: number): string {
  const [unit, size] = extent >= 1e9 && step >= 1e6 ? ["s", 1e9] : ["ms", 1e6];
  return `${(ns / size).toFixed(Math.max(0, Math.round(Math.log10(size) - Math.floor(Math.log10(step) + 1e-9))))}${NO_BREAK}${unit}`;
}

/** Return a share: 62 %, 0.78 %. Only an exact 0 or 1 becomes 0 % or 100 %. */
export function share(part: number): string {
  if (part > 0 && part < 0.001) return "<0.1 %";
  const rounded = Number((100 * part).toPrecision(2));
  return `${figures(part < 1 && rounded >= 100 ? 99.9 : rounded)}${NO_BREAK}%`;
}

export function count(n: number): string {
  return String(n).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

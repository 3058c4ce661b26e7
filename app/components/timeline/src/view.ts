// The time range in view, and how it moves.

import type { Point, Span } from "./types";

/** The shortest view. In a shorter one a pixel would be less than a nanosecond, which no clock resolves. */
export const NEAREST_NS = 1000;

/** Return `span`, moved and shrunk as little as necessary to be within 0 … extent. */
export function clamped(span: Span, extent: number): Span {
  const length = Math.min(Math.max(span.end - span.start, Math.min(NEAREST_NS, extent)), extent);
  const middle = (span.start + span.end) / 2;
  const start = Math.min(Math.max(middle - length / 2, 0), extent - length);
  return { start, end: start + length };
}

/** Return `span` scaled by `factor`; the time `at` keeps its position on the screen. */
export function zoomed(span: Span, factor: number, at: number, extent: number): Span {
  const length = Math.min(Math.max((span.end - span.start) * factor, Math.min(NEAREST_NS, extent)), extent);
  const share = (at - span.start) / (span.end - span.start);
  const start = Math.min(Math.max(at - share * length, 0), extent - length);
  return { start, end: start + length };
}

export function moved(span: Span, by: number, extent: number): Span {
  const start = Math.min(Math.max(span.start + by, 0), extent - (span.end - span.start));
  return { start, end: start + span.end - span.start };
}

/** Return `span`, `width` pixels wide, after two fingers moved. Each finger stays on the same time, as far as possible. */
export function pinched(span: Span, width: number, before: [Point, Point], after: [Point, Point], extent: number): Span {
  const gap = ([a, b]: [Point, Point]) => Math.max(Math.hypot(a.x - b.x, a.y - b.y), 1);
  const middle = ([a, b]: [Point, Point]) => (a.x + b.x) / 2;
  const at = span.start + (middle(before) * (span.end - span.start)) / width;
  const scaled = zoomed(span, gap(before) / gap(after), at, extent);
  return moved(scaled, ((middle(before) - middle(after)) * (scaled.end - scaled.start)) / width, extent);
}

/** Return `span` with room around it, so that its surroundings are visible. */
export function around(span: Span, factor: number, extent: number): Span {
  const middle = (span.start + span.end) / 2;
  const half = (Math.max(span.end - span.start, 1) * factor) / 2;
  return clamped({ start: middle - half, end: middle + half }, extent);
}

/** Return a view that shows a place: `span` itself if it does, `span` moved if the place is a small part of it, else `factor` times the place. */
export function showing(place: Span, span: Span, factor: number, extent: number): Span {
  const near = around(place, factor, extent);
  const length = span.end - span.start;
  if (length >= extent || near.end - near.start > length) return near;
  if (place.start >= span.start && place.end <= span.end) return span;
  return moved(span, (place.start + place.end) / 2 - (span.start + span.end) / 2, extent);
}

/** Return a view between two others for a smooth move: the length changes by equal factors. */
export function between(from: Span, to: Span, share: number): Span {
  const eased = 1 - (1 - share) ** 3;
  const [a, b] = [from.end - from.start, to.end - to.start];
  const length = a * (b / a) ** eased;
  const weight = Math.abs(b - a) < 1e-9 * a ? eased : (length - a) / (b - a);
  const start = from.start + (to.start - from.start) * weight;
  return { start, end: start + length };
}

/** Return the distance of the ticks of a time range: 1, 2 or 5 times a power of ten, at least `room` pixels apart. */
export function tick(ns: number, width: number, room: number): number {
  const least = (ns / Math.max(width, 1)) * room;
  const power = 10 ** Math.floor(Math.log10(least));
  return power * ([1, 2, 5].find((n) => n * power >= least) ?? 10);
}

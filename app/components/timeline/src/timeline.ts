// The timeline on the page: one state, which is drawn again when it changes.

import { Crumbs } from "./crumbs";
import { AXIS_PX, Painter, type Scene } from "./draw";
import { Finder } from "./find";
import { Gutter } from "./gutter";
import { LaneChoice, placed, quietId, rowFor, type Placed } from "./lanes";
import { drawMap, drawWindow, MAP_PX, mapSources } from "./minimap";
import { button } from "./dom";
import { Drawer } from "./drawer";
import { inkOf, type Ink } from "./paint";
import { FindingBar } from "./finding";
import { listen } from "./input";
import { showHeat, showScale } from "./overview";
import { drawLinks } from "./links";
import type { Picture } from "./picture";
import { Losses } from "./losses";
import { Rows } from "./rows";
import { levelOf, Tiles } from "./tiles";
import { showToolbar } from "./toolbar";
import type { Note, PageData, Place, Slice, Span } from "./types";
import { around, between, clamped } from "./view";

const SETTLED_MS = 500; // time without a move after which the page gets the new place
const MOVE_MS = 180;
const REST_MS = 300; // time without a move after which lanes get the rows that the view needs
const END_PX = 4; // room below the last lane
const ROOM = 8; // a place is shown with this many times its own length around it

/** Reports to the page where the viewer is. A `jump` becomes a step for Back. */
export type Report = (place: Place, jump: boolean) => void;

export class Timeline implements Picture {
  readonly root: HTMLElement;
  readonly lanesCanvas: HTMLCanvasElement;
  readonly tiles: Tiles;
  readonly ink: Ink;
  readonly scene: Scene;
  readonly drawer: Drawer;
  readonly finder: Finder;
  readonly findings: FindingBar;
  readonly losses: Losses = new Losses(this);
  width = 0;
  height = 0;
  painter: Painter;
  frames: number[] = [];
  /** Resolves with the first frame in which every tile of the view is drawn. */
  readonly whole: Promise<void>;
  private isWhole!: () => void;
  private readonly choice = new LaneChoice();
  private readonly rows = new Rows();
  private readonly gutter: Gutter;
  private readonly mapCanvas: HTMLCanvasElement;
  private readonly overCanvas: HTMLCanvasElement;
  private readonly mapPicture = document.createElement("canvas");
  private readonly stop: (() => void)[] = [];
  private readonly crumbs: Crumbs;
  private move: { from: Span; to: Span; begun: number } | null = null;
  private mapStale = true;
  private dirty = false;
  private settle = 0;
  private rest = 0;
  private row = 0;
  private lanesHeight = 0;
  private fitted = false;
  private jumped = false;
  private ended = false;

  constructor(root: HTMLElement, readonly data: PageData, private readonly report: Report, readonly note: (note: Note) => void) {
    this.root = root;
    this.whole = new Promise((drawn) => { this.isWhole = drawn; });
    this.lanesCanvas = root.querySelector(".lanes")!;
    this.overCanvas = root.querySelector(".over")!;
    this.mapCanvas = root.querySelector(".map")!;
    this.ink = inkOf(root, data);
    this.choice.read(data.place.lanes);
    this.tiles = new Tiles(data.tracks, () => this.arrived());
    this.painter = new Painter(this.lanesCanvas.getContext("2d")!, this.tiles, this.ink);
    this.scene = {
      data, view: this.viewOf(data.place), lanes: [], marks: [], mark: -1, selected: null, range: null, same: null,
    };
    this.gutter = new Gutter(root.querySelector(".gutter")!, this.choice, data.dark, () => { this.layout(true); this.moved(false); });
    this.drawer = new Drawer(root.querySelector(".drawer")!, this);
    this.finder = new Finder(root.querySelector(".find")!, this);
    this.findings = new FindingBar(root.querySelector(".finding")!, root.querySelector(".changes")!, this);
    this.crumbs = new Crumbs(root, data.extent, (view) => this.go(view, true));
    showToolbar(this, () => this.crumbs.clear());
    showHeat(root.querySelector(".heat")!, this);
    showScale(root.querySelector(".scale-strip")!, data);
    this.stop.push(listen(this));
    const seen = new ResizeObserver(() => this.resize());
    const body = root.querySelector<HTMLElement>(".body")!;
    for (const part of [body, root.querySelector(".stage")!]) seen.observe(part);
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

  end(): void {
    this.ended = true;
    this.tiles.stop();
    clearTimeout(this.settle);
    clearTimeout(this.rest);
    for (const stop of this.stop) stop();
  }

  /** Go to a view. Breadcrumbs and Back lead back from a jump. */
  go(view: Span, jump = false, smooth = jump): void {
    const to = clamped(view, this.data.extent);
    if (jump) this.crumbs.push(this.target);
    const [length, before] = [to, this.target].map((span) => span.end - span.start);
    if (jump && Math.abs(length - before) > before / 100) this.jumped = true; // a jump to another zoom: rows may be counted from the start
    if (smooth && !matchMedia("(prefers-reduced-motion: reduce)").matches) {
      this.move = { from: this.scene.view, to, begun: performance.now() };
    } else {
      this.move = null;
      this.scene.view = to;
    }
    this.moved(jump);
  }

  /** Show the viewers' notes: a flag at each place, and a button that leads to it. */
  notes(notes: Note[]): void {
    this.data.notes = notes;
    const place = this.root.querySelector<HTMLElement>(".notes")!;
    place.hidden = !notes.length;
    place.replaceChildren("Notes: ", ...notes.map((note) => button(note.text, () => this.go(around(note, 1.6, this.data.extent), true))));
    this.draw();
  }

  /** Go to the slice of a row in the page's tables. */
  async visit(slice: string): Promise<void> {
    const place = await this.drawer.restore(slice);
    if (!place) return;
    this.go(around(place, ROOM, this.data.extent), true);
    this.lanesCanvas.focus(); // so that the page scrolls to the timeline, and its keys work
  }

  /** The view at the end of the current move. */
  get target(): Span {
    return this.move?.to ?? this.scene.view;
  }

  select(slice: Slice | null): void {
    this.scene.selected = slice;
    this.scene.range = null;
    this.scene.same = null;
    void this.drawer.show(slice);
    this.moved(false);
  }

  /** Select a slice and scroll to it; with `near`, jump to that view. */
  choose(slice: Slice, near?: Span): void {
    const view = this.target;
    this.select(slice);
    this.reveal(slice.track, slice.source, slice.lane, slice.depth);
    if (near) this.go(near, true);
    else if (slice.start < view.start || slice.start > view.end) {
      const middle = (slice.start + Math.min(slice.end, slice.start + (view.end - view.start) / 2)) / 2;
      const half = (view.end - view.start) / 2;
      this.go({ start: middle - half, end: middle + half }, false, true);
    }
  }

  selectRange(range: Span | null, done: boolean): void {
    this.scene.range = range;
    if (done) {
      this.scene.selected = null;
      void this.drawer.showRange(range);
    }
    this.draw();
  }

  /** Show a sentence below the timeline; screen readers read it aloud. */
  say(words: string): void {
    this.root.querySelector(".said")!.textContent = words;
  }

  draw(): void {
    if (this.dirty || this.ended) return;
    this.dirty = true;
    requestAnimationFrame(() => this.frame());
  }

  /** Draw, and report the new place to the page. */
  moved(jump: boolean): void {
    this.draw();
    this.rested();
    clearTimeout(this.settle);
    if (jump) this.report(this.place(), true);
    else this.settle = window.setTimeout(() => this.report(this.place(), false), SETTLED_MS);
  }

  nsPerPixel(): number {
    return (this.scene.view.end - this.scene.view.start) / Math.max(this.width, 1);
  }

  onAxis(y: number): boolean {
    return y < this.body.scrollTop + AXIS_PX;
  }

  /** Return the lane at a height of the canvas, and the row in it. */
  rowAt(y: number): { lane: Placed; depth: number } | null {
    if (this.onAxis(y)) return null;
    const at = y - AXIS_PX;
    const lane = this.scene.lanes.find((l) => at >= l.top && at < l.top + l.height);
    return lane ? { lane, depth: Math.min(Math.floor((at - lane.top) / lane.row), lane.rows - 1) } : null;
  }

  fly(track: number, view: Span): void {
    this.go(view, true);
    const head = this.scene.lanes.find((l) => l.track === track && (l.kind === "track" || l.spec));
    if (head) this.body.scrollTop = head.kind === "track" && head.track ? head.top : 0;
  }

  revealSelected(): void {
    const chosen = this.scene.selected;
    if (chosen) this.reveal(chosen.track, chosen.source, chosen.lane, chosen.depth);
  }

  resizeRows(factor: number): void {
    const { lanes, selected } = this.scene;
    const resized = lanes.filter((l) => l.kind === "slices" || l.kind === "lines");
    const own = resized.filter((l) => selected && l.track === selected.track && l.spec?.source === selected.source && l.spec.lane === selected.lane);
    for (const lane of own.length ? own : resized) this.choice.size(lane.id, lane.row * factor);
    this.layout();
    this.moved(false);
  }

  private get body(): HTMLElement {
    return this.root.querySelector<HTMLElement>(".body")!;
  }

  /** Scroll to a row of a lane, and open the lane if it is folded. */
  private reveal(track: number, source: string, laneNumber: number, depth: number): void {
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
    lane = find()!;
    const { body } = this;
    const y = lane.top + depth * lane.row + AXIS_PX;
    if (y < body.scrollTop + AXIS_PX || y > body.scrollTop + body.clientHeight - lane.row) body.scrollTop = Math.max(y - body.clientHeight / 2, 0);
  }

  private viewOf(place: Place): Span {
    const [t0, t1] = [Number(place.t0 ?? NaN) * 1e6, Number(place.t1 ?? NaN) * 1e6];
    const whole = { start: 0, end: this.data.extent };
    if (!Number.isFinite(t0) || !Number.isFinite(t1)) return whole;
    const [start, end] = [Math.max(Math.min(t0, t1), 0), Math.min(Math.max(t0, t1), this.data.extent)];
    return end > start ? clamped({ start, end }, this.data.extent) : whole;
  }

  place(): Place {
    const view = this.target;
    const whole = view.start <= 0 && view.end >= this.data.extent;
    const chosen = this.scene.selected;
    return {
      ...(whole ? {} : { t0: (view.start / 1e6).toFixed(6), t1: (view.end / 1e6).toFixed(6) }),
      ...(chosen ? { slice: `${chosen.track}:${chosen.source}:${chosen.source === "gaps" ? Math.round(chosen.start) : chosen.id}` } : {}),
      ...(this.findings.rule ? { finding: this.findings.rule } : {}),
      ...(this.finder.words ? { find: this.finder.words } : {}),
      ...(this.choice.toString() ? { lanes: this.choice.toString() } : {}),
    };
  }

  /** After the browser's Back or Forward: show the place in the address. */
  private back(): void {
    const query = new URLSearchParams(location.search);
    const place = Object.fromEntries(query) as Place;
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
  private layout(refit = false): void {
    const { tracks, steps, lines } = this.data;
    const at = (row: number) => placed(tracks, steps, lines, this.choice, this.rows.needed, row);
    if (refit || !this.row) this.row = rowFor(this.body.clientHeight - AXIS_PX - END_PX, (row) => at(row).height);
    const { lanes, height } = at(this.row);
    this.scene.lanes = lanes;
    this.lanesHeight = height + AXIS_PX + END_PX;
    this.fill(true);
  }

  private resize(): void {
    const width = Math.max(this.root.querySelector<HTMLElement>(".stage")!.clientWidth, 50);
    const another = width !== this.width;
    this.width = width;
    if (another || !this.scene.lanes.length) this.layout(true);
    else this.fill(false);
  }

  /** Make the canvases as high as the lanes, but at least as high as the visible area. */
  private fill(named: boolean): void {
    const { body } = this;
    const height = Math.max(this.lanesHeight, body.clientHeight);
    if (named || height !== this.height) this.gutter.show(this.scene.lanes, height);
    this.height = height;
    size(this.lanesCanvas, this.width, height);
    size(this.overCanvas, this.width, height);
    this.root.querySelector<HTMLElement>(".strip")!.style.paddingRight = `${body.offsetWidth - body.clientWidth - 2}px`; // the width of a scroll bar
    size(this.mapCanvas, Math.max(this.mapCanvas.clientWidth, 50), MAP_PX);
    this.mapStale = true;
    this.frame();
  }

  private arrived(): void {
    this.mapStale = true;
    if (this.tiles.failed) this.say(this.tiles.failed);
    this.draw();
    if (this.fitted) this.rested();
    else this.fit(); // at first, lanes may still move
  }

  private rested(): void {
    clearTimeout(this.rest);
    this.rest = window.setTimeout(() => this.fit(), REST_MS);
  }

  /** Give lanes the rows that the view needs, once it does not move and all tiles have arrived. */
  private fit(): void {
    if (this.ended || this.move || !this.tiles.settled()) return; // both call this again at their end
    const { lanes, view, selected } = this.scene;
    const anew = !this.fitted || this.jumped || (view.start <= 0 && view.end >= this.data.extent);
    this.fitted = true;
    this.jumped = false;
    let changed = this.rows.fit(lanes, this.data.tracks, this.tiles, view, this.width, anew);
    const lane = selected && lanes.find((l) => l.track === selected.track && l.spec?.source === selected.source && l.spec.lane === selected.lane);
    if (lane && !lane.folded) changed = this.rows.include(lane, selected.depth) || changed;
    if (changed) this.layout(anew);
    void this.drawer.glance(this.target);
  }

  private frame(): void {
    this.dirty = false;
    if (this.ended) return;
    const begun = performance.now();
    this.advance(begun);
    const { body } = this;
    this.painter.frame(this.scene, this.width, this.height, body.scrollTop, body.scrollTop + body.clientHeight);
    const over = this.overCanvas.getContext("2d")!;
    over.clearRect(0, 0, this.width, this.height);
    drawLinks(over, this.scene, this.drawer.links, this.ink, this.width);
    this.map();
    this.crumbs.show(this.scene.view);
    this.tiles.want([
      { view: this.target, level: levelOf((this.target.end - this.target.start) / this.width), sources: this.sources() },
      { view: { start: 0, end: this.data.extent }, level: this.mapLevel, sources: [mapSources(this.data)] },
    ]);
    if (this.tiles.settled()) this.isWhole();
    this.frames.push(performance.now() - begun);
    if (this.frames.length > 600) this.frames.shift();
  }

  private advance(now: number): void {
    if (!this.move) return;
    const share = Math.min((now - this.move.begun) / MOVE_MS, 1);
    this.scene.view = share >= 1 ? this.move.to : between(this.move.from, this.move.to, share);
    if (share >= 1) this.move = null;
    this.draw();
  }

  private get mapWidth(): number {
    return Math.max(this.mapCanvas.clientWidth, 50);
  }

  /** The level of the whole recording in the lanes. The strip is only a little wider, so it needs no tiles of its own. */
  private get mapLevel(): number {
    return levelOf(this.data.extent / this.width);
  }

  private map(): void {
    const width = this.mapWidth;
    if (this.mapStale) {
      size(this.mapPicture, width, MAP_PX);
      drawMap(this.mapPicture.getContext("2d")!, this.scene, this.tiles, this.ink, width, this.mapLevel);
      this.mapStale = false;
    }
    const context = this.mapCanvas.getContext("2d")!;
    context.clearRect(0, 0, width, MAP_PX);
    context.drawImage(this.mapPicture, 0, 0, width, MAP_PX);
    drawWindow(context, this.scene, this.ink, width);
  }

  /** Draw the strip again, because the marks have changed. */
  remap(): void {
    this.mapStale = true;
    this.draw();
  }

  /** Return the sources that visible lanes need, by track. Hidden lanes request nothing. */
  private sources(): string[][] {
    return this.data.tracks.map((_, t) => [
      ...new Set(this.scene.lanes.filter((lane) => lane.track === t && lane.spec).map((lane) => lane.spec!.source)),
    ]);
  }
}

function size(canvas: HTMLCanvasElement, width: number, height: number): void {
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
  canvas.getContext("2d")!.setTransform(ratio, 0, 0, ratio, 0, 0);
}

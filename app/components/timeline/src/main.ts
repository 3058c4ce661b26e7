// The component of the page: app/page/timeline/picture.py sends the data and gets the viewer's place.

import { element } from "./dom";
import { Timeline } from "./timeline";
import { stepsOf, type SentSteps } from "./steps";
import type { PageData, Place, Track } from "./types";

/** The data from the page. With `waits`, the page shows what is below the timeline after the first frame. */
interface Data extends Omit<PageData, "tracks" | "steps"> {
  steps: SentSteps;
  tracks: (Omit<Track, "steps"> & { steps?: SentSteps })[];
  waits: boolean;
}

interface Component {
  parentElement: HTMLElement | ShadowRoot;
  data: Data;
  setStateValue: (name: string, value: unknown) => void;
  setTriggerValue: (name: string, value: unknown) => void;
}

interface Mounted {
  timeline: Timeline;
  of: string;
  turn: number;
}

const mounted = new WeakMap<object, Mounted>();
const PLACES = ["t0", "t1", "slice", "finding", "find", "lanes"] as const;

const KEYS: [string, string][] = [
  ["W S", "zoom in and out"], ["A D", "earlier and later"], ["← →", "previous and next slice of the row"], ["↑ ↓", "the row above and below"],
  ["F", "zoom to the selection, else to the place of a finding"], ["0", "the whole recording"], ["L", "the longest lost time in view, then the next"], ["G", "the next change, with its places marked"], ["/", "find by name; Enter and Shift Enter lead to the next and previous match, Esc leads back"],
  ["P N", "previous and next match, or place of a finding; so do [ and ]"], ["Enter", "to the details"], ["Esc", "close the details, then end the search"],
  ["M", "sums of the selected slice, else of the view"], ["Drag", "select a time range"], ["Shift drag", "move; so does dragging the time axis or the strip"],
  ["Wheel", "zoom at the pointer; over the names of the lanes it scrolls. On a trackpad, two fingers scroll and a pinch zooms"], ["Drag a lane's lower edge", "make it higher or lower; T and Shift T do so with the selected lane, else with all; a double click undoes it"],
];

export default function (component: Component): (() => void) | void {
  const root = component.parentElement.querySelector<HTMLElement>(".timeline")!;
  const of = JSON.stringify([component.data.dark, component.data.tracks, component.data.kinds, component.data.extent]);
  const turn = component.data.visit?.turn ?? 0;
  const before = mounted.get(root);
  const reportDrawn = ({ whole }: Timeline) => { if (component.data.waits) void whole.then(() => component.setTriggerValue("drawn", true)); };
  if (before?.of === of) {
    before.timeline.notes(component.data.notes);
    if (turn > before.turn) void before.timeline.visit(component.data.visit!.slice);
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
  // for measurements and tests: when the first whole frame was drawn, the cost of a frame, and the cache
  void timeline.whole.then(() => performance.mark("timeline-whole"));
  (window as unknown as { sawtoothTimeline: Timeline }).sawtoothTimeline = timeline;
  return () => {
    // also called before each new run of the page: end only a timeline that has left the page
    setTimeout(() => {
      if (mounted.get(root)?.timeline === timeline && !root.isConnected) {
        timeline.end();
        mounted.delete(root);
      }
    });
  };
}

/** Write a place into the address without a step for Back, because a pan needs none. The page then writes the same address. */
function replace(place: Place): void {
  const query = new URLSearchParams(location.search);
  for (const name of PLACES) {
    const value = place[name];
    if (value === undefined) query.delete(name);
    else query.set(name, value);
  }
  history.replaceState(history.state, "", `${location.pathname}?${query}`);
}

function help(root: HTMLElement): void {
  const dialog = root.querySelector<HTMLDialogElement>(".help")!;
  dialog.replaceChildren(...KEYS.map(([keys, does]) => element("p", {}, element("kbd", {}, keys), ` ${does}`)));
  dialog.onclick = () => dialog.close();
  root.querySelector<HTMLButtonElement>(".keys")!.onclick = () => dialog.showModal();
}

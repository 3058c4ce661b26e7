// The way back: the views before each jump, as buttons above the lanes.

import { duration, time } from "./format";
import type { Span } from "./types";
import { tick } from "./view";

const SHOWN = 3; // as many as fit at 800 px

export class Crumbs {
  private views: Span[] = [];
  private readonly place: Element;
  private readonly whole: HTMLButtonElement;

  constructor(root: HTMLElement, private readonly extent: number, private readonly jump: (view: Span) => void) {
    this.place = root.querySelector(".crumbs")!;
    this.whole = root.querySelector(".whole")!;
  }

  push(view: Span): void {
    if (!this.isWhole(view)) this.views.push(view); // the button Whole leads there
  }

  pop(): void {
    this.views.pop();
  }

  clear(): void {
    this.views = [];
  }

  /** Show the buttons, and the name of `view`. */
  show(view: Span): void {
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

  private button(view: Span, index: number): HTMLElement {
    const button = document.createElement("button");
    button.textContent = `${this.name(view)} ›`;
    button.onclick = () => {
      this.views.length = index;
      this.jump(view);
      this.views.length = index; // the jump itself added a crumb
    };
    return button;
  }

  private isWhole(view: Span): boolean {
    return view.start <= 0 && view.end >= this.extent;
  }

  private name(view: Span): string {
    const step = tick(view.end - view.start, 100, 10);
    return `${duration(view.end - view.start)} from ${time(view.start, step, this.extent)}`;
  }
}

// Builds elements of the page. Names from a trace are always text, never HTML.

type Child = Node | string | null | undefined | false;

export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K, attributes: Record<string, string>, ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.filter((child): child is Node | string => child !== null && child !== undefined && child !== false));
  return made;
}

export function button(label: string, act: () => void, attributes: Record<string, string> = {}): HTMLButtonElement {
  const made = element("button", { type: "button", ...attributes }, label);
  made.onclick = act;
  return made;
}

export async function fetchJson<T>(address: string): Promise<T> {
  const answer = await fetch(address, { credentials: "same-origin" });
  const body = (await answer.json()) as T & { error?: { sentence: string } };
  if (!answer.ok) throw new Error(body.error?.sentence ?? `The server answered ${answer.status}.`);
  return body;
}

/** Return the element that scrolls around an element's component, or null. */
export function scroller(inside: Element): Element | null {
  let place = (inside.getRootNode() as ShadowRoot).host ?? inside;
  while (place.parentElement) {
    place = place.parentElement;
    if (place.scrollHeight > place.clientHeight && /auto|scroll/.test(getComputedStyle(place).overflowY)) return place;
  }
  return null;
}

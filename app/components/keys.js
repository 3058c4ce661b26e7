// Runs on every page. Ctrl-K finds runs, kernels, findings and places, "/" goes to the page's search field, "j" and "k" to the next and
// previous entry, and "?" shows the keys. Links to other places of the app open without loading the page again.
const LISTED = "[class*=st-key-run_cards] [data-testid=stPageLink] a, .st-title";
const SHOWN = 50; // entries: who types some letters finds the others
let root, data, entries, found, at, pressedLink;

function walk(step) {
  const items = [...document.querySelectorAll(`[data-testid=stMain] :is(${LISTED})`)].filter((item) => item.checkVisibility());
  if (!items.length) return;
  const now = items.indexOf(document.activeElement);
  const next = items[Math.min(Math.max(now + step, 0), items.length - 1)];
  if (next.tabIndex < 0) next.tabIndex = -1; // the keys j and k focus a heading, Tab does not
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

function onKey(event) {
  if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k") {
    event.preventDefault();
    return openSearch();
  }
  const target = event.composedPath()[0];
  if (event.ctrlKey || event.metaKey || event.altKey || target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) return;
  const keys = root.querySelector(".keys");
  if (event.key === "/") {
    const search = document.querySelector("[data-testid=stMain] [data-testid=stTextInput] input");
    if (search) { event.preventDefault(); search.focus(); }
  } else if (event.key === "j") walk(1);
  else if (event.key === "k") walk(-1);
  else if (event.key === "?" && !keys.open) keys.showModal();
}

// The views of a place share one page. On a link to the current page Streamlit changes neither the address nor the widgets bound to it,
// but on Back it does, so every link is followed as Back is.
function open(href) {
  if (href !== location.href) history.pushState({}, "", href);
  dispatchEvent(new PopStateEvent("popstate"));
}

function onLinkClick(event) {
  const link = event.composedPath().find((element) => element.tagName === "A");
  if (!link?.href || event.button || event.ctrlKey || event.metaKey || event.shiftKey || link.target === "_blank" || link.hasAttribute("download")) return;
  if (link.origin !== location.origin || !data.screens.some(([, address]) => address.split("?")[0] === link.pathname)) return;
  event.preventDefault();
  event.stopPropagation();
  root.querySelector(".search").close();
  open(link.href);
  if (link.closest(".st-views") && !event.detail) focusTab(link.href, 100); // by keyboard: the tabs are drawn again and lose the focus
}

// Tabs are drawn again after each click. The browser sends no click to a link that was drawn again while it was pressed.
function onRelease(event) {
  const link = event.target.closest?.("a");
  if (pressedLink && !pressedLink.isConnected && link?.href === pressedLink.href) link.click();
  pressedLink = null;
}

function focusTab(href, looks) {
  const link = document.querySelector(".st-views a[aria-current]");
  if (link?.href === href) link.focus();
  else if (looks) setTimeout(focusTab, 50, href, looks - 1);
}

function markPlace() {
  for (const link of document.querySelectorAll("[data-testid=stSidebar] [data-testid=stPageLink-NavLink]"))
    link.pathname === location.pathname ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
}

function openSearch() {
  const dialog = root.querySelector(".search");
  if (dialog.open) return dialog.close();
  entries = data.screens.map(([name, address]) => ["Place", name, address]);
  dialog.querySelector("input").value = "";
  list();
  dialog.showModal();
  fetch(`/api/v1/find?run=${data.run || ""}`)
    .then((answer) => (answer.ok ? answer.json() : { entries: [] }))
    .then((answer) => { entries = [...entries, ...answer.entries]; list(); })
    .catch(() => {}); // the list still has the places
}

function list() {
  const input = root.querySelector(".search input"), box = root.querySelector("#found");
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  found = entries.filter(([kind, name]) => words.every((word) => `${kind} ${name}`.toLowerCase().includes(word))).slice(0, SHOWN);
  box.replaceChildren(...found.map(([kind, name, address], number) => {
    const item = document.createElement("li"), link = document.createElement("a");
    Object.assign(item, { id: `found-${number}`, role: "option" });
    Object.assign(link, { href: address, tabIndex: -1 });
    for (const [tag, text] of [["span", name], ["small", kind]]) link.appendChild(document.createElement(tag)).textContent = text;
    item.append(link);
    return item;
  }));
  if (!found.length) box.append(Object.assign(document.createElement("li"), { className: "none", textContent: "Nothing has this name." }));
  select(0);
}

function select(number) {
  at = Math.min(Math.max(number, 0), found.length - 1);
  root.querySelectorAll("#found [role=option]").forEach((item, each) => item.setAttribute("aria-selected", String(each === at)));
  root.querySelector(".search input").setAttribute("aria-activedescendant", found.length ? `found-${at}` : "");
  root.querySelector(`#found-${at}`)?.scrollIntoView({ block: "nearest" });
}

function onSearchKey(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) { event.preventDefault(); select(at + step); }
  else if (event.key === "Enter" && found.length) { event.preventDefault(); root.querySelector(`#found-${at} a`).click(); }
}

export default function (component) {
  root = component.parentElement;
  data = component.data;
  window.sawtoothKeys?.abort();
  window.sawtoothKeys = new AbortController();
  const { signal } = window.sawtoothKeys;
  document.addEventListener("keydown", onKey, { signal });
  document.addEventListener("pointerdown", (event) => { pressedLink = event.button ? null : event.target.closest?.("a"); }, { capture: true, signal });
  document.addEventListener("pointerup", onRelease, { capture: true, signal });
  document.addEventListener("click", onLinkClick, { capture: true, signal });
  const dialog = root.querySelector(".search");
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close(), { signal });
  dialog.querySelector("input").addEventListener("input", list, { signal });
  dialog.querySelector("input").addEventListener("keydown", onSearchKey, { signal });
  root.querySelector(".find").addEventListener("click", openSearch, { signal });
  if (/Mac|iP/.test(navigator.platform)) root.querySelectorAll("kbd").forEach((key) => { key.textContent = key.textContent.replace("Ctrl ", "⌘"); });
  markPlace();
}

// One set of listeners for the whole app: "/" searches, "j" and "k" walk through what the page lists, "?" shows the keys;
// links to another view of the place open without a new page.
const LISTED = "[class*=st-key-run_cards] [data-testid=stPageLink] a, .st-title";
let dialog;

function walk(step) {
  const items = [...document.querySelectorAll(`[data-testid=stMain] :is(${LISTED})`)].filter((item) => item.checkVisibility());
  if (!items.length) return;
  const at = items.indexOf(document.activeElement);
  const next = items[Math.min(Math.max(at + step, 0), items.length - 1)];
  if (next.tabIndex < 0) next.tabIndex = -1; // a heading takes the focus without a stop of its own for Tab
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

function pressed(event) {
  const target = event.composedPath()[0];
  if (event.ctrlKey || event.metaKey || event.altKey || target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) return;
  if (event.key === "/") {
    const search = document.querySelector("[data-testid=stMain] [data-testid=stTextInput] input");
    if (search) { event.preventDefault(); search.focus(); }
  } else if (event.key === "j") walk(1);
  else if (event.key === "k") walk(-1);
  else if (event.key === "?" && dialog && !dialog.open) dialog.showModal();
}

// The views of a place share one page. Streamlit follows a link to the page that it shows without changing the address or the
// widgets that it binds; what it does on Back is what such a link needs.
function followed(event) {
  const link = event.target.closest?.("a[href]");
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || link.target === "_blank") return;
  const tab = link.closest(".st-views");
  if (!tab && !(link.closest("[data-testid=stPageLink]") && link.pathname === location.pathname)) return;
  event.preventDefault();
  event.stopPropagation();
  if (link.href !== location.href) history.pushState({}, "", link.href);
  dispatchEvent(new PopStateEvent("popstate"));
  if (tab && !event.detail) focusTab(link.href, 100); // by keyboard: the tabs are drawn anew
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

export default function (component) {
  dialog = component.parentElement.querySelector("dialog");
  if (window.sawtoothKeys) window.sawtoothKeys.abort();
  window.sawtoothKeys = new AbortController();
  const { signal } = window.sawtoothKeys;
  document.addEventListener("keydown", pressed, { signal });
  document.addEventListener("click", followed, { capture: true, signal });
  markPlace();
}

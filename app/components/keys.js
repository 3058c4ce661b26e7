// One listener for the whole app: "/" searches, "j" and "k" walk through what the page lists, "?" shows the keys.
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

export default function (component) {
  dialog = component.parentElement.querySelector("dialog");
  if (window.sawtoothKeys) document.removeEventListener("keydown", window.sawtoothKeys);
  window.sawtoothKeys = pressed;
  document.addEventListener("keydown", pressed);
}

// Shows a command with its token hidden, and copies it with the token. Without TLS the browser offers no clipboard API, so a hidden field is copied.
const SHOWN_MS = 6000;

function copiedFromField(text) {
  const field = document.createElement("textarea");
  field.value = text;
  field.style.cssText = "position: fixed; opacity: 0";
  document.body.append(field);
  field.select();
  try { return document.execCommand("copy"); } catch { return false; } finally { field.remove(); }
}

async function copied(text) {
  try { await navigator.clipboard.writeText(text); return true; } catch { return copiedFromField(text); }
}

export default function (component) {
  const { parentElement, data } = component;
  const button = parentElement.querySelector("button");
  const state = parentElement.querySelector(".state");
  parentElement.querySelector("code").textContent = data.shown;
  let hide;
  button.onclick = async () => {
    state.textContent = (await copied(data.copied)) ? "Copied, with the token." : data.otherwise;
    clearTimeout(hide);
    hide = setTimeout(() => { state.textContent = ""; }, SHOWN_MS);
  };
}

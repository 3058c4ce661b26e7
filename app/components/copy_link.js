// Copies the address of the page as it is. The token that opened this server is nobody else's and stays out of it.
const SHOWN_MS = 6000;

function address(run) {
  const here = new URL(window.location.href);
  here.searchParams.delete("token");
  if (run && !here.searchParams.has("run")) here.searchParams.set("run", run);
  return here.href;
}

export default function (component) {
  const { parentElement, data } = component;
  const button = parentElement.querySelector("button");
  const state = parentElement.querySelector(".state");
  let hide;
  button.onclick = async () => {
    const link = address(data.run);
    let said = "Copied:";
    try { await navigator.clipboard.writeText(link); } catch { said = "The browser did not let this page copy. The address:"; }
    const code = document.createElement("code");
    code.textContent = link;
    state.replaceChildren(said, code);
    clearTimeout(hide);
    hide = setTimeout(() => state.replaceChildren(), SHOWN_MS);
  };
}

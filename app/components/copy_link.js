// Copies the page's address without the viewer's token.
const SHOWN_MS = 6000, WARNING_MS = 20000;
const ONLY_HERE =
  "This link works on this machine only. For others start the server with `sawtooth serve --address 0.0.0.0`, open this page by the " +
  "machine's name, and copy the link there.";

function address(run) {
  const here = new URL(window.location.href);
  here.searchParams.delete("token");
  if (run && !here.searchParams.has("run")) here.searchParams.set("run", run);
  return here.href;
}

function opensOnlyHere(host) {
  return /^(localhost|.*\.localhost|127(\.\d+){3}|\[::1\])$/.test(host);
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
    const only = opensOnlyHere(window.location.hostname);
    const warning = document.createElement("strong");
    warning.append(...ONLY_HERE.split("`").map((part, i) => { // text between backticks is code
      if (i % 2 === 0) return part;
      const command = document.createElement("code");
      command.textContent = part;
      return command;
    }));
    state.replaceChildren(said, code, ...(only ? [warning] : []));
    clearTimeout(hide);
    hide = setTimeout(() => state.replaceChildren(), only ? WARNING_MS : SHOWN_MS);
  };
}

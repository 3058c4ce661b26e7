// Opens the trace in Perfetto. This window loads it and passes it to Perfetto's window, so it is not uploaded anywhere.
const PERFETTO = "https://ui.perfetto.dev";
const PING_MS = 60;
const GIVE_UP_MS = 30000;

function ready(other) {
  return new Promise((resolve, reject) => {
    const started = Date.now();
    const heard = (event) => {
      if (event.source !== other || event.origin !== PERFETTO || event.data !== "PONG") return;
      stop(); resolve();
    };
    const ping = setInterval(() => {
      if (other.closed || Date.now() - started > GIVE_UP_MS) { stop(); reject(new Error("Perfetto did not answer. Is ui.perfetto.dev reachable from this browser?")); return; }
      other.postMessage("PING", PERFETTO);
    }, PING_MS);
    const stop = () => { clearInterval(ping); window.removeEventListener("message", heard); };
    window.addEventListener("message", heard);
  });
}

export default function (component) {
  const { parentElement, data } = component;
  const button = parentElement.querySelector("button");
  button.textContent = `${data.label} ↗`;
  const state = parentElement.querySelector(".state");
  button.onclick = async () => {
    const other = window.open(PERFETTO);
    if (!other) { state.textContent = "The browser blocked the new window. Allow it for this page."; return; }
    button.disabled = true; state.textContent = "Loading the trace …";
    try {
      const answer = await fetch(data.url);
      if (!answer.ok) throw new Error((await answer.json()).error.sentence);
      const buffer = await answer.arrayBuffer();
      await ready(other);
      const perfetto = { buffer, title: data.title, fileName: data.file };
      other.postMessage({ perfetto }, PERFETTO);
      state.textContent = "";
    } catch (problem) {
      state.textContent = problem.message || "Perfetto did not receive the trace.";
    } finally { button.disabled = false; }
  };
}

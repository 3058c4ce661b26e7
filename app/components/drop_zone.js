const RETRY_MS = 1000;
const HEADERS = { "X-Sawtooth": "1" };

function size(bytes) {
  const units = ["B", "kB", "MB", "GB"];
  let value = bytes, unit = 0;
  while (value >= 999.5 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${value >= 100 || unit === 0 ? value.toFixed(0) : value.toPrecision(3)}\u00a0${units[unit]}`;
}

function sentenceOf(xhr, name) {
  try { return JSON.parse(xhr.responseText).error.sentence; } catch { /* The response is not from Sawtooth. */ }
  if (xhr.status === 401) return "You are no longer logged in. Reload the page to log in again.";
  return xhr.status ? `The server answered ${xhr.status}. Drop the file again.` : "The connection to the server was lost. Drop the file again.";
}

function upload(file, onProgress, aborter) {
  return new Promise((resolve, reject) => {
    const xhr = new XMLHttpRequest();
    aborter.abort = () => xhr.abort();
    xhr.open("PUT", `/api/v1/uploads?name=${encodeURIComponent(file.name)}`);
    for (const [name, value] of Object.entries(HEADERS)) xhr.setRequestHeader(name, value);
    xhr.upload.onprogress = (event) => onProgress(event.loaded);
    xhr.onload = () => {
      if (xhr.status === 201) resolve(JSON.parse(xhr.responseText));
      else reject({ retry: xhr.status === 429, sentence: sentenceOf(xhr) });
    };
    xhr.onerror = () => reject({ sentence: sentenceOf(xhr) });
    xhr.onabort = () => reject({ sentence: "Cancelled." });
    xhr.send(file);
  });
}

function row(list, file) {
  const item = document.createElement("li");
  const name = document.createElement("span"); name.className = "name"; name.textContent = file.name; name.title = file.name;
  const state = document.createElement("span"); state.className = "state"; state.textContent = size(file.size);
  const bar = document.createElement("progress"); bar.max = Math.max(file.size, 1); bar.value = 0; bar.setAttribute("aria-label", `Upload of ${file.name}`);
  item.append(name, state, bar); list.append(item);
  return { item, state, bar, cancelled: false, abort: () => {} };
}

function fail(view, sentence) {
  view.item.classList.add("failed");
  view.state.textContent = "not taken";
  const problem = document.createElement("span"); problem.className = "problem"; problem.textContent = sentence;
  view.item.append(problem);
}

async function send(file, view) {
  const started = performance.now();
  const cancel = document.createElement("button"); cancel.type = "button"; cancel.textContent = "cancel";
  cancel.onclick = () => { view.cancelled = true; view.abort(); };
  const progress = (loaded) => {
    view.bar.value = loaded;
    const seconds = (performance.now() - started) / 1000;
    const speed = seconds > 0.5 ? ` · ${size(loaded / seconds)}/s` : "";
    view.state.replaceChildren(`${size(loaded)} of ${size(file.size)}${speed} · `, cancel);
  };
  for (;;) {
    try {
      if (view.cancelled) throw { sentence: "Cancelled." };
      const answer = await upload(file, progress, view);
      view.bar.value = view.bar.max; view.state.textContent = `${size(file.size)} · sent`;
      return { upload: answer.upload, name: file.name };
    } catch (problem) {
      if (!problem.retry) { fail(view, problem.sentence); return null; }
      view.state.textContent = "waiting for another upload to end";
      await new Promise((go) => setTimeout(go, RETRY_MS));
    }
  }
}

export default function (component) {
  const { parentElement, setTriggerValue, data } = component;
  const zone = parentElement.querySelector(".zone");
  const input = parentElement.querySelector("input");
  const list = parentElement.querySelector(".list");
  parentElement.querySelector(".note").textContent = (data && data.note) || "";
  zone.classList.toggle("compact", Boolean(data && data.compact));
  zone.classList.remove("waits");

  const take = async (files) => {
    const chosen = Array.from(files);
    if (!chosen.length) return;
    if (!zone.dataset.busy) list.replaceChildren();
    zone.dataset.busy = String(Number(zone.dataset.busy || 0) + 1);
    const views = chosen.map((file) => row(list, file));
    const sent = [];
    for (let i = 0; i < chosen.length; i += 1) {
      const done = await send(chosen[i], views[i]);
      if (done) sent.push(done);
    }
    const left = Number(zone.dataset.busy) - 1;
    if (left) zone.dataset.busy = String(left); else delete zone.dataset.busy;
    if (!sent.length) return;
    try {
      const answer = await fetch("/api/v1/jobs", {
        method: "POST", headers: { ...HEADERS, "Content-Type": "application/json" }, body: JSON.stringify({ files: sent }),
      });
      const job = await answer.json();
      if (!answer.ok) throw new Error(job.error.sentence);
      if (!views.some((view) => view.item.classList.contains("failed"))) list.replaceChildren();
      else views.forEach((view) => { if (!view.item.classList.contains("failed")) view.item.remove(); });
      setTriggerValue("started", job.job);
    } catch (problem) {
      fail(views[views.length - 1], problem.message || "The server did not start to read the files. Drop them again.");
    }
  };

  const over = (event) => { event.preventDefault(); zone.classList.add("over"); };
  const out = () => zone.classList.remove("over");
  const drop = (event) => { event.preventDefault(); out(); take(event.dataTransfer.files); };
  input.onchange = () => { take(input.files).catch(() => {}); input.value = ""; };
  // The whole page accepts files: otherwise the browser would open a file that is dropped beside the zone.
  document.addEventListener("dragover", over);
  document.addEventListener("dragleave", out);
  document.addEventListener("drop", drop);
  return () => {
    document.removeEventListener("dragover", over);
    document.removeEventListener("dragleave", out);
    document.removeEventListener("drop", drop);
  };
}

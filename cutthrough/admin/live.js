// What ties the parts together: the figures once a second, and the stream of endings.
const AGAIN_MS = 3000, LOOK_MS = 1000;
let before = null, beforeAt = 0, looking = false, stale = false, watching = null;

function bytes(n) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (n < 1000) return (n < 10 && unit !== "B" ? n.toFixed(1) : Math.round(n)) + " " + unit;
    n /= 1000;
  }
  return n.toFixed(1) + " TB";
}
function seconds(s) {
  return s < 60 ? s.toFixed(1) + " s" : s < 3600 ? Math.floor(s / 60) + " min"
    : (s / 3600).toFixed(1) + " h";
}
function duration(ms) {
  return ms < 1000 ? ms.toFixed(ms < 10 ? 2 : 0) + " ms" : seconds(ms / 1000);
}
// `numeric`: places of numbers; `classes`: of other cells, by their place
function row(cells, numeric, classes = {}) {
  const tr = document.createElement("tr");
  cells.forEach((cell, i) => {
    const td = document.createElement("td");
    if (cell instanceof Node) td.append(cell); else td.textContent = td.title = cell ?? "–";
    if (numeric.includes(i)) td.className = "n";
    if (classes[i]) td.className = classes[i];
    tr.append(td);
  });
  return tr;
}
function fill(id, rows, nothing) {
  $(id).replaceChildren(...rows.length || !nothing ? rows : [row([nothing], [])]);
}
function setText(id, text) {
  if ($(id).textContent !== text) $(id).textContent = text;
}

// /metrics: each sample as {name, labels, value}
function parse(text) {
  const samples = [];
  for (const line of text.split("\n")) {
    const m = /^cutthrough_(\w+?)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!m) continue;
    const labels = {};
    for (const [, key, value] of (m[2] || "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g))
      labels[key] = value;
    samples.push({name: m[1], labels, value: Number(m[3])});
  }
  return samples;
}
const total = (samples, name, want = {}) => samples.filter(s => s.name === name
  && Object.entries(want).every(([k, v]) => s.labels[k] === v))
  .reduce((sum, s) => sum + s.value, 0);

async function ask(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(answer.status);
  return answer;
}
async function look() {
  if (looking) return;          // a long list takes more than a second
  looking = true;
  let samples;
  try {
    samples = parse(await (await ask("metrics")).text());
    takeConnections(await (await ask("connections")).json());
  } catch {
    $("state").textContent = "no answer";
    $("state").className = "bad";
    return;
  } finally {
    looking = false;
  }
  const now = performance.now();
  if (before) show(samples, (now - beforeAt) / 1000);
  before = samples;
  beforeAt = now;
  showConnections();
}
function show(now, span) {
  const grown = (name, want) => Math.max(0, total(now, name, want) - total(before, name, want));
  const rate = {up: grown("bytes_total", {direction: "up"}),
    down: grown("bytes_total", {direction: "down"}), requests: grown("requests_total"),
    failed: grown("failed_total"), cpu_s: now.filter(s => s.name === "worker_up")
      .reduce((sum, w) => sum + grown("process_cpu_seconds_total", {worker: w.labels.worker}), 0)};
  noteSince(rate, span, total(now, "connections"));
  setText("rate-down", bytes(rate.down / span) + "/s");
  setText("rate-up", bytes(rate.up / span) + "/s");
  setText("rate-requests", figure(rate.requests / span) + "/s");
  setText("rate-failed", figure(rate.failed / span) + "/s");
  setText("connections", figure(total(now, "connections")));
  setText("tunnels", figure(total(now, "tunnels")));
  const isIdle = !total(now, "requests_total") && !total(now, "connections") && !endings.length;
  $("idle").hidden = !isIdle;
  document.querySelector("main").classList.toggle("idle", isIdle);
  setText("state", "live");
  $("state").className = "";
  showCapacity(now, grown, span);
  showReasons(now);
  draw();
}

// The stream of endings; with a session that may read, the paths of opened requests too
async function watch() {
  watching?.abort();
  const mine = watching = new AbortController();
  try {
    await readEvents("events", {signal: mine.signal, headers: sessionFields()},
      (name, record) => {
        onEnding(record);
        stale = true;
      }, () => setText("watching", ""));
  } catch { /* gone, replaced, or too many watchers */ }
  if (mine.signal.aborted) return;
  setText("watching", "No endings are received; reconnecting.");
  setTimeout(() => { if (!mine.signal.aborted) watch(); }, AGAIN_MS);
}
setInterval(() => { if (stale && !document.hidden) { stale = false; showEndings(); } }, 250);

startChart();
showHeads();
showEndings();
onSession = () => {
  showRights();
  showConnections(true);
  if (watching) watch();
};
startSession(text => { $("answer").textContent = text; });
showRights();
watch();
resume();
readOverview();
readLevel();
readHistory();
look();
setInterval(() => { if (!document.hidden) look(); }, LOOK_MS);
setInterval(() => {
  if (document.hidden) return;
  readHistory();
  readLevel();
  readOverview();
}, LOOK_AT_PROGRAM_MS);

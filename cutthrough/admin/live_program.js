// What the program is, how much room it has, and what an operator can tell it.
const LOOK_AT_PROGRAM_MS = 10000;
let overview = null;

async function readOverview() {
  try {
    overview = await (await fetch("overview")).json();
  } catch {
    return;                             // the state says that there is no answer
  }
  document.title = `${overview.host}: cutthrough`;
  showProgram();
}
function age(s) {
  const [days, hours, minutes] = [s / 86400, s / 3600 % 24, s / 60 % 60].map(Math.floor);
  return days ? `${days} d ${hours} h` : hours ? `${hours} h ${minutes} min`
    : minutes ? `${minutes} min` : `${Math.floor(s)} s`;
}
const moment = at => new Date(at * 1000).toLocaleString("sv");
function showProgram() {
  const {host, version, started, listeners, generation, since: inForce, pid} = overview;
  const up = age(Date.now() / 1000 - started);
  $("identity").textContent = `${host} · ${version} · up ${up}`;
  const facts = [...listeners.map((listener, i) => [i ? "" : listeners.length > 1 ? "listeners"
    : "listener", [listener.address, listener.protocols.join(", "), listener.tls && "TLS",
    listener.auth === "none" && "no credentials"].filter(Boolean).join(" · ")]),
  ["configuration", `generation ${generation}, since ${moment(inForce)}`],
  ["started", `${moment(started)}, process ${pid}`]];
  const text = JSON.stringify(facts);
  if ($("facts").dataset.text === text) return;
  $("facts").dataset.text = text;
  $("facts").replaceChildren(...facts.flatMap(([name, value]) =>
    [term("dt", name), term("dd", value)]));
  const open = listeners.find(listener => listener.http && !listener.tls)?.address
    ?? listeners[0]?.address;
  $("idle-command").textContent = `curl -x http://USER@${open} http://example.com/`;
}
// A bound and how much of it is used
function meterOf(name, used, most, show) {
  const dt = document.createElement("dt"), dd = document.createElement("dd");
  const b = document.createElement("b"), meter = document.createElement("meter");
  b.textContent = most ? `${show(used)} of ${show(most)}` : show(used);
  dt.append(name, b);
  dd.append(meter);
  Object.assign(meter, {min: 0, max: most, low: .7 * most, high: .9 * most, optimum: 0,
    value: used});
  meter.setAttribute("aria-label", name);
  return [dt, dd];
}
function showCapacity(now, grown, span) {
  const workers = now.filter(s => s.name === "worker_up");
  const of = worker => ({worker: worker.labels.worker});
  const files = workers.map(w => [total(now, "process_open_fds", of(w)),
    total(now, "process_max_fds", of(w))]);
  // The worker that has the least room
  const [used, most] = files.reduce((worst, usage) =>
    usage[1] && usage[0] / usage[1] > worst[0] / worst[1] ? usage : worst, [0, 1]);
  const cpu = workers.reduce((sum, w) =>
    sum + grown("process_cpu_seconds_total", of(w)) / span, 0);
  const memory = now.filter(s => s.name === "process_resident_memory_bytes")
    .reduce((sum, s) => sum + s.value, 0);
  $("meters").replaceChildren(...[
    meterOf("connections", total(now, "connections"), overview?.max_connections ?? 0, figure),
    meterOf("CPU of the workers", cpu, workers.length,
      n => n === workers.length ? `${n} ${n === 1 ? "core" : "cores"}` : `${(100 * n).toFixed(0)} %`),
    meterOf("descriptors of the fullest worker", used, most, figure)].flat(),
  ...[term("dt", "memory")].map(dt => {
    const b = document.createElement("b");
    b.textContent = bytes(memory);
    dt.append(b);
    return dt;
  }));
  fill("workers", workers.map(w => row([w.labels.worker + (w.value ? "" : " (down)"),
    `${Math.round(100 * grown("process_cpu_seconds_total", of(w)) / span)} %`,
    bytes(total(now, "process_resident_memory_bytes", of(w))),
    figure(total(now, "process_open_fds", of(w))),
    `${(1000 * total(now, "loop_lag_seconds", of(w))).toFixed(1)} ms`], [1, 2, 3, 4])));
}

// What an operator can tell it takes the right `operate`
function showRights() {
  const may = isSignedIn() && rights.includes("operate");
  const why = may ? "" : isSignedIn() ? "this token has no right operate"
    : "give the admin token above";
  for (const id of ["reload", "drain", "log-level"]) {
    $(id).setAttribute("aria-disabled", String(!may));
    $(id).title = why;
  }
}
// The level of the workers' error log
async function readLevel() {
  try {
    const {level, levels} = await (await fetch("log-level")).json();
    if (!$("log-level").options.length)
      $("log-level").append(...levels.map(name => new Option(name, name)));
    if (document.activeElement !== $("log-level")) $("log-level").value = level;
    inForceLevel = level;
  } catch { /* the state says that there is no answer */ }
}
let inForceLevel = "info";
$("log-level").addEventListener("change", async () => {
  const level = $("log-level").value;
  if (isOff($("log-level"))) return void ($("log-level").value = inForceLevel);
  await order(`log-level?level=${level}`, "changing …", answer => {
    const {unanswered} = JSON.parse(answer);
    return [`the workers log at ${level}`, ...unanswered.map(name => `${name} does not answer`)]
      .join("; ");
  });
  readLevel();
});
async function order(path, note, describe = text => text.trim()) {
  $("program-note").className = "";
  $("program-note").textContent = note;
  try {
    const answer = await fetch(path, {method: "POST", headers: sessionFields()});
    if (answer.status === 401) setRights(null);
    const text = await answer.text();
    $("program-note").textContent = answer.ok ? describe(text) : text.trim();
    $("program-note").className = answer.ok ? "" : "bad";
  } catch {
    $("program-note").textContent = "no answer";
    $("program-note").className = "bad";
  }
  readOverview();
}
const isOff = node => {
  if (node.getAttribute("aria-disabled") !== "true") return false;
  $("program-note").textContent = node.title;
  return true;
};
$("reload").addEventListener("click", () => {
  if (!isOff($("reload"))) order("reload", "reloading …");
});
$("drain").addEventListener("click", () => {
  if (!isOff($("drain"))) $("drain-ask").showModal();
});
$("drain-no").addEventListener("click", () => $("drain-ask").close());
$("drain-yes").addEventListener("click", event => {
  if (event.detail > 1) return;         // a double click is no answer
  $("drain-ask").close();
  order("drain", "draining …");
});

// What did not go well, by reason, user, destination and rule; and what ended well: latency of
// requests, life of tunnels, users and destinations with the most bytes. All since the page was
// opened, but for the sums of reasons, which the program counts.
const MOST_ENDINGS = 12, MOST_NAMES = 2000, MOST_GROUPS = 500, SHOWN_GROUPS = 12;
const MOST_TIMES = 1000;
// Each phase begins where the one before it ends: docs/logs.md
const PHASES = [["head_ms", "read the head"], ["auth_ms", "authenticate"],
  ["hook_ms", "policy hook"], ["dns_ms", "resolve"], ["connect_ms", "connect"],
  ["first_byte_ms", "first byte"], ["request", "whole request"]];
const endings = [], users = new Map(), hosts = new Map(), groups = new Map();
const phases = Object.fromEntries([...PHASES.map(([field]) => field), "tunnel"]
  .map(field => [field, []]));

const userOf = record => record.user ?? (record.tried_user ? `${record.tried_user} (tried)` : null);
function add(map, key, n) {
  if (map.has(key) || map.size < MOST_NAMES) map.set(key, (map.get(key) ?? 0) + n);
}
function noteTime(field, ms) {
  if (ms === undefined || ms === null) return;
  phases[field].push(ms);
  if (phases[field].length > MOST_TIMES) phases[field].shift();
}
function noteGroup(record) {
  const key = JSON.stringify([record.reason, userOf(record), destination(record), record.rule]);
  const group = groups.get(key) ?? {n: 0};
  groups.delete(key);                   // the one that was last seen longest ago is first
  groups.set(key, {n: group.n + 1, last: record});
  if (groups.size > MOST_GROUPS) groups.delete(groups.keys().next().value);
}
function onEnding(record) {
  const moved = record.bytes_up + record.bytes_down;
  noteEnding(record);
  add(users, record.user ?? "(no user)", moved);
  if (record.host) add(hosts, destination(record), moved);
  if (MEANINGS[record.reason]) noteGroup(record);
  // A tunnel's lifetime is not a latency, and a refused request waited for no origin
  const whole = record.kind === "tunnel" ? "tunnel"
    : record.first_byte_ms !== null ? "request" : "";
  for (const [field] of PHASES) noteTime(field, field === whole ? record.total_ms : record[field]);
  if (whole === "tunnel") noteTime("tunnel", record.total_ms);
  endings.unshift(record);
  endings.length = Math.min(endings.length, MOST_ENDINGS);
}
function quantiles(field) {
  const all = [...phases[field]].sort((a, b) => a - b);
  return all.length ? [.5, .95, 1].map(part =>
    duration(all[Math.min(all.length - 1, Math.floor(part * all.length))])) : null;
}
function showEndings() {
  $("ended").hidden = !endings.length;
  fill("endings", endings.map(r => row([r.time.slice(11, 19), userOf(r), r.method,
    destination(r), r.status, r.reason, duration(r.total_ms)], [4, 6],
  MEANINGS[r.reason] ? {5: reasonClass(r.reason)} : {})));
  const known = PHASES.filter(([field]) => phases[field].length);
  $("times").hidden = !known.length;
  fill("latency", known.map(([field, name]) => row([name, ...quantiles(field)], [1, 2, 3])));
  const lives = quantiles("tunnel");
  $("lives").hidden = !lives;
  if (lives) tiles("lifetimes", [["ended", figure(phases.tunnel.length)
    + (phases.tunnel.length === MOST_TIMES ? ", the last" : "")], ["median", lives[0]],
  ["p95", lives[1]], ["max", lives[2]]]);
  $("tops").hidden = !users.size;
  showTop("users", users);
  showTop("hosts", hosts);
  showGroups();
}
function tiles(id, pairs) {
  $(id).replaceChildren(...pairs.map(([name, value]) => {
    const box = document.createElement("div");
    box.append(term("dt", name), term("dd", value));
    return box;
  }));
}
function term(tag, text) {
  const node = document.createElement(tag);
  node.textContent = text;
  return node;
}
function showTop(id, map) {
  fill(id, [...map].sort((a, b) => b[1] - a[1]).slice(0, 6)
    .map(([name, n]) => row([name, bytes(n)], [1])));
}
const reasonClass = reason => OF_CLIENT.has(reason) ? "reason of-client" : "reason";

// Sums since the program's start, by reason
function showReasons(samples) {
  const counted = samples.filter(s => s.name === "failed_total" && s.value)
    .sort((a, b) => b.value - a.value);
  $("refused").hidden = !counted.length && !groups.size;
  const text = counted.map(s => `${s.labels.reason} ${s.value}`).join();
  if ($("reasons").dataset.text === text) return;
  $("reasons").dataset.text = text;
  $("reasons").replaceChildren(...counted.map(s => {
    const chip = document.createElement("span"), n = document.createElement("b");
    n.textContent = figure(s.value);
    chip.title = MEANINGS[s.labels.reason] ?? "";
    chip.append(`${s.labels.reason} `, n);
    return chip;
  }));
}
// The rows stand still while the pointer or the focus is among them
let groupsShown = "";
function showGroups() {
  const body = $("groups").tBodies[0];
  $("groups-note").textContent = groups.size ? `Above: since the program's start. The table: since `
    + `this page was opened${groups.size > SHOWN_GROUPS ? `, ${SHOWN_GROUPS} of ${groups.size}` : ""}.`
    : "Since the program's start. Those of now on are shown with user, destination and rule.";
  if (body.matches(":hover") || body.contains(document.activeElement)) return;
  const all = [...groups.values()].sort((a, b) => b.n - a.n).slice(0, SHOWN_GROUPS);
  const text = JSON.stringify(all);
  if (text === groupsShown) return;
  groupsShown = text;
  $("groups").hidden = !all.length;
  body.replaceChildren(...all.map(({n, last}) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "explain";
    button.setAttribute("aria-label", `explain ${last.reason} of ${destination(last) ?? "a request"}`);
    button.addEventListener("click", () => openExplanation(last));
    return row([last.reason, userOf(last), destination(last), last.rule ?? null, figure(n),
      last.time.slice(11, 19), button], [4, 5], {0: reasonClass(last.reason)});
  }));
}

// What is known of such an ending, and the command that shows the decision
const quoted = text => /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
function commandOf(record) {
  const target = record.method === "CONNECT" || !record.url ? destination(record) : record.url;
  const user = record.user ?? record.tried_user;
  return ["cutthrough explain", ...user ? ["--user", quoted(user)] : [],
    "--client", quoted(record.client), quoted(record.method ?? "CONNECT"), quoted(target ?? "HOST:PORT")]
    .join(" ");
}
function openExplanation(record) {
  $("explain-title").textContent = record.reason;
  $("explain-meaning").textContent = MEANINGS[record.reason];
  const facts = {rule: record.rule, status: record.status, user: userOf(record),
    client: record.client, destination: destination(record), address: record.peer,
    detail: record.detail, time: record.time, id: record.id};
  $("explain-facts").replaceChildren(...Object.entries(facts)
    .filter(([, value]) => value !== undefined && value !== null)
    .flatMap(([name, value]) => [term("dt", name), term("dd", String(value))]));
  $("explain-command").textContent = commandOf(record);
  $("explain-note").textContent = "with -c and the proxy's configuration";
  $("explain").showModal();
}
$("explain-copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText($("explain-command").textContent);
    $("explain-note").textContent = "copied";
  } catch {                             // not from a secure context, or not permitted
    getSelection().selectAllChildren($("explain-command"));
    $("explain-note").textContent = "selected: press Ctrl+C";
  }
});
$("explain-close").addEventListener("click", () => $("explain").close());

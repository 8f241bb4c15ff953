// One flow: its parts as tabs. Bodies are fetched when a tab shows them: each read is logged.
const PHASES = [["head_us", "read the head"], ["auth_us", "authenticate"],
  ["hook_us", "policy hook"], ["dns_us", "resolve"], ["connect_us", "connect"],
  ["origin_tls_us", "TLS behind the proxy"], ["send_us", "send"],
  ["wait_us", "wait for the first byte"], ["receive_us", "receive"]];
const CLIENT_TLS = ["client_tls_us", "TLS with the client"];
const HELD = ["held_us", "held by filters, breakpoints"];
const TABS = [["request", "request"], ["response", "response"], ["timing", "timing"],
  ["messages", "messages"], ["decision", "decision, TLS"], ["notes", "notes"]];
const DECISION = [["rule", "rule"], ["reason", "reason"], ["detail", "why"],
  ["reported", "reported only"],
  ["user", "user"], ["client", "client"], ["client_port", "client's port"],
  ["host", "host"], ["port", "port"], ["peer", "address"], ["peer_port", "its port"],
  ["parent", "parent"], ["reused", "connection reused"], ["retried", "retried"],
  ["client_http", "HTTP with the client"], ["origin_http", "HTTP behind the proxy"],
  ["bytes_up", "bytes up"], ["bytes_down", "bytes down"], ["request", "identifier"],
  ["time", "begun"]];
const TLS = [["intercepted", "intercepted"], ["pinned", "passed: pinned"],
  ["client_tls_version", "version with the client"],
  ["client_cipher", "cipher with the client"], ["peer_tls_version", "version behind the proxy"],
  ["peer_cipher", "cipher behind the proxy"], ["protocol", "protocol inside"],
  ["sni", "server name"], ["alpn", "ALPN offered"], ["ja4", "JA4"],
  ["tls_version", "version offered"], ["ech", "offers ECH"],
  ["client_ja4", "client's JA4"], ["client_ja4_o", "in its order"],
  ["client_ja4_r", "with its lists"], ["client_ja4_ro", "with its lists in its order"],
  ["client_ja3", "client's JA3"], ["http2_fingerprint", "client's HTTP/2"]];
const TRUTHS = new Set(["reported", "reused", "retried", "ech", "intercepted", "pinned"]);

let flow = null, tab = "request";
let wanted = null;              // the flow that is to be open; null: none is

function make(tag, text, className) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}
function button(text, act, label) {
  const node = make("button", text);
  node.type = "button";
  if (label) node.setAttribute("aria-label", label);
  node.addEventListener("click", act);
  return node;
}
function table(rows, ...numeric) {
  const body = make("tbody");
  for (const cells of rows) {
    const tr = body.insertRow();
    cells.forEach((cell, i) => {
      const part = i === 0 ? make("th") : make("td");
      if (i === 0) part.scope = "row";
      if (cell instanceof Node) part.append(cell); else part.textContent = cell;
      if (numeric.includes(i)) part.className = "n";
      tr.append(part);
    });
  }
  const made = make("table");
  made.append(body);
  return made;
}
function duration(us) {
  return us < 1e6 ? (us / 1000).toFixed(us < 1e5 ? 2 : 0) + " ms" : (us / 1e6).toFixed(2) + " s";
}

async function openDetail(id) {
  $("note").textContent = "";
  wanted = id;
  let fetched;
  try {
    fetched = await (await ask(pathOf(id))).json();
    fetched.id = id;                      // an open one has no number
  } catch (error) {
    if (wanted !== id) return;
    flow = null;
    $("detail").hidden = false;
    $("detail-url").textContent = `#${id}`;
    $("ending").replaceChildren();
    $("panel").replaceChildren(make("p", error.message, "bad"));
    return;
  }
  if (wanted !== id) return;            // another one was chosen, or this one closed
  flow = fetched;
  $("detail").hidden = false;
  $("detail-url").textContent = `#${flow.id} ${flow.method} ${flow.url}`
    + (flow.open ? " (open)" : "");
  showEnding();
  mark();
  showCompare();
  showTab();
}
// Status and time, and of what did not go well the reason in words
function showEnding() {
  const {status, reason, detail} = flow, isWell = !MEANINGS[reason];
  const parts = [make("b", status ?? "no answer", status >= 400 || !status ? "bad" : "")];
  if (!flow.open) parts.push(` · ${duration(flow.total_us)}`);
  if (!isWell) parts.push(" · ", make("b", reason, "bad"),
    `: ${MEANINGS[reason]}${detail ? ` (${detail})` : ""}`);
  $("ending").replaceChildren(...parts);
}
function closeDetail() {
  $("detail").hidden = true;
  clearTimeout(opening);
  stopTail();
  flow = wanted = null;
  mark();
  $("list").focus();
}
// As asked for: of an open flow, more of both messages may have come
function chooseTab(name) {
  showTab(name);
  if (flow?.open && ["request", "response"].includes(name)) openDetail(flow.id);
}
function showTab(name = tab) {
  tab = name;
  for (const node of $("tabs").children) {
    const is = node.dataset.tab === tab;
    node.setAttribute("aria-selected", String(is));
    node.tabIndex = is ? 0 : -1;
  }
  $("panel").setAttribute("aria-labelledby", "tab-" + tab);
  stopTail();
  if (!flow) return;
  $("panel").replaceChildren(...({timing: showTiming, decision: showDecision,
    messages: showMessages, notes: showNotes}[tab] ?? showMessage)(tab));
}

// The request or the response. Trailers have no first line
function headNode(head, isTrailers = false) {
  const pre = make("pre");
  head.trimEnd().split(/\r?\n/).forEach((line, i) => {
    const at = i || isTrailers ? line.indexOf(":") : -1;
    if (at > 0) pre.append(make("span", line.slice(0, at), "name"), line.slice(at) + "\n");
    else pre.append(make("b", line), "\n");
  });
  return pre;
}
function showMessage(side) {
  const head = flow[side + "_head"], parts = [];
  if (head) parts.push(headNode(head));
  else parts.push(make("p", flow.kind === "tunnel" ? "a tunnel: its content is not captured"
    : `no head of this ${side} is kept`, "soft"));
  const state = flow[side + "_body_state"], kept = flow[side + "_body"] !== "none";
  if (kept || state) parts.push(make("h2", "body"
    + (flow[side + "_content_bytes"] ? `, ${bytes(flow[side + "_content_bytes"])}` : "")
    + (state ? `, ${state}` : "")));
  if (kept) {
    const place = make("div");
    place.id = side + "-body";
    parts.push(place);
    const of = flow;
    viewBody(place, {views: of[side + "_views"], type: of[side + "_type"],
      read: () => readBody(of, side),
      show: async view => (await ask(`${pathOf(of.id)}/${side}-body?view=${view}`)).text()});
  }
  const trailers = flow[side + "_trailers"];
  if (trailers) {
    const node = headNode(trailers, true);
    node.id = side + "-trailers";
    parts.push(make("h2", "trailers"), node);
  }
  return parts;
}
// Once for a flow: each read is logged
function readBody(of, side) {
  of.bodies ??= {};
  return of.bodies[side] ??= ask(`${pathOf(of.id)}/${side}-body`)
    .then(answer => answer.arrayBuffer()).then(buffer => new Uint8Array(buffer));
}

// Timing: each phase begins where the one before it ends. The client's handshake comes before
// its first request, and in an interception after the origin's. When a message was held is not
// known: that row is the last, and only outlined
function showTiming() {
  const isBefore = !isOpened(flow), after = [...PHASES];
  after.splice(isBefore ? 0 : 1 + PHASES.findIndex(([field]) => field === "origin_tls_us"), 0,
    CLIENT_TLS);
  const known = [...after, HELD].filter(([field]) => flow[field] !== undefined);
  const sum = known.reduce((us, [field]) => us + flow[field], 0);
  const all = flow.total_us + (isBefore ? flow.client_tls_us ?? 0 : 0), whole = Math.max(all, sum, 1);
  let at = 0;
  const made = table(known.map(([field, name]) => {
    const bar = make("i", undefined, field === "held_us" ? "loose" : "");
    bar.style.marginLeft = 100 * at / whole + "%";
    bar.style.width = 100 * flow[field] / whole + "%";
    at += flow[field];
    return [name, duration(flow[field]), bar];
  }), 1);
  for (const tr of made.rows) {
    tr.cells[2].className = "track";
    tr.cells[2].setAttribute("aria-hidden", "true");
  }
  made.id = "waterfall";
  const words = [`${duration(flow.total_us)} in all`
    + (all > sum ? `, ${duration(all - sum)} of it in no phase.` : ".")];
  if (isBefore && flow.client_tls_us !== undefined)
    words.push("The client's handshake was before that.");
  if (flow.held_us !== undefined) words.push("At which time a message was held is not known.");
  words.push("Phases that did not happen, or were not measured, have no row.");
  return [made, make("p", words.join(" "), "soft")];
}

function rowsOf(fields) {
  return fields.filter(([field]) => flow[field] !== undefined
    && (!TRUTHS.has(field) || flow[field])).map(([field, name]) =>
    [name, TRUTHS.has(field) ? "yes" : String(flow[field])]);
}
function showDecision() {
  const tls = rowsOf(TLS);
  const rows = rowsOf(DECISION), connect = connects.get(tunnelOf(flow));
  if (connect !== undefined && connect !== flow.id)
    rows.push(["opened tunnel", button(`#${connect}`, () => openDetail(connect),
      `the CONNECT, #${connect}`)]);
  return [make("h2", "decision and way"), table(rows), make("h2", "TLS"),
    tls.length ? table(tls) : make("p", "none, or its first bytes were not looked at", "soft")];
}

function showNotes() {
  if (flow.open) return [make("p", "It is still open: notes are for one that has ended.", "soft")];
  const form = make("form"), tag = make("input"), comment = make("textarea");
  const save = make("button", "save"), note = make("span", "", "soft");
  tag.id = "tag";
  tag.maxLength = 64;
  tag.value = flow.tag ?? "";
  comment.id = "comment";
  comment.rows = 6;
  comment.maxLength = 2000;
  comment.value = flow.comment ?? "";
  save.id = "save";
  note.setAttribute("role", "status");
  note.id = "save-note";
  for (const [name, field] of [["tag", tag], ["comment", comment]]) {
    const label = make("label", name + " ");
    field.style.display = "block";
    field.style.width = "100%";
    label.append(field);
    form.append(label);
  }
  const bar = make("div", undefined, "bar");
  bar.append(save, note);
  form.append(bar);
  form.addEventListener("submit", async event => {
    event.preventDefault();
    const marks = {tag: tag.value, comment: comment.value}, of = flow;
    try {
      await ask(`flows/${of.id}`, {method: "PATCH", body: JSON.stringify(marks)});
      Object.assign(of, marks);
      changeFlow(of.id, marks);
      learnOne(marks);
      note.textContent = "saved";
    } catch (error) { note.textContent = error.message; }
  });
  return [form];
}

function startDetail() {
  $("tabs").replaceChildren(...TABS.map(([name, text]) => {
    const node = button(text, () => chooseTab(name));
    node.setAttribute("role", "tab");
    node.setAttribute("aria-controls", "panel");
    node.id = "tab-" + name;
    node.dataset.tab = name;
    return node;
  }));
  $("tabs").addEventListener("keydown", event => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!step) return;
    const at = TABS.findIndex(([name]) => name === tab) + step;
    chooseTab(TABS[(at + TABS.length) % TABS.length][0]);
    $("tab-" + tab).focus();
  });
  $("close").addEventListener("click", closeDetail);
  showTab();
}

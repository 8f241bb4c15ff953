// The live page's table of connections, and how one of them is cut.
//
// Each connection has one row, by its identifier, which is never used again, and a row
// keeps its node. While the pointer or the keyboard's focus is in the table, every row
// keeps its place: new rows are added at the end, and a row whose connection has ended
// shows that in place. A cut is confirmed first, in a dialog that names the connection,
// and cuts the identifier that the dialog showed.
const COLUMNS = [["user", "user"], ["client", "client"], ["method", "method"],
  ["host", "destination"], ["state", "state"], ["age", "age"], ["bytes_up", "up"],
  ["bytes_down", "down"], ["worker", "worker"], ["id", "id"], ["tunnel_protocol", "inside"]];
const NUMBERS = new Set(["age", "bytes_up", "bytes_down", "worker"]);
const ENDED_MS = 4000;          // how long an ended connection's row is shown at least
const MOST_REASONS = 2000, MOST_ROWS = 200;

const rowsByKey = new Map();    // {key, tr, cells, button, one, endedAt}
const reasons = new Map();      // why connections ended, by identifier
let sortBy = "bytes_down", falling = true, alive = new Map(), isMute = () => false;
let pointed = false, asked = null;

const destination = connection => connection.host ? `${connection.host}:${connection.port}` : null;
// Of a tunnel's first bytes; null: they were not looked at
const inside = connection => connection.tunnel_protocol
  ? [connection.tunnel_protocol, connection.sni].filter(Boolean).join(" ") : null;
const hello = connection => [inside(connection),
  connection.tls_version && `TLS ${connection.tls_version}`, connection.alpn, connection.ja4]
  .filter(Boolean).join("\n");

// Takes an answer of /connections. Connections of a worker that did not answer stay.
function takeConnections({connections, unanswered}) {
  const twins = new Map();
  alive = new Map(connections.map(connection => {
    if (connection.id) return [connection.id, connection];
    // No request received yet
    const twin = `${connection.worker} ${connection.client}`;
    twins.set(twin, (twins.get(twin) ?? 0) + 1);
    return [`${twin} ${twins.get(twin)}`, connection];
  }));
  const mute = unanswered.map(name => /^worker (\d+)/.exec(name)?.[1]);
  isMute = connection => mute.some(
    worker => worker === undefined || worker === String(connection.worker));
  const now = performance.now();
  for (const row of rowsByKey.values()) {
    const connection = alive.get(row.key);
    if (connection || isMute(row.connection)) row.endedAt = 0; else row.endedAt ||= now;
    if (connection) row.connection = connection;
  }
}

function noteEnding(record) {
  reasons.set(record.id, record.reason);
  if (reasons.size > MOST_REASONS) reasons.delete(reasons.keys().next().value);
}

function stateOf(row) {
  if (row.endedAt) return `ended: ${reasons.get(row.connection.id) ?? "gone"}`;
  return alive.has(row.key) ? row.connection.state : "no answer";
}

const classOf = field => field === "tunnel_protocol" ? "inside"
  : NUMBERS.has(field) ? `${field} n` : field;
function makeRow(key, connection) {
  const tr = document.createElement("tr"), button = document.createElement("button");
  const cells = COLUMNS.map(([field]) => {
    const td = tr.insertCell();
    td.className = classOf(field);
    return td;
  });
  button.type = "button";
  button.textContent = "cut";
  button.className = "cut";
  tr.insertCell().append(button);
  const row = {key, tr, cells, button, connection, endedAt: 0};
  button.addEventListener("click", () => openQuestion(row));
  return row;
}

function updateRow(row) {
  const connection = row.connection;
  [connection.user, connection.client, connection.method, destination(connection), stateOf(row),
    seconds(connection.age), bytes(connection.bytes_up), bytes(connection.bytes_down),
    connection.worker, connection.id || null, inside(connection)]
    .forEach((value, i) => {
      const text = String(value ?? "–"), cell = row.cells[i];
      const title = cell.className === "inside" ? hello(connection) : text;
      if (cell.textContent !== text) cell.textContent = text;
      if (cell.title !== title) cell.title = title;
    });
  const why = row.endedAt ? "the connection has ended"
    : !connection.id ? "no request received on this connection yet"
    : !isSignedIn() ? "give the admin token above"
    : !rights.includes("operate") ? "this token has no right operate" : "";
  row.tr.classList.toggle("ended", row.endedAt > 0);
  row.tr.classList.toggle("asked", asked === row);
  // Not `disabled`: a disabled button loses the focus
  row.button.setAttribute("aria-disabled", String(why !== ""));
  row.button.title = why;
  row.button.setAttribute("aria-label",
    `cut ${connection.id}, ${connection.user ?? "no user"}, `
      + (destination(connection) ?? "no destination"));
}

function isHeld() {
  const active = document.activeElement;
  return pointed || $("ask").open
    || ($("rows").contains(active) && active.matches(":focus-visible"));
}

function wanted(connection) {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const kind = $("kind").value;
  const {id, user, client, method, state, peer, tunnel_protocol, sni, ja4} = connection;
  const isOfKind = kind ? kind === "any" || connection.kind === kind : connection.kind !== "idle";
  return isOfKind && words.every(word =>
    [id, user, client, method, state, destination(connection), peer, tunnel_protocol, sni, ja4]
      .some(value => String(value ?? "").toLowerCase().includes(word)));
}

// The keys of the rows to show, in order. `resort`: sort even while rows are held in place
function arrange(resort) {
  const chosen = new Map([...alive].filter(([, connection]) => wanted(connection)));
  $("count").textContent = `${chosen.size} of ${alive.size}`
    + (chosen.size > MOST_ROWS ? `, ${MOST_ROWS} shown` : "");
  const held = !resort && isHeld() && rowsByKey.size > 0;
  $("held").textContent = held
    ? "– rows keep their place while the pointer or focus is in the table" : "";
  if (held) {
    const order = [...$("rows").children].map(tr => tr.dataset.key).filter(Boolean);
    const there = new Set(order);
    for (const key of chosen.keys())
      if (!there.has(key) && order.length < MOST_ROWS) order.push(key);
    return order;
  }
  const now = performance.now();
  for (const row of rowsByKey.values()) {       // just ended, or its worker did not answer
    const stays = wanted(row.connection) && (!row.endedAt || now - row.endedAt < ENDED_MS);
    if (stays && !alive.has(row.key)) chosen.set(row.key, row.connection);
  }
  const order = [...chosen].sort(([, a], [, b]) => {
    const x = a[sortBy] ?? "", y = b[sortBy] ?? "";
    return (x < y ? -1 : x > y ? 1 : 0) * (falling ? -1 : 1);
  }).map(([key]) => key);
  return order.slice(0, MOST_ROWS);
}

function showConnections(resort = false) {
  const order = arrange(resort), body = $("rows"), focused = document.activeElement;
  const looked = [...alive.values()].some(connection => connection.tunnel_protocol);
  body.parentNode.classList.toggle("unlooked", !looked);
  const shown = new Set(order), at = [...body.children].findIndex(tr => tr.contains(focused));
  for (const [key, row] of rowsByKey) {
    if (shown.has(key)) continue;
    row.tr.remove();
    rowsByKey.delete(key);
  }
  if (!order.length) {
    if (!body.querySelector("td[colspan]")) fill("rows", [], "none open");
    body.querySelector("td").colSpan = COLUMNS.length + 1;
  } else if (body.firstChild && !body.firstChild.dataset.key) body.replaceChildren();
  let next = body.firstChild;
  for (const key of order) {
    let row = rowsByKey.get(key);
    if (!row) {
      row = makeRow(key, alive.get(key));
      row.tr.dataset.key = key;
      rowsByKey.set(key, row);
    }
    updateRow(row);
    if (row.tr === next) next = next.nextSibling;
    else body.insertBefore(row.tr, next);
  }
  // A moved node loses the focus; the focus of a removed row goes to its neighbour
  if (at >= 0 && document.activeElement !== focused)
    (body.contains(focused) ? focused
      : body.children[Math.min(at, order.length - 1)]?.querySelector("button") ?? $("filter"))
      .focus({preventScroll: true});
  updateQuestion();
}

function makeHeads() {
  $("heads").replaceChildren(...COLUMNS.map(([field]) => {
    const th = document.createElement("th"), button = document.createElement("button");
    button.type = "button";
    button.addEventListener("click", () => {
      falling = field === sortBy ? !falling : NUMBERS.has(field);
      sortBy = field;
      showHeads();
      showConnections(true);
    });
    th.className = classOf(field);
    th.append(button);
    return th;
  }), document.createElement("th"));
}
function showHeads() {
  COLUMNS.forEach(([field, text], i) => {
    const th = $("heads").children[i];
    th.firstChild.textContent = text + (field === sortBy ? falling ? " ↓" : " ↑" : "");
    th.setAttribute("aria-sort", field !== sortBy ? "none"
      : falling ? "descending" : "ascending");
  });
}

// The dialog that confirms a cut

function openQuestion(row) {
  if (row.button.getAttribute("aria-disabled") === "true") {
    $("answer").textContent = row.button.title;
    return;
  }
  asked = row;
  $("ask-id").textContent = row.connection.id;
  $("ask-user").textContent = row.connection.user ?? "none";
  $("ask-host").textContent = destination(row.connection) ?? "none";
  $("ask-client").textContent = row.connection.client;
  $("ask-no").textContent = "keep it";
  $("ask-yes").textContent = `cut ${row.connection.id}`;
  $("ask-note").textContent = "";
  $("ask-yes").setAttribute("aria-disabled", "false");
  const id = row.connection.id;             // this dialog's, even if the row changes
  $("ask-yes").onclick = event => {
    // The second click of a double click in the table does not confirm
    if (event.detail > 1 || $("ask-yes").getAttribute("aria-disabled") === "true") return;
    cut(id);
  };
  updateQuestion();
  $("ask").showModal();
}

function updateQuestion() {
  if (!asked) return;
  const connection = asked.connection;
  $("ask-state").textContent = `${stateOf(asked)}, for ${seconds(connection.age)}`;
  $("ask-moved").textContent = `${bytes(connection.bytes_up)} up, `
    + `${bytes(connection.bytes_down)} down`;
  if (!asked.endedAt) return;
  $("ask-note").textContent = "The connection has already ended: there is nothing to cut.";
  $("ask-no").textContent = "close";
  $("ask-yes").setAttribute("aria-disabled", "true");
}

async function cut(id) {
  $("ask-yes").setAttribute("aria-disabled", "true");
  let result = "no answer";
  try {
    const answer = await fetch("connections?id=" + encodeURIComponent(id), {
      method: "DELETE", headers: sessionFields()});
    if (answer.status === 401) setRights(null);
    if (answer.ok) {
      const {cut, unanswered} = await answer.json();
      result = [cut ? `${id} was cut` : `${id} had already ended`,
        ...unanswered.map(worker => `${worker} does not answer`)].join("; ");
    } else result = (await answer.text()).trim();
  } catch { /* no answer */ }
  $("answer").textContent = result;
  $("ask").close();
  look();
}
$("ask-no").addEventListener("click", () => $("ask").close());
$("ask").addEventListener("close", () => {
  const row = asked;
  asked = null;
  if (row?.tr.isConnected) row.button.focus({preventScroll: true});
  showConnections();
});

// A mouse pointer stays over the table; a finger does not
$("rows").addEventListener("pointerenter", event => {
  pointed = event.pointerType === "mouse";
});
$("rows").addEventListener("pointerleave", () => { pointed = false; });
$("rows").addEventListener("keydown", event => {
  if (event.key === "Escape") document.activeElement.blur();
  const step = {ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling"}[event.key];
  if (!step) return;
  event.preventDefault();
  event.target.closest("tr")[step]?.querySelector("button")?.focus();
});
for (const id of ["filter", "kind"])
  $(id).addEventListener("input", () => showConnections(true));
$("tools").addEventListener("submit", event => event.preventDefault());
makeHeads();

// The list of flows, newest first: any number of rows, of which those in view have nodes.
//
// `newer` grows with what arrives, `older` with the pages read backwards, both at their
// ends. A flow's sequence number (how many of `newer` came before it, or -1 - its place in
// `older`) never changes, and neither does the node that shows it while it is in view.
// `newerShown` and `olderShown` are the numbers of those that have a row: the CONNECT of an
// opened tunnel has none, because the requests inside have rows, unless all are asked for.
// The oldest flows beyond MOST_ROWS leave, some at a time: `newerFrom` of `newer` have left.
const MOST_ROWS = 200000, LEAVE_ROWS = 2000, SPARE = 6, ROW = 24, TWO_LINES = 46, NARROW = 480;
const COLUMNS = [["time", "time"], ["method", "method"], ["status", "status"], ["url", "URL"],
  ["reason", "reason"], ["type", "type"], ["bytes", "bytes"], ["ms", "ms"], ["user", "user"],
  ["tag", "tag"]];
const NUMBERS = new Set(["status", "bytes", "ms"]);
// Parts of a cell: some are not shown if there is no room
const PARTS = {url: ["scheme", "host", "path"], time: ["second", "fraction"]};
// Columns that are there if a row has something in them
const OPTIONAL = ["reason", "type", "user", "tag"];

let newer = [], newerFrom = 0, older = [], newerShown = [], olderShown = [], folded = 0, isUnfolded = false;
let isTrimmed = false;           // some flows have left the list, or were not read
let missing = [...OPTIONAL];     // columns without anything in them so far
let pool = [], chosen = null, dirty = true, spaceRows = -1, rowHeight = ROW, headHeight = 26;
const byId = new Map();         // flows shown in the list, folded ones too
const connects = new Map();     // the number of the CONNECT, by the client's address and port

function bytes(n) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (n < 1000) return (n < 10 && unit !== "B" ? n.toFixed(1) : Math.round(n)) + " " + unit;
    n /= 1000;
  }
  return n.toFixed(1) + " TB";
}
const total = () => newerShown.length + olderShown.length;
const seqAt = i => i < newerShown.length ? newerShown[newerShown.length - 1 - i]
  : olderShown[i - newerShown.length];
// Where the row is, or would be
function indexOf(seq) {
  const all = seq < 0 ? olderShown : newerShown;
  const is = seq < 0 ? other => other > seq : other => other < seq;
  let low = 0, high = all.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (is(all[middle])) low = middle + 1; else high = middle;
  }
  return seq < 0 ? newerShown.length + low : newerShown.length - 1 - low;
}
const flowOf = seq => seq < 0 ? older[-1 - seq] : newer[seq - newerFrom];
const CELLS = {
  time: flow => flow.time.slice(11, 23), bytes: flow => bytes(flow.bytes),
  ms: flow => flow.open ? Math.round(openFor(flow) / 1000) + " s" : flow.ms < 100
    ? flow.ms.toFixed(1) : flow.ms < 10000 ? String(Math.round(flow.ms))
      : Math.round(flow.ms / 1000) + " s",
  tag: flow => flow.tag ?? (flow.open ? "open" : ""),
  status: flow => flow.status ?? (flow.fault === undefined ? "" : "–"),
  reason: flow => flow.reason === "ok" ? "" : flow.reason ?? ""};
const cell = (flow, field) => String((CELLS[field] ?? (row => row[field] ?? ""))(flow));

// SOCKS and transparent listeners have no CONNECT. A request inside may have any method, and its
// URL has a scheme
const OPENING = new Set(["CONNECT", "SOCKS5", "SOCKS4", "TUNNEL"]);
const isOpened = flow => Boolean(flow.intercepted && OPENING.has(flow.method)
  && !flow.url?.includes("://"));
// Of an opened tunnel with requests inside, and it went well: they tell the rest. If what is
// inside is no HTTP, its kind is tunnel
const isFolded = flow => Boolean(!isUnfolded && isOpened(flow)
  && flow.kind === "request" && flow.fault === undefined);
const tunnelOf = flow => flow.intercepted && flow.client_port ? `${flow.client} ${flow.client_port}`
  : null;

function clearList() {
  newer = [];
  newerFrom = 0;
  older = [];
  isTrimmed = false;
  newerShown = [];
  olderShown = [];
  folded = 0;
  byId.clear();
  connects.clear();
  openNow.clear();
  chosen = null;
  for (const field of OPTIONAL) $("list").classList.remove("has-" + field);
  missing = [...OPTIONAL];
  for (const node of pool) node.seq = null;
  $("list").scrollTop = 0;
  dirty = true;
}
function index(flow, seq) {
  byId.set(flow.id, seq);
  if (isOpened(flow) && tunnelOf(flow)) connects.set(tunnelOf(flow), flow.id);
  if (isFolded(flow)) folded++;
  else (seq < 0 ? olderShown : newerShown).push(seq);
  noteColumns(flow);
}
function noteColumns(flow) {
  for (const field of missing) {
    if (!cell(flow, field)) continue;
    $("list").classList.add("has-" + field);
    missing = missing.filter(name => name !== field);
  }
}
function addOlder(flows) {
  for (const flow of flows) {
    if (byId.has(flow.id)) continue;
    older.push(flow);
    index(flow, -older.length);
  }
  dirty = true;
}
function addNewer(flows) {
  const list = $("list"), before = newerShown.length;
  for (const flow of flows) {
    if (byId.has(flow.id) || (!flow.open && settle(flow))) continue;
    newer.push(flow);
    index(flow, newerFrom + newer.length - 1);
  }
  // Who has scrolled away keeps the same rows in view
  if (list.scrollTop >= rowHeight) {
    resize();
    list.scrollTop += (newerShown.length - before) * rowHeight;
  }
  trim();
  dirty = true;
}
function forget(flow) {
  byId.delete(flow.id);
  if (connects.get(tunnelOf(flow)) === flow.id) connects.delete(tunnelOf(flow));
  isTrimmed = true;
}
function trim() {
  while (newer.length + older.length > MOST_ROWS && older.length) {
    forget(older.pop());
    if (olderShown.at(-1) === -1 - older.length) olderShown.pop();
  }
  // All of `newer` moves: not for each flow
  if (newer.length > MOST_ROWS + LEAVE_ROWS) {
    for (const flow of newer.splice(0, newer.length - MOST_ROWS)) {
      forget(flow);
      newerFrom++;
    }
    newerShown = newerShown.filter(seq => seq >= newerFrom);
  }
  folded = newer.length + older.length - total();
}
// Shows each CONNECT, or folds those that can be; the row at the top stays there
function foldConnects(unfold) {
  const list = $("list"), top = Math.floor(list.scrollTop / rowHeight);
  const anchor = top && top < total() ? seqAt(top) : null;
  isUnfolded = unfold;
  newerShown = [...newer.keys()].filter(i => !isFolded(newer[i])).map(i => newerFrom + i);
  olderShown = [...older.keys()].filter(i => !isFolded(older[i])).map(i => -1 - i);
  folded = newer.length + older.length - total();
  for (const node of pool) node.at = null;
  if (anchor !== null) {
    resize();
    list.scrollTop += (indexOf(anchor) - top) * rowHeight;
  }
  dirty = true;
}
function showFolded() {
  const text = isUnfolded ? "fold CONNECTs" : `+ ${folded.toLocaleString("en")} CONNECT`;
  $("connects").hidden = !folded && !isUnfolded;
  $("connects").setAttribute("aria-pressed", String(isUnfolded));
  if ($("connects").textContent !== text) $("connects").textContent = text;
}
// Replaces what is known of a flow; null: it is deleted, and its row says so
function changeFlow(id, fields) {
  const seq = byId.get(id);
  if (seq === undefined) return;
  const flow = fields ? {...flowOf(seq), ...fields} : {...flowOf(seq), tag: "deleted", gone: true};
  putFlow(seq, flow);
}
function putFlow(seq, flow) {
  const isMoved = isFolded(flowOf(seq)) !== isFolded(flow);
  if (seq < 0) older[-1 - seq] = flow; else newer[seq - newerFrom] = flow;
  noteColumns(flow);
  if (isMoved) foldConnects(isUnfolded);
  dirty = true;
}

function resize() {
  if (spaceRows === total()) return;
  spaceRows = total();
  $("space").style.height = spaceRows * rowHeight + "px";
  $("list").setAttribute("aria-rowcount", spaceRows + 1);
}
// A narrow list has rows of two lines, and no heads
function measure() {
  const list = $("list"), isNarrow = list.clientWidth <= NARROW, before = rowHeight;
  rowHeight = isNarrow ? TWO_LINES : ROW;
  list.classList.toggle("narrow", isNarrow);
  headHeight = $("heads").offsetHeight;
  if (rowHeight !== before) {
    spaceRows = -1;
    for (const node of pool) node.at = null;
    const top = list.scrollTop / before;
    resize();
    list.scrollTop = top * rowHeight;
  }
  mark();
}
function makeNode() {
  const node = document.createElement("div");
  node.className = "row";
  node.setAttribute("role", "row");
  for (const [i, [field]] of COLUMNS.entries()) {
    const part = document.createElement("span");
    part.setAttribute("role", "gridcell");
    part.setAttribute("aria-colindex", i + 1);
    part.className = NUMBERS.has(field) ? `${field} n` : field;
    if (PARTS[field]) part.append(...PARTS[field].map(name => make("span", "", name)));
    node.append(part);
  }
  node.seq = node.flow = node.at = null;
  $("space").append(node);
  return node;
}
// The path is cut first if there is no room. https is usual
function showUrl(part, url) {
  if (part.title === url) return;
  const [, scheme, host, path] = /^([a-z][a-z0-9+.-]*:\/\/)?([^/?#]*)(.*)$/is.exec(url);
  part.title = url;
  showParts(part, [scheme ?? "", host, path]);
  part.children[0].className = scheme === "https://" ? "scheme usual" : "scheme";
}
function showParts(part, texts) {
  texts.forEach((text, i) => {
    if (part.children[i].textContent !== text) part.children[i].textContent = text;
  });
}
function showNode(node, seq) {
  const flow = flowOf(seq), at = indexOf(seq);
  if (node.at !== at) {
    node.at = at;
    node.style.transform = `translateY(${at * rowHeight}px)`;
    node.setAttribute("aria-rowindex", at + 2);
  }
  if (node.seq !== seq || node.flow !== flow || flow.open) {
    node.seq = seq;
    node.flow = flow;
    node.id = "flow-" + flow.id;
    node.hidden = false;
    COLUMNS.forEach(([field], i) => {
      const text = cell(flow, field), part = node.children[i];
      if (field === "url") return showUrl(part, text);
      if (field === "time") return showParts(part, [text.slice(0, 8), text.slice(8)]);
      if (part.textContent === text) return;
      part.textContent = text;
      if (field === "ms") part.classList.toggle("in-seconds", text.endsWith("s"));
      if (field === "reason") part.title = MEANINGS[text] ?? "";
    });
    node.classList.toggle("open", flow.open === true);
    node.classList.toggle("error", flow.status >= 400 || flow.status === undefined);
    node.classList.toggle("of-client", flow.fault === "client");
  }
  const isChosen = flow.id === chosen;
  if (node.wasChosen !== isChosen) {
    node.wasChosen = isChosen;
    node.classList.toggle("chosen", isChosen);
    node.setAttribute("aria-selected", String(isChosen));
  }
}
const rowsInView = () => Math.ceil($("list").clientHeight / rowHeight) + 2 * SPARE;
function render() {
  dirty = false;
  resize();
  const list = $("list"), height = list.clientHeight;
  const first = Math.max(0, Math.floor((list.scrollTop - headHeight) / rowHeight) - SPARE);
  const last = Math.min(total(), Math.ceil((list.scrollTop + height) / rowHeight) + SPARE);
  const wanted = rowsInView() + 3;
  while (pool.length < wanted) pool.push(makeNode());
  const shown = new Set();
  for (let i = first; i < last; i++) {
    const seq = seqAt(i), size = pool.length;
    const node = pool[((seq % size) + size) % size];
    showNode(node, seq);
    shown.add(node);
  }
  for (const node of pool) {
    if (shown.has(node) || node.hidden) continue;
    node.hidden = true;
    node.seq = node.flow = node.at = null;
    node.removeAttribute("id");
  }
  const active = chosen !== null && [...shown].some(node => node.flow.id === chosen);
  if (active) list.setAttribute("aria-activedescendant", "flow-" + chosen);
  else list.removeAttribute("aria-activedescendant");
  showCount();
  showFolded();
  showNothing();
}
function frame() {
  if (dirty) render();
  requestAnimationFrame(frame);
}
function mark() { dirty = true; }

function choose(i, open = true) {
  if (!total()) return;
  i = Math.max(0, Math.min(total() - 1, i));
  const list = $("list"), top = i * rowHeight, height = list.clientHeight - headHeight;
  chosen = flowOf(seqAt(i)).id;
  if (top < list.scrollTop) list.scrollTop = top;
  else if (top + rowHeight > list.scrollTop + height)
    list.scrollTop = top + rowHeight - height;
  // At once, and not in the next frame, which may be 16 ms away
  for (const node of pool)
    if (node.flow && node.wasChosen !== (node.flow.id === chosen)) showNode(node, node.seq);
  dirty = true;
  if (open) openDetail(chosen);
}
const chosenIndex = () => byId.has(chosen) ? indexOf(byId.get(chosen)) : -1;

function startList() {
  $("heads").replaceChildren(...COLUMNS.map(([field, text], i) => {
    const part = document.createElement("span");
    part.setAttribute("role", "columnheader");
    part.setAttribute("aria-colindex", i + 1);
    part.textContent = text;
    part.className = NUMBERS.has(field) ? `${field} n` : field;
    return part;
  }));
  $("list").addEventListener("scroll", mark, {passive: true});
  new ResizeObserver(measure).observe($("list"));
  $("connects").addEventListener("click", () => foldConnects(!isUnfolded));
  $("space").addEventListener("click", event => {
    const node = event.target.closest(".row");
    if (node?.flow) choose(indexOf(node.seq));
  });
  $("list").addEventListener("keydown", event => {
    const page = Math.max(1, Math.floor($("list").clientHeight / rowHeight) - 2), at = chosenIndex();
    const to = {ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page,
      Home: 0, End: total() - 1}[event.key];
    if (event.key === "Enter" && chosen !== null) {
      event.preventDefault();
      openDetail(chosen);
      $("detail").focus();
    } else if (to !== undefined && !event.ctrlKey && !event.altKey && !event.metaKey) {
      event.preventDefault();
      choose(to, false);
      openSoon();
    }
  });
  requestAnimationFrame(frame);
}
// Held keys open the flow at which they stop
let opening = 0;
function openSoon() {
  clearTimeout(opening);
  opening = setTimeout(() => openDetail(chosen), 150);
}

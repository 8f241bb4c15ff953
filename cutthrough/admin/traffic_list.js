// The list of flows, newest first: any number of rows, of which those in view have nodes.
//
// `newer` grows with what arrives, `older` with the pages read backwards, both at their
// ends. A flow's sequence number (its place in `newer`, or -1 - its place in `older`)
// never changes, and neither does the node that shows it while it is in view.
const ROW = 24, MOST_ROWS = 200000, SPARE = 6;
const COLUMNS = [["time", "time"], ["method", "method"], ["status", "status"], ["url", "URL"],
  ["type", "type"], ["bytes", "bytes"], ["ms", "ms"], ["user", "user"], ["tag", "tag"]];
const NUMBERS = new Set(["status", "bytes", "ms"]);

let newer = [], older = [], pool = [], chosen = null, dirty = true, spaceRows = -1;
const byId = new Map();         // flows shown in the list

function bytes(n) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (n < 1000) return (n < 10 && unit !== "B" ? n.toFixed(1) : Math.round(n)) + " " + unit;
    n /= 1000;
  }
  return n.toFixed(1) + " TB";
}
const total = () => newer.length + older.length;
const seqAt = i => newer.length - 1 - i;
const indexOf = seq => newer.length - 1 - seq;
const flowOf = seq => seq < 0 ? older[-1 - seq] : newer[seq];
const CELLS = {
  time: flow => flow.time.slice(11, 23), bytes: flow => bytes(flow.bytes),
  ms: flow => flow.open ? Math.round(openFor(flow) / 1000) + " s"
    : flow.ms < 100 ? flow.ms.toFixed(1) : String(Math.round(flow.ms)),
  tag: flow => flow.tag ?? (flow.open ? "open" : ""),
  status: flow => flow.status ?? (flow.fault === undefined ? "" : "–")};
const cell = (flow, field) => String((CELLS[field] ?? (one => one[field] ?? ""))(flow));

function clearList() {
  newer = [];
  older = [];
  byId.clear();
  openNow.clear();
  chosen = null;
  for (const node of pool) node.seq = null;
  $("list").scrollTop = 0;
  dirty = true;
}
function addOlder(flows) {
  for (const flow of flows) {
    if (byId.has(flow.id)) continue;
    older.push(flow);
    byId.set(flow.id, -older.length);
  }
  dirty = true;
}
function addNewer(flows) {
  const list = $("list"), before = newer.length;
  for (const flow of flows) {
    if (byId.has(flow.id) || (!flow.open && settle(flow))) continue;
    newer.push(flow);
    byId.set(flow.id, newer.length - 1);
  }
  // Who has scrolled away keeps the same rows in view
  if (list.scrollTop >= ROW) {
    resize();
    list.scrollTop += (newer.length - before) * ROW;
  }
  while (total() > MOST_ROWS && older.length) byId.delete(older.pop().id);
  dirty = true;
}
// Replaces what is known of a flow; null: it is deleted, and its row says so
function changeFlow(id, fields) {
  const seq = byId.get(id);
  if (seq === undefined) return;
  const flow = fields ? {...flowOf(seq), ...fields} : {...flowOf(seq), tag: "deleted", gone: true};
  if (seq < 0) older[-1 - seq] = flow; else newer[seq] = flow;
  dirty = true;
}

function resize() {
  if (spaceRows === total()) return;
  spaceRows = total();
  $("space").style.height = spaceRows * ROW + "px";
  $("list").setAttribute("aria-rowcount", spaceRows + 1);
}
function makeNode() {
  const node = document.createElement("div");
  node.className = "row";
  node.setAttribute("role", "row");
  for (const [i, [field]] of COLUMNS.entries()) {
    const part = document.createElement("span");
    part.setAttribute("role", "gridcell");
    part.setAttribute("aria-colindex", i + 1);
    if (NUMBERS.has(field)) part.className = "n";
    node.append(part);
  }
  node.seq = node.flow = node.at = null;
  $("space").append(node);
  return node;
}
function showNode(node, seq) {
  const flow = flowOf(seq), at = indexOf(seq);
  if (node.at !== at) {
    node.at = at;
    node.style.transform = `translateY(${at * ROW}px)`;
    node.setAttribute("aria-rowindex", at + 2);
  }
  if (node.seq !== seq || node.flow !== flow || flow.open) {
    node.seq = seq;
    node.flow = flow;
    node.id = "flow-" + flow.id;
    node.hidden = false;
    COLUMNS.forEach(([field], i) => {
      const text = cell(flow, field), part = node.children[i];
      if (part.textContent !== text) part.textContent = text;
    });
    node.classList.toggle("open", flow.open === true);
    node.classList.toggle("failed", flow.fault !== undefined || flow.status >= 400);
  }
  const isChosen = flow.id === chosen;
  if (node.wasChosen !== isChosen) {
    node.wasChosen = isChosen;
    node.classList.toggle("chosen", isChosen);
    node.setAttribute("aria-selected", String(isChosen));
  }
}
function render() {
  dirty = false;
  resize();
  const list = $("list"), height = list.clientHeight;
  const first = Math.max(0, Math.floor((list.scrollTop - 26) / ROW) - SPARE);
  const last = Math.min(total(), Math.ceil((list.scrollTop + height) / ROW) + SPARE);
  const wanted = Math.ceil(height / ROW) + 2 * SPARE + 3;
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
}
function frame() {
  if (dirty) render();
  requestAnimationFrame(frame);
}
function mark() { dirty = true; }

function choose(i, open = true) {
  if (!total()) return;
  i = Math.max(0, Math.min(total() - 1, i));
  const list = $("list"), top = i * ROW, height = list.clientHeight - 26;
  chosen = flowOf(seqAt(i)).id;
  if (top < list.scrollTop) list.scrollTop = top;
  else if (top + ROW > list.scrollTop + height) list.scrollTop = top + ROW - height;
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
    if (NUMBERS.has(field)) part.className = "n";
    return part;
  }));
  $("list").addEventListener("scroll", mark, {passive: true});
  addEventListener("resize", mark);
  new ResizeObserver(mark).observe($("list"));
  $("space").addEventListener("click", event => {
    const node = event.target.closest(".row");
    if (node?.flow) choose(indexOf(node.seq));
  });
  $("list").addEventListener("keydown", event => {
    const page = Math.max(1, Math.floor($("list").clientHeight / ROW) - 2), at = chosenIndex();
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

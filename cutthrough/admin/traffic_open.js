// Flows that have not ended: rows of the list that change, until they end and get their numbers.
// Until then their `id` is the log's identifier, a string.
const openNow = new Set();      // these identifiers
let tail = null;                // stops the stream of messages

setInterval(() => { if (openNow.size) mark(); }, 1000);

const pathOf = id => typeof id === "string" ? `flows/open/${id}` : `flows/${id}`;
const openFor = entry => entry.ms + performance.now() - entry.seenAt;

// An event "open". The first one of a stream has all of them
function takeOpen({rows, gone, all}) {
  const there = new Set(rows.map(row => row.request)), fresh = [];
  if (all) gone = [...openNow].filter(id => !there.has(id));
  for (const row of rows.toReversed()) {        // they come with the newest first
    const entry = {...row, id: row.request, seenAt: performance.now()};
    openNow.add(entry.id);
    if (byId.has(entry.id)) changeFlow(entry.id, entry);
    else fresh.push(entry);
  }
  addNewer(fresh);
  for (const id of gone) {                      // its row may come later, or never
    openNow.delete(id);
    changeFlow(id, {open: false, tag: "ended"});
  }
  const changed = rows.find(row => row.request === flow?.id);
  if (changed && changed.status !== flow.status) openDetail(flow.id);
}
// Puts a flow that has ended in the place that it had. False: it had none
function settle(entry) {
  const seq = byId.get(entry.request);
  if (seq === undefined) return false;
  putFlow(seq, entry);
  byId.delete(entry.request);
  byId.set(entry.id, seq);
  openNow.delete(entry.request);
  if (chosen === entry.request) chosen = entry.id;
  if (wanted === entry.request) openDetail(entry.id);
  return true;
}
// Says so, if what was asked for needs a flow that has ended
function isTooEarly() {
  if (flow?.open) $("note").textContent = "it is still open: this takes one that has ended";
  return Boolean(flow?.open);
}

function stopTail() {
  tail?.abort();
  tail = null;
}
// The messages of an open flow, as they come
function showTail() {
  stopTail();
  const mine = tail = new AbortController(), title = make("h2", "no messages so far");
  const place = make("div");
  let parts = null, n = 0;
  const options = {signal: mine.signal, headers: sessionFields()};
  readEvents(`${pathOf(flow.id)}/live?view=json`, options, (name, messages) => {
    if (name || !messages.length) return;
    n += messages.length;
    title.textContent = `${n} messages so far`;
    if (parts) return parts.push(messages);
    parts = messageTable(messages);
    place.replaceChildren(...parts.nodes);
  }).catch(error => {
    if (!mine.signal.aborted) place.append(make("p", error.message, "bad"));
  });
  return [title, place];
}

// What ties the parts together: the token, loading, the live stream, exports, deletions.
const PAGE = 5000, AGAIN_MS = 3000, LOST_MS = 5000, MOST_IMPORT_MIB = 64;
const LOST = ["dropped", "unwritten", "failed", "partial"];
let loading = new AbortController(), applied = {filter: "", search: ""}, complete_ = false;
let isNotCaptured = false;

class Refusal extends Error {
  constructor(status, text) {
    super(text || `status ${status}`);
    this.status = status;
  }
}
async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, {...options, headers: sessionFields()});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, "no answer");
  }
  if (answer.status === 401 && isSignedIn()) setRights(null);
  if (!answer.ok) throw new Refusal(answer.status, (await answer.text()).trim());
  return answer;
}
function showState(text, isBad = false) {
  if ($("state").textContent !== text) $("state").textContent = text;
  $("state").className = isBad ? "bad" : "";
}
function showCount() {
  const text = `${isTrimmed ? "newest " : ""}${total().toLocaleString("en")} `
    + (total() === 1 ? "flow" : "flows")
    + (complete_ ? "" : " …");
  if ($("count").textContent !== text) $("count").textContent = text;
}
const query = fields => new URLSearchParams(Object.entries(fields).filter(([, value]) =>
  value !== "" && value !== undefined)).toString();

// Loads those in view, follows what is captured from then on, and reads back to the oldest
async function reload() {
  loading.abort();
  const mine = loading = new AbortController();
  clearList();
  complete_ = isNotCaptured = false;
  $("filter-error").textContent = "";
  $("filter").removeAttribute("aria-invalid");
  if (!isSignedIn()) {
    forgetWhole();
    return showState("enter the admin token");
  }
  const early = showLocally();
  showState("loading");
  showLost(mine);
  try {
    let page = await readPage(mine, {limit: rowsInView()}, early);
    if (applied.search) showState("search results; not live");
    else follow(mine, page.newest);
    while (page.next && total() < MOST_ROWS)
      page = await readPage(mine, {limit: PAGE, before: page.next});
    complete_ = true;
    if (page.next) isTrimmed = true;
    mark();
  } catch (error) {
    if (mine.signal.aborted) return;
    if (error.status === 400) {
      $("filter-error").textContent = error.message;
      $("filter").setAttribute("aria-invalid", "true");
      showState("the filter cannot be read", true);
    } else {
      isNotCaptured = error.status === 404;
      mark();
      showState(error.message, true);
      if (error.status === 0 || error.status >= 500) again(mine, reload);
    }
  }
}
// How many captured requests the list cannot have
async function showLost(mine) {
  try {
    const counts = await (await ask("flows/counts", {signal: mine.signal})).json();
    const text = LOST.filter(name => counts[name])
      .map(name => `${counts[name].toLocaleString("en")} ${name}`).join(", ");
    if ($("lost").textContent !== text) $("lost").textContent = text;
  } catch { /* the list says what is wrong */ }
  setTimeout(() => { if (!mine.signal.aborted) showLost(mine); }, LOST_MS);
}
async function readPage(mine, fields, early = []) {
  const page = await (await ask("flows?" + query({...applied, ...fields}),
    {signal: mine.signal})).json();
  if (mine.signal.aborted) throw new DOMException("", "AbortError");
  learn(page.flows);
  if (early.length) confirmRows(early, page.flows);
  addOlder(page.flows);
  return page;
}
function again(mine, what) {
  setTimeout(() => { if (!mine.signal.aborted) what(); }, AGAIN_MS);
}
// The stream of new flows, and of open ones
async function follow(mine, after) {
  let last = after;
  try {
    await readEvents("flows/live?" + query({filter: applied.filter, after, open: true}),
      {signal: mine.signal, headers: sessionFields()}, (name, batch) => {
        if (name === "open") return takeOpen(batch);
        last = batch.at(-1).id;
        learn(batch);
        addNewer(batch);
      }, () => showState("live"));
  } catch { /* gone, or replaced */ }
  if (mine.signal.aborted) return;
  showState("not live; reconnecting", true);
  again(mine, () => follow(mine, last));
}

async function save(path, name) {
  try {
    const blob = await (await ask(path)).blob(), link = make("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    return `${name}: ${bytes(blob.size)}`;
  } catch (error) { return error.message; }
}
// Adds the exchanges of a HAR or a dump to the database
async function importFile(file) {
  let text;
  try {
    // Refused before it is sent: the listener would hang up in the middle
    if (file.size > MOST_IMPORT_MIB << 20) throw new Error(
      `longer than ${MOST_IMPORT_MIB} MiB: use cutthrough flows import, which takes more`);
    showState(`importing ${file.name}`);
    const result = await (await ask("flows/import?" + query({name: file.name.slice(0, 200)}),
      {method: "POST", body: file})).json();
    text = `${result.imported} imported, ${result.known} were there, ${result.refused} refused`;
    if (result.reasons.length) text += `: ${result.reasons[0]}`;
  } catch (error) { text = error.message; }
  await reload();
  $("filter-error").textContent = `${file.name}: ${text}`;
}
// Deletes after a question: one flow, or all that the applied filter selects
function askRemoval(what, path, after) {
  $("remove-what").textContent = what;
  $("remove-yes").onclick = async event => {
    if (event.detail > 1) return;       // a double click is no answer
    $("remove-dialog").close();
    try {
      const {deleted} = await (await ask(path, {method: "DELETE"})).json();
      forgetWhole();
      after(`${deleted} deleted`);
    } catch (error) { after(error.message); }
  };
  $("remove-dialog").showModal();
}
function removeAll() {
  if (applied.search) return showState("delete works with a filter, not with a search", true);
  askRemoval(applied.filter ? `All flows that pass ${applied.filter}, in view or not.`
    : "All flows.", "flows?" + query(applied.filter ? {filter: applied.filter} : {all: "true"}),
  async text => { closeDetail(); await reload(); $("filter-error").textContent = text; });
}

startList();
startFilter();
startDetail();
startSend();
startHolds();
startKeys();
readOverview();
$("tools").addEventListener("submit", event => {
  event.preventDefault();
  hideHints();
  keepWhole();
  applied = {filter: $("filter").value.trim(), search: $("search").value.trim()};
  reload();
});
startSession(text => { if (text) showState(text, true); });
onSession = reload;
// On a phone, search and the less frequent tools wait behind it
$("more").addEventListener("click", () => {
  $("more").setAttribute("aria-expanded", String($("tools").classList.toggle("open")));
});
$("summary").addEventListener("click", showSummary);
$("compose").addEventListener("click", compose);
$("replay").addEventListener("click", () => replay());
$("compare").addEventListener("click", compare);
$("copy").addEventListener("change", () => {
  copyAs($("copy").value);
  $("copy").value = "";
});
$("text-copy").addEventListener("click", copyText);
$("send-form").addEventListener("submit", event => {
  event.preventDefault();
  sendNow();
});
$("har").addEventListener("click", async () => {
  const text = await save("flows.har?" + query({filter: applied.filter}), "flows.har");
  $("filter-error").textContent = text.startsWith("flows.har: ") ? "" : text;
});
$("import").addEventListener("click", () => $("import-file").click());
$("import-file").addEventListener("change", async () => {
  const [file] = $("import-file").files;
  if (file) await importFile(file);
  $("import-file").value = "";          // the same file can be chosen again
});
$("one-har").addEventListener("click", async () => {
  if (flow && !isTooEarly()) $("note").textContent = await save(`flows.har?id=${flow.id}`, `flow-${flow.id}.har`);
});
$("remove").addEventListener("click", removeAll);
$("remove-one").addEventListener("click", () => {
  if (!flow || isTooEarly()) return;
  const {id, url} = flow;
  askRemoval(`#${id} ${url}`, `flows/${id}`, text => {
    changeFlow(id, null);
    $("note").textContent = text;
  });
});
for (const node of document.querySelectorAll("[data-closes]"))
  node.addEventListener("click", () => $(node.dataset.closes).close());

// `cutthrough inspect` prints an address with the secrets behind #, where no server sees them
async function takeSecrets() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (!given.has("token")) return resume();
  history.replaceState(null, "", location.pathname);
  $("send-user").value = given.get("user") ?? "";
  $("send-password").value = given.get("password") ?? "";
  const refusal = await signIn(given.get("token"));
  if (refusal) showState(refusal, true);
}
addEventListener("hashchange", takeSecrets);
takeSecrets();

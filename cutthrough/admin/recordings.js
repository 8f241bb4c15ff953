const LOOK_MS = 2000, PAGE = 100, DAY_S = 86400;
let shown = "", opened = null, next = null, rows = [], inForce = "";
let timer = 0, seen = {}, sessions = [];

async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, {...options, headers: sessionFields()});
  } catch { throw new Error("no answer"); }
  if (answer.status === 401) setRights(null);
  if (!answer.ok) throw new Error((await answer.text()).trim() || `status ${answer.status}`);
  return answer.json();
}
function make(tag, text = "", className = "") {
  const node = document.createElement(tag);
  node.textContent = text;
  node.className = className;
  return node;
}
function button(text, action, className = "link") {
  const node = make("button", text, className);
  node.type = "button";
  node.addEventListener("click", action);
  return node;
}
function cell(content, className = "") {
  const node = make("td", "", className);
  node.append(content);
  return node;
}
function fill(id, all) {
  $(id).tBodies[0].replaceChildren(...all);
  $(id).hidden = !all.length;
  $(`no-${id}`).hidden = !!all.length;
}
// A table stays as it is while nothing changes: a button is there while it is clicked
function isNew(name, value) {
  const text = JSON.stringify(value);
  if (seen[name] === text) return false;
  seen[name] = text;
  return true;
}
function say(text, isBad = false, id = "note") {
  $(id).textContent = text;
  $(id).className = isBad ? "bad" : "";
}
const time = (us, seconds = us / 1e6) => new Date(seconds * 1000).toLocaleString("sv");
const place = (name, number) => `sessions/${encodeURIComponent(name)}`
  + (number === undefined ? "" : `/${number}`);

// What is in force, the sessions and the misses; again after a while
async function look() {
  clearTimeout(timer);
  if (!isSignedIn()) return say("enter the admin token", false, "state");
  try {
    const [answer, replays] = await Promise.all([ask("sessions"), ask("replays")]);
    if ($("state").textContent !== "live") say("live", false, "state");
    inForce = answer.session;
    if (isNew("force", [answer.mode, answer.session])) {
      $("mode").value = answer.mode;
      $("session").value = answer.session;
    }
    if (isNew("sessions", answer)) showSessions(answer);
    if (isNew("misses", [replays.misses, inForce])) showMisses(replays.misses);
    if (shown && rows.length <= PAGE) await read();
  } catch (error) { say(error.message, true, "state"); }
  clearTimeout(timer);
  timer = setTimeout(look, LOOK_MS);
}
function showSessions(answer) {
  sessions = answer.sessions;
  $("names").replaceChildren(...answer.sessions.map(session => {
    const node = make("option");
    node.value = session.name;
    return node;
  }));
  fill("sessions", answer.sessions.map(session => {
    const row = make("tr"), remove = button("delete", () => ifSure(
      `Delete the session ${session.name} with ${session.recordings ?? "its"} recordings?`,
      () => removeSession(session)), "danger");
    remove.setAttribute("aria-label", `delete session ${session.name}`);
    row.dataset.session = session.name;
    if (session.name === shown) row.className = "chosen";
    row.append(cell(button(session.name, () => choose(session.name))),
      cell(session.error ? "-" : session.recordings.toLocaleString("en"), "n"),
      cell(session.error ? "-" : session.bytes.toLocaleString("en"), "n"),
      cell(session.error ? "-" : time(session.created_us)), cell(boundsOf(session) || "-"),
      cell(session.error || (session.name === answer.session ? "in force" : session.comment || "")),
      cell(remove));
    return row;
  }));
}
const boundsOf = session => [session.count ? session.count.toLocaleString("en") : "",
  session.age_s ? `${(session.age_s / DAY_S).toLocaleString("en")} d` : ""].filter(Boolean).join(", ");
function showMisses(misses) {
  fill("misses", misses.map(miss => {
    const row = make("tr"), list = make("ul");
    list.append(...miss.differences.map(text => make("li", text)));
    row.append(cell(time(0, miss.at)), cell(`${miss.method} ${miss.url} (${miss.id})`),
      cell(miss.nearest ? button(`${miss.nearest}: ${miss.nearest_method} ${miss.nearest_url}`,
        () => open_(inForce, miss.nearest)) : "-"),
      cell(miss.differences.length ? list : miss.reason));
    return row;
  }));
}
function choose(name) {
  shown = name;
  $("search").value = "";
  $("content").hidden = false;
  $("content-title").textContent = `Recordings of ${name}`;
  const session = sessions.find(each => each.name === name) ?? {};
  $("bounds-name").value = name;
  $("bounds-count").value = session.count ?? "";
  $("bounds-days").value = session.age_s === undefined ? "" : session.age_s / DAY_S;
  for (const row of $("sessions").tBodies[0].rows)
    row.className = row.dataset.session === name ? "chosen" : "";
  read();
}
async function read(older = false) {
  const mine = shown, query = new URLSearchParams({
    limit: PAGE, search: $("search").value, ...(older ? {before: next} : {})});
  try {
    const page = await ask(`${place(mine)}?${query}`);
    if (mine !== shown) return;
    rows = older ? [...rows, ...page.recordings] : page.recordings;
    next = page.next;
    showRecordings();
  } catch (error) {
    rows = [];
    next = null;
    showRecordings();
    say(error.message, true);
  }
}
function showRecordings() {
  if (!isNew("rows", [shown, next, rows])) return;
  $("more").hidden = !next;
  fill("recordings", rows.map(recording => {
    const row = make("tr");
    row.append(cell(button(String(recording.number), () => open_(shown, recording.number)), "n"),
      cell(recording.method), cell(String(recording.status)), cell(recording.url),
      cell(recording.size.toLocaleString("en"), "n"),
      cell(String(recording.hits), "n"));
    return row;
  }));
}
async function open_(name, number) {
  try {
    const answer = await ask(place(name, number));
    opened = {name, number};
    $("detail-title").textContent = `Recording ${number} of ${name}`;
    $("text").value = JSON.stringify(answer.recording, null, 2);
    say("", false, "detail-note");
    $("detail").showModal();
  } catch (error) { say(error.message, true); }
}
async function change(work, done) {
  try {
    await work();
    say(done, false, "detail-note");
    seen = {};
    await look();
    return true;
  } catch (error) {
    say(error.message, true, "detail-note");
    return false;
  }
}
const save = () => change(async () => {
  JSON.parse($("text").value);
  await ask(place(opened.name, opened.number), {method: "PUT", body: $("text").value});
}, "saved");
// Asks first; the question names what is deleted
function ifSure(text, action) {
  $("sure-text").textContent = text;
  $("sure-yes").onclick = () => {
    $("sure").close();
    action();
  };
  $("sure").showModal();
  $("sure-no").focus();
}
async function remove() {
  if (await change(() => ask(place(opened.name, opened.number), {method: "DELETE"}), ""))
    $("detail").close();
}
async function removeSession(session) {
  try {
    await ask(place(session.name), {method: "DELETE"});
    say(`${session.name} is deleted`);
    if (shown === session.name) {
      shown = "";
      $("content").hidden = true;
    }
  } catch (error) { say(error.message, true); }
  look();
}
// A bound that is empty is not in it
function bounds() {
  const count = $("bounds-count").value, days = $("bounds-days").value;
  return {...(count ? {count: Number(count)} : {}),
    ...(days ? {age_s: Number(days) * DAY_S} : {})};
}
async function keep(method, done) {
  const name = $("bounds-name").value.trim();
  try {
    const answer = await ask(place(name), {method, body: JSON.stringify(bounds())});
    say(`${name} ${done(answer)}`, false, "bounds-note");
  } catch (error) { say(error.message, true, "bounds-note"); }
  look();
}
async function setMode(fields) {
  try {
    const answer = await ask(`mode?${new URLSearchParams(fields)}`, {method: "POST"});
    say(`mode ${answer.mode}`);
  } catch (error) { say(error.message, true); }
  look();
}
onSession = look;
startSession(text => { if (text) say(text, true, "state"); });
resume();
$("tools").addEventListener("submit", event => {
  event.preventDefault();
  setMode({mode: $("mode").value, session: $("session").value.trim()});
});
// What is recorded is replayed from then on; what is not is asked, and recorded
$("record-missing").addEventListener("click", () => setMode({mode: "cache"}));
$("bounds").addEventListener("submit", event => {
  event.preventDefault();
  keep("PUT", () => "is made");
});
$("set").addEventListener("click", () => $("bounds").reportValidity() && ifSure(
  `Delete now what is beyond these bounds of ${$("bounds-name").value.trim()}?`,
  () => keep("PATCH", session => `has ${session.recordings} recordings`)));
$("find").addEventListener("submit", event => {
  event.preventDefault();
  read();
});
$("more").addEventListener("click", () => read(true));
$("save").addEventListener("click", save);
$("delete").addEventListener("click", () => ifSure(
  `Delete recording ${opened.number} of ${opened.name}?`, remove));
$("sure-no").addEventListener("click", () => $("sure").close());
$("close").addEventListener("click", () => $("detail").close());

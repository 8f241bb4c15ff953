// The token is given once: /session makes a cookie of it, which no script can read, and a key,
// which the storage of this origin keeps. Both together are the session (admin/sessions.py).
const KEY = "cutthrough-key";
let ownKey = "", rights = null;         // null: no session

function storedKey() {
  try {
    return localStorage.getItem(KEY) ?? "";
  } catch {                             // storage is off: it lasts as long as the page
    return ownKey;
  }
}
function storeKey(key) {
  ownKey = key;
  try {
    if (key) localStorage.setItem(KEY, key); else localStorage.removeItem(KEY);
  } catch { /* see above */ }
}
const sessionFields = () => storedKey() ? {"X-Cutthrough-Key": storedKey()} : {};
const isSignedIn = () => rights !== null;

// What changes with the session; a page sets it
let onSession = () => {};
function setRights(session) {
  rights = session?.rights.length ? session.rights : null;
  if (!rights) storeKey("");
  const isIn = isSignedIn(), hadFocus = document.activeElement === $("token");
  $("token").hidden = isIn;
  $("who").hidden = $("sign-out").hidden = !isIn;
  $("who").textContent = session?.name ? `token ${session.name}` : "admin token";
  if (isIn && hadFocus) ($("list") ?? $("sign-out")).focus({focusVisible: false});
  onSession();
}
// Returns why not, or ""
async function signIn(token) {
  let answer;
  try {
    answer = await fetch("session", {method: "POST", headers: {Authorization: `Bearer ${token}`}});
    if (!answer.ok) return (await answer.text()).trim();
    const session = await answer.json();
    storeKey(session.key);
    $("token").value = "";
    setRights(session);
    return "";
  } catch {
    return "no answer";
  }
}
// Goes on with the session that there is
async function resume() {
  if (!storedKey()) return setRights(null);
  try {
    setRights(await (await fetch("session", {headers: sessionFields()})).json());
  } catch { /* no answer: the page says so itself */ }
}
async function signOut() {
  try {
    await fetch("session", {method: "DELETE", headers: sessionFields()});
  } catch { /* it ends by itself */ }
  setRights(null);
  $("token").focus();
}
// `tell` shows why a token is none
function startSession(tell) {
  $("token").addEventListener("change", async () => {
    const token = $("token").value;
    if (token) tell(await signIn(token));
  });
  $("sign-out").addEventListener("click", signOut);
  addEventListener("storage", event => {        // another tab has begun or ended it
    if (event.key === KEY && Boolean(event.newValue) !== isSignedIn()) resume();
  });
}

// Calls `take` with name and data of each event, to the end of the stream. Not an EventSource:
// that cannot send the key
async function readEvents(path, options, take, onBegin = () => {}) {
  const answer = await fetch(path, options);
  if (!answer.ok) throw new Error((await answer.text()).trim() || `status ${answer.status}`);
  onBegin();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const lines of events.map(event => event.split("\n"))) {
      const [name, data] = ["event: ", "data: "].map(start =>
        lines.find(line => line.startsWith(start))?.slice(start.length));
      if (data !== undefined && !options.signal.aborted) take(name ?? "", JSON.parse(data));
    }
  }
}

// Breakpoints: what waits for an operator, and the decision about it.
const HOLDS_MS = 500, ARM_S = 600, CHOSEN = ["methods", "hosts", "paths"];
let held = null, heldIds = null, heldBody = null, holdsTimer = 0;

function openHolds() {
  $("hold-note").textContent = "";
  showHeld(null);
  $("hold-dialog").showModal();
  readHolds();
}
// Reads what is held: while the dialog is open, and while breakpoints are armed
async function readHolds() {
  clearTimeout(holdsTimer);
  let armed = 0;
  try {
    const answer = await (await ask("breakpoints")).json();
    armed = answer.armed_s;
    $("hold-state").textContent = armed
      ? `armed for ${Math.ceil(armed)} s${chosenOf(answer)}; ${answer.held.length} held`
      : "not armed";
    listHolds(answer.held);
  } catch (error) {
    $("hold-state").textContent = error.message;
  }
  clearTimeout(holdsTimer);             // another call may have set it meanwhile
  if (armed || $("hold-dialog").open) holdsTimer = setTimeout(readHolds, HOLDS_MS);
}
function listHolds(all) {
  $("holds").textContent = all.length ? `breakpoints (${all.length})` : "breakpoints";
  const ids = all.map(message => message.id).join();
  if (ids === heldIds) return;          // a button stays while it is clicked
  heldIds = ids;
  $("hold-list").replaceChildren(...all.map(message => {
    const node = button(
      `${message.side}: ${message.method} ${message.url}`
        + (message.status ? ` → ${message.status}` : ""),
      () => chooseHeld(message.id));
    node.dataset.held = message.id;
    return node;
  }));
  if (held && !all.some(message => message.id === held.id)) {
    $("hold-note").textContent = "it is not held any more";
    showHeld(null);
  }
}
async function chooseHeld(id) {
  try {
    showHeld(await (await ask(`breakpoints/${id}`)).json());
    $("hold-note").textContent = "";
  } catch (error) { $("hold-note").textContent = error.message; }
}
function showHeld(message) {
  held = message;
  $("hold-form").hidden = !message;
  if (!message) return;
  const isRequest = message.side === "request", hasBody = message.body === "here";
  const data = hasBody ? Uint8Array.from(atob(message.content), c => c.charCodeAt(0)) : null;
  heldBody = editOctets($("hold-body"), data ?? new Uint8Array());
  $("hold-what").textContent = `${message.side} of ${message.user || message.client}, by ${message.rule}`
    + `; it goes on in ${Math.ceil(message.left_s)} s`;
  for (const name of ["method", "path"]) {
    $("hold-" + name).value = message[name];
    $("hold-" + name).disabled = !isRequest || hasBody;
  }
  $("hold-status").value = message.status ?? "";
  $("hold-status").disabled = isRequest;
  $("hold-fields").value = message.fields.map(([name, value]) => `${name}: ${value}`).join("\n");
  $("hold-body").disabled = message.body === "none";
  $("hold-body").placeholder = hasBody
    ? (heldBody.isText ? ""
      : `${bytes(data.length)} that are not UTF-8; they stay if this stays empty`)
    : message.body === "follows" ? "it follows; a text here replaces it" : "none";
  $("hold-collect").disabled = message.body !== "follows";
}
function editOf() {
  const edit = {action: "edit", fields: readFields($("hold-fields").value)};
  for (const name of ["method", "path"]) {
    const value = $("hold-" + name).value.trim();
    if (!$("hold-" + name).disabled && value !== held[name]) edit[name] = value;
  }
  const status = Number($("hold-status").value);
  if (!$("hold-status").disabled && status !== held.status) {
    if (!Number.isInteger(status)) throw new Error("the status is not a number");
    edit.status = status;
  }
  if (heldBody.isChanged())
    edit.body = toBase64(heldBody.octets(
      edit.fields.find(([name]) => /^content-type$/i.test(name))?.[1] ?? ""));
  return edit;
}
async function decideHeld(makeDecision) {
  try {
    const {id} = held;
    await ask(`breakpoints/${id}`, {method: "POST", body: JSON.stringify(makeDecision())});
    if (held?.id === id) showHeld(null);
    document.querySelector(`[data-held="${id}"]`)?.remove();
    heldIds = null;                     // the next reading makes the list again
    $("hold-note").textContent = "done";
  } catch (error) { $("hold-note").textContent = error.message; }
  readHolds();
}
// Which requests are held: nothing if all are
function chosenOf({armed_for: chosen = {}}) {
  const texts = CHOSEN.flatMap(name => chosen[name] ?? []);
  return texts.length ? ": " + texts.join(" ") : "";
}
async function armHolds(seconds) {
  const chosen = Object.fromEntries(CHOSEN.map(name =>
    [name, seconds ? $("hold-" + name).value.split(/[\s,]+/).filter(Boolean) : []]));
  try {
    await ask("breakpoints/armed", {method: "POST", body: JSON.stringify({seconds, ...chosen})});
    $("hold-note").textContent = "";
  } catch (error) { $("hold-note").textContent = error.message; }
  readHolds();
}
function startHolds() {
  $("holds").addEventListener("click", openHolds);
  $("hold-arm").addEventListener("click", () => armHolds(ARM_S));
  $("hold-disarm").addEventListener("click", () => armHolds(0));
  $("hold-pass").addEventListener("click", () => decideHeld(() => ({action: "pass"})));
  $("hold-abort").addEventListener("click", () => decideHeld(() => ({action: "abort"})));
  $("hold-collect").addEventListener("click", () => decideHeld(() => {
    const {body, ...edit} = editOf();
    return {...edit, hold_body: true};
  }));
  $("hold-form").addEventListener("submit", event => {
    event.preventDefault();
    decideHeld(editOf);
  });
}

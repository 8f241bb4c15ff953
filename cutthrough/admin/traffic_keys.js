// Keys: of one letter, so they act only while no field has the focus, and can be turned off.
const KEYS_OFF = "cutthrough-keys-off";
const LETTERS = {
  j: () => step(1), k: () => step(-1),
  "/": () => $("filter").focus(),
  r: () => replay("send-go"), e: () => replay("send-fields"),
  "?": () => $("keys-dialog").showModal(),
};
function step(by) {
  if (!total()) return;
  choose(chosenIndex() + by, false);
  if (document.activeElement === document.body) $("list").focus();
  openSoon();
}
function areKeysOff() {
  try {
    return localStorage.getItem(KEYS_OFF) === "yes";
  } catch {
    return false;
  }
}
function startKeys() {
  $("keys-on").checked = !areKeysOff();
  $("keys-on").addEventListener("change", () => {
    try {
      localStorage.setItem(KEYS_OFF, $("keys-on").checked ? "no" : "yes");
    } catch { /* storage is off */ }
  });
  $("keys").addEventListener("click", () => $("keys-dialog").showModal());
  document.addEventListener("keydown", event => {
    const {target, key} = event;
    if (event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey
      || target.closest("dialog")) return;
    if (key === "Escape") {
      if (!$("detail").hidden) closeDetail();
      else $("list").focus();
    } else if (LETTERS[key] && $("keys-on").checked
      && !target.closest("input, textarea, select")) {
      event.preventDefault();
      LETTERS[key]();
    }
  });
}

// Completion of the filter: operators, then values that flows in the list have.
const OPERATORS = [["~d", "host matches"], ["~m", "method matches"], ["~u", "URL matches"],
  ["~c", "status is, as 404 or 4xx"], ["~t", "content type matches"], ["~tq", "request's type matches"],
  ["~ts", "response's type matches"], ["~h", "a field matches, as name: value"],
  ["~hq", "a request field matches"], ["~hs", "a response field matches"],
  ["~b", "a body or message matches"], ["~bq", "request body matches"], ["~bs", "response body matches"],
  ["~q", "no response"], ["~s", "has a response"], ["~websocket", "is a WebSocket"],
  ["~e", "ended by a fault"], ["~time", "begun, as >-10m, <10:30 or 2026-11-27"],
  ["~dur", "lasted, as >1.5s or <200ms"], ["~size", "bytes both ways, as >64k or <1M"],
  ["~tag", "tag matches"], ["~comment", "comment matches"], ["~user", "user matches"],
  ["~rule", "rule's name matches"], ["~reason", "reason matches"],
  ["~src", "client's address matches, as 192.0.2.1:5000"],
  ["~dst", "address behind the proxy matches"], ["~sni", "server name inside a tunnel matches"],
  ["~ja4", "JA4 inside a tunnel matches"], ["~client_ja4", "client's JA4 matches"],
  ["~client_ja3", "client's JA3 matches"], ["~http2_fingerprint", "client's HTTP/2 matches"],
  ["~program", "was captured by the program"]];
const BARE = new Set(["~q", "~s", "~websocket", "~e"]);
const JOINTS = [["&", "and"], ["|", "or"], ["!", "not"], ["(", "group"]];
const MOST_HINTS = 12, MOST_VALUES = 300;
// Values by operator, of the flows in the list
const VALUES = {"~d": "host", "~m": "method", "~c": "status", "~t": "type", "~ts": "type",
  "~program": "program", "~tag": "tag", "~comment": "comment", "~user": "user",
  "~rule": "rule", "~reason": "reason", "~src": "client", "~dst": "peer", "~sni": "sni",
  "~ja4": "ja4", "~client_ja4": "client_ja4", "~http2_fingerprint": "http2_fingerprint"};
const known = Object.fromEntries(Object.values(VALUES).map(field => [field, new Map()]));
const counted = new Set();      // flows: another filter reads them again
let hints = [], hintAt = -1, hintFrom = 0;

function learn(flows) {
  if (counted.size > MOST_ROWS) counted.clear();
  for (const flow of flows) {
    if (counted.has(flow.id)) continue;
    counted.add(flow.id);
    learnOne(flow);
  }
}
function learnOne(fields) {
  for (const field in known) {
    const value = fields[field], map = known[field];
    if (value !== undefined && value !== "" && (map.has(value) || map.size < MOST_VALUES))
      map.set(value, (map.get(value) ?? 0) + 1);
  }
}
// A value as an argument: a regular expression, quoted if the language needs it
function asArgument(value) {
  const text = String(value).replace(/[*+?^${}()|[\]\\]/g, "\\$&");
  return /[\s()&|"']/.test(text) ? `"${text.replace(/"/g, '\\"')}"` : text;
}
// What could stand at the end of `text`: {from, list of [insert, explanation]}
function complete(text) {
  const value = /(?:^|[\s(!&|])(~[a-z0-9_]+)\s+([^\s()&|"']*)$/.exec(text);
  if (value && VALUES[value[1]]) {
    const typed = value[2].toLowerCase();
    const matches = [...known[VALUES[value[1]]]].filter(([name]) =>
      String(name).toLowerCase().includes(typed)).sort((a, b) => b[1] - a[1]);
    return {from: text.length - value[2].length,
      list: matches.map(([name, n]) => [asArgument(name) + " ", n === 1 ? "1 flow" : `${n} flows`])};
  }
  const operator = /(?:^|[\s(!&|])(~[a-z0-9_]*)$/.exec(text);
  if (operator) return {from: text.length - operator[1].length,
    list: OPERATORS.filter(([name]) => name.startsWith(operator[1]))
      .map(([name, why]) => [name + " ", why])};
  if (!text || /[!&|(]\s*$/.test(text)) return {from: text.length,
    list: OPERATORS.map(([name, why]) => [name + " ", why])};
  const last = /(~[a-z0-9_]+)\s+\S+\s+$|(~(?:[qse]|websocket))\s+$/.exec(text);
  if (last && (last[1] ? !BARE.has(last[1]) : true)) return {from: text.length,
    list: JOINTS.map(([name, why]) => [name + (name === "&" || name === "|" ? " " : ""), why])};
  return {from: text.length, list: []};
}
function showHints() {
  const field = $("filter"), text = field.value.slice(0, field.selectionStart);
  const {from, list} = complete(text);
  hintFrom = from;
  hints = list.slice(0, MOST_HINTS);
  hintAt = -1;
  $("hints").replaceChildren(...hints.map(([insert, why], i) => {
    const item = document.createElement("li"), name = document.createElement("b");
    item.id = "hint-" + i;
    item.setAttribute("role", "option");
    item.setAttribute("aria-selected", "false");
    name.textContent = insert.trim();
    item.append(name, why);
    // Not click: the field would lose the focus first
    item.addEventListener("pointerdown", event => { event.preventDefault(); takeHint(i); });
    return item;
  }));
  $("hints").hidden = !hints.length;
  field.setAttribute("aria-expanded", String(hints.length > 0));
  field.removeAttribute("aria-activedescendant");
}
function hideHints() {
  $("hints").hidden = true;
  hints = [];
  $("filter").setAttribute("aria-expanded", "false");
  $("filter").removeAttribute("aria-activedescendant");
}
function moveHint(step) {
  if (!hints.length) return showHints();
  hintAt = (hintAt + step + hints.length) % hints.length;
  [...$("hints").children].forEach((item, i) => {
    item.setAttribute("aria-selected", String(i === hintAt));
    if (i === hintAt) item.scrollIntoView({block: "nearest"});
  });
  $("filter").setAttribute("aria-activedescendant", "hint-" + hintAt);
}
function takeHint(i) {
  const field = $("filter"), end = field.selectionStart, [insert] = hints[i];
  field.value = field.value.slice(0, hintFrom) + insert + field.value.slice(end);
  field.selectionStart = field.selectionEnd = hintFrom + insert.length;
  field.focus();
  showHints();
}
function startFilter() {
  const field = $("filter");
  for (const name of ["input", "click", "focus"]) field.addEventListener(name, showHints);
  field.addEventListener("blur", hideHints);
  field.addEventListener("keydown", event => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      moveHint(event.key === "ArrowDown" ? 1 : -1);
    } else if (event.key === "Escape" && hints.length) {
      event.preventDefault();
      hideHints();
    } else if (hints.length && (event.key === "Enter" || event.key === "Tab") && hintAt >= 0) {
      event.preventDefault();
      takeHint(hintAt);
    }
  });
}

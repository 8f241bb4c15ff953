// The first rows of a filter, from flows that the page has already read: they are there before
// the listener's answer, which has the last word. `whole` is the list without a filter.
//
// It reads terms of these operators, with `!` and `&`, and arguments that mean the same to RE2
// and to JavaScript: letters, digits, signs, `^`, `$`, and a dot. Other filters wait.
const LOCAL = {"~d": flow => flow.host, "~m": flow => flow.method, "~u": flow => flow.url,
  "~user": flow => flow.user, "~rule": flow => flow.rule, "~reason": flow => flow.reason};
const PLAIN = /^\^?(?:[\w\-/:%=,@#<>;.]|\\[.\-/?+*()|[\]{}^$])+\$?$/;
let whole = null;

// A test, or null if it is for the listener alone
function readLocally(text) {
  const tests = [], words = text.split(/\s+/);
  if (!text) return () => true;
  for (let i = 0; i < words.length; i++) {
    if (words[i] === "&" && tests.length && i + 1 < words.length) continue;
    const not = words[i].startsWith("!"), word = words[i].slice(not ? 1 : 0);
    const test = word === "~c" ? readStatus(words[++i])
      : LOCAL[word] ? readPattern(LOCAL[word], words[++i])
        : readPattern(LOCAL["~u"], word);
    if (!test) return null;
    tests.push(not ? flow => !test(flow) : test);
  }
  return tests.length ? flow => tests.every(test => test(flow)) : null;
}
function readPattern(textOf, pattern) {
  if (!pattern || !PLAIN.test(pattern)) return null;
  const expression = new RegExp(pattern, "im"), known = new Map();
  return flow => {
    const text = textOf(flow) ?? "";
    let passes = known.get(text);
    if (passes === undefined) known.set(text, passes = expression.test(text));
    return passes;
  };
}
function readStatus(text) {
  if (/^[1-5]xx$/i.test(text)) return flow => Math.floor((flow.status ?? 0) / 100) === +text[0];
  return /^[0-9]{1,3}$/.test(text) ? flow => flow.status === +text : null;
}

// Before the list is emptied: one that has everything is kept
function keepWhole() {
  if (!applied.filter && !applied.search && complete_) whole = {newer, older};
}
// Of a page that is signed out, and of one whose flows have been deleted
function forgetWhole() { whole = null; }

// Adds the rows in view, if they are known, and returns their flows
function showLocally() {
  const passes = whole && !applied.search && readLocally(applied.filter), early = [];
  if (!passes) return early;
  const most = rowsInView(), {newer: newest, older: oldest} = whole;
  const take = flow => { if (!flow.open && !flow.gone && passes(flow)) early.push(flow); };
  for (let i = newest.length; i-- && early.length < most;) take(newest[i]);
  for (let i = 0; i < oldest.length && early.length < most; i++) take(oldest[i]);
  addOlder(early);
  if (early.length) render();           // the next frame may be 16 ms away
  return early;
}
// The listener's first page takes the place of other rows
function confirmRows(early, flows) {
  if (early.length !== flows.length || early.some((flow, i) => flow.id !== flows[i].id))
    return clearList();
  flows.forEach((flow, i) => {
    if (flow.tag !== early[i].tag) putFlow(byId.get(flow.id), flow);
  });
}

// Two flows, line by line: the proxy compares them, and the page shows its unified diff. Bodies
// that are JSON are compared by path too, here.
const MOST_PATHS = 500, MOST_VALUE = 200;
let comparedWith = null;

const kindOf = value => value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
const own = (value, key) => Object.hasOwn(value, key) ? value[key] : undefined;
// Rows of path, and both values; undefined: there is none
function* pathsOf(left, right, path = "$") {
  const kind = kindOf(left);
  if (kind !== kindOf(right) || !["array", "object"].includes(kind)) {
    if (left !== right) yield [path, left, right];
    return;
  }
  for (const key of new Set([...Object.keys(left), ...Object.keys(right)])) {
    const step = kind === "array" ? `[${key}]`
      : /^[A-Za-z_]\w*$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`;
    yield* pathsOf(own(left, key), own(right, key), path + step);
  }
}
function valueNode(tag, value, isOtherKind) {
  if (value === undefined) return make("span", "absent", "soft");
  const text = JSON.stringify(value);
  return make(tag, (text.length > MOST_VALUE ? text.slice(0, MOST_VALUE) + "…" : text)
    + (isOtherKind ? ` (${kindOf(value)})` : ""));
}
function pathTable(left, right) {
  const rows = [];
  for (const [path, before, after] of pathsOf(left, right)) {
    if (rows.length === MOST_PATHS) {
      rows.push(["more", "", ""]);
      break;
    }
    const isOtherKind = before !== undefined && after !== undefined
      && kindOf(before) !== kindOf(after);
    rows.push([make("code", path), valueNode("del", before, isOtherKind),
      valueNode("ins", after, isOtherKind)]);
  }
  return rows.length ? table(rows) : null;
}
// Of each side whose bodies are both JSON
async function jsonNodes(a, b) {
  const nodes = [];
  for (const side of ["request", "response"]) {
    const isJson = flow => ["json", "graphql"].includes(flow[side + "_views"]?.[0]);
    if (![a, b].every(isJson)) continue;
    try {
      const [left, right] = (await Promise.all([a, b].map(of => readBody(of, side))))
        .map(data => JSON.parse(decoded(data)));
      const rows = pathTable(left, right);
      if (rows) nodes.push(make("h2", `${side} body, by path`), rows);
    } catch { /* not JSON after all, or not whole: there are its lines */ }
  }
  return nodes;
}

// A line of a hunk is known by the numbers in the hunk's first line: one that begins with
// "-- " is no head of a part when it is deleted
function diffNodes(text) {
  const nodes = [], first = /^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@/;
  let pre = null, old = 0, fresh = 0;
  for (const line of text.split("\n").slice(0, -1)) {
    const hunk = old + fresh ? null : first.exec(line);
    if (hunk) {
      old = Number(hunk[1] ?? 1);
      fresh = Number(hunk[2] ?? 1);
      pre = make("pre");
      nodes.push(make("p", line, "soft"), pre);
    } else if (old + fresh) {
      const sign = line[0];
      pre.append(sign === "+" ? make("ins", line) : sign === "-" ? make("del", line)
        : line + "\n");
      old -= sign !== "+";
      fresh -= sign !== "-";
    } else if (line.startsWith("--- ")) nodes.push(make("h2", line.split(", ").slice(1).join(", ")));
    else if (!line.startsWith("+++ ")) nodes.push(make("p", line));
  }
  return nodes;
}
async function compare() {
  if (!flow || isTooEarly()) return;
  if (comparedWith === null || comparedWith.id === flow.id) {
    comparedWith = comparedWith ? null : flow;
    $("note").textContent = comparedWith ? `choose another flow to compare with #${flow.id}` : "";
    showCompare();
    return;
  }
  const a = comparedWith, b = flow;
  comparedWith = null;
  showCompare();
  $("note").textContent = "";
  $("diff-title").textContent = `#${a.id} and #${b.id}`;
  try {
    const text = await (await ask(`flows/${a.id}/diff/${b.id}`)).text();
    $("diff").replaceChildren(...text ? [...await jsonNodes(a, b), ...diffNodes(text)]
      : [make("p", "equal", "soft")]);
  } catch (error) { $("diff").replaceChildren(make("p", error.message, "bad")); }
  $("diff-dialog").showModal();
}
function showCompare() {
  $("compare").textContent = comparedWith && (!flow || comparedWith.id !== flow.id)
    ? `diff with #${comparedWith.id}` : comparedWith ? "comparing …" : "compare";
}

// Two flows, line by line.
const MOST_CELLS = 4000000;
let comparedWith = null;

// The lines as [mark, line]: " " in both, "-" of `a` alone, "+" of `b` alone
function compareLines(a, b) {
  let start = 0, endA = a.length, endB = b.length;
  while (start < endA && start < endB && a[start] === b[start]) start++;
  while (endA > start && endB > start && a[endA - 1] === b[endB - 1]) { endA--; endB--; }
  const n = endA - start, m = endB - start, found = a.slice(0, start).map(line => [" ", line]);
  if (n * m > MOST_CELLS) {             // too long to align
    found.push(...a.slice(start, endA).map(line => ["-", line]),
      ...b.slice(start, endB).map(line => ["+", line]));
  } else {
    // Lengths of the longest common subsequences of the rests
    const width = m + 1, common = new Uint16Array((n + 1) * width);
    for (let i = n - 1; i >= 0; i--)
      for (let j = m - 1; j >= 0; j--)
        common[i * width + j] = a[start + i] === b[start + j]
          ? common[(i + 1) * width + j + 1] + 1
          : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    let i = 0, j = 0;
    while (i < n || j < m) {
      if (i < n && j < m && a[start + i] === b[start + j]) {
        found.push([" ", a[start + i]]);
        i++; j++;
      } else if (i < n && (j === m || common[(i + 1) * width + j] >= common[i * width + j + 1]))
        found.push(["-", a[start + i++]]);
      else found.push(["+", b[start + j++]]);
    }
  }
  return [...found, ...a.slice(endA).map(line => [" ", line])];
}
function differences(a, b) {
  const pre = make("pre"), lines = compareLines(a, b);
  for (const [sign, line] of lines)
    pre.append(sign === " " ? `  ${line}\n` : make(sign === "+" ? "ins" : "del", `${sign} ${line}`));
  return lines.some(([sign]) => sign !== " ") ? pre : make("p", "equal", "soft");
}
async function linesOf(one, side) {
  const kind = one[side + "_body"];
  if (kind === "none") return [];
  const data = new Uint8Array(await (await ask(`flows/${one.id}/${side}-body`)).arrayBuffer());
  if (kind !== "text") return hexLines(data.subarray(0, 65536)).split("\n");
  const text = decoded(data);
  return ((/json/i.test(one[side + "_type"]) ? pretty(text) : null) ?? text).split(/\r?\n/);
}
const headLines = head => (head ?? "").trimEnd().split(/\r?\n/).filter(Boolean);

async function compare() {
  if (!flow) return;
  if (comparedWith === null || comparedWith.id === flow.id) {
    comparedWith = comparedWith ? null : flow;
    $("note").textContent = comparedWith ? `choose another flow to compare with #${flow.id}` : "";
    showCompare();
    return;
  }
  const a = comparedWith, b = flow, parts = [];
  comparedWith = null;
  showCompare();
  $("note").textContent = "";
  $("diff-title").textContent = `#${a.id} and #${b.id}`;
  try {
    for (const side of ["request", "response"]) {
      parts.push(make("h2", side), differences(headLines(a[side + "_head"]),
        headLines(b[side + "_head"])));
      parts.push(make("h2", side + " body"), differences(await linesOf(a, side),
        await linesOf(b, side)));
    }
  } catch (error) { parts.push(make("p", error.message, "bad")); }
  $("diff").replaceChildren(...parts);
  $("diff-dialog").showModal();
}
function showCompare() {
  $("compare").textContent = comparedWith && (!flow || comparedWith.id !== flow.id)
    ? `diff with #${comparedWith.id}` : comparedWith ? "comparing …" : "compare";
}

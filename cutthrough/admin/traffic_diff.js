// Two flows, line by line: the proxy compares them, and the page shows its unified diff.
let comparedWith = null;

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
    $("diff").replaceChildren(...text ? diffNodes(text) : [make("p", "equal", "soft")]);
  } catch (error) { $("diff").replaceChildren(make("p", error.message, "bad")); }
  $("diff-dialog").showModal();
}
function showCompare() {
  $("compare").textContent = comparedWith && (!flow || comparedWith.id !== flow.id)
    ? `diff with #${comparedWith.id}` : comparedWith ? "comparing …" : "compare";
}

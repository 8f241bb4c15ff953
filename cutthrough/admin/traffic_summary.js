// Hosts and the slowest flows of the applied filter. A host becomes a filter, a flow opens.
const MOST_SUMMED = 50;

async function showSummary() {
  $("summary-note").textContent = "";
  const fields = {filter: applied.filter, limit: MOST_SUMMED};
  try {
    const [hosts, slow] = await Promise.all(["hosts", "slowest"].map(async name =>
      (await ask(`flows/${name}?` + query(fields))).json()));
    $("summary-hosts").replaceChildren(summaryTable(["host", "flows", "failed", "bytes"],
      hosts.hosts.map(row => [button(row.host || "–", () => filterHost(row.host)), row.count,
        row.failed, row.bytes.toLocaleString("en")])));
    $("summary-slowest").replaceChildren(summaryTable(["flow", "time", "status"],
      slow.flows.map(row => [button(`${row.method} ${row.url}`, () => openSummed(row.id)),
        duration(row.ms * 1000), row.status ?? row.reason])));
    if (hosts.next) $("summary-note").textContent = `only flows from #${hosts.next} on`;
  } catch (error) { $("summary-note").textContent = error.message; }
  $("summary-dialog").showModal();
}
function summaryTable(names, rows) {
  const made = table(rows, 1, 2, 3);
  const head = made.createTHead().insertRow();
  names.forEach((name, i) => {
    const th = make("th", name, i ? "n" : "");
    th.scope = "col";
    head.append(th);
  });
  return made;
}
function filterHost(host) {
  $("summary-dialog").close();
  $("filter").value = `~d ${asArgument(host)}`;
  $("tools").requestSubmit();
}
function openSummed(id) {
  $("summary-dialog").close();
  openDetail(id);
}

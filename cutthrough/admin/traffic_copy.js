// A request as a command of curl, a call of fetch or of httpx: the proxy writes them.
async function copyAs(name) {
  if (!flow || !name) return;
  const {id} = flow;
  try {
    $("text").value = await (await ask(`${pathOf(id)}/as/${name}`)).text();
  } catch (error) {
    $("note").textContent = error.message;
    return;
  }
  $("text-title").textContent = `#${id} as ${name}`;
  $("text-note").textContent = "";
  $("text-dialog").showModal();
}
async function copyText() {
  $("text").select();
  try {
    await navigator.clipboard.writeText($("text").value);
    $("text-note").textContent = "copied";
  } catch {                             // not from a secure context, or not permitted
    $("text-note").textContent = "selected: press Ctrl+C";
  }
}
